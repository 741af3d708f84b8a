"""The loop of greedy decoding, beam search and sampling. Rows that have ended are dropped on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from zoo.layers.functions.tensors import compiled_by_xla

Nest = Any  # of tensors whose first axis has the rows

Function = TypeVar("Function", bound=Callable[..., Any])

# Whether one thread runs all of a step; None outside `loops_for_a_server`.
_ON_ONE_THREAD: ContextVar[bool | None] = ContextVar("on_one_thread", default=None)


def not_converted(function: Function) -> Function:
    """The function, called as it is inside of a `tf.function`.

    Without this, AutoGraph, which `tf.function` uses unless told otherwise, would rewrite all code of decoding and of
    the model first. It finds nothing to change there, and a graph would take five times as long to trace.
    """
    return tf.autograph.experimental.do_not_convert(function)


@contextmanager
def loops_for_a_server(on_one_thread: bool = True) -> Iterator[None]:
    """Loops that are traced inside run each step as a function call, which is faster on a CPU.

    TensorFlow by default turns a loop into nodes that its executor schedules one by one. Each loop variable then needs
    three more nodes in every step, and the operations of a step move between threads. A step that is a function is run
    in one place, and if there are no branches in it, by the executor of one thread, which has no queue at all. One text
    is written in 0.65 to 0.95 of the time (benchmarks/notes.md, serving.py).

    It is for exports: on a GPU, a function's operations would all have to be there.

    Args:
        on_one_thread: False leaves the executor of one thread out, for a model whose step has parts that two threads
            should compute at the same time.
    """
    token = _ON_ONE_THREAD.set(on_one_thread)
    try:
        yield
    finally:
        _ON_ONE_THREAD.reset(token)


class PhaseForm(NamedTuple):
    """Another form of `moving` inside a phase, such as a cache with room for more tokens, which steps write in place.

    Attributes:
        steps: the most steps of a phase.
        enter: `enter(position, moving) -> moving`, before the first step. The new form need not have the rows first.
        leave: `leave(position, moving) -> moving`, after the last step, back to the form with the rows first.
    """

    steps: int
    enter: Callable[[tf.Tensor, Any], Any]
    leave: Callable[[tf.Tensor, Any], Any]


def run_phases(
    step: Callable[..., tuple],
    dtypes: Sequence[tf.DType],
    fixed: Nest,
    open_rows: tf.Tensor,
    moving: Nest,
    found: Any = (),
    form: PhaseForm | None = None,
) -> tuple[Nest, tuple[tf.Tensor, ...]]:
    """Steps the rows of a batch at least once and until all are closed, and drops closed rows on the way.

    Stepping a closed row costs as much as an open one. So when half of the rows are closed, a phase ends, and the next
    phase steps only the open rows. There are at most 1 + log2 B phases, and with a `form` one more for each
    `form.steps` steps.

    Axes: B batch, R rows of a phase, T steps of the longest row. A nest of tensors has the rows as their first axis.

    Args:
        step: `step(position, fixed, open_rows, moving, found) -> (open_rows, moving, found, written)`, for R rows. A
            closed row stays closed, and its `found` unchanged.
        dtypes: a tuple, the types of the tensors `(R, ...)` that a step writes.
        fixed: nest of the tensors of a row that never change.
        open_rows: bool `(B,)`.
        moving: nest of the tensors that change with each step and are needed only while a row is open.
        found: nest of the tensors that change with each step and are results of the row.
        form: a `PhaseForm`, for another form of `moving` inside a phase; None for the same form.

    Returns:
        `found` of all rows, and a tuple of everything that was written `(T, B, ...)`, zero where a row was dropped.

    Raises:
        ValueError: XLA compiles the graph.
    """
    if compiled_by_xla(open_rows):
        raise ValueError(
            "XLA cannot compile a decoding loop: rows that have ended are dropped, and caches grow. Decode outside of "
            "`tf.function(jit_compile=True)`; if a step of your own Keras model decodes, compile that model with "
            "`jit_compile=False`."
        )
    # Two nested loops: the outer one has a turn for each phase, the inner one for each step. An op in the inner body
    # costs 5 to 10 us a step, so everything about dropping rows is done between phases.
    nowhere = tf.zeros_like(open_rows, tf.int32)  # (B,)

    def phase(number, position, _more, rows, fixed, open_rows, moving, found, all_found, all_written):
        size, first = tf.shape(rows)[0], position
        half = size // 2
        if form:
            moving, last = form.enter(first, moving), first + form.steps - 1

        def body(position, _more, open_rows, moving, found, arrays):
            open_rows, moving, found, written = step(position, fixed, open_rows, moving, found)
            arrays = tuple(array.write(position, each) for array, each in zip(arrays, written, strict=True))
            more = tf.reduce_sum(tf.cast(open_rows, tf.int32)) > half
            more = more & (position < last) if form else more
            return position + 1, more, open_rows, moving, found, arrays

        start = position, tf.constant(True), open_rows, moving, found
        position, _, open_rows, moving, found, arrays = tf.while_loop(
            lambda position, more, *_: more,
            body,
            (*start, _arrays(dtypes)),
            shape_invariants=(*tf.nest.map_structure(_loose_shape, start), _any_shape(dtypes)),
        )
        on_one_thread = _ON_ONE_THREAD.get()
        if on_one_thread is not None and not tf.executing_eagerly():
            _as_function_calls(position.op, on_one_thread)
        moving = form.leave(position, moving) if form else moving

        # The place of each row of the batch in this phase. Rows that are not in it have place 0, which holds zeros.
        places = tf.tensor_scatter_nd_update(nowhere, rows[:, None], 1 + tf.range(size))  # (B,)
        written = (array.gather(tf.range(first, position)) for array in arrays)  # (steps, R, ...)
        written = (tf.gather(tf.concat([tf.zeros_like(each[:, :1]), each], 1), places, axis=1) for each in written)
        all_written = tuple(array.write(number, each) for array, each in zip(all_written, written, strict=True))
        all_found = tf.nest.map_structure(
            lambda every, new: tf.tensor_scatter_nd_update(every, rows[:, None], new), all_found, found
        )
        left = tf.where(open_rows)[:, 0]  # (R of the next phase,)
        of_rows = rows, fixed, open_rows, moving, found
        of_rows = tf.nest.map_structure(lambda each: tf.gather(each, left), of_rows)
        return number + 1, position, tf.size(left) > 0, *of_rows, all_found, all_written

    zero, rows = tf.constant(0), tf.range(tf.size(open_rows))
    numbers, of_rows = (zero, zero, tf.constant(True)), (open_rows, moving, found)
    *_, found, written = tf.while_loop(
        lambda number, position, more, *_: more,
        phase,
        (*numbers, rows, fixed, *of_rows, found, _arrays(dtypes)),
        shape_invariants=(
            *(each.shape for each in numbers),
            *tf.nest.map_structure(lambda each: tf.TensorShape([None]).concatenate(each.shape[1:]), (rows, fixed)),
            *tf.nest.map_structure(_loose_shape, of_rows),
            tf.nest.map_structure(lambda each: each.shape, found),
            _any_shape(dtypes),
        ),
    )
    return found, tuple(array.concat() for array in written)  # (T, B, ...)


def _as_function_calls(output: tf.Operation, on_one_thread: bool) -> None:
    """Keeps the loop of an output as one operation, instead of the nodes that it would be turned into."""
    loop = output if output.type.endswith("While") else output.inputs[0].op
    # There is no public argument for these attributes. `_executor` is read where the function is instantiated.
    loop._set_attr("_lower_using_switch_merge", attr_value_pb2.AttrValue(b=False))
    functions = {name: loop.get_attr(name) for name in ("cond", "body")}
    if not on_one_thread or any(_calls_functions(loop.graph, function.name) for function in functions.values()):
        return  # with one thread, an operation that waits for a function, such as a branch, would wait for ever
    for name, function in functions.items():
        function.attr["_executor"].s = b"SINGLE_THREADED_EXECUTOR"
        loop._set_attr(name, attr_value_pb2.AttrValue(func=function))


def _calls_functions(graph: tf.Graph, name: str) -> bool:
    """Whether a function of the graph has an operation that calls functions, such as a branch."""
    definition = graph._get_function(name).cached_definition
    return any(attr.HasField("func") or attr.list.func for node in definition.node_def for attr in node.attr.values())


def _arrays(dtypes: Sequence[tf.DType]) -> tuple[tf.TensorArray, ...]:
    # Phases differ in length, which a graph does not know and eager arrays would refuse.
    infer_shape = not tf.executing_eagerly()
    return tuple(tf.TensorArray(dtype, size=1, dynamic_size=True, infer_shape=infer_shape) for dtype in dtypes)


def _any_shape(dtypes: Sequence[tf.DType]) -> tuple[tf.TensorShape, ...]:
    return tuple(tf.TensorShape(None) for _ in dtypes)


def _loose_shape(tensor: Any) -> Any:
    """The shape of a loop variable with only the last axis fixed: rows are dropped, and a cache may grow."""
    if tensor.shape.rank in (None, 0):
        return tensor.shape
    if tensor.shape.rank == 1:
        return tf.TensorShape([None])
    return tf.TensorShape([None] * (tensor.shape.rank - 1) + [tensor.shape[-1]])


def in_halves(
    decode: Callable[..., tuple], results: Sequence[tf.TensorSpec], rows: Sequence[tf.Tensor], least: int
) -> tuple[tf.Tensor, ...]:
    """Decodes two halves of the rows, each in its own loop, which a runtime with two threads runs side by side.

    A second thread for an operation gains little: most of them are too small to be shared. A loop over the halves does
    not help: with any `parallel_iterations`, the loops inside it ran one after another. A batch with few rows is
    decoded as a whole.

    Args:
        decode: `decode(*rows) -> tuple of tensors`, whose first axis has the rows.
        results: a tuple of `tf.TensorSpec`, of the tensors that it gives.
        rows: a tuple of tensors `(B, ...)`.
        least: the fewest rows that a half may have. Two small halves take more time together than one whole, which
            counts where other requests wait for the threads.

    Returns:
        The results of `decode` for all rows. A half that is shorter along another axis is padded with zeros.
    """
    number = tf.shape(rows[0])[0]
    many = number >= 2 * least
    half = tf.where(many, number // 2, number)
    first = decode(*(each[:half] for each in rows))
    second = tf.cond(
        many,
        lambda: tuple(decode(*(each[half:] for each in rows))),
        # No rows: every axis whose size is not known is empty.
        lambda: tuple(tf.zeros([size or 0 for size in each.shape], each.dtype) for each in results),
    )
    return tuple(_joined(*both) for both in zip(first, second, strict=True))


def _joined(one: Nest, other: Nest) -> Nest:
    shape = tf.maximum(tf.shape(one), tf.shape(other))[1:]
    behind = (tf.pad((shape - tf.shape(each)[1:])[:, None], [[1, 0], [1, 0]]) for each in (one, other))
    return tf.concat([tf.pad(each, extra) for each, extra in zip((one, other), behind, strict=True)], axis=0)
