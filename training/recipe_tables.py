"""What a recipe may say: its tables, their keys, and what each is for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Discriminator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Tag

from training.corpora.pairs import CORPORA


class _Table(pydantic.BaseModel):
    """A table of a recipe: unknown keys are errors, and nothing changes after reading."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class CharactersConfig(_Table):
    """A vocabulary of the characters that occur in training."""

    kind: Literal["characters"] = "characters"
    minimum_count: PositiveInt = Field(1, description="rarer characters are unknown")
    maximum_size: PositiveInt | None = Field(None, description="how many characters to keep, the commonest first")


class BytePairConfig(_Table):
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


def _one_of(name: str, default: str, **tables: type[_Table]) -> Any:
    """The type of a table that comes in several kinds, which its key `name` tells apart."""

    def kind(table: Any) -> Any:
        return table.get(name, default) if isinstance(table, dict) else getattr(table, name, None)

    union: Any = None
    for tag, table in tables.items():
        tagged = Annotated[table, Tag(tag)]
        union = tagged if union is None else union | tagged
    return Annotated[union, Discriminator(kind)]


TOKENIZERS = {"characters": CharactersConfig, "byte_pair": BytePairConfig}
TokenizerConfig = _one_of("kind", "characters", **TOKENIZERS)


class TokenizersConfig(_Table):
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


class RNNSeq2SeqConfig(_Table):
    """The arguments of `zoo.models.RNNSeq2Seq`."""

    family: Literal["rnn_seq2seq"] = "rnn_seq2seq"
    attention: Literal["additive", "dot", "scaled", "general", "concat", "none"] = Field(
        "additive", description="how the decoder scores the source; 'none' is the thought vector"
    )
    cell: Literal["gru", "lstm"] = Field("gru", description="the recurrent cell")
    units: PositiveInt = Field(256, description="width of the states")
    embedding_dim: PositiveInt | None = Field(None, description="width of the embeddings; as `units` if not given")
    readout_units: PositiveInt | None = Field(None, description="width of the maxout layer; `units / 2` if not given")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate, on embeddings, and on the readout if not told apart")
    annotation_dropout: float = Field(0.0, ge=0, lt=1, description="rate, on the encoder's annotations")
    readout_dropout: float | None = Field(None, ge=0, lt=1, description="rate, on the readout; `dropout` if not given")
    tied_embeddings: Literal["none", "target", "all"] = Field(
        "none", description="what shares its weights with the output layer; needs `embedding_dim` = `readout_units`"
    )


class TransformerConfig(_Table):
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


class TrainingConfig(_Table):
    """How the model is fitted."""

    batch_size: PositiveInt = Field(64, description="pairs a batch")
    batch_tokens: PositiveInt | None = Field(
        None,
        description="tokens a batch, padding counted, of the side that has more; takes the place of `batch_size`: "
        "the shorter the pairs, the more of them",
    )
    accumulate: PositiveInt = Field(1, description="batches whose gradients are averaged for one update")
    buckets: PositiveInt = Field(4, description="how many lengths batches are padded to")
    epochs: PositiveInt = Field(
        10, description="passes over the training pairs, if `steps_per_epoch` does not say else"
    )
    steps_per_epoch: PositiveInt | None = Field(
        None, description="batches from one checkpoint to the next; one pass over the pairs if not given"
    )
    learning_rate: PositiveFloat = Field(1e-3, description="the highest learning rate")
    warmup_steps: NonNegativeInt = Field(0, description="updates over which the learning rate rises from zero")
    schedule: Literal["constant", "cosine", "inverse_sqrt"] = Field(
        "cosine",
        description="after the warm-up; cosine falls to zero at the end, inverse_sqrt with one over the root of the "
        "step, as in Vaswani et al. 2017",
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
    monitor: Literal["loss", "bleu"] = Field(
        "loss",
        description="what the best weights are chosen by, on validation; bleu translates it, greedily, and is for "
        "texts of four words and more; the loss decides among equals",
    )
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


class DecodingConfig(_Table):
    """How the trained model decodes, if a call does not say otherwise."""

    beam_size: PositiveInt = Field(1, description="hypotheses that are followed; 1 is greedy")
    length_penalty: NonNegativeFloat = Field(0.6, description="alpha of Wu et al. 2016; 0 for none")


class LengthsConfig(_Table):
    """How long texts may be, in tokens with the end token. What is longer is left out of training."""

    max_source: PositiveInt = Field(200, description="source tokens; in use, longer texts are cut off here")
    max_target: PositiveInt = Field(200, description="target tokens; in use, results end here at the latest")


MODELS = {"rnn_seq2seq": RNNSeq2SeqConfig, "transformer": TransformerConfig}


class Recipe(_Table):
    """A training run as data: `zoo train NAME` runs it."""

    description: str = Field("", description="one line for `zoo list`")
    seed: int = Field(0, ge=0, lt=2**32, description="of the weights' initial values and of the order of the pairs")
    corpus: Annotated[CORPORA, Field(discriminator="kind")]
    tokenizer: TokenizersConfig = TokenizersConfig()
    model: _one_of("family", "rnn_seq2seq", **MODELS) = RNNSeq2SeqConfig()
    training: TrainingConfig = TrainingConfig()
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
