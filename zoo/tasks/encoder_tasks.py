"""Encoders with their tokenizer: texts in, and classes, vectors or the tokens behind a mask out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.layers import AttentionPooling
from zoo.layers.functions import forward_only
from zoo.models import Classifier, MaskedLanguageModel, SentenceEmbedder
from zoo.tasks.task import SavedTask, check_tokenizer, strings, zeroed
from zoo.tasks.text_reading import MaskFilling, TextClassification, TextEmbedding
from zoo.text import END, Tokenizer
from zoo.text.tokenizer import example_texts, whole_number

_Function = Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]
_TEXT, _PAIR = (tf.TensorSpec([None], tf.string, name=name) for name in ("text", "text_pair"))


class _EncoderTask(SavedTask):
    """What the three tasks share: the ids that the encoder reads, and the signatures that show its attention.

    A subclass defines `_signature_functions`: for the name of each signature, a function from the encoder's inputs to
    outputs by name.

    Axes: B batch, T length, D width, N layers, H heads.
    """

    TOKENIZERS = ("tokenizer",)
    pairs: bool = False

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, max_length: int | None):
        super().__init__(model)
        self.encoder = model.encoder
        check_tokenizer(tokenizer, self.encoder, kind="encoder")
        most = getattr(self.encoder, "most_positions", None)  # an encoder of the user's own may have no such attribute
        max_length = most or 512 if max_length is None else whole_number("max_length", max_length)
        if max_length < 5 or (most and max_length > most):
            limits = f"from 5 to {most}" if most else "at least 5"
            raise ValueError(f"`max_length` must be {limits}. Received: max_length={max_length}")
        self.tokenizer, self.max_length = tokenizer, max_length
        self._functions: dict[str, Any] = {}

    @property
    def packed_lengths(self) -> tuple[int, ...]:
        """The most tokens of a text."""
        return (self.max_length,)

    def encode(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """Texts `(B,)` -> the encoder's inputs, `(B, T)` each: start, text, end; for pairs also second text, end."""
        if text_pair is not None:
            ids, segments = self.tokenizer.tokenize_pairs(text, text_pair, self.max_length)
        else:
            ids = self._tokenize(text)
            segments = tf.zeros_like(ids)
        if "segments" not in self.model.input:
            return {"ids": ids}
        # RoBERTa has one kind of segment, for both texts of a pair.
        kinds = getattr(self.encoder, "num_segments", 2)
        return {"ids": ids, "segments": tf.minimum(segments, kinds - 1)}

    def _tokenize(self, text: tf.Tensor) -> tf.Tensor:
        return self.tokenizer.tokenize(text, add_start=True, add_end=True, max_length=self.max_length)

    def _signature_functions(self) -> dict[str, _Function]:
        raise NotImplementedError

    def signatures(self) -> dict[str, Any]:
        """The functions that an export has, by their names: see `zoo.serving.export`."""
        if not self._functions:
            specs = [_TEXT, _PAIR] if self.pairs else [_TEXT]

            def function_of(compute: _Function) -> Any:
                def function(text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
                    inputs = self.encode(text, text_pair)
                    with forward_only(self.max_length):
                        return compute(inputs)

                return tf.function(function, input_signature=specs, autograph=False)

            functions = self._signature_functions() | self._attention_functions()
            # Set as a whole: another thread may ask meanwhile.
            self._functions = {name: function_of(compute) for name, compute in functions.items()}
        return self._functions

    def _ask(self, signature: str, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        functions = self.signatures()
        if signature not in functions:
            why = " of layers and heads" if signature == "attention_by_head" else ""
            raise ValueError(f"This model has no attention{why} to show.")
        return functions[signature](**tensors)

    # What attended to what.

    def _attention_functions(self) -> dict[str, _Function]:
        functions: dict[str, _Function] = {}
        if hasattr(self.encoder, "attention_maps"):
            functions = {"attention": self._last_layer, "attention_by_head": self._by_head}
        if isinstance(getattr(self.model, "pooling_layer", None), AttentionPooling):
            functions["attention"] = self._pooled
        return functions

    def _by_head(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`tokens` `(B, T)`, and `weights` `(B, N, H, T, T)`, zero at padding."""
        weights = zeroed(self.encoder.attention_maps(**inputs), inputs["ids"])
        return {"tokens": self.tokenizer.tokens(inputs["ids"]), "weights": weights}

    def _last_layer(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`tokens` `(B, T)`, and `weights` `(B, T, T)`, the mean of the last layer's heads."""
        found = self._by_head(inputs)
        return {**found, "weights": tf.reduce_mean(found["weights"][:, -1], axis=1)}

    def _pooled(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`tokens` `(B, T)`, and `weights` `(B, 1, T)`: how much each token counts for the whole text."""
        weights = self.model.pooling_weights(**inputs)[:, tf.newaxis]  # (B, 1, T)
        return {"tokens": self.tokenizer.tokens(inputs["ids"]), "weights": weights}

    # Example requests.

    def example_texts(self) -> list[str]:
        """Texts made of the tokenizer's tokens, for warm-up requests."""
        return example_texts(self.tokenizer)

    def example_requests(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """What a client sends to each signature to have these texts read."""
        text = strings(texts)
        inputs = {"text": text, "text_pair": text[::-1]} if self.pairs else {"text": text}
        return {name: inputs for name in self.signatures()}


class TextClassifier(_EncoderTask, TextClassification):
    """A trained classifier with its tokenizer.

    ```python
    classifier = TextClassifier(model, tokenizer, labels=["negative", "positive"])
    classifier(["A film that I shall not forget."])                    # ["positive"]
    classifier.classify(["A film that I shall not forget."])[0].probabilities
    classifier.save("runs/sentiment/classifier")
    ```

    Axes: B batch, T length, C classes.

    Args:
        model: a `zoo.models.Classifier`.
        tokenizer: the tokenizer.
        labels: the names of the classes, in the order of the logits.
        max_length: the most tokens of a text, those for start and end included; a longer text is cut off. None for the
            encoder's positions, or 512.
        pairs: whether it reads pairs of texts.

    Raises:
        ValueError: a model of another class, labels that are no strings, are empty or repeat, or whose number is not
            that of the classes, a length out of its range, a tokenizer with more ids than the encoder, or a Keras
            backend other than TensorFlow.
    """

    CONFIG_FILE = "classifier.json"
    SETTINGS = ("labels", "max_length", "pairs")

    def __init__(
        self,
        model: Classifier,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_length: int | None = None,
        pairs: bool = False,
    ):
        check_model(model, Classifier)
        super().__init__(model, tokenizer, max_length)
        labels = list(labels)
        are_names = all(isinstance(label, str) and label for label in labels)
        if not are_names or len(labels) != model.num_classes or len(set(labels)) != len(labels):
            raise ValueError(
                f"`labels` must be {model.num_classes} different names, one for each class. Received: {labels}"
            )
        self.labels, self.pairs = labels, pairs

    def _signature_functions(self) -> dict[str, _Function]:
        return {"serving_default": self._best, "classify": self._ranked}

    def _ranked(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`labels` and `probabilities` `(B, C)`, the most probable first."""
        logits = self.model(inputs)  # (B, C)
        probabilities = tf.sigmoid(logits) if self.model.multi_label else tf.nn.softmax(logits)
        found = tf.math.top_k(probabilities, len(self.labels))
        labels = tf.gather(tf.constant(self.labels), found.indices)
        return {"labels": labels, "probabilities": found.values}

    def _best(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`label` and `probability` `(B,)`."""
        found = self._ranked(inputs)
        return {"label": found["labels"][:, 0], "probability": found["probabilities"][:, 0]}


class TextEmbedder(_EncoderTask, TextEmbedding):
    """A trained sentence embedder with its tokenizer.

    ```python
    embedder = TextEmbedder(model, tokenizer)
    embedder(["A cat sleeps.", "A dog barks."])        # float32 (2, D)
    ```

    Args:
        model: a `zoo.models.SentenceEmbedder`.
        tokenizer: the tokenizer.
        max_length: the most tokens of a text, those for start and end included; a longer text is cut off. None for the
            encoder's positions, or 512.

    Raises:
        ValueError: a model of another class, a length out of its range, a tokenizer with more ids than the encoder, or
            a Keras backend other than TensorFlow.
    """

    CONFIG_FILE = "embedder.json"
    SETTINGS = ("max_length",)

    def __init__(self, model: SentenceEmbedder, tokenizer: Tokenizer, max_length: int | None = None):
        check_model(model, SentenceEmbedder)
        super().__init__(model, tokenizer, max_length)

    def _signature_functions(self) -> dict[str, _Function]:
        return {"serving_default": self._embed, "embed": self._embed}

    def _embed(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`embedding` `(B, D)`."""
        return {"embedding": self.model(inputs)}


class MaskFiller(_EncoderTask, MaskFilling):
    """A masked language model with its tokenizer.

    ```python
    filler = MaskFiller(model, tokenizer)
    filler(["The capital of France is [MASK]."])       # ["the capital of france is paris."]
    ```

    Axes: B batch, T length, R masks of all texts, M the largest number of masks in a text, K candidates, V vocabulary.

    Args:
        model: a `zoo.models.MaskedLanguageModel`.
        tokenizer: the tokenizer, with a `mask_id`.
        max_length: the most tokens of a text, those for start and end included; a longer text is cut off. None for the
            encoder's positions, or 512.
        num_candidates: how many tokens are given for each mask, K. None for 5, or all of a smaller vocabulary.

    Raises:
        ValueError: a model of another class, a tokenizer without a mask, a number out of its range, a tokenizer with
            more ids than the encoder, or a Keras backend other than TensorFlow.
    """

    CONFIG_FILE = "filler.json"
    SETTINGS = ("max_length", "num_candidates")

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: Tokenizer,
        max_length: int | None = None,
        num_candidates: int | None = None,
    ):
        check_model(model, MaskedLanguageModel)
        super().__init__(model, tokenizer, max_length)
        if tokenizer.mask_id is None:
            raise ValueError(f"`tokenizer` must have a mask, such as [MASK]. Received: {type(tokenizer).__name__}")
        most = tokenizer.size - END - 2  # all but the special tokens and the mask
        num_candidates = min(5, most) if num_candidates is None else whole_number("num_candidates", num_candidates)
        if not 1 <= num_candidates <= most:
            raise ValueError(f"`num_candidates` must be from 1 to {most}. Received: {num_candidates}")
        self.num_candidates = num_candidates

    def _tokenize(self, text: tf.Tensor) -> tf.Tensor:
        options: dict[str, Any] = dict(add_start=True, add_end=True, max_length=self.max_length, special_tokens=True)
        return self.tokenizer.tokenize(text, **options)

    def _signature_functions(self) -> dict[str, _Function]:
        return {"serving_default": self._filled, "fill": self._fill}

    def _fill(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`text` `(B,)`, filled; `tokens` and `probabilities` `(B, M, K)`, empty and 0 where a text has fewer masks."""
        ids = inputs["ids"]
        places = tf.where(ids == self.tokenizer.mask_id)  # (R, 2)
        vectors = tf.gather_nd(self.encoder(inputs), places)  # (R, D): the others are not multiplied by the vocabulary
        probabilities = tf.nn.softmax(self.model.logits_of(vectors))  # (R, V)
        # Never padding, unknown, start, end or the mask again; nor ids that the tokenizer does not have.
        columns = tf.range(tf.shape(probabilities)[1])
        written = (columns > END) & (columns != self.tokenizer.mask_id) & (columns < self.tokenizer.size)
        found = tf.math.top_k(tf.where(written, probabilities, -1.0), self.num_candidates)  # (R, K)
        filled = tf.tensor_scatter_nd_update(ids, places, found.indices[:, 0])  # (B, T)
        rows = tf.shape(ids, tf.int64)[0]

        def of_texts(values: tf.Tensor, default: Any) -> tf.Tensor:
            ragged = tf.RaggedTensor.from_value_rowids(values, places[:, 0], rows, validate=False)
            return ragged.to_tensor(default, shape=[None, None, self.num_candidates])  # (B, M, K)

        return {
            "text": self.tokenizer.detokenize(filled),
            "tokens": of_texts(self.tokenizer.tokens(found.indices), ""),
            "probabilities": of_texts(found.values, 0.0),
        }

    def _filled(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`text` `(B,)`, filled, and `probability` `(B,)`, the product over its masks."""
        found = self._fill(inputs)
        best, is_mask = found["probabilities"][..., 0], found["tokens"][..., 0] != ""  # (B, M) each
        return {"text": found["text"], "probability": tf.reduce_prod(tf.where(is_mask, best, 1.0), axis=1)}


def check_model(model: Any, wanted: type[keras.Model]) -> None:
    """Refuses a model of another class. A packed model counts as the class that its `reproduces` names.

    Raises:
        ValueError: it is such a model.
    """
    if not isinstance(model, wanted) and getattr(model, "reproduces", None) is not wanted:
        raise ValueError(f"`model` must be a zoo.models.{wanted.__name__}. Received: a {type(model).__name__}")
