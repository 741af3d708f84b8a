"""Models as a server runs them: the same functions, of weights laid out for few and large operations a step.

A single row's time in a plain TensorFlow graph is the number of its operations, about a microsecond each, so what can
be computed once is put into the weights: see `rows` for normalisations, `decoder_layer` for attention.
"""

from zoo.models import GPT, Transformer
from zoo.packed.gpt import PackedGPT
from zoo.packed.transformer import PackedTransformer

_PACKED = {GPT: PackedGPT, Transformer: PackedTransformer}


def pack(model):
    """The packed form of a model, or the model itself where there is none.

    Args:
        model: any model of ids.

    Returns:
        What has the same `begin`, `step`, `without_logits` and `output_weights`, and gives the same numbers but for
        rounding; it computes in float32. Of a subclass, and of weights that are not float32, the model itself.
    """
    packed = _PACKED.get(type(model))
    if packed is None or any(weight.dtype != "float32" for weight in model.weights):
        return model
    return packed(model)
