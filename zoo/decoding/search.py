"""Search: the most likely token at every step (greedy), or the best of several hypotheses (beam search)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.decoding.inputs import checked_rows, one_for_each_row
from zoo.decoding.logits import top_k
from zoo.decoding.loop import not_converted, run_phases
from zoo.text.tokenizer import END, PADDING, START, whole_number

_NO_WEIGHTS = "`return_weights` needs a model with attention; this one returns no weights."
_NOTHING = float("-inf")
_FORBIDDEN = -1e8  # the logits of what a model never writes are lower, such as -1e9


class Hypotheses(NamedTuple):
    """The tokens that a loop has decoded. Axes: B batch, T steps of the longest row, S source length.

    Attributes:
        ids: int32 `(B, T)`; each row ends with the end token, unless its limit came first, and then padding.
        token_log_probabilities: float32 `(B, T)`, natural logarithm of the model's probability of each id; 0 at
            padding.
        weights: float32 `(B, T, S)`, the attention of each step; 0 at padding. None unless asked for.
    """

    ids: tf.Tensor
    token_log_probabilities: tf.Tensor
    weights: tf.Tensor | None

    @property
    def log_probabilities(self) -> tf.Tensor:
        """The log-probability of each row as a whole, its end token included, `(B,)`."""
        return tf.reduce_sum(self.token_log_probabilities, axis=1)


@not_converted
def greedy(model: Any, source: Any, limits: Any, return_weights: bool = False) -> Hypotheses:
    """Decodes each source row by the most likely token, until it ends or reaches its limit.

    The loop is part of the graph and stops when every row has ended; rows that have ended cost little. A row's result
    depends on that row alone. The first step reads the start token. Padding, the unknown and the start token are never
    produced.

    Args:
        model: anything with `begin(source) -> (memory, cache)` and `step(tokens, position, memory, cache) ->
            (logits, cache, weights)`; it is stepped with one hypothesis for each row (K = 1). The tensors of `memory`
            have the rows as their first axis; a step gets those of its rows.
        source: the argument of the model's `begin`: usually ids `(B, S)`; its first axis is B. For a model of ids, it
            may also be a list of rows of any length, or a ragged tensor.
        limits: int32 `(B,)` or one number, the most tokens each row may have, its end token counted. A row of limit 0
            stays empty.
        return_weights: whether to collect the attention weights.

    Returns:
        `Hypotheses`.

    Raises:
        ValueError: the model has no `begin` and `step`; the source is not rows of ids that the model has; weights are
            asked for and the model has none; the limits are no integers, more or fewer than rows, or above the model's
            `most_positions`; prompt and limit are longer than the context of a language model; or XLA compiles the
            graph (`jit_compile=True`), which it cannot. What a graph does not know is not checked.
    """
    source, limits = checked_rows(model, source, limits)
    memory, cache = model.begin(source)

    def step(position, fixed, open_rows, moving, found):
        # `found` is passed on empty: greedy's results are what each step writes.
        (memory, limits), (tokens, cache) = fixed, moving
        logits, cache, weights = model.step(tokens, position, memory, cache)
        if return_weights and weights is None:
            raise ValueError(_NO_WEIGHTS)
        logits.set_shape([None, 1, None])  # (B, 1, V), which a loop may have lost
        # There is one hypothesis, so a place is an id. END is the lowest id that may be written.
        best = top_k(logits, 1, first=END, as_log_probabilities=True)
        token = tf.where(open_rows, best.places[:, 0], PADDING)  # (B,)
        written = token, tf.where(open_rows, best.values[:, 0], 0.0)
        if return_weights:
            written = *written, tf.cast(weights[:, 0], tf.float32) * tf.cast(open_rows[:, None], tf.float32)
        open_rows = open_rows & (token != END) & (position + 1 < limits)
        return open_rows, (token[:, None], cache), found, written

    dtypes = (tf.int32, tf.float32, tf.float32) if return_weights else (tf.int32, tf.float32)
    start = tf.fill([tf.shape(limits)[0], 1], START), cache
    _, written = run_phases(step, dtypes, (memory, limits), limits > 0, start)
    ids, log_probabilities, *weights = written
    return Hypotheses(
        ids=tf.transpose(ids),  # (B, T)
        token_log_probabilities=tf.transpose(log_probabilities),  # (B, T)
        weights=tf.transpose(weights[0], [1, 0, 2]) if return_weights else None,  # (B, T, S)
    )


class Beams(NamedTuple):
    """The best hypotheses of each row. Axes: B batch, N hypotheses, T steps of the longest, S source length.

    Attributes:
        ids: int32 `(B, N, T)`, best first; each ends with the end token, unless its limit came first, and then padding.
        scores: float32 `(B, N)`, the log-probability divided by the length penalty; -inf where fewer than N texts are
            possible.
        log_probabilities: float32 `(B, N)`, natural logarithm of the model's probability of the ids.
        weights: float32 `(B, N, T, S)`, the attention of each step; 0 at padding. None unless asked for.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    log_probabilities: tf.Tensor
    weights: tf.Tensor | None


class _Finished(NamedTuple):
    """The best finished hypotheses of each row so far, and where their paths end.

    Attributes:
        scores: `(B, K)`.
        ends: `(B, K, 3)`: the step of the last token, the open hypothesis that it was added to, and the token.
    """

    scores: tf.Tensor
    ends: tf.Tensor


@not_converted
def beam_search(
    model: Any,
    source: Any,
    limits: Any,
    beam_size: int = 4,
    length_penalty: float | tf.Tensor = 0.6,
    n_best: int = 1,
    return_weights: bool = False,
    length_normalization: str = "wu",
    early_stopping: bool | str = False,
) -> Beams:
    """Follows the `beam_size` most likely hypotheses of each source row until the best of them are known.

    At each step every open hypothesis is continued by every token. Of the `beam_size` most likely results, those with
    an end token are finished. The `beam_size` most likely results without one stay open. A row is done when no open
    hypothesis can become better than the worst finished one that is asked for, or when `early_stopping` says so. So a
    beam of 1 is greedy decoding (unless `early_stopping` is "never"), and a beam as wide as the number of all possible
    texts is an exhaustive search.

    Finished hypotheses are compared by

        score(y) = log P(y | x) / ((5 + |y|) / 6)^length_penalty         (Wu et al. 2016, equation 14, without coverage)
        score(y) = log P(y | x) / |y|^length_penalty                     ("mean", as in Marian and `transformers`)

    with the length in tokens, the end token counted. The loop is part of the graph, and rows that are done cost little.
    A row's result depends on that row alone. Padding, the unknown and the start token are never produced.

    Args:
        model: anything with `begin(source) -> (memory, cache)` and `step(tokens, position, memory, cache) -> (logits,
            cache, weights)`. The tensors of `memory`, `(B, ...)`, are shared by all hypotheses of a row; those of
            `cache`, `(B, K, ...)`, are reordered as hypotheses come and go. Rows that are done leave both.
        source: as for `greedy`.
        limits: int32 `(B,)` or one number, the most tokens each row may have, its end token counted; a hypothesis that
            is still open then counts as finished. A row of limit 0 stays empty.
        beam_size: K, how many hypotheses are followed.
        length_penalty: 0 compares plain log-probabilities, which favours short texts; 1 nearly their mean per token. A
            number, or one for each row `(B,)`.
        n_best: N, how many hypotheses to return.
        return_weights: whether to return the attention weights.
        length_normalization: which of the two scores, "wu" or "mean".
        early_stopping: what else ends the search of a row, as in `transformers`. With True, it ends when `beam_size`
            hypotheses are finished, however bad; a model that is sure of each token may finish unlikely short ones
            first. With False, the most likely open hypothesis must also be no better than the worst of these, if it
            ended now. With "never", nothing else ends the search. With a positive length penalty, a hypothesis may win
            by growing long, so "never" takes more steps.

    Returns:
        `Beams`.

    Raises:
        ValueError: sizes that are not positive, `n_best` above `beam_size`, a penalty that is not finite, more or fewer
            penalties than rows, an unknown normalisation or `early_stopping`, or as in `greedy`.

    Reference: https://arxiv.org/abs/1609.08144
    """
    beam_size, n_best = check_beam(beam_size, n_best)
    check_length_normalization(length_normalization)
    check_early_stopping(early_stopping)
    source, limits = checked_rows(model, source, limits)
    powers = one_for_each_row("length_penalty", length_penalty, tf.float32, limits)
    known = tf.get_static_value(length_penalty)
    if known is not None and not np.isfinite(known).all():
        raise ValueError(f"`length_penalty` must be finite. Received: length_penalty={length_penalty}")
    divisor = _DIVISORS[length_normalization]
    search = _Search(model, limits, beam_size, powers, n_best, return_weights, divisor, early_stopping)
    finished, paths = search.run(source)
    return search.traced(finished, *paths)


def check_beam(beam_size: int, n_best: int = 1) -> tuple[int, int]:
    """The two sizes of a beam, as Python's integers.

    Raises:
        ValueError: sizes that are not positive, or `n_best` above `beam_size`.
    """
    beam_size, n_best = whole_number("beam_size", beam_size), whole_number("n_best", n_best)
    for name, size in (("beam_size", beam_size), ("n_best", n_best)):
        if size < 1:
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}")
    if n_best > beam_size:
        raise ValueError(f"`n_best` must be at most `beam_size`. Received: n_best={n_best}, beam_size={beam_size}")
    return beam_size, n_best


def check_length_normalization(name: str) -> None:
    """Checks the name of a length normalisation.

    Raises:
        ValueError: it is not known.
    """
    if not isinstance(name, str) or name not in _DIVISORS:
        raise ValueError(f"`length_normalization` must be {' or '.join(map(repr, _DIVISORS))}. Received: {name!r}")


def check_early_stopping(early_stopping: bool | str) -> None:
    """Checks what ends a search.

    Raises:
        ValueError: it is not known.
    """
    if not isinstance(early_stopping, bool | str) or early_stopping not in (True, False, "never"):
        raise ValueError(f"`early_stopping` must be True, False or 'never'. Received: {early_stopping!r}")


class _Search:
    """One search. The arguments that stay the same in its loop are attributes.

    Rows that are done leave the loop. `limits` and `powers` are attributes with all rows of the batch; in a step, the
    variables of these names have only the rows that are left.
    """

    def __init__(
        self,
        model: Any,
        limits: tf.Tensor,
        beam_size: int,
        powers: tf.Tensor,
        n_best: int,
        return_weights: bool,
        divisor: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
        early_stopping: bool | str,
    ):
        self.model, self.limits, self.size, self.powers = model, limits, beam_size, powers
        self.n_best, self.return_weights = n_best, return_weights
        self.divisor, self.early_stopping = divisor, early_stopping

    def run(self, source: Any) -> tuple[Any, Any]:
        """The finished hypotheses, and the tokens, parents and weights of each step to trace them by."""
        memory, cache = self.model.begin(source)
        cache = tf.nest.map_structure(lambda each: tf.repeat(each, self.size, axis=1), cache)

        def step(position, fixed, open_rows, moving, finished):
            (memory, limits, powers, of_limits), (tokens, log_probabilities, cache) = fixed, moving
            logits, cache, weights = self.model.step(tokens, position, memory, cache)  # (B, K, V)
            if self.return_weights and weights is None:
                raise ValueError(_NO_WEIGHTS)
            totals, parents, tokens = self.candidates(logits, log_probabilities)  # (B, 2 K) each
            ended = (tokens == END) | (position + 1 >= limits)[:, None]  # (B, 2 K)
            finished = self.finish(finished, position, powers, ended & open_rows[:, None], totals, parents, tokens)
            # A hypothesis has one continuation that ends, so of 2 K candidates at least K stay open.
            log_probabilities, kept = tf.math.top_k(tf.where(tokens == END, _NOTHING, totals), self.size)  # (B, K)
            tokens, parents = (tf.gather(each, kept, batch_dims=1) for each in (tokens, parents))  # (B, K)
            cache = tf.nest.map_structure(lambda each: tf.gather(each, parents, batch_dims=1), cache)
            highest = log_probabilities[:, 0]  # (B,)
            open_rows &= self.undecided(position + 1, limits, powers, of_limits, highest, finished)
            written = (tokens, parents)
            if self.return_weights:
                written = *written, tf.cast(weights, tf.float32)
            return open_rows, (tokens, log_probabilities, cache), finished, written

        shape = [tf.shape(self.limits)[0], self.size]
        # All hypotheses are the same before the first step, so only one of them counts.
        log_probabilities = tf.tile(tf.constant([[0.0] + [_NOTHING] * (self.size - 1)]), [shape[0], 1])  # (B, K)
        start = tf.fill(shape, START), log_probabilities, cache
        finished = tf.fill(shape, _NOTHING), tf.zeros([*shape, 3], tf.int32)
        dtypes = (tf.int32, tf.int32, tf.float32) if self.return_weights else (tf.int32, tf.int32)
        fixed = memory, self.limits, self.powers, self.divisor(self.limits, self.powers)
        return run_phases(step, dtypes, fixed, self.limits > 0, start, _Finished(*finished))

    def candidates(self, logits: tf.Tensor, log_probabilities: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The 2 K most likely continuations: log-probabilities, parents and tokens, `(B, 2 K)` each, best first."""
        logits.set_shape([None, self.size, None])  # (B, K, V), which a loop may have lost
        number = min(2 * self.size, self.size * (logits.shape[-1] - END))
        totals, parents, tokens = top_k(logits, number, first=END, added=log_probabilities, as_log_probabilities=True)
        if number < 2 * self.size:
            # The vocabulary is so small that a hypothesis has only one continuation.
            extra = [[0, 0], [0, 2 * self.size - number]]
            totals = tf.pad(totals, extra, constant_values=_NOTHING)
            parents, tokens = tf.pad(parents, extra), tf.pad(tokens, extra, constant_values=END)
        return totals, parents, tokens

    def finish(
        self,
        finished: _Finished,
        position: tf.Tensor,
        powers: tf.Tensor,
        ended: tf.Tensor,
        totals: tf.Tensor,
        parents: tf.Tensor,
        tokens: tf.Tensor,
    ) -> _Finished:
        """The finished hypotheses, and those of the K most likely candidates that end at this step."""
        scores = tf.where(ended, totals, _NOTHING)[:, : self.size] / self.divisor(position + 1, powers)[:, None]
        ends = tf.stack([tf.fill(tf.shape(tokens), position), parents, tokens], axis=2)[:, : self.size]  # (B, K, 3)
        scores, best = tf.math.top_k(tf.concat([finished.scores, scores], axis=1), self.size)  # (B, K) of (B, 2 K)
        return _Finished(scores, tf.gather(tf.concat([finished.ends, ends], axis=1), best, batch_dims=1))

    def undecided(
        self,
        length: tf.Tensor,
        limits: tf.Tensor,
        powers: tf.Tensor,
        of_limits: tf.Tensor,
        highest: tf.Tensor,
        finished: _Finished,
    ) -> tf.Tensor:
        """In which rows the search goes on, given the log-probability of the most likely open hypothesis.

        All open hypotheses have this length.
        """
        # An open hypothesis can only become less likely. Its penalty will be between the penalties of the next step and
        # of the limit, so the better of the two scores is a bound.
        bounds = highest / of_limits, highest / self.divisor(length + 1, powers)  # (B,) each
        undecided = (tf.maximum(*bounds) > finished.scores[:, self.n_best - 1]) & (length < limits)
        if self.early_stopping == "never":
            return undecided
        worst = finished.scores[:, -1]  # (B,): -inf if fewer than K hypotheses are finished
        if self.early_stopping:
            return undecided & (worst == _NOTHING)
        return undecided & (highest / self.divisor(length, powers) > worst)

    def traced(
        self, finished: _Finished, tokens: tf.Tensor, parents: tf.Tensor, weights: tf.Tensor | None = None
    ) -> Beams:
        """The hypotheses in full, followed back from their last tokens; tokens and parents `(T, B, K)`."""
        scores, ends = (each[:, : self.n_best] for each in finished)  # (B, N), (B, N, 3)
        last_steps, last_parents, last_tokens = tf.unstack(ends, axis=2)  # (B, N) each
        divisors = self.divisor(last_steps + 1, self.powers[:, None])  # (B, N)
        # Where fewer texts are possible than the beam is wide, it has also found forbidden ones.
        exists = (scores > _NOTHING) & ~(scores * divisors < _FORBIDDEN)  # (B, N)
        scores = tf.where(exists, scores, _NOTHING)
        steps = tf.shape(tokens)[0]

        # From the last step to the first: `beams` (B, N) is the open hypothesis of each path after a step.
        def back(position, beams, ids, attention):
            last = position == last_steps
            inside = exists & (position < last_steps)
            beams = tf.where(last, 0, beams)
            token = tf.where(last & exists, last_tokens, PADDING)
            token = tf.where(inside, tf.gather(tokens[position], beams, batch_dims=1), token)
            # From the hypothesis after this step to its parent.
            beams = tf.where(last, last_parents, tf.gather(parents[position], beams, batch_dims=1))
            ids = ids.write(position, token)
            if weights is not None:
                of_token = tf.gather(weights[position], beams, batch_dims=1)  # (B, N, S)
                attention = attention.write(position, tf.where((last & exists | inside)[:, :, None], of_token, 0.0))
            return position - 1, beams, ids, attention

        ids = tf.TensorArray(tf.int32, size=steps)
        attention = () if weights is None else tf.TensorArray(tf.float32, size=steps)
        start = steps - 1, tf.zeros_like(last_steps), ids, attention
        _, _, ids, attention = tf.while_loop(lambda position, *_: position >= 0, back, start)
        max_length = tf.reduce_max(tf.where(exists, last_steps, 0)) + 1
        return Beams(
            ids=tf.transpose(ids.stack(), [1, 2, 0])[:, :, :max_length],  # (B, N, T)
            scores=scores,
            log_probabilities=scores * divisors,
            # (B, N, T, S)
            weights=None if weights is None else tf.transpose(attention.stack(), [1, 2, 0, 3])[:, :, :max_length],
        )


def _penalty(length: tf.Tensor, powers: tf.Tensor) -> tf.Tensor:
    """The divisor of a log-probability of this many tokens, in the shape of both arguments."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** powers


def _power(length: tf.Tensor, powers: tf.Tensor) -> tf.Tensor:
    """The same without Wu's constants, so that a power of 1 gives the mean."""
    return tf.maximum(tf.cast(length, tf.float32), 1.0) ** powers  # a row of limit 0 has no token


_DIVISORS = {"wu": _penalty, "mean": _power}
