"""The loop: dropping closed rows changes only the time, not the results; and two halves of a batch."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.decoding import beam_search, greedy
from zoo.decoding.loop import in_halves, loops_for_a_server, run_phases
from zoo.models import RNNSeq2Seq, Transformer

END, A, VOCABULARY = 3, 4, 7
INTS = tf.TensorSpec([None], tf.int32)


def step(position, fixed, open_rows, moving, found):
    """A row stays open for `length` steps, and keeps a growing history.

    What is written is the row's number, how many rows are stepped with it, and the sum of its history.
    """
    number, length = fixed["number"], fixed["length"]
    history = tf.concat([moving, number[:, None, None] * (position + 1)], axis=1)
    total = tf.reduce_sum(history, axis=[1, 2])
    found = (tf.where(open_rows, total, found[0]),)
    written = tf.where(open_rows, number, 0), tf.fill(tf.shape(number), tf.size(number)), total[:, None]
    return open_rows & (position + 1 < length), history, found, written


def run(lengths):
    """What is found `(B,)`, and what is written."""
    rows = tf.size(lengths)
    fixed = {"number": 1 + tf.range(rows), "length": lengths}
    moving, found = tf.zeros([rows, 0, 1], tf.int32), (tf.zeros([rows], tf.int32),)
    return run_phases(step, (tf.int32, tf.int32, tf.int32), fixed, lengths > 0, moving, found)


run_in_graph = tf.function(run, input_signature=[INTS], autograph=False)
LENGTHS = st.lists(st.integers(0, 9), max_size=20)


@pytest.mark.parametrize(
    ("lengths", "stepped"),
    [
        ([4, 1, 2, 3], [4, 4, 2, 1]),  # two of four are left after two steps, and one of two after three
        ([1, 1, 1, 5, 1, 1, 1, 1], [8, 1, 1, 1, 1]),
        ([3, 1, 1, 3, 1, 3, 3, 3], [8, 8, 8]),  # five of eight stay
        ([2, 0], [2, 1]),
        ([0, 0], [2]),  # at least one step
        ([], [0]),
    ],
)
def test_the_rest_goes_on_alone_when_half_of_the_rows_are_closed(lengths, stepped):
    _, (numbers, sizes, _) = run_in_graph(tf.constant(lengths, tf.int32))
    assert numbers.shape == (len(stepped), len(lengths))
    for time, size in enumerate(stepped):
        assert set(np.array(sizes[time])) <= {size, 0}
        assert np.count_nonzero(sizes[time]) == size


def check(call, lengths):
    (found,), (numbers, sizes, totals) = call(tf.constant(lengths, tf.int32))
    steps = max([1, *lengths])
    assert numbers.shape == sizes.shape == (steps, len(lengths)) and totals.shape == (steps, len(lengths), 1)
    for row, length in enumerate(lengths):
        sums = (row + 1) * np.cumsum(np.arange(1, steps + 1))
        np.testing.assert_array_equal(numbers[:, row], (row + 1) * (np.arange(steps) < length))
        np.testing.assert_array_equal(totals[:length, row, 0], sums[:length])
        assert found[row] == (sums[length - 1] if length else 0)
    # Of those that are stepped more than half are open, but at the first step.
    still_open = (np.array(lengths, int) > np.arange(steps)[:, None]).sum(1)
    stepped = np.count_nonzero(sizes, axis=1)
    assert (still_open <= stepped).all() and (stepped[1:] < 2 * still_open[1:]).all()
    # Nothing is read of a row that was left out.
    np.testing.assert_array_equal(np.array(totals)[..., 0] != 0, np.array(sizes) != 0)


@given(LENGTHS)
@settings(max_examples=60, deadline=None)
def test_rows_of_any_lengths(lengths):
    check(run_in_graph, lengths)


def test_rows_of_different_lengths_outside_of_a_graph():
    for lengths in ([5, 0, 3, 3, 9, 1, 2], [0], []):
        check(run, lengths)


def test_rows_need_have_nothing_of_their_own():
    """A memory may be empty, and what is found too."""

    def bare(position, fixed, open_rows, moving, found):
        assert fixed == {} and found == ()
        return open_rows & (position + 1 < moving), moving, found, (moving,)

    found, (written,) = run_phases(bare, (tf.int32,), {}, tf.fill([3], True), tf.constant([1, 3, 1]))
    assert found == ()
    np.testing.assert_array_equal(written, [[1, 3, 1], [0, 3, 0], [0, 3, 0]])


def test_static_sizes_stay_known():
    @tf.function(input_signature=[tf.TensorSpec([8], tf.int32), tf.TensorSpec([8, 5, 2])], autograph=False)
    def call(lengths, memory):
        def one(position, fixed, open_rows, moving, found):
            assert fixed[1].shape == (None, 5, 2)
            return open_rows & (position + 1 < fixed[0]), moving, moving[:, 0, :], (moving,)

        start = lengths > 0, memory[:, :1], tf.zeros([8, 2])
        found, (written,) = run_phases(one, (tf.float32,), (lengths, memory), *start)
        assert found.shape == (8, 2) and written.shape.rank == 4 and written.shape[3] == 2
        return found

    memory = tf.random.normal([8, 5, 2])
    np.testing.assert_array_equal(call(tf.constant([9, 1, 1, 1, 1, 1, 1, 2]), memory), memory[:, 0])


# Loops for a server.


def run_with_a_branch(lengths):
    """As `run`, with a branch in each step."""

    def branching(position, fixed, open_rows, moving, found):
        same = tf.cond(position % 2 == 0, lambda: fixed["number"] + 0, lambda: fixed["number"] * 1)
        return step(position, fixed | {"number": same}, open_rows, moving, found)

    fixed = {"number": 1 + tf.range(tf.size(lengths)), "length": lengths}
    moving, found = tf.zeros([tf.size(lengths), 0, 1], tf.int32), (tf.zeros_like(lengths),)
    return run_phases(branching, (tf.int32, tf.int32, tf.int32), fixed, lengths > 0, moving, found)


def loops(function):
    """Of each loop: whether it is turned into nodes, and which executors run its functions."""
    library = function.graph.as_graph_def().library.function
    nodes = [node for each in library for node in each.node_def if node.op.endswith("While")]
    return [
        (
            node.attr["_lower_using_switch_merge"].b,
            {node.attr[name].func.attr["_executor"].s for name in ("cond", "body")},
        )
        for node in [*function.graph.as_graph_def().node, *nodes]
        if node.op.endswith("While")
    ]


@pytest.mark.parametrize(
    ("call", "on_one_thread", "executor"),
    [(run, True, b"SINGLE_THREADED_EXECUTOR"), (run, False, b""), (run_with_a_branch, True, b"")],
)
def test_a_servers_loop_stays_whole(call, on_one_thread, executor):
    with loops_for_a_server(on_one_thread):
        function = tf.function(call, input_signature=[INTS], autograph=False).get_concrete_function()
    # The loop over phases, and in it the one over steps.
    assert loops(function) == [(True, {b""}), (False, {executor})]
    for lengths in ([4, 1, 2, 3], [1, 1, 1, 5, 1, 1, 1, 1], [0, 0], []):
        check(function, lengths)
    # One thread is enough: no step waits for another thread.
    graph = tf.Graph()
    with graph.as_default():
        outputs = tf.graph_util.import_graph_def(
            function.graph.as_graph_def(), return_elements=[each.name for each in function.graph.outputs]
        )
        (lengths,) = (each for each in graph.get_operations() if each.type == "Placeholder")
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        options = tf.compat.v1.RunOptions(timeout_in_ms=60_000)
        found, *written = session.run(outputs, {lengths.outputs[0]: [4, 1, 2, 3]}, options=options)
    check(lambda _: ((found,), written), [4, 1, 2, 3])


def test_other_loops_are_as_tensorflow_makes_them():
    with loops_for_a_server():
        check(run, [5, 0, 3])  # outside of a graph there are no loops to change
    assert loops(run_in_graph.get_concrete_function()) == [(True, {b""})] * 2


def test_xla_is_refused():
    """Its own message names nothing that a user has written."""
    function = tf.function(run, input_signature=[INTS], autograph=False, jit_compile=True)
    with pytest.raises(ValueError, match=r"^XLA cannot compile a decoding loop: .*`jit_compile=False`\.$"):
        function(tf.constant([2, 1]))


# The two searches.


class Counting:
    """The token a until a row's length, which is its source `(B,)`, and then the end; it counts the rows stepped.

    What it attends to is the row's length too, of which memory and cache hold one each.
    """

    def __init__(self):
        self.rows = tf.Variable(0, trainable=False)

    def begin(self, source):
        return (source,), [source[:, None, None]]

    def step(self, tokens, position, memory, cache):
        self.rows.assign_add(tf.shape(tokens)[0])
        end = tf.cast(position + 1 >= cache[0][..., None, 0], tf.float32)
        logits = 30.0 * tf.one_hot(A, VOCABULARY) + (200 * end - 100) * tf.one_hot(END, VOCABULARY)
        return logits, cache, tf.one_hot(cache[0][..., 0], 12)


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_a_graph_is_traced_without_autograph(search):
    """By default `tf.function` would rewrite all code first, which takes five times as long."""

    class Watching(Counting):
        def begin(self, source):
            self.status = tf.__internal__.autograph.control_status_ctx().status.name
            return super().begin(source)

    model = Watching()

    @tf.function(input_signature=[INTS])
    def ids(source):
        return search(model, source, 9).ids

    ids.get_concrete_function()
    assert model.status == "DISABLED"


def greedily(model, source, limits):
    found = greedy(model, source, limits, return_weights=True)
    return found.ids[:, None], found.weights[:, None]


def by_a_beam(model, source, limits):
    found = beam_search(model, source, limits, beam_size=2, return_weights=True)
    return found.ids, found.weights


@pytest.mark.parametrize("search", [greedily, by_a_beam])
def test_a_search_steps_few_rows_but_the_open_ones(search):
    model, lengths = Counting(), [2, 2, 11, 2, 2, 1, 2, 2]
    ids, weights = tf.function(search, autograph=False)(model, tf.constant(lengths), tf.fill([8], 20))
    # All eight twice, and then one.
    assert model.rows == 2 * 8 + 9
    time = np.arange(11)
    for row, length in enumerate(lengths):
        expected = np.where(time < length - 1, A, END) * (time < length)
        np.testing.assert_array_equal(ids[row, 0], expected)
        np.testing.assert_array_equal(weights[row, 0], np.eye(12)[[length] * 11] * (time < length)[:, None])


SIZES = dict(source_vocabulary_size=11, target_vocabulary_size=VOCABULARY, units=8)
ROWS = 12
SOURCES = np.random.default_rng(0).integers(4, 11, (ROWS, 5)).astype("int32")
SOURCES[::3, 3:] = SOURCES[1::3, 4:] = 0


@pytest.mark.long
@pytest.mark.parametrize("family", [Transformer, RNNSeq2Seq])
def test_a_batch_of_any_limits_is_its_rows_alone(family, randomize):
    transformer = dict(num_heads=2, feed_forward_units=6, encoder_layers=1, decoder_layers=1)
    # With this seed, some rows end early, and no two of the best scores are so close that rounding decides.
    model = randomize(family(**SIZES, **(transformer if family is Transformer else {"cell": "lstm"})), 5, scale=1.0)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), INTS], autograph=False)
    def searches(source, limits):
        """By name, with a first axis of rows and the steps as the last one."""
        one = greedy(model, source, limits, return_weights=True)
        best = beam_search(model, source, limits, 3, 0.6, 2, return_weights=True)
        return {
            "greedy": one.ids,
            "greedy's log-probabilities": one.token_log_probabilities,
            "greedy's weights": tf.transpose(one.weights, [0, 2, 1]),
            "beam": best.ids,
            "beam's scores": best.scores[..., None],
            "beam's weights": tf.transpose(best.weights, [0, 1, 3, 2]),
        }

    def together(rows, limits):
        return {name: np.array(each) for name, each in searches(SOURCES[rows], np.array(limits, "int32")).items()}

    @functools.cache
    def alone(row, limit):
        return together([row], [limit])

    @given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.sampled_from([0, 1, 2, 3, 5, 9])), max_size=10))
    @settings(max_examples=15, deadline=None)
    def check(batch):
        rows, limits = [row for row, _ in batch], [limit for _, limit in batch]
        found = together(rows, limits)
        for index, pair in enumerate(batch):
            for name, expected in alone(*pair).items():
                result, length = found[name][index], expected.shape[-1]
                np.testing.assert_allclose(result[..., :length], expected[0], atol=1e-5, err_msg=name)
                assert not np.any(result[..., length:]), name

    check()


# Two halves.

RESULTS = tf.TensorSpec([None, 2, None], tf.int32), tf.TensorSpec([None], tf.float32)


def decoded(numbers, factors):
    """The result has as many columns as the largest number; its content depends on the row alone."""
    columns = tf.range(tf.maximum(tf.reduce_max(numbers), 0))
    ids = tf.where(columns < numbers[:, None], numbers[:, None], 0)
    return tf.stack([ids, -ids], axis=1), tf.cast(numbers, tf.float32) * factors


@pytest.mark.parametrize("least", [40, 10])
def test_two_halves_give_what_one_whole_gives(least):
    """Of batches that are decoded whole and in halves, of which either may be the longer."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None])], autograph=False)
    def run(*columns):
        return in_halves(decoded, RESULTS, columns, least)

    for rows in (0, 1, 33, 101):
        for order in (1, -1):
            numbers = np.sort(np.random.default_rng(0).integers(1, 9, rows)).astype("int32")[::order]
            factors = np.linspace(0, 1, rows, dtype="float32")
            for one, other in zip(run(numbers, factors), decoded(tf.constant(numbers), factors), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("rows", "least", "sizes"), [(79, 40, [79]), (81, 40, [40, 41]), (16, 8, [8, 8])])
def test_few_rows_stay_together(rows, least, sizes):
    seen = []

    def decode(numbers):
        seen.append(int(tf.size(numbers)))
        return (numbers,)

    in_halves(decode, (tf.TensorSpec([None], tf.int32),), (tf.range(rows),), least)
    assert seen == sizes
