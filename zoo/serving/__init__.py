"""From a trained model to a SavedModel that a stock TensorFlow Serving runs, and back into Python."""

import importlib

_HOMES = {
    "ServableGenerator": "zoo.serving.servable",
    "ServableTranslator": "zoo.serving.servable",
    "export": "zoo.serving.exporting",
    "newest_version": "zoo.serving.layout",
    "open_servable": "zoo.serving.servable",
    "versions": "zoo.serving.layout",
}

__all__ = ["ServableGenerator", "ServableTranslator", "export", "newest_version", "open_servable", "versions"]


def __getattr__(name):
    # On demand: the folder layout can be read without TensorFlow.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'zoo.serving' has no attribute {name!r}")
