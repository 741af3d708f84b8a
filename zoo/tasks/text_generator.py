"""A language model with its tokenizer: a text in, its continuation out."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.decoding import (
    Sampling,
    StopStrings,
    generate,
    logits_after,
    next_tokens,
    read_hidden,
    score_in_windows,
    score_tokens,
)
from zoo.decoding.loop import in_halves
from zoo.decoding.sampling import last_window
from zoo.decoding.token_choice import counted_uniform, draw, random_streams
from zoo.layers.functions import forward_only
from zoo.tasks.exploring import ExploredTask, masked
from zoo.tasks.protocol import begun_stop, check_texts, rows_of_batches
from zoo.tasks.settings import DEFAULTS, LONGEST_STOP, MOST_STOPS, SETTINGS, STOP_SEPARATOR, check_settings
from zoo.tasks.task import check_one_for_each_text, check_tokenizer, strings, zeroed
from zoo.tasks.text_continuation import TextContinuation
from zoo.text import END, PADDING, START, Tokenizer, previous
from zoo.text.strings import valid_utf8
from zoo.text.tokenizer import example_texts, whole_number

_EXAMPLE = {**DEFAULTS, "seed": 0, "max_new_tokens": 16, "temperature": 0.8, "top_p": 0.9}
_SIGNATURE = {
    "text": tf.TensorSpec([None], tf.string, "text"),
    **{name: tf.TensorSpec([None], setting.dtype, name) for name, setting in SETTINGS.items()},
    "stop": tf.TensorSpec([None], tf.string, "stop"),
}

_HALF = 16  # texts; 32 in two halves took 0.6 of the time, and 12% more work (benchmarks/notes.md)
# What is made of each row: its text, its log-probability, and the number of its tokens.
_CONTINUED = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None], tf.float32),
    tf.TensorSpec([None], tf.int32),
)


class TextGenerator(ExploredTask, TextContinuation):
    """A trained language model with its tokenizer.

    ```python
    generator = TextGenerator(model, tokenizer)
    generator(["To be, or"], temperature=0.8, seed=1)         # [" not to be: ..."]
    generator.score(["To be, or not to be"])[0].perplexity
    generator.save("runs/shakespeare/generator")
    ```

    With `add_start`, the start token is put before each text, so the first token has a probability too. It is always
    put before an empty prompt.

    Axes: B batch, P length of the longest prompt, T length, N stop strings.

    Args:
        model: a model of ids with `begin` and `step`, such as `zoo.models.GPT`.
        tokenizer: the tokenizer of its texts.
        context_length: the most tokens that the model reads at once, the start token counted. A longer text is read in
            windows, see `generate` and `score`. It is at most the model's own `context_length`, which is the default.
        add_start: whether the start token is put before each text. If not, only an empty prompt gets one, and a score
            counts from the second token.
        stride: how many tokens apart the windows of `score` begin unless a call says otherwise; half of the context if
            None. An export always uses this stride.

    Raises:
        ValueError: a model of two inputs, a tokenizer with more ids than the model, a context that is below 2, longer
            than the model's or unknown, a stride that is not from 1 to the context, or a Keras backend other than
            TensorFlow.
    """

    CONFIG_FILE = "generator.json"
    EXPLORE = ("next", "score_tokens", "masked_attention")
    TOKENIZERS = ("tokenizer",)
    SETTINGS = ("context_length", "add_start", "stride")

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        context_length: int | None = None,
        add_start: bool = True,
        stride: int | None = None,
    ):
        super().__init__(model)
        if len(getattr(model, "inputs", None) or ()) > 1:
            raise ValueError(
                "`model` must read one text, as `GPT` does; a `Translator` has a model of a source and a target. "
                f"Received: a `{type(model).__name__}`"
            )
        check_tokenizer(tokenizer, model)
        most = getattr(model, "context_length", None)
        context_length = most if context_length is None else context_length
        if context_length is None:
            raise ValueError("`context_length` must be given for a model without the attribute `context_length`.")
        context_length = whole_number("context_length", context_length)
        if context_length < 2 or (most is not None and context_length > most):
            limits = "at least 2" if most is None else f"from 2 to the model's {most}"
            raise ValueError(f"`context_length` must be {limits}. Received: {context_length}")
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.add_start = add_start
        self.stride = self._checked_stride(context_length // 2 if stride is None else stride)

    @property
    def packed_lengths(self) -> tuple[int, ...]:
        """The most tokens that the model reads at once."""
        return (self.context_length,)

    def with_settings(self, **changes: Any) -> TextGenerator:
        """As `SavedTask.with_settings`. A stride of half of the context stays half of it."""
        if self.stride == self.context_length // 2:
            changes = {"stride": None, **changes}
        return super().with_settings(**changes)

    def _checked_stride(self, stride: Any) -> int:
        stride = whole_number("stride", stride)
        if not 1 <= stride <= self.context_length:
            raise ValueError(f"`stride` must be from 1 to the context's {self.context_length}. Received: {stride!r}")
        return stride

    def _check_room(self, texts: list[str]) -> None:
        room = self.context_length - int(self.add_start)
        for rows in rows_of_batches(texts, 256):
            lengths = np.count_nonzero(self.tokenizer.tokenize(strings([texts[row] for row in rows])), axis=1)
            for row, length in zip(rows, lengths, strict=True):
                if length > room:
                    raise ValueError(
                        f"The text at position {row} has {length} tokens. The model's context of {self.context_length} "
                        f"has room for {room}{' beside the start token' if self.add_start else ''}. Shorten the text."
                    )

    @tf.function(input_signature=list(_SIGNATURE.values()), autograph=False)
    def _generate(
        self,
        text: tf.Tensor,
        max_new_tokens: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        top_p: tf.Tensor,
        repetition_penalty: tf.Tensor,
        seed: tf.Tensor,
        stop: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        settings = dict(max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p)
        settings |= dict(repetition_penalty=repetition_penalty, seed=seed)
        prompts = self._prompts(check_one_for_each_text(text, **settings, stop=stop))
        settings["max_new_tokens"] = tf.minimum(max_new_tokens, SETTINGS["max_new_tokens"].most)
        # Strings beyond `MOST_STOPS` are ignored: an error would also fail the other rows that a server has put into
        # the batch.
        stop = tf.strings.split(stop, STOP_SEPARATOR)[:, :MOST_STOPS].to_tensor("")  # (B, N)

        def continued(prompts, stop, *columns):
            return self._continued(prompts, stop, dict(zip(settings, columns, strict=True)))

        # Many rows are written in two halves, which two threads compute side by side.
        columns = prompts, stop, *settings.values()
        text, log_probability, tokens = in_halves(continued, _CONTINUED, columns, _HALF)
        return {"text": text, "log_probability": log_probability, "tokens": tokens}

    # A separate function, so that both halves share one copy.
    @tf.function(autograph=False)
    def _continued(self, prompts: tf.Tensor, stop: tf.Tensor, settings: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        """The text of each row, its log-probability and the number of its tokens, all `(B,)`."""
        watch = StopStrings(self.tokenizer, stop, LONGEST_STOP)
        with forward_only(self.context_length):
            found, state = generate(self.model, prompts, **settings, context_length=self.context_length, watch=watch)
        written = tf.strings.reduce_join(self.tokenizer.written(found.ids), axis=1)  # (B,)
        kept = tf.where(state["kept"] < 0, tf.strings.length(written), state["kept"])
        written = tf.strings.substr(written, tf.zeros_like(kept), kept)
        return (
            valid_utf8(written),
            found.log_probabilities,
            tf.math.count_nonzero(found.ids, axis=1, dtype=tf.int32),
        )

    def _prompts(self, text: tf.Tensor) -> tf.Tensor:
        """Ids `(B, P)`, each row with at least one: an empty text becomes the start token."""
        tokens = self.tokenizer.tokenize(text, add_start=self.add_start)
        if self.add_start:
            return tokens
        is_empty = tf.reduce_all(tokens == PADDING, axis=1, keepdims=True)
        return tf.where(is_empty & (tf.range(tf.shape(tokens)[1]) == 0), START, tokens)

    def stream(self, text: str, **settings: Any) -> Iterator[str]:
        """As `TextContinuation.stream`, a token at a time."""
        texts = check_texts([text])
        columns, stop = check_settings(1, **settings)
        sampling = Sampling(**{name: tf.constant(columns[name], SETTINGS[name].dtype) for name in Sampling._fields})
        return whole_text(self._written(strings(texts), sampling, int(columns["max_new_tokens"][0])), stop)

    def _written(self, text: tf.Tensor, sampling: Sampling, limit: int) -> Iterator[bytes]:
        """What each token writes, one after another. The loop of `zoo.decoding.generate`, with its steps in Python."""
        history, streams, room = self._prompts(text), random_streams(sampling.seed), 0
        for number in range(limit):
            if not room:  # at the beginning, and whenever the window is full
                memory, cache, token, room = self._stream_begin(history)
                room, position = int(room), 0
            token, cache, history, written = self._stream_step(
                token, tf.constant(position), tf.constant(number), sampling, streams, memory, cache, history
            )
            if token == END:
                return
            room, position = room - 1, position + 1
            yield written.numpy()[0]

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)], autograph=False)
    def _stream_begin(self, history: tf.Tensor) -> Any:
        source, first, room = last_window(history, self.context_length)
        with forward_only(self.context_length):
            return *self.model.begin(source), first, room[0]

    # The cache grows by one token in each step. Tracing for each length would take longer than the step.
    @tf.function(autograph=False, reduce_retracing=True)
    def _stream_step(
        self,
        token: tf.Tensor,
        position: tf.Tensor,
        number: tf.Tensor,
        sampling: Sampling,
        streams: tf.Tensor,
        memory: Any,
        cache: Any,
        history: tf.Tensor,
    ) -> Any:
        with forward_only(self.context_length):
            logits, cache, _ = self.model.step(token[:, None], position, memory, cache)
        token = draw(logits[:, 0], counted_uniform(streams, number), sampling, history)
        return token, cache, tf.concat([history, token[:, None]], axis=1), self.tokenizer.written(token)

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _generate_by_default(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._generate(text=text, **_filled(tf.shape(text), {**DEFAULTS, "seed": 0}))

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._score_by_stride(text, tf.constant(self.stride))

    @tf.function(input_signature=[_SIGNATURE["text"], tf.TensorSpec([], tf.int32)], autograph=False)
    def _score_by_stride(self, text: tf.Tensor, stride: Any) -> dict[str, tf.Tensor]:
        tokens = self.tokenizer.tokenize(text)  # (B, T)
        if self.add_start:
            read = previous(tokens)
        else:
            read, tokens = tokens, tf.pad(tokens[:, 1:], [[0, 0], [0, 1]])
        with forward_only(self.context_length):
            return score_in_windows(self.model, read, tokens, self.context_length, stride)

    def _scoring(self, stride: Any) -> Any:
        if stride is None:
            return self._score
        stride = tf.constant(self._checked_stride(stride))
        return lambda text: self._score_by_stride(text, stride)

    # Models with masks take tokens to hide, "2 3", and those with heads, heads to switch off: see `read_heads`.

    def _explore_functions(self) -> dict[str, Any]:
        text = _SIGNATURE["text"]
        return {
            "next": (self._after, [text, _SIGNATURE["temperature"]]),
            "score_tokens": (self._scored_tokens, [text]),
            "masked_attention": (self._masked_maps, [text]),
        }

    def _shown(self, tokens: tf.Tensor, hidden: tf.Tensor | None) -> tf.Tensor | None:
        return None if hidden is None else read_hidden(hidden, tf.shape(tokens)[1])

    def _after(
        self, text: tf.Tensor, temperature: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The most likely tokens after each text: `tokens`, the `text` that each writes, `probabilities` `(B, K)`."""
        history = self._prompts(
            check_one_for_each_text(text, temperature=temperature, hidden=hidden, heads=heads)
        )  # (B, P)
        # The window of `last_window`, with padding behind it: the last tokens, and which of them are shown.
        lengths = tf.math.count_nonzero(history, axis=1, dtype=tf.int32)  # (B,)
        kept = tf.where(lengths > self.context_length, self.context_length // 2, lengths)
        offsets = tf.range(tf.maximum(tf.reduce_max(kept), 1))  # (C,); the maximum of no rows is below 0
        places = tf.minimum((lengths - kept)[:, None] + offsets, tf.shape(history)[1] - 1)  # (B, C)
        read = tf.where(offsets < kept[:, None], tf.gather(history, places, batch_dims=1), PADDING)
        shown = self._shown(history, hidden)
        shown = None if shown is None else tf.gather(shown, places, batch_dims=1)
        with forward_only(self.context_length):
            logits = logits_after(masked(self.model, shown, heads), read, kept)  # (B, V)
        ids, probabilities = next_tokens(logits, temperature)
        written = valid_utf8(self.tokenizer.written(ids))
        return {"tokens": self.tokenizer.tokens(ids), "text": written, "probabilities": probabilities}

    def _scored_tokens(
        self, text: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """`tokens` `(B, T)` as in `_attend`, and their `log_probabilities`; 0 for the first one and padding."""
        tokens = self._ids(check_one_for_each_text(text, hidden=hidden, heads=heads))  # (B, T)
        model = masked(self.model, self._shown(tokens, hidden), heads)
        with forward_only(self.context_length):
            scores = score_tokens(model, tokens, tf.pad(tokens[:, 1:], [[0, 0], [0, 1]]))  # (B, T)
        return {"tokens": self.tokenizer.tokens(tokens), "log_probabilities": tf.pad(scores[:, :-1], [[0, 0], [1, 0]])}

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _attend(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens, maps = self._maps(text)
        weights = tf.reduce_mean(maps[:, -1], axis=1)  # (B, T, T)
        return {"tokens": self.tokenizer.tokens(tokens), "weights": weights}

    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _attend_by_head(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        tokens, maps = self._maps(text)
        return {"tokens": self.tokenizer.tokens(tokens), "weights": maps}

    def _masked_maps(
        self, text: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """As `_attend_by_head`."""
        tokens, maps = self._maps_of(check_one_for_each_text(text, hidden=hidden, heads=heads), hidden, heads)
        return {"tokens": self.tokenizer.tokens(tokens), "weights": maps}

    # A separate function, so that the two signatures of an export share one copy.
    @tf.function(input_signature=[_SIGNATURE["text"]], autograph=False)
    def _maps(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._maps_of(text)

    def _maps_of(
        self, text: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids `(B, T)` of the texts, and the weights `(B, N, H, T, T)`, zero where a token is padding."""
        if not hasattr(self.model, "attention_maps"):
            raise ValueError("To show its attention, a language model needs `attention_maps`; this one has none.")
        tokens = self._ids(text)
        with forward_only(self.context_length):
            maps = masked(self.model, self._shown(tokens, hidden), heads).attention_maps(tokens)
        return tokens, zeroed(maps, tokens)

    def _ids(self, text: tf.Tensor) -> tf.Tensor:
        """As many ids `(B, T)` of each text as the context holds."""
        return self.tokenizer.tokenize(text, add_start=self.add_start, max_length=self.context_length)

    def signatures(self) -> dict:
        """The functions that an export has, by their names: see `zoo.serving.export`."""
        functions = {"serving_default": self._generate_by_default, "generate": self._generate}
        if hasattr(self.model, "without_logits"):
            functions |= {"score": self._score, **{name: self._exploring[name] for name in ("next", "score_tokens")}}
        if hasattr(self.model, "attention_maps"):
            functions |= {"attention": self._attend, "attention_by_head": self._attend_by_head}
            if hasattr(self.model, "head_sizes"):
                functions["masked_attention"] = self._exploring["masked_attention"]
        return functions

    def example_texts(self) -> list[str]:
        """Texts made of the tokenizer's tokens, for warm-up requests."""
        return example_texts(self.tokenizer)

    def example_requests(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """What a client sends to each signature to have these texts continued."""
        more = {"generate": _filled([len(texts)], _EXAMPLE)}
        text = strings(texts)
        names = [name for name in self.signatures() if name not in self.EXPLORE]
        requests = {name: {"text": text, **more.get(name, {})} for name in names}
        if len(texts) > 1:
            # Only one text warms it up: it writes up to 256 tokens, which is slow in a large model. It calls the
            # function of `generate`, which more texts warm up.
            del requests["serving_default"]
        return requests


def _filled(shape: Any, settings: dict[str, Any]) -> dict[str, tf.Tensor]:
    """The same settings for all texts, without stop strings, as the signature `generate` takes them."""
    columns = {name: tf.fill(shape, tf.constant(value, SETTINGS[name].dtype)) for name, value in settings.items()}
    return {**columns, "stop": tf.fill(shape, "")}


def whole_text(chunks: Iterable[bytes], stop: Sequence[bytes] = ()) -> Iterator[str]:
    """Characters as soon as they are whole, up to the first stop string.

    Args:
        chunks: pieces of UTF-8, which may end within a character; broken sequences become U+FFFD.
        stop: strings, none of them empty. The text ends before the first of them.

    Yields:
        Text, never empty. Bytes that may begin a stop string are held back until the next bytes decide.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = b""
    for chunk in chunks:
        held += chunk
        ends = [place for place in map(held.find, stop) if place >= 0]
        if ends:
            held = held[: min(ends)]
            break
        known = len(held) - begun_stop(held, stop)
        text, held = decoder.decode(held[:known]), held[known:]
        if text:
            yield text
    text = decoder.decode(held, final=True)
    if text:
        yield text
