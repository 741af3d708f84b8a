"""A language model with its tokenizer: a text in, how it goes on out."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import zoo.models  # noqa: F401  registers the families, so that Keras finds the class that a saved model names
from zoo.atomic import replaced_folder
from zoo.decoding import Sampling, sample
from zoo.decoding.stop_strings import LONGEST, StopStrings
from zoo.layers.functions.inference import inference
from zoo.text import PADDING, START, Tokenizer
from zoo.text.registry import tokenizer_from_config, tokenizer_to_config
from zoo.text_to_text import batches_of, check_texts

CONFIG_FILE = "generator.json"
MODEL_FILE = "model.keras"
_SEEDS = 2**31 - 1
_CHUNK = 256  # tokens whose logits are held at once
_DTYPES = {
    "max_new_tokens": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
    "repetition_penalty": tf.float32,
    "seed": tf.int64,
}
_SIGNATURE = {
    "text": tf.TensorSpec([None], tf.string, "text"),
    **{name: tf.TensorSpec([None], dtype, name) for name, dtype in _DTYPES.items()},
    "stop": tf.TensorSpec([None, None], tf.string, "stop"),
}


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text, and how the model went on.

    Attributes:
        prompt: the text that was given.
        text: what follows it, without a stop string.
        log_probability: the natural logarithm of the model's probability of the tokens drawn, whatever the settings.
        tokens: how many were drawn, the end token and those of a stop string counted.
    """

    prompt: str
    text: str
    log_probability: float
    tokens: int


@dataclasses.dataclass(frozen=True)
class Score:
    """How likely a text is.

    Attributes:
        text: the text.
        log_probability: the natural logarithm of its probability, of all its tokens from the first on.
        tokens: how many there are.
    """

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The model is as unsure of each token as among so many equally likely ones; 1 for a text without tokens."""
        return math.exp(-self.log_probability / max(self.tokens, 1))


class TextGenerator(tf.Module):
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
            the model's own if None.

    Raises:
        ValueError: a tokenizer with more ids than the model, or a context that is below 2 or longer than the model's.
    """

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, context_length: int | None = None):
        super().__init__()
        if tokenizer.size > model.vocabulary_size:
            raise ValueError(
                f"`tokenizer` has {tokenizer.size} ids, more than the model's vocabulary_size={model.vocabulary_size}. "
                "Build the model with the tokenizer's size."
            )
        context_length = model.context_length if context_length is None else context_length
        if not 2 <= context_length <= model.context_length:
            raise ValueError(
                f"`context_length` must be from 2 to the model's {model.context_length}. Received: {context_length}"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.context_length = context_length

    def __call__(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """How texts go on: `generate`, without what else it tells."""
        return [each.text for each in self.generate(texts, **settings)]

    def generate(
        self,
        texts: Sequence[str],
        max_new_tokens: int | Sequence[int] = 256,
        temperature: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        repetition_penalty: float | Sequence[float] = 1.0,
        seed: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (),
        batch_size: int = 32,
    ) -> list[Generation]:
        """Goes on with each text, token by token, until an end token, a stop string or the end of the context.

        Every number is one for all texts, or a list of one each. A text's continuation depends on that text, its
        settings and its seed alone.

        Args:
            texts: a list of strings, of any length; empty ones too.
            max_new_tokens: the most tokens that are added.
            temperature: what logits are divided by: below 1 likely tokens become likelier; 0 takes the likeliest.
            top_k: draw from the so many likeliest tokens alone; 0 for all.
            top_p: draw from the likeliest tokens alone that together have this share of the probability; 1 for all.
            repetition_penalty: above 1, what has been written before becomes less likely; 1 for none.
            seed: what the choices follow from. With one for all, text number i has `seed + i`; None for any.
            stop: strings, of at most 64 bytes, at which a text ends, before them.
            batch_size: how many go on at once.

        Returns:
            A `Generation` a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a number is out of its range or not one a text, or a prompt
                leaves no room in the context.
        """
        texts = check_texts(texts)
        seeds = random.randrange(_SEEDS) if seed is None else seed
        columns = {
            "max_new_tokens": _column("max_new_tokens", max_new_tokens, texts, least=0, most=2**31 - 1, whole=True),
            "temperature": _column("temperature", temperature, texts, least=0),
            "top_k": _column("top_k", top_k, texts, least=0, most=2**31 - 1, whole=True),
            "top_p": _column("top_p", top_p, texts, least=0, most=1),
            "repetition_penalty": _column("repetition_penalty", repetition_penalty, texts, least=1e-6),
            "seed": _column("seed", seeds, texts, whole=True),
        }
        if np.ndim(seeds) == 0:
            columns["seed"] = columns["seed"] + np.arange(len(texts))
        stop = _checked_stop(stop)
        self._check_lengths(texts, self.context_length - 1, "leaves no room")
        generations: list[Generation | None] = [None] * len(texts)
        for rows, batch in batches_of(texts, batch_size):
            settings = {name: tf.constant(column[rows], _DTYPES[name]) for name, column in columns.items()}
            found = self._generate(text=batch, stop=tf.tile([stop], [len(rows), 1]), **settings)
            columns_found = (found[name].numpy() for name in ("text", "log_probability", "tokens"))
            for row, text, log_probability, tokens in zip(rows, *columns_found, strict=True):
                generations[row] = Generation(texts[row], text.decode(), float(log_probability), int(tokens))
        return generations

    def score(self, texts: Sequence[str], batch_size: int = 32) -> list[Score]:
        """How likely texts are.

        Args:
            texts: a list of strings, of any length.
            batch_size: how many are scored at once.

        Returns:
            A `Score` a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, or one is longer than the context.
        """
        texts = check_texts(texts)
        self._check_lengths(texts, self.context_length, "does not fit")
        scores: list[Score | None] = [None] * len(texts)
        for rows, batch in batches_of(texts, batch_size):
            found = self._score(text=batch)
            for row, log_probability, tokens in zip(
                rows, found["log_probability"].numpy(), found["tokens"].numpy(), strict=True
            ):
                scores[row] = Score(texts[row], float(log_probability), int(tokens))
        return scores

    def _check_lengths(self, texts, longest, what):
        for rows, batch in batches_of(texts, 256):
            lengths = np.count_nonzero(self.tokenizer.tokenize(batch), axis=1)
            for row, length in zip(rows, lengths, strict=True):
                if length > longest:
                    raise ValueError(
                        f"The text at position {row} has {length} tokens, which {what} in the model's context of "
                        f"{self.context_length}, the start token counted. Shorten it."
                    )

    @tf.function(input_signature=list(_SIGNATURE.values()), autograph=False)
    def _generate(self, text, max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop):
        tokens = self.tokenizer.tokenize(text)
        longest = self.context_length - 1
        lengths = tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32)
        # Of a prompt that is too long, which `generate` refuses and a server's client may send, the end counts.
        places = tf.maximum(lengths - longest, 0)[:, None] + tf.range(tf.minimum(tf.shape(tokens)[1], longest))
        tokens, lengths = tf.gather(tokens, places, batch_dims=1), tf.minimum(lengths, longest)
        started = tf.pad(tokens, [[0, 0], [1, 0]], constant_values=START)
        first = tf.gather(started, lengths, batch_dims=1)
        is_first = tf.range(tf.shape(started)[1]) == lengths[:, None]
        source = tf.where(is_first, PADDING, started)[:, :-1]
        limits = tf.minimum(max_new_tokens, self.context_length - lengths)
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        with inference(self.context_length):
            found, state = sample(
                self.model, source, first, limits, sampling, tokens, StopStrings(self.tokenizer, stop)
            )
        written = tf.strings.reduce_join(self.tokenizer.written(found.ids), axis=1)
        kept = tf.where(state["kept"] < 0, tf.strings.length(written), state["kept"])
        written = tf.strings.substr(written, tf.zeros_like(kept), kept)
        return {
            "text": tf.strings.unicode_transcode(written, "UTF-8", "UTF-8", errors="replace"),
            "log_probability": found.scores,
            "tokens": tf.math.count_nonzero(found.ids, axis=1, dtype=tf.int32),
        }

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _score(self, text):
        tokens = self.tokenizer.tokenize(text, max_length=self.context_length)
        previous = tf.pad(tokens[:, :-1], [[0, 0], [1, 0]], constant_values=START)
        with inference(self.context_length):
            hidden = self.model.without_logits()(previous)
        is_token = tokens != PADDING
        scores = tf.zeros_like(tokens, tf.float32)
        places = tf.cast(tf.where(is_token), tf.int32)
        scores = tf.tensor_scatter_nd_update(
            scores, places, self._log_probabilities(tf.gather_nd(hidden, places), tf.gather_nd(tokens, places))
        )
        return {
            "log_probability": tf.reduce_sum(scores, axis=1),
            "tokens": tf.math.count_nonzero(is_token, axis=1, dtype=tf.int32),
        }

    def _log_probabilities(self, hidden, tokens):
        """Of tokens `(M,)`, from the rows `(M, D)` that their logits are made of: never all logits at once."""
        weights, bias = self.model.output_weights()
        number = tf.shape(tokens)[0]
        chunks = -(-number // _CHUNK)
        extra = chunks * _CHUNK - number
        hidden = tf.reshape(tf.pad(hidden, [[0, extra], [0, 0]]), [chunks, _CHUNK, hidden.shape[-1]])
        tokens = tf.reshape(tf.pad(tokens, [[0, extra]]), [chunks, _CHUNK])

        def scores(chunk):
            rows, ids = chunk
            logits = tf.cast(tf.matmul(rows, tf.cast(weights, rows.dtype), transpose_b=True), tf.float32)
            logits = logits if bias is None else logits + tf.cast(bias, tf.float32)
            return tf.gather(logits, ids, batch_dims=1) - tf.reduce_logsumexp(logits, axis=-1)

        found = tf.map_fn(scores, (hidden, tokens), fn_output_signature=tf.float32, parallel_iterations=1)
        return tf.reshape(found, [-1])[:number]

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
            config = {"tokenizer": tokenizer_to_config(self.tokenizer), "context_length": self.context_length}
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
        return cls(model, tokenizer_from_config(config["tokenizer"]), config["context_length"])


def _column(name, value, texts, least=-math.inf, most=math.inf, whole=False):
    """One number a text, from one for all or from a list."""
    column = np.asarray(value)
    if column.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"`{name}` must be {'a whole number' if whole else 'a number'}. Received: {name}={value!r}")
    if column.ndim > 1 or (column.ndim and len(column) != len(texts)):
        raise ValueError(f"`{name}` must be one number, or one for each of the {len(texts)} texts. Received: {value!r}")
    if not ((column >= least) & (column <= most)).all():
        limits = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"`{name}` must be {limits}. Received: {name}={value!r}")
    return np.broadcast_to(column, len(texts))


def _checked_stop(stop):
    """The stop strings as bytes; one empty one if there is none."""
    stop = [stop] if isinstance(stop, str) else list(stop)
    for each in stop:
        if not isinstance(each, str) or not 1 <= len(each.encode("utf-8", "replace")) <= LONGEST:
            raise ValueError(f"`stop` must hold strings of 1 to {LONGEST} bytes. Received: {each!r}")
    return [each.encode("utf-8", "replace") for each in stop] or [b""]
