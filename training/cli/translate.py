"""Commands that translate and that draw."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..answering import answers
from .lines import LINES, read_lines, read_pairs, threads_for
from .printing import one_line
from .shared import (
    PICTURES,
    CommandOfTexts,
    ModelPath,
    TextFile,
    Texts,
    app,
    check_model,
    kind_and_command,
    load,
    load_as,
    model_name,
    user_errors,
)

if TYPE_CHECKING:
    from zoo.tasks.results import Translation

_OF_BEAM = {"beam_size": "--beam", "length_penalty": "--length-penalty", "n_best": "--n-best"}
_OUT = {"path": "--out"}
_MOST_WEIGHTS = 2_000_000  # 11 MB of a page


@app.command(cls=CommandOfTexts)
def translate(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the log-probability and a tab before each result.")
    ] = False,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of hypotheses; 1 is greedy. Not for an export.", show_default="the model's"
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help="Favours longer results; 0 does not. Not for an export.",
            show_default="the model's",
        ),
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Print the N best results of each text; if N > 1, then an empty line. Not for an export.",
        ),
    ] = 1,
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Number of texts to translate at once.")] = 64,
) -> None:
    """Translate texts; print one result per line. An empty line stays empty."""
    with user_errors(options=_OF_BEAM):
        lines = read_lines(texts, file)
        check_model(model)
        threads = threads_for(texts, file)
        translator = load_as("translate", model)

        def translated(batch: list[str]) -> list[str]:
            return [shown(best) for best in translator.translate(batch, batch_size, beam, length_penalty, n_best)]

        def shown(best: Translation) -> str:
            found = (f"{each.score:.4f}\t" * scores + one_line(each.text) for each in (best, *best.alternatives))
            return "\n".join(found) + "\n" * (n_best > 1)

        for chunk in answers(translated, lines, LINES * batch_size, batch_size, threads, lines.more):
            typer.echo("\n".join(chunk))


@app.command(cls=CommandOfTexts)
def attend(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="A .html, .svg or .png file; .svg for one text only.",
            show_default="pictures/MODEL.html",
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="all|last|N", help="Layers of a transformer, from 1.", show_default="last")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(metavar="all|mean|N", help="Heads of each layer, from 1.", show_default="mean")
    ] = None,
    encoder: Annotated[
        bool, typer.Option("--encoder", help="Also draw the self-attention of encoder and decoder.")
    ] = False,
) -> None:
    """Draw the attention of a model for some texts.

    For a translator, the picture shows which source tokens each output token attends to. For a language model, it shows
    which earlier tokens each token attends to. For a classifier, embedder or mask filler, it shows which tokens each
    token attends to; or, if attention makes one vector of a text, how much each token counts. A .html has every head,
    to choose from. A .png needs Matplotlib and a font for every character; .html and .svg need neither.
    """
    with user_errors(options={**_OUT, "layers": "--layers", "heads": "--heads"}):
        from zoo import pictures
        from zoo.pictures.saving import check_picture_file

        given = list(read_lines(texts, file))
        lines = [line for line in given if line.strip()]
        if not lines:
            raise ValueError(
                "no text to draw the attention of, or only empty ones; give one as an argument, by --file or on stdin"
            )
        chosen = (
            _number_or_word("--layers", layers or "last", "last"),
            _number_or_word("--heads", heads or "mean", "mean"),
        )
        name = model_name(model)
        path = out or PICTURES / f"{name}.html"
        check_picture_file(path, len(lines))
        loaded = load(model)
        if encoder and not hasattr(loaded, "translate"):
            kind, command = kind_and_command(loaded)
            lacks = "has no encoder" if command == "generate" else "has no attention but its encoder's"
            raise ValueError(f"{model} is {kind}, which {lacks}")
        drawable = list(read_pairs(given, texts, skip_empty=True)) if getattr(loaded, "pairs", False) else lines
        typed = [name for name, value in (("--layers", layers), ("--heads", heads), ("--encoder", encoder)) if value]
        if typed:
            kinds = None if encoder else [0]
            try:
                grids = loaded.attend_by_head(drawable)
            except ValueError as error:
                raise ValueError(f"{', '.join(typed)}: {error}") from None
            drawn = [grid.choose(*chosen, kinds) for grid in grids]
        else:
            drawn = _for_a_page(loaded, drawable) if path.suffix.lower() == ".html" else loaded.attend(drawable)
        pictures.save(drawn, path, title=f"Attention of {name}")
    typer.echo(path)


def _for_a_page(loaded: Any, texts: list[Any]) -> list[Any]:
    """Every head of each text. If attention makes one vector of a text, how much each token counted stands above.

    Without heads, or with so many weights that the page would be large, it is what `attend` gives.
    """
    try:
        grids = loaded.attend_by_head(texts)
    except ValueError:
        return loaded.attend(texts)
    if sum(kind.weights.size for grid in grids for kind in grid.kinds) > _MOST_WEIGHTS:
        return loaded.attend(texts)
    if kind_and_command(loaded)[1] not in ("classify", "embed"):
        return grids
    alignments = loaded.attend(texts)
    pooled = [each for each in alignments if len(each.target_tokens) < len(each.source_tokens)]  # one row for the text
    return [each for pair in zip(pooled, grids, strict=True) for each in pair] if pooled else grids


@app.command("compare-lengths")
def compare_lengths(
    models: Annotated[
        list[pathlib.Path], typer.Argument(metavar="MODEL", help="Folders of runs or of exported models.")
    ],
    out: Annotated[pathlib.Path, typer.Option(metavar="FILE", help="A .png, .svg or .pdf file.")] = PICTURES
    / "lengths.png",
) -> None:
    """Draw BLEU by source length, with one line for each model, from the scores in metrics.json."""
    with user_errors(options=_OUT):
        from ..scoring import length_plot

        typer.echo(length_plot.save(models, out))


@app.command()
def confusion(
    model: ModelPath,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="A .png, .svg or .pdf file.", show_default="pictures/MODEL-confusion.png"),
    ] = None,
) -> None:
    """Draw which classes a classifier mixes up, from the scores in metrics.json."""
    with user_errors(options=_OUT):
        from ..scoring import confusion_plot

        typer.echo(confusion_plot.save(model, out or PICTURES / f"{model_name(model)}-confusion.png"))


def _number_or_word(option: str, value: str, word: str) -> str | int:
    if value in ("all", word):
        return value
    if not value.isdecimal():
        raise ValueError(f"{option} must be all, {word} or a number counted from 1. Received: {value!r}")
    return int(value)
