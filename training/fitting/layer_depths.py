"""Fine-tuning by layers: lower layers learn more slowly, or not at all.

Low layers of a trained model hold general features of text, and high layers features of its task. So fine-tuning should
change the high layers most: Howard and Ruder 2018 (https://arxiv.org/abs/1801.06146).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras


def layer_depths(model: keras.Model) -> dict[int, int]:
    """The depth of each variable, by its `id`: how many layers are between it and the text.

    Embeddings are at 0, the layers of an encoder and of a decoder at 1 to N, and everything above them, such as a
    head, at N + 1. Where an encoder and a decoder differ in their number of layers, N is the larger one.
    """
    encoder = getattr(model, "encoder", None)
    inner = encoder if isinstance(encoder, keras.Model) else model  # a head has its encoder inside
    stacks = [_listed(getattr(inner, name, None)) for name in ("encoder", "decoder")]
    depths = {id(variable): 1 + max(map(len, stacks)) for variable in model.variables}
    for stack in stacks:
        for depth, layer in enumerate(stack, 1):
            depths |= {id(variable): depth for variable in layer.variables}
    for layer in inner.layers:
        if "embedding" in layer.name or "positions" in layer.name:
            depths |= {id(variable): 0 for variable in layer.variables}
    return depths


def rate_factors(model: keras.Model, decay: float) -> dict[int, float]:
    """The factor of each variable's learning rate, by the variable's `id`: decay^(N + 1 - depth).

    Args:
        model: the model.
        decay: the factor from a layer to the one below it.
    """
    depths = layer_depths(model)
    top = max(depths.values())
    return {variable: decay ** (top - depth) for variable, depth in depths.items()}


@contextlib.contextmanager
def frozen(model: keras.Model, layers: int | None) -> Iterator[None]:
    """Inside the block, training does not change the lowest layers.

    Args:
        model: the model.
        layers: how many layers, in addition to the embeddings; None freezes nothing.

    Raises:
        ValueError: the model has fewer layers.
    """
    if layers is None:
        yield
        return
    depths = layer_depths(model)
    highest = max(depths.values()) - 1
    if layers > highest:
        raise ValueError(
            f"frozen_layers must be at most the model's {highest} layers. Received: frozen_layers={layers}"
        )
    still = [v for v in model.variables if v.trainable and depths[id(v)] <= layers]
    for variable in still:
        variable.trainable = False
    try:
        yield
    finally:
        for variable in still:
            variable.trainable = True


def _listed(layers: Any) -> list[Any]:
    """A list of layers; a single one, such as a recurrent encoder, counts as a list of one."""
    if layers is None:
        return []
    return list(layers) if isinstance(layers, list | tuple) else [layers]
