"""Shared by both protocols: the server's address, its description of a model, and errors. Needs only NumPy."""

from __future__ import annotations

import dataclasses
import urllib.parse

_NUMPY_NAMES = {"half": "float16", "float": "float32", "double": "float64"}  # where the server's name differs

_ADVICE = {
    "DEADLINE_EXCEEDED": "Give a longer timeout, or fewer texts or new tokens at once; by REST the server has "
    "a limit too, --rest_api_timeout_in_ms.",
    "FAILED_PRECONDITION": "The model's signatures say what it takes.",
    "INTERNAL": "The server's log says more.",
    "INVALID_ARGUMENT": "The model's signatures say what it takes.",
    "NOT_FOUND": "Is this the model's name on the server, and is that version or label loaded? `zoo serve-client "
    "ADDRESS MODEL --status` shows it.",
    "OUT_OF_RANGE": "Send fewer or shorter texts at once; `zoo serve` has --max-body.",
    "RESOURCE_EXHAUSTED": "Ask again later.",
    "UNAVAILABLE": "Is the server running, has it loaded its models, and is this the right port? By default gRPC is on "
    "8500, REST on 8501.",
    "UNIMPLEMENTED": "Is this TensorFlow Serving?",
    "UNKNOWN": "Is this TensorFlow Serving, and the port of that protocol?",
}
_LABEL = "version label"  # the server calls an unknown one an INVALID_ARGUMENT
_LABEL_ADVICE = (
    "Is this the model's name on the server, and does the server give a loaded version that label "
    "(--model_config_file, or --label of `zoo serve`)? `zoo serve-client ADDRESS MODEL --status` shows the versions."
)
_MOST_LETTERS = 500  # of the server's own words in the message


class ServingError(OSError):
    """A request that was not answered.

    Its message is one line: which server and model, what was said, what can be done.

    Attributes:
        address: the server's, as it was given.
        model: the model's name.
        code: the kind of error by gRPC's names, such as "NOT_FOUND" or "UNAVAILABLE", over REST too.
        said: what the server or the network said, in full.
    """

    def __init__(self, address: str, model: str, code: str, said: str):
        self.address, self.model, self.code, self.said = address, model, code, said
        line = " ".join(said.split()).rstrip(".") or "no reason given"
        line = line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}..."
        advice = _LABEL_ADVICE if _LABEL in said else _ADVICE.get(code, "")
        super().__init__(f"{address}, model {model!r}: {code}: {line}. {advice}".rstrip())

    def __reduce__(self):
        return type(self), (self.address, self.model, self.code, self.said)


@dataclasses.dataclass(frozen=True)
class Address:
    """The parts of a server's address.

    Attributes:
        host: a name or number, an IPv6 one without brackets.
        port: the port.
        secure: whether to speak TLS.
        path: what a proxy puts before the paths of the server, without a slash at the end; usually "".
    """

    host: str
    port: int
    secure: bool
    path: str

    @classmethod
    def parse(cls, address: str, default_port: int) -> Address:
        """Reads `host`, `host:port`, or a URL.

        Raises:
            ValueError: it is none of them, or holds a user's name or password.
        """
        place = (address.partition("://")[2] or address).partition("/")[0]
        if "@" in place:
            raise ValueError(
                "`address` must hold no user's name or password, since this client does not send them. Received: one "
                f"for {place.rpartition('@')[2]}"
            )
        try:
            parts = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError
            if parts.port == 0:
                raise ValueError
            default_port = 443 if parts.scheme == "https" else default_port
            return cls(parts.hostname, parts.port or default_port, parts.scheme == "https", parts.path.rstrip("/"))
        except ValueError:
            raise ValueError(
                f"`address` must be host, host:port or http(s)://host:port/path. Received: {address!r}"
            ) from None


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature.

    Attributes:
        dtype: NumPy's name of it, or "string".
        shape: the sizes of the axes, None for any; None where not even their number is known.
    """

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def has_rows(self) -> bool:
        """Whether the first axis may be one of rows, of any number; also where the number of axes is not known."""
        return self.shape is None or self.shape[:1] == (None,)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape can be such an input or output."""
        return self.shape is None or (
            len(self.shape) == len(shape)
            and all(size in (None, given) for size, given in zip(self.shape, shape, strict=True))
        )


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of a model.

    Attributes:
        inputs: by name.
        outputs: by name.
    """

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """The state of a version of a model.

    Attributes:
        version: its number.
        state: "AVAILABLE" if it answers, or "START", "LOADING", "UNLOADING" or "END".
        error: why it could not be loaded; "" if nothing is wrong.
    """

    version: int
    state: str
    error: str = ""


def signatures_of(definitions: dict) -> dict[str, Signature]:
    """The signatures in a `SignatureDefMap`, as a dict with the field names of the proto."""
    return {
        name: Signature(_specs(signature.get("inputs", {})), _specs(signature.get("outputs", {})))
        for name, signature in sorted(definitions["signature_def"].items())
        if not name.startswith("__")  # the initializer is listed too, which clients do not call
    }


def versions_of(response: dict) -> list[VersionStatus]:
    """The versions in a `GetModelStatusResponse`, as a dict with the field names of the proto, in ascending order."""
    versions = [
        VersionStatus(
            version=int(status.get("version", 0)),  # 64-bit numbers are strings in JSON
            state=status.get("state", "UNKNOWN"),
            error=status.get("status", {}).get("error_message", ""),
        )
        for status in response.get("model_version_status", ())
    ]
    return sorted(versions, key=lambda status: status.version)


def _specs(tensors: dict) -> dict[str, TensorSpec]:
    specs = {}
    for name, tensor in sorted(tensors.items()):
        dtype = tensor.get("dtype", "DT_INVALID").removeprefix("DT_").lower()
        specs[name] = TensorSpec(_NUMPY_NAMES.get(dtype, dtype), _shape(tensor.get("tensor_shape", {})))
    return specs


def _shape(shape: dict) -> tuple[int | None, ...] | None:
    if shape.get("unknown_rank"):
        return None
    sizes = (int(axis.get("size", 0)) for axis in shape.get("dim", ()))
    return tuple(None if size < 0 else size for size in sizes)
