"""Requests joined into batches: each has the answer that it would have alone."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest

from zoo.serving.server.batching import Batcher
from zoo.serving.server.rest_json import Refusal

SOON, LATE = 60, -1  # seconds from now


class Rows:
    """A signature without TensorFlow: doubles each row, and fails for a batch with a negative one."""

    by_rows = True

    def __init__(self):
        self.batches = []
        self.may_run = threading.Event()
        self.may_run.set()

    def run(self, inputs, seconds):
        assert seconds > 0
        self.may_run.wait(30)
        self.batches.append(len(inputs["x"]))
        if (inputs["x"] < 0).any():
            raise Refusal("INVALID_ARGUMENT", f"bad: {inputs['x'].min()}")
        return {"y": 2 * inputs["x"]}


@pytest.fixture
def batcher():
    made = []

    def batcher(threads=1, max_rows=8, **arguments):
        made.append(Batcher(threads, max_rows, **arguments))
        return made[-1]

    yield batcher
    for each in made:
        each.close()


def ask(batcher, signature, *rows, seconds=SOON, shape=()):
    x = np.full((len(rows), *shape), np.array(rows, np.int64).reshape(-1, *[1] * len(shape)))
    return batcher.submit(signature, {"x": x}, time.monotonic() + seconds)


def queued(batcher, signature):
    """Requests wait while this one keeps the only thread; `signature.may_run.set()` lets them go."""
    signature.may_run.clear()
    first = ask(batcher, signature, 1)
    while not first.running():
        time.sleep(0.001)
    return first


def test_what_waits_for_a_thread_runs_together_and_is_split_again(batcher):
    signature, served = Rows(), batcher()
    first = queued(served, signature)
    answers = [ask(served, signature, *range(n, n + rows)) for n, rows in ((10, 3), (20, 1), (30, 4))]
    signature.may_run.set()
    assert first.result(9)["y"].tolist() == [2]
    assert [each.result(9)["y"].tolist() for each in answers] == [[20, 22, 24], [40], [60, 62, 64, 66]]
    assert signature.batches == [1, 8]


def test_a_batch_has_no_more_rows_than_allowed(batcher):
    signature, served = Rows(), batcher(max_rows=5)
    queued(served, signature)
    answers = [ask(served, signature, *[n] * 2) for n in range(7)]
    signature.may_run.set()
    assert [each.result(9)["y"].tolist() for each in answers] == [[2 * n] * 2 for n in range(7)]
    assert signature.batches == [1, 4, 4, 4, 2]
    # The words of TensorFlow's scheduler, which docs/operations.md has too.
    with pytest.raises(Refusal, match="Task size 6 is larger than maximum input batch size 5"):
        ask(served, signature, *range(6))


def test_other_signatures_and_sizes_are_not_mixed(batcher):
    one, other, served = Rows(), Rows(), batcher()
    queued(served, one)
    answers = [ask(served, one, 1, 2), ask(served, other, 3), ask(served, one, 4, shape=(3,)), ask(served, one, 5)]
    answers += [ask(served, one, 6, shape=(2, 3)), ask(served, other, 7)]
    one.may_run.set()
    assert [each.result(9)["y"].shape for each in answers] == [(2,), (1,), (1, 3), (1,), (1, 2, 3), (1,)]
    assert sorted(one.batches) == [1, 1, 1, 3]
    assert other.batches == [2]


def test_a_bad_request_fails_alone(batcher):
    signature, served = Rows(), batcher()
    queued(served, signature)
    good, bad, also_good = (ask(served, signature, *rows) for rows in ((1, 2), (3, -4), (5,)))
    signature.may_run.set()
    assert good.result(9)["y"].tolist() == [2, 4]
    assert also_good.result(9)["y"].tolist() == [10]
    with pytest.raises(Refusal, match="bad: -4"):
        bad.result(9)


def test_outputs_that_have_no_row_for_each_input_are_not_split_but_asked_for_again(batcher):
    signature, served = Rows(), batcher()
    run = signature.run
    signature.run = lambda inputs, seconds: {"sum": run(inputs, seconds)["y"].sum(keepdims=True)}
    queued(served, signature)
    answers = [ask(served, signature, n, n) for n in (3, 4)]
    signature.may_run.set()
    assert [each.result(9)["sum"].tolist() for each in answers] == [[12], [16]]
    assert not signature.by_rows
    batches = len(signature.batches)
    assert ask(served, signature, *range(20)).result(9)["sum"] == [380]  # no limit of rows: it is no part of a batch
    assert len(signature.batches) == batches + 1


def test_inputs_of_different_or_no_rows_run_alone(batcher):
    class Both(Rows):
        def run(self, inputs, seconds):
            self.batches.append({name: array.shape for name, array in inputs.items()})
            return {"y": np.float32(len(self.batches))}

    signature, served = Both(), batcher()
    for a, b in ((2, 3), (0, 0)):
        inputs = {"a": np.zeros(a), "b": np.zeros((b, 4))}
        assert served.submit(signature, inputs, time.monotonic() + SOON).result(9)["y"].shape == ()
        assert signature.batches[-1] == {"a": (a,), "b": (b, 4)}


def test_a_cancelled_request_leaves_the_queue(batcher):
    signature, served = Rows(), batcher()
    queued(served, signature)
    cancelled, good = ask(served, signature, 2), ask(served, signature, 3)
    assert cancelled.cancel()
    signature.may_run.set()
    assert good.result(9)["y"].tolist() == [6]
    assert signature.batches == [1, 1]


def test_a_late_request_is_refused(batcher):
    signature = Rows()
    with pytest.raises(Refusal, match="Timed out waiting for notification") as caught:
        ask(batcher(), signature, 1, seconds=LATE).result(9)
    assert caught.value.code == "DEADLINE_EXCEEDED"
    assert not signature.batches


def test_a_full_queue_refuses_and_empties_again(batcher):
    signature, served = Rows(), batcher(max_rows=2)
    queued(served, signature)
    answers = [ask(served, signature, n, n) for n in range(64)]
    with pytest.raises(Refusal, match="The batch scheduling queue to which this task was submitted is full") as caught:
        ask(served, signature, 1)
    assert caught.value.code == "UNAVAILABLE"
    signature.may_run.set()
    assert [each.result(9)["y"].tolist() for each in answers] == [[2 * n, 2 * n] for n in range(64)]
    assert ask(served, signature, 5).result(9)["y"] == [10]


def test_requests_wait_for_others_if_told_to_but_not_for_a_full_batch(batcher):
    signature, served = Rows(), batcher(threads=2, max_rows=3, wait=0.5)
    begin = time.monotonic()
    answers = [ask(served, signature, n) for n in (1, 2)]
    assert [each.result(9)["y"] for each in answers] == [[2], [4]]
    assert time.monotonic() - begin >= 0.5
    assert signature.batches == [2]
    patient = batcher(threads=2, max_rows=3, wait=300)
    answers = [ask(patient, signature, n) for n in (1, 2, 3)]
    assert [each.result(9)["y"] for each in answers] == [[2], [4], [6]]
    patient.close()


def test_closing_runs_what_waits(batcher):
    signature, served = Rows(), batcher()
    queued(served, signature)
    answers = [ask(served, signature, n) for n in (1, 2)]
    threading.Timer(0.05, signature.may_run.set).start()
    served.close()
    assert [each.result(0)["y"] for each in answers] == [[2], [4]]
    with pytest.raises(Refusal, match="The server is stopping"):
        ask(served, signature, 1)


def test_many_threads_and_clients_get_their_own_answers(batcher):
    signature, rows = Rows(), []
    served = batcher(threads=3, max_rows=16, on_batch=lambda number, waited: rows.append((number, waited)))
    random = np.random.default_rng(0)
    requests = [random.integers(-3, 1000, random.integers(1, 5)).tolist() for _ in range(300)]

    def client(numbers):
        try:
            return ask(served, signature, *numbers).result(30)["y"].tolist()
        except Refusal as refusal:
            return refusal.message

    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(client, requests))
    for numbers, found in zip(requests, answers, strict=True):
        assert found == ([2 * n for n in numbers] if min(numbers) >= 0 else f"bad: {min(numbers)}")
    assert sum(number for number, _ in rows) == sum(map(len, requests))
    assert max(number for number, _ in rows) <= 16
    assert all(waited >= 0 for _, waited in rows)
