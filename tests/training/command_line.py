"""The command `zoo` inside the test's own process."""

import json
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


def pictures(path):
    """What a page of `zoo attend` holds: its pictures, each with kinds of attention."""
    answer = re.search(r'<script type="application/json" id="answer">(.*?)</script>', path.read_text("utf-8"))
    return json.loads(answer[1])["pictures"]
