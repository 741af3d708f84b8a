"""From a trained model to a SavedModel that a stock TensorFlow Serving runs, and back into Python."""

import importlib

_HOMES = {
    "Servable": "zoo.serving.servable",
    "export": "zoo.serving.exporting",
    "newest_version": "zoo.serving.layout",
    "versions": "zoo.serving.layout",
}

__all__ = ["Servable", "export", "newest_version", "versions"]


def __getattr__(name):
    # On demand: the folder layout can be read without TensorFlow.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'zoo.serving' has no attribute {name!r}")
