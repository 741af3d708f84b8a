"""The command that answers whole files, in many processes or on a cluster, by Apache Beam."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from zoo.local_workers import cores

from .shared import app, check_model, user_errors


@app.command()
def batch(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of an exported model or of a version.")],
    given: Annotated[
        str, typer.Argument(metavar="INPUT", help="A .txt, .tsv, .jsonl or .parquet file, or several by '*'; also .gz.")
    ],
    out: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT", help="A file of the same kind; .txt for answers only; .jsonl; or .tsv for a .txt input."
        ),
    ],
    beam_flags: Annotated[
        list[str] | None,
        typer.Argument(metavar="BEAM", help="Options of Apache Beam, after `--`, such as -- --runner=FlinkRunner."),
    ] = None,
    signature: Annotated[str, typer.Option(metavar="NAME", help="The signature to call.")] = "serving_default",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="INPUT=COLUMN", help="The column of an input of the signature; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="INPUT=VALUE", help="An input that is the same for all rows; may be repeated."),
    ] = None,
    outputs: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="The outputs to write.", show_default="all; of .txt the text")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put this before the names of the new columns.")] = "",
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="KIND", help="txt, tsv, jsonl or parquet.", show_default="by the name"),
    ] = None,
    header: Annotated[bool, typer.Option(help="Whether the first line of a .tsv file names its columns.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Number of rows to compute at once.")] = 64,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes on this machine.", show_default="one a core")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace OUTPUT, and what an earlier run left unfinished.")
    ] = False,
) -> None:
    """Run a model on every row of files; write the rows in the same order, with the outputs as new columns.

    Rows that fail go to a file .failed.jsonl beside OUTPUT, with the reason. If a run is killed, the same command
    continues it. It runs on this machine or, with options of Beam, on Flink, Spark or Dataflow.
    """
    begin = time.monotonic()
    with user_errors(), _without_warnings():  # Beam tells which clouds it has no client of
        columns, values = _pairs("--column", column), _pairs("--set", settings)
        if "://" not in model:
            check_model(pathlib.Path(model))
        from ..batch_inference.infer import infer_files
        from ..batch_inference.plan import Request
        from ..progress import progress_bar, say

        asked = Request(
            model=model,
            pattern=given,
            out=out,
            signature=signature,
            columns=columns,
            settings=values,
            outputs=outputs.split(",") if outputs else None,
            prefix=prefix,
            file_format=file_format,
            header=header,
            batch_size=batch_size,
        )
        with progress_bar("rows", None) as advance:
            found = infer_files(asked, beam_flags or (), workers or cores(), overwrite, advance, say)
        rows, seconds = found.done + found.failed, time.monotonic() - begin
        if found.broken:
            are = "is" if found.broken == 1 else "are"
            say(f"zoo: warning: {_counted(found.broken, 'row')} {are} not UTF-8; broken bytes were read as U+FFFD")
        told = f"{_counted(rows, 'row')} in {seconds:.0f} s, {_counted(found.counters.get('batches', 0), 'batch')}"
        say(f"{told}; {found.failed:,} failed, see {found.dead_letters}" if found.failed else f"{told}; none failed")
    typer.echo(out)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.getLogger().setLevel(level)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('ch') else 's'}"


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise ValueError(f"{option} takes NAME=VALUE. Received: {each!r}")
        if name in found:
            raise ValueError(f"{option} gives {name} twice, {found[name]!r} and {value!r}; give it once")
        found[name] = value
    return found
