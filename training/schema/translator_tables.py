"""What a translator's recipe may say beside what every recipe may."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import pydantic
from pydantic import Field, NonNegativeFloat, PositiveInt

from ..corpora.pairs import CORPORA
from .recipe_tables import (
    TOKENIZERS,
    BytePairConfig,
    CharactersConfig,
    Recipe,
    Table,
    TokenizerConfig,
    TrainingConfig,
    one_of,
)


class TokenizersConfig(Table):
    """The tokenizers of both sides."""

    source: TokenizerConfig = CharactersConfig()
    target: TokenizerConfig = CharactersConfig()
    joint: TokenizerConfig | None = Field(
        None, description="one vocabulary for both sides, learnt from both; takes the place of `source` and `target`"
    )

    @property
    def sides(self) -> tuple[CharactersConfig | BytePairConfig, CharactersConfig | BytePairConfig]:
        """What the source and the target are tokenised by."""
        return (self.joint, self.joint) if self.joint else (self.source, self.target)


class RNNSeq2SeqConfig(Table):
    """The arguments of `zoo.models.RNNSeq2Seq`."""

    family: Literal["rnn_seq2seq"] = "rnn_seq2seq"
    attention: Literal["additive", "dot", "scaled", "general", "concat", "none"] = Field(
        "additive", description="how the decoder scores the source; 'none' is the thought vector"
    )
    cell: Literal["gru", "lstm"] = Field("gru", description="the recurrent cell")
    conditional: bool = Field(
        False, description="whether the decoder reads the last token before it attends, and what it attended to after"
    )
    units: PositiveInt = Field(256, description="width of the states")
    embedding_dim: PositiveInt | None = Field(None, description="width of the embeddings; as `units` if not given")
    readout_units: PositiveInt | None = Field(None, description="width of the maxout layer; `units / 2` if not given")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate, on embeddings, and on the readout if not told apart")
    annotation_dropout: float = Field(0.0, ge=0, lt=1, description="rate, on the encoder's annotations")
    readout_dropout: float | None = Field(None, ge=0, lt=1, description="rate, on the readout; `dropout` if not given")
    tied_embeddings: Literal["none", "target", "all"] = Field(
        "none", description="what shares its weights with the output layer; needs `embedding_dim` = `readout_units`"
    )


class TransformerConfig(Table):
    """The arguments of `zoo.models.Transformer`."""

    family: Literal["transformer"] = "transformer"
    units: PositiveInt = Field(512, description="width")
    num_heads: PositiveInt = Field(8, description="attention heads, a divisor of `units`")
    feed_forward_units: PositiveInt = Field(2048, description="width of the feed-forward networks in between")
    encoder_layers: PositiveInt = Field(6, description="layers of the encoder")
    decoder_layers: PositiveInt = Field(6, description="layers of the decoder")
    dropout: float = Field(0.1, ge=0, lt=1, description="rate, on embeddings and after each part of a layer")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="rate, on attention weights")
    feed_forward_dropout: float = Field(0.0, ge=0, lt=1, description="rate, inside the feed-forward networks")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"] = Field(
        "relu", description="of the feed-forward networks"
    )
    normalization: Literal["layer", "rms"] = Field("layer", description="which norm")
    norm_first: bool = Field(False, description="whether parts are normalised before they are added, not after")
    positions: Literal["sinusoidal", "learned", "rotary"] = Field("sinusoidal", description="how positions are told")
    max_length: PositiveInt | None = Field(None, description="for learned positions: the longest text, in tokens")
    tied_embeddings: Literal["none", "target", "all"] = Field(
        "target", description="what shares its weights with the output layer"
    )
    use_bias: bool = Field(True, description="whether projections have biases")


class TranslatorTraining(TrainingConfig):
    """How a translator is fitted."""

    batch_size: PositiveInt = Field(64, description="pairs a batch")
    batch_tokens: PositiveInt | None = Field(
        None,
        description="tokens a batch, padding counted, of the side that has more; takes the place of `batch_size`: "
        "the shorter the pairs, the more of them",
    )
    buckets: PositiveInt = Field(4, description="how many lengths batches are padded to")
    monitor: Literal["loss", "bleu"] = Field(
        "loss",
        description="what the best weights are chosen by, on validation; bleu translates it, greedily, and is for "
        "texts of four words and more; the loss decides among equals",
    )


class DecodingConfig(Table):
    """How the trained model decodes, if a call does not say otherwise."""

    beam_size: PositiveInt = Field(1, description="hypotheses that are followed; 1 is greedy")
    length_penalty: NonNegativeFloat = Field(0.6, le=10, description="alpha of Wu et al. 2016; 0 for none")


class LengthsConfig(Table):
    """How long texts may be, in tokens with the end token. What is longer is left out of training."""

    max_source: PositiveInt = Field(200, description="source tokens; in use, longer texts are cut off here")
    max_target: PositiveInt = Field(200, description="target tokens; in use, results end here at the latest")


MODELS: dict[str, type[Table]] = {"rnn_seq2seq": RNNSeq2SeqConfig, "transformer": TransformerConfig}
ModelConfig: Any = one_of("family", "rnn_seq2seq", **MODELS)


class TranslatorRecipe(Recipe):
    """What a model that turns one text into another is made from."""

    kinds: ClassVar[dict[tuple[str, ...], tuple[str, dict[str, type[Any]]]]] = {
        ("corpus",): ("kind", {corpus.model_fields["kind"].default: corpus for corpus in get_args(CORPORA)}),
        ("model",): ("family", MODELS),
        **{("tokenizer", side): ("kind", TOKENIZERS) for side in ("source", "target", "joint")},
    }

    corpus: Annotated[CORPORA, Field(discriminator="kind")]
    tokenizer: TokenizersConfig = TokenizersConfig()
    model: ModelConfig = RNNSeq2SeqConfig()
    training: TranslatorTraining = TranslatorTraining()
    lengths: LengthsConfig = LengthsConfig()
    decoding: DecodingConfig = DecodingConfig()

    @pydantic.model_validator(mode="after")
    def _many_shapes_without_xla(self) -> Self:
        if self.training.jit_compile and any(getattr(side, "dropout", 0) for side in self.tokenizer.sides):
            raise ValueError(
                "the tokenizer's dropout gives each batch a length of its own, and XLA would compile the step for "
                "each; set training.jit_compile=false"
            )
        return self
