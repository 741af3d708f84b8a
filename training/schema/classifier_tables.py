"""The tables of the recipes of encoders: a classifier, and a masked language model."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import Field, PositiveFloat, PositiveInt

from ..corpora.file_labels import FileLabels
from ..corpora.languages import Languages
from ..corpora.tfds import TfdsLabels
from .generator_tables import CORPORA as TEXT_CORPORA
from .recipe_tables import (
    ACTIVATION,
    MODEL_ARGUMENTS,
    TOKENIZERS,
    Kinds,
    ModelTable,
    Recipe,
    Start,
    Table,
    TrainingConfig,
    WordPieceConfig,
    by_kind,
    one_of,
)
from .signatures import table_of

# Every corpus that a classifier's recipe may name, told apart by `kind`.
CORPORA = Languages | FileLabels | TfdsLabels

_EncoderArguments: Any = table_of(
    ModelTable,
    "zoo/models/encoder.py:Encoder.__init__",
    ("kind", "transformer"),
    but=(*MODEL_ARGUMENTS, "vocabulary_size", "num_segments"),
    types={"activation": ACTIVATION, "epsilon": PositiveFloat},
    # Small enough to train on a processor in minutes.
    defaults={"units": 128, "num_layers": 2, "max_length": 256},
)


class EncoderConfig(_EncoderArguments):
    """The arguments of `zoo.models.Encoder`."""


_RNNEncoderArguments: Any = table_of(
    Table,
    "zoo/models/encoder.py:RNNEncoder.__init__",
    ("kind", "rnn"),
    but=(*MODEL_ARGUMENTS, "vocabulary_size"),
)


class RNNEncoderConfig(_RNNEncoderArguments):
    """The arguments of `zoo.models.RNNEncoder`."""


_NgramEncoderArguments: Any = table_of(
    Table,
    "zoo/models/ngram_encoder.py:NgramEncoder.__init__",
    ("kind", "ngrams"),
    but=(*MODEL_ARGUMENTS, "vocabulary_size"),
    types={"buckets": Annotated[int, Field(ge=1, le=2**16)]},
)


class NgramEncoderConfig(_NgramEncoderArguments):
    """The arguments of `zoo.models.NgramEncoder`."""


ENCODERS: dict[str, type[Table]] = {
    "transformer": EncoderConfig,
    "rnn": RNNEncoderConfig,
    "ngrams": NgramEncoderConfig,
}

_ClassifierArguments: Any = table_of(
    Table,
    "zoo/models/heads.py:Classifier.__init__",
    ("family", "classifier"),
    but=(*MODEL_ARGUMENTS, "encoder", "num_classes", "multi_label"),
    types={"activation": Literal["tanh", "relu", "gelu", "silu"]},
)


class ClassifierConfig(_ClassifierArguments):
    """The arguments of `zoo.models.Classifier`, and in `[model.encoder]` those of its encoder."""

    encoder: one_of("kind", "transformer", **ENCODERS) = EncoderConfig()  # type: ignore[valid-type]
    start: Start = None


class ClassifierTraining(TrainingConfig):
    """How a classifier is trained."""

    batch_size: PositiveInt = Field(32, description="texts in a batch")
    buckets: PositiveInt = Field(4, description="number of lengths that batches are padded to")
    class_weights: Literal["balanced"] | dict[str, PositiveFloat] | None = Field(
        None,
        description="weight of the texts of each class in the loss: balanced weighs a class by one over its share, so "
        "that rare classes count as much as frequent ones; a table names classes, and the others weigh 1",
    )
    token_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="share of the tokens of each training text that are replaced by the mask, or by the unknown token "
        "if the tokenizer has no mask, so that the model does not rely on single words (Iyyer et al. 2015)",
    )
    monitor: Literal["accuracy", "loss"] = Field(
        "accuracy",
        description="which score of the validation split chooses the best weights; of equal scores the loss decides",
    )

    @pydantic.field_validator("class_weights", mode="before")
    @classmethod
    def _balanced_or_a_table(cls, value: Any) -> Any:
        """One message where pydantic has one for each type that it tried."""
        if value is None or value == "balanced":
            return value
        if not isinstance(value, dict):
            raise ValueError('must be "balanced" or a table of labels and their weights, such as {spam = 3.0}')
        for label, weight in value.items():
            if type(weight) not in (int, float) or not 0 < weight < math.inf:
                raise ValueError(f"the weight of {label!r} must be a number above 0, received {weight!r}")
        return value


class TextLengths(Table):
    """The longest text, in tokens."""

    max_text: Annotated[int, Field(ge=5)] | None = Field(
        None,
        description="most tokens of a text, start and end counted; a longer text is cut off, in training and "
        "afterwards. Default: the encoder's `max_length` if its positions are learned, else 512",
    )


class ClassifierRecipe(Recipe):
    """The recipe of a classifier, which puts texts into classes."""

    kinds: ClassVar[Kinds] = {
        ("corpus",): ("kind", by_kind(CORPORA)),
        ("model",): ("family", {"classifier": ClassifierConfig}),
        ("model", "encoder"): ("kind", ENCODERS),
        ("tokenizer",): ("kind", TOKENIZERS),
    }

    corpus: Annotated[CORPORA, Field(discriminator="kind")]
    tokenizer: one_of("kind", "wordpiece", **TOKENIZERS) = WordPieceConfig()  # type: ignore[valid-type]
    model: ClassifierConfig
    training: ClassifierTraining = ClassifierTraining()
    lengths: TextLengths = TextLengths()


class MaskedLanguageModelConfig(Table):
    """A masked language model, and in `[model.encoder]` the arguments of its encoder."""

    family: Literal["masked_language_model"] = "masked_language_model"
    encoder: EncoderConfig = EncoderConfig()
    start: Start = None


class MaskedTraining(TrainingConfig):
    """How a masked language model is trained."""

    batch_size: PositiveInt = Field(32, description="windows in a batch")
    window: Annotated[int, Field(ge=8)] | None = Field(
        None, description="tokens of a window, start and end counted; default: `max_length` of the encoder"
    )
    masked: Annotated[float, Field(gt=0, le=0.5)] = Field(
        0.15,
        description="share of the tokens to predict: 80% of these become the mask, 10% a random token, and 10% stay "
        "(Devlin et al. 2019)",
    )


class MaskedLanguageModelRecipe(Recipe):
    """The recipe of a masked language model, which fills gaps in texts and which a classifier can start from."""

    kinds: ClassVar[Kinds] = {
        ("corpus",): ("kind", by_kind(TEXT_CORPORA)),
        ("model",): ("family", {"masked_language_model": MaskedLanguageModelConfig}),
        ("tokenizer",): ("kind", {"wordpiece": WordPieceConfig}),
    }

    one_length: ClassVar[bool] = True  # windows of `training.window` tokens
    corpus: Annotated[TEXT_CORPORA, Field(discriminator="kind")]
    tokenizer: WordPieceConfig = WordPieceConfig()  # the one kind that has a mask
    model: MaskedLanguageModelConfig
    training: MaskedTraining = MaskedTraining()


FAMILIES: dict[str, type[Recipe]] = {
    "classifier": ClassifierRecipe,
    "masked_language_model": MaskedLanguageModelRecipe,
}
