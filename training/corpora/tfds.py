"""Corpora of TensorFlow Datasets: finding and reading them; then their pairs, their running text, their labels."""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, Self

import pydantic
from pydantic import Field

from zoo.extras import needs

from ..progress import console
from .corpus import CorpusError
from .labelled import LabelledCorpus, LabelledText
from .pairs import PairCorpus
from .texts import Document, TextCorpus, in_pieces

logger = logging.getLogger(__name__)

_BATCH = 1024


class TfdsCorpus(pydantic.BaseModel):
    """A corpus of TensorFlow Datasets, of pairs or of running text.

    A corpus that is prepared in `data_dir` is read from there, even if the code that made it is not installed, and
    nothing is downloaded. Any other is downloaded and prepared there once.

    Raises:
        CorpusError: from every use of its files, if TensorFlow Datasets knows no such corpus, or it is neither prepared
            nor can be; has no such split; or its files are damaged.
    """

    name: str = Field(
        min_length=1, description="the corpus as TensorFlow Datasets names it: name, name/config or name/config:version"
    )
    data_dir: str | None = Field(
        default=None,
        description="folder of prepared corpora; `~` is the home folder, a relative path is relative to the working "
        "directory; default: the folder in TFDS_DATA_DIR, or ~/tensorflow_datasets",
    )
    train_split: str | None = Field(default=None, description="the training split, such as train[:90%]; default: train")
    validation_split: str | None = Field(
        default=None, description="the validation split, such as train[90%:]; default: validation, if it exists"
    )
    test_split: str | None = Field(default=None, description="the test split; default: test, if it exists")

    @cached_property
    def _expressions(self) -> dict[str, str]:
        """The TFDS split expression of each split."""
        known = self._builder.info.splits
        told = {"train": self.train_split, "validation": self.validation_split, "test": self.test_split}
        # A missing train split is an error below; a missing validation or test split is not.
        found = {
            s: s if text is None else text for s, text in told.items() if text is not None or s in {*known, "train"}
        }
        infos = {}
        for split, expression in found.items():
            try:
                infos[split] = known[expression]
            except Exception:  # TFDS raises many types here, assertions among them
                raise CorpusError(
                    f"{self.name}: {split}_split = {expression!r} is not one of its splits {', '.join(sorted(known))}, "
                    "nor a part of one, such as train[:90%]."
                ) from None
            if not infos[split].num_examples:
                raise CorpusError(f"{self.name}: {split}_split = {expression!r} holds no example.")
        for one, other in itertools.combinations(infos, 2):
            if common := _overlap(infos[one], infos[other]):
                logger.warning("%s: splits %r and %r have %d examples in common.", self.name, one, other, common)
        return found

    @cached_property
    def _text_features(self) -> list[str]:
        """The names of the features that are one text, in alphabetical order; of a nested one outer/inner."""
        return sorted(_texts(self._builder.info.features))

    def _chosen_text(self, feature: str | None) -> str:
        """The feature that was asked for; else `text`, or the only one."""
        texts = self._text_features
        if feature is None:
            if "text" in texts or len(texts) == 1:
                return "text" if "text" in texts else texts[0]
            raise CorpusError(f"{self.name}: set feature to one of its text features: {_listed(texts)}.")
        if feature not in texts:
            raise CorpusError(f"{self.name}: feature = {feature!r} is not one of its text features: {_listed(texts)}.")
        return feature

    def _examples(self, split: str, features: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """These features of each example of a split, texts or numbers, in a fixed order."""
        import tensorflow as tf

        tfds = _tfds()

        paths = [name.split("/") for name in features]
        expression = self._expressions[split]
        config = tfds.ReadConfig(try_autocache=False)  # callers keep what they need
        try:
            examples = self._builder.as_dataset(split=expression, shuffle_files=False, read_config=config)
            texts = examples.map(lambda example: tuple(functools.reduce(operator.getitem, p, example) for p in paths))
            batches = texts.batch(_BATCH).as_numpy_iterator()
            rows = itertools.chain.from_iterable(zip(*batch, strict=True) for batch in batches)
            for number, row in enumerate(rows, 1):
                yield _decoded(row, f"{self.name}: example {number} of {expression!r}")
        except tf.errors.OpError as error:
            raise CorpusError(
                f"{self.name}: the files in {self._builder.data_dir} are damaged or incomplete ({_reason(error)}); "
                "delete that folder and prepare it again."
            ) from None

    @cached_property
    def _builder(self) -> Any:
        """The TFDS builder, with its files prepared."""
        tfds = _tfds()

        data_dir = tfds.core.Path(self.data_dir).expanduser() if self.data_dir else None
        try:
            builder = tfds.builder(self.name, data_dir=data_dir)
        except tfds.core.DatasetNotFoundError:
            raise self._unknown(data_dir) from None
        except Exception as error:  # a config, version or form of name that does not exist, each of another type
            raise self._unknown(data_dir, _reason(error)) from None
        if not builder.data_path.exists():
            self._prepare(builder)
        elif not builder.is_prepared():
            raise CorpusError(f"{self.name}: {builder.data_dir} is not a prepared corpus; move that folder away.")
        return builder

    def _unknown(self, data_dir: Any, reason: str = "") -> CorpusError:
        tfds = _tfds()

        folder = tfds.core.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
        features = itertools.chain(*(folder.glob(f"{depth}/features.json") for depth in ("*/*", "*/*/*")))
        versions = [file.parent.relative_to(folder) for file in features]
        prepared = sorted(f"{version.parent.as_posix()}:{version.name}" for version in versions)
        known = [*prepared, *tfds.list_builders(with_community_datasets=False)]
        dataset = self.name.split("/")[0].split(":")[0]
        if dataset in known:
            known += [f"{dataset}/{config}" for config in tfds.builder_cls(dataset).builder_configs]
        near = get_close_matches(self.name, known, n=3)
        # A reason that ends in a colon would go on with a list, which `near` makes up for.
        what = f"has no corpus {self.name!r}" if reason[-1:] in ("", ":") else f"cannot load {self.name!r}: {reason}"
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        return CorpusError(f"TensorFlow Datasets {what}; prepared in data_dir {folder}: {_listed(prepared)}{hint}")

    def _prepare(self, builder: Any) -> None:
        missing = f"{self.name} is not prepared in {builder.data_dir}, and"
        advice = f"Prepare it where there is a network, with `tfds build {self.name}`, and copy it to that folder."
        if hosts := _unreachable(builder.url_infos or ()):
            raise CorpusError(f"{missing} cannot be downloaded: no network, or no host {' or '.join(hosts)}. {advice}")
        if not console.is_terminal:
            tfds = _tfds()

            tfds.disable_progress_bar()
        try:
            builder.download_and_prepare()
        except Exception as error:  # the corpus's own code may raise anything
            logger.debug("%s cannot be prepared", self.name, exc_info=True)
            raise CorpusError(
                f"{missing} preparing it failed: {type(error).__name__}: {_reason(error)}. {advice}"
            ) from None


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
        description="the feature with the source text, a nested one as outer/inner; default: the first "
        "supervised key of the corpus, else the alphabetically first of its two languages",
    )
    target: str | None = Field(
        default=None, description="the feature with the target text; default: the other of the two"
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
        tfds = _tfds()

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
            raise CorpusError(f"{self.name}: not a corpus of pairs; its text features: {_listed(texts)}.")
        for field, name in (("source", self.source), ("target", self.target)):
            if name is not None and name not in texts:
                raise CorpusError(f"{self.name}: {field} = {name!r} is not one of its text features: {_listed(texts)}.")
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
                f"target to two of its text features: {_listed(texts)}."
            )
        return pair[0], pair[1]


class TfdsTexts(TfdsCorpus, TextCorpus):
    """Texts from any corpus of TensorFlow Datasets that has a text feature; each example is a document.

    Raises:
        CorpusError: from `splits` and `documents`, where TensorFlow Datasets knows no such corpus, or it is neither
            prepared nor can be; has no such split or text feature; or its files are damaged.
    """

    kind: Literal["tfds"] = "tfds"
    feature: str | None = Field(
        default=None,
        description="the feature with the text, a nested one as outer/inner; default: `text`, or the only one",
    )

    @property
    def _given(self) -> tuple[str, ...]:
        return tuple(self._expressions)

    def _read(self, split: str) -> Iterator[Document]:
        for (text,) in self._examples(split, [self._chosen_text(self.feature)]):
            yield in_pieces(text.splitlines(keepends=True))


class TfdsLabels(TfdsCorpus, LabelledCorpus):
    """Texts with classes from any corpus of TensorFlow Datasets that has a text and a class label.

    Raises:
        CorpusError: from `splits` and `read`, where TensorFlow Datasets knows no such corpus, or it is neither
            prepared nor can be; has no such split, text or label; a split has no labels, as the test of GLUE; or its
            files are damaged.
    """

    kind: Literal["tfds"] = "tfds"
    feature: str | None = Field(
        default=None,
        description="the feature with the text, a nested one as outer/inner; default: `text`, or the only one",
    )
    second_feature: str | None = Field(
        default=None, description="the feature with the second text, if a pair of texts belongs to a class"
    )
    label: str | None = Field(
        default=None, description="the feature with the class label, or a text that names the class; default: `label`"
    )

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits; the corpus is prepared if it is not yet, since only then they are known."""
        return tuple(self._expressions)

    def _read(self, split: str) -> Iterator[LabelledText]:
        names = [self._chosen_text(self.feature), self._label]
        if self.second_feature is not None:
            names.append(self._chosen_text(self.second_feature))
        classes = self._classes
        for number, (text, label, *second) in enumerate(self._examples(split, names), 1):
            if classes:
                if not 0 <= label < len(classes):
                    raise CorpusError(
                        f"{self.name}: example {number} of {self._expressions[split]!r} has the label {label}, which "
                        f"is no class: that split has no labels; set {split}_split to a part of another one."
                    )
                label = classes[label]
            elif text.strip() and not str(label).strip():
                raise CorpusError(f"{self.name}: example {number} of {self._expressions[split]!r} has no label.")
            yield LabelledText(text, str(label), second=second[0] if second else None)

    @cached_property
    def _label(self) -> str:
        """The feature of the label."""
        tfds = _tfds()

        features = self._builder.info.features
        known = [name for name, feature in features.items() if isinstance(feature, tfds.features.ClassLabel)]
        name = self.label or ("label" if "label" in features else known[0] if len(known) == 1 else "")
        if name not in [*known, *self._text_features]:
            raise CorpusError(f"{self.name}: set label to one of its class labels: {_listed(known)}.")
        return name

    @cached_property
    def _classes(self) -> list[str]:
        """The names of the classes; none if the label is a text."""
        features = self._builder.info.features
        return list(getattr(features[self._label], "names", None) or ()) if self._label in features else []


def _tfds() -> Any:
    """The package, whose import takes seconds."""
    with needs("train"):
        import tensorflow_datasets as tfds
    return tfds


def _texts(feature: Any, path: str = "") -> Iterator[str]:
    import tensorflow as tf

    tfds = _tfds()

    if isinstance(feature, tfds.features.FeaturesDict):
        for name, inner in feature.items():
            yield from _texts(inner, f"{path}/{name}" if path else name)
    elif isinstance(feature, tfds.features.Tensor) and (feature.shape, feature.tf_dtype) == ((), tf.string):
        yield path


def _decoded(row: tuple[Any, ...], place: str) -> tuple[Any, ...]:
    try:
        return tuple(each.decode() if isinstance(each, bytes) else each for each in row)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{place} is not UTF-8: {error}.") from None


def _overlap(one: Any, other: Any) -> int:
    """How many examples two splits, or parts of splits, have in common."""
    return sum(
        max(0, min(a.skip + a.take, b.skip + b.take) - max(a.skip, b.skip))
        for a, b in itertools.product(one.file_instructions, other.file_instructions)
        if a.filename == b.filename
    )


def _unreachable(urls: Iterable[str]) -> list[str]:
    """The hosts, if none can be resolved: TFDS itself would try for minutes before it gives up."""
    parts = [urllib.parse.urlsplit(url) for url in urls]
    hosts = sorted({part.hostname or "" for part in parts if part.scheme in ("http", "https", "ftp")})[:3]
    by_proxy = bool(urllib.request.getproxies())  # which would resolve them
    return [] if by_proxy or any(map(_resolves, hosts)) else hosts


def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def _reason(error: Exception) -> str:
    """The first line of a message, without the arguments that TFDS puts before it."""
    return (str(error).strip().splitlines() or [""])[0].rpartition('}": ')[2]


def _listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) or "none"


def _usual_pair(info: Any, texts: list[str]) -> tuple[tuple[str, ...], bool]:
    """Two text features, or none, and whether their order says which is the source."""
    tfds = _tfds()

    keys = info.supervised_keys
    if isinstance(keys, tuple) and len(keys) == 2 and all(isinstance(key, str) and key in texts for key in keys):
        return keys, True
    two = tuple(texts) if len(texts) == 2 else ()
    return two, bool(two) and isinstance(info.features, tfds.features.Translation)
