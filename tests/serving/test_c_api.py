"""Exports through TensorFlow's C API, with which servers in other languages load them."""

import json
import pathlib
import subprocess
import sys

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

TEXTS = ["cab", "", "é 1", "4321 abcd", "😀" * 9]


def names(version, signature="serving_default"):
    """Of the tensors that a signature takes and gives as `text`."""
    saved_model = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    definition = saved_model.meta_graphs[0].signature_def[signature]
    return definition.inputs["text"].name, definition.outputs["text"].name


def test_another_language_would_read_the_same(servable_transformer):
    version = servable_transformer.path
    library = pathlib.Path(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2")
    program = pathlib.Path(__file__).with_name("c_api.py")
    command = [sys.executable, "-I", program, library, version, *names(version), *TEXTS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    expected = servable_transformer(TEXTS)
    assert json.loads(ran.stdout) == [expected, expected[:1]]


def test_a_folder_without_a_model_is_an_error_and_no_crash(tmp_path):
    library = pathlib.Path(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2")
    program = pathlib.Path(__file__).with_name("c_api.py")
    ran = subprocess.run(
        [sys.executable, "-I", program, library, tmp_path, "a:0", "b:0", "x"], capture_output=True, text=True
    )
    assert ran.returncode == 1
    assert "Could not find SavedModel" in ran.stderr
