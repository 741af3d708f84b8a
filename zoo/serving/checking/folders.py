"""Which folders a path means, as a server that is given the model's folder would see them."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from zoo.serving.checking import rules
from zoo.serving.checking.finding import Finding, shown
from zoo.serving.layout import SAVED_MODEL_FILE, is_version

GRAPH_FILES = (SAVED_MODEL_FILE, "saved_model.cpb", "saved_model.pbtxt")  # what a server reads, the first there is


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders that hold a graph, and what is wrong with any others."""

    model: pathlib.Path
    versions: list[pathlib.Path]
    findings: list[Finding]


def find_folders(path: pathlib.Path) -> Folders:
    """What a path means: a model's folder with versions, one version, or a folder with a bare SavedModel.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: it holds no SavedModel, nor versions of one.
        OSError: it cannot be read.
    """
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path} does not exist.")
    if not os.path.isdir(path):
        raise ValueError(f"{path} is no folder; expected a model's folder, or one version of it.")
    if _holds_graph(path):
        if is_version(path.absolute().name) or is_version(os.path.basename(os.path.realpath(path))):
            return Folders(path, [path], [])
        bare = rules.NO_VERSION_FOLDER.at(graph_file(path) or "", f"It lies in {shown(str(path))} itself")
        within = _versions_in(path)
        # With versions beside it, it is these that a server serves.
        return Folders(path, within.versions or [path], [bare, *within.findings])
    within = _versions_in(path)
    if within.versions or within.findings:
        return within
    if is_version(path.absolute().name):
        return Folders(path, [], [_empty(path)])
    raise ValueError(f"{path} holds no SavedModel, nor versions of one.")


def graph_file(folder: pathlib.Path) -> str | None:
    """The name of the file that a server would read the graph from; it may turn out to be no file."""
    return next((name for name in GRAPH_FILES if os.path.lexists(folder / name)), None)


def _holds_graph(folder: pathlib.Path) -> bool:
    """Whether a folder looks like a version."""
    return graph_file(folder) is not None


def _versions_in(model: pathlib.Path) -> Folders:
    """The folders in a model's folder: those with a number and a graph; what is wrong with the others."""
    numbered: dict[int, str] = {}
    others: list[str] = []
    findings: list[Finding] = []
    versions: list[pathlib.Path] = []
    for name in sorted(os.listdir(model), key=lambda name: (len(name), name)):
        if is_version(name):
            first = numbered.setdefault(int(name), name)
            if first != name:
                what = f"It means version {int(name)}, which {shown(first)} means too"
                findings.append(rules.VERSION_NAME.at(f"folder {shown(name)}", what))
        elif not name.startswith(".") and os.path.isdir(model / name) and _holds_graph(model / name):
            others.append(name)
    for _, name in sorted(numbered.items()):
        if os.path.isdir(model / name) and _holds_graph(model / name):
            versions.append(model / name)
        else:
            findings.append(_empty(model / name))
    seen = {os.path.realpath(version) for version in versions}
    # A name like `latest`, linked to a version, is for people; a server passes over it.
    others = [name for name in others if os.path.realpath(model / name) not in seen]
    rule = rules.IGNORED_FOLDER if versions else rules.VERSION_NAME  # of several, some may be aside on purpose
    what = "It holds a SavedModel, and its name is not a whole number from 0 on"
    findings += [rule.at(f"folder {shown(name)}", what) for name in others]
    return Folders(model, versions or [model / name for name in others], findings)


def _empty(version: pathlib.Path) -> Finding:
    if not os.path.isdir(version):
        what = "It is no folder"
    else:
        try:
            what = "It holds no saved_model.pb" if os.listdir(version) else "It is empty"
        except OSError as error:
            what = f"It cannot be opened: {error.strerror}"
    return rules.EMPTY_VERSION.at(f"version {shown(version.absolute().name)}", what)
