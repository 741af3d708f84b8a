"""Registers the zoo's classes with Keras as soon as Keras is imported, before or after the zoo.

A `.keras` file names the classes that it needs, and Keras finds only imported classes. `import zoo` cannot
import them itself: Keras brings seconds of imports, and `zoo --help` must not wait for them.
"""

import importlib
import importlib.abc
import sys


def install() -> None:
    """Registers the classes now, if Keras is there, and otherwise once it has been imported."""
    if sys.modules.get("keras") is not None:  # None forbids its import
        importlib.import_module("zoo.models")
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find Keras and the layers. After each of these imports it imports the models."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in ("keras", "zoo.layers"):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                # The layers import Keras themselves. Until they are whole, the models cannot be imported.
                if fullname == "zoo.layers" or "zoo.layers" not in sys.modules:
                    importlib.import_module("zoo.models")

            spec.loader.exec_module = execute_and_register
        return spec
