"""Which GPU each worker of one machine gets; how the workers end is in `training/test_workers.py`."""

import json

import pytest

from zoo import local_workers


@pytest.fixture
def devices(monkeypatch, tmp_path):
    """Makes the files of GPUs, such as `nvidia2`, in place of those in /dev."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(local_workers, "_DEVICES", tmp_path)

    def make(*names):
        for name in names:
            (tmp_path / name).touch()

    return make


def test_gpus_are_numbered_from_0_whatever_their_files_are_called(devices):
    """A container that was given GPUs 2 and 3 of a machine has their files alone; CUDA counts what is there."""
    devices("nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm")
    assert local_workers.gpus() == ["0", "1"]
    added = list(local_workers.environments(2))
    assert [each["CUDA_VISIBLE_DEVICES"] for each in added] == ["0", "1"]
    assert [json.loads(each["TF_CONFIG"])["task"]["index"] for each in added] == [0, 1]


def test_the_gpus_that_the_environment_names(devices, monkeypatch):
    devices("nvidia0", "nvidia1", "nvidia2")
    for text, wanted in (("2, 0", ["2", "0"]), ("", []), ("-1", []), ("GPU-8a,MIG-7", ["GPU-8a", "MIG-7"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
        assert local_workers.gpus() == wanted


def test_without_gpus_workers_share_the_cores(devices, monkeypatch):
    """The cores that this process may use, which a scheduler may have taken from a larger machine."""
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(7)), raising=False)
    added = list(local_workers.environments(3))
    assert [each.get("TF_NUM_INTRAOP_THREADS") for each in added] == ["2"] * 3
    assert not any("CUDA_VISIBLE_DEVICES" in each for each in added)


def test_more_workers_than_gpus_are_refused(devices, monkeypatch, capsys):
    devices("nvidia0")
    told = r"start fewer, .* Received: 2 processes, and GPU 0"
    with pytest.raises(ValueError, match=told):
        local_workers.start(["false"], 2)
    monkeypatch.setattr("sys.argv", ["local_workers", "--devices", "2", "script.py"])
    with pytest.raises(SystemExit, match="2"):
        local_workers.main()
    assert "error: each process takes a GPU of its own" in capsys.readouterr().err
    assert local_workers.start(["true"], 1) == 0
