"""Models as a server runs them: the same functions, of weights laid out for few and large operations a step.

A single row's time in a plain TensorFlow graph is the number of its operations, about a microsecond each, so what can
be computed once is put into the weights: see `norms` for normalisations, `self_attention` and `cross_attention`.
"""

from zoo.models import GPT, Transformer
from zoo.serving.packed.gpt import PackedGPT
from zoo.serving.packed.transformer import PackedTransformer

_PACKED = {GPT: PackedGPT, Transformer: PackedTransformer}


def pack(model, longest):
    """The packed form of a model, or the model itself where there is none.

    Args:
        model: any model of ids.
        longest: how many tokens a text that it makes or reads may have; of a translator the target's.

    Returns:
        What has the same methods for decoding, scoring and showing its attention, and gives the same numbers but for
        rounding; it computes in float32. Of a subclass, and of weights that are not float32, the model itself.

    Raises:
        ValueError: a translator has fewer learned positions.
    """
    packed = _PACKED.get(type(model))
    if packed is None or any(weight.dtype != "float32" for weight in model.weights):
        return model
    return packed(model, longest)
