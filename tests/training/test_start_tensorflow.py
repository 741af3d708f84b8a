"""TensorFlow starts with oneDNN and without its notes, and nothing else is held back."""

import os
import platform
import subprocess
import sys

import pytest
import tensorflow as tf
from zoo_training.start_tensorflow import import_tensorflow, use_onednn, without_notes

NOTES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795228940.987346   25897 port.cc:153] oneDNN custom operations are on.",
    "W0000 00:00:1795228940.987346   25897 gpu_device.cc:2342] Cannot dlopen some GPU libraries.",
    "E0000 00:00:1795228940.987346   25897 cuda_dnn.cc:8579] Unable to register cuDNN factory",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
]
NEWS = [
    "E0000 00:00:1795228940.987346   25897 port.cc:153] an error",
    "F0000 00:00:1795228940.987346   25897 env.cc:1] a fatal error",
    "UserWarning: something is deprecated",
    "  I0000 only quoted: port.cc:153]",
    "",
]


def test_notes_are_dropped_and_all_else_is_kept_in_order(capfd):
    lines = [line for pair in zip(NOTES, NEWS, strict=True) for line in pair]
    with without_notes():
        for line in lines:
            os.write(2, f"{line}\n".encode())
    assert capfd.readouterr().err.splitlines() == NEWS


def test_what_python_writes_is_kept_too(capfd):
    with without_notes():
        sys.stderr.write("before\n")
    sys.stderr.write("after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_after_an_error_what_was_written_is_shown(capfd):
    with pytest.raises(ImportError), without_notes():
        os.write(2, b"why it failed\n")
        raise ImportError
    os.write(2, b"I0000 later.cc:1] is no business of ours\n")
    assert capfd.readouterr().err == "why it failed\nI0000 later.cc:1] is no business of ours\n"


def test_matplotlib_is_not_imported_with_keras_but_can_be_afterwards():
    program = """if True:
        import gc, sys
        from zoo_training.start_tensorflow import import_tensorflow
        import_tensorflow()
        assert "keras" in sys.modules and "matplotlib" not in sys.modules
        assert gc.isenabled() and gc.get_freeze_count() > 100_000
        import matplotlib.pyplot
    """
    pytest.importorskip("matplotlib", reason="needs the extra 'pictures'")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_second_import_is_the_first():
    assert import_tensorflow() is tf


@pytest.mark.parametrize(
    ("machine", "before", "after"),
    [("x86_64", None, "1"), ("AMD64", None, "1"), ("x86_64", "0", "0"), ("aarch64", None, None)],
)
def test_onednn_is_used_where_it_was_measured_unless_the_user_decides(machine, before, after, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if before:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", before)
    use_onednn()
    assert os.environ.get("TF_ENABLE_ONEDNN_OPTS") == after
