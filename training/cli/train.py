"""Commands that train, score and export models."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Annotated, Any

import typer

from zoo.checkpoints import hub_hint, hub_name, is_checkpoint

from ..start_tensorflow import import_tensorflow
from .classifier_scores import print_classifier_scores
from .lines import read_lines
from .shared import (
    MODELS,
    RUNS,
    CommandWithHint,
    ModelPath,
    Overrides,
    app,
    kind_and_command,
    load,
    model_name,
    namesakes,
    recipe_folder,
    user_errors,
)


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
        for option, place in (("--out", folder), ("--models", models / name)):
            for part in (place, *place.parents):
                if part.is_file():
                    raise ValueError(f"{option}: {part} is a file, and must be a folder")
        if (models / name).resolve() == folder.resolve():
            raise ValueError(f"{folder} is the folder of the run; the export needs another one: give --models or --out")
        if cluster is None or cluster.index == 0:  # the chief alone writes there
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
    from ..scoring.headline import headlines, scored_on

    # Any other error of a training is a bug of ours, so its traceback is shown.
    with user_errors((RecipeError, CorpusError, CheckpointError, ClusterError, OSError)):
        try:
            with _interrupted_between_graphs():
                trained = runs.train(name, parsed, folder, _command_line(), models, restart, wait)
        except KeyboardInterrupt:
            say(runs.how_to_go_on(folder))
            raise typer.Exit(130) from None  # as a shell reports a process that Ctrl-C ended
    if trained is None:  # the chief says how it went
        return
    run, version = trained
    for score, value in headlines(run.metrics).items():
        say(f"{score} on {scored_on(run.metrics)}: {value}")
    say(f"run: {folder}   exported: {version}")


@contextlib.contextmanager
def _interrupted_between_graphs() -> Iterator[None]:
    """Lets a Ctrl-C wait until TensorFlow has made the graph that it is making; a second Ctrl-C does not wait.

    There, a `KeyboardInterrupt` sometimes comes out as an error of the model, or crashes the process.
    """
    import tensorflow as tf

    from ..progress import say

    presses, looks, timer, main_thread = 0, False, threading.Timer(0, lambda: None), threading.get_ident()

    def look_again() -> None:
        nonlocal looks
        looks = True
        # To the main thread, which runs `heard`; a signal to this one would not wake it if it waits.
        signal.pthread_kill(main_thread, signal.SIGINT)

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal presses, looks, timer
        pressed, looks = not looks, False
        presses += pressed
        if presses > 1 or not tf.inside_function():
            raise KeyboardInterrupt
        if pressed:
            say("stopping when the graph is made; a second Ctrl-C stops at once")
        timer = threading.Timer(0.1, look_again)
        timer.start()

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # the signal is ignored, or a caller's
        yield
        return
    signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@app.command()
def evaluate(
    model: ModelPath,
    split: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The split to score.", show_default="test, or else validation"),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Score on this recipe's corpus, not on the model's own.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the recipe's corpus, such as corpus.test=new.tsv; or, of a saved translator, of its"
            " decoding, such as decoding.beam_size=5; may be repeated. A warning says how many of the texts the model"
            " was trained on, as with another corpus.seed.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Score a model on a split of its corpus.

    Translators: BLEU of sentences, error rates of pronunciations, how often the output is right. Classifiers:
    accuracy, F1, calibration and confusions. Language models and mask fillers: loss and perplexity, of a run
    (runs/NAME) and not of an export. A Hugging Face model needs --recipe.
    """
    with user_errors():
        from ..run_files import CACHE_FOLDER, RECIPE_FILE
        from ..schema.recipe import read_recipe
        from ..scoring.seen_texts import about_seen_texts
        from ..storage import set_storage

        changes = overrides or ()
        changed = [change.partition("=")[0].strip().split(".") for change in changes]
        for change, (table, *keys) in zip(changes, changed, strict=True):
            if table != "corpus" and not (table == "decoding" and keys):
                raise ValueError(f"--set takes corpus.KEY=VALUE or decoding.KEY=VALUE here. Received: --set {change}")
        trained = load(model)
        kind, command = kind_and_command(trained)
        if command == "embed":
            raise ValueError(f"{model} is {kind}, which is not scored on a corpus")
        from .. import run

        parsed = read_recipe(recipe, changes) if recipe else run.read_back(recipe_folder(model), changes)
        # Of a large corpus, the run's cache has the splits; another corpus must not take their place in it.
        set_storage(parsed.corpus, recipe_folder(model) / CACHE_FOLDER, None, keeps=False)
        if decoding := {key for table, *keys in changed if table == "decoding" for key in keys[:1]}:
            trained = _decoding_as(trained, model, parsed.model_dump(include={"decoding": decoding})["decoding"])
        split = split or run.default_split(parsed)
        changes_texts = bool(recipe) or ["corpus"] in [key[:1] for key in changed]
        if changes_texts and (recipe_folder(model) / RECIPE_FILE).is_file():
            own = run.read_back(recipe_folder(model))
            set_storage(own.corpus, recipe_folder(model) / CACHE_FOLDER, None, keeps=False)
            if type(own) is type(parsed) and (told := about_seen_texts(parsed.corpus, split, own.corpus)):
                typer.echo(f"zoo: {told}", err=True)
        with _interrupted_between_graphs():
            result = run.score(trained, parsed, split)
    digests = result.pop("digests")
    if not changes_texts and run.changed_since(recipe_folder(model), digests):
        typer.echo(f"zoo: the {split} texts have changed since the model was trained", err=True)
    if as_json:
        typer.echo(run.to_json(result), nl=False)
    else:
        _print_scores(result, split)


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
        with _interrupted_between_graphs():
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


def _decoding_as(task, path: pathlib.Path, settings: dict[str, Any]):
    """A translator with other settings of its beam search; an export has those that it was made with."""
    if not hasattr(task, "beam_size"):
        raise ValueError(
            f"{path} decodes as it was exported; give decoding.* for a saved translator, such as runs/NAME"
        )
    return task.with_settings(**settings)


def _of_pairs(task, path: pathlib.Path):
    """A classifier that reads pairs of texts; the files of Hugging Face do not say which one does."""
    if not hasattr(task, "classify"):
        raise ValueError(f"--pairs is for a classifier; {path} is {kind_and_command(task)[0]}")
    return task.with_settings(pairs=True)


def _print_scores(result: dict, split: str) -> None:
    from ..scoring.headline import headlines

    if result["metric"] in ("accuracy", "subset_accuracy"):
        print_classifier_scores(result, split)
        return
    if result["metric"] in ("loss", "masked_loss"):
        for name, value in headlines(result).items():
            typer.echo(f"{split:<12} {name:<14} {value}")
        return
    for group, score in result["by_group"].items():
        typer.echo(f"{group:<12} {score['exact_match']:>8.2%}  {score['right']:>6,} of {score['total']:,}")
    what = "wrong" if result["metric"] == "exact_match" else "differs"  # there is more than one good translation
    for mistake in result["mistakes"]:
        typer.echo(f"{what}: {mistake['source']!r} -> {mistake['output']!r}, not {mistake['target']!r}")
    for name, value in headlines(result).items():
        if name != "exact match":  # the last line, with its counts
            typer.echo(f"{split:<12} {name} {value}")
    typer.echo(f"{split:<12} {result['exact_match']:>8.2%}  {result['right']:>6,} of {result['total']:,}")


_ZOO = "from zoo_training.cli import main; main()"  # the script `zoo` may be elsewhere than on the path


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


def _command_line() -> str:
    return shlex.join(["zoo", *sys.argv[1:]])
