"""`infer_files` has a model answer the rows of files: it plans, runs the driver to the end, and joins the parts.

The driver is a process of its own. So the command itself imports no part of Beam that imports PyTorch where that is
installed, and tells of a mistake without waiting for these seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from zoo.extras import needs

from ..run_files import locked_file, not_written
from ..start_tensorflow import use_onednn
from .filesystem import absolute, folder_exists, open_file, remove_folder, whole
from .parts import complete_chunks, join, join_failures, parts_in
from .plan import PLAN_FILE, Plan, Request, make_plan

with needs("beam"):
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
    from apache_beam.runners.runner import create_runner

_LOCAL = ("direct", "fnapi")  # Beam takes names in any case, with or without "Runner" at the end
_TRIES = 3  # of a driver whose workers are killed, without a new part between
_LOG = "log.txt"
_PAUSE = 0.2  # seconds between two looks at the parts


class Summary(NamedTuple):
    """How many rows were answered, failed and are not UTF-8, where the failed ones are, and Beam's counters."""

    done: int
    failed: int
    broken: int
    dead_letters: str
    counters: dict[str, int]


def infer_files(
    asked: Request,
    flags: Sequence[str] = (),
    workers: int = 1,
    overwrite: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    say: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Has a model answer the rows of files, and writes them with the answers, in the same order.

    The parts are in the folder `OUTPUT.parts` until all are there. The same call after a failure goes on with them.

    Args:
        asked: what to do.
        flags: for Beam.
        workers: processes on this machine, if the flags name no other runner.
        overwrite: whether to replace the output, and parts of a run that was another.
        advance: called with the number of rows that were just done.
        say: called with a line when something happens.

    Raises:
        FileNotFoundError: there is no such model or no such input.
        FileExistsError: the output exists, or the parts of another run.
        BlockingIOError: another process on this machine writes the same output, or the same file of failed rows.
        ValueError: what was asked does not fit the model or the files, or every row failed.
        OSError: workers ended again and again, or the pipeline failed, or the output cannot be written.
    """
    scratch = f"{asked.out}.parts"
    if re.search(r"[*?[]", absolute(asked.out)):  # Beam would delete what fits the pattern
        raise ValueError(
            f"{asked.out}: OUTPUT and its folders must not have *, ? or [ in their names; Apache Beam would take them "
            "for a pattern"
        )
    written = asked.out, asked.dead_letters
    for path in written:
        if os.path.isdir(path):
            raise FileExistsError(f"{path} is a folder; OUTPUT must be a file")
    options = beam_options(flags, workers)
    with _alone(asked):
        for path in written:
            if FileSystems.exists(path) and not overwrite and (path == asked.out or not _has_begun(scratch)):
                raise FileExistsError(f"{path} exists; choose another OUTPUT, or replace it by --overwrite")
        return _answered(asked, scratch, options, overwrite, advance, say)


@contextlib.contextmanager
def _alone(asked: Request) -> Iterator[None]:
    """Holds a lock, so that no two commands on this machine write one output or one file of failed rows.

    The lock is in the folder of the output. A folder that is made for it is removed if nothing is written there.

    Raises:
        BlockingIOError: another process holds it.
        OSError: the folder cannot be made or written.
    """
    out, dead_letters = asked.out, asked.dead_letters
    if "://" in out:  # a file system without locks
        yield
        return
    folder = pathlib.Path(out).parent
    missing = [each for each in (folder, *folder.parents) if not os.path.exists(each)]

    def told(owner):
        return f"{owner} writes {out} or {dead_letters}; wait until it has ended, or choose another OUTPUT"

    with contextlib.ExitStack() as held:
        held.callback(_remove_empty, missing)
        try:
            for each in reversed(missing):
                each.mkdir(exist_ok=True)
            held.enter_context(locked_file(folder / f".{pathlib.Path(dead_letters).name}.lock", told))
        except BlockingIOError:
            raise
        except OSError as error:
            raise OSError(f"{out} cannot be written: {error.strerror}") from None
        yield


def _remove_empty(folders: Sequence[pathlib.Path]) -> None:
    """Removes the folders that are empty; the inner ones come first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _answered(
    asked: Request,
    scratch: str,
    options: Sequence[str],
    overwrite: bool,
    advance: Callable[[int], None],
    say: Callable[[str], None],
) -> Summary:
    dead_letters = asked.dead_letters
    plan = _resumed_or_new(asked, scratch, overwrite, say)
    counters = _drive_to_the_end(plan, scratch, options, advance, say)
    parts = parts_in(scratch)
    done, failed, broken = (sum(getattr(part, name) for part in parts) for name in ("done", "failed", "broken"))
    try:
        if failed:  # before the answers, which say that all is done
            join_failures(parts, plan.chunks, plan.layout, plan.header, dead_letters, scratch)
        elif FileSystems.exists(dead_letters):  # of the output that is replaced
            FileSystems.delete([dead_letters])
        if done:
            join(parts, plan.layout, plan.header, asked.out, scratch)
    except OSError as error:
        if error.filename not in (asked.out, dead_letters):
            raise
        raise not_written(error.filename, error) from None
    remove_folder(scratch)
    if not done:
        why = f"every row failed; {dead_letters} has the reasons" if failed else f"{asked.pattern} has no rows"
        raise ValueError(why)
    return Summary(done, failed, broken, dead_letters, counters)


def _resumed_or_new(asked: Request, scratch: str, overwrite: bool, say: Callable[[str], None]) -> Plan:
    """The plan, of which some parts may be there."""
    file = f"{scratch}/{PLAN_FILE}"
    begun = _has_begun(scratch)
    if not begun and folder_exists(scratch):  # a run was killed while it unpacked inputs, which may have changed
        remove_folder(scratch)
    try:
        plan = make_plan(asked, scratch)
    except BaseException:
        if not begun and folder_exists(scratch):  # an input was unpacked there
            remove_folder(scratch)
        raise
    if begun:
        with open_file(file) as opened:
            same = opened.read().decode() == plan.to_json()
        if same:
            say(f"going on: {_done(plan, scratch)}")
            return plan
        if not overwrite:
            raise FileExistsError(
                f"{scratch} holds an unfinished run with another model, input or option; repeat that command to go "
                "on with it, or drop it by --overwrite"
            )
        remove_folder(scratch)
        plan = make_plan(asked, scratch)
    with whole(file) as opened:
        opened.write(plan.to_json().encode())
    return plan


def _has_begun(scratch: str) -> bool:
    return FileSystems.exists(f"{scratch}/{PLAN_FILE}")


def beam_options(flags: Sequence[str], workers: int) -> list[str]:
    """The flags for Beam, with a runner that needs no network where none is named.

    Beam's `DirectRunner` would download Prism, so its own runner in Python takes its place.

    Raises:
        ValueError: Beam knows no such flag, or the value does not fit.
    """
    parsers: list[Any] = []

    def refuse(message):
        raise ValueError(f"Apache Beam: {message}")

    def keep(parser):
        parser.error = refuse
        parsers.append(parser)

    options = PipelineOptions(list(flags))
    options.get_all_options(add_extra_args_fn=keep)
    _, unknown = parsers[0].parse_known_args(list(flags))
    if unknown:
        raise ValueError(f"Apache Beam has no option {unknown[0]}")
    runner = options.view_as(StandardOptions).runner or "direct"
    if runner.lower().removesuffix("runner") not in _LOCAL:
        try:
            create_runner(runner)
        except (ValueError, ImportError, AttributeError) as error:  # there is none of this name, or it is not installed
            refuse(error)
        return list(flags)
    given = {flag.partition("=")[0] for flag in flags}
    complete = [*flags, "--runner=FnApiRunner"]  # of several the last one counts
    if "--direct_num_workers" not in given:
        complete.append(f"--direct_num_workers={workers}")
    if "--direct_running_mode" not in given:
        several = PipelineOptions(complete).view_as(DirectOptions).direct_num_workers != 1
        complete.append(f"--direct_running_mode={'multi_processing' if several else 'in_memory'}")
    return complete


def _drive_to_the_end(
    plan: Plan, scratch: str, flags: Sequence[str], advance: Callable[[int], None], say: Callable[[str], None]
) -> dict[str, int]:
    """Drives the pipeline until all chunks are done; starts the driver again when a worker is killed.

    Args:
        plan: what to do.
        scratch: the folder of the parts.
        flags: of Beam.
        advance: called with the number of rows that were just done.
        say: called with a line when something happens.

    Returns:
        Beam's counters, of the last driver.

    Raises:
        OSError: workers ended again and again, or the pipeline failed. The parts stay.
    """
    tries = 0
    seen = {(part.chunk, part.window) for part in parts_in(scratch)}
    if len(complete_chunks(parts_in(scratch))) == len(plan.chunks):
        return {}
    while True:
        try:
            found = _drive_once(scratch, flags, advance, seen)
        except KeyboardInterrupt:
            say(f"stopped; {_done(plan, scratch)}, and the same command goes on")
            raise
        if len(complete_chunks(parts_in(scratch))) == len(plan.chunks) and "error" not in found:
            return found.get("counters", {})
        log = "" if "://" in scratch else f"the log is {scratch}/{_LOG}; "  # in a bucket, a file cannot grow
        if "error" in found:
            raise OSError(f"the pipeline failed: {found['error']}; {log}the same command goes on")
        tries = tries + 1 if found["new"] == 0 else 1
        if tries >= _TRIES:
            raise OSError(
                f"worker processes ended {tries} times (is memory too small? give fewer --workers); {log}"
                f"{_done(plan, scratch)}, and the same command goes on"
            )
        say(f"a worker process ended; going on: {_done(plan, scratch)}")


def _done(plan: Plan, scratch: str) -> str:
    """Says how many chunks are done. Messages call a chunk a part, a word that users know."""
    return f"{len(complete_chunks(parts_in(scratch)))} of {len(plan.chunks)} parts are done"


def _drive_once(
    scratch: str, flags: Sequence[str], advance: Callable[[int], None], seen: set[tuple[int, int]]
) -> dict[str, Any]:
    """Starts a driver and waits for its end; gives what it printed, and the number of new parts."""
    program = "from zoo_training.batch_inference.driver import main; main()"
    use_onednn()  # in the workers, as in all other commands
    # Python would look for modules in this folder first: a user's `random.py` would be imported by Beam.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONSAFEPATH": "1"}
    with open(_local_log(scratch), "ab", buffering=0) as log, tempfile.TemporaryFile() as printed:
        driver = subprocess.Popen(
            [sys.executable, "-c", program, str(os.getpid()), absolute(scratch), *flags],
            stdout=printed,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # so that it and its workers can be ended together
        )
        copying = threading.Thread(target=_copy, args=(driver.stderr, log), daemon=True)
        copying.start()
        new, pause = 0, _PAUSE
        try:
            while not _has_ended(driver, pause):
                begin = time.monotonic()
                new += _advance(scratch, advance, seen)
                pause = max(_PAUSE, 20 * (time.monotonic() - begin))  # many parts take long to list
            new += _advance(scratch, advance, seen)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            copying.join(10)  # it ends with the last of the processes
        printed.seek(0)
        lines = printed.read().decode("utf-8", "replace").splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        found = {}
    return {**found, "new": new}


def _has_ended(process: subprocess.Popen, seconds: float) -> bool:
    """Whether a process has ended; waits for it so long."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _advance(scratch: str, advance: Callable[[int], None], seen: set[tuple[int, int]]) -> int:
    new = [part for part in parts_in(scratch) if (part.chunk, part.window) not in seen]
    seen.update((part.chunk, part.window) for part in new)
    advance(sum(part.done + part.failed for part in new))
    return len(new)


def _copy(errors: BinaryIO, log: BinaryIO) -> None:
    """Copies what the processes print to the log, as far as the disk has room.

    If they wrote to the log themselves, a full disk would stop them for ever: a worker of Beam prints an error before
    it reports it, and where printing fails, it reports nothing.
    """
    with errors:
        while piece := os.read(errors.fileno(), 1 << 16):
            with contextlib.suppress(OSError):
                log.write(piece)


def _local_log(scratch: str) -> str:
    return os.devnull if "://" in scratch else f"{scratch}/{_LOG}"
