"""`zoo serve` with SavedModels of all kinds: what it loads, what it answers, and its process."""

import asyncio
import concurrent.futures
import contextlib
import gc
import gzip
import http.client
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tiny_models import SIGNATURES, save_half_plus_three, save_tiny, write_warm_up

from zoo.serving.clients.messages import signatures_of
from zoo.serving.server import app
from zoo.serving.server import running as running_module
from zoo.serving.server.app import Metrics, build_app
from zoo.serving.server.batching import Batcher
from zoo.serving.server.models import Models, Served, Version, _Model
from zoo.serving.server.port import bind
from zoo.serving.server.rest_json import Refusal
from zoo.serving.server.running import Settings, serve


@pytest.fixture(scope="session")
def saved(shared_folder, once):
    """Folders of SavedModels: of version 2, whose factor is 2, of 5, and of TensorFlow 1."""
    folder = shared_folder / "tiny_models"
    with once(folder) as first:
        if first:
            save_tiny(folder / "2", factor=2)
            save_tiny(folder / "5", factor=5)
            save_half_plus_three(folder / "three")
    return folder


class Never:
    """An event that never comes, in any loop: each request of these tests has its own."""

    async def wait(self):
        await asyncio.Event().wait()


class Running:
    """The application in this process."""

    def __init__(self, models, batcher, metrics, **limits):
        self.models, self.app = models, build_app(models, batcher, metrics, **{"stopping": Never(), **limits})

    def ask(self, *request, **options):
        """Status, headers and body of an answer; the body as JSON if it is some."""
        return asyncio.run(self.ask_in_loop(*request, **options))

    async def ask_in_loop(self, method, path, body=b"", headers=(), leaves=False, ends=None):
        """The same in the loop that runs.

        The client may leave after it has sent the request, or send the end of the body only after an event.
        """
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        path, _, query = path.partition("?")
        sent, pieces = [], [{"type": "http.request", "body": body, "more_body": ends is not None}]

        async def receive():
            if pieces:
                return pieces.pop()
            if ends and not ends.is_set():
                await ends.wait()
                return {"type": "http.request"}
            await asyncio.sleep(0 if leaves else 3600)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "client": None}
        scope |= {"path": urllib.parse.unquote(path), "raw_path": path.encode(), "root_path": ""}
        scope |= {"query_string": query.encode()}
        scope |= {"headers": [(name.lower().encode(), value.encode()) for name, value in headers]}
        await self.app(scope, receive, send)
        found, self.pieces = dict(sent[0]["headers"]), [message.get("body", b"") for message in sent[1:]]
        text = b"".join(self.pieces)
        is_json = found.get(b"content-type", b"").startswith(b"application/json")
        return sent[0]["status"], found, json.loads(text) if is_json else text.decode()

    def post(self, path, body):
        status, _, answer = self.ask("POST", f"/v1/models/{path}", body)
        return status, answer


@pytest.fixture
def running():
    """A function that serves folders in this process."""
    with contextlib.ExitStack() as at_end:

        def running(labels=None, limits=None, max_rows=8, **paths):
            models, metrics = Models(paths, labels), Metrics()
            models.poll()
            batcher = Batcher(2, max_rows, on_batch=metrics.on_batch)
            at_end.callback(batcher.close)
            return Running(models, batcher, metrics, **(limits or {}))

        yield running


@pytest.fixture
def tiny(running, saved):
    return running(tiny=saved / "2")


class TestPredict:
    def test_rows_and_columns_of_several_outputs(self, tiny):
        rows = {"instances": [[1, 2, 3], [4, 5, 6.5]]}
        wanted = [{"scaled": [2, 4, 6], "total": 6}, {"scaled": [8, 10, 13], "total": 15.5}]
        assert tiny.post("tiny:predict", rows) == (200, {"predictions": wanted})
        columns = {"inputs": {"x": [[1, 2, 3], [4, 5, 6.5]]}}
        wanted = {"scaled": [[2, 4, 6], [8, 10, 13]], "total": [6, 15.5]}
        assert tiny.post("tiny:predict", columns) == (200, {"outputs": wanted})

    def test_one_output_has_no_name_even_if_the_input_has_the_same(self, tiny):
        body = {"signature_name": "twice", "instances": [{"number": 2**40}, {"number": -1}, {"number": 0}]}
        assert tiny.post("tiny:predict", body) == (200, {"predictions": [2**41, -2, 0]})

    def test_bytes_go_in_and_come_out(self, tiny):
        body = {"signature_name": "echo", "inputs": ["é", {"b64": "AEE="}]}
        wanted = {"text": ["é", "\0A"], "raw_bytes": [{"b64": "w6k="}, {"b64": "AEE="}]}
        assert tiny.post("tiny:predict", body) == (200, {"outputs": wanted})

    def test_inputs_of_several_axes(self, tiny):
        body = {"signature_name": "add", "instances": [{"a": 10, "b": [1, 2, 3]}, {"a": 20, "b": [4, 5, 6]}]}
        assert tiny.post("tiny:predict", body) == (200, {"predictions": [[11, 12, 13], [24, 25, 26]]})

    def test_an_output_without_rows_is_given_in_columns(self, tiny):
        assert tiny.post("tiny:predict", {"signature_name": "mean", "inputs": [[1, 2, 6]]}) == (200, {"outputs": 3.0})
        status, said = tiny.post("tiny:predict", {"signature_name": "mean", "instances": [[1, 2, 6]]})
        assert (status, said) == (400, {"error": "Tensor name: mean has no shape information "})

    def test_the_request_of_a_client_that_has_left_is_not_computed(self, saved):
        models, batches = Models({"tiny": saved / "2"}), []
        models.poll()
        batcher = Batcher(1, 8, wait=60, on_batch=lambda rows, _: batches.append(rows))
        served, body = Running(models, batcher, Metrics()), {"inputs": [[1, 2, 3]]}
        assert served.ask("POST", "/v1/models/tiny:predict", body, leaves=True)[0] == 499
        assert served.post("tiny:predict", {"inputs": [[1, 2, 3]] * 7})[0] == 200  # both would fill a batch
        batcher.close()
        assert batches == [7]

    def test_no_rows_have_an_answer_in_columns(self, tiny):
        assert tiny.post("tiny:predict", {"signature_name": "twice", "inputs": []}) == (200, {"outputs": []})

    def test_versions_labels_case_and_encoded_names(self, running, saved):
        served = running({"a b": {"old": 2, "gone": 4}}, **{"a b": saved})
        for path, factor in [("a%20b", 5), ("a%20b/VERSIONS/2", 2), ("a%20b/labels/old", 2)]:
            assert served.ask("POST", f"/V1/models/{path}:predict", {"inputs": {"x": [[1, 1, 1]]}})[0] == 200
            status, found = served.post(f"{path}:predict", {"inputs": {"x": [[1, 1, 1]]}})
            assert (status, found["outputs"]["scaled"]) == (200, [[factor] * 3])
        unknown = "Unrecognized servable version label: new"
        assert served.post("a%20b/labels/new:predict", {"inputs": [1]}) == (400, {"error": unknown})
        gone = "Servable not found for request: Specific(a b, 4)"
        assert served.post("a%20b/labels/gone:predict", {"inputs": [1]}) == (404, {"error": gone})

    def test_a_saved_model_of_tensorflow_1(self, running, saved):
        """The example of the documentation, https://www.tensorflow.org/tfx/serving/api_rest#example."""
        served = running(half_plus_three=saved / "three")
        assert served.post("half_plus_three:predict", {"instances": [1.0, 2.0, 5.0]}) == (
            200,
            {"predictions": [3.5, 4.0, 5.5]},
        )
        status, said = served.post("half:predict", {"instances": [1.0, 5.0]})
        assert (status, said) == (404, {"error": "Servable not found for request: Latest(half)"})
        body = {"signature_name": "regress_x", "examples": [{"x": 1.0}]}
        assert served.post("half_plus_three:regress", body)[0] == 501
        assert served.ask("GET", "/v1/models/half_plus_three")[2]["model_version_status"][0]["version"] == "1"

    def test_clients_at_once_share_batches_and_get_their_own_answers(self, tiny):
        def ask(number):
            rows = [[number, row, -row] for row in range(1 + number % 3)]
            return rows, tiny.post("tiny:predict", {"instances": rows})

        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            for rows, (status, found) in clients.map(ask, range(64)):
                assert status == 200
                assert [row["scaled"] for row in found["predictions"]] == [[2 * each for each in row] for row in rows]

    @pytest.mark.parametrize("name", ["positive", "different"])
    def test_neighbours_do_not_disturb_each_other(self, tiny, name):
        """Where one request makes the graph fail, and where outputs have other rows than inputs."""

        def ask(number):
            return tiny.post("tiny:predict", {"signature_name": name, "inputs": [number % 5, number % 5]})

        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            for number, (status, found) in enumerate(clients.map(ask, range(40))):
                if name == "positive" and number % 5 == 0:
                    assert (status, "not positive" in found["error"]) == (400, True)
                else:
                    assert (status, found["outputs"]) == (200, [number % 5] * (1 if name == "different" else 2))


class TestStreams:
    def events(self, tiny, **body):
        status, headers, text = tiny.ask("POST", "/v1/models/tiny:generateStream", body)
        assert (status, headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
        events = text.split("\n\n")
        assert events.pop() == ""
        assert all(event.startswith("data: ") for event in events)
        return [json.loads(event.removeprefix("data: ")) for event in events]

    @pytest.mark.parametrize("limit", [0, 1, 7, 8, 9, 30, 256])
    def test_the_pieces_are_the_text_of_one_request(self, tiny, limit):
        *pieces, last = self.events(tiny, text="say", max_new_tokens=limit, temperature=0.5)
        columns = {"text": ["say"], "max_new_tokens": [limit], "temperature": [0.5], "top_k": [0], "top_p": [1]}
        columns |= {"repetition_penalty": [1], "seed": [0], "stop": [""]}
        _, whole = tiny.post("tiny:predict", {"signature_name": "generate", "inputs": columns})
        assert "".join(piece["text"] for piece in pieces) == whole["outputs"]["text"][0]
        assert all(piece["text"] for piece in pieces)
        tokens = whole["outputs"]["tokens"][0]
        assert last == {"done": True, "tokens": tokens, "log_probability": 0.5 if limit else 0.0}
        assert len(pieces) > 3 or limit < 30

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"text": 7}, "`text` must be one string. Received: 7"),
            ({"text": ["a"]}, "`text` must be one string. Received: ['a']"),
            ({"temperature": -1}, "`temperature` must be from 0 to 1000000. Received: temperature=-1"),
            ({"stop": 5}, "`stop` must be a string or several. Received: stop=5"),
            ({"tokens": 5}, "there is no setting 'tokens'; there are text, max_new_tokens, temperature, top_k, "),
            (b"{", "JSON Parse error"),
        ],
    )
    def test_a_mistake_is_said_before_the_first_piece(self, tiny, body, words):
        status, said = tiny.post("tiny:generateStream", body)
        assert status == 400
        assert words in said["error"]

    @pytest.mark.parametrize(
        ("error", "said"), [(Refusal("INTERNAL", "it broke"), "it broke"), (OSError("disk"), "OSError: disk")]
    )
    def test_what_fails_after_the_first_piece_is_the_last_event_and_counts_as_failed(self, error, said, caplog):
        async def failing():
            yield {"text": "b"}
            raise error

        counted = []

        async def streamed():
            return [event async for event in app._stream({"text": "a"}, failing(), counted.append)]

        *pieces, last = asyncio.run(streamed())
        assert pieces == [b'data: {"text": "a"}\n\n', b'data: {"text": "b"}\n\n']
        assert last == f'data: {{"error": "{said}"}}\n\n'.encode()
        assert counted == [500]
        assert ("a request failed" in caplog.text) == isinstance(error, OSError)

    def test_a_stream_counts_when_it_ends(self, tiny):
        async def pieces():
            yield {"text": "b"}

        counted = []

        async def streamed(most):
            stream = app._stream({"text": "a"}, pieces(), counted.append)
            for _ in range(most):
                await anext(stream)
            await stream.aclose()  # the client leaves
            return [*counted]

        assert asyncio.run(streamed(1)) == [499]
        self.events(tiny, text="say", max_new_tokens=3)
        _, _, page = tiny.ask("GET", "/metrics")
        labels = 'method="generateStream",model="tiny"'  # in the order of their names
        assert f'zoo_serve_requests_total{{{labels},status="200"}} 1.0' in page
        assert f"zoo_serve_request_seconds_count{{{labels}}} 1.0" in page

    def test_a_stream_ends_with_an_error_when_the_server_stops(self):
        async def waited(happens):
            stopping, answer = asyncio.Event(), asyncio.get_running_loop().create_future()
            waiting = asyncio.ensure_future(app._unless(stopping, answer))
            await asyncio.sleep(0)
            {"answer": lambda: answer.set_result("a"), "stop": stopping.set, "leaves": waiting.cancel}[happens]()
            await asyncio.wait([waiting])
            return waiting, answer.cancelled()

        answered, in_queue = asyncio.run(waited("answer"))
        assert (answered.result(), in_queue) == ("a", False)
        stopped, taken_out = asyncio.run(waited("stop"))
        assert (str(stopped.exception()), taken_out) == ("The server is stopping", True)
        left, taken_out = asyncio.run(waited("leaves"))
        assert (left.cancelled(), taken_out) == (True, True)

    def test_other_models_do_not_stream(self, running, saved):
        status, said = running(three=saved / "three").post("three:generateStream", {"text": "a"})
        assert (status, said) == (400, {"error": "The model three does not continue texts"})


class TestErrors:
    @pytest.mark.parametrize(
        ("method", "path", "body", "status", "words"),
        [
            ("POST", "tiny:predict", b"{", 400, "JSON Parse error: "),
            ("POST", "other:predict", b"{", 400, "JSON Parse error: "),  # the server reads before it looks
            ("POST", "other:predict", {"instances": [1]}, 404, "Servable not found for request: Latest(other)"),
            ("POST", "tiny:predict?a=b", {}, 400, "Malformed request: POST /v1/models/tiny:predict?a=b"),
            ("GET", "tiny?a=b", b"", 404, "Could not find any versions of model tiny?a=b"),
            (
                "POST",
                "tiny/versions/7:predict",
                {"inputs": 1},
                404,
                "Servable not found for request: Specific(tiny, 7)",
            ),
            ("POST", "tiny/versions/99999999999999999999:predict", {}, 400, "Failed to convert version: 9999"),
            ("GET", f"tiny/versions/{'9' * 5000}", b"", 400, "Failed to convert version: 9999"),
            ("GET", f"tiny/versions/{2**63}", b"", 400, f"Failed to convert version: {2**63} to numeric."),
            ("GET", f"tiny/versions/{2**63 - 1}", b"", 404, f"Could not find version {2**63 - 1} of model tiny"),
            ("GET", f"tiny/versions/{'0' * 5000}7", b"", 404, "Could not find version 7 of model tiny"),
            ("GET", "tiny/versions/00", b"", 404, "Could not find version 0 of model tiny"),
            ("POST", "tiny/version/2:predict", {}, 400, "Malformed request: POST /v1/models/tiny/version/2:predict"),
            ("POST", "tiny/versions/2/labels/a:predict", {}, 400, "Malformed request: "),
            ("POST", "tiny", {}, 400, "Malformed request: "),
            ("POST", "tiny:PREDICT", {}, 400, "Malformed request: POST /v1/models/tiny:PREDICT"),
            ("GET", "tiny:predict", b"", 400, "Malformed request: GET /v1/models/tiny:predict"),
            ("DELETE", "tiny", b"", 400, "Malformed request: DELETE /v1/models/tiny"),
            ("GET", "", b"", 400, "Missing model name in request."),
            ("GET", "other", b"", 404, "Could not find any versions of model other"),
            ("GET", "tiny/versions/7", b"", 404, "Could not find version 7 of model tiny"),
            ("GET", "other/metadata", b"", 404, "Servable not found for request: Latest(other)"),
            (
                "POST",
                "tiny:predict",
                {"signature_name": "none", "inputs": 1},
                400,
                'Serving signature name: "none" not found in signature def',
            ),
            ("POST", "tiny:predict", {"instances": [["a", "b", "c"]]}, 400, "is not of expected type: float"),
            ("POST", "tiny:predict", {"inputs": {"y": []}}, 400, "Missing named input: x in 'inputs' object."),
            ("POST", "tiny:predict", {"inputs": [[1, 2]]}, 400, "must have shape [?,3] but has [1,2]"),
            (
                "POST",
                "tiny:predict",
                {"inputs": [[1, 2, 3]] * 9},
                400,
                "Task size 9 is larger than maximum input batch",
            ),
            ("POST", "tiny:predict", {"signature_name": "half", "inputs": [1]}, 501, "to type: half"),
            (
                "POST",
                "tiny:classify",
                {"examples": [{"x": 1}]},
                400,
                "Expected classification signature method_name to be tensorflow/serving/classify. Was: "
                "tensorflow/serving/predict",
            ),
            (
                "POST",
                "tiny:regress",
                {"examples": [{"x": 1}]},
                400,
                "Expected regression signature method_name to be tensorflow/serving/regress. Was: ",
            ),
            ("POST", "tiny:classify", {"instances": [1]}, 400, "key 'examples' is expected and was not found"),
            (
                "POST",
                "tiny:regress",
                {"signature_name": "none", "examples": []},
                400,
                "No signature was found with the ",
            ),
        ],
    )
    def test_they_have_the_servers_status_and_words(self, tiny, method, path, body, status, words):
        # http_rest_api_util.cc, http_rest_api_handler.cc, get_model_status_impl.cc, classifier.cc, regressor.cc
        found, headers, said = tiny.ask(method, f"/v1/models/{path}".rstrip("/"), body)
        assert (found, headers[b"content-type"]) == (status, b"application/json")
        assert words in said["error"]
        assert said.keys() == {"error"}

    def test_a_packed_body(self, running, saved):
        served = running(limits={"max_body": 100}, tiny=saved / "2")
        asked = json.dumps({"inputs": {"x": [[1, 1, 1]]}, "signature_name": "serving_default"}).encode()

        def answer(body):
            return served.ask("POST", "/v1/models/tiny:predict", body, [("Content-Encoding", "gzip")])

        assert answer(gzip.compress(asked))[::2] == served.ask("POST", "/v1/models/tiny:predict", asked)[::2]
        assert answer(gzip.compress(asked))[0] == 200
        assert answer(gzip.compress(b" " * 101))[0] == 413  # 23 bytes
        for body in (asked, gzip.compress(asked)[:-1], b""):
            status, _, said = answer(body)
            assert status == 400
            assert said["error"].startswith("The body is not gzip: ")

    def test_a_body_that_is_too_large(self, running, saved):
        served = running(limits={"max_body": 100}, tiny=saved / "2")
        said = {"error": "The body has more than 100 bytes"}
        assert served.post("tiny:predict", b" " * 101) == (413, said)
        # Also if its length is only said, or not said.
        assert served.ask("POST", "/v1/models/tiny:predict", b"", [("Content-Length", "101")])[0] == 413
        assert served.post("tiny:predict", {"inputs": [[1, 2, 3]]})[0] == 200

    def test_bodies_that_are_too_large_together(self, running, saved, monkeypatch):
        monkeypatch.setattr(app, "_LEAST_AT_ONCE", 0)
        served = running(limits={"max_body": 100}, tiny=saved / "2")
        path, asked = "/v1/models/tiny:predict", {"inputs": [[1, 2, 3]]}

        async def together(served, number):
            """The answer to a request, and the status of those whose bodies are there but for their ends."""
            ends = asyncio.Event()
            full = [served.ask_in_loop("POST", path, b" " * 100, ends=ends) for _ in range(number)]
            open_ = [*map(asyncio.ensure_future, full)]
            await asyncio.sleep(0.1)
            answer = await served.ask_in_loop("POST", path, asked)
            ends.set()
            return answer, [status for status, *_ in await asyncio.gather(*open_)]

        (status, headers, said), others = asyncio.run(together(served, 8))
        assert (status, headers[b"retry-after"], set(others)) == (503, b"1", {400})
        assert said == {"error": "The bodies of all requests have 800 bytes at most; ask again"}
        assert served.ask("POST", path, asked)[0] == 200  # they are gone
        assert asyncio.run(together(served, 7))[0][0] == 200
        monkeypatch.setattr(app, "_LEAST_AT_ONCE", 1000)  # many small ones are no danger
        served = running(limits={"max_body": 100}, tiny=saved / "2")
        assert asyncio.run(together(served, 9))[0][0] == 200

    def test_a_packed_body_counts_twice_among_those_that_are_open(self, running, saved, monkeypatch):
        """Both forms are in memory."""
        monkeypatch.setattr(app, "_LARGEST_AT_ONCE", 1)
        monkeypatch.setattr(app, "_LEAST_AT_ONCE", 0)
        served = running(limits={"max_body": 100}, tiny=saved / "2")
        answer = served.ask("POST", "/v1/models/tiny:predict", gzip.compress(b" " * 99), [("Content-Encoding", "gzip")])
        assert answer[0] == 503

    def test_a_long_answer_is_sent_in_pieces(self, tiny):
        empty = int(tiny.ask("GET", "/a")[1][b"content-length"]) - 1
        for size, pieces in ((2**16 - 1, 1), (2**16, 1), (2**16 + 1, 2), (2**17, 2), (200_000, 4)):
            path = f"/{'a' * (size - empty)}"
            status, headers, said = tiny.ask("GET", path)
            assert (status, int(headers[b"content-length"])) == (404, size)
            assert said == {"error": f"Not found: {path}"}
            assert len(tiny.pieces) == pieces
            assert max(map(len, tiny.pieces)) <= 2**16

    def test_a_request_that_takes_too_long_is_stopped_and_the_next_is_answered(self, running, saved):
        served = running(limits={"timeout": 0.5}, tiny=saved / "2")
        begin = time.monotonic()
        status, said = served.post("tiny:predict", {"signature_name": "count", "inputs": [10**9]})
        assert (status, list(said)) == (504, ["error"])
        assert time.monotonic() - begin < 60  # it would count for an hour
        with concurrent.futures.ThreadPoolExecutor(4) as clients:  # no thread is left behind
            bodies = [{"signature_name": "twice", "inputs": [n]} for n in range(8)]
            answers = list(clients.map(lambda body: served.post("tiny:predict", body), bodies))
        assert answers == [(200, {"outputs": [2 * n]}) for n in range(8)]


class TestOtherPaths:
    def test_the_status(self, tiny):
        # The page's example
        state = {"version": "2", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        for path in ("tiny", "tiny/versions/2", "tiny/labels/any"):
            status, _, said = tiny.ask("GET", f"/v1/models/{path}")
            assert (status, said) == (200, {"model_version_status": [state]})

    def test_the_metadata_are_what_clients_read(self, tiny):
        status, _, said = tiny.ask("GET", "/v1/models/tiny/metadata")
        assert (status, said["model_spec"]) == (200, {"name": "tiny", "signature_name": "", "version": "2"})
        found = signatures_of(said["metadata"]["signature_def"])
        assert set(found) == {"serving_default", *SIGNATURES}
        spec = found["serving_default"].inputs["x"]
        assert (spec.dtype, spec.shape) == ("float32", (None, 3))
        assert found["mean"].outputs["mean"].shape == ()

    def test_the_explorer_and_the_names_that_it_offers(self, tiny):
        status, headers, page = tiny.ask("GET", "/")
        assert (status, page[:15]) == (200, "<!DOCTYPE html>")
        assert headers[b"content-type"] == b"text/html; charset=utf-8"
        assert tiny.ask("GET", "/models.json")[2][0] == "tiny"

    def test_health_and_figures(self, tiny):
        assert tiny.ask("GET", "/healthz")[::2] == (200, "ok\n")
        tiny.post("tiny:predict", {"inputs": [[1, 2, 3]] * 3})
        tiny.post("made_up:predict", {"inputs": [1]})
        status, _, page = tiny.ask("GET", "/metrics")
        assert status == 200
        for line in (
            'zoo_serve_requests_total{method="predict",model="tiny",status="200"} 1.0',
            'zoo_serve_requests_total{method="predict",model="",status="404"} 1.0',
            'zoo_serve_request_seconds_count{method="predict",model="tiny"} 1.0',
            "zoo_serve_batch_rows_sum 3.0",
            "zoo_serve_queue_seconds_count 1.0",
            'zoo_serve_version_available{model="tiny",version="2"} 1.0',
        ):
            assert line in page.splitlines()
        assert "made_up" not in page

    @pytest.mark.parametrize("origin", ["http://a", "HTTP://a:8501", "https://[::1]:8501"])
    def test_a_request_line_in_absolute_form_is_answered_like_its_path(self, tiny, origin):
        """As a client sends it to a proxy; RFC 9112, section 3.2.2."""
        for path in ("/v1/models/tiny/metadata", "/v1/models/t%69ny", "/healthz", "/v1/models/http://a", "/http://a"):
            assert tiny.ask("GET", origin + path)[::2] == tiny.ask("GET", path)[::2]
        body = {"inputs": [[1, 2, 3]]}
        assert tiny.ask("POST", f"{origin}/v1/models/tiny:predict", body)[0] == 200
        assert tiny.ask("GET", origin)[2] == tiny.ask("GET", "/")[2]

    def test_a_request_with_two_lengths_is_refused_and_ends_its_connection(self, tiny):
        """RFC 9112, section 6.3."""
        two = [("Content-Length", "3"), ("Transfer-Encoding", "chunked")]
        for method, path in (("POST", "/v1/models/tiny:predict"), ("GET", "/healthz")):
            status, headers, said = tiny.ask(method, path, headers=two)
            assert (status, headers[b"connection"]) == (400, b"close")
            assert said == {"error": "A request must not have both Transfer-Encoding and Content-Length"}
        body = {"inputs": [[1, 2, 3]]}
        for each in two:
            assert tiny.ask("POST", "/v1/models/tiny:predict", body, headers=[each])[0] == 200

    def test_a_server_may_tell_that_it_starts_and_ends(self, tiny):
        """As servers other than `zoo serve` do, by the lifespan protocol of ASGI."""
        events, sent = iter(("lifespan.startup", "lifespan.shutdown")), []

        async def receive():
            return {"type": next(events)}

        async def send(message):
            sent.append(message["type"])

        asyncio.run(tiny.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send))
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    def test_elsewhere_is_nothing(self, tiny):
        assert tiny.ask("GET", "/statuspage")[::2] == (404, {"error": "Not found: /statuspage"})
        assert tiny.ask("POST", "/", {})[::2] == (400, {"error": "Malformed request: POST /"})

    def test_pages_of_other_origins_read_answers_only_if_allowed(self, running, saved):
        origin = [("Origin", "http://localhost:3000")]
        closed, opened = (
            running(tiny=saved / "2"),
            running(limits={"cors": ["http://localhost:3000"]}, tiny=saved / "2"),
        )
        assert b"access-control-allow-origin" not in closed.ask("GET", "/v1/models/tiny", headers=origin)[1]
        headers = opened.ask("GET", "/v1/models/tiny", headers=origin)[1]
        assert headers[b"access-control-allow-origin"] == b"http://localhost:3000"
        asked = [*origin, ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "content-type")]
        assert opened.ask("OPTIONS", "/v1/models/tiny:predict", headers=asked)[0] == 200
        other = [("Origin", "http://elsewhere.example")]
        assert b"access-control-allow-origin" not in opened.ask("GET", "/v1/models/tiny", headers=other)[1]


class TestVersions:
    @pytest.fixture
    def folder(self, saved, tmp_path):
        shutil.copytree(saved / "2", tmp_path / "a model" / "2")
        return tmp_path / "a model"

    @staticmethod
    def factor(models):
        served = models.find("model").signature("serving_default")
        return served.run({"x": np.ones((1, 3), np.float32)}, seconds=60)["scaled"][0, 0]

    @staticmethod
    def states(models):
        found = models.status("model")["model_version_status"]
        return {int(each["version"]): (each["state"], each["status"]["error_code"]) for each in found}

    def test_a_new_version_replaces_the_old_and_back(self, folder, saved, caplog):
        caplog.set_level("INFO")
        models = Models({"model": folder})
        models.poll()
        assert self.factor(models) == 2
        in_use = models.find("model").signature("serving_default")
        shutil.copytree(saved / "5", folder / "11")
        models.poll()
        assert self.factor(models) == 5
        assert models.loaded() == {"model": [11]}
        assert self.states(models) == {11: ("AVAILABLE", "OK"), 2: ("END", "OK")}
        # Requests that had begun finish with the version that they began with.
        assert in_use.run({"x": np.ones((1, 3), np.float32)}, seconds=60)["scaled"][0, 0] == 2
        unloaded = weakref.ref(in_use)
        del in_use
        gc.collect()
        assert unloaded() is None  # its memory is free
        os.rename(folder / "11", folder / "11.bad")
        models.poll()
        assert self.factor(models) == 2
        unloaded = [line for line in caplog.messages if "unloaded" in line]
        assert unloaded == [
            "model: version 2 is unloaded; version 11 answers",
            "model: version 11 is unloaded; version 2 answers",
        ]

    @pytest.mark.parametrize("within", ["model", "model/latest"])
    def test_a_link_may_come_to_mean_another_folder(self, saved, tmp_path, monkeypatch, within):
        """Whoever deploys may change a link; a server follows it at each poll."""
        from zoo_training.cli.serve import _paths

        monkeypatch.chdir(tmp_path)
        for place, factor, number in (("old", "2", "3"), ("new", "5", "4")):
            shutil.copytree(saved / factor, f"{place}/model/{number}")
            os.symlink(number, f"{place}/model/latest")
        os.symlink("old", "current")
        models = Models(_paths([f"model=current/{within}"]))
        models.poll()
        assert (models.loaded(), self.factor(models)) == ({"model": [3]}, 2)
        os.remove("current")
        os.symlink("new", "current")
        models.poll()
        assert (models.loaded(), self.factor(models)) == ({"model": [4]}, 5)

    @pytest.mark.parametrize("within", ["", "1"])
    def test_a_link_that_changes_while_a_version_is_loaded(self, saved, tmp_path, monkeypatch, within):
        for factor in ("2", "5"):
            shutil.copytree(saved / factor, tmp_path / factor / "1")
        link = tmp_path / "current"
        link.symlink_to("2")

        def load(*arguments):
            link.unlink()
            link.symlink_to("5")
            return Version(*arguments)

        monkeypatch.setattr("zoo.serving.server.models.Version", load)
        models = Models({"model": link / within})
        models.poll()
        assert self.factor(models) == 2, "of the folder that was found"

    def test_the_last_version_goes_with_its_folder_but_not_with_the_folder_of_the_model(self, folder, saved, caplog):
        caplog.set_level("INFO")
        models = Models({"model": folder})
        models.poll()
        os.rename(folder, folder.with_name("elsewhere"))  # as a disk that is not there for a moment
        models.poll()
        assert self.factor(models) == 2
        os.rename(folder.with_name("elsewhere"), folder)
        (folder / "2" / "saved_model.pb").rename(folder / "saved_model.aside")
        models.poll()
        assert self.factor(models) == 2  # its folder is there
        shutil.rmtree(folder / "2")
        models.poll()
        assert (models.loaded(), self.states(models)) == ({"model": []}, {2: ("END", "OK")})
        assert caplog.messages[-1] == "model: version 2 is unloaded; no version answers"
        with pytest.raises(Refusal, match=r"^Servable not found for request: Latest\(model\)$"):
            models.find("model")
        shutil.copytree(saved / "5", folder / "5")
        models.poll()
        assert self.factor(models) == 5

    def test_the_log_says_which_labels_lose_their_version(self, folder, saved, caplog):
        shutil.copytree(saved / "5", folder / "5")
        models = Models({"model": folder}, {"model": {"old": 2, "new": 5, "stable": 2}})
        models.poll()
        shutil.rmtree(folder / "2")
        models.poll()
        assert [line for line in caplog.messages if "label" in line] == [
            "model: requests for the label old fail until version 2 is there again",
            "model: requests for the label stable fail until version 2 is there again",
        ]

    @pytest.mark.parametrize(
        "spoil", ["saved_model.pb", "variables/variables.index", "warm-up", "cut warm-up", "odd warm-up"]
    )
    def test_a_version_that_cannot_be_loaded_is_refused_until_its_files_change(
        self, folder, saved, spoil, monkeypatch, caplog
    ):
        sessions = weakref.WeakSet()

        class Noted(tf.compat.v1.Session):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                sessions.add(self)

        monkeypatch.setattr(tf.compat.v1, "Session", Noted)
        models = Models({"model": folder})
        models.poll()
        broken = shutil.copytree(saved / "5", folder / "5")
        if spoil == "warm-up":
            write_warm_up(broken, ("twice", {"number": np.int64([1])}), ("positive", {"number": np.int32([-1])}))
        elif spoil == "odd warm-up":  # of a type that the signature does not take
            write_warm_up(broken, ("twice", {"number": np.array([b"text"], object)}))
        elif spoil == "cut warm-up":
            write_warm_up(broken, ("twice", {"number": np.int64([1, 2])}))
            records = broken / "assets.extra/tf_serving_warmup_requests"
            records.write_bytes(records.read_bytes()[:-2])
        else:
            (broken / spoil).write_bytes((broken / spoil).read_bytes()[:-40])
        models.poll()
        assert self.states(models)[5][0] == "END"
        assert self.states(models)[5][1] != "OK"
        assert self.factor(models) == 2
        (said,) = [line for line in caplog.messages if "refused" in line]
        assert said.startswith("model: version 5 is refused until its files change: ") and "\n" not in said
        assert said.endswith("` looks for what is wrong")
        assert shlex.split(said.split("`")[1]) == ["zoo", "check", "--run", str(broken)]
        seen = models.status("model")
        models.poll()
        assert models.status("model") == seen
        assert len(sessions) == 1  # that of version 2: the memory of the other is free
        shutil.rmtree(broken)
        shutil.copytree(saved / "5", broken)
        os.utime(broken)
        models.poll()
        assert self.factor(models) == 5

    def test_warm_up_requests_are_made(self, folder):
        write_warm_up(folder / "2", ("twice", {"number": np.int64([1, 2])}), ("", {"x": np.ones((2, 3), np.float32)}))
        models = Models({"model": folder})
        models.poll()
        assert models.find("model").warmed == 2

    def test_a_version_without_a_graph_is_said_once(self, folder, caplog):
        models = Models({"model": folder})
        (folder / "3").mkdir()
        models.poll()
        assert "saved_model.pb" not in caplog.text  # it may be being copied
        for _ in range(3):
            models.poll()
        assert caplog.text.count("model: version 3 has no saved_model.pb") == 1
        assert models.loaded() == {"model": [2]}

    def test_a_folder_that_is_being_copied_is_no_version_yet(self, folder):
        (folder / "3" / "variables").mkdir(parents=True)
        (folder / "4.copying").mkdir()
        models = Models({"model": folder})
        models.poll()
        assert self.states(models) == {2: ("AVAILABLE", "OK")}

    def test_polling_never_ends_by_an_error(self, folder, saved):
        models = Models({"model": folder})
        models.poll()
        models.start(0.02)
        try:
            folder.rename(folder.with_name("away"))
            time.sleep(0.2)
            folder.with_name("away").rename(folder)
            shutil.copytree(saved / "5", folder / "5.aside").rename(folder / "5")
            end = time.monotonic() + 60
            while self.factor(models) != 5 and time.monotonic() < end:
                time.sleep(0.05)
            assert self.factor(models) == 5
        finally:
            models.stop()

    def test_a_model_that_cannot_be_read_does_not_keep_others_from_updates(self, folder, saved, monkeypatch, caplog):
        models = Models({"bad": saved / "2", "model": folder})
        models.poll()
        read = _Model.folders

        def folders(model):
            if model.name == "bad":
                raise PermissionError(13, "Permission denied", "bad")
            return read(model)

        monkeypatch.setattr(_Model, "folders", folders)
        models.start(0.02)
        try:
            shutil.copytree(saved / "5", folder / "5.aside").rename(folder / "5")
            end = time.monotonic() + 60
            while self.factor(models) != 5 and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(0.2)
        finally:
            models.stop()
        assert models.loaded() == {"bad": [2], "model": [5]}
        assert caplog.text.count("bad: its folder cannot be read: [Errno 13] Permission denied: 'bad'") == 1
        assert "Traceback" not in caplog.text

    def test_a_stop_ends_warming_up(self, folder, saved, monkeypatch, caplog):
        models = Models({"model": folder})
        models.poll()
        for number in (4, 5):
            shutil.copytree(saved / "5", folder / str(number))
            write_warm_up(folder / str(number), *[("twice", {"number": np.int64([1])})] * 3)
        made, run = [], Served.run

        def stopping(*given, **named):
            made.append(models.stop())
            return run(*given, **named)

        monkeypatch.setattr(Served, "run", stopping)
        models.poll()
        assert len(made) == 1
        assert models.loaded() == {"model": [2]}
        assert "refused" not in caplog.text

    def test_errors_of_the_graph_have_the_servers_words(self, folder):
        models = Models({"model": folder})
        models.poll()
        with pytest.raises(Refusal, match=r"^assertion failed: \[not positive") as caught:
            models.find("model").signature("positive").run({"number": np.int32([0])}, seconds=60)
        assert caught.value.code == "INVALID_ARGUMENT"


ZOO = pathlib.Path(sys.executable).with_name("zoo")


class Process:
    """`zoo serve` in a process, from the line that says where it is."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [ZOO, "serve", "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.line = self.process.stdout.readline()
        self.address = self.line.split("http://")[1].split()[0]

    def post(self, body, model="tiny"):
        with contextlib.closing(http.client.HTTPConnection(self.address, timeout=120)) as connection:
            connection.request("POST", f"/v1/models/{model}:predict", json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60), self.process.stdout.read(), self.process.stderr.read()


@pytest.fixture(scope="module")
def half_a_second(saved):
    """So many steps of the signature `count` take 0.5 to 1 s."""
    count = tf.saved_model.load(saved / "2").signatures["count"]

    def seconds(steps):
        begin = time.monotonic()
        count(steps=tf.constant([steps]))
        return time.monotonic() - begin

    steps = 1000
    while any(seconds(steps) < 0.5 for _ in range(3)):  # other programs may slow one down, but hardly all
        steps *= 2
    return steps


@pytest.fixture
def process():
    started = []

    def process(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield process
    for each in started:
        each.process.kill()
        each.process.communicate()


def test_of_two_servers_that_start_at_once_the_later_one_names_the_port(monkeypatch, saved):
    """Both can bind the port, before one of them listens."""
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        port, start = first.getsockname()[1], Models.start
        monkeypatch.setattr(Models, "start", lambda *given: (first.listen(), start(*given)))
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        told = rf"^127\.0\.0\.1:{port} cannot be opened: Address already in use; see --host and --port$"
        with pytest.raises(OSError, match=told):
            serve({"three": saved / "three"}, {}, bind("127.0.0.1", port), Settings(), print)


def test_a_second_signal_ends_a_server_that_is_stopping(monkeypatch, saved):
    """After the last answer, also where Ctrl-C was ignored before, as in a process that a script started with `&`."""
    numbers, at_stop = (signal.SIGINT, signal.SIGTERM), []
    before = [signal.signal(each, signal.SIG_IGN) for each in numbers]
    try:
        monkeypatch.setattr(running_module._Server, "run", lambda *_, **__: None)
        monkeypatch.setattr(Models, "stop", lambda _: at_stop.extend(map(signal.getsignal, numbers)))
        serve({"three": saved / "three"}, {}, bind("127.0.0.1", 0), Settings(), print)
        assert at_stop == [signal.default_int_handler, signal.SIG_DFL]
        assert [*map(signal.getsignal, numbers)] == [signal.SIG_IGN] * 2
    finally:
        for each, handler in zip(numbers, before, strict=True):
            signal.signal(each, handler)


@pytest.mark.long
class TestProcess:
    def test_it_says_where_it_is_follows_new_versions_and_stops(self, process, saved, tmp_path):
        shutil.copytree(saved / "2", tmp_path / "tiny" / "2")
        named = f"three={saved / 'three'}", "--label", "tiny:new=5"  # a version that is not there yet
        served = process(tmp_path / "tiny", *named, "--poll", "0.1")
        assert served.line == f"zoo serve: http://{served.address} serves tiny 2, three 1\n"
        assert [served.process.stdout.readline() for _ in range(2)] == [
            "zoo serve: open it in a browser to see the attention\n",
            "zoo serve: this is for laptops, demos and tests; in production use TensorFlow Serving\n",
        ]
        host, port = served.address.split(":")
        assert host == "127.0.0.1"
        assert served.post({"inputs": [[1, 1, 1]]}, "tiny/labels/new")[0] == 404
        assert served.post({"instances": [1.0, 2.0, 5.0]}, "three") == (200, {"predictions": [3.5, 4.0, 5.5]})
        with concurrent.futures.ThreadPoolExecutor(4) as clients:
            shutil.copytree(saved / "5", tmp_path / "aside")
            (tmp_path / "aside").rename(tmp_path / "tiny" / "5")
            end, factors = time.monotonic() + 120, set()
            while 5 not in factors and time.monotonic() < end:  # nobody waits or fails meanwhile
                for status, found in clients.map(served.post, [{"inputs": [[1, 1, 1]]}] * 8):
                    assert status == 200
                    factors.add(found["outputs"]["scaled"][0][0])
            assert factors == {2, 5}
        assert served.post({"inputs": [[1, 1, 1]]}, "tiny/labels/new")[0] == 200
        code, _, log = served.stop()
        assert code == 0
        assert log.startswith("zoo serve: tiny: loading version 2 ...\nzoo serve: tiny: version 2 is loaded")
        assert "zoo serve: tiny: loading version 5 ...\nzoo serve: tiny: version 5 is loaded" in log
        assert "zoo serve: tiny: version 2 is unloaded" in log
        assert [line for line in log.splitlines() if "label" in line] == [
            "zoo serve: tiny: the label new means version 5, which is not loaded; requests for it fail until it is. "
            "Loaded: 2"
        ]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))

    def test_a_signal_lets_running_requests_finish(self, process, saved, half_a_second):
        served = process(f"tiny={saved / '2'}", "--timeout", "100")
        steps = 4 * half_a_second
        with concurrent.futures.ThreadPoolExecutor(1) as clients:
            answer = clients.submit(served.post, {"signature_name": "count", "inputs": [steps]})
            time.sleep(0.5)
            assert not answer.done()
            code, _, log = served.stop()
            assert answer.result(60) == (200, {"outputs": [steps]})
        assert code == 0
        assert log.splitlines()[-2:] == [
            "zoo serve: stopping: waits up to 100 s for 1 open request; a second signal ends the wait",
            "zoo serve: stopped",
        ]

    def test_a_stream_that_outlives_the_stop_ends_with_an_error(self, process, saved, half_a_second):
        served = process(f"tiny={saved / '2'}", "--timeout", "2")
        with contextlib.closing(http.client.HTTPConnection(served.address, timeout=120)) as connection:
            body = json.dumps({"text": "a", "top_k": half_a_second})  # for each of six pieces
            connection.request("POST", "/v1/models/tiny:generateStream", body)
            response = connection.getresponse()
            events = [response.readline()]
            code, _, log = served.stop()
            events += response.read().splitlines()
        assert events[0].startswith(b'data: {"text"')
        assert events[-2:] == [b'data: {"error": "The server is stopping"}', b""]
        assert code == 0
        assert "Traceback" not in log and "Cancel" not in log

    def test_a_second_signal_ends_the_requests_with_an_error(self, process, saved, half_a_second):
        served = process(f"tiny={saved / '2'}")
        steps = 5 * half_a_second
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            answer = client.submit(served.post, {"signature_name": "count", "inputs": [steps]})
            time.sleep(0.5)
            served.process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            assert not answer.done()
            code, _, log = served.stop()
            assert answer.result() == (503, {"error": "The server is stopping"})
        assert code == 0
        assert "Traceback" not in log

    @pytest.mark.parametrize("pause", [1, 0.005], ids=["when all clients are gone", "while they leave"])
    def test_a_third_ctrl_c_does_not_wait_for_what_is_computed(self, process, saved, pause):
        served = process(f"tiny={saved / '2'}")
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            answer = client.submit(served.post, {"signature_name": "count", "inputs": [10**9]})  # for an hour
            for wait in (1, 1, pause):
                time.sleep(wait)
                served.process.send_signal(signal.SIGINT)
            _, log = served.process.communicate(timeout=60)
            assert answer.result() == (503, {"error": "The server is stopping"})
        assert served.process.returncode == 130
        assert "Traceback" not in log

    def test_clients_that_do_not_read_do_not_hold_up_a_stop(self, process, saved):
        served = process(f"tiny={saved / '2'}")
        host, port = served.address.split(":")
        body = json.dumps({"signature_name": "echo", "inputs": ["x" * 7_000_000]}).encode()
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(
                b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            connection.sendall(body)
            assert connection.recv(8) == b"HTTP/1.1"
            time.sleep(1)  # the rest of 16 MB is more than the system holds for a connection
            served.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            begin = time.monotonic()
            code, _, log = served.stop()
            assert time.monotonic() - begin < 30  # not a minute
        assert code == 0
        assert log.splitlines()[-2:] == [
            "zoo serve: stopping: waits up to 60 s for 1 open request (answers that clients have not read: 1); a "
            "second signal ends the wait",
            "zoo serve: stopped",
        ]


@pytest.mark.long
class TestConnections:
    """What a client sends that the next one does not notice."""

    @pytest.fixture(scope="class")
    def served(self, saved):
        served = Process(saved, "--timeout", "2", "--max-body", "0.01")
        try:
            yield served
            assert served.stop()[0] == 0
        finally:
            served.process.kill()

    def test_a_head_that_does_not_end_is_not_waited_for(self, served):
        host, port = served.address.split(":")
        whole = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
        for answered in (False, True):
            with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=60)) as connection:
                connection.connect()
                if answered:
                    connection.request("GET", "/healthz")
                    assert connection.getresponse().read()
                connection.sock.sendall(whole[:-2])
                assert connection.sock.recv(1) == b""  # the end of the connection

    def test_two_lengths_end_a_connection(self, served):
        host, port = served.address.split(":")
        head = b"GET http://a/healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            for second, status in ((b"", 200), (b"Content-Length: 5\r\n", 400)):
                connection.sendall(head + second + b"\r\n0\r\n\r\n")
                response = http.client.HTTPResponse(connection)
                response.begin()
                assert (response.status, bool(response.read())) == (status, True)
            assert connection.recv(1) == b""  # the end of the connection

    def test_garbage_and_quitters_do_not_disturb_the_others(self, served):
        host, port = served.address.split(":")
        body = b"POST /v1/models/tiny_models:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n{"
        for garbage in (b"\x00\xff" * 500, body, b"GET", body[:20]):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(garbage)
        assert served.post({"inputs": [[1, 1, 1]]}, "tiny_models")[0] == 200
        assert served.post({"inputs": [[1, 1, 1]] * 2000}, "tiny_models")[0] == 413


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist; `zoo list` shows the exported models"),
        (["tiny/1/saved_model.pb"], "tiny/1/saved_model.pb is a file; give the folder of a model"),
        (["empty"], "empty holds no SavedModel: neither saved_model.pb nor a version such as 1/"),
        (["a="], "NAME=FOLDER needs a folder. Received: 'a='"),
        (["a=tiny", "a=tiny"], "two models are called 'a'; give one another name, by NAME=FOLDER. Received: a=tiny"),
        (
            ["a:b=tiny"],
            "a model's name must not be empty and have no '/' or ':'; give one by NAME=FOLDER. Received: 'a:b'",
        ),
        (
            ["tiny", "--label", "stable"],
            "--label takes MODEL:LABEL=VERSION, such as dates:stable=1. Received: 'stable'",
        ),
        (
            ["tiny", "--label", f"tiny:stable={2**63}"],
            f"--label takes MODEL:LABEL=VERSION, such as dates:stable=1. Received: 'tiny:stable={2**63}'",
        ),
        (
            ["tiny", "--label", "tiny:stable=1", "--label", "tiny:stable=2"],
            "--label gives tiny:stable two versions, 1 and 2",
        ),
        *(
            (
                ["tiny", "--cors", origin],
                f"--cors takes an origin, such as https://example.org, or *. Received: {origin!r}",
            )
            for origin in ("example.org", "https://example.org/", "https://example.org/page")
        ),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    from zoo_training.cli import app

    (tmp_path / "empty").mkdir()
    (tmp_path / "tiny" / "1").mkdir(parents=True)
    (tmp_path / "tiny" / "1" / "saved_model.pb").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        app(["serve", *arguments])
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"zoo: {words}\n"


def test_a_port_in_use_is_said_before_tensorflow_starts(tmp_path, monkeypatch, capsys):
    from zoo_training.cli import app, serve

    monkeypatch.setattr(serve, "import_tensorflow", None)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SystemExit) as caught:
            app(["serve", str(tmp_path), "--port", str(port)])
    assert caught.value.code == 2
    assert (
        capsys.readouterr().err
        == f"zoo: 127.0.0.1:{port} cannot be opened: Address already in use; see --host and --port\n"
    )


def test_the_extra_is_named_before_anything_is_loaded(monkeypatch, capsys):
    from zoo_training.cli import app

    monkeypatch.delitem(sys.modules, "zoo.serving.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit) as caught:
        app(["serve", "nowhere"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "zoo: uvicorn is not installed: this needs `pip install 'attention-zoo[serve]'`\n"


def test_a_model_without_a_version_that_loads_is_said_in_one_line(tmp_path, capsys):
    from zoo_training.cli import app

    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no SavedModel")
    with pytest.raises(SystemExit) as caught:
        app(["serve", str(tmp_path), "--port", "0"])
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"zoo: {tmp_path.name}: version 1: ")
