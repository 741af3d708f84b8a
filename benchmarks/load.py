"""Does a batching server give many clients correct answers, in time and without growing, and how many?

Clients send one to four texts in a request, as fast as they get answers. Each answer is compared with the answer that
its text gets when it is sent alone. The servers take turns, several times: `zoo serve`, and TensorFlow's own server if
there is one. Then the same clients run with hostile ones: some send garbage, some disconnect before the answer, and one
sends sixteen requests of 32 texts at once. The memory is the server's, at the beginning and after each quarter of the
time. Clients and server share the cores.

    python benchmarks/load.py                      # saved_models/dates/1, behind `zoo serve`
    TF_SERVING_BIN=/path/of/tensorflow_model_server python benchmarks/load.py     # and behind that server, too
    python benchmarks/load.py --version saved_models/multi30k-transformer/1 --texts test_2016_flickr.en
    TF_SERVING_BIN=... python benchmarks/load.py --protocol grpc                  # which `zoo serve` does not speak
"""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import random
import re
import socket
import statistics
import sys
import threading
import time

from results import Recording, Table, options
from zoo_training.start_tensorflow import import_tensorflow

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "serving")]
CLOSE = 1e-3  # between log-probabilities, whose last digits depend on what is computed together


def main() -> None:
    """Runs both parts, behind each server that there is."""
    parser = options(__doc__)
    parser.add_argument("--version", type=pathlib.Path, default=ROOT / "saved_models" / "dates" / "1")
    parser.add_argument(
        "--texts", type=pathlib.Path, default=ROOT / "training" / "demo.txt", help="a text on each line"
    )
    parser.add_argument("--protocol", choices=["rest", "grpc"], default="rest", help="(default %(default)s)")
    parser.add_argument("--clients", type=int, default=8, help="(default %(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each server (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="of each turn (default %(default)s)")
    arguments = parser.parse_args()
    import_tensorflow()
    from servers import BINARY, SERVERS

    texts = [line for line in arguments.texts.read_text(encoding="utf-8").splitlines() if line.strip()][:200]
    names = ["zoo serve"] * (arguments.protocol == "rest") + [STOCK] * (BINARY is not None)
    if not names:
        raise SystemExit(f"{STOCK} is not on the PATH, nor named by TF_SERVING_BIN; no other server speaks gRPC")
    with (
        Recording(__file__, arguments.record, "tensorflow", "uvicorn", "starlette") as recording,
        contextlib.ExitStack() as running,
    ):
        servers = {name: running.enter_context(SERVERS[name](arguments.version.resolve())) for name in names}
        with client_of(servers[names[0]], arguments.protocol) as client:
            alone = {text: client.translate([text])[0] for text in texts}
        loads = {(name, what): Load() for what in ("alone", "beside the others") for name in names}
        for (name, what), load in [
            *((each, loads[each]) for _ in range(arguments.rounds) for each in loads if each[1] == "alone"),
            *((each, load) for each, load in loads.items() if each[1] != "alone"),
        ]:
            others = () if what == "alone" else UNWANTED
            run(load, servers[name], arguments.protocol, alone, others, arguments.clients, arguments.seconds)
        columns = ["", "", "requests", "texts a second", "median ms", "99th percentile ms", "wrong", "failed"]
        asking = f"{len(texts)} texts, {arguments.clients} clients by {arguments.protocol.upper()}"
        caption = f"{asking}; alone {arguments.rounds} turns of {arguments.seconds:g} s, beside the others one"
        rows = [[f"`{name}`", what, *load.cells()] for (name, what), load in loads.items()]
        recording.table(Table(caption, [*columns, "memory MiB"], rows))
        if len(names) == 2:
            ours, theirs = (loads[name, "alone"].rates for name in names)
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            recording.note(
                f"Throughput of `zoo serve` / `{STOCK}`: {statistics.median(ratios):.2f}x "
                f"({min(ratios):.2f}x - {max(ratios):.2f}x over the turns)."
            )
    if any(load.wrong or load.failed for load in loads.values()):
        raise SystemExit("there were wrong answers, or none")


def client_of(server, protocol):
    """A client of the server."""
    from zoo.serving import ServingClient

    address = server.rest if protocol == "rest" else server.grpc
    return ServingClient(address, server.model, protocol=protocol, timeout=60)


class Load:
    """What the wanted clients met."""

    def __init__(self):
        self.seconds, self.texts, self.wrong, self.failed = [], 0, 0, 0
        self.memory: list[float] = []
        self.rates: list[float] = []  # texts a second, of each turn

    def cells(self) -> list[str]:
        """Of the table."""
        milliseconds = sorted(1e3 * each for each in self.seconds) or [float("nan")]
        tail = milliseconds[min(len(milliseconds) - 1, len(milliseconds) * 99 // 100)]
        # By quarters of the time, so that growth would be seen.
        points = [self.memory[round(part * (len(self.memory) - 1) / 4)] for part in range(5)]
        return [
            f"{len(self.seconds):,}",
            f"{statistics.median(self.rates):,.0f}",
            f"{statistics.median(milliseconds):.1f}",
            f"{tail:.1f}",
            str(self.wrong),
            str(self.failed),
            ", ".join(f"{each:,.0f}" for each in points),
        ]


def run(load, server, protocol, alone, others, clients, seconds) -> None:
    """Adds to a load what `clients` clients meet in `seconds`, together with the other ones."""
    over, lock = threading.Event(), threading.Lock()
    texts_before = load.texts

    def ask(number):
        chance = random.Random(number)
        with client_of(server, protocol) as client:
            while not over.is_set():
                texts = chance.choices(list(alone), k=chance.randint(1, 4))
                begin = time.perf_counter()
                try:
                    found = client.translate(texts)
                except Exception as error:
                    print(f"failed: {error}", file=sys.stderr)
                    with lock:
                        load.failed += 1
                    continue
                took = time.perf_counter() - begin
                wrong = sum(
                    each.text != alone[text].text or abs(each.score - alone[text].score) > CLOSE
                    for text, each in zip(texts, found, strict=True)
                )
                with lock:
                    load.seconds.append(took)
                    load.texts += len(texts)
                    load.wrong += wrong

    def disturb(other):
        chance = random.Random(0)
        while not over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                other(server, list(alone), chance)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    threads += [threading.Thread(target=disturb, args=(other,)) for other in others]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    while time.perf_counter() - begin < seconds:
        load.memory.append(resident(server.process))
        time.sleep(1)
    over.set()
    for thread in threads:
        thread.join()
    load.rates.append((load.texts - texts_before) / (time.perf_counter() - begin))


def resident(process: int) -> float:
    """A process' memory in MiB."""
    status = pathlib.Path("/proc", str(process), "status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def garbage(server, texts, chance) -> None:
    """Bytes that are no request, and requests that are none."""
    for address in filter(None, (server.rest, server.grpc)):
        with socket.create_connection(address.split(":"), timeout=10) as connection:
            connection.sendall(chance.randbytes(chance.randint(1, 2000)))
    for body in (b"{", b'{"instances": []}', b'{"instances": [[1, 2], "a"]}', b'{"inputs": {"words": ["a"]}}'):
        send(server, body).getresponse().read()
    time.sleep(0.05)


def quitter(server, texts, chance) -> None:
    """Asks, and is gone before the answer, or before the question is out."""
    body = json.dumps({"instances": chance.choices(texts, k=8)}).encode()
    send(server, body).close()
    with socket.create_connection(server.rest.split(":"), timeout=10) as connection:
        head = f"POST /v1/models/{server.model}:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: len(body) // 2])
    time.sleep(0.05)


def flood(server, texts, chance) -> None:
    """Sixteen requests of 32 texts at once."""
    body = json.dumps({"instances": chance.choices(texts, k=32)}).encode()
    for connection in [send(server, body) for _ in range(16)]:
        connection.getresponse().read()
    time.sleep(0.5)


def send(server, body) -> http.client.HTTPConnection:
    """A connection by which a request has been sent."""
    connection = http.client.HTTPConnection(server.rest, timeout=60)
    connection.request("POST", f"/v1/models/{server.model}:predict", body)
    return connection


STOCK = "tensorflow_model_server"
UNWANTED = garbage, quitter, flood

if __name__ == "__main__":
    main()
