"""Sampling: the next token drawn from the model's distribution, each row by its own settings."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from zoo.decoding.logits import log_normalizer, top_k
from zoo.decoding.loop import PhaseForm, run_phases
from zoo.decoding.search import Hypotheses, checked_rows, one_for_each_row
from zoo.text.tokenizer import END, PADDING, START, Tokenizer, whole_number

_FEW = 128  # candidates to sort first, when the number needed is not known
_BLOCK = 256  # tokens that are summed together
_BINS = 2048  # of a histogram of scores
_LOWEST = 32.0  # the scores below the highest one by this and more share the last bin; exp(-32) is 1e-14
COLD = 1e-20  # here only the likeliest token has a chance; smaller numbers underflow on some machines
HOTTEST = 1e6  # a higher temperature would also draw ids that a logit of -1e9 forbids
_PENALTIES = 1e-6, 1e6  # a repetition penalty out of this range, or NaN, is 1: dividing by it could overflow


class Sampling(NamedTuple):
    """How each row is drawn. All of shape `(B,)`.

    Attributes:
        temperature: float32, the divisor of the logits; if it is 0, negative or NaN, the most likely token is taken.
            What is above 1e6 counts as 1e6.
        top_k: int32, draw only from this many of the most likely tokens (Fan et al. 2018); below 1 or from V on, draw
            from all.
        top_p: float32, draw only from the most likely tokens, as few as together have at least this share of the
            probability (Holtzman et al. 2020). With `top_k`, it is a share of the probability of these k tokens. 0
            leaves only the most likely token, 1 leaves all, and so does NaN.
        repetition_penalty: float32. The logits of tokens that occurred before are divided by it if they are positive,
            and multiplied by it if they are negative (Keskar et al. 2019, section 4.1). 1 is no penalty, and so are NaN
            and values outside 1e-6 to 1e6.
        seed: int64, determines the row's choices.
    """

    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor
    seed: tf.Tensor


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
        prompts: ids `(B, P)`, 0 for padding on either side; also a list of lists, or a ragged tensor, of rows of any
            length. A row without tokens begins with the start token.
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
        ValueError: the prompts are not rows of ids that the model has, there are more or fewer numbers of a setting
            than rows, the model is no language model, or `context_length` is no integer, below 2, or longer than the
            model's. What a graph does not know is not checked.

    Example:
        >>> from zoo.models import GPT
        >>> model = GPT(20, units=8, num_heads=2, num_layers=1, context_length=16)
        >>> tuple(generate(model, [[5, 6, 7]], max_new_tokens=30, temperature=0.0).ids.shape)[0]
        1
    """
    prompts = _rows_of_ids(prompts, getattr(model, "vocabulary_size", None))
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

    def of_rows(name, value, dtype):
        return one_for_each_row(name, value, dtype, prompts)

    left = of_rows("max_new_tokens", max_new_tokens, tf.int32)
    seed = tf.cast(seed, tf.int64)
    seed = seed + tf.range(tf.cast(rows, tf.int64)) if seed.shape.rank == 0 else seed
    sampling = _checked(
        Sampling(
            of_rows("temperature", temperature, tf.float32),
            of_rows("top_k", top_k, tf.int32),
            of_rows("top_p", top_p, tf.float32),
            of_rows("repetition_penalty", repetition_penalty, tf.float32),
            of_rows("seed", seed, tf.int64),
        )
    )

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
            _advanced(streams, drawn_of_all),
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


def _rows_of_ids(prompts: Any, vocabulary_size: int | None) -> tf.Tensor:
    """The prompts as int32 `(B, P)`; rows of different lengths are padded.

    Raises:
        ValueError: they are not rows of integers, or an id is none of the vocabulary, if these are known.
    """
    if isinstance(prompts, list | tuple) and all(isinstance(row, list | tuple) for row in prompts):
        width = max(map(len, prompts), default=0)
        rows = [[*row, *[PADDING] * (width - len(row))] for row in prompts]
        prompts = tf.convert_to_tensor(rows, None if width else tf.int32)
    prompts = prompts.to_tensor() if isinstance(prompts, tf.RaggedTensor) else tf.convert_to_tensor(prompts)
    if prompts.shape.rank not in (2, None) or not prompts.dtype.is_integer:
        raise ValueError(
            "`prompts` must be rows of ids, such as [[5, 6, 7]]. "
            f"Received: {prompts.dtype.name} of shape {tuple(prompts.shape)}"
        )
    known = tf.get_static_value(prompts)
    largest = tf.int32.max if vocabulary_size is None else vocabulary_size - 1
    if known is not None and (wrong := known[(known < 0) | (known > largest)]).size:
        raise ValueError(f"`prompts` must hold ids from 0 to {largest:,}, those of the model. Received: {wrong[0]}")
    return tf.cast(prompts, tf.int32)


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
    window = tf.gather(text, order, batch_dims=1)  # (R, C + 1)
    window = tf.where(tf.range(width, 0, -1) <= kept[:, None], window, PADDING)
    return window[:, :-1], window[:, -1], context_length + 1 - kept


def sample(
    model: Any,
    source: Any,
    first: tf.Tensor,
    limits: tf.Tensor,
    sampling: Sampling,
    before: tf.Tensor | None = None,
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
        source: what the model's `begin` takes, with leading axis B.
        first: int32 `(B,)`, the tokens that the first step reads.
        limits: int32 `(B,)` or one number, the most tokens each row may have, its end token counted. A row of limit 0
            stays empty.
        sampling: a `Sampling`.
        before: ids `(B, P)` of the earlier text, for the repetition penalty; None for none.
        watch: an object that can end a row before its end token; None ends no row early. It may have `is_needed`, a
            boolean scalar, False if it will end no row; `start() -> state`, a nest of tensors with the rows as their
            first axis; and `step(tokens, open_rows, state) -> (ends, state)`, with tokens, `open_rows` and `ends`
            `(R,)` for the rows that are left. It must not change the state of a row that is not open. Where it is not
            needed, `step` may never be called.

    Returns:
        `Hypotheses` without weights; the log-probabilities are the model's own, whatever the settings. With a `watch`,
        a pair: these, and its last state, which for each row is the state when the row ended.

    Raises:
        ValueError: there are more or fewer limits than rows, or a limit is above the model's `most_positions`.
    """
    _, limits = checked_rows(model, first, limits)
    sampling = _checked(sampling)
    found = () if watch is None else watch.start()
    before = tf.zeros([tf.shape(limits)[0], 0], tf.int32) if before is None else tf.cast(before, tf.int32)
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
    simple = ~tf.reduce_any(_is_drawn(sampling) | (sampling.repetition_penalty != 1))
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


def draw(logits: tf.Tensor, chance: tf.Tensor, sampling: Sampling, history: tf.Tensor) -> tf.Tensor:
    """The next token of each row.

    Args:
        logits: float32 `(B, V)`.
        chance: float32 `(B,)`, from 0 to below 1: decides between the tokens.
        sampling: a `Sampling`.
        history: ids `(B, P)` that were there before.

    Returns:
        Ids from the end token on, int32 `(B,)`.
    """
    logits = tf.cond(
        tf.reduce_all(sampling.repetition_penalty == 1),
        lambda: logits,
        lambda: _penalized(logits, sampling.repetition_penalty, history),
    )[:, END:]  # (B, V - END): the end token is the first of the ids that may be produced
    size = logits.shape[-1]
    drawn = _is_drawn(sampling)
    scores = logits - tf.reduce_max(logits, axis=-1, keepdims=True)  # so that a division can only overflow to -inf
    scores /= tf.where(drawn, sampling.temperature, 1.0)[:, None]
    top_k = tf.where((sampling.top_k > 0) & (sampling.top_k < size), sampling.top_k, size)
    cut = drawn & ((top_k < size) | (sampling.top_p < 1))
    # There are three ways to choose a token: the likeliest, a draw from all, and a draw from the likeliest few, which
    # sorts and costs most. Each is computed only if a row of the batch needs it.
    token = tf.argmax(logits, axis=-1, output_type=tf.int32)
    token = tf.cond(
        tf.reduce_any(drawn & ~cut), lambda: tf.where(drawn & ~cut, _from_all(scores, chance), token), lambda: token
    )
    token = tf.cond(
        tf.reduce_any(cut),
        lambda: tf.where(cut, _from_likeliest(scores, chance, cut, top_k, sampling.top_p), token),
        lambda: token,
    )
    return token + END


def _checked(sampling: Sampling) -> Sampling:
    least, most = _PENALTIES
    penalty = sampling.repetition_penalty
    fits = (penalty >= least) & (penalty <= most)  # false of NaN
    return sampling._replace(
        temperature=tf.minimum(sampling.temperature, HOTTEST), repetition_penalty=tf.where(fits, penalty, 1.0)
    )


def _is_drawn(sampling: Sampling) -> tf.Tensor:
    return sampling.temperature > COLD  # false of NaN


def _penalized(logits: tf.Tensor, penalty: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    rows = tf.repeat(tf.range(tf.shape(logits)[0])[:, None], tf.shape(history)[1], axis=1)  # (B, P)
    values = tf.gather(logits, history, batch_dims=1)  # (B, P)
    values = tf.where(values > 0, values / penalty[:, None], values * penalty[:, None])
    return tf.tensor_scatter_nd_update(logits, tf.stack([rows, history], axis=-1), values)


def _from_all(scores: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
    """The place at which the summed probabilities pass the row's chance, `(B,)`.

    The sums of blocks tell the block, and then only this one is summed up token by token: `tf.cumsum` takes ten times
    as long as a sum. To draw 32 tokens of 50,257 takes 3.8 ms in all, not 10.4.
    """
    blocks = -(-scores.shape[-1] // _BLOCK)
    room = blocks * _BLOCK - scores.shape[-1]
    weights = tf.exp(tf.pad(scores, [[0, 0], [0, room]], constant_values=float("-inf")))
    weights = tf.reshape(weights, [-1, blocks, _BLOCK])  # (B, V / 256, 256)
    sums = tf.reduce_sum(weights, axis=-1)  # (B, V / 256)
    amount = chance * _total(sums)  # (B,)
    block = _place(sums, amount)  # (B,)
    amount -= tf.gather(tf.cumsum(sums, axis=-1, exclusive=True), block, batch_dims=1)
    return block * _BLOCK + _place(tf.gather(weights, block, batch_dims=1), amount)


def _from_likeliest(
    scores: tf.Tensor, chance: tf.Tensor, cut: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor
) -> tf.Tensor:
    """The same among the most likely tokens that the settings leave."""
    size = scores.shape[-1]
    by_rank = cut & (top_k < size)
    # Rows with a top_k need that many ranks. Other rows mostly need few; those that need more are drawn in another way.
    # What a row needs never depends on other rows, and so neither does rounding.
    ranks = tf.where(by_rank, top_k, tf.where(cut, min(_FEW, size), 1))  # (B,)
    values, ids = tf.math.top_k(scores, tf.reduce_max(ranks))  # (B, number)
    probabilities = tf.exp(values - log_normalizer(scores)[:, None])
    probabilities = tf.where(tf.range(tf.shape(ids)[1]) < ranks[:, None], probabilities, 0.0)
    share = _total(probabilities)  # (B,)
    # top_p is a share of the total probability of the top_k tokens; the total of all tokens is 1.
    kept = _nucleus(probabilities, tf.where(top_p < 1, top_p * tf.where(by_rank, share, 1.0), float("inf")))
    token = tf.gather(ids, _place(kept, chance * _total(kept)), batch_dims=1)
    if size <= _FEW:
        return token
    needs_more = cut & ~by_rank & (share < top_p)  # (B,): false of NaN
    rows = tf.where(needs_more)  # (R, 1)
    return tf.cond(
        tf.reduce_any(needs_more),
        lambda: tf.tensor_scatter_nd_update(
            token, rows, _from_large_nucleus(*(tf.gather_nd(each, rows) for each in (scores, chance, top_p)))
        ),
        lambda: token,
    )


def _from_large_nucleus(scores: tf.Tensor, chance: tf.Tensor, top_p: tf.Tensor) -> tf.Tensor:
    """The same for rows whose `top_p` leaves many tokens, without sorting all.

    A histogram of the scores, weighted by probability, has bins in the order of the ranks. Its running sum tells in
    which bin the nucleus ends, and in which one the chance falls. Only these two bins are sorted. To draw 32 tokens of
    50,257 takes 25 ms, where sorting all of them took 95; one takes 2.5 ms, not 7.
    """
    weights = tf.exp(scores)  # (B, V): the largest is 1
    bins = tf.cast(tf.minimum(-scores, _LOWEST) * (_BINS / _LOWEST), tf.int32)  # (B, V)
    sums = tf.raw_ops.DenseBincount(input=bins, size=tf.constant(_BINS + 1), weights=weights)  # (B, bins)
    before = tf.cumsum(sums, axis=-1, exclusive=True)  # (B, bins)
    limit = top_p * _total(sums)  # (B,)

    def in_bin(number):
        """The weights of the nucleus in one bin of each row in the order of ranks, `(B, most)`, and their tokens."""
        inside = bins == number[:, None]  # (B, V)
        most = tf.reduce_max(tf.math.count_nonzero(inside, axis=-1, dtype=tf.int32))
        values, ids = tf.math.top_k(tf.where(inside, scores, float("-inf")), most)  # (B, most)
        return _nucleus(tf.exp(values), limit - tf.gather(before, number, batch_dims=1)), ids

    last = _last(_nucleus(sums, limit))  # (B,)
    total = tf.gather(before, last, batch_dims=1) + _total(in_bin(last)[0])  # (B,)
    drawn = tf.minimum(_place(sums, chance * total), last)  # (B,)
    kept, ids = in_bin(drawn)
    return tf.gather(ids, _place(kept, chance * total - tf.gather(before, drawn, batch_dims=1)), batch_dims=1)


def _nucleus(weights: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Weights in the order of ranks `(B, N)`, with zeros from where their running sum reaches `limit` `(B,)`.

    The first one always stays.
    """
    above = tf.cumsum(weights, axis=-1, exclusive=True)
    return tf.where((above < limit[:, None]) | (tf.range(tf.shape(weights)[1]) == 0), weights, 0.0)


def _total(weights: tf.Tensor) -> tf.Tensor:
    """The last of the running sums of weights `(B, N)`; by rounding, `tf.reduce_sum` may differ."""
    return tf.cumsum(weights, axis=-1)[:, -1]


def _place(weights: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Where the running sum of weights `(B, N)` passes `amount` `(B,)`; never at a zero."""
    place = tf.reduce_sum(tf.cast(tf.cumsum(weights, axis=-1) <= amount[:, None], tf.int32), axis=-1)
    return tf.minimum(place, _last(weights))  # by rounding, the amount may reach the total


def _last(weights: tf.Tensor) -> tf.Tensor:
    """The place of the last weight that is not zero, `(B,)`."""
    return tf.reduce_max(tf.where(weights > 0, tf.range(tf.shape(weights)[1]), 0), axis=-1)


# Random numbers. TensorFlow's stateless functions take one seed for a whole tensor, so the number of a row would depend
# on its place in the batch. These numbers depend only on the row's seed and the number of the step: SplitMix64 of
# Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", whose constants are written as signed
# numbers here.

_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def random_streams(seeds: tf.Tensor) -> tf.Tensor:
    """The first state of each row's generator. Mixing keeps neighbouring seeds from giving the same numbers."""
    return _mixed(tf.cast(seeds, tf.int64) + _STEP)


def _advanced(streams: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    return streams + tf.cast(steps, tf.int64) * _STEP


def counted_uniform(streams: tf.Tensor, counter: Any) -> tf.Tensor:
    """Uniform numbers from 0 to below 1, multiples of 2^-24, from `random_streams` and the number of a step.

    Args:
        streams: int64, any shape.
        counter: an integer, or an integer tensor of the same shape.

    Returns:
        float32 of the same shape.
    """
    mixed = _mixed(_advanced(streams, tf.cast(counter, tf.int64) + 1))
    return tf.cast(_shifted(mixed, 40), tf.float32) * 2.0**-24


def _mixed(state: tf.Tensor) -> tf.Tensor:
    """SplitMix64's finaliser: every bit of the result depends on every bit of the state."""
    state = (state ^ _shifted(state, 30)) * _FACTORS[0]
    state = (state ^ _shifted(state, 27)) * _FACTORS[1]
    return state ^ _shifted(state, 31)


def _shifted(state: tf.Tensor, bits: int) -> tf.Tensor:
    """A shift to the right that fills with zeros. Int64's own shift repeats the sign."""
    return tf.bitwise.right_shift(state, tf.constant(bits, tf.int64)) & ((1 << (64 - bits)) - 1)


class StopStrings:
    """Ends a row when one of its stop strings has been written: a `watch` of `sample` and `generate`.

    A string may begin and end inside tokens.

    Axes: B batch, N strings of a row, R rows that are left, W bytes looked at, L bytes of the longest string.

    `is_needed`, a boolean scalar tensor, says whether there is a string at all.

    The state's `kept` `(B,)`, int32, is how many bytes of a row's text come before the first of its strings; -1 if none
    was written.

    Args:
        tokenizer: the tokenizer whose ids write the text that is watched.
        strings: `(B, N)`; an empty string is ignored.
        max_length: only this many bytes at the start of a string count.
    """

    def __init__(self, tokenizer: Tokenizer, strings: tf.Tensor, max_length: int):
        self._tokenizer, self._max_length = tokenizer, max_length
        self._strings = tf.strings.substr(tf.convert_to_tensor(strings), 0, max_length)
        self.is_needed = tf.reduce_any(self._strings != "")
        # Only the new token and the end of the text before it are compared: a string may have begun there.
        self._window = max_length - 1 + tokenizer.longest_written

    def start(self) -> dict[str, tf.Tensor]:
        """The state before anything is written."""
        rows = tf.shape(self._strings)[0]
        zeros = tf.zeros([rows], tf.int32)
        return {"strings": self._strings, "end": tf.fill([rows], ""), "written": zeros, "kept": zeros - 1}

    def ended(self, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Which rows have written a string, `(R,)`."""
        return state["kept"] >= 0

    def step(
        self, tokens: tf.Tensor, open_rows: tf.Tensor, state: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compares the bytes of the new tokens `(R,)` with the strings; returns the rows that end and the new state."""
        return tf.cond(
            self.is_needed,
            lambda: self._watched(tokens, open_rows, state),
            lambda: (tf.zeros_like(open_rows), state),
        )

    def _watched(
        self, tokens: tf.Tensor, open_rows: tf.Tensor, state: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        text = state["end"] + tf.where(open_rows, self._tokenizer.written(tokens), "")
        lengths = tf.strings.length(text)
        first = self._first(text, lengths, state["strings"])
        ends = open_rows & (first >= 0)
        before = state["written"] - tf.strings.length(state["end"])
        tail = tf.minimum(lengths, self._max_length - 1)
        return ends, {
            "strings": state["strings"],
            "end": tf.strings.substr(text, lengths - tail, tail),
            "written": before + lengths,
            "kept": tf.where(ends, before + first, state["kept"]),
        }

    def _first(self, text: tf.Tensor, lengths: tf.Tensor, strings: tf.Tensor) -> tf.Tensor:
        """Where the first of the strings `(R, N)` begins in each text `(R,)`; -1 where there is none."""
        places, offsets = tf.range(self._window), tf.range(self._max_length)
        text = tf.io.decode_raw(text, tf.uint8, fixed_length=self._window)  # (R, W), zeros behind the text
        windows = tf.gather(tf.pad(text, [[0, 0], [0, self._max_length]]), places[:, None] + offsets, axis=1)
        sizes = tf.strings.length(strings)[:, :, None]  # (R, N, 1)
        wanted = tf.io.decode_raw(strings, tf.uint8, fixed_length=self._max_length)  # (R, N, L)
        same = (windows[:, None] == wanted[:, :, None]) | (offsets >= sizes[..., None])  # (R, N, W, L)
        found = tf.reduce_all(same, axis=-1) & (sizes > 0) & (places + sizes <= lengths[:, None, None])  # (R, N, W)
        first = tf.reduce_min(tf.where(found, places, self._window), axis=[1, 2])  # (R,)
        return tf.where(first < self._window, first, -1)
