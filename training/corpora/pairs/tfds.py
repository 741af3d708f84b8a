"""Text pairs from TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, Self

import pydantic
from pydantic import Field

from ..error import CorpusError
from ..tfds_corpus import TfdsCorpus, listed
from .corpus import PairCorpus


class TfdsPairs(TfdsCorpus, PairCorpus):
    """Pairs from a translation corpus of TensorFlow Datasets, or any of its corpora with two text features.

    To translate the other way, swap `source` and `target`; naming one of the two is enough.

    Raises:
        CorpusError: from `splits` and `read`, where TensorFlow Datasets knows no such corpus, or it is neither
            prepared nor can be; has no such split or text feature; or its files are damaged.
    """

    kind: Literal["tfds"] = "tfds"
    source: str | None = Field(
        default=None,
        description="the feature with the source text, a nested one as outer/inner; if left out: the first of the "
        "corpus's supervised keys, or of its two languages in alphabetical order",
    )
    target: str | None = Field(
        default=None, description="the feature with the target text; if left out: the other one of those two"
    )

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.source is not None and self.source == self.target:
            raise ValueError(f"`source` and `target` must be different features. Received: {self.source!r} for both")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits; the corpus is prepared if it is not yet, since only then they are known."""
        return tuple(self._expressions)

    @property
    def language(self) -> str | None:
        """The language of the targets, where the corpus calls its texts by their languages."""
        import tensorflow_datasets as tfds

        features = self._builder.info.features
        name = self._features[1]
        return name if isinstance(features, tfds.features.Translation) and name in features.languages else None

    def _read(self, split: str) -> Iterator[Any]:
        return self._examples(split, self._features)

    @cached_property
    def _features(self) -> tuple[str, str]:
        """The names of the source and the target feature."""
        info = self._builder.info
        texts = self._text_features
        if len(texts) < 2:
            raise CorpusError(f"{self.name}: not a corpus of pairs; its text features: {listed(texts)}.")
        for field, name in (("source", self.source), ("target", self.target)):
            if name is not None and name not in texts:
                raise CorpusError(f"{self.name}: {field} = {name!r} is none of its text features: {listed(texts)}.")
        if self.source and self.target:
            return self.source, self.target
        pair, ordered = _usual_pair(info, texts)
        if self.source in pair:
            return self.source, pair[1 - pair.index(self.source)]
        if self.target in pair:
            return pair[1 - pair.index(self.target)], self.target
        if self.source or self.target or not ordered:
            raise CorpusError(
                f"{self.name}: the corpus does not say which text is the source and which the target; set source and "
                f"target to two of its text features: {listed(texts)}."
            )
        return pair[0], pair[1]


def _usual_pair(info: Any, texts: list[str]) -> tuple[tuple[str, ...], bool]:
    """Two text features, or none, and whether their order says which is the source."""
    import tensorflow_datasets as tfds

    keys = info.supervised_keys
    if isinstance(keys, tuple) and len(keys) == 2 and all(isinstance(key, str) and key in texts for key in keys):
        return keys, True
    two = tuple(texts) if len(texts) == 2 else ()
    return two, bool(two) and isinstance(info.features, tfds.features.Translation)
