"""The command that tells whether a SavedModel can be served."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import textwrap
from typing import Annotated

import typer

from ..quiet import import_tensorflow
from .shared import app, user_errors


@app.command()
def check(
    folder: Annotated[
        pathlib.Path,
        typer.Argument(metavar="FOLDER", help="Any SavedModel: a model's folder with its versions, or one version."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Find what a stock TensorFlow Serving would refuse in a SavedModel, or stumble over; nothing is run.

    Exit code: 0 if nothing was found, 1 if something was, 2 if there is no SavedModel that can be read.
    """
    with user_errors():
        from zoo.serving.checking.folders import find_folders

        folders = find_folders(folder)  # before the seconds that TensorFlow takes to start
        import_tensorflow()
        from zoo.serving.checking.reporting import check_folders

        report = check_folders(folders)
    typer.echo(_as_json(report) if as_json else _as_text(report))
    raise typer.Exit(0 if not report.findings else 1 if report.is_readable else 2)


def _as_json(report) -> str:
    content = {"path": report.path, "findings": len(report.findings)}
    return json.dumps(content | {"folders": [dataclasses.asdict(checked) for checked in report.folders]}, indent=2)


def _as_text(report) -> str:
    from zoo.serving.checking.finding import shown

    if not report.findings:
        return f"{shown(report.path).strip('`')}: nothing found in {_seen(report.folders)}"
    width = min(shutil.get_terminal_size().columns, 120)
    paragraphs = []
    for checked in report.folders:
        number = len(checked.findings)
        found = f"{number} finding{'s' * (number != 1)}" if number else "nothing found"
        within = f" in {_seen([checked])}" if checked.seen else ""
        paragraphs.append(f"{shown(checked.folder).strip('`')}: {found}{within}")
        paragraphs += [_paragraph(finding, width) for finding in checked.findings]
    return "\n\n".join(paragraphs)


def _paragraph(finding, width: int) -> str:
    lines = [f"{finding.rule}: {finding.where}", f"{finding.what}.", f"{finding.why}", f"Mend: {finding.fix}"]
    indents = ["  ", *["      "] * 3]
    return "\n".join(
        textwrap.fill(line, width, initial_indent=indent, subsequent_indent="      ", break_on_hyphens=False)
        for line, indent in zip(lines, indents, strict=True)
    )


def _seen(folders) -> str:
    """What was looked at: `versions 1 and 2: 6 signatures, 40 functions, ...`."""
    from zoo.serving.layout import is_version

    names = [pathlib.Path(checked.folder).absolute().name for checked in folders]
    one = f"version {names[0]}" if is_version(names[0]) else "the SavedModel"
    which = one if len(names) == 1 else f"{len(names)} versions"
    totals = {kind: sum(checked.seen[kind] for checked in folders) for kind in folders[0].seen}
    counts = [f"{n:,} {kind if n != 1 else kind.removesuffix('s')}" for kind, n in totals.items() if n]
    return f"{which}: {', '.join(counts)}"
