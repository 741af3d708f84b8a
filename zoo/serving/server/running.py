"""A server from its start to its end: loads the models, opens the port, answers, and stops on a signal."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pathlib
import signal
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from zoo.serving.server.app import Metrics, build_app
from zoo.serving.server.batching import Batcher
from zoo.serving.server.models import Models
from zoo.serving.server.port import about_port

_LOG = logging.getLogger(__name__)
_LAST_WORDS = 1  # seconds that clients have to read the error with which a stopping server ends their requests
_CONNECTIONS = 1000  # the most at once
_BACKLOG = 128  # the most connections that are taken before the next look at how many there are
_FULL = b"""\
HTTP/1.1 503 Service Unavailable\r
Connection: close\r
Content-Type: application/json\r
Content-Length: 61\r
Retry-After: 1\r
\r
{"error": "The server has too many connections; retry later"}"""
_OTHERS = {  # what a client of another protocol sends first
    b"PRI * HTTP/2": "HTTP/2, as gRPC does",
    b"\x16\x03": "TLS, as to an https:// address",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a server works.

    Attributes:
        cors: the origins whose pages may read answers; "*" for all.
        threads: how many requests, or batches of them, run at once.
        operation_threads: how many threads an operation may use.
        max_batch_rows: the most rows of a batch, and of a request.
        batch_wait: how many seconds a request waits for others to share its batch although a thread is free.
        max_body: the most bytes of a request's body; of all bodies in memory, eight times as many, or 16 MiB.
        timeout: how many seconds a request may take, and how many a client may leave a piece of its answer unread.
        poll: every how many seconds the models' folders are looked into.
    """

    cors: Sequence[str] = ()
    threads: int = 2
    operation_threads: int = 1
    max_batch_rows: int = 32
    batch_wait: float = 0.0
    max_body: int = 16 << 20
    timeout: float = 60.0
    poll: float = 2.0


def serve(
    paths: dict[str, pathlib.Path],
    labels: dict[str, dict[str, int]],
    listener: socket.socket,
    settings: Settings,
    announce: Callable[[str, dict[str, list[int]]], None],
) -> None:
    """Serves models until the process gets SIGINT or SIGTERM; then it finishes the requests that it has.

    A stream that still runs `timeout` seconds after the signal ends with an error, and connections whose clients do not
    read their answers are closed. After a second signal, this happens at once to all requests.

    A label may name a version that is not there yet. The log says so, and the label works as soon as it is loaded.

    Args:
        paths: a folder for each name.
        labels: for a name, versions by their labels.
        listener: a socket that has the port and does not listen yet, see `bind`; it is closed at the end.
        settings: how.
        announce: called with the URL and the versions of each model as soon as requests are answered.

    Raises:
        OSError: another server listens on the port by now.
        ValueError: a model has no version that can be loaded, or there is no such model for a label.
    """
    with listener:
        for name, versions in labels.items():
            if name not in paths:
                raise ValueError(
                    f"there is no model {name!r} for the label {', '.join(versions)}; the models are {', '.join(paths)}"
                )
        models = Models(paths, labels, settings.threads, settings.operation_threads)
        models.poll()
        for name, loaded in models.loaded().items():
            if not loaded:
                states = models.status(name)["model_version_status"]
                reason = states[0]["status"]["error_message"].partition("\n")[0]
                raise ValueError(f"{name}: version {states[0]['version']}: {reason}")
        _warn_of_labels(labels, models.loaded())
        metrics = Metrics()
        batcher = Batcher(settings.threads, settings.max_batch_rows, settings.batch_wait, metrics.on_batch)
        stopping = asyncio.Event()
        app = build_app(models, batcher, metrics, settings.max_body, settings.timeout, settings.cors, stopping)
        most = _most_connections()
        config = uvicorn.Config(
            app,
            http=_protocol(settings.timeout, most),
            backlog=min(_BACKLOG, most // 2),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=round(settings.timeout) + 2 * _LAST_WORDS,
        )
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        server = _Server(config, lambda: announce(url, models.loaded()), stopping, settings.timeout)
        # uvicorn stops on these signals, and then sends them again to the handlers from before: a stop is no failure.
        before = {each: signal.signal(each, server.handle_late) for each in (signal.SIGINT, signal.SIGTERM)}
        models.start(settings.poll)
        try:
            with about_port(host, port):  # two servers can bind one port, but only one can listen
                listener.listen(config.backlog)
            server.run(sockets=[listener])
        finally:
            # A third signal need not wait for a version that is being loaded, or for what is computed. A script's `&`
            # starts a process that ignores Ctrl-C; uvicorn heard it all the same, so it counts here, too.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if server.force_exit:  # a third signal, which came before uvicorn was done
                raise KeyboardInterrupt
            models.stop()
            batcher.close()
            for each, handler in before.items():
                signal.signal(each, handler or signal.SIG_DFL)
            _LOG.info("stopped")


def _warn_of_labels(labels: dict[str, dict[str, int]], loaded: dict[str, list[int]]) -> None:
    """Says which labels have no version: a number may be mistyped, which only failing requests would show."""
    for name, versions in labels.items():
        for label, number in versions.items():
            if number not in loaded[name]:
                there = ", ".join(map(str, loaded[name]))
                _LOG.warning(
                    f"{name}: the label {label} means version {number}, which is not loaded; requests for it fail "
                    f"until it is. Loaded: {there}"
                )


def _most_connections() -> int:
    """How many connections there may be: half as many as files, since models need some, too.

    Without files left, no connection could be taken, and asyncio would write thousands of errors a second.
    """
    files = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1
    return _CONNECTIONS if files < 0 else min(_CONNECTIONS, files // 2)


def _protocol(timeout: float, most: int) -> type[H11Protocol]:
    """Connections that end if the head of a request is not complete, or a piece of an answer not read, in time.

    uvicorn would wait for ever. More than `most` are refused; uvicorn's own limit would refuse only their requests, and
    keep them open. The log names the protocol of a client that speaks another one.

    Uses what uvicorn does not document: `cycle`, the last request whose head is complete, or None;
    `timeout_keep_alive_task`, the timer that closes the connection, from an answer to the next byte; `flow`, whether
    the client reads; the warning; and `send_400_response`, the answer to broken bytes.
    """
    is_full = False

    class Protocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            transport.set_write_buffer_limits(0)  # so writing is paused while there is anything that is not taken
            self._unread: asyncio.TimerHandle | None = None
            self._timer = self.loop.call_later(timeout, self._check, (True, None))
            nonlocal is_full
            if len(self.connections) > most:
                if not is_full:
                    _LOG.warning("%d connections are open, the most that there may be; others are refused", most)
                is_full = True
                transport.write(_FULL)
                transport.close()

        def data_received(self, data: bytes) -> None:
            if self.cycle is None:
                for begins, said in _OTHERS.items():
                    if data.startswith(begins):  # uvicorn's log only says that it is no HTTP request
                        _LOG.warning("a client speaks %s; this server speaks HTTP/1.1 without TLS", said)
            super().data_received(data)

        def send_400_response(self, msg: str) -> None:
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:  # the broken bytes are the rest of a request that was refused before its end
                self.transport.close()

        def _unsupported_upgrade_warning(self) -> None:
            """Says nothing: uvicorn would tell to install WebSockets whenever a client also offers HTTP/2."""

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            self._is_read()
            super().connection_lost(exc)
            nonlocal is_full
            is_full = is_full and len(self.connections) >= most

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.loop.call_later(timeout, self._give_up)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._is_read()

        @property
        def computes(self) -> bool:
            """Whether there is a request without its whole answer, although the client reads."""
            return self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused

        def _is_read(self) -> None:
            if self._unread is not None:
                self._unread.cancel()

        def _give_up(self) -> None:
            _LOG.warning("a client has not read its answer for %g s; its connection is closed", timeout)
            self.transport.abort()  # `close` would wait for the client, too

        def _check(self, before: tuple[bool, Any]) -> None:
            """Closes the connection if it waits for the same head as at the last check, `timeout` seconds ago."""
            waits = self.cycle is None or (self.cycle.response_complete and self.timeout_keep_alive_task is None)
            if waits and before == (True, self.cycle):
                self.transport.close()
            else:
                self._timer = self.loop.call_later(timeout, self._check, (waits, self.cycle))

    return Protocol


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None], stopping: asyncio.Event, timeout: float):
        super().__init__(config)
        self._announce, self._stopping, self._timeout = announce, stopping, timeout
        self._signals = self._late = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """At a second signal, every request ends with an error; at a third, uvicorn breaks off the connections."""
        self._signals += 1
        if self._signals == 1:
            super().handle_exit(sig, frame)
        elif self._signals == 2:
            self._loop.call_soon_threadsafe(self._end_requests)
        else:
            self.force_exit = True

    def handle_late(self, sig: int, frame: FrameType | None) -> None:
        """When uvicorn is done: it sends the first signal again, and a third one counts here, too."""
        if self.should_exit:
            self._late += 1
            self.force_exit = self._signals + self._late > 3

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        connections: Any = self.server_state.connections
        unread = sum(each.flow.write_paused for each in connections)
        if number := unread + sum(each.computes for each in connections):
            waits = f"{number} open request{'s' * (number > 1)}"
            waits += f" (answers that clients have not read: {unread})" if unread else ""
            _LOG.info(f"stopping: waits up to {self._timeout:g} s for {waits}; a second signal ends the wait")
        # Streams, and clients that do not read, may still be there by then.
        self._loop.call_later(self._timeout, self._end_requests)
        await super().shutdown(sockets)

    def _end_requests(self) -> None:
        self._stopping.set()
        self._loop.call_later(_LAST_WORDS, self._break_off)

    def _break_off(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]
