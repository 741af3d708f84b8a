"""The page of commands has every command and option, with its help."""

import pathlib
import re

import pytest
import typer
from zoo_training.cli import app, reference

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "commands.md"
COMMANDS = typer.main.get_command(app).commands


@pytest.fixture(scope="module")
def sections():
    """The text of each command on the page; typer's versions differ in their layout, so texts are compared in words."""
    parts = re.split(r"^## `zoo (\S+)`$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def words(text):
    return re.findall(r"\w+", text)


def test_the_page_has_these_commands_in_the_order_of_the_help(sections):
    assert [*sections] == [*COMMANDS]


def test_the_table_links_to_each_command():
    head, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## ")
    assert re.findall(r"\(#zoo-([a-z-]+)\)", head) == [*COMMANDS]
    assert head.strip() in reference.page()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_is_what_the_help_says(name, sections):
    command, section = COMMANDS[name], sections[name]
    told = " ".join(words(section))
    assert " ".join(words(command.help)) in told
    for parameter in command.params:
        assert " ".join(words(parameter.help or "")) in told, parameter.name
    listed = set(re.findall(r"^\* `(?:-\w, )?(--[a-z-]+)", section, flags=re.MULTILINE))
    assert listed == {"--help", *(each.opts[0] for each in command.params if each.param_type_name == "option")}
