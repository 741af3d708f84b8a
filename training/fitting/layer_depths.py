"""Fine-tuning by layers: lower layers learn more slowly, or not at all.

The lowest layers of a trained model know what most texts have in common, and the highest what its task needed. So a new
task changes the highest most: Howard and Ruder 2018 (https://arxiv.org/abs/1801.06146).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras


def layer_depths(model: keras.Model) -> dict[int, int]:
    """How far each variable is from the text, by its `id`.

    Embeddings are at 0, the layers of an encoder and of a decoder at 1 to N, and all that is above them at N + 1, such
    as a head. Where an encoder and a decoder differ in their number of layers, N is the larger one.
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
    """What the learning rate of each variable is multiplied by, by its `id`: decay^(N + 1 - depth).

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
        layers: how many layers, in addition to the embeddings; None for no layer and no embeddings.

    Raises:
        ValueError: the model has no more layers than that, so that only a head or nothing would be trained.
    """
    if layers is None:
        yield
        return
    depths = layer_depths(model)
    highest = max(depths.values()) - 1
    if layers > highest:
        raise ValueError(f"frozen_layers={layers}, but the model has {highest} layers")
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
    if layers is None or isinstance(layers, keras.Model):
        return []
    return list(layers) if isinstance(layers, list | tuple) else [layers]
