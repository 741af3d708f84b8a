"""Exports through TensorFlow's C API, with which servers in other languages load them."""

import json
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

TEXTS = ["cab", "", "é 1", "4321 abcd", "😀" * 9]


def names(version, signature="serving_default"):
    """Of the tensors that a signature takes and gives as `text`."""
    saved_model = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    definition = saved_model.meta_graphs[0].signature_def[signature]
    return definition.inputs["text"].name, definition.outputs["text"].name


@pytest.mark.long
def test_another_language_would_read_the_same(servable_transformer, tmp_path):
    library = pathlib.Path(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2")
    program = pathlib.Path(__file__).with_name("c_api.py")

    def run(version, *arguments):
        command = [sys.executable, "-I", program, library, version, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    version = servable_transformer.path
    ran = run(version, *names(version), *TEXTS)
    assert ran.returncode == 0, ran.stderr
    expected = servable_transformer(TEXTS)
    assert json.loads(ran.stdout) == [expected, expected[:1]]
    # A folder without a model is an error and no crash.
    ran = run(tmp_path, "a:0", "b:0", "x")
    assert ran.returncode == 1
    assert "Could not find SavedModel" in ran.stderr
