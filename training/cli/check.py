"""The command that says whether a SavedModel can be served."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import pathlib
import shutil
import textwrap
from typing import Annotated

import typer

from .shared import MODELS, RUNS, app, namesakes, user_errors


class FailOn(enum.StrEnum):
    """The lowest severity that makes the exit code 1."""

    fatal, warning, note, never = "fatal", "warning", "note", "never"


@app.command()
def check(
    folder: Annotated[
        pathlib.Path,
        typer.Argument(metavar="FOLDER", help="Any SavedModel: a model's folder with its versions, or one version."),
    ],
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Also load it as a server does and send it its warm-up requests. Trusted models only."
        ),
    ] = False,
    fail_on: Annotated[FailOn, typer.Option(help="The mildest severity that makes the exit code 1.")] = FailOn.warning,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave out findings of this rule; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check a SavedModel for what TensorFlow Serving would refuse or get wrong.

    A finding is fatal (the version or a signature cannot be used), a warning (some requests fail or get wrong answers)
    or a note (harmless if on purpose). Exit code: 0 if nothing of the severity --fail-on or worse was found, 1 if
    something was, 2 if no SavedModel can be read or the check itself fails.
    """
    with user_errors((ValueError, OSError, RuntimeError)):
        from zoo.serving.checking import report

        if not folder.exists():
            raise FileNotFoundError(f"{folder} does not exist{namesakes(folder, MODELS, RUNS)}")

        found = report(folder, run, ignore or ())
        typer.echo(_as_json(found) if as_json else _as_text(found))
    failing = list(FailOn)[: list(FailOn).index(fail_on) + 1] if fail_on is not FailOn.never else []
    if not found.is_readable:
        raise typer.Exit(2)
    raise typer.Exit(any(finding.severity in failing for finding in found.findings))


def _as_json(report) -> str:
    content = {"path": report.path, "findings": len(report.findings)}
    return json.dumps(content | {"folders": [dataclasses.asdict(checked) for checked in report.folders]}, indent=2)


def _as_text(report) -> str:
    from zoo.serving.checking.rules import shown

    if not report.findings:
        return f"{shown(report.path).strip('`')}: no problem found in {_seen(report.folders)}"
    width = min(shutil.get_terminal_size().columns, 120)
    paragraphs = []
    for number, checked in enumerate(report.folders):
        # A bare SavedModel is checked twice: as the folder that a server is given, and as the one version in it.
        is_layout = number == 0 and checked.folder in [each.folder for each in report.folders[1:]]
        within = f" in {_seen([checked])}" if checked.seen else ""
        name = shown(checked.folder).strip("`") + (" as a model's folder" if is_layout else "")
        paragraphs.append(f"{name}: {_numbers(checked.findings)}{within}")
        paragraphs += [_paragraph(finding, width) for finding in checked.findings]
    return "\n\n".join(paragraphs)


def _numbers(findings) -> str:
    """How many there are of each severity: `2 fatal, 1 note`."""
    counts = collections.Counter(finding.severity for finding in findings)
    plural = {"fatal": "fatal", "warning": "warnings", "note": "notes"}
    return ", ".join(f"{n} {name if n == 1 else plural[name]}" for name, n in counts.items()) or "no problem found"


def _paragraph(finding, width: int) -> str:
    lines = [
        f"{finding.severity} {finding.rule}: {finding.where}",
        f"{finding.what}.",
        finding.why,
        f"Fix: {finding.fix}",
    ]
    indents = ["  ", *["      "] * 3]
    return "\n".join(
        textwrap.fill(line, width, initial_indent=indent, subsequent_indent="      ", break_on_hyphens=False)
        for line, indent in zip(lines, indents, strict=True)
    )


def _seen(folders) -> str:
    """What was checked: `2 versions: 6 signatures, 40 functions, ...`."""
    from zoo.serving.layout import is_version

    name = pathlib.Path(folders[0].folder).absolute().name
    one = f"version {name}" if is_version(name) else "the SavedModel"
    which = one if len(folders) == 1 else f"{len(folders)} versions"
    totals: collections.Counter[str] = collections.Counter()
    for checked in folders:
        totals.update(checked.seen or {})
    counts = [f"{n:,} {kind if n != 1 else kind.removesuffix('s')}" for kind, n in totals.items() if n]
    return f"{which}: {', '.join(counts)}"
