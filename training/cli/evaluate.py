"""The command that scores a model on a split of its corpus."""

from __future__ import annotations

import pathlib
from typing import Annotated, Any

import typer

from .classifier_scores import print_classifier_scores
from .ctrl_c import interrupted_between_graphs
from .shared import ModelPath, app, kind_and_command, load, recipe_folder, user_errors


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
        with interrupted_between_graphs():
            result = run.score(trained, parsed, split)
    digests = result.pop("digests")
    if not changes_texts and run.changed_since(recipe_folder(model), digests):
        typer.echo(f"zoo: the {split} texts have changed since the model was trained", err=True)
    if as_json:
        typer.echo(run.to_json(result), nl=False)
    else:
        _print_scores(result, split)


def _decoding_as(task, path: pathlib.Path, settings: dict[str, Any]):
    """A translator with other settings of its beam search; an export has those that it was made with."""
    if not hasattr(task, "beam_size"):
        raise ValueError(
            f"{path} decodes as it was exported; give decoding.* for a saved translator, such as runs/NAME"
        )
    return task.with_settings(**settings)


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
