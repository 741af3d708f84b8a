"""A model for `infer_files`, a driver in the process of the test, and small chunks."""

import pytest
from upper_model import save_upper


@pytest.fixture(scope="session")
def upper(tmp_path_factory):
    """A model that answers with the text in capitals, and its length in bytes."""
    return str(save_upper(tmp_path_factory.mktemp("models") / "upper" / "1", ">"))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """The driver runs here; its processes are tested with the command."""
    from zoo_training.batch_inference import driver, infer  # needs Beam

    def drive_once(scratch, flags, advance, seen):
        counters = driver.drive(scratch, flags)
        return {"counters": counters, "new": infer._advance(scratch, advance, seen)}

    monkeypatch.setattr(infer, "_drive_once", drive_once)


@pytest.fixture
def small_chunks(monkeypatch):
    """Several chunks, and several windows in each."""
    monkeypatch.setattr("zoo_training.batch_inference.plan._CHUNK_BYTES", (20, 20))
    monkeypatch.setattr("zoo_training.batch_inference.plan._CHUNK_ROWS", (3, 3))
    monkeypatch.setattr("zoo_training.batch_inference.rows._WINDOW", 2)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path
