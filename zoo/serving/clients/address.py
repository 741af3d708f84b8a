"""Where a server is."""

from __future__ import annotations

import dataclasses
import urllib.parse


@dataclasses.dataclass(frozen=True)
class Address:
    """The parts of an address.

    Attributes:
        host: a name or number, an IPv6 one without brackets.
        port: the port.
        secure: whether to speak TLS.
        path: what a proxy puts before the paths of the server, without a slash at the end; usually "".
    """

    host: str
    port: int
    secure: bool
    path: str

    @classmethod
    def parse(cls, address: str, default_port: int) -> Address:
        """Reads `host`, `host:port`, or a URL.

        Raises:
            ValueError: it is none of them.
        """
        try:
            parts = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError
            default_port = 443 if parts.scheme == "https" else default_port
            return cls(parts.hostname, parts.port or default_port, parts.scheme == "https", parts.path.rstrip("/"))
        except ValueError:
            raise ValueError(
                f"`address` must be host, host:port or http(s)://host:port/path. Received: {address!r}"
            ) from None
