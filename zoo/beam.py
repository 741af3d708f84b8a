"""Inference with SavedModels in pipelines of Apache Beam, which run on one machine, Flink, Spark or Dataflow.

Beam's own handler of TensorFlow models calls `tf.keras.models.load_model`, which Keras 3 refuses for SavedModels. The
handler here loads a SavedModel as a server does: with TensorFlow alone, and by one of its signatures. Needs the extra
'beam'.
"""

from __future__ import annotations

import contextlib
import difflib
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.extras import needs
from zoo.serving.clients.messages import TensorSpec
from zoo.serving.clients.rows import Row, row_inputs
from zoo.serving.layout import version_folder
from zoo.tasks.protocol import check_batch_size
from zoo.tasks.results import Failure
from zoo.tasks.settings import defaults_of

with needs("beam"):
    from apache_beam.metrics import Metrics
    from apache_beam.ml.inference.base import ModelHandler, PredictionResult

NAMESPACE = "zoo"  # of the counters "rows", "failed" and "batches"
_WINDOW = 16  # batches: among so many rows, those of similar length share a batch
_MOST_LETTERS = 1 << 20  # of a batch: a tokenizer keeps several numbers for each letter, also of what is cut off later
_HEAVY = 1 << 10  # letters: a row counts once more for each


class LoadedSignature:
    """A signature of a loaded SavedModel.

    Args:
        path: a version's folder, a model's folder, of which the newest version is taken, or a `saved_model.pb`. A path
            with `://` is left to TensorFlow's file systems and must be a version's folder or its `saved_model.pb`.
        signature: the name.
        operation_threads: how many threads an operation may use. The first model of a process decides this.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: it cannot be loaded, has no such signature, or an input is without rows.
    """

    def __init__(self, path: str, signature: str, operation_threads: int = 1):
        import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # TensorFlow has started in this process
            tf.config.threading.set_intra_op_parallelism_threads(operation_threads)
        folder = version_folder(path)
        try:
            self._saved_model = tf.saved_model.load(folder)
        except Exception as error:  # what a damaged file raises depends on where it ends
            raise ValueError(f"{folder} cannot be loaded ({type(error).__name__}: {_one_line(error)})") from error
        signatures = self._saved_model.signatures
        if signature not in signatures:
            raise ValueError(f"{folder} has no signature {signature!r}; it has {', '.join(sorted(signatures))}")
        self._function = signatures[signature]
        self._constant = tf.constant
        self._inputs = {name: _spec(each) for name, each in self._function.structured_input_signature[1].items()}
        outputs = {name: _spec(each) for name, each in self._function.structured_outputs.items()}
        for name, spec in {**self._inputs, **outputs}.items():
            if not spec.has_rows:
                raise ValueError(f"{folder}, signature {signature!r}: {name!r} does not have one entry for each row")

    # A method, since a model that several processes share is reached through a proxy, which has no attributes.
    def inputs(self) -> dict[str, TensorSpec]:
        """What it takes, by name."""
        return self._inputs

    def run(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs for some rows.

        Args:
            columns: each input `(B, ...)`; strings as objects.

        Raises:
            ValueError: the graph failed, or gave another number of rows.
        """
        number = len(next(iter(columns.values())))
        try:
            tensors = {name: self._constant(array, self._inputs[name].dtype) for name, array in columns.items()}
            found = {name: tensor.numpy() for name, tensor in self._function(**tensors).items()}
        except Exception as error:
            raise ValueError(_one_line(getattr(error, "message", None) or error)) from None
        for name, array in found.items():
            if array.shape[:1] != (number,):
                raise ValueError(f"output {name!r} must have {number} rows. Received: shape {array.shape}")
        return found


class SavedModelHandler(ModelHandler[Row, PredictionResult, LoadedSignature]):
    """A handler of any SavedModel for `RunInference`, above all of those that take strings.

    ```python
    texts | RunInference(SavedModelHandler("saved_models/dates"))
    rows | RunInference(SavedModelHandler("saved_models/gpt-pydoc", "generate", {"max_new_tokens": 60}))
    ```

    A row is a string, or a dict with the inputs of the signature; other keys are ignored. An input that a row does not
    have is taken from `settings`. `inference_args` of `RunInference` are settings, too. The settings of a
    generator or of a translator have the defaults of `ServingClient`, and those of a generator also its limits.
    `seed` is 0 for each row, so that a worker that computes a row again gives the same. Of the signatures by which
    people choose tokens (docs/exported_models.md), `hidden`, `prefix` and `heads` are empty by default, and
    `temperature` is 1.

    The result is a `PredictionResult` with the row, a dict of its outputs, and the model's path. An output is a `str`
    (`bytes` if it is not UTF-8), a NumPy number, or an array, padded to the longest of its batch.

    It works inside `KeyedModelHandler`. A new model arrives by `model_metadata_pcoll` or `watch_model_pattern`, which
    may match folders of versions or files `saved_model.pb`.

    Args:
        path: a model's folder, of which the newest version is taken, or a version's folder.
        signature: the name of a signature.
        settings: values of inputs for the rows that do not have them.
        batch_size: the most rows that the model computes at once. Among 16 times as many rows, those of similar length
            share a batch.
        failures: "raise", or "return" a `Failure` as the inference of a row that fails. A batch that fails is tried
            again in halves, down to single rows, so that one bad row does not fail the others.
        operation_threads: how many threads an operation may use; Beam runs one process for each core.
        shared: whether the processes of a machine share one model, for a model that is too large to load in each.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        path: str | pathlib.Path,
        signature: str = "serving_default",
        settings: Mapping[str, Any] | None = None,
        batch_size: int = 64,
        failures: str = "raise",
        operation_threads: int = 1,
        shared: bool = False,
    ):
        check_batch_size(batch_size)
        if failures not in ("raise", "return"):
            raise ValueError(f"`failures` must be 'raise' or 'return'. Received: failures={failures!r}")
        window = _WINDOW * batch_size
        super().__init__(min_batch_size=window, max_batch_size=window, element_size_fn=_weight, large_model=shared)
        self._path, self._signature, self._settings = str(path), signature, dict(settings or {})
        self._batch_size, self._returns, self._threads = batch_size, failures == "return", operation_threads
        self._rows, self._failed, self._batches = (
            Metrics.counter(NAMESPACE, name) for name in ("rows", "failed", "batches")
        )

    def load_model(self) -> LoadedSignature:
        """Loads the SavedModel; see `LoadedSignature` for the errors."""
        return LoadedSignature(self._path, self._signature, self._threads)

    def update_model_path(self, model_path: str | None = None) -> None:
        """Takes the path that the next `load_model` loads."""
        self._path = model_path or self._path

    def validate_inference_args(self, inference_args: dict[str, Any] | None) -> None:
        """Accepts settings by name."""
        if not isinstance(inference_args or {}, Mapping):
            raise ValueError(f"`inference_args` must be a dict of settings. Received: {inference_args!r}")

    def get_metrics_namespace(self) -> str:
        """Where `RunInference` counts, too."""
        return NAMESPACE

    def get_num_bytes(self, batch: Sequence[Row]) -> int:
        """The letters of the texts, and 8 for each number.

        Beam would pickle the rows to measure them, which takes longer than it is worth.
        """
        return sum(map(_letters, batch))

    def run_inference(
        self, batch: Sequence[Row], model: LoadedSignature, inference_args: dict[str, Any] | None = None
    ) -> Iterable[PredictionResult]:
        """The outputs of each row, in the order of the rows.

        Raises:
            ValueError: a row failed, unless failures are returned; or the signature has no input of a setting's name.
        """
        specs, given = model.inputs(), {**self._settings, **(inference_args or {})}
        for name in given.keys() - specs.keys():
            near = difflib.get_close_matches(name, specs, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(specs)}"
            raise ValueError(f"the signature {self._signature!r} has no input {name!r}; {hint}")
        settings = {**defaults_of(specs), **given}
        found: dict[int, dict[str, Any] | Failure] = {}
        ready: dict[int, dict[str, np.ndarray]] = {}
        for place, row in enumerate(batch):
            try:
                ready[place] = row_inputs(row, specs, settings)
            except ValueError as error:
                found[place] = Failure(_one_line(error))
        for places in self._in_batches(ready, batch):
            found |= self._answers(model, ready, places)
        failures = [each for each in found.values() if isinstance(each, Failure)]
        self._rows.inc(len(batch))
        self._failed.inc(len(failures))
        if failures and not self._returns:
            raise ValueError(failures[0].reason)
        return [PredictionResult(row, found[place], self._path) for place, row in enumerate(batch)]

    def _in_batches(self, ready: Iterable[int], batch: Sequence[Row]) -> Iterable[list[int]]:
        """Places of rows of similar lengths, at most `batch_size` rows and about `_MOST_LETTERS` letters at once."""
        places: list[int] = []
        letters = 0
        for length, place in sorted((_letters(batch[place]), place) for place in ready):
            if places and (len(places) == self._batch_size or letters + length > _MOST_LETTERS):
                yield places
                places, letters = [], 0
            places.append(place)
            letters += length
        if places:
            yield places

    def _answers(
        self, model: LoadedSignature, ready: Mapping[int, Mapping[str, np.ndarray]], places: list[int]
    ) -> dict[int, dict[str, Any] | Failure]:
        """The outputs of a batch; if it fails, of each of its halves."""
        self._batches.inc()
        try:
            names = ready[places[0]]
            columns = {name: np.concatenate([ready[place][name] for place in places]) for name in names}  # (B, ...)
            outputs = model.run(columns)
        except ValueError as error:
            if len(places) == 1:
                return {places[0]: Failure(_one_line(error))}
            half = len(places) // 2  # so one bad row among 64 is found in 13 calls, not in 65
            return self._answers(model, ready, places[:half]) | self._answers(model, ready, places[half:])
        return {
            place: {name: _decoded(array[row]) for name, array in outputs.items()} for row, place in enumerate(places)
        }


def _spec(tensor: Any) -> TensorSpec:
    return TensorSpec(tensor.dtype.name, None if tensor.shape.rank is None else tuple(tensor.shape.as_list()))


def _weight(element: Row | tuple[Any, Row]) -> int:
    """How many rows an element counts for in Beam's batches; inside a `KeyedModelHandler` it has a key."""
    return 1 + _letters(element[1] if isinstance(element, tuple) else element) // _HEAVY


def _letters(row: Row) -> int:
    if isinstance(row, Mapping):
        return sum(len(value) if isinstance(value, str | bytes) else 8 for value in row.values())
    return len(row) if isinstance(row, str | bytes) else 8


def _decoded(value: Any) -> Any:
    """An output of one row: strings as `str`, if they are UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, np.ndarray) and value.dtype == object:
        found = np.empty(value.shape, object)
        found.ravel()[:] = [_decoded(each) for each in value.ravel()]
        return found
    return value


def _one_line(error: Any) -> str:
    return " ".join(str(error).split())
