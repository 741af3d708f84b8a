"""The tables of a language model's recipe."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import pydantic
from pydantic import Field, PositiveFloat, PositiveInt

from ..corpora.texts import FileTexts, PydocTopics, TinyShakespeare
from ..corpora.tfds import TfdsTexts
from .recipe_tables import (
    ACTIVATION,
    MODEL_ARGUMENTS,
    TOKENIZERS,
    CharactersConfig,
    Kinds,
    ModelTable,
    Recipe,
    Start,
    TokenizerConfig,
    TrainingConfig,
    by_kind,
)
from .signatures import table_of

# Every corpus that a language model's recipe may name, told apart by `kind`.
CORPORA = PydocTopics | FileTexts | TfdsTexts | TinyShakespeare

_GPTArguments: Any = table_of(
    ModelTable,
    "zoo/models/gpt.py:GPT.__init__",
    ("family", "gpt"),
    but=(*MODEL_ARGUMENTS, "vocabulary_size", "unused_ids"),
    types={
        "activation": ACTIVATION,
        "context_length": Annotated[int, Field(ge=2)],
        "score_scale": PositiveFloat | list[PositiveFloat] | None,
        "sliding_window": PositiveInt | list[PositiveInt] | None,
        "max_wavelength": PositiveFloat,
        "rotary_scaling": dict[str, str | float] | None,
        "epsilon": PositiveFloat,
    },
    # A model that a processor trains in minutes; the constructor's is the smallest GPT-2.
    defaults={"units": 128, "num_heads": 4, "num_layers": 4, "context_length": 256},
)


class GPTConfig(_GPTArguments):
    """The arguments of `zoo.models.GPT`."""

    start: Start = None


class GeneratorTraining(TrainingConfig):
    """How a language model is trained."""

    batch_size: PositiveInt = Field(32, description="windows of `model.context_length` tokens in a batch")


FAMILIES: dict[str, Any] = {"gpt": GPTConfig}


class GeneratorRecipe(Recipe):
    """The recipe of a language model, which continues texts."""

    kinds: ClassVar[Kinds] = {
        ("corpus",): ("kind", by_kind(CORPORA)),
        ("model",): ("family", FAMILIES),
        ("tokenizer",): ("kind", TOKENIZERS),
    }

    one_length: ClassVar[bool] = True  # windows of `model.context_length`
    corpus: Annotated[CORPORA, Field(discriminator="kind")]
    tokenizer: TokenizerConfig = CharactersConfig()
    model: GPTConfig
    training: GeneratorTraining = GeneratorTraining()

    @pydantic.model_validator(mode="after")
    def _no_dropout_of_pieces(self) -> Self:
        if getattr(self.tokenizer, "dropout", 0):
            raise ValueError("tokenizer.dropout is for translators; a language model reads its text split in one way")
        return self
