"""The recurrent decoder that looks back at the source: Bahdanau, Cho and Bengio 2014, section 3.1."""

from typing import Any, Self

import keras
from keras import ops

from zoo.layers.checks import check_built, check_built_width, check_positive, check_width
from zoo.layers.functions.axes import check_rows, token_mask
from zoo.layers.functions.recurrence import recur
from zoo.layers.functions.tensors import Shape, Tensor, attached_mask, scores_dtype
from zoo.layers.outer_layer import OuterLayer, keep_states
from zoo.layers.recurrent_cells import make_cell
from zoo.layers.scored_attention import ScoredAttention


@keras.saving.register_keras_serializable(package="zoo")
class AttentionDecoder(OuterLayer):
    """A recurrent decoder: the input of each step is the last token and a context. The *previous* state is the query.

        c_i = attention(query=s_{i-1}, memory)
        s_i = cell([E y_{i-1}; c_i], s_{i-1})

    If `conditional`, the query is a state that has already read the last token, and a second cell reads the context
    (Sennrich et al. 2017, section 2):

        s'_i = cell(E y_{i-1}, s_{i-1})
        c_i = attention(query=s'_i, memory)
        s_i = context_cell(c_i, s'_i)

    Without attention c_i is the same vector at every step, the "thought vector" of Cho et al. 2014.

    The cell's kernel is one weight for [token; context]. Its rows for tokens are applied to all steps at once, before
    the loop. Its rows for contexts are applied inside the loop, or also before it if the context is fixed.

    Axes: B batch, T target length, S source length, E embedding width, D memory width, K hypotheses of a source row.

    Args:
        units: width of the state.
        attention: a `ScoredAttention`, or None for a fixed context.
        cell: "gru" or "lstm".
        conditional: whether the last token is read before the attention, and the context after it.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: the embedded previous tokens `(B, T, E)`. A mask that Keras attached to them is passed on with the
            outputs. Where it is False, the states do not change, as in Keras' own recurrent layers.
        initial_states: list of the cell's states, one for a GRU and two for an LSTM, each `(B, units)`.
        memory: the annotations `(B, S, D)`; without attention the thought vector `(B, D)`.
        mask: boolean `(B, S)`, or `(1, S)` for all rows, True where the memory may be attended to; None takes the
            mask that Keras attached to the memory, or allows all. Not used without attention.
        return_attention_scores: whether to return the weights too.

    Returns:
        states: hidden states s_i `(B, T, units)`.
        contexts: c_i `(B, T, D)`.
        If asked for, the attention weights `(B, T, S)` in float32.

    Raises:
        ValueError: `units` is not a positive integer, `attention` is not such a layer, there is no such cell,
            `conditional` without attention, initial states that do not fit the cell, inputs, memory or mask of a wrong
            shape, or unequal numbers of rows.

    References: https://arxiv.org/abs/1409.0473, https://arxiv.org/abs/1406.1078, https://arxiv.org/abs/1703.04357
    """

    def __init__(self, units: int, attention: Any = None, cell: str = "gru", conditional: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_positive("units", units)
        if attention is not None and not isinstance(attention, ScoredAttention):
            raise ValueError(
                "`attention` must be a layer such as AdditiveAttention(units), or None. Received: "
                f"attention={attention!r}"
            )
        if conditional and attention is None:
            raise ValueError("`conditional` needs attention; this decoder has a fixed context.")
        self.attention: Any = attention
        self.cell = cell
        self.conditional = conditional
        self.recurrent_cell = make_cell(cell, units, dtype=self.dtype_policy, name="cell")
        self.context_cell: Any = None
        if conditional:
            self.context_cell = make_cell(cell, units, dtype=self.dtype_policy, name="context_cell")

    def build(
        self,
        inputs_shape: Shape,
        initial_states_shape: Shape | None = None,
        memory_shape: Any = None,
        mask_shape: Shape | None = None,
    ) -> None:
        """Creates the weights of the attention, and of one cell for inputs of width E + D or of two, for E and D."""
        inputs_width, memory_width = check_width("inputs", inputs_shape), check_width("memory", memory_shape)
        if self.conditional:
            self.recurrent_cell.build((None, inputs_width))
            self.context_cell.build((None, memory_width))
        else:
            self.recurrent_cell.build((None, inputs_width + memory_width))
        self._memory_width = memory_width
        self._token_columns = slice(0, inputs_width)
        self._context_columns = slice(inputs_width, None)
        if self.attention is not None and not self.attention.built:
            # By a symbolic call: a score of the user's own may leave `build` to Keras, which then takes one shape only.
            query, value = (keras.KerasTensor((None, None, width)) for width in (self.units, memory_width))
            self.attention(query, value)
        keep_states(self)

    def prepare(self, memory: Tensor, mask: Tensor | None = None) -> Any:
        """What every step needs of the memory, computed once for each source.

        Args:
            memory: as in the call.
            mask: as in the call.

        Returns:
            A dict of tensors with leading axis B, for `step`.

        Raises:
            ValueError: the memory has another width than the first one.
        """
        check_built(self)
        check_built_width("memory", memory, self._memory_width)
        memory = ops.cast(memory, self.compute_dtype)  # Keras casts floats alone; weights as integers would be zeros
        if self.attention is None:
            return {"context": memory, "projected_context": self.recurrent_cell.project(memory, self._context_columns)}
        mask = token_mask(mask, memory)  # (B, S)
        return {"key": self.attention.project_key(memory), "value": memory, "mask": mask}

    def step(self, inputs: Tensor, states: Any, prepared: Any) -> tuple[Tensor, Any, Tensor]:
        """One step of K hypotheses of each source row; the memory is shared, not copied.

        Args:
            inputs: embedded tokens `(B, K, E)`.
            states: tuple of `(B, K, units)`.
            prepared: from `prepare`.

        Returns:
            The new states, the context `(B, K, D)`, and the attention weights `(B, K, S)`, None without attention.

        Raises:
            ValueError: the inputs have another width than the first ones, or the states have other rows or hypotheses
                than the inputs.
        """
        check_built(self)
        check_built_width("inputs", inputs, self._token_columns.stop)
        for state in states:
            check_rows("states", state, inputs, axes=2)
        rows = ops.shape(inputs)[:2]

        def flat(tensor):
            return ops.reshape(tensor, (-1, tensor.shape[-1]))

        projected = self.recurrent_cell.project(flat(inputs), self._token_columns)  # (B K, G)
        projected = projected + self.recurrent_cell.input_bias
        states = tuple(flat(state) for state in states)  # of (B K, units)
        if self.attention is None:
            context, weights = ops.repeat(prepared["context"][:, None], rows[1], axis=1), None  # (B, K, D)
            projected = projected + ops.repeat(prepared["projected_context"], rows[1], axis=0)  # (B K, G)
            states = self.recurrent_cell.step(projected, states)
        else:
            states, context, weights = self._attend_and_step(projected, states, prepared, rows[1])
        return tuple(ops.reshape(state, (*rows, self.units)) for state in states), context, weights

    def _attend_and_step(
        self, projected: Tensor, states: Any, prepared: Any, hypotheses: int | None
    ) -> tuple[Tensor, Any, Tensor]:
        """Projected tokens and states `(B K, ...)` -> new states, the context `(B, K, D)`, the weights `(B, K, S)`."""
        if self.conditional:
            states = self.recurrent_cell.step(projected, states)
        query = ops.reshape(states[0], (-1, hypotheses, self.units))  # (B, K, units)
        context, weights = self.attention.attend(query, prepared["key"], prepared["value"], prepared["mask"])
        flat = ops.reshape(context, (-1, context.shape[-1]))  # (B K, D)
        if self.conditional:
            projected = self.context_cell.project(flat) + self.context_cell.input_bias
            return self.context_cell.step(projected, states), context, weights
        projected = projected + self.recurrent_cell.project(flat, self._context_columns)
        return self.recurrent_cell.step(projected, states), context, weights

    def call(
        self,
        inputs: Tensor,
        initial_states: Any,
        memory: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """Teacher forcing: all steps, given the correct previous tokens; see the class."""
        self._check_call(inputs, initial_states, memory, return_attention_scores)
        inputs_mask = attached_mask(inputs)  # (B, T)
        mask = attached_mask(memory) if mask is None else mask  # (B, S)
        prepared = self.prepare(memory, mask)
        initial_states = [ops.cast(state, self.compute_dtype) for state in initial_states]
        projected = self.recurrent_cell.project(inputs, self._token_columns)  # (B, T, G)
        projected = projected + self.recurrent_cell.input_bias
        if self.attention is None:
            return self._fixed_context(projected, initial_states, prepared, ops.shape(inputs)[1], inputs_mask)

        def step(projected, states):
            states, context, weights = self._attend_and_step(projected, states, prepared, 1)
            outputs = [states[0], ops.squeeze(context, 1)]
            if return_attention_scores:
                # All in the precision of the weights, which a narrower type would round.
                outputs = [*(ops.cast(each, weights.dtype) for each in outputs), ops.squeeze(weights, 1)]
            return ops.concatenate(outputs, axis=-1), list(states)

        width = self.units + memory.shape[-1]
        dtype = scores_dtype(self.compute_dtype) if return_attention_scores else None
        outputs = recur(step, projected, initial_states, width, self.compute_dtype, inputs_mask, dtype)  # (B, T, *)
        states, contexts = outputs[..., : self.units], outputs[..., self.units : width]  # (B, T, units), (B, T, D)
        if not return_attention_scores:
            return states, contexts
        states, contexts = ops.cast(states, self.compute_dtype), ops.cast(contexts, self.compute_dtype)
        return states, contexts, outputs[..., width:]

    def _fixed_context(
        self, projected: Tensor, initial_states: Any, prepared: Any, length: int | Tensor, inputs_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """All steps with the same context, which is projected before the loop."""

        def step(projected, states):
            states = self.recurrent_cell.step(projected, states)
            return states[0], list(states)

        projected = projected + prepared["projected_context"][:, None]
        states = recur(step, projected, initial_states, self.units, self.compute_dtype, inputs_mask)  # (B, T, units)
        return states, ops.repeat(prepared["context"][:, None], length, axis=1)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Any:
        """The mask of the inputs, for the states and the contexts."""
        # Keras passes the argument `mask`, the memory's, as `previous_mask`.
        mask = attached_mask(inputs)
        return mask, mask

    def compute_output_shape(
        self,
        inputs_shape: Shape,
        initial_states_shape: Any,
        memory_shape: Shape,
        mask_shape: Shape | None = None,
    ) -> tuple[Shape, Shape]:
        """The shapes of the states `(B, T, units)` and of the contexts `(B, T, D)`."""
        return (*inputs_shape[:-1], self.units), (*inputs_shape[:-1], memory_shape[-1])

    def compute_output_spec(
        self,
        inputs: Tensor,
        initial_states: Any,
        memory: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
    ) -> Any:
        """The symbolic states and contexts, and the weights if asked for."""
        self._check_call(inputs, initial_states, memory, return_attention_scores)
        shapes = self.compute_output_shape(inputs.shape, None, memory.shape)
        specs = [keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes]
        if return_attention_scores:
            shape = (*inputs.shape[:-1], memory.shape[1])
            specs.append(keras.KerasTensor(shape, dtype=scores_dtype(self.compute_dtype)))
        return tuple(specs)

    def _check_call(self, inputs: Tensor, initial_states: Any, memory: Tensor, return_attention_scores: bool) -> None:
        if len(inputs.shape) != 3:
            raise ValueError(f"`inputs` must be (B, T, E). Received: inputs of shape {tuple(inputs.shape)}")
        names = self.recurrent_cell.states
        states = initial_states if isinstance(initial_states, (list, tuple)) else [initial_states]
        shapes = [tuple(state.shape) for state in states]
        if len(states) != len(names) or initial_states is states[0] or any(s[1:] != (self.units,) for s in shapes):
            raise ValueError(
                f"`initial_states` must be a list of tensors (B, {self.units}), one for each of the {self.cell} cell's "
                f"states: {', '.join(names)}. Received: shapes {shapes}"
            )
        if len(memory.shape) != (2 if self.attention is None else 3):
            wanted = "(B, D), since there is no attention" if self.attention is None else "(B, S, D)"
            raise ValueError(f"`memory` must be {wanted}. Received: memory of shape {tuple(memory.shape)}")
        rows = inputs.shape[0], *(shape[0] for shape in shapes), memory.shape[0]
        if len({*rows} - {None}) > 1:
            raise ValueError(
                f"Inputs, initial states and memory must have the same number of rows B. Received: {rows} rows"
            )
        if return_attention_scores and self.attention is None:
            raise ValueError("`return_attention_scores` needs attention; this decoder has a fixed context.")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "attention": None if self.attention is None else keras.saving.serialize_keras_object(self.attention),
            "cell": self.cell,
            "conditional": self.conditional,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer that `get_config` describes, its attention layer included."""
        attention = keras.saving.deserialize_keras_object(config.get("attention"))
        return cls(**{**config, "attention": attention})
