"""A million characters of Shakespeare, on which small language models are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from ..public_files import PublicFiles
from .corpus import Document, TextCorpus, in_pieces

_PUBLIC = PublicFiles(
    name="tinyshakespeare",
    # A commit, not a branch: what is behind this address never changes.
    address="https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare",
    checksums={"input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
)


class TinyShakespeare(TextCorpus):
    """Forty thousand lines of Shakespeare's plays, 1,115,394 characters, as Karpathy 2015 gathered them.

    The last tenth is the validation text, as it is in published figures. The file is in the public domain. It is read
    from `folder`, and downloaded into it if it is not there.

    Raises:
        CorpusError: from `documents`, where the file is missing and cannot be downloaded, or is not the public one.
    """

    kind: Literal["tiny_shakespeare"] = "tiny_shakespeare"
    folder: Path | None = Field(
        default=None,
        description="where input.txt lies, or is put; `~` is the home folder; if left out: "
        "attention-zoo/tinyshakespeare in XDG_CACHE_HOME or ~/.cache",
    )

    @property
    def _given(self) -> tuple[str, ...]:
        return ("train",)

    def _read(self, split: str) -> Iterator[Document]:
        text = _PUBLIC.content("input.txt", self.folder).decode()
        yield in_pieces(text.splitlines(keepends=True))
