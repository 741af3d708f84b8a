"""What is raised where a server gives no answer."""

from __future__ import annotations

_ADVICE = {
    "DEADLINE_EXCEEDED": "Give a longer timeout, or fewer texts or new tokens at once; the server has a limit of its "
    "own, --rest_api_timeout_in_ms.",
    "FAILED_PRECONDITION": "The model's signatures tell what it takes.",
    "INTERNAL": "The server's log tells more.",
    "INVALID_ARGUMENT": "The model's signatures tell what it takes.",
    "NOT_FOUND": "Is this the model's name to the server, and is that version or label loaded? `zoo serve-client "
    "ADDRESS MODEL --status` tells.",
    "RESOURCE_EXHAUSTED": "Ask again later.",
    "UNAVAILABLE": "Is the server running, has it loaded its models, and is this the right port? By default gRPC is on "
    "8500, REST on 8501.",
    "UNIMPLEMENTED": "Is this TensorFlow Serving?",
    "UNKNOWN": "Is this TensorFlow Serving, and the port of that protocol?",
}
_LABEL = "version label"  # the server calls an unknown one an INVALID_ARGUMENT
_LABEL_ADVICE = (
    "Is this the model's name to the server, and does its --model_config_file give a loaded version that label? `zoo "
    "serve-client ADDRESS MODEL --status` tells the versions."
)
_LONGEST = 500  # characters of the server's own words in the message


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
        line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."
        advice = _LABEL_ADVICE if _LABEL in said else _ADVICE.get(code, "")
        super().__init__(f"{address}, model {model!r}: {code}: {line}. {advice}".rstrip())

    def __reduce__(self):
        return type(self), (self.address, self.model, self.code, self.said)
