"""`zoo.cluster`: what `TF_CONFIG` says, and how workers meet."""

import concurrent.futures
import contextlib
import ipaddress
import json
import threading
import time

import loopback
import pytest

from zoo.cluster import Cluster, ClusterError, Meeting, read_cluster


def cluster(task="worker", index=0, **jobs):
    return json.dumps({"cluster": jobs, "task": {"type": task, "index": index}})


class TestTheCluster:
    def test_the_chief_comes_first(self):
        found = read_cluster(cluster("worker", 1, worker=["b:2", "c:3"], chief=["a:1"]))
        assert found.index == 2
        assert [address for _, _, address in found.tasks] == ["a:1", "b:2", "c:3"]

    def test_an_index_may_be_written_as_a_string(self):
        assert read_cluster(cluster("worker", "1", worker=["a:1", "b:2"])).index == 1

    @pytest.mark.parametrize("text", [None, "", " ", cluster(worker=["a:1"])])
    def test_without_others_there_is_no_cluster(self, text):
        assert read_cluster(text) is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "not valid JSON"),
            ("[]", "must be like"),
            ("{}", "must be like"),
            (cluster("worker", 2, worker=["a:1", "b:2"]), "no task worker 2: its workers are 2 of type worker"),
            (cluster("chief", 0, worker=["a:1", "b:2"]), "no task chief 0"),
            (cluster("worker", 0, worker=["a:1", "b:2"], ps=["c:3"]), "only have the jobs chief and worker.*ps"),
            (cluster("worker", 0, worker=["a:1", "b"]), 'a list of "host:port"'),
            (cluster("worker", 0, worker="a:1"), 'a list of "host:port"'),
            (cluster("worker", 0, worker=["a:1", "a:1"]), "an address twice"),
            (cluster("worker", 0, worker=["a:1", "b:65536"]), 'a list of "host:port"'),
            (cluster("worker", 0, worker=["a:1", "b:0"]), 'a list of "host:port"'),
            (cluster("worker", 0, worker=["a:1"], chief=["b:2", "c:3"]), "only one chief"),
            (cluster("worker", None, worker=["a:1", "b:2"]), '"task" has no "index"'),
            (cluster(None, 0, worker=["a:1", "b:2"]), '"task" has no "type"'),
        ],
    )
    def test_a_mistake_is_one_sentence(self, text, message):
        with pytest.raises(ClusterError, match=message) as caught:
            read_cluster(text)
        assert "\n" not in str(caught.value)
        assert "Received: " in str(caught.value)


def met(lists, wait=20.0):
    """What the meeting raises in each of several workers, None where it raises nothing; of each its list and number."""

    def meet(hosts, index):
        try:
            Meeting(Cluster(tuple(("worker", number, host) for number, host in enumerate(hosts)), index)).wait(wait)
        except ClusterError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(len(lists)) as pool:
        return list(pool.map(meet, *zip(*lists, strict=True)))


def stranger(host, words):
    """A connection of another program, which says this."""
    name, _, port = host.rpartition(":")
    while True:
        try:
            connection = loopback.socket.create_connection((name, int(port)))
        except ConnectionRefusedError:
            time.sleep(0.02)
            continue
        connection.sendall(words)
        return connection


@contextlib.contextmanager
def answering(hosts, place, index):
    """At the address of one worker, something that answers as the worker `index`, and never connects itself."""
    line = Meeting(Cluster(tuple(("worker", number, host) for number, host in enumerate(hosts)), index))._line()
    with loopback.socket.create_server(("127.0.0.1", int(hosts[place].rpartition(":")[2]))) as server:

        def answer():
            with contextlib.suppress(OSError):  # it is closed at the end
                while True:
                    with server.accept()[0] as connection:
                        connection.recv(100)
                        connection.sendall(line)
                        connection.recv(100)

        threading.Thread(target=answer, daemon=True).start()
        yield


class TestTheMeeting:
    @pytest.mark.parametrize("number", [2, 3, 8])
    def test_all_meet_whoever_comes_first(self, number):
        hosts = loopback.addresses(number)
        assert met([(hosts, index) for index in range(number)]) == [None] * number

    def test_ipv6(self):
        if not loopback.socket.has_dualstack_ipv6():
            pytest.skip("this machine has no IPv6")
        hosts = [host.replace("127.0.0.1", "[::1]") for host in loopback.addresses(2)]
        assert met([(hosts, 0), (hosts, 1)]) == [None, None]

    def test_the_others_are_then_known_by_their_ip_addresses(self):
        """Whoever watches them asks no name server, which would look like a lost worker when it is out."""
        hosts = [host.replace("127.0.0.1", "localhost") for host in loopback.addresses(2)]
        tasks = tuple(("worker", number, host) for number, host in enumerate(hosts))
        meetings = [Meeting(Cluster(tasks, index)) for index in range(2)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda meeting: meeting.wait(20), meetings))
        for own, other in ((0, 1), (1, 0)):
            ((index, (address, port)),) = meetings[own].places.items()
            assert index == other
            assert ipaddress.ip_address(address).is_loopback
            assert hosts[other] == f"localhost:{port}"

    def test_who_does_not_come_is_named(self):
        hosts = loopback.addresses(3)
        for index, said in enumerate(met([(hosts, 0), (hosts, 1)], 1)):
            assert said == f"worker {index} ({hosts[index]}): worker 2 ({hosts[2]}) did not come within 1 seconds"

    def test_a_host_whose_name_is_none_does_not_come(self):
        hosts = [*loopback.addresses(1), "a..b:2222"]
        (said,) = met([(hosts, 0)], 1)
        assert said.endswith("worker 1 (a..b:2222) did not come within 1 seconds")

    @pytest.mark.parametrize("longer", [False, True], ids=["another order", "one more"])
    def test_lists_that_differ(self, longer):
        """As where each machine lists itself first."""
        one, other, third = loopback.addresses(3)
        lists = [([one, other], 0), ([one, other, third], 1) if longer else ([other, one], 0)]
        for said in met(lists, 5):
            assert "another worker has another list of workers in its TF_CONFIG" in said

    def test_another_program_at_the_address(self):
        hosts = loopback.addresses(2)
        with loopback.socket.create_server(("127.0.0.1", int(hosts[1].rpartition(":")[2]))):
            (said,) = met([(hosts, 0)], 1)
        assert f"worker 1 ({hosts[1]}) does not answer as a worker that starts" in said

    def test_one_number_twice(self):
        """Of a machine whose own number is wrong, the address answers with that number."""
        hosts = loopback.addresses(2)
        with answering(hosts, 1, 0):
            (said,) = met([(hosts, 0)], 5)
        expected = f'at the address of worker 1 ({hosts[1]}) is worker 0 ({hosts[0]}); is "index" the same'
        assert expected in said

    def test_a_worker_that_cannot_connect_is_named(self):
        """It answers, but never comes; the other one does."""
        hosts = loopback.addresses(3)
        with answering(hosts, 2, 2):
            said = met([(hosts, 0), (hosts, 1)], 1)
        assert [each.partition(": ")[2] for each in said] == [f"worker 2 ({hosts[2]}) cannot connect to this one"] * 2

    def test_other_programs_that_connect_change_nothing(self):
        """Whatever they say, and though they stay connected."""
        hosts = loopback.addresses(2)
        with concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
            first = pool.submit(met, [(hosts, 0)])
            for words in (b"", b"", b"", b"GET / HTTP/1.1\r\n\r\n", b"attention-zoo x y\n", b"\xff\n"):
                stack.enter_context(stranger(hosts[0], words))
            begin = time.monotonic()
            assert met([(hosts, 1)]) == first.result() == [None]
            assert time.monotonic() - begin < 4
