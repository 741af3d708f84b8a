"""The tables that every recipe has or may have, their keys, and what each is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import Discriminator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Tag


class Table(pydantic.BaseModel):
    """A table of a recipe: unknown keys are errors, and nothing changes after reading."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class CharactersConfig(Table):
    """A vocabulary of the characters that occur in training."""

    kind: Literal["characters"] = "characters"
    minimum_count: PositiveInt = Field(1, description="rarer characters are unknown")
    maximum_size: PositiveInt | None = Field(None, description="how many characters to keep, the commonest first")


class BytePairConfig(Table):
    """A vocabulary of pieces of words, learnt by byte-pair encoding."""

    kind: Literal["byte_pair"] = "byte_pair"
    size: PositiveInt = Field(10_000, description="how many ids there are at most, special ones and bytes included")
    minimum_frequency: PositiveInt = Field(2, description="how often a pair must occur to become a piece")
    lowercase: bool = Field(False, description="whether texts are turned into lower case")
    dropout: float = Field(
        0.0,
        ge=0,
        le=1,
        description="BPE-dropout: how likely a pair is passed over at each merge, anew each time that training sees a "
        "text; needs `jit_compile = false`, for each batch is as long as its pieces are",
    )


def one_of(name: str, default: str, **tables: type[Table]) -> Any:
    """The type of a table that comes in several kinds, which its key `name` tells apart."""

    def kind(table: Any) -> Any:
        return table.get(name, default) if isinstance(table, dict) else getattr(table, name, None)

    union: Any = None
    for tag, each in tables.items():
        tagged: Any = Annotated[each, Tag(tag)]  # type: ignore[valid-type]
        union = tagged if union is None else union | tagged
    return Annotated[union, Discriminator(kind)]


TOKENIZERS: dict[str, type[Table]] = {"characters": CharactersConfig, "byte_pair": BytePairConfig}
TokenizerConfig: Any = one_of("kind", "characters", **TOKENIZERS)


class TrainingConfig(Table):
    """How the model is fitted."""

    accumulate: PositiveInt = Field(1, description="batches whose gradients are averaged for one update")
    epochs: PositiveInt = Field(10, description="passes over the training text, if `steps_per_epoch` does not say else")
    steps_per_epoch: PositiveInt | None = Field(
        None, description="batches from one checkpoint to the next; one pass if not given"
    )
    learning_rate: PositiveFloat = Field(1e-3, description="the highest learning rate")
    warmup_steps: NonNegativeInt = Field(0, description="updates over which the learning rate rises from zero")
    schedule: Literal["constant", "cosine", "inverse_sqrt"] = Field(
        "cosine",
        description="after the warm-up; cosine falls to zero at the end, inverse_sqrt with one over the root of the "
        "step, as in Vaswani et al. 2017",
    )
    optimizer: Literal["adam", "muon"] = Field(
        "adam", description="muon is for the matrices of layers, with Adam for all else (Jordan et al. 2024)"
    )
    beta_2: float = Field(0.999, ge=0, lt=1, description="Adam's decay of the squared gradients")
    epsilon: PositiveFloat = Field(1e-7, description="Adam's epsilon")
    weight_decay: NonNegativeFloat = Field(0.0, description="as in AdamW; not of biases and normalisations")
    clip_norm: PositiveFloat | None = Field(1.0, description="largest norm of all gradients together")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="probability spread over all labels in training")
    average_decay: float | None = Field(
        None, gt=0, lt=1, description="validate and keep a moving average of the weights that decays so an update"
    )
    average_last: PositiveInt | None = Field(
        None, description="validate and keep the mean of the weights after each of the last so many epochs"
    )
    validate_every: PositiveInt = Field(1, description="epochs from one validation to the next")
    patience: PositiveInt | None = Field(None, description="validations without a better one after which it ends early")
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32", description="what layers compute in; weights are float32 always"
    )
    jit_compile: bool = Field(True, description="whether XLA compiles the step, once a bucket")
    tensorboard: bool = Field(False, description="whether to log for TensorBoard, into the run's `tensorboard`")

    @pydantic.model_validator(mode="after")
    def _one_average(self) -> Self:
        if self.average_decay and self.average_last:
            raise ValueError("average_decay and average_last were both given; give one of them")
        return self


class Recipe(Table):
    """A training run as data: `zoo train NAME` runs it. What is trained is a subclass's."""

    # The tables that come in several kinds, by the keys that lead to them: the key that says which, and the kinds.
    kinds: ClassVar[dict[tuple[str, ...], tuple[str, dict[str, type[Any]]]]]

    description: str = Field("", description="one line for `zoo list`")
    seed: int = Field(0, ge=0, lt=2**32, description="of the weights' initial values and of the order of the texts")

    if TYPE_CHECKING:  # every recipe has these, of types of its own
        corpus: Any
        tokenizer: Any
        model: Any
        training: TrainingConfig
