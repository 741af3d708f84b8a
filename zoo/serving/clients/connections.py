"""HTTP within a time that holds."""

from __future__ import annotations

import contextlib
import http.client
import queue
import socket
import threading
from typing import Any


class Connections:
    """Connections to one server, kept open from one request to the next; may be used from several threads.

    Args:
        host: the server.
        port: its port.
        secure: whether to speak TLS.
    """

    def __init__(self, host: str, port: int, secure: bool):
        self._kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port = host, port
        self._idle: list[http.client.HTTPConnection] = []

    def ask(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        """Status and body of the answer to a request.

        The time-out of a socket is for each of its steps, of which an answer may have any number, and looking up a name
        has none. So the work is left to a thread, and given up when the time is over.

        Raises:
            TimeoutError: there was no whole answer in so many seconds.
            OSError: the server could not be reached, or was lost.
            http.client.HTTPException: what came was no HTTP.
        """
        connection, gave_up = self._take(seconds), threading.Event()
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def work():
            try:
                outcome.put((_exchange(connection, gave_up, method, path, body), None))
            except Exception as error:  # raised where somebody waits for it
                outcome.put((None, error))

        threading.Thread(target=work, daemon=True).start()
        try:
            answer, error = outcome.get(timeout=seconds)
        except queue.Empty:
            answer, error = None, TimeoutError()
        if error is not None:
            gave_up.set()
            _break_off(connection)
            raise error
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Closes those that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def _take(self, seconds: float) -> http.client.HTTPConnection:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._kind(self._host, self._port, timeout=seconds)
        connection.timeout = seconds  # should it be opened again
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        return connection


def _exchange(connection, gave_up, method, path, body) -> tuple[int, bytes]:
    """Sends a request and reads the answer; once more, where the server has closed what was kept open."""

    def once():
        if connection.sock is None:
            connection.connect()
        if gave_up.is_set():  # nobody waits any more
            raise TimeoutError
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()

    reused = connection.sock is not None
    try:
        return once()
    except ConnectionError:
        connection.close()
        if not reused:
            raise
        return once()


def _break_off(connection) -> None:
    """Ends a connection that a thread may still be reading from, which `close` alone would not wake."""
    if (sock := connection.sock) is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    connection.close()
