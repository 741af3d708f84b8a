"""A small TFDS corpus: one config for each shape that a corpus of pairs can have."""

import numpy as np
import tensorflow_datasets as tfds

_TEXT = tfds.features.Text
_CONFIGS = {
    "supervised": (tfds.features.Translation(["de", "en"]), ("en", "de")),
    "unsupervised": (tfds.features.Translation(["de", "en"]), None),
    "three": (tfds.features.Translation(["de", "en", "fr"]), None),
    "plain": (tfds.features.FeaturesDict({"question": _TEXT(), "answer": _TEXT(), "year": np.int64}), None),
    "nested": (
        tfds.features.FeaturesDict({"id": _TEXT(), "both": tfds.features.Translation(["de", "en"])}),
        None,
    ),
    "latin": (tfds.features.Translation(["de", "en"]), ("de", "en")),
    "classes": (
        tfds.features.FeaturesDict(
            {
                "id": _TEXT(),
                "text": _TEXT(),
                "hypothesis": _TEXT(),
                "label": tfds.features.ClassLabel(names=["no", "yes"]),
                "genre": _TEXT(),
            }
        ),
        None,
    ),
    "numbers": (tfds.features.FeaturesDict({"x": np.int64, "words": tfds.features.Sequence(_TEXT())}), None),
}
SIZES = {"train": 10, "validation": 4, "test": 3}


def example(config: str, split: str, n: int) -> dict:
    """The example that is written for a split."""
    sides = {side: f"{side} ü {split} {n}" for side in ("de", "en", "fr", "question", "answer", "id")}
    if config == "plain":
        return {"question": sides["question"], "answer": sides["answer"], "year": n}
    if config == "nested":
        return {"id": sides["id"], "both": {"de": sides["de"], "en": sides["en"]}}
    if config == "latin":
        return {"de": "größe".encode("latin-1"), "en": sides["en"]}
    if config == "classes":  # whose test has no labels, as that of GLUE
        label = -1 if split == "test" else n % 2
        return {
            "id": str(n),
            "text": f"text {split} {n}",
            "hypothesis": f"so {n}",
            "label": label,
            "genre": " " if split == "test" else "abc"[n % 3],
        }
    if config == "numbers":
        return {"x": n, "words": [sides["de"]]}
    return {side: sides[side] for side in _CONFIGS[config][0]}


class Builder(tfds.core.GeneratorBasedBuilder):
    """Pairs made on the spot; the plain config calls its validation split 'dev'."""

    VERSION = tfds.core.Version("1.2.3")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name) for name in _CONFIGS]  # noqa: RUF012

    def _info(self) -> tfds.core.DatasetInfo:
        features, keys = _CONFIGS[self.builder_config.name]
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=keys)

    def _split_generators(self, dl_manager):
        names = {"validation": "dev"} if self.builder_config.name == "plain" else {}
        return {names.get(split, split): self._generate_examples(split) for split in SIZES}

    def _generate_examples(self, split):
        for n in range(SIZES[split]):
            yield n, example(self.builder_config.name, split, n)
