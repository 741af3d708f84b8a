"""Several corpora of pairs in one recipe, `[[corpus]]`: all are trained on, and the first one validates and tests."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import Field

from ..progress import say
from ..ragged import is_stored, joined
from ..storage import Storage, key_of
from .cmudict import CMUdict
from .corpus import Corpus, CorpusError
from .dates import Dates
from .file_pairs import FilePairs, warn_of_overlap
from .multi30k import Multi30k
from .pairs import PairCorpus, Pairs, Part
from .tfds import TfdsPairs

PairCorpora = Dates | CMUdict | Multi30k | FilePairs | TfdsPairs
"""Every corpus that a translator's recipe may name, told apart by `kind`."""

_MOST_SEEN = 200_000_000  # pairs of an epoch, each of which takes some bytes of memory, twice
_OF_THE_FIRST = ("validation", "test", "validation_pairs", "test_pairs")  # keys that only the first corpus may set


class SeveralPairs(pydantic.RootModel[tuple[Annotated[PairCorpora, Field(discriminator="kind")], ...]]):
    """The corpora of `[[corpus]]`, with the properties and methods of a `PairCorpus`.

    All texts of the other corpora are trained on, those of the first one without its validation and test splits.

    Raises:
        CorpusError: from `read`, where a corpus cannot be read.
    """

    model_config = pydantic.ConfigDict(frozen=True)
    TAG: ClassVar[str] = "several"  # what tells it from single corpora, in paths of pydantic

    root: tuple[Annotated[PairCorpora, Field(discriminator="kind")], ...]

    @pydantic.model_validator(mode="after")
    def _the_first_one_tests(self) -> Self:
        if not self.root:
            raise ValueError("there must be one corpus or more")
        for number, corpus in enumerate(self.root[1:], 1):
            told = [name for name in _OF_THE_FIRST if getattr(corpus, name, None)]
            if told:
                raise ValueError(
                    f"the first corpus alone validates and tests; remove {', '.join(told)} of corpus.{number}, or let "
                    "it be the first one"
                )
        if all(corpus.epochs for corpus in self.root):
            raise ValueError("one corpus at least must be trained on in all epochs; remove its `epochs`")
        return self

    @property
    def parts(self) -> tuple[Corpus, ...]:
        """The corpora, in the order of the recipe."""
        return self.root

    @property
    def kind(self) -> str:
        """What the log and the card call it."""
        return " + ".join(corpus.kind for corpus in self.root)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits of the first corpus."""
        return self.root[0].splits

    @property
    def language(self) -> str | None:
        """The language of the targets, where the first corpus knows it."""
        return self.root[0].language

    @property
    def licence(self) -> str | None:
        """Sentences on how the texts may be used, where their use is known to be restricted."""
        return " ".join(dict.fromkeys(corpus.licence for corpus in self.root if corpus.licence)) or None

    def metric(self, split: str) -> Literal["bleu", "exact_match", "word_error_rate", "spelling"]:
        """The score of a split of the first corpus."""
        return self.root[0].metric(split)

    @cached_property
    def storage(self) -> Storage:
        """Where ids of all corpora together go; each corpus has a storage of its own for its texts."""
        return Storage()

    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read."""
        self.read(split)

    def read(self, split: str) -> Pairs:
        """The pairs of all corpora to train on, one corpus after another; or those of another split of the first one.

        A warning says how many pairs of the first corpus' other splits are also in the training text of another corpus.

        Raises:
            CorpusError: the split does not exist, or a corpus cannot be read.
        """
        if split == "train":
            return self._train
        found = self.root[0].read(split)
        if "_train" in self.__dict__ and split not in self._compared:
            self._compared.add(split)
            for number, corpus in enumerate(self.others, 1):
                warn_of_overlap(f"'train' of corpus.{number}", corpus.read("train"), split, found)
        return found

    @cached_property
    def _compared(self) -> set[str]:
        """The splits whose texts have been looked for in the training text of the other corpora."""
        return set()

    @cached_property
    def others(self) -> list[PairCorpus]:
        """The corpora but the first, such that nothing is held out of them."""
        nothing = {"validation_pairs": 0, "test_pairs": 0}
        return [  # a copy shares its storage
            corpus.model_copy(update=nothing) if isinstance(corpus, FilePairs) else corpus for corpus in self.root[1:]
        ]

    @cached_property
    def _train(self) -> Pairs:
        found = [corpus.read("train") for corpus in (self.root[0], *self.others)]
        keys = [_key_of(pairs) for pairs in found]
        stored = any(is_stored(pairs.sources) for pairs in found)
        for number, (corpus, pairs) in enumerate(zip(self.root, found, strict=True)):
            told = f"corpus.{number}, {corpus.kind}: {len(pairs):,} pairs to train on, weight {corpus.weight:g}"
            epochs = "first epoch" if corpus.epochs == 1 else f"first {corpus.epochs} epochs"
            say(f"{told}, in the {epochs}" if corpus.epochs else told)
        seen = sum(len(pairs) * corpus.weight for corpus, pairs in zip(self.root, found, strict=True))
        if seen > _MOST_SEEN:
            raise CorpusError(
                f"With these weights an epoch sees {seen:,.0f} pairs, and {_MOST_SEEN:,} at most are possible; use "
                "lower ones, such as 1 for the largest corpus"
            )
        return Pairs(
            joined([pairs.sources for pairs in found]),
            joined([pairs.targets for pairs in found]),
            key=key_of(keys) if stored and None not in keys else None,
            parts=[Part(len(pairs), each.weight, each.epochs) for each, pairs in zip(self.root, found, strict=True)],
        )


def _key_of(pairs: Pairs) -> str | None:
    """The hash of what pairs follow from; of texts in memory, that of the texts."""
    if is_stored(pairs.sources):
        return pairs.key
    return pairs.digest()


def one_or_several(corpora: Any) -> str | None:
    """The tag of a recipe's `corpus`: the kind of a table, or that of a list of tables."""
    if isinstance(corpora, list | tuple | SeveralPairs):
        return SeveralPairs.TAG
    return corpora.get("kind") if isinstance(corpora, dict) else getattr(corpora, "kind", None)
