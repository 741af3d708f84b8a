"""The page on the layers leaves no layer out; `tests/test_pages.py` runs its blocks and follows its links."""

import pathlib
import re

import pytest

import zoo.layers

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "zoo" / "layers" / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")
PICTURES = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", TEXT)


@pytest.mark.parametrize(
    "name", [*zoo.layers.__all__, "AttentionMask", "masked_softmax", "scaled_dot_product_attention"]
)
def test_name_is_mentioned(name):
    assert f"`{name}`" in TEXT


def test_pictures_are_those_that_are_drawn():
    shown = {(PAGE.parent / path).resolve() for _, path in PICTURES}
    assert set((ROOT / "docs" / "layers").glob("*.png")) <= shown
    assert all(path.stat().st_size < 120 * 1024 for path in shown if path.suffix == ".png")


def test_every_stage_has_its_blocks_and_equation():
    stages = re.split(r"^## (?=\d\. )", TEXT, flags=re.MULTILINE)[1:]
    assert [stage.split(".")[0] for stage in stages] == [str(number) for number in range(9)]
    for stage in stages:
        assert "```python\n" in stage and "```math\n" in stage and "![" in stage, stage.splitlines()[0]
