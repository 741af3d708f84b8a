"""Replaces Keras' attention layers by the zoo's in an existing model."""

import warnings
from typing import Any, NamedTuple

import keras

from zoo.layers.multi_head_attention import MultiHeadAttention

_KERAS_LAYERS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


class SwapReport(NamedTuple):
    """What `swap_attention` did.

    Attributes:
        exchanged: the names of the layers that are the zoo's now; those of nested models as "nested/attention".
        left: for each attention that stayed as it was, its name and the reason.
    """

    exchanged: tuple[str, ...]
    left: dict[str, str]


def swap_attention(model: keras.Model, return_report: bool = False) -> Any:
    """The same model with the zoo's `MultiHeadAttention` in place of Keras', weights included.

    `keras.layers.MultiHeadAttention` and `keras.layers.GroupQueryAttention` are exchanged, inside nested functional
    and sequential models too. Two kinds are left as they are: subclasses of these layers, whose code may compute
    something else, and attention inside other layers, such as `TimeDistributed` or custom ones. A warning names them,
    unless you ask for the report. LoRA weights are copied too.

    The new model computes what the old one did, except for queries with nothing to attend to; see
    `MultiHeadAttention`. It is compiled if the old one is, with the same loss, metrics and settings of the optimizer.
    The optimizer's state, such as Adam's averages, is new.

    Args:
        model: a functional or sequential `keras.Model`, for instance from `keras.models.load_model`.
        return_report: whether to return a `SwapReport` too.

    Returns:
        A new model, and if asked for, the report; the old model stays as it is. The new one is of Keras' own class: if
        the old one is of a subclass, methods such as its `train_step` are lost.

    Raises:
        ValueError: a subclassed model, which Keras cannot clone, or a quantised one.

    Example:
        >>> x = keras.Input((None, 16))
        >>> theirs = keras.Model(x, keras.layers.MultiHeadAttention(2, 8, name="attention")(x, x))
        >>> ours, report = swap_attention(theirs, return_report=True)
        >>> report
        SwapReport(exchanged=('attention',), left={})
    """
    if not _is_cloned(model):
        raise ValueError(
            "`model` must be a functional or sequential model, whose layers Keras can clone. In a class of your own, "
            "write `zoo.layers.MultiHeadAttention` for `keras.layers.MultiHeadAttention`: it takes the same arguments "
            f"and reads the same weights. Received: model of type {type(model).__name__}"
        )
    quantised = [layer.name for layer in model._flatten_layers() if getattr(layer, "quantization_mode", None)]
    if quantised:
        raise ValueError(
            "A quantised model cannot be cloned: exchange its attention first, then quantise the new model. "
            f"Received: quantised layers {quantised}"
        )
    copies: list[tuple[keras.layers.Layer, keras.layers.Layer]] = []

    def clone(layer):
        copies.append((layer, _exchanged(layer)))
        return copies[-1][1]

    new = keras.models.clone_model(model, clone_function=clone, recursive=True)
    for old, copy in copies:
        if isinstance(old, keras.layers.Layer):  # and not an operation on tensors
            _copy_states(old, copy)
    new.set_weights(model.get_weights())
    report = _report(model)
    if return_report:
        return new, report
    if report.left:
        listed = "; ".join(f"{name}: {reason}" for name, reason in report.left.items())
        warnings.warn(f"swap_attention left {len(report.left)} attention layers as they are. {listed}", stacklevel=2)
    return new


def _exchanged(layer: Any) -> Any:
    """A new layer without weights: the zoo's in place of Keras' attention, else one of the same class."""
    config = layer.get_config()
    if type(layer) not in _KERAS_LAYERS:
        return layer.__class__.from_config(config)
    if type(layer) is keras.layers.GroupQueryAttention:
        config["num_heads"], config["key_dim"] = config.pop("num_query_heads"), config.pop("head_dim")
    return MultiHeadAttention.from_config(config)


def _copy_states(old: Any, new: Any) -> None:
    """LoRA and frozen layers, as the old layer has them; of those inside, only a layer of the zoo keeps them itself."""
    before, after = list(old._flatten_layers()), list(new._flatten_layers())
    if type(old) is type(new) and len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
    else:  # an exchanged attention, or a layer that was changed after its making: parts of the same name correspond
        parts = {layer.name: layer for layer in after[1:]}
        pairs = [(old, new), *((layer, parts[layer.name]) for layer in before[1:] if layer.name in parts)]
    for layer, copy in pairs:  # outer layers first: `trainable` also sets the layers inside
        if getattr(layer, "lora_enabled", False) and not getattr(copy, "lora_enabled", True):
            copy.enable_lora(layer.lora_rank, lora_alpha=layer.lora_alpha)
        if copy.trainable != layer.trainable:
            copy.trainable = layer.trainable


def _is_cloned(layer: Any) -> bool:
    """Whether Keras clones it layer by layer: a sequential or functional model."""
    return isinstance(layer, keras.Sequential) or hasattr(layer, "operations")


def _report(model: keras.Model) -> SwapReport:
    exchanged, left = [], {}

    def visit(parent, prefix, inside):
        for layer in parent._layers:
            name, kind = f"{prefix}{layer.name}", type(layer)
            if isinstance(layer, _KERAS_LAYERS):
                if inside:
                    left[name] = f"it is inside {inside}, which is not a functional or sequential model"
                elif kind not in _KERAS_LAYERS:
                    left[name] = f"{kind.__name__} is a subclass of Keras' layer and may compute something else"
                else:
                    exchanged.append(name)
            else:
                visit(layer, f"{name}/", inside or ("" if _is_cloned(layer) else kind.__name__))

    visit(model, "", "")
    return SwapReport(tuple(exchanged), left)
