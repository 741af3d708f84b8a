"""Exports behind TensorFlow Serving, `zoo serve`, or a stand-in: warm-up, batching, and requests of all kinds.

By REST and gRPC; `zoo serve` has no gRPC, and is asked by REST for both.
"""

import concurrent.futures
import math
import os
import random
import shutil
import socket

import numpy as np
import pytest
import tensorflow as tf
from servers import BINARY, SERVERS, Refused, RestClient, in_time, real

from tests.serving.conftest import SCRIPTS
from zoo.serving import ServingClient
from zoo.serving.exporting import with_packed_model

pytestmark = pytest.mark.long

NUMBERS = {"max_new_tokens": tf.int32, "temperature": tf.float32, "top_k": tf.int32, "top_p": tf.float32}
NUMBERS |= {"repetition_penalty": tf.float32, "seed": tf.int64}
TEXTS = ["cab", "", "é 1", "4321 abcd", "?", "😀", "a\0b", "dd " * 9]


def start_of(server):
    """What starts such a server for a version."""
    if server == "tensorflow_model_server" and BINARY is None:
        pytest.skip("tensorflow_model_server is not on the PATH, nor named by TF_SERVING_BIN")
    return SERVERS[server]


@pytest.fixture(scope="module", params=SERVERS)
def serve(request):
    return start_of(request.param)


# What gRPC does with strings and numbers is tested with two models; further models need no stand-in.
@pytest.fixture(scope="module", params=[each for each in SERVERS if each != "stand-in"])
def serve_more(request):
    return start_of(request.param)


@pytest.fixture(scope="module")
def translating(serve, exported_transformer):
    with serve(exported_transformer) as client:
        yield client


@pytest.fixture(scope="module")
def writing(serve, exported_generator):
    with serve(exported_generator) as client:
        yield client


def test_the_warm_up_was_answered(translating, writing):
    assert translating.warmed == 3 * 5
    assert writing.warmed == 3 * 4 + 1


@pytest.fixture(scope="module")
def translations(transformer):
    return with_packed_model(transformer).translate(TEXTS)


def test_rest_and_grpc_say_what_the_translator_says(translating, translations):
    wanted = translations
    called = translating.call("serving_default", text=(TEXTS, tf.string))
    assert [text.decode() for text in called["text"]] == [each.text for each in wanted]
    assert called["score"] == pytest.approx([each.score for each in wanted], rel=1e-5)
    status, columns = translating.by_rest({"inputs": {"text": TEXTS}})
    assert (status, columns["outputs"]["text"]) == (200, [each.text for each in wanted])
    status, rows = translating.by_rest({"instances": [{"text": text} for text in TEXTS]})
    assert (status, [row["text"] for row in rows["predictions"]]) == (200, [each.text for each in wanted])
    binary = [{"b64": "4oKs"}, {"b64": "/w=="}]
    status, rows = translating.by_rest({"signature_name": "serving_default", "instances": binary})
    assert status == 200
    assert len(rows["predictions"]) == 2


def test_an_imported_translator_answers_many_clients_in_ten_scripts(serve_more, imported, exported_import):
    """By gRPC and REST, whatever is batched with a text; `test_marian_peers.py` compares its texts with the library."""
    wanted = {each.source: each for each in imported.translate(SCRIPTS)}
    assert len({(each.text, each.score) for each in wanted.values()}) == len(SCRIPTS)
    with serve_more(exported_import) as client, concurrent.futures.ThreadPoolExecutor(8) as clients:
        assert client.warmed == 3 * 5

        def ask(number):
            texts = [SCRIPTS[(number + row) % len(SCRIPTS)] for row in range(1 + number % 3)]
            return (
                texts,
                client.call("serving_default", text=(texts, tf.string)),
                client.by_rest({"instances": texts}),
            )

        answers = list(clients.map(ask, range(32)))
    for texts, called, (status, by_rest) in answers:
        expected = [wanted[text] for text in texts]
        assert [text.decode() for text in called["text"]] == [each.text for each in expected]
        assert called["score"] == pytest.approx([each.score for each in expected], rel=1e-5)
        assert (status, [row["text"] for row in by_rest["predictions"]]) == (200, [each.text for each in expected])


@pytest.mark.parametrize("name", ["classifier", "embedder", "filler"])
def test_encoders_answer_many_clients_in_ten_scripts(serve_more, readers, exported_readers, name):
    """By gRPC and REST, in batches of others' texts; odd texts have an answer."""
    task = readers[name]
    texts = [*SCRIPTS, "", "[MASK] man rides [MASK]", "a\0b \N{REPLACEMENT CHARACTER}", "horse " * 99]
    columns = {"text": texts, "text_pair": texts[::-1]} if task.pairs else {"text": texts}
    signature = {"classifier": "classify", "embedder": "embed", "filler": "fill"}[name]

    def asked(rows):
        return {key: [values[row] for row in rows] for key, values in columns.items()}

    function = task.signatures()[signature]  # traced once
    wanted = {
        row: {key: value.numpy()[0] for key, value in function(**tensors(asked([row]))).items()}
        for row in range(len(texts))
    }
    with serve_more(exported_readers[name]) as client, concurrent.futures.ThreadPoolExecutor(8) as clients:
        assert client.warmed == 3 * len(task.signatures())

        def ask(number):
            rows = [(number + row) % len(texts) for row in range(1 + number % 3)]
            inputs = {key: (values, tf.string) for key, values in asked(rows).items()}
            body = {"signature_name": signature, "inputs": asked(rows)}
            return rows, client.call(signature, **inputs), client.by_rest(body)

        answers = list(clients.map(ask, range(32)))
    for rows, called, (status, by_rest) in answers:
        assert status == 200
        by_rest = by_rest["outputs"]
        by_rest = by_rest if isinstance(by_rest, dict) else {"embedding": by_rest}
        for number, row in enumerate(rows):
            for key, expected in wanted[row].items():
                for found in (called[key][number], by_rest[key][number]):
                    check_equal(found, expected)


def tensors(columns):
    return {key: tf.constant(values) for key, values in columns.items()}


def check_equal(found, expected):
    """Numbers up to rounding; a text with fewer masks than others of its batch has empty rows behind its own."""
    found, expected = np.array(found), np.array(expected)
    if not found.size or not expected.size:
        assert not any(found.ravel())
        assert not expected.size
    elif found.dtype.kind == "f":
        np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)
        assert not found[len(expected) :].any()
    else:
        as_text = np.vectorize(lambda text: text.decode() if isinstance(text, bytes) else str(text), otypes=[object])
        found, expected = as_text(found), as_text(expected)
        if found.ndim:
            assert (found[len(expected) :] == "").all()
            found = found[: len(expected)]
        np.testing.assert_array_equal(found, expected)


def settings(rows, seed):
    chance = random.Random(seed)
    return {
        "max_new_tokens": ([chance.randint(0, 20) for _ in range(rows)], tf.int32),
        "temperature": ([chance.choice([0.0, 0.7, 1.5]) for _ in range(rows)], tf.float32),
        "top_k": ([chance.choice([0, 3, 99]) for _ in range(rows)], tf.int32),
        "top_p": ([chance.choice([1.0, 0.8]) for _ in range(rows)], tf.float32),
        "repetition_penalty": ([chance.choice([1.0, 1.3]) for _ in range(rows)], tf.float32),
        "seed": ([chance.randint(-9, 10**12) for _ in range(rows)], tf.int64),
        "stop": ([chance.choice(["", "a", "b\0é"]) for _ in range(rows)], tf.string),
    }


def test_many_clients_at_once_get_what_each_would_get_alone(writing):
    """Whatever is batched with it: other texts, settings and numbers of rows."""

    def ask(number):
        rows = 1 + number % 3
        texts = [TEXTS[(number + row) % len(TEXTS)] for row in range(rows)]
        inputs = {"text": (texts, tf.string), **settings(rows, number)}
        together = writing.call("generate", **inputs)
        return inputs, together

    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(64)))
    for inputs, together in answers:
        for row in range(len(together["text"])):
            single = {key: (values[row : row + 1], dtype) for key, (values, dtype) in inputs.items()}
            alone = writing.call("generate", **single)
            assert alone["text"] == together["text"][row : row + 1]
            assert alone["tokens"] == together["tokens"][row : row + 1]
    if hasattr(writing, "largest_batch"):
        assert writing.largest_batch() > 1


BAD = {
    "no such signature": {"signature_name": "nothing", "instances": ["a"]},
    "another input": {"instances": [{"words": "a"}]},
    "a number": {"instances": [7]},
    "rows of several": {"instances": [["a", "b"]]},
    "no rows": {"instances": []},
    "no JSON": b"{",
    "an input too many": {"inputs": {"text": ["a"], "seed": [1]}},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_bad_requests_are_refused_and_the_next_is_answered(translating, body):
    if body == BAD["an input too many"]:  # by REST in columns, where the server does not look at it
        if isinstance(translating, RestClient):
            assert translating.by_rest(body)[0] == 200
            return
        with pytest.raises(Refused, match="input"):
            translating.call("serving_default", text=(["a"], tf.string), seed=([1], tf.int64))
    else:
        status, said = translating.by_rest(body)
        assert 400 <= status < 500
        assert said["error"]
    assert translating.by_rest({"instances": ["cab"]})[0] == 200


@pytest.mark.parametrize(
    "texts",
    [[], [b""], [b"\xff\xfe", b"a\xc3"], [b"\0", b"a\0\0"], [b"cab " * 25_000], ["שלום".encode(), "😀".encode()]],
    ids=["no row", "empty", "not UTF-8", "NUL", "100,000 characters", "other scripts"],
)
def test_odd_texts_have_an_answer(translating, writing, texts):
    for server in (translating, writing):
        if not texts and not server.answers_nothing:
            with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
                server.call("serving_default", timeout=2, text=(texts, tf.string))
            assert server.by_rest({"instances": ["cab"]})[0] == 200
            continue
        found = server.call("serving_default", text=(texts, tf.string))
        assert len(found["text"]) == len(texts)
        assert all(text.decode("utf-8") is not None for text in found["text"])


@pytest.mark.parametrize("number", range(6))
def test_a_streamed_text_is_the_text_of_one_request(writing, number):
    """Also with stop strings, and beyond the context of 48 tokens."""
    columns = {name: values[0] for name, (values, _) in settings(1, number).items()}
    columns |= {"max_new_tokens": 25 * number, "stop": ["a\n", "é😀"][: number % 3]}
    with ServingClient(writing.rest, writing.model, timeout=120) as client:
        wanted = client.generate([TEXTS[number]], **columns)[0]
        pieces = list(client.stream(TEXTS[number], **columns))
    assert "".join(pieces) == wanted.text
    assert all(pieces)
    if isinstance(writing, RestClient):  # zoo serve streams by itself, too
        status, events = writing.events(":generateStream", {"text": TEXTS[number], **columns})
        assert status == 200
        assert "".join(event["text"] for event in events[:-1]) == wanted.text
        assert events[-1]["tokens"] == wanted.tokens


def test_settings_out_of_range_have_the_documented_answer(writing):
    def generate(**changed):
        inputs = {**settings(1, 3), "text": (["ab"], tf.string), "max_new_tokens": ([9], tf.int32)}
        inputs |= {
            "temperature": ([0.0], tf.float32),
            "stop": ([""], tf.string),
            "repetition_penalty": ([1.0], tf.float32),
        }
        return writing.call("generate", **(inputs | {k: ([v], NUMBERS[k]) for k, v in changed.items()}))

    greedy = generate()
    for value in (-1.0, math.nan, -math.inf):
        assert generate(temperature=value) == greedy
    assert generate(top_k=-5) == generate(top_k=10**6) == greedy
    assert generate(max_new_tokens=-3)["tokens"] == [0]
    assert generate(max_new_tokens=100)["tokens"] == [100]  # beyond the context of 48 tokens
    with pytest.raises(Refused):
        writing.call("generate", **{**settings(2, 3), "text": (["ab"], tf.string)})
    assert generate() == greedy


def test_garbage_and_quitters_do_not_disturb_the_others(writing):
    host, port = writing.rest.split(":")
    for garbage in (b"\x00\xff" * 500, b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n{", b"GET"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(garbage)
    with pytest.raises(Refused):
        writing.call("serving_default", text=([1.5], tf.float32))
    assert len(writing.call("serving_default", text=(["ab"], tf.string))["text"]) == 1
    assert writing.by_rest({"instances": ["ab"]})[0] == 200


def test_a_new_version_is_served_and_a_bad_one_refused(exported_generator, tmp_path):
    """The server does this itself, while the old version goes on answering; for `zoo serve` see `test_server.py`."""
    if BINARY is None:
        pytest.skip("tensorflow_model_server is not on the PATH, nor named by TF_SERVING_BIN")
    version = shutil.copytree(exported_generator, tmp_path / "writer" / "1")
    with real(version) as client:

        def answers():
            return len(client.call("serving_default", text=(["ab"], tf.string))["text"]) == 1

        def publish(number, spoil=None):
            aside = shutil.copytree(exported_generator, tmp_path / "aside")
            if spoil is not None:
                (aside / spoil).write_bytes((aside / spoil).read_bytes()[:-40])
            os.rename(aside, version.parent / str(number))

        publish(2)
        in_time(lambda: client.states()[2][0] == "AVAILABLE" and client.states()[1][0] == "END")
        assert answers()
        for number, spoil in ((3, "saved_model.pb"), (4, "assets.extra/tf_serving_warmup_requests")):
            publish(number, spoil)
            in_time(lambda number=number: client.states()[number] > ("END", ""))
            assert client.states()[2][0] == "AVAILABLE"
            assert answers()
