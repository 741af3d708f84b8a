"""The tables of a translator's recipe."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import Discriminator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, Tag

from ..corpora.several_pairs import PairCorpora, SeveralPairs, one_or_several
from .recipe_tables import (
    ACTIVATION,
    MODEL_ARGUMENTS,
    TOKENIZERS,
    CharactersConfig,
    Kinds,
    ModelTable,
    Recipe,
    Start,
    Table,
    TokenizerConfig,
    TrainingConfig,
    by_kind,
    one_of,
)
from .signatures import table_of

logger = logging.getLogger(__name__)


class TokenizersConfig(Table):
    """The tokenizers of both sides."""

    source: TokenizerConfig = CharactersConfig()
    target: TokenizerConfig = CharactersConfig()
    joint: TokenizerConfig | None = Field(
        None, description="one vocabulary for both sides, learnt from both; replaces `source` and `target`"
    )
    sample: PositiveInt = Field(
        1_000_000, description="training pairs that the vocabularies are learnt from; of more pairs, so many are drawn"
    )

    @pydantic.model_validator(mode="after")
    def _joint_or_two(self) -> Self:
        # Compared with the defaults, since a run's recipe.json sets every key.
        told = [name for name in ("source", "target") if getattr(self, name) != type(self).model_fields[name].default]
        if self.joint and told:
            listed = " and ".join(f"[tokenizer.{name}]" for name in told)
            logger.warning(
                "tokenizer: [tokenizer.joint] replaces %s, which has no effect; leave one of them out", listed
            )
        return self

    @property
    def sides(self) -> tuple[Table, Table]:
        """The tokenizers of the source and the target."""
        return (self.joint, self.joint) if self.joint else (self.source, self.target)


_VOCABULARIES = ("source_vocabulary_size", "target_vocabulary_size")


_RNNSeq2SeqArguments: Any = table_of(
    ModelTable,
    "zoo/models/rnn_seq2seq.py:RNNSeq2Seq.__init__",
    ("family", "rnn_seq2seq"),
    but=(*MODEL_ARGUMENTS, *_VOCABULARIES),
)


class RNNSeq2SeqConfig(_RNNSeq2SeqArguments):
    """The arguments of `zoo.models.RNNSeq2Seq`."""  # keys, types and defaults: see its constructor

    start: Start = None

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        if self.attention in ("dot", "scaled") and self.units % 2:
            raise ValueError(f"attention={self.attention!r} needs an even number of units, received units={self.units}")
        if self.conditional and self.attention == "none":
            raise ValueError("conditional=true needs attention, received attention='none'")
        return self


_TransformerArguments: Any = table_of(
    ModelTable,
    "zoo/models/transformer.py:Transformer.__init__",
    ("family", "transformer"),
    but=(*MODEL_ARGUMENTS, *_VOCABULARIES, "unused_ids"),
    types={"activation": ACTIVATION, "epsilon": PositiveFloat},
)


class TransformerConfig(_TransformerArguments):
    """The arguments of `zoo.models.Transformer`."""

    start: Start = None


class TranslatorTraining(TrainingConfig):
    """How a translator is trained."""

    batch_size: PositiveInt = Field(64, description="pairs in a batch")
    batch_tokens: PositiveInt | None = Field(
        None,
        description="tokens in a batch, padding included, counted on the longer side. Replaces `batch_size`: batches "
        "of short pairs then hold more pairs",
    )
    buckets: PositiveInt = Field(4, description="number of lengths that batches are padded to")
    monitor: Literal["loss", "token_accuracy", "bleu"] = Field(
        "loss",
        description="which score of the validation split chooses the best weights. token_accuracy: the share of tokens "
        "that are predicted right from those before them, which suits short answers. bleu: the split is translated "
        "greedily, which suits texts of four words and more. Of equal scores the loss decides",
    )


class DecodingConfig(Table):
    """How the trained model decodes, unless a call sets other values."""

    beam_size: PositiveInt = Field(1, description="hypotheses of the beam search; 1 is greedy")
    length_penalty: NonNegativeFloat = Field(0.6, le=10, description="alpha of Wu et al. 2016; 0 for none")


class LengthsConfig(Table):
    """The longest texts, in tokens with the end token. Longer pairs are left out of training."""

    # One token is the end, and no text is empty.
    max_source: int = Field(200, ge=2, description="source tokens; a longer text to translate is cut off here")
    max_target: int = Field(200, ge=2, description="target tokens; translations end here at the latest")


OneOrSeveral: Any = Annotated[
    functools.reduce(
        operator.or_,
        [
            *(Annotated[corpus, Tag(kind)] for kind, corpus in by_kind(PairCorpora).items()),
            Annotated[SeveralPairs, Tag(SeveralPairs.TAG)],
        ],
    ),
    Discriminator(one_or_several),
]
FAMILIES: dict[str, type[Table]] = {"rnn_seq2seq": RNNSeq2SeqConfig, "transformer": TransformerConfig}
DEFAULT_FAMILY = "rnn_seq2seq"  # of a recipe whose [model] names none
ModelConfig: Any = one_of("family", DEFAULT_FAMILY, **FAMILIES)


class TranslatorRecipe(Recipe):
    """The recipe of a translator, which turns one text into another."""

    kinds: ClassVar[Kinds] = {
        ("corpus",): ("kind", by_kind(PairCorpora)),
        ("model",): ("family", FAMILIES),
        **{("tokenizer", side): ("kind", TOKENIZERS) for side in ("source", "target", "joint")},
    }

    several: ClassVar[bool] = True
    corpus: OneOrSeveral
    tokenizer: TokenizersConfig = TokenizersConfig()
    model: ModelConfig = RNNSeq2SeqConfig()
    training: TranslatorTraining = TranslatorTraining()
    lengths: LengthsConfig = LengthsConfig()
    decoding: DecodingConfig = DecodingConfig()

    @pydantic.model_validator(mode="after")
    def _of_several_alone(self) -> Self:
        if len(self.corpus.parts) == 1:
            for key, default in (("weight", 1), ("epochs", None)):
                if getattr(self.corpus.parts[0], key) != default:
                    instead = "; did you mean training.epochs?" if key == "epochs" else ""
                    raise ValueError(
                        f"corpus.{key} is for one of several corpora, [[corpus]]; there is only one{instead}"
                    )
        return self

    @property
    def tokenizers(self) -> Sequence[Any]:
        """The tables of both sides' tokenizers, or of the joint one."""
        return self.tokenizer.sides

    @pydantic.model_validator(mode="after")
    def _one_vocabulary_to_tie(self) -> Self:
        tied = getattr(self.model, "tied_embeddings", None)
        if tied == "all" and self.model.start is None and self.tokenizer.joint is None:
            raise ValueError(
                "model.tied_embeddings='all' needs one vocabulary for both sides: write [tokenizer.joint] in place of "
                "[tokenizer.source] and [tokenizer.target]"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _positions_for_all_lengths(self) -> Self:
        if self.model.start is not None:  # the lengths and positions that are left out are its own
            return self
        needed = max(self.lengths.max_source, self.lengths.max_target)
        if getattr(self.model, "positions", "") == "learned" and (self.model.max_length or 0) < needed:
            raise ValueError(
                f"model.positions='learned' needs model.max_length={needed} or more, the larger of lengths.max_source "
                f"and lengths.max_target, received {self.model.max_length}"
            )
        return self
