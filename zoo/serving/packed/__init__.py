"""Models as an export holds them: the same functions, with weights arranged for few and large operations in each step.

A server runs a plain TensorFlow graph without XLA, where even a small operation costs about a microsecond. The time of
a step of one row grows with the number of operations, so everything that can be computed once is part of the weights:

- `products`: matrix products, and normalisations inside their weights;
- `attention`: to the past, to a text, to a source;
- `layers`: the feed-forward network, and the layer of both;
- `gpt`, `transformer`, `encoder`, `ensemble`: the models, with the methods that decoding, scoring and pictures of
  attention call;
- `supported`: which layers and arguments these forms reproduce.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from zoo.models import GPT, Classifier, Ensemble, MaskedLanguageModel, SentenceEmbedder, Transformer
from zoo.serving.packed.encoder import PackedClassifier, PackedMaskedLanguageModel, PackedSentenceEmbedder
from zoo.serving.packed.ensemble import PackedEnsemble
from zoo.serving.packed.gpt import PackedGPT
from zoo.serving.packed.supported import unsupported
from zoo.serving.packed.transformer import PackedTransformer

__all__ = ["pack", "unsupported"]

_PACKED: dict[type[keras.Model], Callable[..., tf.Module]] = {
    GPT: PackedGPT,
    Transformer: PackedTransformer,
    Ensemble: lambda model, *max_lengths: PackedEnsemble([pack(each, *max_lengths) for each in model.models]),
    Classifier: PackedClassifier,
    SentenceEmbedder: PackedSentenceEmbedder,
    MaskedLanguageModel: PackedMaskedLanguageModel,
}


def pack(model: keras.Model, *max_lengths: int) -> keras.Model | tf.Module:
    """The packed form of a model, or the model itself where `unsupported` gives a reason.

    Args:
        model: any model of ids.
        max_lengths: the most tokens of a text; for a translator, of the target, and then of the source if that differs.

    Returns:
        A model with the same methods for decoding, scoring and attention maps. It computes in float32 and gives the
        same numbers up to rounding.

    Raises:
        ValueError: a translator has fewer learned positions than a target or a source may have tokens.
    """
    return model if unsupported(model) else _PACKED[type(model)](model, *max_lengths)
