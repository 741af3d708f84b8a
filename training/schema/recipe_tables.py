"""The tables that recipes of all models have, and the checks of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

import pydantic
from pydantic import Discriminator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Tag

from ..corpora.corpus import UserPath, whole_numbers_fit
from .signatures import choices_of, table_of

# Arguments of every model that a recipe does not set.
MODEL_ARGUMENTS = ("dtype", "name", "trainable")
ACTIVATION = choices_of("zoo/layers/feed_forward.py:FeedForward.__init__", "activation")


class Table(pydantic.BaseModel):
    """A table of a recipe: unknown keys are errors, types are taken strictly, and nothing changes after reading."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), strict=True, allow_inf_nan=False
    )

    _numbers_fit = pydantic.field_validator("*")(whole_numbers_fit)


class ModelTable(Table):
    """The arguments of a model, with the checks that concern several of them."""

    def check_heads(self) -> None:
        """Checks what the model would check only after TensorFlow has started and the corpus has been read.

        Raises:
            ValueError: the width, the heads and their groups do not fit each other.
        """
        given = self.model_dump()
        heads, units = given.get("num_heads"), given["units"]
        if heads is None:
            return
        if units % heads:
            raise ValueError(f"units must be a multiple of num_heads, received units={units}, num_heads={heads}")
        if given["positions"] == "rotary" and units // heads % 2:
            raise ValueError(
                f"positions='rotary' needs an even width of each head, units / num_heads, received units={units}, "
                f"num_heads={heads}"
            )
        if heads % (groups := given.get("num_key_value_heads") or heads):
            raise ValueError(
                f"num_heads must be a multiple of num_key_value_heads, received num_heads={heads}, "
                f"num_key_value_heads={groups}"
            )


Start = Annotated[
    UserPath | None,
    Field(
        description="fine-tune this model: the folder of a run, or of a checkpoint of Hugging Face. Its tokenizer is "
        "used. `[model]` then needs only `family` and `start`. Rates of dropout may differ; any other key that is set "
        "must equal the model's value"
    ),
]
"""The key `start` of `[model]`, which every family has."""


_CharactersArguments: Any = table_of(
    Table,
    "zoo/text/characters.py:CharacterTokenizer.learn",
    ("kind", "characters"),
    but=("texts", "normalize"),
)


class CharactersConfig(_CharactersArguments):
    """A vocabulary of the characters that occur in training."""


_BytePairArguments: Any = table_of(
    Table,
    "zoo/text/byte_pair.py:BytePairTokenizer.learn",
    ("kind", "byte_pair"),
    but=("texts", "nfc"),
    types={"size": Annotated[int, Field(ge=260)]},  # 256 bytes and 4 special ids
    defaults={"size": 10_000},
)


class BytePairConfig(_BytePairArguments):
    """A vocabulary of subwords, learnt by byte-pair encoding."""

    dropout: float = Field(
        0.0,
        ge=0,
        le=1,
        description="BPE-dropout: the probability that a merge is skipped. It is drawn again each time that training "
        "uses a text. Leave `training.jit_compile` out: XLA would compile the step for each of many lengths",
    )


_SentencePieceArguments: Any = table_of(
    Table,
    "zoo/text/sentence_piece.py:SentencePieceTokenizer.learn",
    ("kind", "sentencepiece"),
    but=("texts", "user_defined"),
    types={"character_coverage": Annotated[float, Field(ge=0.98, le=1)]},  # the library's own limits
    defaults={"size": 10_000},
)


class SentencePieceConfig(_SentencePieceArguments):
    """A vocabulary of subwords, learnt by the sentencepiece library."""


_WhitespaceArguments: Any = table_of(
    Table,
    "zoo/text/whitespace.py:WhitespaceTokenizer.learn",
    ("kind", "whitespace"),
    but=("texts", "normalize"),
)


class WhitespaceConfig(_WhitespaceArguments):
    """A vocabulary of the words that occur in training, cut at white space: for notations with few symbols."""


_WordPieceArguments: Any = table_of(
    Table,
    "zoo/text/word_piece.py:WordPieceTokenizer.learn",
    ("kind", "wordpiece"),
    but=("texts",),
    defaults={"size": 10_000},
)


class WordPieceConfig(_WordPieceArguments):
    """A vocabulary of subwords, as BERT has it: a text without control characters, ideographs as words."""


def one_of(name: str, default: str, **tables: type[Table]) -> Any:
    """The type of a table that comes in several kinds, told apart by its key `name`."""

    def kind(table: Any) -> Any:
        return table.get(name, default) if isinstance(table, dict) else getattr(table, name, None)

    union: Any = None
    for tag, each in tables.items():
        tagged: Any = Annotated[each, Tag(tag)]  # type: ignore[valid-type]
        union = tagged if union is None else union | tagged
    return Annotated[union, Discriminator(kind)]


TOKENIZERS: dict[str, type[Table]] = {
    "characters": CharactersConfig,
    "byte_pair": BytePairConfig,
    "sentencepiece": SentencePieceConfig,
    "wordpiece": WordPieceConfig,
    "whitespace": WhitespaceConfig,
}
TokenizerConfig: Any = one_of("kind", "characters", **TOKENIZERS)


class TrainingConfig(Table):
    """How the model is trained."""

    accumulate: PositiveInt = Field(1, description="batches whose gradients are averaged for one update")
    epochs: PositiveInt = Field(10, description="passes over the training text, unless `steps_per_epoch` is set")
    steps_per_epoch: PositiveInt | None = Field(
        None, description="number of batches that count as one epoch; if left out, an epoch is one pass over the text"
    )
    learning_rate: PositiveFloat = Field(1e-3, le=1, description="the highest learning rate")
    warmup_steps: NonNegativeInt = Field(0, description="updates over which the learning rate rises from zero")
    schedule: Literal["constant", "cosine", "inverse_sqrt"] = Field(
        "cosine",
        description="learning rate after the warm-up: cosine falls to zero at the end, inverse_sqrt falls in "
        "proportion to 1 / sqrt(step) (Vaswani et al. 2017)",
    )
    optimizer: Literal["adam", "muon"] = Field(
        "adam", description="muon updates the matrices of layers, and Adam all other weights (Jordan et al. 2024)"
    )
    beta_2: float = Field(0.999, ge=0, lt=1, description="Adam's decay of the squared gradients")
    epsilon: PositiveFloat = Field(1e-7, description="Adam's epsilon")
    weight_decay: NonNegativeFloat = Field(0.0, description="as in AdamW; not for biases and normalisations")
    clip_norm: PositiveFloat | None = Field(1.0, description="largest norm of all gradients together")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="probability spread over all labels in training")
    r_drop: NonNegativeFloat = Field(
        0.0,
        description="R-Drop (Liang et al. 2021): each batch is read twice, each time with another draw of dropout, and "
        "the loss of training also counts how far the two predictions are apart, times this weight. The paper takes 5 "
        "for translation, and less for classification. It needs dropout in the model. A step takes up to twice the "
        "time and memory",
    )
    average_decay: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="validate and keep a moving average of the weights with this decay; 0.999 averages about the last "
        "thousand updates, so it suits a training of several thousand",
    )
    average_last: PositiveInt | None = Field(
        None, description="validate and keep the mean of the weights of the last epochs, as many as this"
    )
    validate_every: PositiveInt = Field(1, description="epochs from one validation to the next")
    patience: PositiveInt | None = Field(
        None, description="training ends early after this many validations without an improvement"
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="in fine-tuning, each layer's learning rate is that of the layer above, times this factor (Clark "
        "et al. 2020 take 0.8)",
    )
    frozen_layers: NonNegativeInt | None = Field(
        None,
        description="in fine-tuning, freezes the embeddings and this many of the lowest layers; 0: only the embeddings",
    )
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32", description="precision of the layers' computation; weights are always float32"
    )
    jit_compile: bool | None = Field(
        None,
        description="whether XLA compiles the training step, once for each length of batches. By default it does for "
        "language models, whose batches have one length, and for others on a GPU, unless a tokenizer has `dropout`",
    )
    tensorboard: bool = Field(
        False, description="whether to log for TensorBoard, into `tensorboard` in the run's folder"
    )

    @pydantic.model_validator(mode="after")
    def _one_average(self) -> Self:
        if self.average_decay and self.average_last:
            raise ValueError("average_decay and average_last are both set; set one of them")
        return self


Kinds = dict[tuple[str, ...], tuple[str, dict[str, type[Any]]]]
"""By the path of a table: the key that names its kind, and the table of each kind."""


def by_kind(corpora: Any) -> dict[str, type[Any]]:
    """The classes of a union of corpora, by their `kind`."""
    return {corpus.model_fields["kind"].default: corpus for corpus in get_args(corpora)}


class Recipe(Table):
    """A training run as data: `zoo train NAME` runs it. A subclass says what is trained."""

    # The tables that come in several kinds.
    kinds: ClassVar[Kinds]
    several: ClassVar[bool] = False  # whether there may be several corpora, `[[corpus]]`
    one_length: ClassVar[bool] = False  # whether all batches have one length, so that XLA compiles one training step

    description: str = Field("", description="one line for `zoo list`")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of the initial weights and of the order of the texts")

    if TYPE_CHECKING:  # every recipe has these, with its own types
        corpus: Any
        tokenizer: Any
        model: Any
        training: TrainingConfig

    @pydantic.field_validator("corpus", mode="before", check_fields=False)
    @classmethod
    def _as_many_as_possible(cls, corpus: Any) -> Any:
        if isinstance(corpus, list) and not cls.several:
            raise ValueError("only a translator trains on several corpora, [[corpus]]; give one, [corpus]")
        if not isinstance(corpus, dict | list | tuple | pydantic.BaseModel):
            raise ValueError("input should be a table")
        return corpus

    @pydantic.model_validator(mode="after")
    def _fine_tuning(self) -> Self:
        if self.model.start is not None and "tokenizer" in self.model_fields_set:
            raise ValueError("model.start brings its tokenizer with it; leave [tokenizer] out")
        if self.model.start is None and self.training.frozen_layers is not None:
            raise ValueError("training.frozen_layers needs model.start: layers with random weights must be trained")
        if self.model.start is None and self.training.layer_decay != 1:
            raise ValueError("training.layer_decay needs model.start: layers with random weights must learn alike")
        return self

    @pydantic.model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.model.start is not None:  # what is left out is then not at its default
            return self
        for key, table in (("model", self.model), ("model.encoder", getattr(self.model, "encoder", None))):
            if isinstance(table, ModelTable):
                try:
                    table.check_heads()
                except ValueError as error:
                    raise ValueError(f"{key!r}: {error}") from None
        return self

    @pydantic.model_validator(mode="after")
    def _many_shapes_without_xla(self) -> Self:
        if self.training.jit_compile and self._pieces_vary:
            raise ValueError(
                "the tokenizer's dropout makes batches of many lengths, and XLA would compile the step for each one; "
                "leave training.jit_compile out"
            )
        return self

    @property
    def tokenizers(self) -> Sequence[Any]:
        """The tables of its tokenizers."""
        return [self.tokenizer]

    @property
    def _pieces_vary(self) -> bool:
        """Whether a text has other tokens each time, so that batches have any number of lengths."""
        return any(getattr(tokenizer, "dropout", 0) for tokenizer in self.tokenizers)

    def uses_xla(self, gpu: bool) -> bool:
        """Whether XLA compiles the training step, on a machine with a GPU or without one.

        On a CPU a graph, which begins at once, is about as fast for batches in buckets, or faster
        (benchmarks/notes.md).
        """
        if self.training.jit_compile is not None:
            return self.training.jit_compile
        return self.one_length or (gpu and not self._pieces_vary)

    @pydantic.model_serializer(mode="wrap")
    def _only_what_counts(self, tables_of: Any) -> dict[str, Any]:
        """With `model.start`, what follows from that model is left out, so that it is not asked for when read again."""
        tables = tables_of(self)
        if self.model.start is not None:
            tables.pop("tokenizer", None)
            for name in ("model", "lengths", "decoding"):
                if name in tables:
                    tables[name] = _as_set(getattr(self, name), tables[name])
        return tables


def _as_set(table: pydantic.BaseModel, dumped: dict[str, Any]) -> dict[str, Any]:
    """The keys of a table that were set, and those that name its kind; the same of the tables in it."""
    kept = {name: value for name, value in dumped.items() if name in (*table.model_fields_set, "family", "kind")}
    inner = {name: getattr(table, name) for name in kept}
    return {
        name: _as_set(inner[name], value) if isinstance(inner[name], pydantic.BaseModel) else value
        for name, value in kept.items()
    }
