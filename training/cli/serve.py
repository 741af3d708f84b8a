"""The command that serves models over REST as TensorFlow Serving does."""

from __future__ import annotations

import logging
import os
import pathlib
import re
from typing import Annotated

import typer

from ..start_tensorflow import import_tensorflow
from .shared import app, check_model, model_name, user_errors

_HOUR, _DAY = 3_600, 86_400  # seconds
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")  # a browser sends it without a path


@app.command()
def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="A model's folder with its versions, or one version, or NAME=FOLDER."),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on; 0.0.0.0 for all.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="The port; 0 for a free one.")] = 8501,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL:LABEL=VERSION", help="Keep this version too, and name it; may be repeated."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Let pages of this origin read answers; * for all; may be repeated."),
    ] = None,
    threads: Annotated[
        int, typer.Option(metavar="N", min=1, help="Requests, or batches of them, that run at once.")
    ] = 2,
    operation_threads: Annotated[
        int, typer.Option(metavar="N", min=0, help="Threads that an operation may use; 0 for one a core.")
    ] = 1,
    max_batch_rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="The maximum number of rows of a request or batch.")
    ] = 32,
    batch_wait: Annotated[
        float,
        typer.Option(
            metavar="MILLISECONDS", min=0, max=_HOUR * 1000, help="How long a request waits for others to join."
        ),
    ] = 0.0,
    max_body: Annotated[
        float, typer.Option(metavar="MIB", min=0.001, max=2**20, help="The largest body of a request.")
    ] = 16,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.1, max=_DAY, help="The longest that a request may take; for a stream, each event."
        ),
    ] = 60,
    poll: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=_DAY, help="How often to look for new versions.")
    ] = 2,
) -> None:
    """Serve SavedModels over TensorFlow Serving's REST interface: for laptops, demos and tests.

    It serves any SavedModel, not only the zoo's. The newest version answers, and newer ones replace it as they appear.
    In production use TensorFlow Serving itself, which also has gRPC.
    """
    with user_errors((ValueError, OSError)):
        import zoo.serving.server  # noqa: F401  what is not installed is said at once
        from zoo.serving.server.port import bind

        paths, labels, origins = _paths(models), _labels(label or []), _origins(cors or [])
        listener = bind(host, port)
        import_tensorflow(operation_threads).get_logger().setLevel("ERROR")  # the loader is deprecated
        from zoo.serving.server.running import Settings, serve

        logging.basicConfig(level=logging.INFO, format="zoo serve: %(message)s")
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        settings = Settings(
            cors=origins,
            threads=threads,
            operation_threads=operation_threads,
            max_batch_rows=max_batch_rows,
            batch_wait=batch_wait / 1000,
            max_body=round(max_body * 2**20),
            timeout=timeout,
            poll=poll,
        )
        try:
            serve(paths, labels, listener, settings, _announce)
        except KeyboardInterrupt:  # while a thread still computes, with which Python's own end would crash
            os._exit(130)


def _announce(url: str, loaded: dict[str, list[int]]) -> None:
    shown = ", ".join(f"{name} {'+'.join(map(str, numbers))}" for name, numbers in loaded.items())
    typer.echo(f"zoo serve: {url} serves {shown}")
    typer.echo("zoo serve: open it in a browser to see the attention")
    typer.echo("zoo serve: this is for laptops, demos and tests; in production use TensorFlow Serving")


def _paths(given: list[str]) -> dict[str, pathlib.Path]:
    """The folders of models by their names: of the folder itself, or as in `NAME=FOLDER`."""
    from zoo.serving.layout import version_folder

    paths: dict[str, pathlib.Path] = {}
    for each in given:
        name, equals, rest = each.partition("=")
        named = bool(equals) and "/" not in name and not pathlib.Path(each).exists()
        if named and not rest:
            raise ValueError(f"NAME=FOLDER needs a folder. Received: {each!r}")
        path = pathlib.Path(rest if named else each)
        check_model(path)
        version_folder(path)  # raises an error if there is none
        name = name if named else model_name(path)
        if not name or set(name) & set("/:"):
            raise ValueError(
                f"a model's name must not be empty and have no '/' or ':'; give one by NAME=FOLDER. Received: {name!r}"
            )
        if name in paths:
            raise ValueError(f"two models are called {name!r}; give one another name, by NAME=FOLDER. Received: {each}")
        paths[name] = path
    return paths


def _origins(given: list[str]) -> list[str]:
    for each in given:
        if each != "*" and not _ORIGIN.fullmatch(each):
            raise ValueError(f"--cors takes an origin, such as https://example.org, or *. Received: {each!r}")
    return given


def _labels(given: list[str]) -> dict[str, dict[str, int]]:
    from zoo.serving.layout import is_version

    labels: dict[str, dict[str, int]] = {}
    for each in given:
        name, colon, rest = each.partition(":")
        label, equals, version = rest.partition("=")
        if not (name and colon and label and equals and is_version(version)):
            raise ValueError(f"--label takes MODEL:LABEL=VERSION, such as dates:stable=1. Received: {each!r}")
        if labels.setdefault(name, {}).setdefault(label, int(version)) != int(version):
            raise ValueError(f"--label gives {name}:{label} two versions, {labels[name][label]} and {int(version)}")
    return labels
