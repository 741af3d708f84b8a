"""The command `zoo` inside the test's own process."""

import re

from typer.testing import CliRunner
from zoo_training.cli import app


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def succeeds(*arguments, stdin=None):
    """What it prints on stdout."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuses(*arguments, stdin=None):
    """The one line on stderr, without the name of the command."""
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"zoo: [^\n]+\n", result.stderr), result.stderr
    return result.stderr.removeprefix("zoo: ").rstrip("\n")
