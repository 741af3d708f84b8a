"""The command that trains a recipe's model."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
from typing import Annotated

import typer

from ..start_tensorflow import import_tensorflow
from .ctrl_c import interrupted_between_graphs
from .shared import MODELS, RUNS, CommandWithHint, Overrides, app, check_places, command_line, say_scores, user_errors

_ZOO = "from zoo_training.cli import main; main()"  # the script `zoo` may be elsewhere than on the path


class _CommandOfRecipes(CommandWithHint):
    hint = "Keys of a recipe are set by --set, such as --set training.epochs=5"


@app.command(cls=_CommandOfRecipes)
def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name (see `zoo list`) or a TOML file.")],
    overrides: Overrides = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the run. The export goes to --models.",
            show_default="runs/RECIPE",
        ),
    ] = None,
    models: Annotated[
        pathlib.Path, typer.Option(metavar="FOLDER", help="The model is exported to FOLDER/RECIPE/VERSION.")
    ] = MODELS,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Start again, even if a stopped run can continue or the folder holds another recipe's run.",
        ),
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="all|NUMBER",
            help="Start one process for each GPU of this machine (all), or this many processes.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="How long the workers of TF_CONFIG may take to start.")
    ] = 60.0,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            help="Neither use nor keep a cache of a large corpus; temporary files are removed at the end.",
        ),
    ] = False,
) -> None:
    """Train a recipe's model, score it on held-out text, and export it.

    If you stop it, the same command continues the run. After Ctrl-C, the exit code is 130.

    To train on several workers, set the environment variable TF_CONFIG and start the same command on each.
    """
    with user_errors():
        from zoo.cluster import read_cluster
        from zoo.serving.layout import SAVED_MODEL_FILE, is_version

        from ..corpora.corpus import expanded
        from ..distillation import check_teachers
        from ..run_files import CACHE_FOLDER, check_replaceable
        from ..schema.recipe import RecipeError, name_of, read_recipe
        from ..schema.translator_tables import TranslatorRecipe
        from ..storage import set_storage

        cluster = read_cluster(os.environ.get("TF_CONFIG"))  # a mistake is said before TensorFlow starts
        # A TranslatorRecipe unless the model's family is of another kind. Its `corpus` is of the
        # class in training/corpora whose `kind` the recipe names, for example `Multi30k`.
        name, parsed = name_of(recipe), read_recipe(recipe, overrides or ())
        if parsed.training.tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise RecipeError("training.tensorboard=true needs `pip install 'attention-zoo[tensorboard]'`")
        if name == "recipe" and recipe.endswith(".json"):  # of a run or of a version: the folder has the name
            made = pathlib.Path(recipe).resolve().parent
            name = made.parent.name if is_version(made.name) and (made / SAVED_MODEL_FILE).is_file() else made.name
        folder = out or RUNS / name
        for given in (recipe, str(folder), str(models), *(overrides or ())):
            try:
                given.encode()
            except UnicodeEncodeError:  # bytes of another encoding; recipe.json and metrics.json could not be written
                raise ValueError(f"{given!a} is not UTF-8, which the files of a run are in; rename it") from None
        is_chief = cluster is None or cluster.index == 0
        check_places(folder, models / name if is_chief else None)
        if is_chief:
            check_replaceable(folder, name, recipe, restart)
        set_storage(parsed.corpus, None if no_cache else folder / CACHE_FOLDER, folder)
        if isinstance(parsed, TranslatorRecipe):
            check_teachers(parsed.corpus)
        if parsed.model.start is not None and not expanded(parsed.model.start).exists():
            raise RecipeError(
                f"model.start: {parsed.model.start} does not exist; give the folder of a run, or of a Hugging Face "
                "model: docs/import.md says how to get one"
            )
        if devices is not None:  # a mistake so far is said once, and not by each process
            _train_on_devices(devices)
        by_tensorflow = any(corpus.kind == "tfds" for corpus in parsed.corpus.parts)
        if by_tensorflow:  # its package imports TensorFlow, with its notes
            import_tensorflow()
        # A mistake in the texts is reported before TensorFlow starts. The corpus keeps what it reads for the training.
        if not (by_tensorflow and cluster):  # several workers must meet before TensorFlow computes anything
            parsed.corpus.parts[0].expect("validation")
            for split in parsed.corpus.splits:
                parsed.corpus.check(split)
    import_tensorflow()
    from zoo.distribution import ClusterError

    from .. import run as runs
    from ..corpora.corpus import CorpusError
    from ..fitting.checkpoint import CheckpointError
    from ..progress import say

    # Any other error of a training is a bug of ours, so its traceback is shown.
    with user_errors((RecipeError, CorpusError, CheckpointError, ClusterError, OSError)):
        try:
            with interrupted_between_graphs():
                trained = runs.train(name, parsed, folder, command_line(), models, restart, wait)
        except KeyboardInterrupt:
            say(runs.how_to_go_on(folder))
            raise typer.Exit(130) from None  # as a shell reports a process that Ctrl-C ended
    if trained is None:  # the chief says how it went
        return
    run, version = trained
    say_scores(run, folder, version)


def _train_on_devices(devices: str) -> None:
    """Starts this command once for each device, with a `TF_CONFIG` of this machine, and ends as they end."""
    from zoo.local_workers import check_alone, gpus, start

    check_alone()
    number = max(1, len(gpus())) if devices == "all" else int(devices) if devices.isdigit() else 0
    if number < 1:
        raise ValueError(f"--devices must be `all` or a number from 1. Received: {devices}")
    arguments = [*sys.argv[1:]]
    place = next(index for index, each in enumerate(arguments) if each.partition("=")[0] == "--devices")
    del arguments[place : place + (1 if "=" in arguments[place] else 2)]
    raise typer.Exit(start([sys.executable, "-P", "-c", _ZOO, *arguments], number))
