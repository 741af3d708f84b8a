"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

from __future__ import annotations

import codecs
import contextlib
import pathlib
import random
import shlex
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from training.quiet import import_tensorflow

app = typer.Typer(
    help="Attention models from model.fit to TensorFlow Serving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RUNS, MODELS, PICTURES = pathlib.Path("runs"), pathlib.Path("saved_models"), pathlib.Path("pictures")

ModelPath = Annotated[
    pathlib.Path,
    typer.Argument(
        metavar="MODEL",
        help="An exported model's folder, one version of it, or what a run saved (runs/NAME/translator).",
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; without any, lines of stdin.")]
TextFile = Annotated[pathlib.Path | None, typer.Option("--file", "-f", help="Read lines of this file instead.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a recipe's value: model.units=128.")
]


@contextlib.contextmanager
def user_errors(kinds: tuple[type[Exception], ...] = (ValueError, OSError)) -> Iterator[None]:
    """Turns what a user did wrong into one line on stderr and exit code 2."""
    try:
        yield
    except BrokenPipeError:  # `zoo ... | head` is no mistake; click ends quietly
        raise
    except kinds as error:
        message = str(error) if not isinstance(error, OSError) or error.errno is None else _os_error(error)
        typer.echo(f"zoo: {' '.join(message.split())}", err=True)
        raise typer.Exit(2) from None


def _os_error(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `zoo list`) or a TOML file.")],
    overrides: Overrides = None,
    out: Annotated[pathlib.Path | None, typer.Option(help="Folder of the run; default runs/RECIPE.")] = None,
    models: Annotated[pathlib.Path, typer.Option(help="The model is exported to MODELS/RECIPE/<version>.")] = MODELS,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, even if a stopped run could go on.")] = False,
) -> None:
    """Train a recipe's model, score it on the test split, and export it.

    The same command goes on with a run that was stopped, from the end of its last epoch.
    """
    with user_errors():
        from training.recipe import RecipeError, name_of, read_recipe

        name, parsed = name_of(recipe), read_recipe(recipe, overrides or ())
        if name == "recipe" and recipe.endswith(".json"):  # a run's own file: the run's folder has the name
            name = pathlib.Path(recipe).resolve().parent.name
        folder = out or RUNS / name
        folder.mkdir(parents=True, exist_ok=True)
        # Whatever is wrong with the texts is said before TensorFlow starts, and not after the training.
        for split in ("train", "validation", *parsed.corpus.splits):
            parsed.corpus.check(split)
    import_tensorflow()
    import training.run
    from training.checkpoint import CheckpointError
    from training.headline import headlines, scored_on
    from training.progress import say

    # Any other error of a training is ours, and shows where it is from.
    with user_errors((RecipeError, CheckpointError, OSError)):
        run = training.run.train(name, parsed, folder, _command_line(), restart)
    with user_errors():
        version = run.export(models / name)
    for score, value in headlines(run.metrics).items():
        say(f"{score} on {scored_on(run.metrics)}: {value}")
    say(f"run: {folder}   exported: {version}")


@app.command()
def evaluate(
    model: ModelPath,
    split: Annotated[str, typer.Option(help="The split to score.")] = "test",
    recipe: Annotated[str | None, typer.Option(help="Score on this recipe's corpus, not on the model's own.")] = None,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Score a model on a split of its corpus.

    Translators: BLEU if it is of sentences, and how often the whole output is right. Language models: loss, perplexity.
    """
    with user_errors():
        from training.recipe import read_recipe

        trained = _load(model)
        from training import run

        changes = overrides or ()
        parsed = read_recipe(recipe, changes) if recipe else run.read_back(_recipe_folder(model), changes)
        parsed.corpus.check(split)
        result = run.score(trained, parsed, split)
    if as_json:
        typer.echo(run.to_json(result), nl=False)
    else:
        _print_scores(result, split)


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
        lines = _lines(texts, file)
        translator = _load_translator(model)
        at_once = 1 if not texts and file is None and sys.stdin.isatty() else 16 * batch_size
        for chunk in _chunks(lines, at_once):
            for best in translator.translate(chunk, batch_size, beam, length_penalty, n_best):
                for result in (best, *best.alternatives):
                    line = result.text.replace("\n", " ")  # one line in, one line out
                    typer.echo(f"{result.score:.4f}\t{line}" if scores else line)
                if n_best > 1:
                    typer.echo()


@app.command()
def generate(
    model: ModelPath,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Texts to go on with; none for an empty one.")
    ] = None,
    file: Annotated[pathlib.Path | None, typer.Option("--file", "-f", help="Read the prompt from this file.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=0, help="The most tokens to add.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="Below 1 likelier; 0 always the likeliest.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the so many likeliest; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Draw from the likeliest with this share.")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1, what was there becomes less likely.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="What the choices follow from; any if not given.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many for each prompt, from seeds that follow.")] = 1,
) -> None:
    """Go on with texts by a language model; prompt and text are printed as they come.

    What was exported gives each text at once. Between several texts stands a line of dashes.
    """
    with user_errors():
        if prompts and file:
            raise ValueError("prompts and --file were both given; give one of them")
        texts = [file.read_text("utf-8", errors="replace")] if file else prompts or [""]
        generator = _load_generator(model)
        settings = dict(temperature=temperature, top_k=top_k, top_p=top_p, repetition_penalty=repetition_penalty)
        settings |= dict(max_new_tokens=tokens, stop=stop or ())
        first = random.randrange(2**31) if seed is None else seed
        for number, text in enumerate(each for each in texts for _ in range(samples)):
            if number:
                typer.echo("\n" + "-" * 20)
            pieces = generator.stream(text, seed=first + number, **settings)
            typer.echo(text, nl=False)
            for piece in pieces:
                typer.echo(piece, nl=False)
                sys.stdout.flush()
        typer.echo()


@app.command()
def score(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts to score at once.")] = 32,
) -> None:
    """Tell how likely texts are: log-probability, tokens and perplexity of each, and the text, with tabs between."""
    with user_errors():
        lines = _lines(texts, file)
        generator = _load_generator(model)
        for chunk in _chunks(lines, 16 * batch_size):
            for each in generator.score(chunk, batch_size):
                numbers = f"{each.log_probability:.4f}\t{each.tokens}\t{each.perplexity:.4f}"
                typer.echo(f"{numbers}\t{each.text.replace(chr(10), ' ')}")


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
    """Draw what each output token attends to in the source."""
    with user_errors():
        from zoo import pictures

        lines = [line for line in _lines(texts, file) if line.strip()]
        if not lines:
            raise ValueError("no text to draw the attention of; give one as an argument, by --file or on stdin")
        chosen = (
            _number_or_word("--layers", layers or "last", "last"),
            _number_or_word("--heads", heads or "mean", "mean"),
        )
        name = _model_name(model)
        translator = _load_translator(model)
        if layers or heads or encoder:
            kinds = None if encoder else [0]
            drawn = [grid.choose(*chosen, kinds) for grid in translator.attend_by_head(lines)]
        else:
            drawn = translator.attend(lines)
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
        from training import length_plot

        typer.echo(length_plot.save(models, out))


@app.command()
def export(
    run: Annotated[
        pathlib.Path,
        typer.Argument(help="A run's folder, such as runs/dates, or a GPT-2 checkpoint's."),
    ],
    to: Annotated[pathlib.Path | None, typer.Option(help="The model's folder; default saved_models/NAME.")] = None,
) -> None:
    """Export a finished run once more, as the next version of its model; or anybody's GPT-2."""
    with user_errors():
        import_tensorflow()
        from training.run import Run
        from zoo.gpt2_checkpoint import is_gpt2, load_gpt2
        from zoo.serving import export

        if is_gpt2(run):
            typer.echo(export(load_gpt2(run), to or MODELS / _model_name(run)))
        else:
            finished = Run.load(run)
            typer.echo(finished.export(to or MODELS / finished.name))


@app.command("list")
def list_(
    models: Annotated[pathlib.Path, typer.Option(help="Where exported models are.")] = MODELS,
) -> None:
    """List the recipes that can be trained and the models that were exported."""
    from training import listing

    listing.print_recipes()
    listing.print_models(models)


def _load(path: pathlib.Path):
    if not path.exists():  # before the seconds that TensorFlow takes to start
        raise FileNotFoundError(f"{path} does not exist; `zoo list` shows the exported models")
    import_tensorflow()
    import zoo

    return zoo.load(path)


def _load_translator(path: pathlib.Path):
    model = _load(path)
    if not hasattr(model, "translate"):
        raise ValueError(f"{path} is a language model, which does not turn one text into another; see `zoo generate`")
    return model


def _load_generator(path: pathlib.Path):
    model = _load(path)
    if not hasattr(model, "generate"):
        raise ValueError(f"{path} is a translator, which does not go on with a text; see `zoo translate`")
    return model


def _recipe_folder(model: pathlib.Path) -> pathlib.Path:
    """Where the recipe of a model lies: in its newest version, or beside the saved Translator."""
    from zoo.serving import newest_version

    return newest_version(model) or model.resolve().parent


def _model_name(model: pathlib.Path) -> str:
    parts = [part for part in model.resolve().parts if not part.isdecimal() and part not in ("translator", "generator")]
    return parts[-1]


def _number_or_word(option: str, value: str, word: str) -> str | int:
    if value in ("all", word):
        return value
    if not value.isdecimal():
        raise ValueError(f"{option} must be all, {word} or a number counted from 1, received {value!r}")
    return int(value)


def _lines(texts: list[str] | None, file: pathlib.Path | None) -> Iterator[str]:
    """The texts given as arguments, or the lines of a file or of stdin as they come; broken UTF-8 becomes U+FFFD."""
    if texts and file:
        raise ValueError("texts and --file were both given; give one of them")
    if texts:
        yield from texts
        return
    if file is None and sys.stdin.isatty():
        typer.echo("zoo: reading lines from the terminal; Ctrl-D ends", err=True)
    with file.open("rb") if file else contextlib.nullcontext(sys.stdin.buffer) as stream:
        for number, line in enumerate(stream):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
            yield line.rstrip(b"\r\n").decode("utf-8", "replace")


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _print_scores(result: dict, split: str) -> None:
    from training.headline import headlines

    if result["metric"] == "loss":
        for name, value in headlines(result).items():
            typer.echo(f"{split:<12} {name:<14} {value}")
        return
    for group, score in result["by_group"].items():
        typer.echo(f"{group:<12} {score['exact_match']:>8.2%}  {score['right']:>6,} of {score['total']:,}")
    what = "wrong" if result["metric"] == "exact_match" else "differs"  # there is more than one good translation
    for mistake in result["mistakes"]:
        typer.echo(f"{what}: {mistake['source']!r} -> {mistake['output']!r}, not {mistake['target']!r}")
    for name, value in list(headlines(result).items())[:-1]:
        typer.echo(f"{split:<12} {name} {value}")
    typer.echo(f"{split:<12} {result['exact_match']:>8.2%}  {result['right']:>6,} of {result['total']:,}")


def _command_line() -> str:
    return shlex.join(["zoo", *sys.argv[1:]])


def main() -> None:
    """The entry point of the command `zoo`."""
    app()


if __name__ == "__main__":
    main()
