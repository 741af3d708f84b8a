"""Several translators as one model, whose probabilities are the mean of theirs."""

import math
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from zoo.models.family import Family, FunctionalModel
from zoo.models.masks import NO_MASKS, Masks

_NEEDED = ("source_vocabulary_size", "target_vocabulary_size", "vectors", "logits_of", "head_sizes")


class Averaging:
    """What several models do together: they read the same ids, and the mean of their probabilities is the answer.

        p(y_i | y_<i, x) = 1/N (p_1(y_i | y_<i, x) + ... + p_N(y_i | y_<i, x))

    Each method calls that of all models. Memory and cache are tuples with those of each model.

    Axes: B batch, S source length, T target length, V vocabulary, K hypotheses of a source row, D width of a model's
    vectors, N models.

    Attributes:
        models: the models, which have the same vocabularies.
    """

    models: list[Any]

    @property
    def has_attention(self) -> bool:
        """Whether `step` returns attention weights: if all models do."""
        return all(getattr(model, "has_attention", False) for model in self.models)

    @property
    def head_sizes(self) -> dict[str, tuple[int, int]]:
        """There are no heads to switch off: models differ in theirs."""
        return {}

    def vectors(self, inputs: dict[str, Any], masks: Masks = NO_MASKS) -> Any:
        """The vectors of all models side by side, `(B, T, D_1 + ... + D_N)`."""
        return ops.concatenate([model.vectors(inputs, masks) for model in self.models], axis=-1)

    def without_logits(self) -> Any:
        """The function `vectors`."""
        return self.vectors

    def logits_of(self, vectors: Any) -> Any:
        """What `vectors` gives, `(..., D_1 + ... + D_N)` -> log-probabilities `(..., V)`, float32."""
        logits, begin = [], 0
        for model in self.models:
            logits.append(model.logits_of(vectors[..., begin : begin + model.vector_size]))
            begin += model.vector_size
        return log_of_mean(logits)

    def begin(self, source: Any, masks: Masks = NO_MASKS) -> tuple[tuple, tuple]:
        """Reads the source ids `(B, S)` once, with each model: the memories of all, and their caches.

        With `masks`, no model reads the tokens that these hide.
        """
        begun = [model.begin(source, masks) for model in self.models]
        return tuple(memory for memory, _ in begun), tuple(cache for _, cache in begun)

    def step(self, tokens: Any, position: Any, memory: tuple, cache: tuple, *outputs: tuple) -> tuple[Any, tuple, Any]:
        """Reads the next token `(B, K)` of each hypothesis with each model.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses had before.
            memory: from `begin`.
            cache: from `begin` or the last step.
            *outputs: nothing, or one more argument of each model's step.

        Returns:
            log-probabilities `(B, K, V)` in float32, the caches, and the mean of the attention weights `(B, K, S)`;
            None unless all models have attention.
        """
        of_models = zip(self.models, memory, cache, *outputs, strict=True)
        steps = [self._step_of(model, tokens, position, *of_model) for model, *of_model in of_models]
        logits, caches, weights = zip(*steps, strict=True)
        mean = ops.mean(ops.stack([ops.cast(each, "float32") for each in weights]), 0) if self.has_attention else None
        return log_of_mean(logits), caches, mean

    def _step_of(self, model: Any, *inputs: Any) -> tuple[Any, Any, Any]:
        return model.step(*inputs)


def log_of_mean(logits: Sequence[Any]) -> Any:
    """The logarithm of the mean of the probabilities that several logits `(..., V)` stand for, `(..., V)`."""
    # Not the logarithm of a sum of softmaxes: a token that is never predicted would have the probability 0.
    each = ops.stack([ops.log_softmax(ops.cast(one, "float32"), axis=-1) for one in logits])  # (N, ..., V)
    return ops.logsumexp(each, axis=0) - math.log(len(logits))


class _OfModels:
    """A configuration with those of the models inside."""

    models: list[Any]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, with the configurations of the models."""
        models = [keras.saving.serialize_keras_object(model) for model in self.models]
        return {**super().get_config(), "models": models}  # type: ignore[misc]

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """What `get_config` describes, with new weights."""
        models = [keras.saving.deserialize_keras_object(each, custom_objects) for each in config["models"]]
        return super().from_config({**config, "models": models})  # type: ignore[misc]


@keras.saving.register_keras_serializable(package="zoo")
class MeanOfModels(_OfModels, keras.layers.Layer):
    """The layer of an `Ensemble` that holds its models.

    Call arguments:
        inputs: `source` `(B, S)` and `target` `(B, T)`, as those of the models.

    Returns: log-probabilities `(B, T, V)` in float32.
    """

    def __init__(self, models: Sequence[keras.Model], **kwargs: Any):
        super().__init__(**kwargs)
        self.models = list(models)

    def call(self, inputs: dict[str, Any]) -> Any:
        """The logarithm of the mean of the models' probabilities."""
        return log_of_mean([model(inputs) for model in self.models])

    def compute_output_spec(self, inputs: dict[str, Any]) -> keras.KerasTensor:
        """`(B, T, V)`, said here, or Keras would trace all models to find it."""
        return keras.KerasTensor((*inputs["target"].shape, self.models[0].target_vocabulary_size), "float32")


@keras.saving.register_keras_serializable(package="zoo")
class Ensemble(_OfModels, Averaging, FunctionalModel):
    """Several translators as one: the probability of a token is the mean of theirs.

        p(y_i | y_<i, x) = 1/N (p_1(y_i | y_<i, x) + ... + p_N(y_i | y_<i, x))

    Models that were trained with different seeds make different mistakes, so their mean is usually right more often
    than each of them. An answer takes as much work as the answers of all models.

    ```python
    both = Ensemble([first.model, second.model])           # of two `zoo.Translator`s with the same tokenizers
    translator = first.with_model(both)
    ```

    The ensemble uses the models themselves, not copies. They may be of different families, sizes and settings. It has
    no maps of single heads, since the models' heads differ; its attention is the mean of theirs.

    Axes: B batch, S source length, T target length, V target vocabulary, K hypotheses of a source row.

    Args:
        models: two or more translators with the same source and target vocabularies: `RNNSeq2Seq`, `Transformer`, or a
            `Family` of your own with the same methods.
        name: name of the model.
        trainable: whether training changes the weights; False freezes all models.

    Call arguments (a dict):
        source: ids `(B, S)`.
        target: ids of the previous tokens `(B, T)`, as those of the models.

    Returns:
        logits `(B, T, V)` in float32, which are log-probabilities.

    Raises:
        ValueError: fewer than two models, one model twice, models that do not translate, or models with different
            vocabularies.

    Example:
        >>> import numpy as np
        >>> from zoo.models import RNNSeq2Seq
        >>> model = Ensemble([RNNSeq2Seq(20, 10, units=8), RNNSeq2Seq(20, 10, units=6)])
        >>> tuple(model({"source": np.ones((2, 5), "int32"), "target": np.ones((2, 3), "int32")}).shape)
        (2, 3, 10)

    References: https://doi.org/10.1109/34.58871 (Hansen and Salamon 1990), https://arxiv.org/abs/1409.3215, section 3.6
    """

    def __init__(self, models: Sequence[keras.Model], name: str | None = None, trainable: bool = True):
        models = list(models) if isinstance(models, Sequence) else [models]
        for model in models:
            if not isinstance(model, Family) or not all(hasattr(model, name) for name in _NEEDED):
                raise ValueError(
                    "`models` must be translators such as `RNNSeq2Seq` and `Transformer`, a `Family` with "
                    f"{', '.join(f'`{name}`' for name in _NEEDED)}. Received: a `{type(model).__name__}`"
                )
        if len(models) < 2 or len({id(model) for model in models}) < len(models):
            raise ValueError(f"`models` must be two or more different models. Received: {len(models)}")
        for side in ("source", "target"):
            sizes = [getattr(model, f"{side}_vocabulary_size") for model in models]
            if len(set(sizes)) > 1:
                raise ValueError(
                    f"`models` must have the same vocabularies. Received: {side} vocabularies of "
                    f"{', '.join(map(str, sizes))} ids"
                )
        source = keras.Input((None,), dtype="int32", name="source")  # (B, S)
        target = keras.Input((None,), dtype="int32", name="target")  # (B, T)
        inputs = {"source": source, "target": target}
        self.models = models
        logits = MeanOfModels(models, name="mean_of_models")(inputs)  # (B, T, V)
        super().__init__(inputs, logits, None, name, trainable)
        self.source_vocabulary_size = models[0].source_vocabulary_size
        self.target_vocabulary_size = models[0].target_vocabulary_size
        limits = [model.most_positions for model in models if model.most_positions is not None]
        self.most_positions = min(limits, default=None)

    def output_columns(self, ids: Any) -> tuple[Any, ...]:
        """What `step` takes, for a shortlist: the mean is then that of the models' probabilities among ids `(B, C)`."""
        return (ids,) * len(self.models)

    def _step_of(self, model: Any, tokens: Any, position: Any, memory: Any, cache: Any, ids: Any = None) -> Any:
        logits, cache, weights = model.step(tokens, position, memory, cache)  # (B, K, V)
        return logits if ids is None else ops.take_along_axis(logits, ids[:, None], axis=-1), cache, weights
