"""A sequence-to-sequence model with its tokenizers: strings in, strings out."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import keras
import tensorflow as tf

import zoo.models  # noqa: F401  registers the families, so that Keras finds the class that a saved model names
from zoo.atomic import replaced_folder
from zoo.decoding import greedy
from zoo.text import Tokenizer
from zoo.text.registry import tokenizer_from_config, tokenizer_to_config
from zoo.text_to_text import TextToText

CONFIG_FILE = "translator.json"
MODEL_FILE = "model.keras"


class Translator(TextToText, tf.Module):
    """A trained model that speaks text.

    ```python
    translator = Translator(model, source_tokenizer, target_tokenizer)
    translator(["21 novembre 2026"])          # ["2026-11-21"]
    translator.attend(["21 novembre 2026"])   # what attended to what
    translator.save("runs/dates/translator")
    ```

    Axes: B batch, S source length, T target length.

    Args:
        model: a model of ids with `begin` and `step`, such as `zoo.models.RNNSeq2Seq`.
        source_tokenizer: the tokenizer of the source side.
        target_tokenizer: the tokenizer of the target side.
        max_source_length: source tokens a text may have, its end token included; what is longer is cut off.
        max_target_length: tokens a result may have, its end token included; a longer one is cut off.

    Raises:
        ValueError: a source length below 2 or a target length below 1, or a tokenizer with more ids than the model.
    """

    def __init__(
        self,
        model: keras.Model,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        max_source_length: int = 1000,
        max_target_length: int = 200,
    ):
        super().__init__()
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            size = getattr(model, f"{side}_vocabulary_size", tokenizer.size)
            if tokenizer.size > size:
                raise ValueError(
                    f"`{side}_tokenizer` has {tokenizer.size} ids, more than the model's "
                    f"{side}_vocabulary_size={size}. Build the model with the tokenizer's size."
                )
        # A source of one token would be an end and no text.
        for name, length, least in (
            ("max_source_length", max_source_length, 2),
            ("max_target_length", max_target_length, 1),
        ):
            if length < least:
                raise ValueError(f"`{name}` must be at least {least}. Received: {name}={length}")
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length
        self.max_target_length = max_target_length

    @property
    def has_attention(self) -> bool:
        """Whether the model gives attention weights."""
        return getattr(self.model, "attention", None) is not None

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def _translate(self, texts):
        hypotheses = self._decode(self._source_ids(texts))
        return {"text": self.target_tokenizer.detokenize(hypotheses.ids), "score": hypotheses.scores}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def _attend(self, texts):
        if not self.has_attention:
            raise ValueError("This model has no attention to show: it was built with attention=None.")
        source = self._source_ids(texts)
        hypotheses = self._decode(source, return_weights=True)
        return {
            "source_tokens": self.source_tokenizer.tokens(source),
            "target_tokens": self.target_tokenizer.tokens(hypotheses.ids),
            "weights": hypotheses.weights,
        }

    def _source_ids(self, texts):
        return self.source_tokenizer.tokenize(tf.strings.strip(texts), add_end=True, max_length=self.max_source_length)

    def _decode(self, source, return_weights=False):
        # Of an empty text nothing is left but the end token; nothing is what it is translated to.
        empty = tf.math.count_nonzero(source, axis=1) <= 1
        limits = tf.where(empty, 0, self.max_target_length)
        return greedy(self.model, source, limits, return_weights)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Writes the model and its tokenizers as a folder, which `zoo.load` reads.

        The folder is written aside and then put into place; one that stands there is replaced.

        Returns:
            The folder.

        Raises:
            FileExistsError: `path` exists and is not a translator's folder.
        """
        path = pathlib.Path(path)
        with replaced_folder(path, marker=CONFIG_FILE) as folder:
            self.model.save(folder / MODEL_FILE)
            config = {
                "source_tokenizer": tokenizer_to_config(self.source_tokenizer),
                "target_tokenizer": tokenizer_to_config(self.target_tokenizer),
                "max_source_length": self.max_source_length,
                "max_target_length": self.max_target_length,
            }
            text = json.dumps(config, ensure_ascii=False, indent=1)
            (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Translator:
        """Reads what `save` has written.

        Raises:
            FileNotFoundError: `path` is not such a folder, or a file of it is missing.
        """
        path = pathlib.Path(path)
        for file in (CONFIG_FILE, MODEL_FILE):
            if not (path / file).is_file():
                raise FileNotFoundError(f"{path} is not a saved Translator: it has no {file}.")
        config: dict[str, Any] = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
        return cls(
            keras.models.load_model(path / MODEL_FILE, compile=False),
            tokenizer_from_config(config.pop("source_tokenizer")),
            tokenizer_from_config(config.pop("target_tokenizer")),
            **config,
        )
