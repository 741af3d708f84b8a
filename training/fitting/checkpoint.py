"""Checkpoints: after a stop at any moment a training goes on, and ends as if it had not been stopped.

What an epoch does follows from the weights, the optimizer's slots, the states of the random generators of dropout, the
number of the step (which the order of the pairs follows from) and what the callbacks remember. All of it is in one
file, which is replaced as a whole at the end of every epoch.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
import time
import zipfile
from typing import Any

import keras
import numpy as np

from zoo.atomic import remove_partial, write_whole

from ..schema.recipe_tables import Recipe
from .averaging import WeightAverage
from .validation import Validation

CHECKPOINT_FILE = "checkpoint.npz"
HISTORY_FILE = "history.csv"
_WITHOUT_EFFECT = ("description", "decoding")  # of a recipe, on its training


class CheckpointError(ValueError):
    """A checkpoint that a training cannot go on from; the message says why, and what to do."""


class Checkpoint(keras.callbacks.Callback):
    """Writes `checkpoint.npz` and `history.csv` at the end of each epoch.

    Args:
        folder: the run's folder.
        recipe: what is trained.
        average: its weights are part of the state.
        validation: what it remembers is part of the state.
    """

    def __init__(self, folder: pathlib.Path, recipe: Recipe, average: WeightAverage, validation: Validation):
        super().__init__()
        self.folder, self.recipe, self.average, self.validation = folder, recipe, average, validation
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0
        self.finished = False
        self._begin = time.monotonic()

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    def on_train_begin(self, logs=None):
        """Starts the clock."""
        self._begin = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        """Writes everything."""
        self.history.append({name: float(value) for name, value in (logs or {}).items()})
        now = time.monotonic()
        self.seconds, self._begin = self.seconds + now - self._begin, now
        self.finished = self.model.stop_training
        state = {
            "recipe": self.recipe.model_dump(mode="json"),
            "history": self.history,
            "seconds": self.seconds,
            "finished": self.finished,
            "validation": self.validation.state(),
        }
        arrays = {f"variable/{index}": np.array(each) for index, each in enumerate(_variables(self.model))}
        arrays |= {f"average/{name}": array for name, array in self.average.state().items()}
        buffer = io.BytesIO()
        np.savez(buffer, state=np.array(json.dumps(state)), **arrays)
        write_whole(self.folder / CHECKPOINT_FILE, buffer.getvalue())
        write_whole(self.folder / HISTORY_FILE, _table(self.history).encode())

    def restore(self, model: keras.Model) -> bool:
        """Goes back to the folder's checkpoint, if there is one.

        Args:
            model: the compiled model that `fit` is about to be called on, its optimizer built.

        Returns:
            Whether there was one.

        Raises:
            CheckpointError: it cannot be read, or is of another recipe or other texts.
        """
        file = self.folder / CHECKPOINT_FILE
        remove_partial(file)
        if not file.is_file():
            return False
        try:
            with np.load(file) as arrays:
                state = json.loads(str(arrays["state"]))
                others = {name: arrays[name] for name in arrays.files if name != "state"}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{file} cannot be read ({error}); --restart begins anew") from None
        changed = _changes(state["recipe"], self.recipe.model_dump(mode="json"))
        if changed:
            raise CheckpointError(
                f"{self.folder} holds an unfinished training whose recipe differs in {', '.join(changed)}; "
                "--restart begins anew there, and --out names another folder"
            )
        variables = _variables(model)
        saved = [others.get(f"variable/{index}") for index in range(len(variables))]
        if [array if array is None else array.shape for array in saved] != [tuple(each.shape) for each in variables]:
            raise CheckpointError(f"{self.folder} holds an unfinished training of other texts; --restart begins anew")
        for variable, array in zip(variables, saved, strict=True):
            variable.assign(array)
        prefix = "average/"
        self.average.restore({name.removeprefix(prefix): a for name, a in others.items() if name.startswith(prefix)})
        self.validation.restore(state["validation"])
        self.history, self.seconds, self.finished = state["history"], state["seconds"], state["finished"]
        return True


def _variables(model: keras.Model) -> list:
    """All that changes in a step: weights, states of random generators, the optimizer's slots. Not the metrics."""
    of_metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
    return [each for each in model.variables if id(each) not in of_metrics] + list(model.optimizer.variables)


def _changes(old: Any, new: Any, path: str = "") -> list[str]:
    """The keys in which two recipes differ, apart from what does not change the training."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in (*new, *(key for key in old if key not in new)) if path or key not in _WITHOUT_EFFECT]
        return [each for key in keys for each in _changes(old.get(key), new.get(key), f"{path}{key}.")]
    return [] if old == new else [path.removesuffix(".")]


def _table(history: list[dict[str, float]]) -> str:
    """The logs of all epochs as CSV; what an epoch does not have is empty."""
    names = list(dict.fromkeys(name for row in history for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["epoch", *names], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"epoch": epoch, **row} for epoch, row in enumerate(history))
    return buffer.getvalue()
