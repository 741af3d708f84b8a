"""The loop that every way of decoding shares: many rows, of which fewer and fewer are still open."""

import tensorflow as tf


def run_phases(step, dtypes, fixed, open_rows, moving, found=()):
    """Steps the rows of a batch until none is open, at least once, and leaves out the closed ones on the way.

    A closed row is stepped at the cost of an open one. So when half of the rows are closed, the phase ends, and the
    next one steps the open rows alone. There are at most 1 + log2 B phases, and a step does nothing more for them.

    Axes: B batch, R rows of a phase, T steps of the longest row. A nest of tensors has the rows as their first axis.

    Args:
        step: `step(position, fixed, open_rows, moving, found) -> (open_rows, moving, found, written)`, for R rows. A
            row that is closed stays closed, and its `found` as it is.
        dtypes: a tuple, of what a step writes: as many tensors `(R, ...)`.
        fixed: nest of what belongs to a row and stays.
        open_rows: bool `(B,)`.
        moving: nest of what changes, and only an open row needs.
        found: nest of what changes, and is the result of a row.

    Returns:
        `found` of all rows, and a tuple of all that was written `(T, B, ...)`, zero where a row was left out.
    """
    nowhere = tf.zeros_like(open_rows, tf.int32)

    def phase(number, position, _more, rows, fixed, open_rows, moving, found, all_found, all_written):
        size, first = tf.shape(rows)[0], position
        half = size // 2

        def body(position, _more, open_rows, moving, found, arrays):
            open_rows, moving, found, written = step(position, fixed, open_rows, moving, found)
            arrays = tuple(array.write(position, each) for array, each in zip(arrays, written, strict=True))
            more = tf.reduce_sum(tf.cast(open_rows, tf.int32)) > half
            return position + 1, more, open_rows, moving, found, arrays

        start = position, tf.constant(True), open_rows, moving, found
        position, _, open_rows, moving, found, arrays = tf.while_loop(
            lambda position, more, *_: more,
            body,
            (*start, _arrays(dtypes)),
            shape_invariants=(*tf.nest.map_structure(_loose_shape, start), _any_shape(dtypes)),
        )

        # Back to the rows of the batch: where each stands in this phase, 0 for those left out, which read zeros there.
        places = tf.tensor_scatter_nd_update(nowhere, rows[:, None], 1 + tf.range(size))
        written = (array.gather(tf.range(first, position)) for array in arrays)
        written = (tf.gather(tf.concat([tf.zeros_like(each[:, :1]), each], 1), places, axis=1) for each in written)
        all_written = tuple(array.write(number, each) for array, each in zip(all_written, written, strict=True))
        all_found = tf.nest.map_structure(
            lambda every, new: tf.tensor_scatter_nd_update(every, rows[:, None], new), all_found, found
        )
        left = tf.where(open_rows)[:, 0]
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
    return found, tuple(array.concat() for array in written)


def _arrays(dtypes):
    # Phases differ in length, which a graph does not know and eager arrays would refuse.
    infer_shape = not tf.executing_eagerly()
    return tuple(tf.TensorArray(dtype, size=1, dynamic_size=True, infer_shape=infer_shape) for dtype in dtypes)


def _any_shape(dtypes):
    return tuple(tf.TensorShape(None) for _ in dtypes)


def _loose_shape(tensor):
    """A loop variable's shape with all axes but the last free: rows are left out, and a cache may grow."""
    if tensor.shape.rank in (None, 0):
        return tensor.shape
    if tensor.shape.rank == 1:
        return tf.TensorShape([None])
    return tf.TensorShape([None] * (tensor.shape.rank - 1) + [tensor.shape[-1]])
