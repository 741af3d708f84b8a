"""Files: the suffix chooses the kind, and a failure leaves what was there."""

import io
import os
import sys

import numpy as np
import pytest
from matplotlib.image import imread

import zoo.extras
from zoo.atomic import write_whole
from zoo.pictures import Alignment, save, to_html, to_png, to_svg


def some(title=None):
    return Alignment(["न", "\u0902", "b"], ["1", "2"], np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]]), title=title)


def latin():
    return Alignment(["a"], ["1"], [[1.0]])


def test_the_suffix_chooses_the_kind(tmp_path):
    page = save([some(), some("b")], tmp_path / "new" / "dates.html", columns=2)
    assert page.read_text("utf-8") == to_html([some(), some("b")], "dates", columns=2)
    assert save(some(), tmp_path / "a.html", title="T").read_text("utf-8") == to_html(some(), "T")
    assert save(some(), tmp_path / "a.SVG", vmax=0.5).read_text("utf-8") == to_svg(some(), vmax=0.5)
    png = save(latin(), str(tmp_path / "deep" / "er" / "a.png"), vmax=0.5)
    assert png.read_bytes().startswith(b"\x89PNG")
    np.testing.assert_array_equal(imread(png), imread(io.BytesIO(to_png(latin(), vmax=0.5))))
    assert [entry.name for entry in png.parent.iterdir()] == ["a.png"]


@pytest.mark.parametrize("name", ["a.pdf", ".html"])
def test_other_suffixes(tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.html, \.svg, \.png\. Received: path='.*" + name):
        save(some(), tmp_path / "new" / name)
    assert not list(tmp_path.iterdir())


def test_an_svg_holds_one(tmp_path):
    with pytest.raises(ValueError, match=r"An \.svg must be of one picture; save several as \.html or \.png"):
        save([some(), some()], tmp_path / "a.svg")


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    path = tmp_path / "a.svg"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.svg", "old")]


def test_without_matplotlib_a_png_says_what_to_install_and_the_others_are_drawn(tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    assert save(latin(), tmp_path / "a.html").exists() and save(latin(), tmp_path / "a.svg").exists()
    with pytest.raises(zoo.extras.MissingExtraError, match=r"matplotlib.* `pip install 'attention-zoo\[pictures\]'`$"):
        save(latin(), tmp_path / "a.png")
