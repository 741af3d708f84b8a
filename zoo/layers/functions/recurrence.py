"""A loop over time around any step function, on every Keras backend."""

from typing import Any

import keras

from zoo.layers.functions.tensors import Tensor


class _Step:
    """What `keras.layers.RNN` asks of a cell, around a plain function."""

    def __init__(self, function: Any, output_size: int, compute_dtype: str):
        self.function = function
        self.state_size = self.output_size = output_size
        self.compute_dtype = compute_dtype

    def call(self, inputs: Tensor, states: Any) -> Any:
        return self.function(inputs, tuple(states))

    __call__ = call


def recur(
    function: Any,
    inputs: Tensor,
    initial_states: Any,
    output_size: int,
    compute_dtype: str,
    mask: Tensor | None = None,
    output_dtype: str | None = None,
) -> Any:
    """Calls a function once for each time step and returns the stacked outputs.

    The loop is `keras.layers.RNN`, the only public loop of Keras that stacks outputs, has gradients and compiles on
    every backend. Unlike a cell, the function may also read tensors from outside the loop.

    Args:
        function: `(inputs (B, D), states) -> (output (B, output_size), states)`.
        inputs: `(B, T, D)`.
        initial_states: tuple of tensors with leading axis B.
        output_size: width of the output; None if known at run time only.
        compute_dtype: dtype of states.
        mask: boolean `(B, T)`; where False, the states stay and the output is the last one. None steps everywhere.
        output_dtype: dtype of outputs; None for that of states.

    Returns:
        The outputs `(B, T, output_size)`.

    Raises:
        ValueError: T is 0.
    """
    if inputs.shape[1] == 0:
        raise ValueError(f"A sequence needs at least one position. Received: inputs of shape {tuple(inputs.shape)}")
    step = _Step(function, output_size, compute_dtype)
    # The loop casts its outputs to its own dtype. Without autocasting, it leaves the inputs as they are.
    options: dict[str, Any] = dict(dtype=output_dtype or compute_dtype, autocast=False)
    loop = keras.layers.RNN(step, return_sequences=True, name="recurrence", **options)
    return loop(inputs, initial_state=list(initial_states), mask=mask)
