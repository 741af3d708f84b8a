"""When `zoo serve` ends a connection: in a loop whose clock the test sets."""

import http.client
import io
import json
from unittest import mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from zoo.serving.server.running import _protocol

WHOLE = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
PART = WHOLE[:-2]
KEEP_ALIVE = 5  # seconds; uvicorn's


class Timer:
    def __init__(self, when, call):
        self.when, self.call = when, call
        self.cancelled = False

    def cancel(self):
        self.cancelled = True


class Loop:
    """What a connection uses of an event loop. A request is answered at once, or never."""

    def __init__(self, answers):
        self.now, self.timers, self.answers, self.tasks = 0, [], answers, []

    def call_later(self, delay, callback, *arguments):
        self.timers.append(Timer(self.now + delay, lambda: callback(*arguments)))
        return self.timers[-1]

    def create_task(self, task, **options):
        self.tasks.append(task)
        if self.answers:
            with pytest.raises(StopIteration):
                task.send(None)
        return mock.Mock()

    def wait_until(self, end):
        while due := [each for each in self.timers if each.when <= end and not each.cancelled]:
            first = min(due, key=lambda each: each.when)
            self.timers.remove(first)
            self.now = first.when
            first.call()
        self.now = end


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def ends_at(timeout, received, answers=True):
    """The second at which a connection ends that receives these bytes in these seconds; None if it stays for 100 s."""
    loop, closed = Loop(answers), []
    transport = mock.Mock()
    transport.get_extra_info.return_value = None
    transport.is_closing.side_effect = lambda: bool(closed)
    config = uvicorn.Config(answer, lifespan="off", ws="none", log_config=None, timeout_keep_alive=KEEP_ALIVE)
    connection = _protocol(timeout, 1)(config, ServerState(), {}, loop)

    def close():
        closed.append(loop.now)
        connection.connection_lost(None)

    transport.close.side_effect = lambda: closed or close()
    connection.connection_made(transport)
    for second, data in received:
        loop.wait_until(second)
        assert not closed
        connection.data_received(data)
    loop.wait_until(100)
    for task in loop.tasks:
        task.close()
    assert not closed or all(timer.cancelled for timer in loop.timers)
    return closed[0] if closed else None


@pytest.mark.parametrize(
    ("received", "least", "most"),
    [
        ([], 10, 20),
        ([(0, PART)], 10, 20),
        ([(0, WHOLE[:1]), (9, WHOLE[1:2])], 10, 20),
        ([(0, WHOLE), (1, PART)], 11, 21),
        ([(0, WHOLE), (4, WHOLE[:1]), (13, WHOLE[1:2])], 14, 24),
        ([(0, WHOLE), (4, PART), (12, WHOLE[-2:]), (13, PART)], 23, 33),
    ],
)
def test_a_head_may_take_the_timeout_and_at_most_twice_as_long(received, least, most):
    assert least <= ends_at(10, received) <= most


@pytest.mark.parametrize("timeout", [1, 3, 10])
@pytest.mark.parametrize("received", [[(0.5, WHOLE)], [(0.5, PART), (0.75, WHOLE[-2:] + WHOLE)]])
def test_a_connection_that_is_kept_ends_as_uvicorn_says(timeout, received):
    assert ends_at(timeout, received) == received[-1][0] + KEEP_ALIVE


def test_a_request_that_is_computed_keeps_its_connection():
    assert ends_at(1, [(0, WHOLE)], answers=False) is None


@pytest.mark.parametrize(("taken_at", "ends"), [(None, 13), (12.9, None), (13.1, 13)])
def test_a_client_that_does_not_read_its_answer_is_not_waited_for(taken_at, ends, caplog):
    loop, transport = Loop(answers=True), mock.Mock()
    transport.get_extra_info.return_value = None
    config = uvicorn.Config(answer, lifespan="off", ws="none", log_config=None, timeout_keep_alive=1000)
    connection = _protocol(10, 1)(config, ServerState(), {}, loop)
    connection.connection_made(transport)
    transport.set_write_buffer_limits.assert_called_once_with(0)  # writing is paused for as long as something is left
    connection.data_received(WHOLE)
    loop.wait_until(3)
    connection.pause_writing()
    if taken_at:
        loop.wait_until(taken_at)
        assert transport.abort.called == (taken_at > 13)
        connection.resume_writing()
    loop.wait_until(100)
    assert transport.abort.call_count == (ends is not None)
    told = ["a client has not read its answer for 10 s; its connection is closed"]
    assert caplog.messages == (told if ends else [])


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2, as gRPC does"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS, as to an https:// address"),
    ],
)
def test_the_log_names_another_protocol(first, said, caplog):
    assert ends_at(10, [(0, first)]) == 0
    assert caplog.messages == [
        f"a client speaks {said}; this server speaks HTTP/1.1 without TLS",
        "Invalid HTTP request received.",  # uvicorn's
    ]
    assert ends_at(10, [(0, b"no request\r\n\r\n")]) == 0
    assert caplog.messages[2:] == ["Invalid HTTP request received."]


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])  # as `curl --http2` and Java's client offer
def test_an_offer_of_another_protocol_is_passed_over_in_silence(protocol, caplog):
    offer = f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n".encode()
    assert ends_at(10, [(0, PART + offer)]) == KEEP_ALIVE  # it was answered
    assert caplog.messages == []


def test_broken_bytes_end_a_connection_even_if_the_answer_is_sent():
    """A request may be refused before its body has ended."""
    chunked = PART + b"Transfer-Encoding: chunked\r\n\r\n"
    assert ends_at(10, [(0, chunked), (1, b"no number\r\n")]) == 1
    assert ends_at(10, [(0, chunked + b"no number\r\n")], answers=False) == 0


def test_one_connection_too_many_is_refused_until_another_ends(caplog):
    config = uvicorn.Config(answer, lifespan="off", ws="none", log_config=None)
    protocol, state = _protocol(10, 2), ServerState()

    def connect():
        transport = mock.Mock()
        transport.get_extra_info.return_value = None
        connection = protocol(config, state, {}, Loop(answers=True))
        transport.is_closing.side_effect = lambda: transport.close.called
        transport.close.side_effect = lambda: transport.close.call_count > 1 or connection.connection_lost(None)
        connection.connection_made(transport)
        return connection, b"".join(call.args[0] for call in transport.write.call_args_list)

    (first, _), (_, nothing), (_, refused), (_, again) = (connect() for _ in range(4))
    assert (nothing, again) == (b"", refused)
    response = http.client.HTTPResponse(mock.Mock(makefile=lambda mode: io.BytesIO(refused)))
    response.begin()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert "too many connections" in json.load(response)["error"]
    assert caplog.messages == ["2 connections are open, the most that there may be; others are refused"]
    first.connection_lost(None)
    assert connect()[1] == b""
