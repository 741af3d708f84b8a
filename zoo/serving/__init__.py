"""From a trained model to a SavedModel that a stock TensorFlow Serving runs, and back into Python."""

import importlib

_HOMES = {
    "Finding": "zoo.serving.checking.rules",
    "ServableClassifier": "zoo.serving.servable",
    "ServableEmbedder": "zoo.serving.servable",
    "ServableFiller": "zoo.serving.servable",
    "ServableGenerator": "zoo.serving.servable",
    "ServableTranslator": "zoo.serving.servable",
    "ServingClient": "zoo.serving.clients.client",
    "ServingError": "zoo.serving.clients.messages",
    "StartUp": "zoo.serving.start_up",
    "check": "zoo.serving.checking",
    "export": "zoo.serving.exporting",
    "measure_start_up": "zoo.serving.start_up",
    "newest_version": "zoo.serving.layout",
    "open_servable": "zoo.serving.servable",
    "versions": "zoo.serving.layout",
}

__all__ = list(_HOMES)


def __getattr__(name):
    # On demand: the folder layout can be read without TensorFlow.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'zoo.serving' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_HOMES})
