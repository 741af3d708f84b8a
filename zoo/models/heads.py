"""Heads: small functional models on top of an encoder, which make it a model for a task."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
from keras import ops

from zoo.layers import AttentionPooling, Dropout, SequencePooling
from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.layers.feed_forward import activation_function, check_activation
from zoo.layers.functions.tensors import Tensor
from zoo.layers.transformer_layers import make_normalization
from zoo.models.family import FunctionalModel, OutputBias, add_bias, bias_against, to_logits, weights_and_bias

_POOLINGS = ("first", "mean", "max", "attention")


class Head(FunctionalModel):
    """What all heads share: the encoder's inputs and output, and the encoder in the configuration.

    A subclass calls `_read` before it builds its graph.
    """

    def _read(self, encoder: keras.Model) -> tuple[dict[str, Any], Any, Any, Any]:
        """New inputs for an encoder, its vectors `(B, T, D)`, their mask `(B, T)` and the dtype policy to compute in.

        Raises:
            ValueError: `encoder` is not a model with an input `ids`.
        """
        given = getattr(encoder, "input", None) if isinstance(encoder, keras.Model) else None
        if not isinstance(given, dict) or "ids" not in given:
            raise ValueError(
                f"`encoder` must be a model with an input `ids`, such as a `zoo.models.Encoder`. Received: {encoder!r}"
            )
        inputs = {name: keras.Input(x.shape[1:], dtype=x.dtype, name=name) for name, x in given.items()}
        # A copy carries no mask, which Keras would use on the way to the loss: heads are given the mask explicitly.
        hidden = ops.copy(encoder(inputs))  # (B, T, D)
        return inputs, hidden, ops.not_equal(inputs["ids"], 0), encoder.dtype_policy

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model that `get_config` describes, with new weights."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects=custom_objects)
        return super().from_config({**config, "encoder": encoder}, custom_objects)


class _Pooled(Head):
    """A head that reads one vector for each text."""

    def _pool(self, hidden: Any, mask: Any, pooling: str, dtype: Any) -> Any:
        """`(B, T, D)` -> `(B, D)`."""
        check_choice("pooling", pooling, _POOLINGS)
        if pooling == "attention":
            self.pooling_layer = AttentionPooling(hidden.shape[-1], dtype=dtype, name="pooling")
        else:
            self.pooling_layer = SequencePooling(pooling, dtype=dtype, name="pooling")
        return self.pooling_layer(hidden, mask)

    def pooling_weights(self, **inputs: Any) -> Any:
        """The weights `(B, T)` of `pooling="attention"`: how much each token counts, zero at padding.

        Args:
            **inputs: as in the call, by name.

        Raises:
            ValueError: this model pools without attention.
        """
        if self.pooling != "attention":
            raise ValueError("This model has no attention that pools: it was built without pooling='attention'.")
        hidden, mask = self.encoder(inputs), ops.not_equal(inputs["ids"], 0)
        return self.pooling_layer(hidden, mask, return_attention_scores=True)[1]


@keras.saving.register_keras_serializable(package="zoo")
class Classifier(_Pooled):
    """Puts a text into one of C classes, or says of each class whether it fits.

        logits = dropout(f(dropout(pool(h)) W_1 + b_1)) W_2 + b_2,    h the encoder's vectors

    With `pooling="votes"` each token is classified alone, with logits z_t, and the text by the mean of what they say:

        votes = mean over t of log softmax(z_t),    logits = sqrt(number of tokens) votes

    Training and use differ. In training, the loss is `-votes` of the label, the mean cross-entropy of the tokens: see
    `votes`. So each token learns everything that it says about the class. With a loss of the text's logits, the tokens
    would learn almost nothing from a text in which one token alone decides the class.

    In use, the square root changes only how certain the answer is, not which class is the most probable. If tokens were
    independent, as in Naive Bayes, their log-probabilities would be added; if all tokens said the same, the mean would
    be right. The square root is between the two. All this suits encoders whose vectors depend on a few tokens, such as
    `NgramEncoder`.

    With other poolings, train with `keras.losses.SparseCategoricalCrossentropy(from_logits=True)` if a text has one
    class, and with `keras.losses.BinaryCrossentropy(from_logits=True)` if it may have several (`multi_label`).

    Axes: B batch, T length, D width of the encoder, C classes.

    Args:
        encoder: an `Encoder`, `RNNEncoder` or `NgramEncoder`.
        num_classes: C.
        pooling: how a text becomes one vector: "first", the vector of the first token, as in BERT; "mean" or "max" of
            all tokens; "attention", see `AttentionPooling`; or "votes", the mean of what each token says alone.
        hidden_units: width of a hidden layer before the output, as BERT's pooler; None for no such layer.
        activation: of that layer, f.
        dropout: rate, before each product.
        multi_label: whether a text may belong to several classes, not with "votes". The logits are the same;
            `zoo.TextClassifier` turns them into probabilities by a sigmoid instead of a softmax.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict): those of the encoder.

    Returns:
        logits `(B, C)` in float32.

    Raises:
        ValueError: an argument out of its range, or `encoder` is not a model with an input `ids`.

    Example:
        >>> import numpy as np
        >>> from zoo.models import RNNEncoder
        >>> classifier = Classifier(RNNEncoder(vocabulary_size=20, units=8), num_classes=3, pooling="attention")
        >>> inputs = {"ids": np.array([[4, 5, 6, 0]])}
        >>> tuple(classifier(inputs).shape), tuple(classifier.pooling_weights(**inputs).shape)
        ((1, 3), (1, 4))

    Reference: https://arxiv.org/abs/1810.04805
    """

    def __init__(
        self,
        encoder: keras.Model,
        num_classes: int,
        pooling: str = "mean",
        hidden_units: int | None = None,
        activation: str | Callable = "tanh",
        dropout: float = 0.1,
        multi_label: bool = False,
        name: str | None = None,
        trainable: bool = True,
    ):
        num_classes = check_positive("num_classes", num_classes)
        check_rate("dropout", dropout)
        activation = check_activation(activation)

        # Layers and graph.
        inputs, hidden, mask, dtype = self._read(encoder)
        by_votes = check_choice("pooling", pooling, (*_POOLINGS, "votes")) == "votes"
        if by_votes and multi_label:
            raise ValueError("`pooling='votes'` is for one class a text. Received: multi_label=True")
        pooled = hidden if by_votes else self._pool(hidden, mask, pooling, dtype)  # (B, D), or (B, T, D)
        self.hidden_layer = None
        if hidden_units is not None:
            hidden_units = check_positive("hidden_units", hidden_units)
            self.hidden_layer = keras.layers.Dense(
                hidden_units, activation_function(activation), dtype=dtype, name="hidden"
            )
            pooled = self.hidden_layer(Dropout(dropout, dtype=dtype, name="pooled_dropout")(pooled))
        self.output_layer = keras.layers.Dense(num_classes, dtype=dtype, name="logits")
        logits = self.output_layer(Dropout(dropout, dtype=dtype, name="dropout")(pooled))  # (B, C), or (B, T, C)
        logits = ops.cast(logits, "float32")
        if by_votes:
            votes = SequencePooling("mean", dtype="float32", name="votes")(ops.log_softmax(logits), mask)  # (B, C)
            tokens = ops.sum(ops.cast(mask, "float32"), axis=1, keepdims=True)  # (B, 1)
            logits = ops.sqrt(tokens) * votes  # (B, C)
        super().__init__(inputs, logits, dtype, name, trainable)

        # Config.
        self.encoder = encoder
        self.num_classes = num_classes
        self.pooling = pooling
        self.hidden_units = hidden_units
        self.activation = activation
        self.dropout = dropout
        self.multi_label = multi_label

    def votes(self) -> keras.Model:
        """The model from the same inputs to the votes `(B, C)`, for training; it shares all weights.

        Raises:
            ValueError: this model was built without `pooling="votes"`.

        Example:
            >>> import numpy as np
            >>> from keras import ops
            >>> from zoo.models import NgramEncoder
            >>> classifier = Classifier(NgramEncoder(vocabulary_size=20, units=8), num_classes=3, pooling="votes")
            >>> voting = classifier.votes()
            >>> voting.compile("adam", lambda labels, votes: -ops.sum(ops.one_hot(labels, 3) * votes, axis=-1))
            >>> history = voting.fit({"ids": np.array([[4, 5, 6, 0]])}, np.array([2]), verbose=0)
        """
        if self.pooling != "votes":
            raise ValueError(f"This model's tokens do not vote: it was built with pooling={self.pooling!r}.")
        return keras.Model(self.input, self.get_layer("votes").output)


@keras.saving.register_keras_serializable(package="zoo")
class TokenClassifier(Head):
    """Puts each token into one of C classes, such as those of names.

        logits = dropout(h) W + b,    h the encoder's vectors

    Axes: B batch, T length, D width of the encoder, C classes.

    Args:
        encoder: an `Encoder`, `RNNEncoder` or `NgramEncoder`.
        num_classes: C.
        dropout: rate, before the product.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict): those of the encoder.

    Returns:
        logits `(B, T, C)` in float32. Those at padding have no meaning, so their labels need a weight of 0.

    Raises:
        ValueError: an argument out of its range, or `encoder` is not a model with an input `ids`.

    Example:
        >>> import numpy as np
        >>> from zoo.models import Encoder
        >>> model = TokenClassifier(Encoder(vocabulary_size=20, units=8, num_layers=1), num_classes=3)
        >>> tuple(model({"ids": np.array([[4, 5, 6, 0]])}).shape)
        (1, 4, 3)
    """

    def __init__(
        self,
        encoder: keras.Model,
        num_classes: int,
        dropout: float = 0.1,
        name: str | None = None,
        trainable: bool = True,
    ):
        num_classes = check_positive("num_classes", num_classes)
        check_rate("dropout", dropout)

        # Layers and graph.
        inputs, hidden, _, dtype = self._read(encoder)
        self.output_layer = keras.layers.Dense(num_classes, dtype=dtype, name="logits")
        logits = self.output_layer(Dropout(dropout, dtype=dtype, name="dropout")(hidden))  # (B, T, C)
        super().__init__(inputs, ops.cast(logits, "float32"), dtype, name, trainable)

        # Config.
        self.encoder = encoder
        self.num_classes = num_classes
        self.dropout = dropout


@keras.saving.register_keras_serializable(package="zoo")
class MaskedLanguageModel(Head):
    """Predicts the tokens that a mask hides, from the tokens on both sides, as BERT is trained.

        logits = norm(f(h W + b)) E^T + c,    h the encoder's vectors, E its embeddings

    Axes: B batch, T length, D width of the encoder, V vocabulary.

    Args:
        encoder: an `Encoder`, whose embeddings are as wide as its vectors.
        activation: f.
        epsilon: of the normalisation.
        unused_ids: ids that are never predicted: their logits are -1e9.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict): those of the encoder.

    Returns:
        logits `(B, T, V)` in float32.

    Raises:
        ValueError: an argument out of its range, `encoder` is not a model with an input `ids`, it has no
            `token_embedding` whose call takes `reverse`, or its embeddings have another width than its vectors.

    Example:
        >>> import numpy as np
        >>> from zoo.models import Encoder
        >>> model = MaskedLanguageModel(Encoder(vocabulary_size=20, units=8, num_layers=1))
        >>> tuple(model({"ids": np.array([[4, 5, 6, 0]])}).shape)
        (1, 4, 20)

    Reference: https://arxiv.org/abs/1810.04805
    """

    def __init__(
        self,
        encoder: keras.Model,
        activation: str | Callable = "gelu",
        epsilon: float = 1e-5,
        unused_ids: Sequence[int] = (),
        name: str | None = None,
        trainable: bool = True,
    ):
        activation = check_activation(activation)

        # Layers and graph.
        inputs, hidden, _, dtype = self._read(encoder)
        embedding: Any = getattr(encoder, "token_embedding", None)
        if not hasattr(embedding, "output_dim") or "reverse" not in inspect.signature(embedding.call).parameters:
            raise ValueError(
                "`encoder` must have a `token_embedding` whose call takes `reverse`, as `zoo.models.Encoder` has. "
                f"Received: {encoder!r}"
            )
        width = embedding.output_dim
        if hidden.shape[-1] != width:
            raise ValueError(
                f"The embeddings must be as wide as the encoder's vectors, which they are multiplied by. "
                f"Received: embeddings of width {width}, vectors of width {hidden.shape[-1]}"
            )
        self.transform = keras.layers.Dense(width, activation_function(activation), dtype=dtype, name="transform")
        self.transform_norm = make_normalization("layer", epsilon, dtype=dtype, name="transform_norm")
        self.output_bias = OutputBias(dtype="float32", name="output_bias")
        self._unused_bias = bias_against(unused_ids, embedding.input_dim)
        self.encoder = encoder
        super().__init__(inputs, self.logits_of(hidden), dtype, name, trainable)

        # Config.
        self.activation = activation
        self.epsilon = epsilon
        self.unused_ids = tuple(unused_ids)

    def logits_of(self, vectors: Any) -> Any:
        """Vectors of the encoder `(..., D)`, such as those of the masks only -> logits `(..., V)` in float32."""
        logits = self.output_bias(to_logits(self.transformed(vectors), None, self.encoder.token_embedding))  # (..., V)
        return add_bias(logits, self._unused_bias)

    def transformed(self, vectors: Any) -> Any:
        """Vectors of the encoder `(..., D)` -> what the product with the vocabulary multiplies, `(..., D)`."""
        return self.transform_norm(self.transform(vectors))

    def output_weights(self) -> tuple[Any, Any]:
        """The matrix `(V, D)` of the product with the vocabulary, and its bias `(V,)`, -1e9 for unused ids.

        Raises:
            ValueError: the matrix is quantised.
        """
        weights, _ = weights_and_bias(None, self.encoder.token_embedding)
        return weights, add_bias(ops.convert_to_tensor(self.output_bias.bias), self._unused_bias)


@keras.saving.register_keras_serializable(package="zoo")
class SentenceEmbedder(_Pooled):
    """One vector for each text; texts of similar meaning have similar vectors: Reimers and Gurevych 2019.

        e = pool(h) W,    e / |e|,    h the encoder's vectors

    Axes: B batch, T length, D width of the encoder, E width of the embeddings.

    Args:
        encoder: an `Encoder`, `RNNEncoder` or `NgramEncoder`.
        pooling: how a text becomes one vector, see `Classifier`.
        normalize: whether the vectors have the length 1, so that a dot product is their cosine.
        embedding_units: width of the embeddings, E; None for D, and then W is missing.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict): those of the encoder.

    Returns:
        Embeddings `(B, E)` in float32; zeros for a text without tokens.

    Raises:
        ValueError: an argument out of its range, or `encoder` is not a model with an input `ids`.

    Example:
        >>> import numpy as np
        >>> from zoo.models import Encoder
        >>> model = SentenceEmbedder(Encoder(vocabulary_size=20, units=8, num_layers=1))
        >>> embedding = np.array(model({"ids": np.array([[4, 5, 6, 0]])}))
        >>> embedding.shape, round(float(np.linalg.norm(embedding)), 5)
        ((1, 8), 1.0)

    Reference: https://arxiv.org/abs/1908.10084
    """

    def __init__(
        self,
        encoder: keras.Model,
        pooling: str = "mean",
        normalize: bool = True,
        embedding_units: int | None = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        # Layers and graph.
        inputs, hidden, mask, dtype = self._read(encoder)
        embeddings = self._pool(hidden, mask, pooling, dtype)  # (B, D)
        self.output_layer = None
        if embedding_units is not None:
            embedding_units = check_positive("embedding_units", embedding_units)
            self.output_layer = keras.layers.Dense(embedding_units, use_bias=False, dtype=dtype, name="projection")
            embeddings = self.output_layer(embeddings)  # (B, E)
        embeddings = ops.cast(embeddings, "float32")
        super().__init__(inputs, _unit_length(embeddings) if normalize else embeddings, dtype, name, trainable)

        # Config.
        self.encoder = encoder
        self.pooling = pooling
        self.normalize = normalize
        self.embedding_units = embedding_units


def _unit_length(vectors: Tensor) -> Tensor:
    """`(B, E)` divided by their Euclidean norms."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)  # (B, 1)
    # A zero vector stays zero. There the derivative is so steep that the gradient would overflow float16.
    squares = ops.where(squares > 0, squares, 1.0)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))  # the same floor as PyTorch's normalize, 1e-12 squared
