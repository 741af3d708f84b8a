"""The command that exports a finished run, or a Hugging Face checkpoint."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from zoo.checkpoints import hub_hint, hub_name, is_checkpoint

from ..start_tensorflow import import_tensorflow
from .ctrl_c import interrupted_between_graphs
from .lines import read_lines
from .shared import MODELS, RUNS, app, kind_and_command, load, model_name, namesakes, user_errors


@app.command()
def export(
    run: Annotated[
        pathlib.Path,
        typer.Argument(
            metavar="RUN",
            help="The folder of a run, such as runs/dates, or of a Hugging Face model, such as opus-mt-en-de.",
        ),
    ],
    to: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The model's folder.",
            show_default="of a run, where its training exported to; of a checkpoint, saved_models/NAME",
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="For a model with several target languages: the one for texts that name none, such as fra.",
        ),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="For a Hugging Face classifier that reads pairs of texts, such as a premise and a hypothesis.",
        ),
    ] = False,
    weights: Annotated[
        str,
        typer.Option(
            metavar="float32|float16",
            help="How the files store the weights. With float16 they take half the bytes; the server computes in"
            " float32.",
        ),
    ] = "float32",
    explore: Annotated[
        bool,
        typer.Option(
            "--explore",
            help="Also add the signatures by which people choose tokens, as on the page of `zoo serve`. A translator"
            " then takes twice as long to load.",
        ),
    ] = False,
    shortlist: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="For a translator, a file of source texts, one per line, such as those of the training. The export"
            " learns from them which target tokens a source needs, and then considers only these. A single text is"
            " answered sooner, above all with a large vocabulary; some answers change.",
        ),
    ] = None,
    shortlist_size: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            help="With --shortlist, how many target tokens a translation may use.",
            show_default="2048",
        ),
    ] = None,
    to_huggingface: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write a Hugging Face folder instead, which `transformers` reads: a GPT of the shape of GPT-2, or"
            " a transformer of the shape of Marian.",
        ),
    ] = None,
) -> None:
    """Export a finished run, or a Hugging Face checkpoint, as the next version of a model."""
    with user_errors(options={"target_language": "--target-language", "task": str(run)}):
        if to is not None and to_huggingface is not None:
            raise ValueError("--to and --to-huggingface were both given; give one of them")
        if weights not in ("float32", "float16"):  # before anything is loaded
            raise ValueError(f"--weights must be float32 or float16. Received: {weights}")
        if weights != "float32" and to_huggingface is not None:
            raise ValueError("--weights is for a SavedModel; --to-huggingface writes float32")
        if explore and to_huggingface is not None:
            raise ValueError("--explore is for a SavedModel; --to-huggingface writes no signatures")
        if shortlist is not None and to_huggingface is not None:
            raise ValueError("--shortlist is for a SavedModel; a Hugging Face folder has none")
        if shortlist_size is not None and shortlist is None:
            raise ValueError("--shortlist-size is for a --shortlist; there is none")
        sources = [] if shortlist is None else list(read_lines(None, shortlist))
        if shortlist is not None and not any(text.strip() for text in sources):
            raise ValueError(f"{shortlist} has no texts")
        if not run.is_dir():
            hint = namesakes(run, RUNS) or hub_hint(run)
            raise ValueError(f"{run} is a file; name its folder" if run.exists() else f"{run} does not exist{hint}")
        import_tensorflow()
        from zoo.checkpoints.loading import load_checkpoint
        from zoo.checkpoints.saving import save_checkpoint
        from zoo.serving import newest_version

        from ..imported import export_imported
        from ..run import Run
        from ..shortlisting import with_learnt_shortlist

        is_imported = is_checkpoint(run)
        if not is_imported and newest_version(run) is not None:
            raise ValueError(
                f"{run} is an export already: copy its folder, or export what it was made from, such as runs/NAME"
            )
        if target_language is not None and not is_imported:
            raise ValueError(f"--target-language is for Hugging Face checkpoints; {run} is not one")
        if pairs and (not is_imported or to_huggingface is not None):
            raise ValueError("--pairs is for the export of a classifier of Hugging Face")
        with interrupted_between_graphs():
            if to_huggingface is not None:
                task = load_checkpoint(run, target_language) if is_imported else load(run)
                typer.echo(save_checkpoint(task, to_huggingface))
            elif is_imported:
                place = _elsewhere(to or MODELS / (hub_name(run) or model_name(run)).rpartition("/")[2], run)
                task = load_checkpoint(run, target_language)
                if pairs:
                    task = _of_pairs(task, run)
                if sources:
                    task = with_learnt_shortlist(task, sources, shortlist_size)
                typer.echo(export_imported(task, run, place, weights, explore))
            else:
                finished = Run.load(run)
                place = _elsewhere(to or (finished.models(run) or MODELS) / finished.name, run)
                if sources:
                    finished.task = with_learnt_shortlist(finished.task, sources, shortlist_size)
                typer.echo(finished.export(place, weights, explore))


def _elsewhere(place: pathlib.Path, run: pathlib.Path) -> pathlib.Path:
    """The place of an export, if it is not the folder of what is exported."""
    if place.resolve() == run.resolve():
        raise ValueError(f"{run} would be exported into itself; give another folder by --to")
    return place


def _of_pairs(task, path: pathlib.Path):
    """A classifier that reads pairs of texts; the files of Hugging Face do not say which one does."""
    if not hasattr(task, "classify"):
        raise ValueError(f"--pairs is for a classifier; {path} is {kind_and_command(task)[0]}")
    return task.with_settings(pairs=True)
