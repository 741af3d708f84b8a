"""Models on disk: their versions, loaded as TensorFlow Serving loads them, warmed up, and replaced by newer ones."""

from __future__ import annotations

import gc
import logging
import pathlib
import shlex
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import get_model_metadata_pb2, prediction_log_pb2

from zoo.serving.clients.messages import Signature, signatures_of
from zoo.serving.layout import MOST_WARM_UPS, SAVED_MODEL_FILE, WARM_UP_FILE, is_version, versions
from zoo.serving.server.batching import Arrays
from zoo.serving.server.rest_json import Refusal, invalid

_LOG = logging.getLogger(__name__)
_CODES = {getattr(tf.errors, name): name for name in dir(tf.errors) if name.isupper()}
_FIELDS = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}


class Served:
    """A signature of a loaded version.

    Attributes:
        inputs: their types and shapes, by name.
        outputs: likewise.
        method: what kind it is, such as `tensorflow/serving/predict`.
        by_rows: whether all inputs and outputs have a first axis of any size, so that requests can be joined.
    """

    def __init__(self, session: tf.compat.v1.Session, definition: Any, signature: Signature):
        self.inputs, self.outputs, self.method = signature.inputs, signature.outputs, definition.method_name
        shapes = [spec.shape for spec in (*self.inputs.values(), *self.outputs.values())]
        self.by_rows = all(shape is not None and shape[:1] == (None,) for shape in shapes)
        self._session = session
        self._feeds = {name: tensor.name for name, tensor in definition.inputs.items()}
        self._fetches = {name: tensor.name for name, tensor in definition.outputs.items()}

    def run(self, inputs: Arrays, seconds: float) -> Arrays:
        """The outputs.

        Raises:
            Refusal: the graph failed, or took longer than that.
        """
        options = tf.compat.v1.RunOptions(timeout_in_ms=max(1, round(1000 * seconds)))
        try:
            found = self._session.run(
                self._fetches, {self._feeds[name]: array for name, array in inputs.items()}, options
            )
        except tf.errors.OpError as error:
            raise _refusal(error) from None
        except (ValueError, TypeError) as error:  # a shape or type that Python's session does not take
            raise invalid(str(error)) from None
        return {name: _as_array(value) for name, value in found.items()}


def _as_array(value: Any) -> np.ndarray:
    """What a session gives: an array, or for an axis-less tensor its number or `bytes`."""
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if not isinstance(error, tf.errors.OpError):
        return Refusal("UNKNOWN", f"{type(error).__name__}: {error}")
    return Refusal(_CODES.get(error.error_code, "UNKNOWN"), error.message.removeprefix("Graph execution error:\n\n"))


class Version:
    """A loaded version of a model. It is closed when nobody refers to it any more.

    Args:
        model: the model's name.
        number: the version's.
        folder: of its SavedModel.
        threads: how many operations may run at once.
        operation_threads: how many threads an operation may use.
        stopping: when it is set, no more warm-up requests are made.

    Raises:
        Exception: it cannot be loaded, or a warm-up request fails, or it is stopped.
    """

    def __init__(
        self,
        model: str,
        number: int,
        folder: pathlib.Path,
        threads: int,
        operation_threads: int,
        stopping: threading.Event,
    ):
        self._stopping = stopping
        v1 = tf.compat.v1
        config = v1.ConfigProto(inter_op_parallelism_threads=threads, intra_op_parallelism_threads=operation_threads)
        self._session = v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            graph = v1.saved_model.load(self._session, ["serve"], str(folder))
        definitions = MessageToDict(
            get_model_metadata_pb2.SignatureDefMap(signature_def=graph.signature_def), **_FIELDS
        )
        self.metadata = {
            "model_spec": {"name": model, "signature_name": "", "version": str(number)},
            "metadata": {"signature_def": definitions},
        }
        self.signatures = {
            name: Served(self._session, graph.signature_def[name], signature)
            for name, signature in signatures_of(definitions).items()
        }
        self.warmed = self._warm_up(folder / WARM_UP_FILE)

    def signature(self, name: str) -> Served:
        """A signature by its name; `Refusal` if there is none."""
        if name not in self.signatures:
            raise invalid(f'Serving signature name: "{name}" not found in signature def')
        return self.signatures[name]

    def _warm_up(self, path: pathlib.Path) -> int:
        """Makes the requests of the warm-up file, of which only those to `predict`; how many there are."""
        number = 0
        for number, record in enumerate(_records(path), 1):
            if self._stopping.is_set():
                raise Refusal("CANCELLED", "The server is stopping")
            if number > MOST_WARM_UPS:
                raise invalid(f"Number of warmup records exceeds the maximum ({MOST_WARM_UPS}) at {path}")
            if record.WhichOneof("log_type") != "predict_log":
                continue
            request = record.predict_log.request
            served = self.signature(request.model_spec.signature_name or "serving_default")
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
            if inputs.keys() != served.inputs.keys():
                raise invalid(f"warm-up request {number} at {path}: input size does not match signature")
            served.run(inputs, seconds=600)
        return number


def _records(path: pathlib.Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    if not path.is_file():
        return
    try:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            yield prediction_log_pb2.PredictionLog.FromString(record)
    except (tf.errors.DataLossError, DecodeError) as error:
        raise Refusal("DATA_LOSS", f"{path}: {error}") from None


class _Model:
    """A model's folder, and which of its versions are loaded.

    Attributes:
        loaded: by number; replaced whole, so that it can be read without a lock.
        states: of every version that was ever there: its state, the code and the message of its error.
        refused: of the versions that could not be loaded, when their files were last changed.
        incomplete: how many polls have found each version without a graph.
        unreadable: why the last poll could not read the folder; "" if it could.
    """

    def __init__(self, name: str, path: pathlib.Path, labels: Mapping[str, int]):
        self.name, self.path, self.labels = name, path, labels
        self.loaded: dict[int, Version] = {}
        self.states: dict[int, tuple[str, str, str]] = {}
        self.refused: dict[int, int] = {}
        self.incomplete: dict[int, int] = {}
        self.unreadable = ""

    def folders(self) -> dict[int, pathlib.Path]:
        """The folders of SavedModels, by number: the versions in the model's folder, or the folder itself."""
        path = self.path.resolve()  # a link may come to mean another folder while a version is loaded
        if (path / SAVED_MODEL_FILE).is_file():
            return {int(path.name) if is_version(path.name) else 1: path}
        found = versions(path)
        return {number: folder for number, folder in found.items() if (folder / SAVED_MODEL_FILE).is_file()}


class Models:
    """The models that are served.

    Args:
        paths: a folder for each name.
        labels: for a name, versions by their labels; they stay loaded beside the newest.
        threads: how many requests run at once.
        operation_threads: how many threads an operation may use.
    """

    def __init__(
        self,
        paths: Mapping[str, pathlib.Path],
        labels: Mapping[str, Mapping[str, int]] | None = None,
        threads: int = 2,
        operation_threads: int = 1,
    ):
        self._models = {name: _Model(name, path, (labels or {}).get(name, {})) for name, path in paths.items()}
        self._threads = threads, operation_threads
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def loaded(self) -> dict[str, list[int]]:
        """The numbers of the versions that answer, of each model."""
        return {name: sorted(model.loaded) for name, model in self._models.items()}

    def find(self, name: str, version: int | None = None, label: str | None = None) -> Version:
        """The version that a request means: by number or label, or the newest.

        Raises:
            Refusal: it is not loaded.
        """
        model = self._models.get(name)
        if label is not None:
            if model is None or label not in model.labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            version = model.labels[label]
        loaded = model.loaded if model else {}
        if version is None and loaded:
            return loaded[max(loaded)]
        if version not in loaded:
            which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refusal("NOT_FOUND", f"Servable not found for request: {which}")
        return loaded[version]

    def status(self, name: str, version: int | None = None) -> dict[str, Any]:
        """The states of a model's versions, the newest first, in the form of `GetModelStatusResponse`.

        Raises:
            Refusal: there is no such model or version.
        """
        states = dict(self._models[name].states) if name in self._models else {}
        if version is not None and version not in states:
            raise Refusal("NOT_FOUND", f"Could not find version {version} of model {name}")
        if not states:
            raise Refusal("NOT_FOUND", f"Could not find any versions of model {name}")
        return {
            "model_version_status": [
                {"version": str(number), "state": state, "status": {"error_code": code, "error_message": message}}
                for number, (state, code, message) in sorted(states.items(), reverse=True)
                if version in (None, number)
            ]
        }

    def poll(self) -> None:
        """Looks into the folders; loads what is new, and then unloads what it replaces."""
        for model in self._models.values():
            self._poll(model)

    def start(self, seconds: float) -> None:
        """Polls again and again in a thread."""

        def work():
            while not self._stopping.wait(seconds):
                for model in self._models.values():
                    self._poll_again(model)

        self._thread = threading.Thread(target=work, name="poll", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the step at which it is: the loading of a version, or a warm-up request."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _poll_again(self, model: _Model) -> None:
        """Polls a model; what fails is logged once, and does not keep other models from their updates."""
        try:
            self._poll(model)
            model.unreadable = ""
        except Exception as error:  # a folder that cannot be read now can perhaps be read later
            if repr(error) != model.unreadable:
                if isinstance(error, OSError):
                    _LOG.error("%s: its folder cannot be read: %s", model.name, error)
                else:
                    _LOG.exception("%s: the look for new versions failed", model.name)
            model.unreadable = repr(error)

    def _poll(self, model: _Model) -> None:
        folders = model.folders()
        incomplete = versions(model.path).keys() - folders.keys()
        model.incomplete = {number: model.incomplete.get(number, 0) + 1 for number in incomplete}
        for number, polls in model.incomplete.items():
            if polls == 2:  # so it is hardly being copied
                _LOG.warning(
                    "%s: version %d has no %s; TensorFlow Serving would try to load it",
                    model.name,
                    number,
                    SAVED_MODEL_FILE,
                )
        labelled = folders.keys() & set(model.labels.values())
        wanted = {number for number in labelled if self._load(model, number, folders)}
        newest = next((number for number in sorted(folders, reverse=True) if self._load(model, number, folders)), None)
        wanted |= {newest} if newest is not None else set()
        gone = model.loaded.keys() - wanted
        # As in TensorFlow Serving, the last one stays if what is there cannot be loaded or the model's folder is not to
        # be found. It goes if that folder has no version.
        emptied = model.path.is_dir() and not versions(model.path)
        if not gone or (not wanted and not emptied):
            return
        model.loaded = {number: version for number, version in model.loaded.items() if number in wanted}
        for number in gone:
            model.states[number] = ("END", "OK", "")
            answers = f"version {max(model.loaded)} answers" if model.loaded else "no version answers"
            _LOG.info("%s: version %d is unloaded; %s", model.name, number, answers)
            for label in (label for label, named in model.labels.items() if named == number):
                _LOG.warning(
                    "%s: requests for the label %s fail until version %d is there again", model.name, label, number
                )
        gc.collect()  # a graph refers to itself

    def _load(self, model: _Model, number: int, folders: Mapping[int, pathlib.Path]) -> bool:
        """Loads a version unless that is done, or failed before with the same files; whether it is loaded."""
        if number in model.loaded:
            return True
        if self._stopping.is_set():
            return False
        changed = _last_change(folders[number])
        if model.refused.get(number) == changed:
            return False
        model.states[number] = ("LOADING", "OK", "")
        _LOG.info("%s: loading version %d ...", model.name, number)
        version = None
        try:
            version = Version(model.name, number, folders[number], *self._threads, self._stopping)
        except Exception as error:  # what a damaged file raises depends on where it ends
            if self._stopping.is_set():
                return False
            refusal = _refusal(error)
            model.refused[number] = changed
            model.states[number] = ("END", refusal.code, refusal.message)
            _LOG.error(
                "%s: version %d is refused until its files change: %s; `zoo check --run %s` looks for what is wrong",
                model.name,
                number,
                refusal.message.partition("\n")[0],  # TensorFlow adds the name of an operation
                shlex.quote(str(folders[number])),
            )
            del refusal  # its traceback can hold half a version
        if version is None:
            gc.collect()  # a graph refers to itself
            return False
        model.refused.pop(number, None)
        model.loaded = {**model.loaded, number: version}
        model.states[number] = ("AVAILABLE", "OK", "")
        _LOG.info("%s: version %d is loaded, after %d warm-up requests", model.name, number, version.warmed)
        return True


def _last_change(folder: pathlib.Path) -> int:
    files: Iterable[pathlib.Path] = (folder, *folder.rglob("*"))
    return max(file.lstat().st_mtime_ns for file in files)
