"""What all models share: their configuration, and what follows from it."""

import inspect
import numbers
import warnings
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import KerasTensor, ops

from zoo.layers.checks import check_choice
from zoo.layers.functions.tensors import Shape
from zoo.layers.outer_layer import inner_layers, pass_on_trainable, restore_states, states_of

NEVER = -1e9  # the bias of an id that is never predicted


class FunctionalModel(keras.Model):
    """A functional model whose constructor's arguments are its configuration: the base of all models of the zoo.

    A subclass builds its layers and its graph in `__init__`, calls this constructor, and sets an attribute for each of
    its own arguments. `get_config` follows from the signature, and a `.keras` file also keeps what was changed in
    single layers: `trainable`, quantisation, LoRA.

    If an encoder or translator has a maximum number of tokens, as with learned positions, its attribute
    `most_positions` is that number; in a language model it is `context_length`.

    For a copy, write `type(model).from_config(model.get_config())`. `keras.models.clone_model` does not call
    `get_config` of a functional model, so its result is a plain Keras model without the methods of the zoo's class.
    That of a `MaskedLanguageModel` has two embeddings, one for the encoder and one for the logits.

    Args:
        inputs: the input of the graph, or a dict of inputs by name.
        outputs: the output of the graph.
        dtype: the policy that all layers compute in.
        name: name of the model.
        trainable: whether training changes the weights; False freezes all layers.

    Raises:
        ValueError: `dtype` is a quantised policy.

    A subclass that takes `*args` or `**kwargs` cannot be saved without its own `get_config`, because its signature does
    not name all of its configuration. A warning says so when the model is made.
    """

    most_positions: int | None = None

    def __init__(
        self,
        inputs: KerasTensor | dict[str, KerasTensor],
        outputs: KerasTensor,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        if type(self).get_config is FunctionalModel.get_config and (problem := _unnamed(type(self))):
            # At once, as a training may be long; and at the subclass's own constructor, however deep it is.
            constructor: Any = type(self).__init__
            code, seen = constructor.__code__, constructor.__globals__.setdefault("__warningregistry__", {})
            warnings.warn_explicit(problem, UserWarning, code.co_filename, code.co_firstlineno, registry=seen)
        policy = keras.dtype_policies.get(dtype)
        if policy.quantization_mode is not None:
            raise ValueError(
                "`dtype` must be a policy of floats, such as 'float32' or 'mixed_bfloat16'; quantise the model once it "
                f"is made, by `model.quantize({policy.quantization_mode!r})`. Received: dtype={policy.name!r}"
            )
        object.__setattr__(self, "_has_graph", True)
        super().__init__(inputs=inputs, outputs=outputs, name=name, trainable=trainable)
        self.dtype_policy = policy
        if not trainable:
            pass_on_trainable(self)

    def __setattr__(self, name: str, value: Any) -> None:
        # Layers set before the graph exists are plain attributes: the graph tracks them, in the order of their use,
        # and a PyTorch module refuses layers before its constructor has run.
        if "_has_graph" not in self.__dict__:
            object.__setattr__(self, name, value)
            return
        super().__setattr__(name, value)
        if name == "trainable":
            pass_on_trainable(self)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and under `layer_states` what was changed in single layers.

        Raises:
            ValueError: the constructor takes `*args` or `**kwargs`, or an argument is no attribute.
        """
        if problem := _unnamed(type(self)):
            raise ValueError(problem)
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        if missing := [name for name in names if not hasattr(self, name)]:
            raise ValueError(
                f"`{type(self).__name__}` cannot be saved: every argument of its `__init__` must be an attribute, as "
                f"in `self.{missing[0]} = {missing[0]}`. Missing: {', '.join(missing)}"
            )
        config = {name: getattr(self, name) for name in names}
        if "dtype" in config:
            config["dtype"] = keras.dtype_policies.serialize(self.dtype_policy)
        config = {
            name: keras.saving.serialize_keras_object(value) if callable(value) else value
            for name, value in config.items()
        }
        states = states_of(inner_layers(self), self.trainable)
        return {**config, "layer_states": states} if states else config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model that `get_config` describes, with new weights."""
        config = dict(config)
        states = config.pop("layer_states", {})
        model = cls(**config)
        if states:
            restore_states(inner_layers(model), states, model.trainable)
        return model


class Family(FunctionalModel):
    """A functional model from ids to logits, with `begin` and `step` for decoding: the base of all families.

    Decoding with ids needs no tokenizer. See `zoo.decoding`: for a translator `greedy(model, ids, limits)` and
    `beam_search`, for a language model `generate(model, prompts)`.

    Axes: B batch, T length, D width, V vocabulary.

    Args:
        inputs: the input of the graph, or a dict of inputs by name.
        outputs: the logits `(B, T, V)`.
        hidden: the vectors `(B, T, D)` that the last product turns into logits.
        dtype: the policy that all layers compute in.
        name: name of the model.
        trainable: whether training changes the weights.
    """

    def __init__(
        self,
        inputs: KerasTensor | dict[str, KerasTensor],
        outputs: KerasTensor,
        hidden: KerasTensor,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        super().__init__(inputs, outputs, dtype, name, trainable)
        self._hidden = hidden

    @property
    def vector_size(self) -> int:
        """D, the width of the vectors that `without_logits` gives."""
        return self._hidden.shape[-1]

    def without_logits(self) -> keras.Model:
        """The model without its last product, with the same weights, for a loss that never holds all logits.

        Returns:
            A model of the same inputs. Its outputs `(B, T, D)` are what the last product multiplies.
        """
        return keras.Model(self.input, self._hidden, name=f"{self.name}_without_logits")


def _unnamed(model: type[FunctionalModel]) -> str | None:
    """Why the configuration of a class of models cannot be read from its constructor; None if it can."""
    for each in inspect.signature(model.__init__).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            return (
                f"`{model.__name__}` cannot be saved: its `__init__` takes `{each}`, but the signature is the model's "
                "configuration. Name every argument, or write a `get_config`."
            )
    return None


def check_ties(ties: str, source_vocabulary_size: int, target_vocabulary_size: int) -> str:
    """Checks which embeddings are tied to the output, and returns the name of the choice.

    Raises:
        ValueError: an unknown choice, or vocabularies of different sizes.
    """
    check_choice("tied_embeddings", ties, ("none", "target", "all"))
    if ties == "all" and source_vocabulary_size != target_vocabulary_size:
        raise ValueError(
            "`tied_embeddings='all'` needs one vocabulary for both sides. Received: "
            f"source_vocabulary_size={source_vocabulary_size}, target_vocabulary_size={target_vocabulary_size}"
        )
    return ties


@keras.saving.register_keras_serializable(package="zoo")
class OutputBias(keras.layers.Layer):
    """A learned bias of the logits. A product with tied embeddings has no bias, so this layer adds one.

    Call arguments:
        logits: `(..., V)`.

    Returns: `(..., V)`.
    """

    def build(self, logits_shape: Shape) -> None:
        """Creates the bias `(V,)`, zero at first."""
        self.bias = self.add_weight(name="bias", shape=(logits_shape[-1],), initializer="zeros")

    def call(self, logits: Any) -> Any:
        """Adds the bias."""
        return logits + self.bias


def bias_against(ids: Sequence[int], vocabulary_size: int) -> Any:
    """A bias `(V,)` of the logits, as a tuple, that keeps these ids from being predicted; None for no ids.

    Raises:
        ValueError: an id that does not exist.
    """
    if not all(isinstance(token, numbers.Integral) and 0 <= token < vocabulary_size for token in ids):
        raise ValueError(
            f"`unused_ids` must be integers from 0 to {vocabulary_size - 1}. Received: unused_ids={tuple(ids)}"
        )
    unused = set(ids)
    return tuple(NEVER if token in unused else 0.0 for token in range(vocabulary_size)) if unused else None


def add_bias(values: Any, bias: Any) -> Any:
    """Adds the bias of `bias_against` to logits `(..., V)` or to another bias `(V,)`; either may be None."""
    if bias is None:
        return values
    bias = ops.convert_to_tensor(bias, "float32")  # (V,)
    return bias if values is None else values + bias


def to_logits(hidden: Any, output: keras.layers.Layer | None, embedding: keras.layers.Layer) -> Any:
    """`(B, T, D)` -> logits `(B, T, V)` in float32. Uses the output layer; if `output` is None, the tied embedding."""
    logits = embedding(hidden, reverse=True) if output is None else output(hidden)
    return ops.cast(logits, "float32")


def weights_and_bias(output: keras.layers.Layer | None, embedding: keras.layers.Layer) -> tuple[Any, Any]:
    """The weights `(V, D)` and the bias `(V,)` or None of the product in `to_logits`.

    Raises:
        ValueError: the weights are quantised. Without their scales, and those of the vectors, they give no logits.
    """
    layer = embedding if output is None else output
    if layer.quantization_mode not in (None, "float8"):
        raise ValueError(
            f"`output_weights` needs weights that are not quantised; {layer.name!r} has {layer.quantization_mode} "
            "weights. `logits_of` gives the logits; train before you quantise."
        )
    if output is None:
        return embedding.embeddings, None
    return ops.transpose(output.kernel), output.bias


def through(layer: keras.layers.Layer, maps: list[Any] | None, *inputs: Any, **options: Any) -> Any:
    """What a layer of a transformer makes of its inputs; a list given as `maps` also gets its attention weights.

    A layer with two attentions adds a list of both weights.
    """
    if maps is None:
        return layer(*inputs, **options)
    outputs, *weights = layer(*inputs, return_attention_scores=True, **options)
    maps.append(weights if len(weights) > 1 else weights[0])
    return outputs
