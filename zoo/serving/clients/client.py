"""A client of TensorFlow Serving; by REST it needs no TensorFlow."""

from __future__ import annotations

import functools
import numbers
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from zoo.serving.clients.messages import ServingError, Signature, TensorSpec, VersionStatus
from zoo.serving.clients.rest import RestTransport
from zoo.serving.layout import LARGEST_VERSION
from zoo.tasks.protocol import Classifies, Embeds, Fills, Generates, GrowingText, check_texts, in_batches
from zoo.tasks.results import Score, Translation
from zoo.tasks.settings import STOP_SEPARATOR, TRANSLATION_SETTINGS, check_settings, column

_RETRIED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")  # the server did not begin the request, or the connection broke
_FIRST_PAUSE = 0.1  # seconds
_LONGEST = 10**8  # seconds, three years; the clocks of some calls end at 290
_FITTING = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}  # the kinds of NumPy that become each kind without loss
Answer = TypeVar("Answer")


class ServingClient(Generates, Classifies, Embeds, Fills):
    """A model on a server.

    It may be used from several threads, and sent to other processes, which open connections of their own. A process
    that is forked may go on with it by REST, but not by gRPC.

    By REST it needs NumPy and urllib3; by gRPC TensorFlow and the package `tensorflow-serving-api`. Both give the same
    answers. The client answers a request without rows itself, because a server that batches would never answer it.

        with ServingClient("localhost:8501", "dates") as dates:
            dates.translate(["21 नवंबर 2026"])

    Args:
        address: `host`, `host:port`, or a URL, `https://` for TLS. Without a port it is 8501 by REST and 8500 by gRPC,
            or 443 with TLS.
        model: the model's name on the server.
        protocol: "rest" or "grpc".
        version: the number of a version, from 0 to 2**63 - 1, or a string of its digits; None for the newest.
        label: the label of a version, instead of its number.
        timeout: how many seconds a request may take, all tries and pauses included; `translate`, `generate`, `score`,
            `classify`, `embed` and `fill` make a request for each batch.
        retries: how often to ask again, after pauses that double from 0.1 s, if the server cannot be reached, is not
            ready or is too busy; never after another error.

    Raises:
        ValueError: an argument is out of its range.
        ModuleNotFoundError: what gRPC needs is not installed.
    """

    def __init__(
        self,
        address: str,
        model: str,
        *,
        protocol: Literal["rest", "grpc"] = "rest",
        version: int | str | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
    ):
        if protocol not in ("rest", "grpc"):
            raise ValueError(f"`protocol` must be 'rest' or 'grpc'. Received: protocol={protocol!r}")
        if not model:
            raise ValueError("`model` must be the model's name on the server. Received: model=''")
        if version is not None and label is not None:
            raise ValueError(f"Give `version` or `label`, not both. Received: version={version}, label={label!r}")
        number = None if version is None else _version(version)
        if label == "":
            raise ValueError("`label` must be the label of a version. Received: label=''")
        if not (isinstance(timeout, (int, float, np.number)) and 0 < timeout <= _LONGEST):
            raise ValueError(
                f"`timeout` must be a number of seconds above 0, at most {_LONGEST:,}. Received: timeout={timeout!r}"
            )
        if not (isinstance(retries, (int, np.integer)) and retries >= 0):
            raise ValueError(f"`retries` must be an integer, at least 0. Received: retries={retries!r}")
        self.address, self.model, self.protocol = address, model, protocol
        self.timeout, self.retries = timeout, retries
        transport = RestTransport if protocol == "rest" else _grpc_transport()
        self._transport, self._version, self._label = transport(address, model, number, label), number, label
        self._signatures: dict[str, Signature] = {}

    def __reduce__(self):
        arguments = {"protocol": self.protocol, "version": self._version, "label": self._label}
        arguments |= {"timeout": self.timeout, "retries": self.retries}
        return functools.partial(type(self), self.address, self.model, **arguments), ()

    def predict(self, signature: str = "serving_default", **inputs: Any) -> dict[str, np.ndarray]:
        """Calls any signature.

        Args:
            signature: its name.
            **inputs: each input of the signature: a list, nested or not, or an array. Strings are `str`, sent as UTF-8,
                or `bytes` of any content.

        Returns:
            Each output; strings as an array of `bytes`. If the inputs have no rows, neither do the outputs. By REST,
            axes after an axis of size 0 also have size 0, and an output of broken UTF-8 is an error unless its name
            ends in `_bytes`.

        Raises:
            ValueError: the model has no such signature, the inputs are not those that it takes, or they have no rows
                and an output always has some.
            ServingError: the server gave no answer.
        """
        deadline = time.monotonic() + self.timeout
        called = self._signature(signature, deadline)
        if inputs.keys() != called.inputs.keys():
            raise ValueError(
                f"The signature {signature!r} takes {', '.join(called.inputs)}. Received: {', '.join(inputs) or 'none'}"
            )
        arrays = {name: to_array(name, inputs[name], spec) for name, spec in called.inputs.items()}
        if arrays and all(array.shape[:1] == (0,) for array in arrays.values()):
            return {name: _no_rows(signature, name, spec) for name, spec in called.outputs.items()}
        try:
            return self._ask(lambda seconds: self._transport.predict(signature, called, arrays, seconds), deadline)
        except ServingError:
            self._signatures = {}  # perhaps the next version has others
            raise

    def signatures(self) -> dict[str, Signature]:
        """The model's signatures by name, each with its inputs and outputs; `ServingError` without an answer."""
        self._signatures = self._ask(self._transport.signatures, time.monotonic() + self.timeout)
        return dict(self._signatures)

    def status(self) -> list[VersionStatus]:
        """The model's versions and their states, in ascending order; `ServingError` without an answer.

        A client for one version or label gets only that version.
        """
        deadline = time.monotonic() + self.timeout
        versions = self._ask(self._transport.status, deadline)
        if self._label is None:
            return versions
        # The server ignores labels when it is asked for the status.
        labelled = self._ask(self._transport.version, deadline)
        return [status for status in versions if status.version == labelled]

    def translate(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        max_target_length: int | Sequence[int] | None = None,
        length_penalty: float | Sequence[float] | None = None,
    ) -> list[Translation]:
        """Translates texts by an exported `Translator`.

        With a setting it calls the signature `generate`, without any `serving_default`.

        Args:
            texts: a list of strings, of any length.
            batch_size: the most texts in one request; a server that batches refuses more than its `max_batch_size`.
            max_target_length: the most tokens of a translation: one number for all texts, or a list with one for
                each text. None, or a number above the model's own limit, means that limit.
            length_penalty: how much longer translations are favoured, likewise. None, or a number out of the model's
                range, means the model's own.

        Returns:
            A `Translation` for each text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a setting is no number or not one for each text, or the
                model is no translator, or has no such settings.
            ServingError: the server gave no answer.
        """
        texts = check_texts(texts)
        given = {"max_target_length": max_target_length, "length_penalty": length_penalty}
        columns: dict[str, np.ndarray] = {}
        if any(value is not None for value in given.values()):
            for name, setting in TRANSLATION_SETTINGS.items():
                value = setting.default if given[name] is None else given[name]
                columns[name] = column(name, value, len(texts), setting)
        signature = "generate" if columns else "serving_default"

        def translations(rows):
            settings = {name: values[rows] for name, values in columns.items()}
            found = self._rows(signature, ("text", "score"), text=[texts[row] for row in rows], **settings)
            for row, text, score in zip(rows, *found, strict=True):
                yield Translation(texts[row], text.decode(), float(score))

        return in_batches(texts, batch_size, translations)

    def _generated(self, texts, columns, stop):
        stops = [stop.decode()] * len(texts)
        return self._rows("generate", ("text", "log_probability", "tokens"), text=texts, **columns, stop=stops)

    def stream(self, text: str, **settings: Any) -> Iterator[str]:
        """Continues one text as `generate` does, and gives the pieces of it as they are written.

        The signature `generate` is asked again for each piece, from the beginning on, see `GrowingText`; so a server
        needs nothing but that, and computes about three times as much as for the whole text at once.

        Args:
            text: the prompt; it may be empty.
            **settings: the settings of `generate`, without `batch_size`.

        Returns:
            An iterator over pieces, none of them empty, that together are the text of `generate` for the same seed.

        Raises:
            ValueError: as `generate`; likewise `ServingError`, also in the midst of the text, for example if the server
                has meanwhile loaded a version that writes another text.
        """
        texts = check_texts([text])
        columns, stop = check_settings(1, **settings)
        growing = GrowingText(int(columns["max_new_tokens"][0]), stop)

        def pieces():
            while not growing.done:
                columns["max_new_tokens"] = np.array([growing.size])
                found, _, tokens = self._generated(texts, columns, STOP_SEPARATOR.join(stop))
                try:
                    piece = growing.add(found[0].decode(), int(tokens[0]))
                except ValueError as error:
                    raise ServingError(self.address, self.model, "ABORTED", str(error)) from None
                if piece:
                    yield piece

        return pieces()

    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None, batch_size: int = 32) -> list[Score]:
        """How likely texts are, by an exported `TextGenerator`; or targets as their translations, by a `Translator`.

        Args:
            texts: a list of strings, of any length.
            targets: for a translator, a translation of each text.
            batch_size: the most texts in one request.

        Returns:
            A `Score` of each text or target, in the same order.

        Raises:
            ValueError: not lists of strings of one length, or the model does not score, or is of the other kind.
            ServingError: the server gave no answer.
        """
        texts = check_texts(texts)
        scored = texts if targets is None else check_texts(targets)
        if len(scored) != len(texts):
            raise ValueError(f"`targets` must be as many as `texts`, {len(texts)}. Received: {len(scored)}")

        def scores(rows):
            more = {} if targets is None else {"target": [scored[row] for row in rows]}
            found = self._rows("score", ("log_probability", "tokens"), text=[texts[row] for row in rows], **more)
            for row, log_probability, tokens in zip(rows, *found, strict=True):
                yield Score(scored[row], float(log_probability), int(tokens))

        return in_batches(texts, batch_size, scores)

    def close(self) -> None:
        """Closes the connections; the next call opens new ones by REST, and fails by gRPC."""
        self._transport.close()

    def __enter__(self) -> ServingClient:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _rows(self, signature: str, wanted: Sequence[str], **inputs) -> list[np.ndarray]:
        """The wanted outputs, with a row for each text."""
        given = self._signature(signature).outputs  # before a model of another kind does the work in vain
        if not given.keys() >= set(wanted):
            raise ValueError(
                f"The model is of another kind: its signature {signature!r} gives {', '.join(given)}, not "
                f"{', '.join(wanted)}."
            )
        found = self.predict(signature, **inputs)
        return [found[name] for name in wanted]

    def _reads_pairs(self, signature: str) -> bool:
        return "text_pair" in self._signature(signature).inputs

    def _signature(self, name: str, deadline: float | None = None) -> Signature:
        known = self._signatures  # another thread may put others in their place
        if name not in known:
            deadline = deadline or time.monotonic() + self.timeout
            known = self._signatures = self._ask(self._transport.signatures, deadline)
        if name not in known:
            raise ValueError(f"The model {self.model!r} has no signature {name!r}; it has {', '.join(known)}.")
        return known[name]

    def _ask(self, request: Callable[[float], Answer], deadline: float) -> Answer:
        """Asks until there is an answer, an error that asking again does not help, or no more tries or time.

        Args:
            request: takes the seconds that it may take.
            deadline: of all tries and of the pauses between them, by the monotonic clock.
        """
        pause, retries = _FIRST_PAUSE, self.retries
        while True:
            try:
                return request(max(deadline - time.monotonic(), 0.001))  # 0 would mean forever
            except ServingError as error:
                wait = pause * random.uniform(0.5, 1.5)  # so that many clients do not retry at the same moment
                if error.code not in _RETRIED or retries <= 0 or time.monotonic() + wait >= deadline:
                    raise
            time.sleep(wait)
            pause, retries = 2 * pause, retries - 1


def _version(version: Any) -> int:
    """The number of a version, which may come from an environment variable as a string.

    Raises:
        ValueError: it is no number of a version.
    """
    digits = isinstance(version, str) and re.fullmatch("[0-9]{1,19}", version)
    whole = digits or (isinstance(version, numbers.Integral) and not isinstance(version, bool))
    if whole and 0 <= int(version) <= LARGEST_VERSION:
        return int(version)
    raise ValueError(f"`version` must be an integer from 0 to 2**63 - 1. Received: version={version!r}")


def to_array(name: str, value: Any, spec: TensorSpec) -> np.ndarray:
    """An input as it is sent: an array of the signature's type; strings become `bytes`.

    Args:
        name: the input's, for messages.
        value: a list, nested or not, or anything that NumPy takes for an array; of numbers, or of `str` and `bytes`.
        spec: what the signature takes.

    Raises:
        ValueError: it holds something else, or has another shape.
    """
    array = _strings(name, value) if spec.dtype == "string" else _numbers(name, value, spec.dtype)
    if not spec.fits(array.shape):
        raise ValueError(f"`{name}` must have the shape {_shown(spec.shape)}. Received: {_shown(array.shape)}")
    return array


def _strings(name, value):
    given = np.array(value, dtype=object)
    array = np.empty(given.size, object)
    for place, text in enumerate(given.ravel()):
        if not isinstance(text, str | bytes):
            raise ValueError(f"`{name}` must hold strings, in lists of equal lengths. Received: {text!r}")
        array[place] = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    return array.reshape(given.shape)


def _numbers(name, value, dtype):
    try:
        wanted = np.dtype(dtype)
        fitting = _FITTING[wanted.kind]
    except (TypeError, KeyError):
        raise ValueError(f"`{name}` takes {dtype}, which this client cannot send.") from None
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        raise ValueError(f"`{name}` must hold {wanted} in lists of equal lengths. Received: {value!r}") from None
    if array.size and array.dtype.kind not in fitting:
        raise ValueError(f"`{name}` must hold {wanted}. Received: {name}={value!r}")
    if array.size and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"`{name}` must be from {limits.min} to {limits.max}. Received: {name}={value!r}")
    return array.astype(wanted)


def _shown(shape):
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _no_rows(signature: str, name: str, spec: TensorSpec) -> np.ndarray:
    """An output of a request without rows."""
    if not spec.has_rows:
        raise ValueError(
            f"A request to {signature!r} needs at least one row: its output {name!r} is not one row for each, and a "
            "server that batches never answers a request without rows."
        )
    return np.empty([size or 0 for size in spec.shape or (None,)], object if spec.dtype == "string" else spec.dtype)


def _grpc_transport():
    try:
        from zoo.serving.clients.grpc import GrpcTransport
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"gRPC needs {error.name}: pip install tensorflow-serving-api", name=error.name
        ) from None
    return GrpcTransport
