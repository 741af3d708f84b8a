"""The page of commands is what their help says."""

import pathlib
import re

import pytest
import typer
from command_line import succeeds
from zoo_training.cli import app, reference

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "commands.md"


def words(text):
    """typer's versions differ in the marks around them."""
    return re.findall(r"\w+", text)


def test_the_page_is_as_the_program_writes_it():
    assert words(PAGE.read_text(encoding="utf-8")) == words(reference.page()), reference.__doc__


def test_the_table_and_the_sections_name_each_command():
    head, *sections = re.split(r"^## `zoo (\S+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    commands = [*typer.main.get_command(app).commands]
    assert sections[::2] == commands == re.findall(r"\(#zoo-([a-z-]+)\)", head)
    assert not re.search(r"<(str|path|int|float|bool|list)\b", "".join(sections))


def test_the_usage_shows_what_may_be_left_out_and_repeated():
    assert "zoo translate [OPTIONS] {MODEL} [TEXT]...\n" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [[], *([name] for name in typer.main.get_command(app).commands)])
def test_a_flag_has_no_value(command):
    """The help in a terminal, which the page does not show."""
    assert "<bool>" not in succeeds(*command, "--help")
