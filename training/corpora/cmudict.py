"""CMUdict, the pronouncing dictionary of Carnegie Mellon University: English words and their sounds in ARPAbet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np
import pydantic
from pydantic import Field

from .corpus import SPLITS, CorpusError, UserPath, divided
from .files import PublicFiles
from .pairs import PairCorpus

_FILE = "cmudict.dict"
_COMMIT = "0f8072f814306c5ee4fbf992ed853601b12c01f9"
_PUBLIC = PublicFiles(
    name="cmudict",
    # A commit, not a branch: the file at this address never changes.
    address=f"https://raw.githubusercontent.com/cmusphinx/cmudict/{_COMMIT}",
    checksums={_FILE: "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"},
)
_FURTHER = re.compile(r"\(\d+\)$")  # of a word's second pronunciation and those after it


class CMUdict(PairCorpus):
    """English words and their pronunciations, as in `hello` and `HH AH0 L OW1`: 126,052 words, 135,164 pronunciations.

    A pair is a word and one of its pronunciations: a sequence of ARPAbet's 39 sounds, of which vowels end in a digit
    for the stress, 1 for the main one, 2 for a weaker one and 0 for none. Comments of the file are left out, and a
    pronunciation that a word has twice.

    Words are held out at random by `seed`, each with all its pronunciations. Published scores are of other splits, most
    of them of a former version of the dictionary.

    With `reverse`, a pair is a pronunciation and a word with it: `HH AY1` and `hi`, `HH AY1` and `high`. The test asks
    for each pronunciation of the same held-out words, and validation likewise, but for what the test asks. Every word
    of the dictionary with the pronunciation is a right answer. None of these words is trained on. A word with several
    pronunciations may be an answer both in validation and in the test.

    The file is read from `folder` and checked by its SHA-256. If it is missing there, it is downloaded from the public
    repository, https://github.com/cmusphinx/cmudict, and put there.

    Raises:
        CorpusError: from `read`, where the file is missing and cannot be downloaded, or is not the public one, or has
            no more words than are held out.
    """

    kind: Literal["cmudict"] = "cmudict"
    folder: UserPath | None = Field(
        default=None,
        description="folder of the public file, cmudict.dict; if missing, it is downloaded into it; `~` is the home "
        "folder; default: attention-zoo/cmudict in XDG_CACHE_HOME or ~/.cache",
    )
    reverse: bool = Field(default=False, description="sounds to words, in place of words to sounds")
    seed: int = Field(default=0, ge=0, lt=2**64, description="which words are held out")
    validation_words: pydantic.PositiveInt = Field(default=5447, description="words kept for validation")
    test_words: pydantic.PositiveInt = Field(default=12_855, description="words kept for the test")

    @property
    def splits(self) -> tuple[str, ...]:
        """'train', 'validation' and 'test'."""
        return SPLITS

    @property
    def language(self) -> str:
        """The language of the words."""
        return "en"

    def metric(self, split: str) -> Literal["word_error_rate", "spelling"]:
        """The score of a split: the share of words that get none of their pronunciations.

        With `reverse`, it is the share of pronunciations that get one of their words.
        """
        return "spelling" if self.reverse else "word_error_rate"

    @property
    def licence(self) -> str:
        """The notice that models trained on it must be given with."""
        return (
            "The dictionary is CMUdict, Copyright (C) 1993-2015 Carnegie Mellon University, all rights reserved. A"
            " model that was trained on it may be passed on with the notice of its licence, of BSD's kind:"
            f" <https://github.com/cmusphinx/cmudict/blob/{_COMMIT}/LICENSE>."
        )

    @cached_property
    def _words(self) -> dict[str, list[str]]:
        """The pronunciations of each word, in the file's order."""
        words: dict[str, dict[str, None]] = {}
        for line in _PUBLIC.content(_FILE, self.folder).decode().splitlines():
            word, *sounds = line.partition("#")[0].split()
            words.setdefault(_FURTHER.sub("", word), {})[" ".join(sounds)] = None
        if (held_out := self.validation_words + self.test_words) >= len(words):
            raise CorpusError(
                f"`validation_words` and `test_words` must be below {len(words):,} together, the words of CMUdict. "
                f"Received: {held_out:,}"
            )
        return {word: [*found] for word, found in words.items()}

    def _read(self, split: str) -> Iterator[tuple[str, str]]:
        if self.reverse:
            yield from self._spellings(split)
        else:
            yield from ((word, sounds) for word in self._of(split) for sounds in self._words[word])

    def _of(self, split: str) -> list[str]:
        """The words of a split, in alphabetical order."""
        words = sorted(self._words)
        numbers = divided(len(words), self.validation_words, self.test_words, self.seed)[split]
        return [words[number] for number in np.sort(numbers).tolist()]

    def _spellings(self, split: str) -> Iterator[tuple[str, str]]:
        """Each pronunciation of a held-out split with all its words; for training, words that are no answer there."""
        words_of: dict[str, list[str]] = {}
        for word, pronunciations in self._words.items():
            for sounds in pronunciations:
                words_of.setdefault(sounds, []).append(word)
        # Dictionaries, since they keep the order. What the test asks for, validation does not.
        test = dict.fromkeys(sounds for word in self._of("test") for sounds in self._words[word])
        validation = dict.fromkeys(sounds for word in self._of("validation") for sounds in self._words[word])
        validation = {sounds: None for sounds in validation if sounds not in test}
        if split == "train":
            answers = {word for sounds in (*test, *validation) for word in words_of[sounds]}
            words = (word for word in self._of("train") if word not in answers)
            yield from ((sounds, word) for word in words for sounds in self._words[word])
        else:
            asked = test if split == "test" else validation
            yield from ((sounds, word) for sounds in asked for word in words_of[sounds])
