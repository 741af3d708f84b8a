"""Metrics as a run leaves them behind: what they hold, and what is said of files that hold none."""

import re

import pytest
from zoo_training.run_files import read_metrics


def test_what_they_hold(tmp_path):
    (tmp_path / "metrics.json").write_bytes('{"name": "żółw", "total": 3}'.encode())
    assert read_metrics(tmp_path) == {"name": "żółw", "total": 3}


@pytest.mark.parametrize("folder", ["", "nowhere", "file"])
def test_none(tmp_path, folder):
    (tmp_path / "file").touch()
    told = f"{tmp_path / folder} must be the folder of a finished run or of an exported model, with a metrics.json"
    with pytest.raises(FileNotFoundError, match=rf"^{re.escape(told)}$"):
        read_metrics(tmp_path / folder)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "cannot be read: Expecting property name"),
        (b"", "cannot be read: Expecting value"),
        (b'{"name": "\xff"}', "cannot be read: 'utf-8' codec can't decode byte 0xff"),
        (b"[]", r"must hold a JSON object\. Received: list$"),
        (b"3", r"must hold a JSON object\. Received: int$"),
    ],
)
def test_what_is_none(tmp_path, content, why):
    (tmp_path / "metrics.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))}/metrics\.json {why}"):
        read_metrics(tmp_path)
