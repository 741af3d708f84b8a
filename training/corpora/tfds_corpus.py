"""What the corpora of TensorFlow Datasets have in common: finding, preparing and reading them."""

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
from typing import Any

import pydantic
from pydantic import Field

from ..progress import console
from .error import CorpusError

logger = logging.getLogger(__name__)

_BATCH = 1024


class TfdsCorpus(pydantic.BaseModel):
    """A corpus of TensorFlow Datasets, whatever it is used as.

    A corpus that is prepared in `data_dir` is read from there, also where the code that made it is not at hand, and
    nothing is downloaded. One that is not is downloaded and prepared there, once, where there is a network.

    Raises:
        CorpusError: from whatever needs its files, where TensorFlow Datasets knows no such corpus, or it is neither
            prepared nor can be; has no such split; or its files are damaged.
    """

    name: str = Field(
        min_length=1, description="the corpus as TensorFlow Datasets names it: name, name/config or name/config:version"
    )
    data_dir: str | None = Field(
        default=None,
        description="the folder of prepared corpora; `~` is the home folder, and a relative path is relative to the "
        "working directory; if left out: the folder in TFDS_DATA_DIR, or ~/tensorflow_datasets",
    )
    train_split: str | None = Field(
        default=None, description="the training split, such as train[:90%]; if left out: train"
    )
    validation_split: str | None = Field(
        default=None, description="the validation split, such as train[90%:]; if left out: validation, where it exists"
    )
    test_split: str | None = Field(default=None, description="the test split; if left out: test, where it exists")

    @cached_property
    def _expressions(self) -> dict[str, str]:
        """The TFDS split expression of each split."""
        known = self._builder.info.splits
        told = {"train": self.train_split, "validation": self.validation_split, "test": self.test_split}
        # No train is a mistake, told below; no validation or test is not.
        found = {
            s: s if text is None else text for s, text in told.items() if text is not None or s in {*known, "train"}
        }
        infos = {}
        for split, expression in found.items():
            try:
                infos[split] = known[expression]
            except Exception:  # TFDS raises many kinds here, assertions among them
                raise CorpusError(
                    f"{self.name}: {split}_split = {expression!r} is none of its splits {', '.join(sorted(known))}, "
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

    def _examples(self, split: str, features: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """The texts of these features of each example of a split, in a fixed order."""
        import tensorflow as tf
        import tensorflow_datasets as tfds

        paths = [name.split("/") for name in features]
        expression = self._expressions[split]
        config = tfds.ReadConfig(try_autocache=False)  # who reads keeps what is needed
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
        import tensorflow_datasets as tfds

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
        import tensorflow_datasets as tfds

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
        return CorpusError(f"TensorFlow Datasets {what}; prepared in data_dir {folder}: {listed(prepared)}{hint}")

    def _prepare(self, builder: Any) -> None:
        missing = f"{self.name} is not prepared in {builder.data_dir}, and"
        advice = f"Prepare it where there is a network, with `tfds build {self.name}`, and copy it to that folder."
        if hosts := _unreachable(builder.url_infos or ()):
            raise CorpusError(f"{missing} cannot be downloaded: no network, or no host {' or '.join(hosts)}. {advice}")
        if not console.is_terminal:
            import tensorflow_datasets as tfds

            tfds.disable_progress_bar()
        try:
            builder.download_and_prepare()
        except Exception as error:  # whatever the corpus's own code raises
            logger.debug("%s cannot be prepared", self.name, exc_info=True)
            raise CorpusError(
                f"{missing} preparing it failed: {type(error).__name__}: {_reason(error)}. {advice}"
            ) from None


def _texts(feature: Any, path: str = "") -> Iterator[str]:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.FeaturesDict):
        for name, inner in feature.items():
            yield from _texts(inner, f"{path}/{name}" if path else name)
    elif isinstance(feature, tfds.features.Tensor) and (feature.shape, feature.tf_dtype) == ((), tf.string):
        yield path


def _decoded(row: tuple[bytes, ...], place: str) -> tuple[str, ...]:
    try:
        return tuple(text.decode() for text in row)
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


def listed(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) or "none"
