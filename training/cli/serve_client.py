"""The command that asks a model on a server, as the other commands ask a model in a folder."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

import typer

from ..answering import chunks
from ..start_tensorflow import import_tensorflow
from .lines import LINES, read_lines, read_pairs
from .printing import RULE, SeveralLabels, classes_above, one_line, print_growing, score_line, with_vector
from .shared import Above, CommandOfTexts, TextFile, Texts, app, user_errors

_OPTIONS = {name: f"--{name}" for name in ("version", "label", "timeout")} | {"address": "ADDRESS", "model": "MODEL"}


@app.command("serve-client", cls=CommandOfTexts)
def serve_client(
    address: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="The server: host, host:port or URL; port 8501, over gRPC 8500."),
    ],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name on the server.")],
    texts: Texts = None,
    file: TextFile = None,
    use_grpc: Annotated[bool, typer.Option("--grpc", help="Use gRPC instead of REST.")] = False,
    signature: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The signature, such as score.",
            show_default="what the model is for, such as generate or classify",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting: length_penalty=1; temperature=0.8, stop=TEXT."),
    ] = None,
    version: Annotated[int | None, typer.Option(metavar="N", help="The version.", show_default="the newest")] = None,
    label: Annotated[str | None, typer.Option(metavar="NAME", help="The version's label.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Show the model's versions and signatures instead.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The longest that a request may take.")] = 30.0,
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Texts to send in one request.")] = 32,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print a text of a language model while it is written.")
    ] = False,
    above: Above = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")] = False,
) -> None:
    """Query a model on TensorFlow Serving: translate, continue, classify or score texts, or call any signature.

    Prints what `zoo translate`, `zoo generate`, `zoo score`, `zoo classify`, `zoo embed` and `zoo fill` print; for
    other signatures, each text's JSON on a line.
    """
    with user_errors((ValueError, OSError, ModuleNotFoundError), _OPTIONS):
        from zoo.serving import ServingClient

        if use_grpc:
            import_tensorflow()
        protocol: Literal["grpc", "rest"] = "grpc" if use_grpc else "rest"
        with ServingClient(address, model, protocol=protocol, version=version, label=label, timeout=timeout) as client:
            if status:
                _print_status(client, as_json)
                return
            given, lines = _parsed(settings or []), read_lines(texts, file)
            kind = _kind(signatures := client.signatures(), signature)
            if above is not None and kind is not _classified:
                raise ValueError("--above is for the classes of a classifier")
            if above is not None and as_json:
                raise ValueError("--above and --json were both given; --json has all probabilities")
            given_lines: Iterator = lines
            if kind is _classified and "text_pair" in signatures["classify"].inputs:
                given_lines = read_pairs(lines, texts)
            if stream:
                if kind is not _generated or as_json:
                    raise ValueError("--stream is for the texts of a language model, without --json")
                _stream(client, lines, given)
                return
            if kind is _called:
                given = _filled_in(getattr(signatures.get(signature or ""), "inputs", {}), given, settings or [])
            size = batch_size if kind is _generated else LINES * batch_size  # texts are printed as each batch comes
            rows_of = kind
            if kind is _classified:
                several = None if as_json or above is not None else SeveralLabels()
                rows_of = functools.partial(kind, above=above, several=several)
            done = 0
            for chunk in chunks(given_lines, size, lines.more):
                for line, row in rows_of(client, signature, chunk, batch_size, given):
                    if kind is _generated and done and not as_json:
                        typer.echo(RULE)
                    typer.echo(json.dumps(row, ensure_ascii=False) if as_json or line is None else line)
                    done += 1


Rows = Iterator[tuple[str | None, dict]]  # for each text the line to print, or None, and the content of the JSON


def _kind(signatures: dict, name: str | None):
    """The function that calls a signature."""
    from zoo.tasks.settings import TRANSLATION_SETTINGS

    readers = {"classify": ("labels", _classified), "embed": ("embedding", _embedded), "fill": ("tokens", _filled)}
    for each in readers if name is None else {name} & readers.keys():
        gives, kind = readers[each]
        if gives in getattr(signatures.get(each), "outputs", ()):
            return kind
    if name is None:
        generates = "tokens" in getattr(signatures.get("generate"), "outputs", ())
        return _generated if generates else _translated
    inputs, outputs = (set(getattr(signatures.get(name), side, ())) for side in ("inputs", "outputs"))
    if name == "generate" and "tokens" in outputs:
        return _generated
    takes = {"text"} if name == "serving_default" else {"text", *TRANSLATION_SETTINGS}
    if name in ("serving_default", "generate") and inputs == takes and outputs >= {"text", "score"}:
        return _translated
    return _called


def _translated(client, name, texts, batch_size, settings) -> Rows:
    from zoo.tasks.settings import TRANSLATION_SETTINGS

    if settings and name == "serving_default":
        raise ValueError(f"serving_default takes no settings; leave out --signature. Received: {', '.join(settings)}")
    _check_names(settings, TRANSLATION_SETTINGS)
    for result in client.translate(texts, batch_size, **settings):
        yield one_line(result.text), {"source": result.source, "text": result.text, "score": result.score}


def _generated(client, _, texts, batch_size, settings) -> Rows:
    from zoo.tasks.settings import SETTINGS

    _check_names(settings, (*SETTINGS, "stop"))
    results = client.generate(texts, batch_size=batch_size, **settings)
    if "seed" in settings:  # the texts of the next chunk have the seeds that follow
        settings["seed"] += len(texts)
    for result in results:
        names = ("prompt", "text", "log_probability", "tokens")
        yield result.prompt + result.text, {name: getattr(result, name) for name in names}


def _stream(client, texts, settings) -> None:
    """Prints texts as `zoo generate` does."""
    from zoo.tasks.settings import SETTINGS

    _check_names(settings, (*SETTINGS, "stop"))
    for number, text in enumerate(texts):
        if number:
            typer.echo(RULE)
            if "seed" in settings:
                settings["seed"] += 1
        print_growing(text, client.stream(text, **settings))


def _classified(client, _, texts, batch_size, settings, above, several) -> Rows:
    _check_names(settings, ())
    results = client.classify(texts, batch_size)
    if several is not None:
        several.look_at(results)
    for result in results:
        line = one_line(result.label) if above is None else classes_above(above, result)
        yield line, dataclasses.asdict(result)


def _embedded(client, _, texts, batch_size, settings) -> Rows:
    _check_names(settings, ())
    for text, vector in zip(texts, client.embed(texts, batch_size), strict=True):
        yield None, with_vector(text, vector)


def _filled(client, _, texts, batch_size, settings) -> Rows:
    _check_names(settings, ())
    for result in client.fill(texts, batch_size):
        yield one_line(result.filled), dataclasses.asdict(result)


def _called(client, name, texts, batch_size, settings) -> Rows:
    """Any signature of `text`, with settings as further inputs, the same for each row."""
    from zoo.serving.clients.rest import to_json

    for begin in range(0, len(texts), batch_size):
        batch = texts[begin : begin + batch_size]
        outputs = client.predict(name, text=batch, **{key: [value] * len(batch) for key, value in settings.items()})
        columns = {key: to_json(array) for key, array in outputs.items() if array.shape[:1] == (len(batch),)}
        if len(columns) < len(outputs):
            raise ValueError(f"the signature {name!r} has outputs without a row for each text; see `ServingClient`")
        for row, text in enumerate(batch):
            found = {key: column[row] for key, column in columns.items()}
            # Of a translator, the score is that of the target.
            yield _shown(str(settings.get("target", text)), found), {"input": text, **found}


def _filled_in(inputs: dict, given: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """The settings of any signature: as they were written for inputs of strings, and those that were not given.

    Args:
        inputs: of the signature, with their types.
        given: the settings as `_parsed` gives them.
        settings: the same as they were written.
    """
    from zoo.tasks.settings import defaults_of

    strings = {name for name, spec in inputs.items() if spec.dtype == "string"}
    written = {name: value for name, _, value in (each.partition("=") for each in settings)}
    found = {name: written[name] if name in strings and name != "stop" else value for name, value in given.items()}
    return {**defaults_of(inputs), **found}


def _shown(text: str, found: dict) -> str | None:
    """The line of a result as `zoo translate` or `zoo score` prints it; None if neither fits."""
    if found.keys() == {"text", "score"}:
        return one_line(found["text"])
    if found.keys() == {"log_probability", "tokens"}:
        from zoo.tasks.results import Score

        return score_line(Score(text, **found))
    return None


def _print_status(client, as_json: bool) -> None:
    """A line a version; then, if one answers, a line a signature."""
    versions = client.status()
    available = any(each.state == "AVAILABLE" for each in versions)
    signatures = client.signatures() if available else {}
    if as_json:
        shown = {name: dataclasses.asdict(each) for name, each in signatures.items()}
        typer.echo(json.dumps({"versions": [dataclasses.asdict(each) for each in versions], "signatures": shown}))
        return
    for version in versions:
        typer.echo("\t".join(filter(None, (f"version {version.version}", version.state, one_line(version.error)))))
    for name, signature in signatures.items():
        typer.echo(f"{name}\t{', '.join(signature.inputs)} -> {', '.join(signature.outputs)}")


def _parsed(settings: list[str]) -> dict[str, Any]:
    """Names and values: numbers as numbers, and `stop`, which may be repeated, as a list of texts."""
    parsed: dict[str, Any] = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise ValueError(f"--set takes NAME=VALUE, such as temperature=0.8. Received: {each!r}")
        if name == "stop":
            parsed.setdefault("stop", []).append(value)
        else:
            parsed[name] = _number_or_text(value)
    return parsed


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _check_names(settings: dict[str, Any], known: Collection[str]) -> None:
    for name in settings:
        if not known:
            raise ValueError(f"this model has no settings. Received: {name}")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}? There" if near else "there"
            raise ValueError(f"this model has no setting {name!r}; {hint} are {', '.join(known)}")
