"""Findings, and the rules behind them: how bad each is, why a server minds, and how to fix it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, get_args

Severity = Literal["fatal", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # worst first
_PLACES, _FINDINGS, _LETTERS = 3, 20, 120


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something in a SavedModel that matters to a stock TensorFlow Serving.

    Attributes:
        severity: `fatal`: the server refuses the version, or every request to a signature fails. `warning`: some
            requests fail or get wrong answers. `note`: harmless if it is on purpose.
        rule: the rule's name, such as `unnamed-output`.
        folder: the version's folder, or the model's.
        where: the file, function and node, or signature and tensor; the first few of them where there are many.
        what: what is wrong there.
        why: what a server does then.
        fix: how to fix it.
    """

    severity: Severity
    rule: str
    folder: str
    where: str
    what: str
    why: str
    fix: str


@dataclasses.dataclass(frozen=True)
class Rule:
    """The part that all findings of one kind share."""

    name: str
    severity: Severity
    why: str
    fix: str

    def at(self, where: str, what: str, severity: Severity | None = None) -> Finding:
        """A finding of this rule; the caller fills in the folder."""
        return Finding(severity or self.severity, self.name, "", where, what, self.why, self.fix)

    def gather(self, found: Iterable[tuple[str, str]], severity: Severity | None = None) -> list[Finding]:
        """One finding for all places with the same problem; a bounded number of findings however many there are.

        Args:
            found: pairs of where and what.
            severity: instead of the rule's own.
        """
        places: dict[str, list[str]] = {}
        numbers: dict[str, int] = {}
        further = 0
        for where, what in found:
            if what not in places and len(places) == _FINDINGS:
                further += 1
                continue
            first = places.setdefault(what, [])
            numbers[what] = numbers.get(what, 0) + 1
            if len(first) < _PLACES:
                first.append(where)
        findings = []
        for what, first in places.items():
            more = numbers[what] - len(first)
            findings.append(self.at("; ".join(first) + (f"; and {more:,} more" if more else ""), what, severity))
        if further:
            findings.append(self.at("elsewhere", f"{further:,} more findings of this kind", severity))
        return findings


def shown(name: str | bytes) -> str:
    """Somebody else's name or message, safe for a terminal: in backticks, short, without control characters."""
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    if len(name) > _LETTERS:
        name = name[: _LETTERS - 20] + "..." + name[-17:]
    return "`" + "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name) + "`"


# The folder.
VERSION_NAME = Rule(
    "version-name",
    "fatal",
    "A server serves only folders whose name is a number, and one folder for each number.",
    "Rename it to a number that no other version has, such as 1.",
)
LENIENT_VERSION_NAME = Rule(
    "lenient-version-name",
    "warning",
    "A server accepts signs and spaces around a number and serves the folder as that version; tools that expect plain "
    "numbers do not see it.",
    "Rename it to the plain number, or to a name that is not a number.",
)
IGNORED_FOLDER = Rule(
    "ignored-folder",
    "note",
    "A server ignores it because of its name, and serves the other versions. It was not checked.",
    "If it is kept aside on purpose, do nothing. To serve it, rename it to a number.",
)
NO_VERSION_FOLDER = Rule(
    "no-version-folder",
    "fatal",
    "A server looks in the model's folder for folders whose name is a number, and does not serve this SavedModel.",
    "Move the SavedModel into a folder named after its version: MODEL/1/saved_model.pb.",
)
EMPTY_VERSION = Rule(
    "empty-version",
    "fatal",
    "A server takes it for a version, fails to load it and retries; until then it may serve no other.",
    "Remove it, or write the version under another name and rename it once it is complete.",
)
UNREADABLE_SAVED_MODEL = Rule(
    "unreadable-saved-model",
    "fatal",
    "A server fails to load the version.",
    "Export it again, or copy it again from a complete copy.",
)
NO_SERVE_TAG = Rule(
    "no-serve-tag",
    "fatal",
    "A server loads the graph whose only tag is `serve`, and refuses a SavedModel without one.",
    "Export it with tags=['serve'], or start the server with --saved_model_tags.",
)
NO_SIGNATURES = Rule(
    "no-signatures",
    "fatal",
    "Requests name a signature, and there is none.",
    "Save it with tf.saved_model.save(model, path, signatures={'serving_default': ...}).",
)

# The graph.
XLA = Rule(
    "xla-must-compile",
    "fatal",
    "XLA on the CPU is off in a server (--xla_cpu_compilation_enabled): every request that runs it fails.",
    "Export functions without jit_compile=True.",
)
GPU_ONLY = Rule(
    "gpu-only-op",
    "fatal",
    "On a server without a GPU every request that runs it fails.",
    "Export another way to compute it, such as use_cudnn=False of a recurrent layer.",
)
PYTHON = Rule(
    "python-function",
    "fatal",
    "The function stayed in the process that exported the graph; a server has no Python to call it.",
    "Replace py_function and numpy_function by TensorFlow's ops, or leave the step to the client.",
)
UNKNOWN_OP = Rule(
    "unknown-op",
    "fatal",
    "A server has TensorFlow's own ops, and those of tensorflow-text and Decision Forests as they were in its version. "
    "It refuses a graph with an op that it does not know.",
    "Write it with TensorFlow's own ops, or leave the step to the client.",
)
UNINITIALISED_TABLE = Rule(
    "uninitialised-table",
    "fatal",
    "Nothing fills the lookup table when a server loads the version, so every request that looks something up fails.",
    "Export with main_op=tf.compat.v1.tables_initializer(), or with tf.saved_model.save.",
)
OUTSIDE_FILE = Rule(
    "outside-file",
    "fatal",
    "The path is a constant of the graph; a server needs this very file at this very place.",
    "Track the file as an asset (tf.saved_model.Asset, or a table on a tf.Module), so that it is exported too.",
)

# The signatures.
COMPOSITE = Rule(
    "composite-tensor",
    "fatal",
    "Requests and answers hold dense tensors only: every request to this signature fails.",
    "Take and return dense tensors: to_tensor(), or the values and row lengths as separate tensors.",
)
NO_BATCH = Rule(
    "no-batch-dimension",
    "warning",
    "A server joins requests along the first dimension, and REST's row form needs it to be the same in all tensors; "
    "without one, or with one of fixed size, requests cannot be batched and must have that size.",
    "Give the tensor a first dimension of unknown size: tf.TensorSpec([None, ...]); a setting is a vector too.",
)
NOT_IN_JSON = Rule(
    "not-in-json",
    "warning",
    "A server cannot convert this type from or to JSON: every request by REST fails. gRPC works.",
    "Cast it to float32, or tell users to call it by gRPC.",
)
UNNAMED_OUTPUT = Rule(
    "unnamed-output",
    "note",
    "Clients refer to outputs by name, and this name only says in which order they were returned.",
    "Return a dictionary from the exported function: {'score': score}.",
)
IDS_WITHOUT_LENGTH = Rule(
    "ids-without-length",
    "warning",
    "A server that batches ragged requests pads each tensor with its own first element, not with zero: ids do not show "
    "which tokens are padding.",
    "Add an input with each row's length, or a mask; or let the signature take text.",
)

MISSING_TENSOR = Rule(
    "missing-tensor",
    "fatal",
    "Every request to this signature fails. A server notices that only then.",
    "Export it again. A tool that changes graphs may have left the signatures as they were.",
)

# The files that the graph needs.
GIT_LFS_POINTER = Rule(
    "git-lfs-pointer",
    "fatal",
    "The file itself is not there, so a server fails to load the version, or answers from a table of these lines.",
    "Run `git lfs pull` in the repository, and copy the version again.",
)
MISSING_VARIABLES = Rule(
    "missing-variables",
    "fatal",
    "A server fails to load the version, or its first request fails.",
    "Copy the whole folder, or export it again.",
)
UNREADABLE_VARIABLES = Rule(
    "unreadable-variables",
    "fatal",
    "A server fails to load the version.",
    "Copy the file again from a complete copy, or export the version again.",
)
TRUNCATED_VARIABLES = Rule(
    "truncated-variables",
    "fatal",
    "A server fails to load the version.",
    "Copy the file again from a complete copy, or export the version again.",
)
MISSING_ASSET = Rule(
    "missing-asset",
    "fatal",
    "A server fails to load the version, which reads this file as it starts.",
    "Copy the whole folder, or export it again.",
)

# The warm-up.
UNREADABLE_WARM_UP = Rule(
    "unreadable-warm-up",
    "fatal",
    "A server refuses the version.",
    "Write the records with tf.io.TFRecordWriter, each a serialised PredictionLog, without compression.",
)
UNFIT_WARM_UP = Rule(
    "unfit-warm-up",
    "fatal",
    "A server sends each record through its signature before it serves, and refuses the version if one fails.",
    "Write new records for the present signatures, or remove the file.",
)
EMPTY_WARM_UP = Rule(
    "empty-warm-up",
    "note",
    "A server skips it, and nothing is warmed up.",
    "Write records that are a PredictionLog with a request, such as predict_log.",
)
TOO_MANY_WARM_UPS = Rule(
    "too-many-warm-ups",
    "fatal",
    "A server refuses the version after the thousandth.",
    "Keep at most 1,000 records.",
)

# Only with `--run`.
LOAD_FAILED = Rule(
    "load-failed",
    "fatal",
    "It was loaded into a session as a server does it, and that failed.",
    "See the message; the other findings may name the cause.",
)
REQUEST_FAILED = Rule(
    "request-failed",
    "fatal",
    "A server makes this request before it serves, and refuses the version when it fails.",
    "See the message; mend the signature, or write new warm-up records.",
)
BATCH_DIFFERS = Rule(
    "batch-differs",
    "warning",
    "A server that batches joins requests of different clients: what a client gets would depend on the others.",
    "Mask padding, and compute each row independently of the others.",
)
NOT_RUN = Rule(
    "not-run",
    "note",
    "Answers could not be compared, so it is not known whether they depend on other requests.",
    "Write warm-up records for this signature; they also make the first request fast. Exports of the zoo have none for "
    "the signatures of `--explore`, which is fine. If answers are random, take the seed from an input.",
)

RULES = {rule.name: rule for rule in list(vars().values()) if isinstance(rule, Rule)}
