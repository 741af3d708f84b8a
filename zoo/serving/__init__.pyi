# What `__init__.py` imports on demand, for type checkers, editors and the reference of the site.
from zoo.serving.checking import check
from zoo.serving.checking.rules import Finding
from zoo.serving.clients.client import ServingClient
from zoo.serving.clients.messages import ServingError
from zoo.serving.exporting import export
from zoo.serving.layout import newest_version, versions
from zoo.serving.servable import (
    ServableClassifier,
    ServableEmbedder,
    ServableFiller,
    ServableGenerator,
    ServableTranslator,
    open_servable,
)
from zoo.serving.start_up import StartUp, measure_start_up

__all__ = [
    "Finding",
    "ServableClassifier",
    "ServableEmbedder",
    "ServableFiller",
    "ServableGenerator",
    "ServableTranslator",
    "ServingClient",
    "ServingError",
    "StartUp",
    "check",
    "export",
    "measure_start_up",
    "newest_version",
    "open_servable",
    "versions",
]
