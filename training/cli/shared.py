"""What the commands share: the app, options, errors in one line, and loading of models."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pathlib
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from zoo.checkpoints import hub_hint
from zoo.extras import MissingExtraError
from zoo.tasks import CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER, GENERATOR_FOLDER, TRANSLATOR_FOLDER

from ..run_files import RECIPE_FILE
from ..start_tensorflow import import_tensorflow


class _Flags:
    """A command whose help shows no type for a flag: `--json <bool>` reads as if a value followed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As typer's, but with nothing behind the name of a flag."""
        found = super().get_params(ctx)  # type: ignore[misc]  # of the class beside it
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


_PATHS = ("FILE", "FOLDER", "INDEX", "INPUT", "MODEL", "OUTPUT", "RECIPE", "RUN")  # what the help calls them


class _Command(_Flags, TyperCommand):
    """Any command of the zoo. It refuses an empty path, which would mean the working directory."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's, but a path must not be empty, as that of a variable that is not set is."""
        given, _, _ = self.make_parser(ctx).parse_args([*args])  # as typed: a `Path` of "" would be that of "."
        with user_errors():
            for each in self.get_params(ctx):
                value = given.get(each.name)
                if each.metavar in _PATHS and "" in (value if isinstance(value, list | tuple) else [value]):
                    name = each.opts[0] if each.param_type_name == "option" else each.metavar
                    raise ValueError(f"{name} must be a path that is not empty; . is the working directory")
        return super().parse_args(ctx, args)


class _Group(_Flags, TyperGroup):
    """The command `zoo` itself."""


class CommandWithHint(_Command):
    """A command that gives a hint where there is no such option, nor a similar one.

    Attributes:
        hint: the sentence.
    """

    hint = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As for all commands, with the hint."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            told: Any = error
            if hasattr(told, "possibilities") and not told.possibilities:
                told.message += f". {self.hint}"
            raise


class CommandOfTexts(CommandWithHint):
    """A command whose arguments are texts, which may begin with a dash."""

    hint = "If it begins a text, put all options first, then `--`, then the texts"


class _App(typer.Typer):
    def command(self, name=None, *, cls=_Command, **more):  # type: ignore[override]
        """As typer's, with another class."""
        return super().command(name, cls=cls, **more)


app = _App(
    cls=_Group,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"color": True},  # else escape sequences would be cut out of texts, where stdout is no terminal
)

RUNS, MODELS, PICTURES = pathlib.Path("runs"), pathlib.Path("saved_models"), pathlib.Path("pictures")
_SAVED_IN = (TRANSLATOR_FOLDER, GENERATOR_FOLDER, CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER)

ModelPath = Annotated[
    pathlib.Path,
    typer.Argument(
        metavar="MODEL",
        help="A model's folder: an export, such as saved_models/dates, one of its versions, a run, such as runs/dates,"
        " a folder that `save` wrote, or a Hugging Face checkpoint.",
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="Texts. Without texts, stdin is read, one text per line. If a text begins with a dash, put all options "
        "first, then `--`, then the texts.",
    ),
]
TextFile = Annotated[
    pathlib.Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read this file instead, one text per line.")
]
Above = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="P",
        help="For a classifier, print all classes with a probability above P on one line, separated by commas; the line"
        " is empty if there is none. Use 0.5 for a model with several labels. Without --above, only the most likely"
        " class is printed.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a value of the recipe, such as model.units=128; may be repeated."
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(importlib.metadata.version("attention-zoo"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Attention models from model.fit to TensorFlow Serving."""


@contextlib.contextmanager
def user_errors(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError), options: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Turns a user's mistake into one line on stderr and exit code 2, and a warning into one line.

    Args:
        kinds: the errors that are a user's mistakes.
        options: the option for each argument of Python that a message may name, as `name` or as name=value.
    """
    caught: tuple[type[Exception], ...] = (MissingExtraError, *kinds)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    except BrokenPipeError:  # `zoo ... | head` is no mistake; click ends quietly
        raise
    except caught as error:
        message = _os_error(error) if isinstance(error, OSError) else _as_typed(str(error), options or {})
        typer.echo(f"zoo: {' '.join(message.split())}", err=True)
        raise typer.Exit(2) from None


def _as_typed(message: str, options: Mapping[str, str]) -> str:
    """A message with the options that were typed in the place of arguments of Python.

    These are `name` in what was expected, and name=value in what was received: a path may hold name= too.
    """
    expected, separator, received = message.partition("Received: ")
    expected = re.sub(r"`(\w+)`", lambda found: options.get(found[1], found[0]), expected)
    named = r"(^|, )(\w+)="
    received = re.sub(
        named, lambda found: f"{found[1]}{options[found[2]]} " if found[2] in options else found[0], received
    )
    return expected + separator + received


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning for users is shown without its place in the code, which tells them nothing."""
    told = f"zoo: warning: {' '.join(str(message).split())}\n"
    if not issubclass(category, UserWarning):
        told = warnings.formatwarning(message, category, filename, lineno)
    typer.echo(told, err=True, nl=False)


def _os_error(error: OSError) -> str:
    if error.errno is None:  # one of our own
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def namesakes(path: pathlib.Path, *folders: pathlib.Path) -> str:
    """For the message that a path does not exist: the same name in the folders where models are. Else empty."""
    near = [str(folder / path) for folder in folders if not path.is_absolute() and (folder / path).exists()]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def check_model(path: pathlib.Path) -> None:
    """Looks for a model before the seconds that TensorFlow takes to start.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it is a file.
    """
    if not path.exists():
        hint = namesakes(path, MODELS, RUNS) or hub_hint(path) or "; `zoo list` shows the exported models"
        raise FileNotFoundError(f"{path} does not exist{hint}")
    if path.is_file() and path.suffix != ".keras":  # of which `zoo.load` says more
        raise ValueError(f"{path} is a file; give the folder of a model")


def load(path: pathlib.Path):
    """Loads a model by `zoo.load`, without TensorFlow's start-up notes.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds no model, or a damaged one.
    """
    check_model(path)
    import_tensorflow()
    import zoo

    return zoo.load(path)


# By the method that only this kind of model has: what the model is, what it does, and its command.
_KINDS = {
    "translate": ("a translator", "turn one text into another", "translate"),
    "generate": ("a language model", "continue a text, nor score one by itself", "generate"),
    "classify": ("a classifier", "put texts into classes", "classify"),
    "embed": ("an embedder", "turn texts into vectors", "embed"),
    "fill": ("a mask filler", "fill the masks of texts", "fill"),
}


def load_as(method: str, path: pathlib.Path):
    """Loads a model of the kind with this method, such as "translate"; a `ValueError` says what another one is for."""
    with user_errors():  # without the command's options: what a file of the model holds was not typed
        model = load(path)
    if not hasattr(model, method):
        kind, command = kind_and_command(model)
        raise ValueError(f"{path} is {kind}, which does not {_KINDS[method][1]}; see `zoo {command}`")
    return model


def kind_and_command(model) -> tuple[str, str]:
    """What a loaded model is, such as "a translator", and the command for it."""
    return next((kind, command) for method, (kind, _, command) in _KINDS.items() if hasattr(model, method))


def check_places(folder: pathlib.Path, model: pathlib.Path | None) -> None:
    """Looks whether a run and the model that it exports can be written where --out and --models say.

    Args:
        folder: that of the run.
        model: that of the export; None for a worker, which exports nothing.

    Raises:
        ValueError: a part of a path is no folder, this user may not write there, both are the same folder, or no server
            would load the model.
    """
    from zoo.serving.layout import check_loadable

    places = {"--out": folder}
    if model is not None:
        check_loadable(model)
        places["--models"] = model
    for option, place in places.items():
        for part in (place, *place.parents):
            if part.is_file() or (part.is_symlink() and not part.exists()):
                what = "a file" if part.is_file() else "a link to nothing"
                raise ValueError(f"{option}: {part} is {what}, and must be a folder")
        there = next(part for part in (place, *place.parents) if part.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise ValueError(f"{option}: you may not write to {there}; choose another folder")
    if model is not None and model.resolve() == folder.resolve():
        raise ValueError(f"{folder} is the folder of the run; the export needs another one: give --models or --out")


def command_line() -> str:
    """The command as it was typed, for a model's card."""
    return shlex.join(["zoo", *sys.argv[1:]])


def say_scores(run, folder: pathlib.Path, version: pathlib.Path) -> None:
    """Says the scores of a finished run, and where it and its export are."""
    from ..progress import say
    from ..scoring.headline import headlines, scored_on

    for score, value in headlines(run.metrics).items():
        say(f"{score} on {scored_on(run.metrics)}: {value}")
    say(f"run: {folder}   exported: {version}")


def recipe_folder(model: pathlib.Path) -> pathlib.Path:
    """The folder of a model's recipe: its newest version, the run, or the run's folder above the saved model.

    Of a model without a recipe it is the model's own.
    """
    from zoo.serving import newest_version

    if (version := newest_version(model)) is not None:
        return version
    above = model.resolve().parent
    return above if not (model / RECIPE_FILE).is_file() and (above / RECIPE_FILE).is_file() else model


def model_name(model: pathlib.Path) -> str:
    """The name of a model: of its folder, also if one version, or what a run saved, is given.

    A model may itself be called `translator` or `2026`: its folder holds versions.
    """
    from zoo.serving.layout import is_version, versions

    path = model.resolve()
    if not versions(path) and (is_version(path.name) or path.name in _SAVED_IN):
        path = path.parent
    return path.name
