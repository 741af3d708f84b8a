"""`zoo check`: finds what a stock TensorFlow Serving would refuse in a SavedModel, or get wrong.

This module needs no TensorFlow: it finds the versions, and leaves reading them to another process (`worker.py`), which
has limits of memory and time. So a broken or hostile file leads to a finding and to nothing worse.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator

from zoo.serving.checking import rules
from zoo.serving.checking.folders import find_folders
from zoo.serving.checking.rules import Finding

# Limits of one version: a fixed part, and a part that grows with its files.
_MEMORY, _MEMORY_PER_BYTE = 4 << 30, 8
_SECONDS, _BYTES_PER_SECOND = 120, 10_000_000
OUT_OF_MEMORY = 9  # an exit code of `worker.py`
_STEPS = {  # of the worker: what it was reading when it ended
    "graph": (rules.UNREADABLE_SAVED_MODEL, "the graph"),
    "variables": (rules.UNREADABLE_VARIABLES, "the variables"),
    "warm-up": (rules.UNREADABLE_WARM_UP, "the warm-up records"),
    "run": (rules.LOAD_FAILED, "the version"),
}


@dataclasses.dataclass(frozen=True)
class Checked:
    """A folder that was checked.

    Attributes:
        folder: the folder of a version, or the model's folder for findings that concern several versions.
        findings: what was found in it, the worst first.
        seen: how many signatures, functions and so on were checked; None if there was no graph to read.
    """

    folder: str
    findings: list[Finding]
    seen: dict[str, int] | None


@dataclasses.dataclass(frozen=True)
class Report:
    """What was checked, and found.

    Attributes:
        path: as it was given.
        folders: the model's folder, if something is wrong with it, and each version.
    """

    path: str
    folders: list[Checked]

    @property
    def findings(self) -> list[Finding]:
        """The findings of all folders."""
        return [finding for checked in self.folders for finding in checked.findings]

    @property
    def is_readable(self) -> bool:
        """Whether at least one graph could be read, or there was none to read."""
        unreadable = {rules.UNREADABLE_SAVED_MODEL.name, rules.GIT_LFS_POINTER.name}
        found = any(finding.rule in unreadable for finding in self.findings)
        return not found or any(checked.seen is not None for checked in self.folders)


def check(path: str | pathlib.Path, run: bool = False, ignore: Collection[str] = ()) -> list[Finding]:
    """What a stock TensorFlow Serving would refuse in a SavedModel, or get wrong.

    The files need not be trusted, and may be broken: a separate process reads them. With `run` the model's code is
    executed there, without any protection, so only do that with a model that you trust.

    Args:
        path: a model's folder, whose versions are all checked; the folder of one version; or a folder with a bare
            SavedModel.
        run: also load each version into a session as a server does, send it its warm-up requests, and compare the
            answers to batches with the answers to single rows.
        ignore: names of rules to leave out.

    Returns:
        The findings, an empty list if nothing is wrong.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: it holds no SavedModel, nor versions of one, or `ignore` has a name that no rule has.
        OSError: the folder cannot be read.
        RuntimeError: the check itself failed.
    """
    return report(path, run, ignore).findings


def report(path: str | pathlib.Path, run: bool = False, ignore: Collection[str] = ()) -> Report:
    """The findings with what was checked; see `check`."""
    _check_names(ignore)
    folders = find_folders(pathlib.Path(path))

    def of(folder: pathlib.Path, findings: list[Finding], seen: dict[str, int] | None) -> Checked:
        named = [dataclasses.replace(each, folder=str(folder)) for each in findings if each.rule not in ignore]
        return Checked(str(folder), sorted(named, key=lambda each: rules.SEVERITIES.index(each.severity)), seen)

    layout = of(folders.model, folders.findings, None)
    versions = [of(version, *_worker().check(version, run)) for version in folders.versions]
    return Report(str(folders.model), [layout, *versions] if layout.findings else versions)


def _check_names(ignore: Collection[str]) -> None:
    for name in ignore:
        if name not in rules.RULES:
            near = difflib.get_close_matches(name, rules.RULES, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the rules are {', '.join(rules.RULES)}."
            raise ValueError(f"There is no rule {name!r}; {hint}")


class _Worker:
    """A process that runs `worker.py`; it starts TensorFlow once, and ends with this process."""

    def __init__(self) -> None:
        # -P: the working directory may be a model's folder with a tensorflow.py in it, which must not be imported.
        path = os.pathsep.join([str(pathlib.Path(__file__).parents[3]), *(each for each in sys.path if each)])
        environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "zoo.serving.checking.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._lock = threading.Lock()

    @property
    def has_ended(self) -> bool:
        """Whether the process was killed, for example by Ctrl-C in a Python prompt."""
        return self._process.poll() is not None

    def check(self, folder: pathlib.Path, run: bool) -> tuple[list[Finding], dict[str, int] | None]:
        """The findings of a version, and how much was checked."""
        size = _size(folder)
        limits = {"memory": _MEMORY + _MEMORY_PER_BYTE * size, "seconds": _SECONDS + size // _BYTES_PER_SECOND}
        request = {"folder": str(folder.absolute()), "run": run, **limits}
        findings, seen, step = [], None, "graph"
        for answer in self._answers(request):
            step = answer.get("step", step)
            findings += [Finding(**each) for each in answer.get("findings", ())]
            seen = answer.get("seen", seen)
            if "error" in answer:
                raise RuntimeError(f"The check itself failed at {step} of {folder}: {answer['error']}")
            if answer.get("ended"):
                rule, what = _STEPS[step]
                findings.append(rule.at(what, _how_it_ended(answer["ended"], limits)))
        return findings, seen

    def _answers(self, request: dict) -> Iterator[dict]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # for mypy
        ended = False
        with self._lock:
            try:
                stdin.write(f"{json.dumps(request)}\n".encode())
                stdin.flush()
                for line in stdout:
                    try:
                        answer = json.loads(line)
                    except ValueError:  # an empty line, or one that a killed fork did not finish
                        continue
                    ended = "ended" in answer
                    yield answer
                    if ended:
                        return
            except BrokenPipeError:  # it was killed just now
                pass
            finally:
                if not ended:  # the rest would be taken for the answer to the next request
                    _worker_of.cache_clear()
                    self._process.kill()
                    self._process.wait()
        raise RuntimeError("The process that reads SavedModels ended; can TensorFlow be imported?")


def _worker() -> _Worker:
    """The worker of this process. A fork inherits the pipes of its parent, so it gets another worker."""
    worker = _worker_of(os.getpid())
    if worker.has_ended:
        _worker_of.cache_clear()
        worker = _worker_of(os.getpid())
    return worker


@functools.cache
def _worker_of(_process: int) -> _Worker:
    return _Worker()


def _how_it_ended(code: int, limits: dict[str, int]) -> str:
    if code == -signal.SIGALRM:
        return f"Reading it took more than {limits['seconds']} s, and was ended"
    if code == OUT_OF_MEMORY:
        return f"Reading it takes more than {limits['memory'] >> 20:,} MiB of memory"
    return f"TensorFlow crashed while reading it, with {signal.Signals(-code).name if code < 0 else code}"


def _size(folder: pathlib.Path) -> int:
    """Bytes that a version has on the disk; a file may claim any length."""
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(512 * os.lstat(path).st_blocks for path in paths)
