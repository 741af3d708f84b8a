"""Signatures by which people explore a model: they choose tokens, hide tokens and switch heads off."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.decoding import WithMasks, read_heads
from zoo.models import Masks
from zoo.tasks.settings import masks_as_strings
from zoo.tasks.task import SavedTask, as_arrays, strings


class Explorable(abc.ABC):
    """A task that can be explored, alike for a Keras model and a SavedModel. A subclass answers for a signature."""

    @abc.abstractmethod
    def _explore(self, signature: str, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of a signature, from those inputs that `_inputs` names, all with B as their first axis.

        Raises:
            ValueError: an export without such signatures.
        """

    @abc.abstractmethod
    def _inputs(self, signature: str) -> set[str]:
        """The names of what a signature takes: `text` and others, maybe `hidden` and `heads`, all `(B,)`."""

    def _head_sizes(self) -> Mapping[str, tuple[int, int]] | None:
        """The model's `head_sizes`, see `zoo.models.Masks`; None if they are not known, as those of an export."""
        return None

    def _masks(self, signature: str, number: int, hidden: Any, heads: Any) -> dict[str, list[str]]:
        """The masks of so many texts as a signature takes them: see `masks_as_strings`."""
        return masks_as_strings(number, self._inputs(signature), hidden, heads, self._head_sizes())

    def _explored(
        self,
        signature: str,
        texts: Sequence[str],
        rows: Sequence[int],
        columns: Mapping[str, Sequence[str]],
        **more: tf.Tensor,
    ) -> dict[str, np.ndarray]:
        """The outputs of a signature for some rows of texts and other strings, and for more tensors of these rows."""
        tensors = {name: strings([column[row] for row in rows]) for name, column in columns.items()}
        function = functools.partial(self._explore, signature)
        return as_arrays(function, [texts[row] for row in rows], **tensors, **more)


class ExploredTask(SavedTask, Explorable):
    """A task with the signatures of `EXPLORE`, of a Keras model. A subclass gives their functions."""

    @abc.abstractmethod
    def _explore_functions(self) -> dict[str, tuple[Callable[..., dict[str, tf.Tensor]], list[tf.TensorSpec]]]:
        """The function of each signature of `EXPLORE`, and its inputs without `hidden` and `heads`."""

    @functools.cached_property
    def _exploring(self) -> dict[str, Any]:
        """The graphs of the signatures of `EXPLORE`, with those masks as inputs that the model has a use for."""
        sizes = self._head_sizes()
        masks = [] if sizes is None else ["hidden", "heads"] if sizes else ["hidden"]
        more = [tf.TensorSpec([None], tf.string, name) for name in masks]
        return {
            name: tf.function(function, input_signature=[*inputs, *more], autograph=False)
            for name, (function, inputs) in self._explore_functions().items()
        }

    def _explore(self, signature: str, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._exploring[signature](**tensors)

    def _inputs(self, signature: str) -> set[str]:
        return {spec.name for spec in self._exploring[signature].input_signature}

    def _head_sizes(self) -> Mapping[str, tuple[int, int]] | None:
        return getattr(self.model, "head_sizes", None)


def masked(model: Any, shown: tf.Tensor | None, heads: tf.Tensor | None) -> Any:
    """The model without some tokens and heads; the model itself if it has no masks.

    Args:
        model: a model of ids.
        shown: boolean `(B, S)`, from `read_hidden`; None if the model has no masks.
        heads: the names of heads to switch off, strings `(B,)`, see `read_heads`; None if it has no heads.
    """
    if shown is None:
        return model
    return WithMasks(model, Masks(shown, None if heads is None else read_heads(heads, model.head_sizes)))
