"""The port of a server, taken before TensorFlow starts and models are loaded: both take seconds."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the port, but does not listen yet: until then connections are refused.

    Raises:
        OSError: the port is in use or not allowed, or the host is not known.
    """
    with about_port(host, port):
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
        return listener


@contextlib.contextmanager
def about_port(host: str, port: int) -> Iterator[None]:
    """Names host and port in an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{host}:{port} cannot be opened: {error.strerror}; see --host and --port") from None
