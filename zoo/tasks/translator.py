"""A sequence-to-sequence model with its tokenizers: strings in, strings out."""

from __future__ import annotations

import numbers
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import keras
import tensorflow as tf

from zoo.decoding import (
    Shortlist,
    WithPrefix,
    WithShortlist,
    beam_search,
    greedy,
    logits_after,
    next_tokens,
    read_hidden,
    read_prefix,
    score,
    score_tokens,
)
from zoo.decoding.loop import in_halves
from zoo.decoding.search import check_beam, check_early_stopping, check_length_normalization
from zoo.layers.functions import forward_only
from zoo.tasks.exploring import ExploredTask, masked
from zoo.tasks.settings import TRANSLATION_SETTINGS
from zoo.tasks.task import check_one_for_each_text, check_tokenizer, strings, zeroed
from zoo.tasks.text_to_text import TextToText
from zoo.text import END, Tokenizer, previous
from zoo.text.strings import strip
from zoo.text.tokenizer import example_texts, whole_number

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_PREFIX = tf.TensorSpec([None], tf.string, name="prefix")
_HALF = 40  # hypotheses; two halves with fewer take longer together than one whole
_LARGEST_PENALTY = 10.0  # more than is useful, and far from an overflow
_ROW_SETTINGS = {
    name: tf.TensorSpec([None], setting.dtype, name=name) for name, setting in TRANSLATION_SETTINGS.items()
}


class Translator(ExploredTask, TextToText):
    """A trained sequence-to-sequence model with its tokenizers.

    ```python
    translator = Translator(model, source_tokenizer, target_tokenizer)
    translator(["21 novembre 2026"])          # ["2026-11-21"]
    translator.translate(["21 novembre 2026"], beam_size=5, n_best=3)[0].alternatives
    translator.attend(["21 novembre 2026"])   # what attended to what
    translator.save("runs/dates/translator")
    ```

    Axes: B batch, S source length, T target length.

    Args:
        model: a model of ids with `begin` and `step`, such as those of `zoo.models`.
        source_tokenizer: the tokenizer of the source side.
        target_tokenizer: the tokenizer of the target side.
        max_source_length: the most tokens of a source text, its end token included; a longer text is cut off. None for
            1,000, or for the number of the model's learned positions if that is less.
        max_target_length: the most tokens of a translation, its end token included; a longer one is cut off. None for
            200, or for the number of learned positions if that is less.
        beam_size: the number of hypotheses, unless a call sets another; 1 is greedy. An export always uses
            this beam size.
        length_penalty: how strongly long translations are favoured, unless a call sets another value, see
            `zoo.decoding.beam_search`.
        length_normalization: how the length enters a score, "wu" or "mean", see `zoo.decoding.beam_search`.
        early_stopping: when a search ends: True, False or "never", see `zoo.decoding.beam_search`.
        shortlist: chooses the target tokens that a translation may use; None for all. A score is then the
            log-probability among these tokens. `score`, `next_tokens` and `complete` consider all tokens. `save` does
            not write it.

    Raises:
        ValueError: a model that reads one text, a length or beam size that is no integer, a source length below 2, a
            target length or beam size below 1, a length above the number of learned positions, a negative length
            penalty, an unknown normalisation or `early_stopping`, a tokenizer with more ids than the model, a shortlist
            of other vocabularies, or a Keras that does not run on TensorFlow.
    """

    CONFIG_FILE = "translator.json"
    EXPLORE = ("next", "complete", "complete_attention")
    TOKENIZERS = ("source_tokenizer", "target_tokenizer")
    SETTINGS = (
        "max_source_length",
        "max_target_length",
        "beam_size",
        "length_penalty",
        "length_normalization",
        "early_stopping",
    )
    FORMER_DEFAULTS: ClassVar[dict[str, Any]] = {"early_stopping": True}

    def __init__(
        self,
        model: keras.Model,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        max_source_length: int | None = None,
        max_target_length: int | None = None,
        beam_size: int = 1,
        length_penalty: float = 0.6,
        length_normalization: str = "wu",
        early_stopping: bool | str = False,
        shortlist: Shortlist | None = None,
    ):
        super().__init__(model)
        if len(getattr(model, "inputs", None) or ()) == 1:  # a packed model has no `inputs`
            raise ValueError(
                "`model` must read a source and a target, as `RNNSeq2Seq` and `Transformer` do; a `TextGenerator` has "
                f"a language model. Received: a `{type(model).__name__}`, which reads one text"
            )
        check_tokenizer(source_tokenizer, model, "source_")
        check_tokenizer(target_tokenizer, model, "target_")
        positions = getattr(model, "most_positions", None)
        # A source of one token would be an end token without a text.
        max_source_length = _length("max_source_length", max_source_length, 1000, 2, positions)
        max_target_length = _length("max_target_length", max_target_length, 200, 1, positions)
        beam_size, _ = check_beam(beam_size)
        _check_penalty(length_penalty)
        check_length_normalization(length_normalization)
        check_early_stopping(early_stopping)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = max_source_length
        self.max_target_length = max_target_length
        self.beam_size = beam_size
        self.length_penalty = float(length_penalty)
        self.length_normalization = length_normalization
        self.early_stopping = early_stopping
        if shortlist is not None:
            self._check_shortlist(shortlist)
            if hasattr(model, "prepare_output_columns"):
                model.prepare_output_columns()
        self.shortlist = shortlist

    def with_model(self, model: Any) -> Translator:
        """As `SavedTask.with_model`, with the shortlist."""
        return super().with_model(model).with_shortlist(self.shortlist)

    def with_settings(self, **changes: Any) -> Translator:
        """As `SavedTask.with_settings`, with the shortlist."""
        return super().with_settings(**{"shortlist": self.shortlist, **changes})

    def with_shortlist(self, shortlist: Shortlist | None) -> Translator:
        """The same model, tokenizers and settings with this shortlist; with None for none."""
        return self.with_settings(shortlist=shortlist)

    @property
    def packed_lengths(self) -> tuple[int, ...]:
        """The most tokens of a translation, and of a source text."""
        return self.max_target_length, self.max_source_length

    @property
    def has_attention(self) -> bool:
        """Whether the model gives attention weights."""
        return getattr(self.model, "has_attention", False)

    @property
    def has_heads(self) -> bool:
        """Whether the model gives the weights of several layers and heads."""
        return hasattr(self.model, "attention_maps")

    @tf.function(input_signature=[_TEXT], autograph=False)
    def _translate(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`text` `(B,)` and `score` `(B,)`, by the translator's own beam."""
        source = self._source_ids(text)
        ids, scores = self._decode_in_halves(source, *self._own_limits_and_penalties(source), self.beam_size, n_best=1)
        return {"text": self.target_tokenizer.detokenize(ids[:, 0]), "score": scores[:, 0]}

    @tf.function(input_signature=[_TEXT, *_ROW_SETTINGS.values()], autograph=False)
    def _generate(self, text: tf.Tensor, max_target_length: tf.Tensor, length_penalty: Any) -> dict[str, tf.Tensor]:
        """As `_translate`, with settings of each row `(B,)`."""
        text = check_one_for_each_text(text, max_target_length=max_target_length, length_penalty=length_penalty)
        with tf.control_dependencies([text]):  # not before the sizes are known to fit
            limits = tf.clip_by_value(max_target_length, 0, self.max_target_length)
            # NaN and values out of range are replaced by the translator's own penalty.
            fits = (length_penalty >= 0) & (length_penalty <= _LARGEST_PENALTY)
            length_penalty = tf.where(fits, length_penalty, self.length_penalty)
        ids, scores = self._decode_in_halves(self._source_ids(text), limits, length_penalty, self.beam_size, n_best=1)
        return {"text": self.target_tokenizer.detokenize(ids[:, 0]), "score": scores[:, 0]}

    @tf.function(input_signature=[_TEXT, tf.TensorSpec([None], tf.string, name="target")], autograph=False)
    def _score(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """The log-probability `(B,)` of each target as the translation of the text, and how many tokens it has."""
        # A longer target is cut off as a search cuts it off, without an end token.
        tokens = self.target_tokenizer.tokenize(target, add_end=True, max_length=self.max_target_length + 1)  # (B, T)
        tokens = tokens[:, : self.max_target_length]
        with self._forward_only():
            return score(self.model, {"source": self._source_ids(text), "target": previous(tokens)}, tokens)

    # Translations that begin with given tokens, which are written as ids: "17 4". Tokens as texts would be ambiguous.
    # Models with masks take tokens to hide, "2 3", and those with heads, heads to switch off: see `read_heads`.

    def _explore_functions(self) -> dict[str, Any]:
        functions = self._after, self._completed, self._completed_attention
        return {name: (function, [_TEXT, _PREFIX]) for name, function in zip(self.EXPLORE, functions, strict=True)}

    def _masked(self, source: tf.Tensor, hidden: tf.Tensor | None, heads: tf.Tensor | None) -> Any:
        """The model without the tokens and heads that strings `(B,)` name; the model itself if there are none."""
        shown = None if hidden is None else read_hidden(hidden, tf.shape(source)[1])  # (B, S)
        return masked(self.model, shown, heads)

    def _after(
        self, text: tf.Tensor, prefix: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The most likely tokens after the prefix: `ids`, `tokens` and `probabilities` `(B, K)`."""
        source = self._source_ids(check_one_for_each_text(text, prefix=prefix, hidden=hidden, heads=heads))
        model = self._masked(source, hidden, heads)
        given = read_prefix(prefix, self.target_tokenizer.size)[:, : self.max_target_length - 1]  # (B, P)
        read = previous(tf.pad(given, [[0, 0], [0, 1]], constant_values=END))  # (B, P + 1)
        lengths = 1 + tf.math.count_nonzero(given, axis=1, dtype=tf.int32)  # (B,)
        with self._forward_only():
            logits = logits_after(model, {"source": source, "target": read}, lengths)  # (B, V)
        ids, probabilities = next_tokens(logits)
        return {"ids": ids, "tokens": self.target_tokenizer.tokens(ids), "probabilities": probabilities}

    def _completed(
        self, text: tf.Tensor, prefix: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The translation `text` `(B,)` that begins so; `ids`, `tokens` and `log_probabilities` `(B, T)`.

        What a beam of size N has found is in `best` and `best_scores` `(B, N)`, best first. Where it has found fewer,
        texts are empty and scores the lowest number, since JSON has no infinity.
        """
        source, hypotheses, best_scores = self._found(text, prefix, hidden, heads)
        ids = self._best(hypotheses)
        shape = tf.shape(hypotheses)
        texts = self.target_tokenizer.detokenize(tf.reshape(hypotheses, [shape[0] * shape[1], shape[2]]))  # (B N,)
        best = {"best": tf.reshape(texts, shape[:2]), "best_scores": tf.maximum(best_scores, tf.float32.min)}
        with self._forward_only():
            model = self._masked(source, hidden, heads)
            scores = score_tokens(model, {"source": source, "target": previous(ids)}, ids)  # (B, T)
        text = self.target_tokenizer.detokenize(ids)
        tokens = self.target_tokenizer.tokens(ids)
        return {"text": text, "ids": ids, "tokens": tokens, "log_probabilities": scores, **best}

    def _completed_attention(
        self, text: tf.Tensor, prefix: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """As `_attend_by_head`, or as `_attend` without heads, of the translation that begins with the prefix."""
        if self.has_heads:
            source, hypotheses, _ = self._found(text, prefix, hidden, heads)
            ids = self._best(hypotheses)
            return {**self._tokens(source, ids), **self._maps_of(source, ids, hidden, heads)}
        source, (ids, _, weights) = self._with_prefix(text, prefix, hidden, heads, 1, return_weights=True)
        return {**self._tokens(source, ids[:, 0]), "weights": weights[:, 0]}

    # A separate function, so that two signatures of an export share one copy of the loop.
    @tf.function(autograph=False)
    def _found(
        self, text: tf.Tensor, prefix: tf.Tensor, hidden: tf.Tensor | None, heads: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Ids of the source `(B, S)` and of the translations `(B, N, T)` of the beam, and their scores `(B, N)`."""
        source, (ids, scores) = self._with_prefix(text, prefix, hidden, heads, self.beam_size)
        return source, ids, scores

    def _best(self, hypotheses: tf.Tensor) -> tf.Tensor:
        """The ids `(B, T)` of the first of each row, without padding that only others need."""
        ids = hypotheses[:, 0]
        return ids[:, : tf.reduce_max(tf.math.count_nonzero(ids, axis=1, dtype=tf.int32))]

    def _with_prefix(
        self,
        text: tf.Tensor,
        prefix: tf.Tensor,
        hidden: tf.Tensor | None,
        heads: tf.Tensor | None,
        n_best: int,
        return_weights: bool = False,
    ) -> tuple[tf.Tensor, Any]:
        source = self._source_ids(check_one_for_each_text(text, prefix=prefix, hidden=hidden, heads=heads))
        model = self._masked(source, hidden, heads)
        model = WithPrefix(model, read_prefix(prefix, self.target_tokenizer.size))
        options = self.beam_size, n_best, return_weights
        return source, self._decode(source, *self._own_limits_and_penalties(source), *options, model=model)

    @tf.function(input_signature=[_TEXT], autograph=False)
    def _attend(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        self._check_attention()
        source = self._source_ids(text)
        if self.has_heads:
            ids, maps = self._maps(source)
            weights = tf.reduce_mean(maps["weights"][:, -1], axis=1)  # (B, T, S)
        else:
            ids, _, weights = self._decode(
                source, *self._own_limits_and_penalties(source), self.beam_size, n_best=1, return_weights=True
            )
            ids, weights = ids[:, 0], weights[:, 0]
        return {**self._tokens(source, ids), "weights": weights}

    @tf.function(input_signature=[_TEXT], autograph=False)
    def _attend_by_head(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        self._check_attention()
        if not self.has_heads:
            raise ValueError("This model has one attention, without layers and heads to choose from.")
        source = self._source_ids(text)
        ids, maps = self._maps(source)
        return {**self._tokens(source, ids), **maps}

    def _forward_only(self) -> AbstractContextManager[None]:
        return forward_only(max(self.max_source_length, self.max_target_length))

    def _check_shortlist(self, shortlist: Any) -> None:
        if not isinstance(shortlist, Shortlist):
            raise ValueError(f"`shortlist` must be a `zoo.decoding.Shortlist`. Received: {shortlist!r}")
        sizes = [shortlist.translations.shape[0], shortlist.ranks.shape[0]]
        if sizes != [tokenizer.size for tokenizer in self.tokenizers]:
            raise ValueError(
                f"`shortlist` is of {sizes[0]} source and {sizes[1]} target tokens; the tokenizers have "
                f"{self.source_tokenizer.size} and {self.target_tokenizer.size}."
            )

    def _check_attention(self) -> None:
        if not self.has_attention:
            raise ValueError("This model has no attention to show: it was built with attention=None.")

    def _tokens(self, source: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "source_tokens": self.source_tokenizer.tokens(source),
            "target_tokens": self.target_tokenizer.tokens(ids),
        }

    def _search(self, beam_size: int | None, length_penalty: Any, n_best: int) -> Any:
        beam_size = self.beam_size if beam_size is None else beam_size
        length_penalty = self.length_penalty if length_penalty is None else length_penalty
        beam_size, n_best = check_beam(beam_size, n_best)
        _check_penalty(length_penalty)
        penalty = tf.constant(length_penalty, tf.float32)

        def search(text: tf.Tensor) -> dict[str, tf.Tensor]:
            # Traced once for any number of texts, and again only for another beam_size or n_best.
            specs = _TEXT, tf.TensorSpec([], tf.float32)
            return self._n_best.get_concrete_function(*specs, beam_size=beam_size, n_best=n_best)(text, penalty)

        return search

    @tf.function(autograph=False)
    def _n_best(self, text: tf.Tensor, length_penalty: Any, beam_size: int, n_best: int) -> dict[str, tf.Tensor]:
        source = self._source_ids(text)
        ids, scores = self._decode_in_halves(
            source, *self._own_limits_and_penalties(source, length_penalty), beam_size, n_best
        )
        shape = tf.shape(ids)
        found = self.target_tokenizer.detokenize(tf.reshape(ids, [shape[0] * n_best, shape[2]]))  # (B N,)
        return {"text": tf.reshape(found, [-1, n_best]), "score": scores}

    # `_source_ids`, the loop and the maps are separate functions, so that the signatures of an export share one copy of
    # each.
    @tf.function(input_signature=[_TEXT], autograph=False)
    def _source_ids(self, text: tf.Tensor) -> tf.Tensor:
        return self.source_tokenizer.tokenize(strip(text), add_end=True, max_length=self.max_source_length)

    @tf.function(input_signature=[_TEXT], autograph=False)
    def fills_source(self, text: tf.Tensor) -> tf.Tensor:
        """As in `TextToText`. An export holds this function, which shares its tokenizer with the signatures.

        To tell a text that just fits from one that is cut off would take a second copy, of up to 1 MB.
        """
        return tf.math.count_nonzero(self._source_ids(text), axis=1) >= self.max_source_length

    def _own_limits_and_penalties(self, source: tf.Tensor, length_penalty: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        """The translator's own limit and penalty for each row, unless another penalty is given."""
        length_penalty = self.length_penalty if length_penalty is None else length_penalty
        rows = tf.shape(source)[:1]
        return tf.fill(rows, self.max_target_length), tf.fill(rows, length_penalty)

    @tf.function(autograph=False)
    def _decode_in_halves(
        self, source: tf.Tensor, limits: tf.Tensor, length_penalties: tf.Tensor, beam_size: int, n_best: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids `(B, N, T)` and log-probabilities `(B, N)`; many texts are decoded in two halves, see `in_halves`."""
        results = tf.TensorSpec([None, n_best, None], tf.int32), tf.TensorSpec([None, n_best], tf.float32)
        rows = source, limits, length_penalties
        return in_halves(lambda *half: self._decode(*half, beam_size, n_best), results, rows, -(-_HALF // beam_size))

    @tf.function(autograph=False)
    def _decode(
        self,
        source: tf.Tensor,
        limits: tf.Tensor,
        length_penalties: tf.Tensor,
        beam_size: int,
        n_best: int,
        return_weights: bool = False,
        model: Any = None,
    ) -> Any:
        """Ids `(B, N, T)` and log-probabilities `(B, N)`, by one loop; if asked for, the weights `(B, N, T, S)` too.

        The model is the translator's own, with its shortlist, unless another is given.
        """
        if model is None:
            model = self.model if self.shortlist is None else WithShortlist(self.model, self.shortlist(source))
        # An empty text consists of its end token. Its translation is empty.
        empty = tf.math.count_nonzero(source, axis=1) <= 1
        limits = tf.where(empty, 0, limits)
        with self._forward_only():
            if beam_size == 1:
                found = greedy(model, source, limits, return_weights)
                ids, scores = found.ids[:, None], found.log_probabilities[:, None]
                weights = None if found.weights is None else found.weights[:, None]
            else:
                options = beam_size, length_penalties, n_best, return_weights
                ids, _, scores, weights = beam_search(
                    model, source, limits, *options, self.length_normalization, self.early_stopping
                )
                nothing = tf.constant([[0.0] + [float("-inf")] * (n_best - 1)])
                scores = tf.where((limits <= 0)[:, None], nothing, scores)
        ids = model.ids_of(ids) if isinstance(model, WithShortlist) else ids
        return (ids, scores, weights) if return_weights else (ids, scores)

    @tf.function(autograph=False)
    def _maps(self, source: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Ids `(B, T)`, and `_maps_of` them."""
        ids, _ = self._decode(source, *self._own_limits_and_penalties(source), self.beam_size, n_best=1)
        return ids[:, 0], self._maps_of(source, ids[:, 0])

    @tf.function(autograph=False)
    def _maps_of(
        self, source: tf.Tensor, ids: tf.Tensor, hidden: tf.Tensor | None = None, heads: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The weights of the translation with ids `(B, T)`, zero where a token is padding.

        `weights` `(B, M, H, T, S)` of the attention to the source, `source_weights` `(B, N, H, S, S)` of the encoder's
        self-attention and, if the model tells them, `target_weights` `(B, M, H, T, T)` of the decoder's.
        """
        with self._forward_only():
            maps = self._masked(source, hidden, heads).attention_maps(source, previous(ids))
        rows = {"weights": ids, "source_weights": source, "target_weights": ids}
        return {name: zeroed(each, of) for (name, of), each in zip(rows.items(), maps, strict=False)}

    def signatures(self) -> dict:
        """The functions that an export has, by their names: see `zoo.serving.export`."""
        functions = {"serving_default": self._translate, "generate": self._generate}
        if hasattr(self.model, "without_logits"):
            functions |= {"score": self._score, **{name: self._exploring[name] for name in ("next", "complete")}}
        if self.has_attention:
            functions |= {"attention": self._attend, "complete_attention": self._exploring["complete_attention"]}
            if self.has_heads:
                functions["attention_by_head"] = self._attend_by_head
        return functions

    def example_texts(self) -> list[str]:
        """Texts made of the source tokenizer's tokens, for warm-up requests."""
        return example_texts(self.source_tokenizer)

    def example_requests(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """What a client sends to each signature to have these texts translated."""
        text = strings(texts)
        more = {
            "generate": {
                "max_target_length": tf.fill([len(texts)], min(16, self.max_target_length)),
                "length_penalty": tf.fill([len(texts)], self.length_penalty),
            },
            "score": {"target": text[::-1]},
        }
        return {name: {"text": text, **more.get(name, {})} for name in self.signatures() if name not in self.EXPLORE}


def _length(name: str, length: int | None, default: int, least: int, positions: int | None) -> int:
    """The most tokens of a side, at most as many as there are learned positions; None stands for the default."""
    if length is None:
        return default if positions is None else min(default, positions)
    length = whole_number(name, length)
    if length < least:
        raise ValueError(f"`{name}` must be at least {least}. Received: {name}={length}")
    if positions is not None and length > positions:
        raise ValueError(
            f"`{name}` must be at most {positions}, the number of the model's learned positions. Received: {length}"
        )
    return length


def _check_penalty(length_penalty: Any) -> None:
    if isinstance(length_penalty, bool) or not isinstance(length_penalty, numbers.Real):
        raise ValueError(f"`length_penalty` must be a number. Received: length_penalty={length_penalty!r}")
    if not 0 <= float(length_penalty) <= _LARGEST_PENALTY:
        raise ValueError(
            f"`length_penalty` must be from 0 to {_LARGEST_PENALTY:g}. Received: length_penalty={length_penalty}"
        )
