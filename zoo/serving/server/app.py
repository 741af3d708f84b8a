"""TensorFlow Serving's REST interface as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
import urllib.parse
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import numpy as np
import prometheus_client
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zoo.pictures.drawing import PAGE
from zoo.serving.layout import LARGEST_VERSION
from zoo.serving.server import rest_json
from zoo.serving.server.batching import Batcher
from zoo.serving.server.models import Models, Served
from zoo.serving.server.rest_json import HTTP_STATUS, Refusal, invalid
from zoo.tasks.protocol import GrowingText
from zoo.tasks.settings import SETTINGS, STOP_SEPARATOR, check_settings

_LOG = logging.getLogger(__name__)
# Both patterns as in http_rest_api_util.cc: case matters only in the method, names may be percent-encoded.
_WHICH = r"(?i:/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?)"
_POST = re.compile(rf"{_WHICH}:(?P<method>classify|regress|predict|generateStream)", re.ASCII)
_GET = re.compile(rf"{_WHICH}(?P<method>/metadata)?", re.ASCII)
_ORIGIN = re.compile(rb"https?://[^/]*", re.IGNORECASE)  # of a request line in absolute form
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]  # all get an answer in JSON
_TOO_LARGE = "PAYLOAD_TOO_LARGE"  # the server has no such limit
_STATUS = HTTP_STATUS | {_TOO_LARGE: 413}
_LARGEST_AT_ONCE = 8  # bodies of the largest size that are in memory at once
_LEAST_AT_ONCE = 16 << 20  # bytes of bodies that may always be there: many small ones, where the largest is small
_PIECE = 1 << 16  # bytes of an answer that are sent at once


class Metrics:
    """What `/metrics` shows, in a registry of its own."""

    def __init__(self):
        self.registry = prometheus_client.CollectorRegistry()
        requests = ("zoo_serve_requests", "Requests by model, method and HTTP status", ("model", "method", "status"))
        self.requests = prometheus_client.Counter(*requests, registry=self.registry)
        seconds = ("zoo_serve_request_seconds", "Time from a request's head to its answer's end", ("model", "method"))
        bounds = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120)
        self.seconds = prometheus_client.Histogram(*seconds, registry=self.registry, buckets=bounds)
        waited = ("zoo_serve_queue_seconds", "Time that the first request of a batch waited for a thread")
        self.waited = prometheus_client.Histogram(*waited, registry=self.registry)
        rows = ("zoo_serve_batch_rows", "Rows of a batch; 0 for what cannot be joined with others")
        self.rows = prometheus_client.Histogram(*rows, registry=self.registry, buckets=(0, *(2**n for n in range(11))))
        available = ("zoo_serve_version_available", "1 for each version that answers", ("model", "version"))
        self.available = prometheus_client.Gauge(*available, registry=self.registry)

    def on_batch(self, rows: int, waited: float) -> None:
        """Counts a batch."""
        self.rows.observe(rows)
        self.waited.observe(waited)

    def page(self, loaded: dict[str, list[int]]) -> bytes:
        """The text that Prometheus reads."""
        self.available.clear()
        for name, numbers in loaded.items():
            for number in numbers:
                self.available.labels(name, number).set(1)
        return prometheus_client.generate_latest(self.registry)


def build_app(
    models: Models,
    batcher: Batcher,
    metrics: Metrics,
    max_body: int = 16 << 20,
    timeout: float = 60.0,
    cors: Sequence[str] = (),
    stopping: asyncio.Event | None = None,
) -> Starlette:
    """The application.

    Args:
        models: what is served.
        batcher: what runs it.
        metrics: what is counted.
        max_body: the most bytes of a request's body; of all bodies in memory, eight times as many, or 16 MiB.
        timeout: how many seconds a request may take, from its head on; of a stream, each event.
        cors: the origins whose pages may read answers; "*" for all.
        stopping: when it is set, all requests end with an error that says so; None for never.
    """
    api = _Api(models, batcher, metrics, max_body, timeout, stopping or asyncio.Event())

    async def health(_: Request) -> Response:
        ready = all(models.loaded().values())
        return Response("ok\n" if ready else "no version answers\n", 200 if ready else 503, media_type="text/plain")

    async def figures(_: Request) -> Response:
        return Response(metrics.page(models.loaded()), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def explorer(_: Request) -> Response:
        return Response(PAGE.read_bytes(), media_type="text/html", headers={"Cache-Control": "no-cache"})

    async def names(_: Request) -> Response:
        return _json(list(models.loaded()))

    async def elsewhere(request: Request, _: Exception) -> Response:
        return _error(Refusal("NOT_FOUND", f"Not found: {request.url.path}"))

    async def malformed(request: Request, _: Exception) -> Response:
        return _error(invalid(f"Malformed request: {request.method} {request.url.path}"))

    routes = [
        *(Route(f"/{v}1/{{path:path}}", api, methods=_METHODS) for v in "vV"),  # case does not matter
        Route("/", explorer),
        Route("/models.json", names),  # TensorFlow Serving has no list of its models
        Route("/healthz", health),
        Route("/metrics", figures),
    ]
    middleware = [Middleware(_as_http_wants)]
    if cors:
        methods, headers = ["GET", "POST"], ["Content-Type"]
        middleware.append(
            Middleware(CORSMiddleware, allow_origins=list(cors), allow_methods=methods, allow_headers=headers)
        )
    return Starlette(routes=routes, middleware=middleware, exception_handlers={404: elsewhere, 405: malformed})


def _as_http_wants(app: ASGIApp) -> ASGIApp:
    """The application with what RFC 9112 asks of a server and uvicorn does not do.

    An answer is sent in pieces, each when the client has taken the one before: a client that does not read an answer
    keeps its request open, and the answer is in memory once.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # such as "lifespan"
            return await app(scope, receive, send)

        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            last = max(len(body) - 1, 0) // _PIECE * _PIECE
            for begin in range(0, last, _PIECE):
                await send({**message, "body": body[begin : begin + _PIECE], "more_body": True})
            await send({**message, "body": body[last:]} if last else message)

        if {b"transfer-encoding", b"content-length"} <= {name for name, _ in scope["headers"]}:
            # Section 6.3: a proxy in between may see another end of the request, and so another next one.
            response = _error(invalid("A request must not have both Transfer-Encoding and Content-Length"))
            response.headers["Connection"] = "close"
            return await response(scope, receive, send)
        if origin := _ORIGIN.match(scope["raw_path"]):  # section 3.2.2
            path = scope["raw_path"][origin.end() :] or b"/"
            scope = {**scope, "raw_path": path, "path": urllib.parse.unquote(path.decode("latin-1"))}
        await app(scope, receive, send_pieces)

    return answer


class _Memory:
    """The bytes of bodies that all requests hold at once."""

    def __init__(self, most: int):
        self.most, self.taken = most, 0

    @contextlib.contextmanager
    def of_request(self) -> Iterator[Callable[[int], None]]:
        """A function that takes so many more bytes, or raises a `Refusal`; at the block's end they are given back."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self.taken + size > self.most:
                raise Refusal("UNAVAILABLE", f"The bodies of all requests have {self.most} bytes at most; ask again")
            self.taken += size
            mine += size

        try:
            yield take
        finally:
            self.taken -= mine


class _Api:
    """The requests below `/v1/`, an ASGI application.

    What belongs to one request is local to `_answer_any` and what it calls.
    """

    def __init__(
        self,
        models: Models,
        batcher: Batcher,
        metrics: Metrics,
        max_body: int,
        timeout: float,
        stopping: asyncio.Event,
    ):
        self.models, self.batcher, self.metrics = models, batcher, metrics
        self.max_body, self.timeout, self.stopping = max_body, timeout, stopping
        self.memory = _Memory(max(_LARGEST_AT_ONCE * max_body, _LEAST_AT_ONCE))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, which is in memory until the client has its answer."""
        with self.memory.of_request() as take:
            response = await self._answer_any(Request(scope, receive), take)
            await response(scope, receive, send)

    async def _answer_any(self, request: Request, take: Callable[[int], None]) -> Response:
        """The answer to any request; what fails becomes an error in JSON."""
        begin = time.monotonic()
        path = request.scope["raw_path"].decode("latin-1")
        if query := request.scope["query_string"].decode("latin-1"):
            path += f"?{query}"  # to the server, it is a part of the path
        found = {"POST": _POST, "GET": _GET}.get(request.method, _GET).fullmatch(path)
        name = urllib.parse.unquote(found["model"]) if found else ""
        # A name that somebody made up is no label: each would be kept for ever.
        labels = name if name in self.models else "", (found["method"] or "status").strip("/") if found else ""

        def count(status: int) -> None:
            self.metrics.requests.labels(*labels, status).inc()
            self.metrics.seconds.labels(*labels).observe(time.monotonic() - begin)

        try:
            async with _in_time(self.timeout):
                response = await self._answer(request, take, path, found, name, begin + self.timeout, count)
        except ClientDisconnect:
            response = _error(Refusal("CANCELLED", "The client has left"))
        except Exception as error:
            response = _error(_refusal(error))
        if not isinstance(response, StreamingResponse):  # which counts when it has ended
            count(response.status_code)
        return response

    async def _answer(
        self,
        request: Request,
        take: Callable[[int], None],
        path: str,
        found: re.Match | None,
        name: str,
        deadline: float,
        count: Callable[[int], None],
    ) -> Response:
        if found is None or request.method not in ("GET", "POST"):
            if request.method == "GET" and path.lower() == "/v1/models":
                raise invalid("Missing model name in request.")
            raise invalid(f"Malformed request: {request.method} {path}")
        digits, version = found["version"], None
        if digits is not None:
            version = int(digits.lstrip("0")[:20] or 0)  # 20 digits are too large already; Python reads at most 4,300
            if version > LARGEST_VERSION:
                raise invalid(f"Failed to convert version: {digits} to numeric.")
        label = found["label"] and urllib.parse.unquote(found["label"])
        if request.method == "GET":
            if found["method"]:
                return _json(self.models.find(name, version, label).metadata)
            return _json(self.models.status(name, version))  # as in the server, a label changes nothing
        body = await _unless(self.stopping, asyncio.ensure_future(self._body(request, take)))
        if found["method"] == "generateStream":
            events = self._generate(body, name, version, label)
            first = await anext(events)  # an error before the first event has its HTTP status
            return StreamingResponse(_stream(first, events, count), media_type="text/event-stream")
        if found["method"] != "predict":
            await run_in_threadpool(self._refuse, found["method"], body, name, version, label)
        served, inputs, in_rows = await run_in_threadpool(self._read, body, name, version, label)
        running = asyncio.wrap_future(self.batcher.submit(served, inputs, deadline))
        outputs = await _unless(self.stopping, running, request.receive)
        written = await run_in_threadpool(rest_json.answer, outputs, in_rows)
        return Response(written, media_type="application/json")

    async def _body(self, request: Request, take: Callable[[int], None]) -> bytes:
        too_large = Refusal(_TOO_LARGE, f"The body has more than {self.max_body} bytes")
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > self.max_body:
            raise too_large
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.max_body:
                raise too_large
            take(len(piece))
        if "gzip" not in request.headers.get("content-encoding", ""):
            return bytes(body)
        unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            unpacked = unpacker.decompress(bytes(body), self.max_body + 1)
        except zlib.error as error:
            raise invalid(f"The body is not gzip: {error}") from None
        if len(unpacked) > self.max_body:
            raise too_large
        if not unpacker.eof:
            raise invalid("The body is not gzip: its end is missing")
        take(len(unpacked))
        return unpacked

    def _read(
        self, body: bytes, name: str, version: int | None, label: str | None
    ) -> tuple[Served, dict[str, Any], bool]:
        """The signature and the inputs of a request; errors in the order of the server's."""
        request = rest_json.parse(body)
        asked = rest_json.signature_name(request)
        served = self.models.find(name, version, label).signature(asked)
        if not served.inputs:
            raise invalid(f"Failed to get input map for signature: {asked}")
        return served, *rest_json.tensors(request, served.inputs)

    def _read_generate(
        self, body: bytes, name: str, version: int | None, label: str | None
    ) -> tuple[Served, dict[str, Any], GrowingText]:
        """The signature, the inputs and the text of a request for a text that grows."""
        request = rest_json.parse(body)
        served = self.models.find(name, version, label).signatures.get("generate")
        if served is None or served.inputs.keys() != {"text", "stop", *SETTINGS} or "tokens" not in served.outputs:
            raise invalid(f"The model {name} does not continue texts")
        names = ("text", *SETTINGS, "stop")
        for key in request.keys() - set(names):
            raise invalid(f"there is no setting {key!r}; there are {', '.join(names)}")
        text = request.pop("text", "")
        if not isinstance(text, str):
            raise invalid(f"`text` must be one string. Received: {text!r}")
        try:
            columns, stop = check_settings(1, **request)
        except ValueError as error:
            raise invalid(str(error)) from None
        inputs = {key: values.astype(SETTINGS[key].dtype) for key, values in columns.items()}
        inputs |= {"text": _strings(text.encode("utf-8", "replace")), "stop": _strings(STOP_SEPARATOR.join(stop))}
        return served, inputs, GrowingText(int(inputs["max_new_tokens"][0]), stop)

    async def _generate(
        self, body: bytes, name: str, version: int | None, label: str | None
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a text that grows; only here, not in TensorFlow Serving."""
        served, inputs, growing = await run_in_threadpool(self._read_generate, body, name, version, label)
        tokens, log_probability = 0, 0.0
        while not growing.done:
            inputs["max_new_tokens"] = np.array([growing.size], np.int32)
            running = self.batcher.submit(served, dict(inputs), time.monotonic() + self.timeout)
            found = await _unless(self.stopping, asyncio.wrap_future(running))
            tokens, log_probability = int(found["tokens"][0]), float(found["log_probability"][0])
            try:
                piece = growing.add(found["text"][0].decode("utf-8", "replace"), tokens)
            except ValueError as error:  # not by another version: `served` stays the one that it began with
                raise Refusal("ABORTED", str(error)) from None
            if piece:
                yield {"text": piece}
        yield {"done": True, "tokens": tokens, "log_probability": log_probability}

    def _refuse(self, method: str, body: bytes, name: str, version: int | None, label: str | None) -> None:
        """`classify` and `regress`, which signatures of TensorFlow 2 do not have; see classifier.cc, regressor.cc."""
        request = rest_json.parse(body)
        asked = rest_json.signature_name(request)
        if "examples" not in request:
            raise invalid("When method is classify, key 'examples' is expected and was not found")
        found = self.models.find(name, version, label)
        if asked not in found.signatures:
            raise invalid(f"No signature was found with the name: {asked}")
        wanted, kind = f"tensorflow/serving/{method}", "classification" if method == "classify" else "regression"
        if (was := found.signatures[asked].method) != wanted:
            raise invalid(f"Expected {kind} signature method_name to be {wanted}. Was: {was}")
        raise Refusal("UNIMPLEMENTED", f"zoo serve has no {method}; use predict, or TensorFlow Serving")


@contextlib.asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Refusal("DEADLINE_EXCEEDED", f"The request took longer than {seconds:g} s") from None


async def _unless(stopping: asyncio.Event, answer: asyncio.Future[Any], receive: Receive | None = None) -> Any:
    """The answer, if it comes before the server stops, and before the client leaves, of which `receive` tells."""
    stopped = asyncio.ensure_future(stopping.wait())
    ends = [stopped] if receive is None else [stopped, asyncio.ensure_future(_left(receive))]
    try:
        await asyncio.wait((answer, *ends), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise Refusal("UNAVAILABLE", "The server is stopping") if stopped.done() else ClientDisconnect
    finally:
        for each in (answer, *ends):
            each.cancel()  # the answer leaves the queue, if it is not computed yet


async def _left(receive: Receive) -> None:
    """Waits until the client leaves, which is all that a request has to say after its body."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(error: Exception) -> Refusal:
    """What a client is told of an error; one that nobody expected is logged, too."""
    if isinstance(error, Refusal):
        return error
    _LOG.error("a request failed", exc_info=error)
    return Refusal("INTERNAL", f"{type(error).__name__}: {error}")


async def _stream(
    first: dict[str, Any], others: AsyncIterator[dict[str, Any]], count: Callable[[int], None]
) -> AsyncIterator[bytes]:
    """Server-sent events. The status is sent already, so what fails is the last event, and only counted as failed."""
    status = _STATUS["CANCELLED"]  # unless it ends
    try:
        yield _event(first)
        async for event in others:
            yield _event(event)
        status = 200
    except Exception as error:
        refusal = _refusal(error)
        status = _STATUS.get(refusal.code, 500)
        yield _event({"error": refusal.message})
    finally:
        count(status)


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _strings(value: bytes) -> np.ndarray:
    return np.array([value], object)


def _json(content: Any) -> Response:
    return Response(json.dumps(content, indent=1), media_type="application/json")


def _error(refusal: Refusal) -> Response:
    text = json.dumps({"error": refusal.message}, ensure_ascii=False).encode("utf-8", "replace")
    status = _STATUS.get(refusal.code, 500)
    return Response(text, status, {"Retry-After": "1"} if status == 503 else None, media_type="application/json")
