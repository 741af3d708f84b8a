"""The command that joins several trained translators."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

from ..start_tensorflow import import_tensorflow
from .ctrl_c import interrupted_between_graphs
from .shared import MODELS, RUNS, app, check_places, command_line, model_name, namesakes, say_scores, user_errors


@app.command()
def ensemble(
    runs: Annotated[
        list[pathlib.Path],
        typer.Argument(metavar="RUN", help="The folders of two or more runs with the same vocabularies, best first."),
    ],
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the result, whose name is the model's name.",
            show_default="runs/NAME-ensemble, with the name of the first run",
        ),
    ] = None,
    models: Annotated[
        pathlib.Path, typer.Option(metavar="FOLDER", help="The model is exported to FOLDER/NAME/VERSION.")
    ] = MODELS,
) -> None:
    """Join translators that were trained with different seeds or models; score and export the result.

    It averages their probabilities of each token, which is usually right more often than each of them, and takes as
    much work as all of them. Lengths, decoding and corpus are those of the first run.
    """
    with user_errors():
        from zoo.serving.layout import newest_version

        for run in runs:
            if not run.is_dir():
                what = "is a file" if run.exists() else f"does not exist{namesakes(run, RUNS)}"
                raise ValueError(f"{run} {what}; give the folders of runs")
            if newest_version(run) is not None:
                raise ValueError(f"{run} is an export; give the run that it was made from, such as runs/NAME")
        folder = out or RUNS / f"{model_name(runs[0])}-ensemble"
        check_places(folder, models / folder.resolve().name)
        import_tensorflow()
        from ..ensembling import join
        from ..progress import say

        try:
            with interrupted_between_graphs():
                joined, version = join(runs, folder, command_line(), models)
        except KeyboardInterrupt:
            say("stopped; the same command begins anew")
            raise typer.Exit(130) from None
        say_scores(joined, folder, version)
