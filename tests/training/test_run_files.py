"""Metrics as a run leaves them behind, hashes of texts, and the lock on a run's folder."""

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile

import pytest
from zoo_training.run_files import LOCK_FILE, Digest, check_room, locked, read_metrics


def test_what_they_hold(tmp_path):
    (tmp_path / "metrics.json").write_bytes('{"name": "żółw", "total": 3}'.encode())
    assert read_metrics(tmp_path) == {"name": "żółw", "total": 3}


@pytest.mark.parametrize("folder", ["", "file"])
def test_none(tmp_path, folder):
    (tmp_path / "file").touch()
    told = f"{tmp_path / folder} must be the folder of a finished run or of an exported model, with a metrics.json"
    with pytest.raises(FileNotFoundError, match=rf"^{re.escape(told)}$"):
        read_metrics(tmp_path / folder)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "cannot be read: Expecting property name"),
        (b'{"name": "\xff"}', "cannot be read: 'utf-8' codec can't decode byte 0xff"),
        (b"[]", r"must hold a JSON object\. Received: list$"),
    ],
)
def test_what_is_none(tmp_path, content, why):
    (tmp_path / "metrics.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(tmp_path))}/metrics\.json {why}"):
        read_metrics(tmp_path)


def test_room_on_the_disk(tmp_path):
    check_room(tmp_path / "file", 1)
    told = re.escape(f"{tmp_path}/file cannot be written: ") + "(No space left on device|File too large); once it can"
    with pytest.raises(OSError, match=f"^{told}, give the same command again$"):
        check_room(tmp_path / "file", 1 << 60)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, limits[1]))
    try:
        check_room(tmp_path / "file", 2 << 20)
        with pytest.raises(OSError, match="/file cannot be written: File too large; once it can"):
            check_room(tmp_path / "file", 4 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_quota_of_files(tmp_path, monkeypatch):
    def refused(**_):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "aside")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with pytest.raises(OSError, match=f"^{re.escape(str(tmp_path))}/file cannot be written: Disk quota exceeded; once"):
        check_room(tmp_path / "file", 1)


class TestDigest:
    def test_texts_have_borders_and_an_order(self):
        texts = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["c", "ab"], [], ["ab\ud800", "c"]]
        assert len({str(Digest(each)) for each in texts}) == len(texts)
        assert str(Digest(["ab", "c"])) == str(Digest(iter(["ab", "c"])))

    def test_pieces_of_one_text(self):
        whole, pieces = Digest(["ażé"]), Digest()
        assert pieces.add("aż", end="") == "aż"
        pieces.add("é")
        assert (str(pieces), pieces.size) == (str(whole), whole.size) == (str(whole), 5)


HOLDS = """
import pathlib, sys, time
from zoo_training.run_files import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_lock_of_another_process_until_it_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        fault = rf"^{re.escape(str(tmp_path))} is in use: process {process.pid} on .* trains there; wait until"
        with pytest.raises(BlockingIOError, match=fault), locked(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / LOCK_FILE).exists()
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
