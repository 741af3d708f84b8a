"""The driver of `zoo batch`: a process that has a pipeline of Apache Beam answer the chunks of a plan.

It gives the chunks that are not done to a runner of Beam. Each worker reads chunks, calls the model and writes parts;
see `rows` and `parts`. Only chunks and counts pass through the runner, so that memory does not grow with the files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zoo.extras import needs
from zoo.tasks.results import Failure

from .filesystem import open_file
from .parts import complete_chunks, parts_in, write_part
from .plan import PLAN_FILE, Plan
from .rows import Chunk, Layout, Window, windows

with needs("beam"):
    import apache_beam as beam
    from apache_beam.metrics import MetricsFilter
    from apache_beam.ml.inference.base import KeyedModelHandler, PredictionResult, RunInference
    from apache_beam.options.pipeline_options import PipelineOptions

    from zoo.beam import NAMESPACE, SavedModelHandler

_WORKER_ENDED = 3  # exit code of the driver


class _Read(beam.DoFn):
    """From a chunk to its windows, each with the rows for the handler."""

    def __init__(self, layout: Layout):
        self._layout = layout

    def process(self, chunk: Chunk) -> Iterator[tuple[Window, list[Any]]]:
        for window in windows(chunk, self._layout):
            yield window, [record.row for record in window.records]


class _WindowHandler(SavedModelHandler):
    """Answers windows: an example is a list of rows, some of which may have failed before."""

    def batch_elements_kwargs(self) -> dict[str, Any]:
        return {"min_batch_size": 1, "max_batch_size": 1}

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        return sum(super(_WindowHandler, self).get_num_bytes([row]) for rows in batch for row in rows)

    def run_inference(self, batch, model, inference_args=None) -> Iterable[PredictionResult]:
        for rows in batch:
            good = [row for row in rows if not isinstance(row, Failure)]
            answers = iter(super().run_inference(good, model, inference_args))
            self._rows.inc(len(rows) - len(good))
            self._failed.inc(len(rows) - len(good))
            yield PredictionResult(
                None, [row if isinstance(row, Failure) else next(answers).inference for row in rows], self._path
            )


class _Write(beam.DoFn):
    """From the answers of a window to its part."""

    def __init__(self, folder: str, layout: Layout):
        self._folder, self._layout = folder, layout

    def process(self, pair: tuple[Window, PredictionResult]) -> None:
        window, result = pair
        answers: Any = result.inference
        write_part(self._folder, window, answers, self._layout)


def drive(folder: str, flags: Sequence[str]) -> dict[str, int]:
    """Runs the pipeline for the chunks of a plan that are not done; returns Beam's counters."""
    with open_file(f"{folder}/{PLAN_FILE}") as file:
        plan = Plan.from_json(file.read().decode())
    done = complete_chunks(parts_in(folder))
    chunks = [chunk for chunk in plan.chunks if chunk.number not in done]
    handler = _WindowHandler(plan.model, plan.signature, plan.settings, batch_size=plan.batch_size, failures="return")
    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)))
    _ = (
        pipeline
        | "Chunks" >> beam.Create(chunks)
        | "Read" >> beam.ParDo(_Read(plan.layout))
        | "Infer" >> RunInference(KeyedModelHandler(handler))
        | "Write" >> beam.ParDo(_Write(folder, plan.layout))
    )
    result = pipeline.run()
    state = result.wait_until_finish()
    if state not in ("DONE", None):
        raise RuntimeError(f"the pipeline ended as {state}")
    counters = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    return {each.key.metric.name: each.committed for each in counters if each.committed is not None}


def main() -> None:
    """The driver: `python -c "..." PARENT FOLDER FLAGS...`. The last line of its output is JSON."""
    parent, folder, *flags = sys.argv[1:]
    if "--runner=FnApiRunner" in flags:  # it starts workers by a line for a shell, in which spaces end a path
        sys.executable = shlex.quote(sys.executable)
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    # Beam only prints that a worker ended, and waits for ever.
    threading.excepthook = lambda given: (
        os._exit(_WORKER_ENDED) if "Worker subprocess" in str(given.exc_value) else None
    )
    try:
        found: dict[str, Any] = {"counters": drive(folder, flags)}
    except Exception as error:
        found = {"error": _cause(error)}
    print(json.dumps(found), flush=True)
    os._exit(0)  # threads of Beam may still wait


def _end_with(parent: int) -> None:
    """Ends this process and its workers when the command, its parent, is killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    if os.getpgrp() != os.getpid():  # the group is not this process' own
        os._exit(1)
    os.killpg(0, signal.SIGKILL)


def _cause(error: Exception) -> str:
    """The innermost error in Beam's report of many lines."""
    lines = [line.strip() for line in str(error).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
    # Beam puts the name of the step into the message, for some errors into its middle.
    return re.sub(r" \[while running '[^']*'\]", "", lines[-1] if lines else f"{type(error).__name__}: {error}")
