"""The documentation that ships inside every CPython."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from .corpus import Document, TextCorpus, in_pieces


class PydocTopics(TextCorpus):
    """The topics of Python's `help()`: about 460,000 characters on the language, a document a topic.

    They come with Python (`pydoc_data.topics`), so nothing is downloaded, and they differ a little from one version of
    Python to the next, and so do scores.
    """

    kind: Literal["pydoc"] = "pydoc"

    @property
    def _given(self) -> tuple[str, ...]:
        return ("train",)

    def _read(self, split: str) -> Iterator[Document]:
        from pydoc_data.topics import topics

        for name in sorted(topics):
            yield in_pieces(topics[name].splitlines(keepends=True))
