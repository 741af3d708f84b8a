"""The folders that a path stands for, as a server sees them in a model's folder. Needs no TensorFlow."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re

from zoo.serving.checking import rules
from zoo.serving.checking.rules import Finding, shown
from zoo.serving.layout import LARGEST_VERSION, SAVED_MODEL_FILE, is_version, models_within

GRAPH_FILES = (SAVED_MODEL_FILE, "saved_model.cpb", "saved_model.pbtxt")  # a server reads the first that exists


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders that hold a graph, and what is wrong with any others."""

    model: pathlib.Path
    versions: list[pathlib.Path]
    findings: list[Finding]


def find_folders(path: pathlib.Path) -> Folders:
    """What a path stands for: a model's folder with versions, one version, or a folder with a bare SavedModel.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: it holds no SavedModel, nor versions of one.
        OSError: it cannot be read.
    """
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path} does not exist.")
    if not os.path.isdir(path):
        raise ValueError(f"{path} is no folder; expected a model's folder, or one version of it.")
    graph, names = graph_file(path), (path.absolute().name, os.path.basename(os.path.realpath(path)))
    if graph and any(served_as(name) is not None for name in names):
        return Folders(path, [path], [])
    within = _versions_in(path)
    if graph:
        bare = rules.NO_VERSION_FOLDER.at(graph, f"It lies in {shown(str(path))} itself")
        # If there are versions too, a server serves them.
        return Folders(path, within.versions or [path], [bare, *within.findings])
    if within.versions or within.findings:
        return within
    if is_version(path.absolute().name):
        return Folders(path, [], [_empty(path)])
    raise ValueError(f"{path} holds no SavedModel, nor versions of one{models_within(path)}.")


def graph_file(folder: pathlib.Path) -> str | None:
    """The name of the entry that a server would read the graph from; it may turn out not to be a file."""
    return next((name for name in GRAPH_FILES if os.path.lexists(folder / name)), None)


def served_as(name: str) -> int | None:
    """The version number that a server reads from a folder's name; None if it ignores the folder.

    The server reads the name with `absl::SimpleAtoi`, as an integer of 64 bits. A sign, and white space around the
    number, are accepted.
    """
    is_number = re.fullmatch(r"[ \t\n\v\f\r]*[+-]?[0-9]+[ \t\n\v\f\r]*", name)
    return int(name) if is_number and 0 <= int(name) <= LARGEST_VERSION else None


def _versions_in(model: pathlib.Path) -> Folders:
    """The folders in a model's folder: those with a number and a graph; what is wrong with the others."""
    numbered: dict[int, str] = {}
    others: list[str] = []
    findings: list[Finding] = []
    versions: list[pathlib.Path] = []
    for name in sorted(os.listdir(model), key=lambda name: (not is_version(name), len(name), name)):
        number = served_as(name)
        if number is not None:
            first = numbered.setdefault(number, name)
            if first != name:
                what = f"It means version {number}, which {shown(first)} means too"
                findings.append(rules.VERSION_NAME.at(f"folder {shown(name)}", what, "warning"))
            elif not is_version(name):
                findings.append(rules.LENIENT_VERSION_NAME.at(f"folder {shown(name)}", f"It means version {number}"))
        elif not name.startswith(".") and os.path.isdir(model / name) and graph_file(model / name):
            others.append(name)
    for _, name in sorted(numbered.items()):
        if os.path.isdir(model / name) and graph_file(model / name):
            versions.append(model / name)
        else:
            findings.append(_empty(model / name))
    seen = {os.path.realpath(version) for version in versions}
    # A name like `latest`, linked to a version, is for people; a server ignores it.
    others = [name for name in others if os.path.realpath(model / name) not in seen]
    rule = rules.IGNORED_FOLDER if versions else rules.VERSION_NAME  # it may have been renamed on purpose
    what = "It holds a SavedModel, and its name is not a whole number from 0 on"
    findings += [rule.at(f"folder {shown(name)}", what) for name in others]
    return Folders(model, versions or [model / name for name in others], findings)


def _empty(version: pathlib.Path) -> Finding:
    if not os.path.isdir(version):
        what = "It is not a folder"
    else:
        try:
            what = "It holds no saved_model.pb" if os.listdir(version) else "It is empty"
        except OSError as error:
            what = f"It cannot be opened: {error.strerror}"
    return rules.EMPTY_VERSION.at(f"version {shown(version.absolute().name)}", what)
