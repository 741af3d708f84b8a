"""Texts in: lines of arguments, files and pipes, and in how many threads they are answered."""

import gzip
import os
import pathlib
import types

import pytest
from zoo_training.cli import lines as lines_in
from zoo_training.cli.lines import read_lines


def test_lines_are_without_their_ends_and_byte_order_marks(tmp_path, capsys):
    (tmp_path / "lines").write_bytes("\ufeffa\r\n\ufeffb\n\r\n c \r\nd".encode())
    assert list(read_lines(None, tmp_path / "lines")) == ["a", "b", "", " c ", "d"]
    (tmp_path / "lines").write_bytes(b"a\nb\xff\n\xe9t\xe9\n")
    assert list(read_lines(None, tmp_path / "lines")) == ["a", "b\ufffd", "\ufffdt\ufffd"]
    told = f"zoo: warning: {tmp_path / 'lines'}:2: not UTF-8; broken bytes are read as U+FFFD\n"
    assert capsys.readouterr().err == told
    assert list(read_lines(["a\n", "b\udcff"], None)) == ["a\n", "b\ufffd"]
    long = ["x" * 200_000, "", "y" * 65_535, "z" * 65_536, "end"]
    (tmp_path / "lines").write_text("\n".join(long))
    assert list(read_lines(None, tmp_path / "lines")) == long
    (tmp_path / "lines").write_text("a\nb\n", "utf-16")
    with pytest.raises(ValueError, match=r"lines: UTF-16, and not UTF-8; .* iconv -f UTF-16 -t UTF-8"):
        list(read_lines(None, tmp_path / "lines"))
    (tmp_path / "lines").write_bytes(gzip.compress(b"a\nb\n"))
    with pytest.raises(ValueError, match=r"lines: packed by gzip; unpack it first$"):
        list(read_lines(None, tmp_path / "lines"))


def test_a_pipe_tells_whether_more_lines_have_come():
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as stream, open(write_end, "wb", buffering=0) as writer:
        lines = lines_in._lines(stream)
        assert not lines.more(0)
        writer.write(b"a\nb\xc3")
        assert (next(lines), lines.more(0)) == ("a", False)
        writer.write(b"\xa9\r\n\nc")
        assert lines.more(0)
        assert (next(lines), lines.more(0)) == ("bé", True)
        assert (next(lines), lines.more(0)) == ("", False)
        writer.close()
        assert lines.more(0)  # the end
        assert list(lines) == ["c"]


class TestThreads:
    @pytest.mark.parametrize(("texts", "file", "threads"), [(None, None, 1), (None, "a.txt", 3), (["a"], None, 1)])
    def test_a_file_is_answered_on_all_cores_also_from_a_terminal(self, monkeypatch, texts, file, threads):
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr(lines_in, "cores", lambda: 3)
        monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda kind: [])
        assert lines_in.threads_for(texts, file and pathlib.Path(file)) == threads
