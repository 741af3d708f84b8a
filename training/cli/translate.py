"""Commands of translators, and of attention."""

from __future__ import annotations

import pathlib
import re
from typing import Annotated

import typer

from .printing import one_line
from .shared import (
    PICTURES,
    ModelPath,
    TextFile,
    Texts,
    app,
    chunks,
    lines_at_once,
    load,
    load_translator,
    model_name,
    read_lines,
    user_errors,
)

_OPTIONS = {"beam_size": "--beam", "length_penalty": "--length-penalty", "n_best": "--n-best"}


@app.command()
def translate(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    scores: Annotated[bool, typer.Option(help="Put the log-probability before each result, and a tab.")] = False,
    beam: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Hypotheses to follow; 1 is greedy. Default: the model's own."),
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, metavar="X", help="How much longer results are favoured; 0 for not at all.")
    ] = None,
    n_best: Annotated[
        int, typer.Option(min=1, metavar="N", help="Print the N best results of each text, with an empty line after.")
    ] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts to translate at once.")] = 64,
) -> None:
    """Translate texts, one result a line; an empty line stays empty."""
    with user_errors():
        lines = read_lines(texts, file)
        translator = load_translator(model)
        for chunk in chunks(lines, lines_at_once(texts, file, batch_size)):
            try:
                translations = translator.translate(chunk, batch_size, beam, length_penalty, n_best)
            except ValueError as error:  # which names arguments
                raise ValueError(
                    re.sub("`(\\w+)`", lambda found: _OPTIONS.get(found[1], found[0]), str(error))
                ) from None
            for best in translations:
                for result in (best, *best.alternatives):
                    line = one_line(result.text)
                    typer.echo(f"{result.score:.4f}\t{line}" if scores else line)
                if n_best > 1:
                    typer.echo()


@app.command()
def attend(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    out: Annotated[
        pathlib.Path | None, typer.Option(help="A .html, .svg or .png file; default pictures/MODEL.html.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="all|last|N", help="Which layers of a transformer; default last.")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(metavar="all|mean|N", help="Which heads of them, or their mean; default mean.")
    ] = None,
    encoder: Annotated[bool, typer.Option("--encoder", help="Draw the encoder's self-attention below.")] = False,
) -> None:
    """Draw what each output token attends to in the source, or each token of a language model to those before it."""
    with user_errors():
        from zoo import pictures

        lines = [line for line in read_lines(texts, file) if line.strip()]
        if not lines:
            raise ValueError("no text to draw the attention of; give one as an argument, by --file or on stdin")
        chosen = (
            _number_or_word("--layers", layers or "last", "last"),
            _number_or_word("--heads", heads or "mean", "mean"),
        )
        name = model_name(model)
        loaded = load(model)
        if encoder and not hasattr(loaded, "translate"):
            raise ValueError(f"{model} is a language model, which has no encoder")
        typed = [name for name, value in (("--layers", layers), ("--heads", heads), ("--encoder", encoder)) if value]
        if typed:
            kinds = None if encoder else [0]
            try:
                grids = loaded.attend_by_head(lines)
            except ValueError as error:
                raise ValueError(f"{', '.join(typed)}: {error}") from None
            drawn = [grid.choose(*chosen, kinds) for grid in grids]
        else:
            drawn = loaded.attend(lines)
        path = pictures.save(drawn, out or PICTURES / f"{name}.html", title=f"Attention of {name}")
    typer.echo(path)


@app.command("compare-lengths")
def compare_lengths(
    models: Annotated[
        list[pathlib.Path], typer.Argument(metavar="MODEL...", help="Runs' or exported models' folders, a line each.")
    ],
    out: Annotated[pathlib.Path, typer.Option(help="A .png, .svg or .pdf file.")] = PICTURES / "lengths.png",
) -> None:
    """Draw BLEU by source length, of several models in one picture, from the scores that they were saved with."""
    with user_errors():
        from ..scoring import length_plot

        typer.echo(length_plot.save(models, out))


def _number_or_word(option: str, value: str, word: str) -> str | int:
    if value in ("all", word):
        return value
    if not value.isdecimal():
        raise ValueError(f"{option} must be all, {word} or a number counted from 1. Received: {value!r}")
    return int(value)
