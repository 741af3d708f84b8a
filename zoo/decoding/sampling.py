"""Sampling: a language model continues texts, each token drawn from its distribution (`token_choice`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from zoo.decoding.inputs import check_same_rows, checked_rows, one_for_each_row, rows_of_ids, written_size
from zoo.decoding.logits import log_normalizer, top_k
from zoo.decoding.loop import PhaseForm, not_converted, run_phases
from zoo.decoding.search import Hypotheses
from zoo.decoding.token_choice import (
    Sampling,
    advanced,
    counted_uniform,
    draw,
    is_drawn,
    random_streams,
    with_valid_settings,
)
from zoo.text.tokenizer import END, PADDING, START, whole_number


@not_converted
def generate(
    model: Any,
    prompts: Any,
    max_new_tokens: int | tf.Tensor = 256,
    temperature: float | tf.Tensor = 1.0,
    top_k: int | tf.Tensor = 0,
    top_p: float | tf.Tensor = 1.0,
    repetition_penalty: float | tf.Tensor = 1.0,
    seed: int | tf.Tensor = 0,
    context_length: int | None = None,
    watch: Any = None,
) -> Any:
    """Continues rows of ids of any length with a language model: ids in, ids out.

    While prompt and new tokens fit into the context, the model sees all of them. When the context is full, or a prompt
    is longer than it, the window slides: the model reads the last half context of the text again, with positions from
    0, and continues from there. So each token of a long text is predicted from at least half a context. To write half a
    context, the model reads another half again. A window's last prediction is written, but that window does not read
    it.

    A row's result depends on that row, its settings and its seed alone. Each setting is a number for all rows or a
    tensor `(B,)`; see `Sampling`.

    Axes: B batch, P length of the longest prompt, T new tokens of the longest row.

    Args:
        model: a language model: anything with `begin(ids) -> (memory, cache)` and `step` as in `sample`.
        prompts: ids `(B, P)`, 0 for padding on either side; also a list of lists or of arrays, or a ragged tensor, with
            rows of any length. A row without tokens begins with the start token.
        max_new_tokens: the most tokens a row is given, its end token counted.
        temperature: the divisor of the logits; 0 takes the most likely token.
        top_k: draw only from this many of the most likely tokens; 0 for all.
        top_p: draw only from the most likely tokens that together have this share of the probability.
        repetition_penalty: above 1, tokens that occurred before become less likely.
        seed: determines the choices. If it is one number, row i has the seed `seed + i`.
        context_length: the most tokens that the model reads at once, at least 2; `model.context_length` if None.
        watch: can end a row before its end token, as in `sample`; it also has `ended(state) -> bool (B,)`.

    Returns:
        `Hypotheses` of the new tokens, without weights; the log-probabilities are the model's own, whatever the
        settings. With a `watch`, a pair: these, and its last state.

    Raises:
        ValueError: the prompts are not rows of ids that the model has, a setting is no number, there are more or fewer
            numbers than rows, the model is no language model, or `context_length` is no integer, below 2, or longer
            than the model's. What a graph does not know is not checked.

    Example:
        >>> from zoo.models import GPT
        >>> model = GPT(20, units=8, num_heads=2, num_layers=1, context_length=16)
        >>> tuple(generate(model, [[5, 6, 7]], max_new_tokens=30, temperature=0.0).ids.shape)[0]
        1
    """
    prompts = rows_of_ids("prompts", prompts, getattr(model, "vocabulary_size", None))
    length = getattr(model, "context_length", None) if context_length is None else context_length
    if length is None:
        raise ValueError(
            "`model` must be a language model, with a `context_length`; `greedy` and `beam_search` are for models that "
            f"read a source. Received: {type(model).__name__}"
        )
    length, longest = whole_number("context_length", length), getattr(model, "context_length", length)
    if not 2 <= length <= longest:
        raise ValueError(f"`context_length` must be from 2 to the model's {longest}. Received: {length}")
    text = tf.pad(prompts, [[0, 0], [1, 0]])  # (B, 1 + P)
    rows = tf.shape(text)[0]
    is_empty = tf.reduce_all(text == PADDING, axis=1)
    text = tf.concat([tf.where(is_empty, START, PADDING)[:, None], text[:, 1:]], axis=1)

    left = one_for_each_row("max_new_tokens", max_new_tokens, tf.int32, prompts)
    if np.ndim(seed) == 0:
        seed = one_for_each_row("seed", seed, tf.int64, prompts) + tf.range(tf.cast(rows, tf.int64))
    sampling = _of_each_row(Sampling(temperature, top_k, top_p, repetition_penalty, seed), prompts)

    def window(_more, open_rows, text, scores, left, streams, found):
        """Continues the open rows until each has ended or has filled its window."""
        at = tf.cast(tf.where(open_rows)[:, 0], tf.int32)  # (R,)
        of_rows = tf.nest.map_structure(lambda each: tf.gather(each, at), (text, left, sampling, streams, found))
        of_text, of_left, of_sampling, of_streams, of_found = of_rows
        source, first, room = last_window(of_text, length)
        limits = tf.minimum(of_left, room)
        ids, log_probabilities, of_found = _sampled(
            model, source, first, limits, of_sampling, of_streams, of_text, watch, of_found
        )
        drawn = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)  # (R,)
        ended = tf.reduce_any(ids == END, axis=1)
        ended = ended if watch is None else ended | watch.ended(of_found)

        def back(each):  # (R, ...) -> (B, ...), zero in rows that were closed
            return tf.scatter_nd(at[:, None], each, tf.concat([[rows], tf.shape(each)[1:]], axis=0))

        drawn_of_all = back(drawn)
        open_rows = tf.scatter_nd(at[:, None], ~ended & (drawn < of_left), [rows])
        found = tf.nest.map_structure(
            lambda all_, new: tf.tensor_scatter_nd_update(all_, at[:, None], new), found, of_found
        )
        return (
            tf.reduce_any(open_rows),
            open_rows,
            tf.concat([text, back(ids)], axis=1),
            tf.concat([scores, back(log_probabilities)], axis=1),
            left - drawn_of_all,
            advanced(streams, drawn_of_all),
            found,
        )

    found = () if watch is None else watch.start()
    before = tf.zeros([rows, 0], tf.float32)
    start = tf.constant(True), tf.ones([rows], tf.bool), text, before, left, random_streams(sampling.seed), found
    per_row, per_token = tf.TensorShape([None]), tf.TensorShape([None, None])
    _, _, written, scores, _, _, found = tf.while_loop(
        lambda more, *_: more,
        window,
        start,
        shape_invariants=(
            tf.TensorShape([]),
            *(per_row, per_token, per_token, per_row, per_row),
            tf.nest.map_structure(lambda each: each.shape, found),
        ),
        parallel_iterations=1,
    )
    # A row that had less room in a window than other rows has zeros between its tokens. They are moved to its end.
    ids = written[:, tf.shape(text)[1] :]
    order = tf.argsort(tf.cast(ids == PADDING, tf.int32), axis=1, stable=True)
    max_length = tf.maximum(tf.reduce_max(tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)), 1)
    ids, scores = (tf.gather(each, order[:, :max_length], batch_dims=1) for each in (ids, scores))  # (B, T)
    hypotheses = Hypotheses(ids, scores, weights=None)
    return hypotheses if watch is None else (hypotheses, found)


def _of_each_row(sampling: Sampling, rows: tf.Tensor) -> Sampling:
    """The settings as tensors `(B,)`, within the limits that `Sampling` names.

    Raises:
        ValueError: they are no `Sampling`, no numbers, or more or fewer than rows.
    """
    if not isinstance(sampling, Sampling):
        raise ValueError(f"`sampling` must be a `Sampling`. Received: {sampling!r}")
    dtypes = tf.float32, tf.int32, tf.float32, tf.float32, tf.int64
    fields = zip(Sampling._fields, sampling, dtypes, strict=True)
    return with_valid_settings(Sampling(*(one_for_each_row(name, value, dtype, rows) for name, value, dtype in fields)))


def last_window(text: tf.Tensor, context_length: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The ids that a language model reads to continue texts: all of them, or the last half context of a long text.

    Axes: R rows, L length, C width of the longest window.

    Args:
        text: ids `(R, L)`, at least one in each row, with zeros anywhere.
        context_length: the most tokens that the model reads at once.

    Returns:
        The ids for `begin`, all but the last, zeros in front, `(R, C)`; the last id `(R,)`; and how many tokens can
        follow `(R,)`. The last of these is written but not read.
    """
    lengths = tf.math.count_nonzero(text, axis=1, dtype=tf.int32)  # (R,)
    kept = tf.where(lengths > context_length, context_length // 2, lengths)
    # At least two columns, since a model reads at least one. The sort is stable, so tokens keep their order behind the
    # zeros.
    width = tf.clip_by_value(tf.reduce_max(kept), 2, context_length)
    order = tf.argsort(tf.cast(text != PADDING, tf.int32), axis=1, stable=True)[:, -width:]
    window = tf.gather(text, order, batch_dims=1)  # (R, C + 1), or (R, 1) if L is 1, which the next line repeats
    window = tf.where(tf.range(width, 0, -1) <= kept[:, None], window, PADDING)
    return window[:, :-1], window[:, -1], context_length + 1 - kept


@not_converted
def sample(
    model: Any,
    source: Any,
    first: Any,
    limits: Any,
    sampling: Sampling,
    before: Any = None,
    watch: Any = None,
) -> Any:
    """Draws the tokens of each row one by one, until it ends or reaches its limit.

    The loop is part of the graph and stops when every row has ended; rows that have ended cost little. A row's result
    depends on that row, its settings and its seed alone. Padding, the unknown and the start token are never produced.

    Axes: B batch, T steps of the longest row, P length of what was there before, V vocabulary.

    Args:
        model: anything with `begin(source) -> (memory, cache)` and `step(tokens, position, memory, cache) ->
            (logits, cache, weights)`; it is stepped with one hypothesis for each row (K = 1). If its
            `room_steps` is above 0, it is stepped with the cache that `with_room(cache, position, steps)` gives, at
            most so many times before `without_room(cache, position)`.
        source: as for `greedy`.
        first: int32 `(B,)`, the tokens that the first step reads.
        limits: int32 `(B,)` or one number, the most tokens each row may have, its end token counted. A row of limit 0
            stays empty.
        sampling: a `Sampling`; each of its settings is a tensor or list `(B,)`, or a number for all rows.
        before: ids `(B, P)` of the earlier text, or a list of rows of any length, for the repetition penalty; None for
            none.
        watch: an object that can end a row before its end token; None ends no row early. It may have `is_needed`, a
            boolean scalar, False if it will end no row; `start() -> state`, a nest of tensors with the rows as their
            first axis; and `step(tokens, open_rows, state) -> (ends, state)`, with tokens, `open_rows` and `ends`
            `(R,)` for the rows that are left. It must not change the state of a row that is not open. Where it is not
            needed, `step` may never be called.

    Returns:
        `Hypotheses` without weights; the log-probabilities are the model's own, whatever the settings. With a `watch`,
        a pair: these, and its last state, which for each row is the state when the row ended.

    Raises:
        ValueError: the first tokens or those of `before` are no ids of the model, there are more or fewer first tokens,
            settings or rows of `before` than rows, or as in `greedy`.
    """
    first = tf.convert_to_tensor(first)
    first = tf.cast(first, tf.int32) if first.shape.num_elements() == 0 else first  # an empty list is one of floats
    source, limits = checked_rows(model, source, limits, first)
    sampling = _of_each_row(sampling, limits)
    found = () if watch is None else watch.start()
    if before is None:
        before = tf.zeros([tf.shape(limits)[0], 0], tf.int32)
    else:
        before = rows_of_ids("before", before, written_size(model))
        check_same_rows("before", before, "source", limits)
    ids, log_probabilities, found = _sampled(
        model, source, first, limits, sampling, random_streams(sampling.seed), before, watch, found
    )
    hypotheses = Hypotheses(ids, log_probabilities, weights=None)
    return hypotheses if watch is None else (hypotheses, found)


def _sampled(
    model: Any,
    source: Any,
    first: tf.Tensor,
    limits: tf.Tensor,
    sampling: Sampling,
    streams: tf.Tensor,
    before: tf.Tensor,
    watch: Any,
    found: Any,
) -> Any:
    """Ids and log-probabilities `(B, T)`, and the last state of the watch, which begins as `found`."""
    memory, cache = model.begin(source)

    def decoded(simple: bool) -> Any:
        def step(position, fixed, open_rows, moving, found):
            (memory, limits, *drawing), (tokens, cache, *history) = fixed, moving
            logits, cache, _ = model.step(tokens[:, None], position, memory, cache)  # (B, 1, V)
            if simple:
                best = top_k(logits, 1, first=END, as_log_probabilities=True)
                token, log_probability = best.places[:, 0], best.values[:, 0]  # (B,) each
            else:
                logits = logits[:, 0]  # (B, V)
                sampling, streams = drawing
                token = draw(logits, counted_uniform(streams, position), sampling, history[0][..., 0])
                log_probability = tf.gather(logits, token, batch_dims=1) - log_normalizer(logits)
            token = tf.where(open_rows, token, PADDING)  # (B,)
            written = token, tf.where(open_rows, log_probability, 0.0)
            goes_on = open_rows & (token != END) & (position + 1 < limits)
            if watch is not None and not simple:
                ends, found = watch.step(token, open_rows, found)
                goes_on &= ~ends
            history = [tf.concat([each, tf.reshape(token, [-1, 1, 1])], axis=1) for each in history]
            return goes_on, (token, cache, *history), found, written

        # The history is (B, P, 1): a loop fixes the last axis if its size is known, and P grows.
        drawing, history = ((), ()) if simple else ((sampling, streams), (before[..., None],))
        moving, fixed = (tf.cast(first, tf.int32), cache, *history), (memory, limits, *drawing)
        state = () if simple else found
        form = _form_with_room(model, limits)
        state, written = run_phases(step, (tf.int32, tf.float32), fixed, limits > 0, moving, state, form)
        return found if simple else state, written

    # Two loops, chosen once. With a small model, drawing takes nearly as long as a step, and a step without any branch
    # is run faster (`loops_for_a_server`).
    simple = ~tf.reduce_any(is_drawn(sampling) | (sampling.repetition_penalty != 1))
    if watch is not None:
        simple &= ~tf.cast(getattr(watch, "is_needed", True), tf.bool)
    found, (ids, log_probabilities) = tf.cond(simple, lambda: decoded(True), lambda: decoded(False))
    return tf.transpose(ids), tf.transpose(log_probabilities), found


def _form_with_room(model: Any, limits: tf.Tensor) -> PhaseForm | None:
    """For a model whose cache can have room for further tokens."""
    if not getattr(model, "room_steps", 0):
        return None
    longest = tf.reduce_max(limits)

    def enter(position, moving):
        tokens, cache, *history = moving
        steps = tf.clip_by_value(longest - position, 1, model.room_steps)
        return tokens, model.with_room(cache, position, steps), *history

    def leave(position, moving):
        tokens, cache, *history = moving
        return tokens, model.without_room(cache, position), *history

    return PhaseForm(model.room_steps, enter, leave)
