"""A language model with its tokenizer: a text in, how it goes on out."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import zoo.models  # noqa: F401  registers the families, so that Keras finds the class that a saved model names
from zoo.atomic import replaced_folder
from zoo.decoding import Sampling, StopStrings, sample, score
from zoo.decoding.sampling import draw
from zoo.layers.functions import forward_only
from zoo.tasks.arrays import strings, zeroed
from zoo.tasks.generation_settings import DEFAULTS, LONGEST_STOP, SETTINGS, STOP_SEPARATOR, check_settings
from zoo.tasks.text_continuation import TextContinuation
from zoo.tasks.text_lists import check_texts, rows_of_batches
from zoo.tasks.text_stream import whole_text
from zoo.text import END, PADDING, START, Tokenizer, previous
from zoo.text.tokenizer import example_texts, tokenizer_from_config, tokenizer_to_config

CONFIG_FILE = "generator.json"
MODEL_FILE = "model.keras"
_EXAMPLE = {**DEFAULTS, "seed": 0, "max_new_tokens": 16, "temperature": 0.8, "top_p": 0.9}
_SIGNATURE = {
    "text": tf.TensorSpec([None], tf.string, "text"),
    **{name: tf.TensorSpec([None], setting.dtype, name) for name, setting in SETTINGS.items()},
    "stop": tf.TensorSpec([None], tf.string, "stop"),
}


class TextGenerator(TextContinuation, tf.Module):
    """A trained language model that speaks text.

    ```python
    generator = TextGenerator(model, tokenizer)
    generator(["To be, or"], temperature=0.8, seed=1)         # [" not to be: ..."]
    generator.score(["To be, or not to be"])[0].perplexity
    generator.save("runs/shakespeare/generator")
    ```

    A text begins after the start token, so that of an empty prompt there is something to go on from.

    Axes: B batch, T length, N stop strings.

    Args:
        model: a model of ids with `begin` and `step`, such as `zoo.models.GPT`.
        tokenizer: the tokenizer of its texts.
        context_length: the most tokens that a prompt and what follows it may have together, the start token counted;
            the model's own, which none may exceed, if None.
        add_start: whether a text begins after the start token, whose first token has then a probability too. Without
            one only an empty prompt does, and a score begins with the second token.

    Raises:
        ValueError: a tokenizer with more ids than the model, or a context that is below 2, longer than the model's, or
            not known.
    """

    def __init__(
        self, model: keras.Model, tokenizer: Tokenizer, context_length: int | None = None, add_start: bool = True
    ):
        super().__init__()
        size = getattr(model, "vocabulary_size", tokenizer.size)
        if tokenizer.size > size:
            raise ValueError(
                f"`tokenizer` has {tokenizer.size} ids, more than the model's vocabulary_size={size}. "
                "Build the model with the tokenizer's size."
            )
        longest = getattr(model, "context_length", None)
        context_length = longest if context_length is None else context_length
        if context_length is None:
            raise ValueError("`context_length` must be given for a model that has none of its own.")
        if context_length < 2 or (longest is not None and context_length > longest):
            limits = "at least 2" if longest is None else f"from 2 to the model's {longest}"
            raise ValueError(f"`context_length` must be {limits}. Received: {context_length}")
        self.model = model
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.add_start = add_start

    @property
    def _has_start(self):
        return self.add_start

    def _check_room(self, texts, new):
        longest, what = self.context_length - new, "leaves no room" if new else "does not fit"
        for rows in rows_of_batches(texts, 256):
            lengths = np.count_nonzero(self.tokenizer.tokenize(strings([texts[row] for row in rows])), axis=1)
            for row, length in zip(rows, lengths, strict=True):
                if length > longest:
                    raise ValueError(
                        f"The text at position {row} has {length} tokens, which {what} in the model's context of "
                        f"{self.context_length}, the start token counted. Shorten it."
                    )

    @tf.function(input_signature=list(_SIGNATURE.values()), autograph=False)
    def _generate(self, text, max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop):
        tokens, source, first = self._prompts(text)
        lengths = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
        limits = tf.minimum(max_new_tokens, self.context_length - lengths)
        stop = tf.strings.split(stop, STOP_SEPARATOR).to_tensor("")
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        with forward_only(self.context_length):
            found, state = sample(
                self.model, source, first, limits, sampling, tokens, StopStrings(self.tokenizer, stop, LONGEST_STOP)
            )
        written = tf.strings.reduce_join(self.tokenizer.written(found.ids), axis=1)
        kept = tf.where(state["kept"] < 0, tf.strings.length(written), state["kept"])
        written = tf.strings.substr(written, tf.zeros_like(kept), kept)
        return {
            "text": tf.strings.unicode_transcode(written, "UTF-8", "UTF-8", errors="replace"),
            "log_probability": found.log_probabilities,
            "tokens": tf.math.count_nonzero(found.ids, axis=1, dtype=tf.int32),
        }

    def _prompts(self, text):
        """Prompts as ids `(B, P)`; and after a start token all but the last `(B, P)`, and the last `(B,)`."""
        tokens = self.tokenizer.tokenize(text)
        longest = self.context_length - 1
        lengths = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
        # Of a prompt that is too long, which `generate` refuses and a server's client may send, the end counts.
        places = tf.maximum(lengths - longest, 0)[:, None] + tf.range(tf.minimum(tf.shape(tokens)[1], longest))
        tokens, lengths = tf.gather(tokens, places, batch_dims=1), tf.minimum(lengths, longest)
        started = tf.pad(tokens, [[0, 0], [1, 0]], constant_values=START)
        is_last = tf.range(tf.shape(started)[1]) == lengths[:, None]
        if not self.add_start:
            is_first = tf.range(tf.shape(started)[1]) == 0
            started = tf.where(is_first & (lengths > 0)[:, None], PADDING, started)
        return tokens, tf.where(is_last, PADDING, started)[:, :-1], tf.gather(started, lengths, batch_dims=1)

    def stream(self, text: str, **settings: Any) -> Iterator[str]:
        """As `TextContinuation.stream`, a token at a time."""
        texts = check_texts([text])
        columns, stop = check_settings(1, **settings)
        self._check_room(texts, 1)
        room = self.context_length - int(np.count_nonzero(self.tokenizer.tokenize(strings(texts))))
        limit = min(int(columns["max_new_tokens"][0]), room)
        sampling = Sampling(**{name: tf.constant(columns[name], SETTINGS[name].dtype) for name in Sampling._fields})
        return whole_text(self._tokens(strings(texts), sampling, limit), stop)

    def _tokens(self, text, sampling, limit):
        """What each token writes, one after another."""
        memory, cache, history, token = self._stream_begin(text)
        for position in range(limit):
            token, cache, history, written = self._stream_step(
                token, tf.constant(position), sampling, memory, cache, history
            )
            if token == END:
                return
            yield written.numpy()[0]

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _stream_begin(self, text):
        tokens, source, first = self._prompts(text)
        with forward_only(self.context_length):
            return *self.model.begin(source), tokens, first

    # The cache grows by a token a step; a trace for every length would take longer than the step.
    @tf.function(autograph=False, reduce_retracing=True)
    def _stream_step(self, token, position, sampling, memory, cache, history):
        with forward_only(self.context_length):
            logits, cache, _ = self.model.step(token[:, None], position, memory, cache)
        token = draw(logits[:, 0], position, sampling, history)
        return token, cache, tf.concat([history, token[:, None]], axis=1), self.tokenizer.written(token)

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _generate_by_default(self, text):
        return self._generate(text=text, **_filled(tf.shape(text), {**DEFAULTS, "seed": 0}))

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _score(self, text):
        tokens = self.tokenizer.tokenize(text, max_length=self.context_length)
        if self.add_start:
            read = previous(tokens)
        else:
            read, tokens = tokens, tf.pad(tokens[:, 1:], [[0, 0], [0, 1]])
        with forward_only(self.context_length):
            return score(self.model, read, tokens)

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _attend(self, text):
        tokens, maps = self._maps(text)
        return {"tokens": self.tokenizer.tokens(tokens), "weights": tf.reduce_mean(maps[:, -1], axis=1)}

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _attend_by_head(self, text):
        tokens, maps = self._maps(text)
        return {"tokens": self.tokenizer.tokens(tokens), "weights": maps}

    # A function of its own, which both of these share.
    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _maps(self, text):
        """Ids `(B, T)` of the texts, and the weights `(B, N, H, T, T)`, zero where a token is padding."""
        if not hasattr(self.model, "attention_maps"):
            raise ValueError("The attention of a language model needs one with `attention_maps`; this one has none.")
        tokens = self.tokenizer.tokenize(text, add_start=self.add_start, max_length=self.context_length)
        with forward_only(self.context_length):
            maps = self.model.attention_maps(tokens)
        return tokens, zeroed(maps, tokens)

    def signatures(self) -> dict:
        """The functions that an export has, by their names: see `zoo.serving.export`."""
        functions = {"serving_default": self._generate_by_default, "generate": self._generate}
        if hasattr(self.model, "without_logits"):
            functions["score"] = self._score
        if hasattr(self.model, "attention_maps"):
            functions |= {"attention": self._attend, "attention_by_head": self._attend_by_head}
        return functions

    def example_texts(self) -> list[str]:
        """Texts of the tokenizer's tokens, for a server to try the model with."""
        return example_texts(self.tokenizer)

    def example_requests(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """What a client sends to each signature to have these texts gone on with."""
        more = {"generate": _filled([len(texts)], _EXAMPLE)}
        text = tf.constant(texts, tf.string, [len(texts)])
        requests = {name: {"text": text, **more.get(name, {})} for name in self.signatures()}
        if len(texts) > 1:
            # It has no limit but its default, which takes a large model long; the function is that of `generate`.
            del requests["serving_default"]
        return requests

    @property
    def tokenizers(self) -> list[Tokenizer]:
        """What an export must hold beside the model's weights."""
        return [self.tokenizer]

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Writes the model and its tokenizer as a folder, which `zoo.load` reads.

        The folder is written aside and then put into place; one that stands there is replaced.

        Returns:
            The folder.

        Raises:
            FileExistsError: `path` exists and is not a generator's folder.
        """
        path = pathlib.Path(path)
        with replaced_folder(path, marker=CONFIG_FILE) as folder:
            self.model.save(folder / MODEL_FILE)
            config = {
                "tokenizer": tokenizer_to_config(self.tokenizer),
                "context_length": self.context_length,
                "add_start": self.add_start,
            }
            text = json.dumps(config, ensure_ascii=False, indent=1)
            (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | pathlib.Path) -> TextGenerator:
        """Reads what `save` has written.

        Raises:
            FileNotFoundError: `path` is not such a folder, or a file of it is missing.
        """
        path = pathlib.Path(path)
        for file in (CONFIG_FILE, MODEL_FILE):
            if not (path / file).is_file():
                raise FileNotFoundError(f"{path} is not a saved TextGenerator: it has no {file}.")
        config: dict[str, Any] = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
        model = keras.models.load_model(path / MODEL_FILE, compile=False)
        return cls(model, tokenizer_from_config(config.pop("tokenizer")), **config)


def _filled(shape, settings):
    """The same settings for every text, and no stop strings, as the signature `generate` takes them."""
    columns = {name: tf.fill(shape, tf.constant(value, SETTINGS[name].dtype)) for name, value in settings.items()}
    return {**columns, "stop": tf.fill(shape, "")}
