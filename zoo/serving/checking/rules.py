"""The rules: why a stock TensorFlow Serving minds, and how to mend it."""

from __future__ import annotations

from zoo.serving.checking.finding import Rule

# The folder.
VERSION_NAME = Rule(
    "version-name",
    "A server takes folders named by a whole number alone for versions, and one folder for each number.",
    "Rename it to a number that no other version has, such as 1.",
)
IGNORED_FOLDER = Rule(
    "ignored-folder",
    "A server ignores it for its name, and serves the versions beside it; nor was it checked.",
    "Nothing need be done if it is kept aside on purpose; what is to be served has a number for its name.",
)
NO_VERSION_FOLDER = Rule(
    "no-version-folder",
    "A server looks into the model's folder for folders named by a number, and finds no version here.",
    "Move the SavedModel into a folder named by its version: MODEL/1/saved_model.pb.",
)
EMPTY_VERSION = Rule(
    "empty-version",
    "A server takes it for a version, fails to load it and retries; until then it may serve no other.",
    "Remove it, or write the version beside it and rename that into place once it is whole.",
)
UNREADABLE_SAVED_MODEL = Rule(
    "unreadable-saved-model",
    "A server fails to load the version.",
    "Export it again, or copy it again from where it is whole.",
)
NO_SERVE_TAG = Rule(
    "no-serve-tag",
    "A server loads the graph whose tags are `serve` and nothing else, and refuses a SavedModel without one.",
    "Export it with tags=['serve'], or start the server with --saved_model_tags.",
)
NO_SIGNATURES = Rule(
    "no-signatures",
    "A server calls signatures alone: there is nothing that a request could name.",
    "Save it with tf.saved_model.save(model, path, signatures={'serving_default': ...}).",
)

# The graph.
XLA = Rule(
    "xla-must-compile",
    "XLA on the CPU is off in a server (--xla_cpu_compilation_enabled): the first request that comes there fails.",
    "Export functions without jit_compile=True.",
)
GPU_ONLY = Rule(
    "gpu-only-op",
    "On a server without a GPU the first request that comes there fails.",
    "Export another way to compute it, such as use_cudnn=False of a recurrent layer.",
)
PYTHON = Rule(
    "python-function",
    "The function stayed in the process that exported the graph; a server has no Python to call it.",
    "Write it in TensorFlow's ops, in the place of py_function and numpy_function, or leave it to the client.",
)
UNKNOWN_OP = Rule(
    "unknown-op",
    "A server knows TensorFlow's own ops; of all others at most those of tensorflow-text and of Decision Forests, as "
    "they were in its version. It refuses a graph with an op that it does not know.",
    "Write it in TensorFlow's own ops, or leave it to the client.",
)

# The signatures.
NO_BATCH = Rule(
    "no-batch-dimension",
    "A server joins requests along the first dimension, and REST's row form needs it to be the same in all tensors; "
    "with none, or one of known size, requests cannot be batched and have to be of that size.",
    "Give the tensor a first dimension of unknown size: tf.TensorSpec([None, ...]); a setting is a vector, one a row.",
)
UNNAMED_OUTPUT = Rule(
    "unnamed-output",
    "Clients name outputs, and this name stands for nothing but the order in which they were returned.",
    "Return a dictionary from the function that is exported: {'score': score}.",
)
IDS_WITHOUT_LENGTH = Rule(
    "ids-without-length",
    "A server that batches ragged requests pads each tensor with its own first element, not with zero: padding "
    "cannot be told from ids.",
    "Add an input with each row's length, or a mask; or let the signature take text.",
)

# The files that the graph needs.
MISSING_VARIABLES = Rule(
    "missing-variables",
    "A server loads the version without them, or fails to; at the latest the first request fails.",
    "Copy the whole folder, or export it again.",
)
UNREADABLE_VARIABLES = Rule(
    "unreadable-variables",
    "A server fails to load the version.",
    "Copy the file again from where it is whole, or export the version again.",
)
TRUNCATED_VARIABLES = Rule(
    "truncated-variables",
    "A server fails to load the version.",
    "Copy the file again from where it is whole, or export the version again.",
)
MISSING_ASSET = Rule(
    "missing-asset",
    "A server fails to load the version, which reads this file as it starts.",
    "Copy the whole folder, or export it again.",
)

# The warm-up.
UNREADABLE_WARM_UP = Rule(
    "unreadable-warm-up",
    "A server refuses the version.",
    "Write the records with tf.io.TFRecordWriter, each a serialised PredictionLog, without compression.",
)
UNFIT_WARM_UP = Rule(
    "unfit-warm-up",
    "A server sends each record through its signature before it serves, and refuses the version if one fails.",
    "Write the records anew for the signatures as they are, or remove the file.",
)
EMPTY_WARM_UP = Rule(
    "empty-warm-up",
    "A server passes over it, and nothing is warmed.",
    "Write records that are a PredictionLog with a request, such as predict_log.",
)
TOO_MANY_WARM_UPS = Rule(
    "too-many-warm-ups",
    "A server refuses the version after the thousandth.",
    "Keep 1,000 records at most.",
)
