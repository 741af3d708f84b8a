"""The workers of a training as `TF_CONFIG` names them, and how they meet. It imports no TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

CONNECT_SECONDS = 5.0  # how long a worker may take to accept a connection
_MEET_SECONDS = 0.2  # between two looks, until all are there
_CONFIRMED, _LONGEST_LINE = b"confirmed\n", 100  # of what workers say when they meet
_JOBS = ("chief", "worker")  # in the order of their numbers


class ClusterError(ValueError):
    """Workers that cannot train together: a wrong `TF_CONFIG`, a port in use, or different models or data."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What `TF_CONFIG` says.

    Attributes:
        tasks: (job, number within the job, address) of each worker; the first is the chief.
        index: the place of this worker among them.
    """

    tasks: tuple[tuple[str, int, str], ...]
    index: int

    def name(self, index: int) -> str:
        """A worker in messages."""
        job, number, address = self.tasks[index]
        return f"{job} {number} ({address})"


def read_cluster(text: str | None) -> Cluster | None:
    """Reads the value of `TF_CONFIG`; None where it is not set, or names one worker only.

    Raises:
        ClusterError: it cannot be read, or describes no cluster of workers.
    """
    if not text or not text.strip():
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"TF_CONFIG is not valid JSON ({error}). Received: {text}") from None
    jobs = config.get("cluster") if isinstance(config, dict) else None
    task = config.get("task") if isinstance(config, dict) else None
    if not isinstance(jobs, dict) or not isinstance(task, dict):
        raise ClusterError(
            'TF_CONFIG must be like {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
            f". Received: {text}"
        )
    others = sorted(set(jobs) - set(_JOBS))
    if others:
        raise ClusterError(f"TF_CONFIG may only have the jobs chief and worker. Received: {', '.join(others)}")
    tasks = []
    for job in _JOBS:
        addresses = jobs.get(job, [])
        if not isinstance(addresses, list) or not all(_is_address(address) for address in addresses):
            raise ClusterError(f'TF_CONFIG: {job} must be a list of "host:port". Received: {addresses!r}')
        if job == "chief" and len(addresses) > 1:
            raise ClusterError(f"TF_CONFIG: there can be only one chief. Received: {addresses!r}")
        tasks += [(job, number, address) for number, address in enumerate(addresses)]
    addresses = [address for _, _, address in tasks]
    if len(set(addresses)) < len(addresses):
        raise ClusterError(f"TF_CONFIG names an address twice. Received: {', '.join(addresses)}")
    for key in ("type", "index"):
        if task.get(key) is None:
            raise ClusterError(f'TF_CONFIG: "task" has no "{key}". Received: {text}')
    kind, place = task["type"], task["index"]
    for index, (job, number, _) in enumerate(tasks):
        if job == kind and str(number) == str(place):  # some schedulers write the index as a string
            return Cluster(tuple(tasks), index) if len(tasks) > 1 else None
    sizes = " and ".join(f"{len(jobs[job])} of type {job}" for job in _JOBS if job in jobs) or "none"
    raise ClusterError(f"TF_CONFIG has no task {kind} {place}: its workers are {sizes}. Received: {text}")


def _is_address(value: Any) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and port.isdigit() and 0 < int(port) < 2**16


class Meeting:
    """Waits until all workers are there, and checks that all have the same list of workers.

    TensorFlow's start waits for them up to an hour, and holds Python's lock all the time, so no thread could end it. So
    before it each worker listens at its port itself, and connects to all others. Who connects says its line, gets the
    other one's, and confirms it. A line is a hash of the list of workers, and the worker's number. A worker leaves when
    it has the confirmed line of all others at their addresses, and all others have the confirmed line of it. Each
    connection has a thread, so that nobody who is slow or silent holds up the others.

    Attributes:
        refusing: the workers that no connection has reached yet.
        read: those whose line was read at their address.
        came: those that have connected.
        places: the IP address and port at which each other worker was met.
        error: the first mistake, None if there is none.
    """

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.others = {index for index in range(len(cluster.tasks)) if index != cluster.index}
        self.refusing, self.read, self.came = set(self.others), set[int](), set[int]()
        self.places: dict[int, tuple[str, int]] = {}
        self.error: ClusterError | None = None
        self._ended = threading.Event()

    def wait(self, seconds: float) -> None:
        """Meets the others.

        Raises:
            ClusterError: a worker did not come, has another list of workers or another number, or the port of this one
                is in use.
        """
        port = int(self.cluster.tasks[self.cluster.index][2].rpartition(":")[2])
        deadline = time.monotonic() + seconds
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            # TensorFlow's server would share a port with any other program that allows it; this does not.
            listener = socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)
        except OSError as error:
            what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise ClusterError(
                f"port {port} {what}: TF_CONFIG gives it to {self._name()}, which is this process"
            ) from None
        listener.settimeout(_MEET_SECONDS)
        listening = threading.Thread(target=self._listen, args=(listener,), daemon=True)
        listening.start()
        for index in self.others:
            threading.Thread(target=self._ask, args=(index,), daemon=True).start()
        try:
            while self.error is None and not (self.others <= self.read and self.others <= self.came):
                if time.monotonic() > deadline:
                    self.error = ClusterError(self._who_is_missing(seconds))
                time.sleep(_MEET_SECONDS / 4)
        finally:
            self._ended.set()
            listening.join()
        if self.error is not None:
            raise self.error

    def _listen(self, listener: socket.socket) -> None:
        with listener:
            while not self._ended.is_set():
                with contextlib.suppress(OSError):
                    threading.Thread(target=self._greet, args=(listener.accept()[0],), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        """Somebody has connected."""
        with self._talking(connection) as stream:
            line = stream.readline(_LONGEST_LINE)
            connection.sendall(self._line())  # also to a worker of another list, so that both end
            found = self._worker_of(line)
            if found is not None and stream.readline(_LONGEST_LINE) == _CONFIRMED:
                self.came.add(found)

    def _ask(self, index: int) -> None:
        """Connects to a worker until its line has come."""
        while not self._ended.is_set() and index not in self.read:
            with contextlib.suppress(OSError, UnicodeError):  # a host's name may be no name
                host, _, port = self.cluster.tasks[index][2].rpartition(":")
                connection = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS)
                if connection.getsockname() == connection.getpeername():
                    connection.close()
                    raise OSError("nobody listens, and Linux has connected this socket with itself")
                self.refusing.discard(index)
                self.places[index] = connection.getpeername()[:2]
                with self._talking(connection) as stream:
                    connection.sendall(self._line())
                    found = self._worker_of(stream.readline(_LONGEST_LINE))
                    if found not in (index, None):
                        raise ClusterError(
                            f"{self._name()}: at the address of {self._name(index)} is {self._name(found)}; is "
                            '"index" the same on two machines?'
                        )
                    if found is not None:
                        connection.sendall(_CONFIRMED)
                        self.read.add(index)
            self._ended.wait(_MEET_SECONDS)

    @contextlib.contextmanager
    def _talking(self, connection: socket.socket) -> Iterator[Any]:
        """The connection's stream. Keeps a mistake for `wait`; a connection that breaks is none."""
        try:
            connection.settimeout(CONNECT_SECONDS)
            with connection, connection.makefile("rb") as stream:
                yield stream
        except ClusterError as error:
            self.error = self.error or error
        except OSError:
            pass

    def _line(self) -> bytes:
        listed = hashlib.sha256(repr(self.cluster.tasks).encode()).hexdigest()[:16]
        return f"attention-zoo {listed} {self.cluster.index}\n".encode()

    def _worker_of(self, line: bytes) -> int | None:
        """The number of the worker that says a line; None if another program does."""
        found = line.decode(errors="replace").split()
        word, listed, _ = self._line().decode().split()
        if len(found) != 3 or found[0] != word or not found[2].isdigit():
            return None
        if found[1] != listed:
            here = ", ".join(address for _, _, address in self.cluster.tasks)
            raise ClusterError(
                f"{self._name()}: another worker has another list of workers in its TF_CONFIG. Received here: {here}"
            )
        return int(found[2])

    def _name(self, index: int | None = None) -> str:
        return self.cluster.name(self.cluster.index if index is None else index)

    def _who_is_missing(self, seconds: float) -> str:
        """One sentence."""

        def reason(index: int) -> str:
            if index in self.refusing:
                return f"did not come within {seconds:g} seconds"
            if index in self.read:
                return "cannot connect to this one"
            return "does not answer as a worker that starts: another program has its port, or it trains already"

        # Workers that only wait for a missing one have no part in it.
        wrong = self.refusing or self.others - self.read or self.others - self.came
        return f"{self._name()}: {'; '.join(f'{self._name(index)} {reason(index)}' for index in sorted(wrong))}"


def answers(place: tuple[str, int]) -> bool:
    """Whether a port accepts connections.

    Args:
        place: an IP address, since a name server that is out would look like a lost worker, and a port.
    """
    try:
        socket.create_connection(place, timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
