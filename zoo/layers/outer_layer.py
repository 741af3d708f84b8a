"""Layers with other layers inside, and how they are frozen."""

from typing import Any

import keras


class OuterLayer(keras.layers.Layer):
    """A layer with other layers inside: setting its `trainable` sets that of all of them."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "trainable":
            pass_on_trainable(self)


def pass_on_trainable(layer: keras.layers.Layer) -> None:
    """Gives all layers inside a layer its flag `trainable`.

    Keras does so too, but on TensorFlow only where the flag changes. So a layer that is trainable itself would keep a
    frozen layer inside it frozen after `layer.trainable = True`.
    """
    for inner in layer._flatten_layers(include_self=False):
        inner.trainable = layer.trainable


def keep_frozen(layer: keras.layers.Layer) -> None:
    """Freezes the layers inside a frozen layer: for the end of `build`.

    Setting `trainable` reaches only the layers that exist at that moment. Without this, `Layer(..., trainable=False)`
    freezes nothing that its constructor or `build` makes, and a frozen layer trains again after its `.keras` file is
    loaded, because the file keeps the flag of the outer layer alone.
    """
    if not layer.trainable:
        layer.trainable = True  # TensorFlow's `__setattr__` does nothing where an attribute has the value already
        layer.trainable = False
