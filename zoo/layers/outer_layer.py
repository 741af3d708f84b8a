"""Layers with other layers inside, and what is changed in single ones of these: frozen, quantised, LoRA."""

from typing import Any

import keras


class OuterLayer(keras.layers.Layer):
    """A layer with other layers inside: setting its `trainable` sets that of all of them.

    A subclass calls `keep_states` at the end of `build`.

    Args:
        layer_states: what was changed in single layers inside, from `get_config`; None for nothing.
        **kwargs: the arguments of every Keras layer.
    """

    def __init__(self, *, layer_states: dict[str, Any] | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self._layer_states: dict[str, Any]
        object.__setattr__(self, "_layer_states", layer_states or {})  # not tracked as a part of the layer

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "trainable":
            pass_on_trainable(self)

    def get_config(self) -> dict[str, Any]:
        """The arguments of every layer, and under `layer_states` what was changed in single layers inside."""
        states = states_of(inner_layers(self), self.trainable) if self.built else self._layer_states
        return {**super().get_config(), **({"layer_states": states} if states else {})}


def pass_on_trainable(layer: keras.layers.Layer) -> None:
    """Gives all layers inside a layer its flag `trainable`.

    Keras does so too, but on TensorFlow only where the flag changes. So a layer that is trainable itself would keep a
    frozen layer inside it frozen after `layer.trainable = True`.
    """
    for inner in layer._flatten_layers(include_self=False):
        inner.trainable = layer.trainable


def keep_states(layer: OuterLayer) -> None:
    """Freezes the layers inside a frozen layer; changes single ones as the configuration says.

    Call it once, at the end of `build`: to set `trainable` again would also train the kernels that LoRA has frozen.

    Setting `trainable` reaches only the layers that exist at that moment. Without this, `Layer(..., trainable=False)`
    freezes nothing that its constructor or `build` makes, and a frozen layer trains again after its `.keras` file is
    loaded.
    """
    if not layer.trainable:
        pass_on_trainable(layer)
    if layer._layer_states:
        restore_states(inner_layers(layer), layer._layer_states, layer.trainable)


def states_of(layers: dict[str, Any], trainable: bool) -> dict[str, Any]:
    """Of the layers by name that differ from new ones with this `trainable`, how they do."""
    states: dict[str, Any] = {}
    for name, layer in layers.items():
        state: dict[str, Any] = {}
        if layer.trainable != trainable:
            state["trainable"] = layer.trainable
        if layer.quantization_mode is not None:
            state["dtype"] = keras.dtype_policies.serialize(layer.dtype_policy)
        if getattr(layer, "lora_rank", None):
            state["lora_rank"], state["lora_alpha"] = layer.lora_rank, layer.lora_alpha
        if state:
            states[name] = state
    return states


def restore_states(layers: dict[str, Any], states: dict[str, Any], trainable: bool) -> None:
    """Changes new, built layers by what `states_of` has given of others.

    Args:
        layers: by name; outer ones first, since `trainable` also sets the layers inside.
        states: from `states_of`.
        trainable: of all layers whose state does not say it.
    """
    for name, layer in layers.items():
        state = states.get(name, {})
        flag = state.get("trainable", trainable)
        if layer.trainable != flag:  # to set it again would also train the kernel that LoRA has frozen
            layer.trainable = flag
        if "dtype" in state:
            layer.dtype_policy = state["dtype"]  # quantises a built layer
        if "lora_rank" in state and not layer.lora_enabled:  # an encoder inside a head has its own configuration too
            layer.enable_lora(state["lora_rank"], lora_alpha=state["lora_alpha"])


def inner_layers(layer: keras.layers.Layer) -> dict[str, keras.layers.Layer]:
    """The layers with weights inside a layer or model by the names on the way to them, outer ones first.

    Keras has no public function that lists them.
    """
    found: dict[str, keras.layers.Layer] = {}

    def visit(parent: keras.layers.Layer, prefix: str) -> None:
        for inner in parent._layers:
            name = f"{prefix}{inner.name}"
            while name in found:  # such as an attention of the user's that is called as another part
                name += "'"
            if inner.weights:  # without, there is no state to keep, and the name is automatic
                found[name] = inner
            visit(inner, f"{name}/")

    visit(layer, "")
    return found
