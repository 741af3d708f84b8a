"""What a language model's recipe may say beside what every recipe may."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import pydantic
from pydantic import Field, PositiveInt

from ..corpora.texts import CORPORA
from .recipe_tables import TOKENIZERS, CharactersConfig, Recipe, Table, TokenizerConfig, TrainingConfig


class GPTConfig(Table):
    """The arguments of `zoo.models.GPT`."""

    family: Literal["gpt"] = "gpt"
    units: PositiveInt = Field(128, description="width")
    num_heads: PositiveInt = Field(4, description="attention heads, a divisor of `units`")
    num_layers: PositiveInt = Field(4, description="layers")
    context_length: int = Field(256, ge=2, description="how many tokens the model sees at most")
    feed_forward_units: PositiveInt | None = Field(
        None, description="width of the feed-forward networks in between; 4 times `units` if not given"
    )
    num_key_value_heads: PositiveInt | None = Field(
        None, description="heads of keys and values, a divisor of `num_heads`; as many if not given"
    )
    positions: Literal["learned", "rotary"] = Field("learned", description="how positions are told")
    normalization: Literal["layer", "rms"] = Field("layer", description="which norm")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"] = Field(
        "gelu_tanh", description="of the feed-forward networks"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="rate, on embeddings and after each part of a layer")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="rate, on attention weights")
    feed_forward_dropout: float = Field(0.0, ge=0, lt=1, description="rate, inside the feed-forward networks")
    tied_embeddings: bool = Field(True, description="whether the output layer's weights are the embeddings")
    use_bias: bool = Field(True, description="whether projections have biases")


class GeneratorTraining(TrainingConfig):
    """How a language model is fitted."""

    batch_size: PositiveInt = Field(32, description="windows a batch, each of `model.context_length` tokens")


MODELS = {"gpt": GPTConfig}


class GeneratorRecipe(Recipe):
    """What a model that goes on with a text is made from."""

    kinds: ClassVar[dict[tuple[str, ...], tuple[str, dict[str, type[Any]]]]] = {
        ("corpus",): ("kind", {corpus.model_fields["kind"].default: corpus for corpus in get_args(CORPORA)}),
        ("model",): ("family", MODELS),
        ("tokenizer",): ("kind", TOKENIZERS),
    }

    corpus: Annotated[CORPORA, Field(discriminator="kind")]
    tokenizer: TokenizerConfig = CharactersConfig()
    model: GPTConfig
    training: GeneratorTraining = GeneratorTraining()

    @pydantic.model_validator(mode="after")
    def _no_dropout_of_pieces(self) -> Self:
        if getattr(self.tokenizer, "dropout", 0):
            raise ValueError("tokenizer.dropout is for translators; a language model reads its text split in one way")
        return self
