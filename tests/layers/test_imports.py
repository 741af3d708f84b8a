import ast
import pathlib
import sys

import pytest

import zoo.layers
import zoo.models

FILES = [file for package in (zoo.layers, zoo.models) for file in pathlib.Path(package.__file__).parent.rglob("*.py")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_layers_and_models_import_keras_alone(file):
    """So they run on any backend of it: neither TensorFlow, nor what of the zoo needs it, nor Keras' private parts.

    There is one exception, in `attached_mask`: on JAX, no public name of Keras gives the mask of a tensor.
    """
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    if file.name == "tensors.py":
        names.remove("keras.src.backend")
    for name in names:
        top = name.split(".")[0]
        assert name == "keras" or name.startswith(("zoo.layers", "zoo.models")) or top in sys.stdlib_module_names, name
