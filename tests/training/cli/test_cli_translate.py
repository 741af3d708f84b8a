"""The commands `zoo translate` and `zoo attend`: one line out for one line in, and pictures."""

import pathlib
import re

import pytest
from command_line import succeeds

import zoo

MODEL = "saved_models/backwards"


class TestTranslate:
    @pytest.mark.parametrize("model", [MODEL, f"{MODEL}/1", "runs/backwards"])
    def test_a_model_a_version_or_a_run(self, trained, model):
        assert succeeds("translate", model, "fade7", "b0") == "7EDAF\n0B\n"

    @pytest.mark.parametrize(
        ("way", "end", "last"),
        [("stdin", "\n", ""), ("--file", "\r\n", "\r\n")],
    )
    def test_one_line_out_for_one_line_in(self, trained, tmp_path, end, last, way):
        lines = ["fade7", "", "b0", "   ", "abcdef1", "b0", ""]
        content = (end.join([*lines, "ccc3"]) + last).encode()
        (tmp_path / "lines").write_bytes(content)
        arguments, stdin = ([], content) if way == "stdin" else (["--file", tmp_path / "lines"], None)
        out = succeeds("translate", MODEL, *arguments, "--batch-size", 2, stdin=stdin)
        translated = out.removesuffix("\n").split("\n")
        assert translated == zoo.load(MODEL)([*lines, "ccc3"])
        assert translated[0] == "7EDAF"

    def test_more_lines_than_are_read_at_once(self, trained):
        words = [f"{'abc'[n % 3]}{n % 10}" for n in range(40)]
        out = succeeds("translate", MODEL, "--batch-size", 1, stdin="\n".join(words))
        assert out.splitlines() == [word[::-1].upper() for word in words]

    def test_what_is_a_line(self, trained):
        lines = succeeds("translate", MODEL, stdin=b"fade7\n\xff\xfe\na\xe2\x80\xa8b\x0bc\nb0\n").splitlines()
        assert (len(lines), lines[0], lines[3]) == (4, "7EDAF", "0B")

    @pytest.mark.parametrize(("stdin", "lines"), [("", 0), ("\n\n", 2)])
    def test_empty_input(self, trained, stdin, lines):
        assert succeeds("translate", MODEL, stdin=stdin) == "\n" * lines

    def test_scores(self, trained):
        lines = succeeds("translate", MODEL, "--scores", "fade7", "").split("\n")
        wanted = zoo.load(MODEL).translate(["fade7"])[0]
        assert lines == [f"{wanted.score:.4f}\t7EDAF", "0.0000\t", ""]
        assert re.fullmatch(r"-0\.\d{4}\t7EDAF", lines[0])


class TestAttend:
    def test_a_page_of_all_texts(self, trained, tmp_path):
        path = tmp_path / "new" / "page.html"
        assert succeeds("attend", MODEL, "--out", path, "fade7", "ccc3") == f"{path}\n"
        page = path.read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert "Attention of backwards" in page
        assert page.count('"spoken"') == 2

    def test_lines_and_the_usual_place(self, trained):
        assert succeeds("attend", "runs/backwards", stdin="fade7\n\n  \nb0\n") == "pictures/backwards.html\n"
        assert pathlib.Path("pictures/backwards.html").read_text(encoding="utf-8").count('"spoken"') == 2
