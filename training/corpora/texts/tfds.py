"""Running text from TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

from pydantic import Field

from ..error import CorpusError
from ..tfds_corpus import TfdsCorpus, listed
from .corpus import Document, TextCorpus, in_pieces


class TfdsTexts(TfdsCorpus, TextCorpus):
    """Texts from any corpus of TensorFlow Datasets that has a text feature; each example is a document.

    Raises:
        CorpusError: from `splits` and `documents`, where TensorFlow Datasets knows no such corpus, or it is neither
            prepared nor can be; has no such split or text feature; or its files are damaged.
    """

    kind: Literal["tfds"] = "tfds"
    feature: str | None = Field(
        default=None,
        description="the feature with the text, a nested one as outer/inner; if left out: `text`, or the only one",
    )

    @property
    def _given(self) -> tuple[str, ...]:
        return tuple(self._expressions)

    def _read(self, split: str) -> Iterator[Document]:
        for (text,) in self._examples(split, [self._feature]):
            yield in_pieces(text.splitlines(keepends=True))

    @cached_property
    def _feature(self) -> str:
        texts = self._text_features
        if self.feature is None:
            if "text" in texts or len(texts) == 1:
                return "text" if "text" in texts else texts[0]
            raise CorpusError(f"{self.name}: set feature to one of its text features: {listed(texts)}.")
        if self.feature not in texts:
            raise CorpusError(f"{self.name}: feature = {self.feature!r} is none of its text features: {listed(texts)}.")
        return self.feature
