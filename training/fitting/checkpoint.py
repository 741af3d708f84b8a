"""Checkpoints: a training that was stopped at any moment goes on, and ends as if it had not been stopped, bit for bit.

What an epoch does follows from the weights, the optimizer's variables, the states of the random generators of dropout,
the number of the step (from which the order of the batches follows) and what the callbacks remember. All of it is in
one file, which is replaced as a whole at the end of every epoch.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import pathlib
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

import keras
import numpy as np
import pydantic

from zoo.atomic import remove_partial, whole_file
from zoo.distribution import Workers

from ..run_files import CHECKPOINT_FILE, HISTORY_FILE, not_written
from ..schema.recipe_tables import Recipe
from .callbacks import Validation, WeightAverage

_SHOWN = 5  # keys of a message
_WITHOUT_EFFECT = ("description", "decoding")  # tables of a recipe that do not change its training


class CheckpointError(ValueError):
    """A checkpoint that a training cannot go on from; the message says why, and what to do."""


class Checkpoint(keras.callbacks.Callback):
    """Writes `checkpoint.npz` and `history.csv` at the end of each epoch.

    Args:
        folder: the run's folder.
        recipe: the recipe that is trained.
        average: its weights are part of the state.
        validation: what it remembers is part of the state.
        digests: hashes of the texts and vocabularies of the training, by name.
        workers: who train together. The chief alone reads and writes the files, and sends what it reads to the others:
            so they need no shared disk.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        recipe: Recipe,
        average: WeightAverage,
        validation: Validation,
        digests: Mapping[str, str],
        workers: Workers | None = None,
    ):
        super().__init__()
        self.workers = workers or Workers()
        self.folder, self.recipe, self.average, self.validation = folder, recipe, average, validation
        self.digests = dict(digests)
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
        if not self.workers.is_chief:
            return
        state = {
            "recipe": self.recipe.model_dump(mode="json"),
            "digests": self.digests,
            "history": self.history,
            "seconds": self.seconds,
            "finished": self.finished,
            "validation": self.validation.state(),
            "average_warmup": _inner(self.model.optimizer).average_warmup,
        }
        # Each variable is copied only when it is written: a large model must not need its size several times in memory.
        arrays = {f"variable/{index}": each for index, each in enumerate(_variables(self.model))}
        arrays |= {f"average/{name}": array for name, array in self.average.state().items()}
        # The checkpoint last: what a stop between the two leaves undone, the epoch's repetition does again.
        with self._writing(HISTORY_FILE) as file:
            file.write(_table(self.history).encode())
        with self._writing(CHECKPOINT_FILE) as file:
            np.savez(file, state=np.array(json.dumps(state)), **arrays)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[BinaryIO]:
        try:
            with whole_file(self.folder / name) as file:
                yield file
        except OSError as error:  # such as a full disk
            raise not_written(self.folder / name, error) from None

    def restore(self, model: keras.Model) -> bool:
        """Goes back to the folder's checkpoint, if there is one.

        Args:
            model: the compiled model that `fit` is about to be called on, its optimizer built.

        Returns:
            Whether there was one.

        Raises:
            CheckpointError: it cannot be read, or is of another recipe or of other texts.
        """
        file = self.folder / CHECKPOINT_FILE
        found = b""
        if self.workers.is_chief:
            remove_partial(file)
            found = b"found" if file.is_file() else b""  # it may be empty, which is not the same as none
        if not self.workers.broadcast_bytes(found):
            return False
        content = self.workers.broadcast_bytes(_bytes(file) if self.workers.is_chief else b"")
        state, variables, averages = _read(file, content)
        _check_recipe(self.folder, state["recipe"], self.recipe)
        # Equal shapes do not prove equal texts: two full vocabularies of different words have the same shape. Version
        # 0.1 stored no hashes.
        stored = state.get("digests", self.digests)
        others = [name for name, digest in self.digests.items() if stored.get(name) != digest]
        own = _variables(model)
        if others or [array.shape for array in variables] != [tuple(variable.shape) for variable in own]:
            which = f" ({', '.join(others)} changed)" if others else ""
            raise CheckpointError(
                f"{self.folder} holds an unfinished training of other texts{which}; --restart begins anew there, and "
                "--out names another folder"
            )
        for variable, array in zip(own, variables, strict=True):
            variable.assign(array)
        _inner(model.optimizer).average_warmup = state.get("average_warmup", False)  # 0.1 had none
        self.average.restore(averages)
        self.validation.restore(state["validation"])
        self.history, self.seconds, self.finished = state["history"], state["seconds"], state["finished"]
        return True


def check_unfinished(folder: pathlib.Path, recipe: Recipe) -> None:
    """Refuses a folder with an unfinished training of another recipe, before anything that takes long.

    Raises:
        CheckpointError: its checkpoint is of another recipe, or cannot be read.
    """
    file = folder / CHECKPOINT_FILE
    if file.is_file():
        state, _, _ = _read(file, _bytes(file))
        _check_recipe(folder, state["recipe"], recipe)


def _check_recipe(folder: pathlib.Path, old: dict[str, Any], recipe: Recipe) -> None:
    stored = _with_defaults(old, recipe)
    if recipe.training.jit_compile is None:  # changes the rounding alone; 0.1 stored true if it was left out
        stored["training"]["jit_compile"] = None
    if changed := changes(stored, recipe.model_dump(mode="json"), but=_WITHOUT_EFFECT):
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise CheckpointError(
            f"{folder} holds an unfinished training whose recipe differs in {', '.join(changed[:_SHOWN])}{more}; "
            "--restart begins anew there, and --out names another folder"
        )


def _bytes(file: pathlib.Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error}); --restart begins anew") from None


def _read(file: pathlib.Path, content: bytes) -> tuple[dict[str, Any], list[np.ndarray], dict[str, np.ndarray]]:
    """The state, the variables in their order, and the averaged weights of a checkpoint's file."""
    try:
        with np.load(io.BytesIO(content)) as arrays:
            state = json.loads(str(arrays["state"]))
            for name, kind in {"recipe": dict, "validation": dict, "history": list, "seconds": float}.items():
                if not isinstance(state[name], kind):
                    raise ValueError(f"its {name} is a {type(state[name]).__name__}")
            number = sum(name.startswith("variable/") for name in arrays.files)
            variables = [arrays[f"variable/{index}"] for index in range(number)]
            prefix = "average/"
            averages = {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}
    except (OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{file} cannot be read ({error}); --restart begins anew") from None
    return state, variables, averages


def _variables(model: keras.Model) -> list:
    """All that changes in a step: weights, states of random generators, the optimizer's slots. Not the metrics."""
    of_metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
    return [each for each in model.variables if id(each) not in of_metrics] + list(model.optimizer.variables)


def _inner(optimizer: keras.optimizers.Optimizer) -> Any:
    """The optimizer itself, where float16 has wrapped it for scaling its loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _with_defaults(old: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    """An older version's recipe with the keys that have been added since, at their defaults."""
    try:
        return type(recipe).model_validate(old).model_dump(mode="json")
    except pydantic.ValidationError:
        return old


def changes(old: Any, new: Any, but: Collection[str] = (), path: str = "") -> list[str]:
    """The keys in which two recipes differ, apart from the tables in `but`."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in (*new, *(key for key in old if key not in new)) if path or key not in but]
        return [each for key in keys for each in changes(old.get(key), new.get(key), but, f"{path}{key}.")]
    return [] if old == new else [path.removesuffix(".")]


def _table(history: list[dict[str, float]]) -> str:
    """The logs of all epochs as CSV, with empty cells where an epoch was not validated."""
    names = list(dict.fromkeys(name for row in history for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["epoch", *names], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"epoch": epoch, **row} for epoch, row in enumerate(history))
    return buffer.getvalue()
