"""What the commands share: the app, options, errors in one line, loading of models, lines of text in and out."""

from __future__ import annotations

import codecs
import collections
import contextlib
import importlib.metadata
import pathlib
import re
import select
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from zoo.checkpoints import hub_hint
from zoo.extras import MissingExtraError
from zoo.tasks import CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER, GENERATOR_FOLDER, TRANSLATOR_FOLDER

from ..answering import More, at_once, cores
from ..encoding import refuse_utf_16
from ..run_files import RECIPE_FILE
from ..start_tensorflow import import_tensorflow

if TYPE_CHECKING:
    import numpy as np

    from zoo.tasks.results import Classification, Score


class _Flags:
    """A command whose help shows no type for a flag: `--json <bool>` reads as if a value followed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As typer's, but with nothing behind the name of a flag."""
        found = super().get_params(ctx)  # type: ignore[misc]  # of the class beside it
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class _Command(_Flags, TyperCommand):
    """Any command of the zoo."""


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

RULE = "-" * 20  # a line between texts that may have several lines
RUNS, MODELS, PICTURES = pathlib.Path("runs"), pathlib.Path("saved_models"), pathlib.Path("pictures")
_SAVED_IN = (TRANSLATOR_FOLDER, GENERATOR_FOLDER, CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER)
_ROUNDING = 0.01  # by which probabilities of a softmax, which are stored in float32, may miss their sum of 1
_SHOWN = 60  # letters of a line in a message
LINES = 16  # times the batch size: how many lines to gather, so that a batch has texts of similar lengths
_PIECE = 1 << 16  # bytes that are read at once: as many as a pipe holds
_PATIENCE = 3  # seconds until a command says that it waits for stdin

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


class Lines(Iterator[str]):
    """Lines of text.

    Attributes:
        more: whether another line, or the end, comes within so many seconds.
    """

    def __init__(self, lines: Iterator[str], more: More = at_once):
        self._lines, self.more = lines, more

    def __next__(self) -> str:
        return next(self._lines)


class _Stream(Iterator[bytes]):
    """Lines of a file or pipe. Python's own cannot tell whether the next one would have to be waited for."""

    def __init__(self, stream: BinaryIO):
        self._stream: Any = stream
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []  # of the last line

    def __next__(self) -> bytes:
        while not self._lines:
            piece = self._stream.read1(_PIECE)
            if not piece:
                last, self._begun = b"".join(self._begun), []
                if not last:
                    raise StopIteration
                return last
            end, *others = piece.split(b"\n")
            self._begun.append(end)
            if others:
                self._lines += [b"".join(self._begun), *others]
                self._begun = [self._lines.pop()]
        return self._lines.popleft()

    def more(self, seconds: float) -> bool:
        try:
            return bool(self._lines or select.select([self._stream], [], [], seconds)[0])
        except OSError:  # no file of the system; or a pipe of Windows
            return True


def read_lines(texts: list[str] | None, file: pathlib.Path | None) -> Lines:
    """Gives the texts of the arguments, or the lines of a file or of stdin as they come.

    Mistakes are found by the call, before a model is loaded.
    """
    if texts and file:
        raise ValueError("texts and --file were both given; give one of them")
    if texts:  # bytes that are not UTF-8 come as half surrogate pairs
        return Lines(_decoded("TEXT", (text.encode("utf-8", "surrogateescape") for text in texts)))
    if file:
        return _lines(file.open("rb"))
    if sys.stdin is None:  # as in `zoo translate MODEL <&-`
        raise ValueError("there are no texts, and stdin is closed; give texts as arguments or by --file")
    if sys.stdin.isatty():
        typer.echo("zoo: reading lines from the terminal; Ctrl-D ends", err=True)
    return _lines(sys.stdin.buffer)


def read_whole(file: pathlib.Path) -> str:
    r"""The text of a file, decoded as `read_lines` decodes its lines, with \n at the line ends."""
    with file.open("rb") as stream:
        return _whole(stream)


def read_piped() -> str:
    """The text of stdin, without its last line end, which `echo` adds; empty if stdin is a terminal or closed.

    A service may have a stdin that nobody writes to nor closes. So a line says what is waited for.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if not _Stream(sys.stdin.buffer).more(_PATIENCE):
        told = 'zoo: waiting for a prompt on stdin; give "" as the prompt to begin a text without one'
        typer.echo(told, err=True)
    return _whole(sys.stdin.buffer).removesuffix("\n")


def _whole(stream: BinaryIO) -> str:
    return "".join(_decoded(_name(stream), stream)).replace("\r\n", "\n")


def _lines(stream: BinaryIO) -> Lines:
    """Decoded lines without their ends."""
    lines = _Stream(stream)
    return Lines((line.rstrip("\r\n") for line in _decoded(_name(stream), lines)), lines.more)


def _name(stream: BinaryIO) -> str:
    return getattr(stream, "name", "<stdin>")


def _decoded(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Lines without a byte order mark; broken UTF-8 becomes U+FFFD, with one warning.

    UTF-16 is an error.
    """
    warned = False
    for number, line in enumerate(lines):
        if number == 0:
            refuse_utf_16(name, line)
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode("utf-8", "replace")
            if not warned:
                told = f"{name}:{number + 1}: not UTF-8; broken bytes are read as U+FFFD"
                typer.echo(f"zoo: warning: {told}", err=True)
            warned = True
        yield text


def threads_for(texts: list[str] | None, file: pathlib.Path | None = None) -> int:
    """How many batches to compute at once: one a core for a file or a pipe, unless there is a GPU.

    Batches with one thread each on every core are faster than one batch with all threads, see `benchmarks/notes.md`.
    """
    if texts or (file is None and sys.stdin is not None and sys.stdin.isatty()):
        return 1
    gpus = import_tensorflow(operation_threads=1).config.list_physical_devices("GPU")
    return 1 if gpus else cores()


def read_pairs(
    lines: Iterable[str], texts: list[str] | None = None, skip_empty: bool = False
) -> Iterator[tuple[str, str]]:
    """The two texts of each line, for a model of pairs.

    Args:
        lines: of two texts with a tab between.
        texts: the arguments, if the lines are those.
        skip_empty: whether lines without a text are left out.

    Raises:
        ValueError: a line has no tab, or several.
    """
    for number, line in enumerate(lines, 1):
        if skip_empty and not line.strip():
            continue
        first, tab, second = line.partition("\t")
        if not tab or "\t" in second:
            raise ValueError(
                f"{'text' if texts else 'line'} {number} must hold two texts with one tab between, since the model "
                f"reads pairs. Received: {shortened(line)!r}"
            )
        yield first, second


def classes_above(above: float, result: Classification, scores: bool = False) -> str:
    """The line of all classes with a probability above a number, with their probabilities if `scores`."""
    shown = ((label, each) for label, each in result.probabilities.items() if each > above)
    return one_line(", ".join(f"{each:.4f} {label}" if scores else label for label, each in shown))


class SeveralLabels:
    """Says once on stderr that a text may have several labels, where only the most likely is printed."""

    def __init__(self):
        self._told = False

    def look_at(self, results: Iterable[Classification]) -> None:
        """Says it if the probabilities of a result do not sum to 1."""
        if self._told or all(abs(sum(each.probabilities.values()) - 1) <= _ROUNDING for each in results):
            return
        self._told = True
        typer.echo(
            "zoo: the probabilities do not sum to 1, so a text may have several labels, or none. This prints the most "
            "likely alone; --above 0.5 prints all above 0.5",
            err=True,
        )


def shortened(line: str) -> str:
    """The beginning of a line, for a message."""
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def one_line(text: str) -> str:
    """A text without line breaks: one line in, one line out."""
    return text.replace("\n", " ")


def with_vector(text: str, vector: np.ndarray) -> dict[str, Any]:
    """A text and its vector for JSON: each number in the fewest digits that a float32 is read back from."""
    return {"text": text.encode("utf-8", "replace").decode(), "embedding": [float(str(each)) for each in vector]}


def score_line(score: Score) -> str:
    """Log-probability, number of tokens, perplexity and text, separated by tabs."""
    return f"{score.log_probability:.4f}\t{score.tokens}\t{score.perplexity:.4f}\t{one_line(score.text)}"
