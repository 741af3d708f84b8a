"""What every command needs: the app, its usual options, errors in one line, models and lines of text."""

from __future__ import annotations

import codecs
import contextlib
import pathlib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zoo.extras import MissingExtraError
from zoo.run_layout import GENERATOR_FOLDER, TRANSLATOR_FOLDER

from ..quiet import import_tensorflow
from ..run_files import RECIPE_FILE

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
        help="An exported model's folder, one version of it, or a run's, runs/NAME.",
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
    caught: tuple[type[Exception], ...] = (MissingExtraError, *kinds)
    try:
        yield
    except BrokenPipeError:  # `zoo ... | head` is no mistake; click ends quietly
        raise
    except caught as error:
        message = str(error) if not isinstance(error, OSError) or error.errno is None else _os_error(error)
        typer.echo(f"zoo: {' '.join(message.split())}", err=True)
        raise typer.Exit(2) from None


def _os_error(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def load(path: pathlib.Path):
    """What `zoo.load` gives, with TensorFlow's notes kept from the terminal."""
    if not path.exists():  # before the seconds that TensorFlow takes to start
        raise FileNotFoundError(f"{path} does not exist; `zoo list` shows the exported models")
    import_tensorflow()
    import zoo

    return zoo.load(path)


def load_translator(path: pathlib.Path):
    """A model that turns texts into others; a `ValueError` if it does not."""
    model = load(path)
    if not hasattr(model, "translate"):
        raise ValueError(f"{path} is a language model, which does not turn one text into another; see `zoo generate`")
    return model


def load_generator(path: pathlib.Path):
    """A model that goes on with texts; a `ValueError` if it does not."""
    model = load(path)
    if not hasattr(model, "generate"):
        raise ValueError(f"{path} is a translator, which does not go on with a text; see `zoo translate`")
    return model


def recipe_folder(model: pathlib.Path) -> pathlib.Path:
    """Where the recipe of a model lies: in its newest version, in the run, or beside what the run saved."""
    from zoo.serving import newest_version

    return newest_version(model) or (model if (model / RECIPE_FILE).is_file() else model.resolve().parent)


def model_name(model: pathlib.Path) -> str:
    """What a model is called after its folder, whatever part of it is given."""
    from zoo.serving.layout import is_version

    inner = (TRANSLATOR_FOLDER, GENERATOR_FOLDER)
    return [part for part in model.resolve().parts if not is_version(part) and part not in inner][-1]


def read_lines(texts: list[str] | None, file: pathlib.Path | None) -> Iterator[str]:
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


def lines_at_once(texts: list[str] | None, file: pathlib.Path | None, batch_size: int) -> int:
    """How many lines to gather before they are worked on: one, where somebody types them and waits."""
    return 1 if not texts and file is None and sys.stdin.isatty() else 16 * batch_size


def chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lines, so many at a time."""
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
