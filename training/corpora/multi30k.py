"""The image captions of Multi30k: pairs of English and German sentences."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Literal, Self

import pydantic
from pydantic import Field

from .corpus import UserPath
from .files import PublicFiles
from .pairs import PairCorpus

_FILES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
_PUBLIC = PublicFiles(
    name="multi30k",
    # A commit, not a branch: the files at these addresses never change.
    address="https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw",
    checksums={
        "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    },
    licence="for research and education only",
)

Language = Literal["en", "de"]


class Multi30k(PairCorpus):
    """Captions of photographs, English and German: 29,000 pairs to train on, 1,014 to validate with, 1,000 as the test.

    The test is `test_2016_flickr`. The texts are **for research and education only**.

    The public files are read from `folder`, each checked by its SHA-256. One that is missing there is downloaded from
    the public repository, https://github.com/multi30k/dataset, and put there; a folder that holds all files is never
    written to, and a file that is there is never replaced.

    Raises:
        CorpusError: from `read`, where a file is missing and cannot be downloaded, or is not the public one.
    """

    kind: Literal["multi30k"] = "multi30k"
    source: Language = Field(default="en", description="the language to translate from")
    target: Language = Field(default="de", description="the language to translate into")
    folder: UserPath | None = Field(
        default=None,
        description="folder of the public files, such as train.en.gz; missing ones are downloaded into it; `~` is the "
        "home folder; default: attention-zoo/multi30k in XDG_CACHE_HOME or ~/.cache",
    )

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.source == self.target:
            raise ValueError(f"`source` and `target` must be different languages. Received: {self.source!r} for both")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: 'train', 'validation' and 'test'."""
        return tuple(_FILES)

    @property
    def language(self) -> str:
        """The language of the targets."""
        return self.target

    def metric(self, split: str) -> Literal["bleu"]:
        """The score of a split: captions are sentences."""
        return "bleu"

    @property
    def licence(self) -> str:
        """How the texts may be used."""
        return "The texts of Multi30k are for research and education only."

    def _read(self, split: str) -> Iterator[tuple[str, str]]:
        # The checksums are right, so nothing else can be wrong with the files.
        files = (_PUBLIC.content(f"{_FILES[split]}.{side}.gz", self.folder) for side in (self.source, self.target))
        sides = (gzip.decompress(content).decode().removesuffix("\n").split("\n") for content in files)
        return zip(*sides, strict=True)
