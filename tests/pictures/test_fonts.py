import functools
from pathlib import Path

import matplotlib
import pytest
from matplotlib import font_manager

from zoo.pictures import fonts
from zoo.pictures.fonts import families_for

BUNDLED = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture
def only_dejavu(monkeypatch):
    """A machine with no font but the one that comes with Matplotlib."""
    faces = [entry for entry in font_manager.fontManager.ttflist if entry.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", faces)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    fonts._has.cache_clear()
    yield
    fonts._has.cache_clear()


def test_plain_text_needs_no_installed_font(only_dejavu):
    texts = ["2", "</s>", "␣", "⍽", "∅", "↵", "⇥", "◌\u0301", "é", "≥"]
    assert families_for(texts) == {text: ["DejaVu Sans"] for text in texts}


def test_missing_glyphs_are_named_by_script(only_dejavu):
    with pytest.raises(
        ValueError, match=r"3 of the characters: DEVANAGARI \(न U\+0928, र U\+0930\); CJK \(年 U\+5E74\)"
    ) as error:
        families_for(["न", "2", "年", "र"])
    assert "Save the picture as .html" in str(error.value) and "fonts-noto-cjk" in str(error.value)


def test_many_missing_glyphs_are_cut_short(only_dejavu):
    with pytest.raises(ValueError, match=r"7 of the characters: HANGUL \((. U\+\w+, ){5}…\)"):
        families_for(["가각갂갃간갅갆"])


def test_a_font_of_boxes_does_not_count():
    assert not any("Last Resort" in family or family.startswith("cm") for family in fonts._families(()))


def test_preferred_families_come_first():
    assert families_for(["a"], preferred=["DejaVu Serif"]) == {"a": ["DejaVu Serif"]}
    with pytest.raises(ValueError, match="No Such Font"):
        families_for(["a"], preferred=["No Such Font"])


def test_a_label_gets_one_font_if_one_has_all_of_it_else_several(monkeypatch):
    coverage = {"Latin": "ab", "Mixed": "bcd", "Rest": "e"}
    monkeypatch.setattr(fonts, "_families", lambda preferred: list(coverage))
    monkeypatch.setattr(fonts, "_has", lambda family, character: character in coverage[family])
    assert families_for(["ab", "bc", "ade"]) == {"ab": ["Latin"], "bc": ["Mixed"], "ade": ["Latin", "Mixed", "Rest"]}


def test_fonts_installed_after_matplotlib_made_its_list_are_found(only_dejavu, monkeypatch):
    serif = str(BUNDLED / "DejaVuSerif.ttf")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [serif, str(BUNDLED / "missing.ttf")])
    monkeypatch.setattr(fonts, "_has", functools.cache(lambda family, character: family == "DejaVu Serif"))
    assert families_for(["न"]) == {"न": ["DejaVu Serif"]}
