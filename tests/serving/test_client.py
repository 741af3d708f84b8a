"""The client against servers on loopback that speak as TensorFlow Serving: answers, errors, patience."""

import concurrent.futures
import contextlib
import inspect
import json
import math
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from fake_models import LABELS, model_from, models
from fake_serving import FakeGrpc, FakeRest, Refusal

from zoo.serving import ServingClient, ServingError
from zoo.serving.clients import rest
from zoo.serving.clients.messages import Address, Signature, TensorSpec, VersionStatus
from zoo.tasks.text_continuation import TextContinuation

FAKES = {"rest": FakeRest, "grpc": FakeGrpc}
TEXTS = ["cab", "", "é 1", "日本語 😀", 'a"b\\c\nd\te\0f', "\ufeff\u2028", "dd" * 300]


@pytest.fixture(scope="module")
def all_models(servable, servable_generator):
    """Also a translator and a generator that were exported."""
    exports = {"tiny": servable, "tiny-teller": servable_generator}
    return {**models(), **{name: {1: model_from(each.path, each._saved_model)} for name, each in exports.items()}}


@pytest.fixture(scope="module", params=["rest", "grpc"])
def fake(request, all_models):
    with FAKES[request.param](all_models, LABELS) as fake:
        fake.protocol = request.param
        yield fake


@pytest.fixture
def client(fake):
    """A function that makes clients of the server."""
    fake.failures, fake.calls = [], []

    def make(model="upper", **arguments):
        return ServingClient(fake.address, model, protocol=fake.protocol, **{"timeout": 20, **arguments})

    return make


@pytest.fixture
def rest_fake():
    with FakeRest(models(), LABELS) as fake:
        yield fake


@pytest.fixture(params=["rest", "grpc"])
def nobody(request):
    """Protocol and address of a port without a server."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return {"protocol": request.param, "address": f"127.0.0.1:{port}"}


def listed(outputs):
    return {name: array.tolist() for name, array in outputs.items()}


class TestPredict:
    def test_strings_and_scores(self, client):
        outputs = client(version=1).predict(text=TEXTS)
        assert outputs["text"].tolist() == [text.upper().encode() for text in TEXTS]
        assert outputs["score"].tolist() == [-len(text.encode()) / 2 for text in TEXTS]
        assert (outputs["text"].dtype, outputs["score"].dtype) == (object, np.float32)

    def test_a_request_without_rows_is_answered_by_the_client(self, client, fake):
        """A server that batches would never answer it, nor free its thread."""
        outputs = client().predict(text=[])
        assert {name: (array.shape, array.dtype) for name, array in outputs.items()} == {
            "text": ((0,), object),
            "score": ((0,), np.float32),
        }
        assert client().predict("doubled", x=np.zeros([0, 2], int))["y"].shape == (0, 2)
        with pytest.raises(ValueError, match="A request to 'total' needs at least one row: its output 'size'"):
            client("total").predict("total", text=[])
        assert "predict" not in [kind for kind, *_ in fake.calls]

    def test_every_byte_there_and_back(self, client):
        data = [bytes(range(256)), b"", "é".encode(), b"\xff", b"\0"]
        assert listed(client().predict("binary", data=data)) == {"data_bytes": data, "length": [256, 0, 2, 1, 1]}

    def test_types_of_numbers(self, client):
        given = {
            "flags": [True, False],
            "small": [0, 255],
            "whole": [2**63 - 1, -(2**63)],
            "double": [[0.1, 1], [math.pi, -1e300]],
        }
        outputs = client().predict("kinds", **given)
        assert listed(outputs) == given
        assert [array.dtype.name for array in outputs.values()] == ["float64", "bool", "uint8", "int64"]
        found = client().predict("limits", text=["a"] * 4)["x"]
        np.testing.assert_array_equal(found, np.float32([np.nan, np.inf, -np.inf, 1e-30]))

    def test_arrays_are_given_as_well_as_lists_and_may_have_several_axes(self, client):
        for texts in (np.array(["a", "é"]), np.array([b"a", "é".encode()], object)):
            assert client(version=1).predict(text=texts)["text"].tolist() == [b"A", "É".encode()]
        doubled = client().predict("doubled", x=np.int64([[1, 2], [-5, 0]]))
        assert listed(doubled) == {"y": [[2.5, 5.0], [-12.5, 0.0]]}  # by REST an output without a name
        outputs = client().predict("grid", text=["a", "b"])
        assert outputs["pieces"].tolist() == [[b"a"] * 2] * 2
        assert outputs["weights"].shape == (2, 2, 3)
        assert client().predict("grid", text=[])["weights"].shape == (0, 0, 0)

    @pytest.mark.parametrize(
        ("signature", "inputs", "message"),
        [
            ("nothing", {"text": ["a"]}, r"'upper' has no signature 'nothing'; it has binary, broken, complete"),
            ("doubled", {"y": [[1, 2]]}, r"The signature 'doubled' takes x\. Received: y$"),
            ("doubled", {}, r"takes x\. Received: none$"),
            ("doubled", {"x": [[1, 2.5]]}, r"`x` must hold int32\. Received: x=\[\[1, 2\.5\]\]"),
            ("doubled", {"x": [[1, 2], [3]]}, r"`x` must hold int32 in lists of equal lengths"),
            ("doubled", {"x": [[2**31, 0]]}, r"`x` must be from -2147483648 to 2147483647"),
            ("doubled", {"x": [1, 2]}, r"`x` must have the shape \[any, 2\]\. Received: \[2\]"),
            ("doubled", {"x": [[1, 2, 3]]}, r"`x` must have the shape \[any, 2\]\. Received: \[1, 3\]"),
            ("serving_default", {"text": "a"}, r"`text` must have the shape \[any\]\. Received: \[\]"),
            (
                "serving_default",
                {"text": ["a", 1]},
                r"`text` must hold strings, in lists of equal lengths\. Received: 1",
            ),
            ("serving_default", {"text": [["a"], ["b", "c"]]}, r"`text` must hold strings, in lists of equal lengths"),
        ],
    )
    def test_mistakes_are_told_before_anything_is_sent(self, client, fake, signature, inputs, message):
        with pytest.raises(ValueError, match=message):
            client().predict(signature, **inputs)
        assert [kind for kind, *_ in fake.calls] == ["metadata"]

    def test_what_is_known_of_the_model_is_asked_once(self, client, fake):
        with client() as one:
            for _ in range(3):
                one.predict(text=["a"])
        assert [kind for kind, *_ in fake.calls] == ["metadata", "predict", "predict", "predict"]

    def test_by_rest_broken_utf8_is_an_error_that_says_so(self, rest_fake):
        with pytest.raises(ServingError, match="UNKNOWN: the answer is not JSON"):
            ServingClient(rest_fake.address, "upper").predict("broken", text=["a"])

    def test_from_several_threads(self, client):
        one, texts = client(version=1), [f"text {number}" for number in range(60)]
        with concurrent.futures.ThreadPoolExecutor(6) as threads:
            found = list(threads.map(lambda text: one.predict(text=[text])["text"][0].decode(), texts))
        assert found == [text.upper() for text in texts]


class TestWhichVersion:
    def test_the_newest_a_number_or_a_label(self, client):
        for arguments, suffix in (
            ({}, "2"),
            ({"version": 1}, ""),
            ({"version": 2}, "2"),
            ({"version": "2"}, "2"),
            ({"label": "stable"}, ""),
            ({"label": "canary"}, "2"),
        ):
            assert client(**arguments).translate(["a"])[0].text == f"A{suffix}"
        assert client("ümlaut & co").translate(["a"])[0].text == "A"

    def test_it_is_in_the_path(self, rest_fake):
        seen = []
        respond = rest_fake.respond
        rest_fake.respond = lambda handler, *others: (seen.append(handler.path), respond(handler, *others))[1]
        ServingClient(rest_fake.address, "upper", version=np.int64(2)).translate(["a"])
        ServingClient(f"http://{rest_fake.address}/", "upper", label="stable").translate(["a"])
        assert seen == [
            "/v1/models/upper/versions/2/metadata",
            "/v1/models/upper/versions/2:predict",
            "/v1/models/upper/labels/stable/metadata",
            "/v1/models/upper/labels/stable:predict",
        ]

    @pytest.mark.parametrize("arguments", [{"model": "lower"}, {"version": 3}])
    def test_none_of_that_name(self, client, fake, arguments):
        with pytest.raises(ServingError) as caught:
            client(**arguments).predict(text=["a"])
        assert caught.value.code == "NOT_FOUND"
        assert str(caught.value) == (
            f"{fake.address}, model {arguments.get('model', 'upper')!r}: NOT_FOUND: Servable not found for request: "
            f"{'Latest(lower)' if 'model' in arguments else 'Specific(upper, 3)'}. Is this the model's name on the "
            "server, and is that version or label loaded? `zoo serve-client ADDRESS MODEL --status` shows it."
        )

    def test_no_such_label(self, client):
        for ask in (lambda brave: brave.predict(text=["a"]), ServingClient.signatures, ServingClient.status):
            with pytest.raises(ServingError, match="Unrecognized servable version label: brave") as caught:
                ask(client(label="brave"))
            assert str(caught.value).endswith(
                "or --label of `zoo serve`)? `zoo serve-client ADDRESS MODEL --status` shows the versions."
            )
            assert "signatures" not in str(caught.value)


class TestWhatTheServerTells:
    def test_signatures(self, client):
        found = client("teller").signatures()
        assert list(found) == ["generate", "score", "serving_default"]
        assert found["score"] == Signature(
            {"text": TensorSpec("string", (None,))},
            {"log_probability": TensorSpec("float32", (None,)), "tokens": TensorSpec("int32", (None,))},
        )
        assert client().signatures()["doubled"].inputs == {"x": TensorSpec("int32", (None, 2))}

    def test_signatures_of_an_export(self, client):
        """A SavedModel lists its initializer too, which nobody calls."""
        assert list(client("tiny").signatures()) == ["attention", "generate", "score", "serving_default"]

    def test_status(self, client, fake):
        available = [VersionStatus(number, "AVAILABLE") for number in (1, 2)]
        assert client().status() == available
        assert client(version=2).status() == available[1:]
        assert client(label="canary").status() == available[1:]
        fake.models["upper"][3] = None  # which could not be loaded
        try:
            assert client().status() == [*available, VersionStatus(3, "END", "no variables")]
        finally:
            del fake.models["upper"][3]
        with pytest.raises(ServingError, match="Could not find any versions of model lower"):
            client("lower").status()


class TestTexts:
    @pytest.mark.parametrize("fake", ["rest"], indirect=True)  # what both protocols carry is tested above
    def test_translations_scores_and_attention_are_those_of_the_export(self, client, servable):
        texts = ["cab", "", "4321 abcd", "é 1", "dd", "a"]
        found = client("tiny").translate(texts, batch_size=4)
        for ours, theirs in zip(found, servable.translate(texts), strict=True):
            assert (ours.source, ours.text) == (theirs.source, theirs.text)
            assert ours.score == pytest.approx(theirs.score, abs=1e-5)
        assert len({each.text for each in found}) > 3
        texts, targets = ["cab", "", "4321 abcd"], ["zyx", "", "9"]
        found = client("tiny").score(texts, targets, batch_size=2)
        for ours, theirs in zip(found, servable.score(texts, targets), strict=True):
            assert (ours.text, ours.tokens) == (theirs.text, theirs.tokens)
            assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
        outputs = client("tiny").predict("attention", text=["cab", "é 1"])
        for row, theirs in enumerate(servable.attend(["cab", "é 1"])):
            target, source = theirs.weights.shape
            np.testing.assert_allclose(outputs["weights"][row, :target, :source], theirs.weights, atol=1e-6)
            assert [each.decode() for each in outputs["target_tokens"][row, :target]] == theirs.target_tokens

    @pytest.mark.parametrize("fake", ["rest"], indirect=True)
    def test_settings_and_in_the_place_of_what_is_not_given_the_models_own(self, client, servable):
        texts = ["cab", "", "4321 abcd", "é 1"]
        own = [each.text for each in client("tiny").translate(texts)]
        short = client("tiny").translate(texts, batch_size=3, max_target_length=[2, 2, 99, 1])
        assert [each.text for each in short] == [own[0][:2], "", own[2], own[3][:1]]
        assert [each.text for each in client("tiny").translate(texts, length_penalty=2)] == own, "its beam is of one"
        # A fake model shows which values arrive.
        found = client().translate(["abc", "de"], max_target_length=1)
        assert [(each.text, each.score) for each in found] == [("A", -1.0), ("D", -1.0)]
        found = client().translate(["abc", "de"], length_penalty=[0.5, 0])
        assert [(each.text, each.score) for each in found] == [("ABC", 0.5), ("DE", 0.0)]

    @pytest.mark.parametrize("fake", ["rest"], indirect=True)
    def test_generations_and_scores_are_those_of_the_export(self, client, servable_generator):
        texts = ["ab", "", "c a"]
        settings = dict(temperature=[0.8, 1.5, 0], top_k=3, top_p=0.9, repetition_penalty=1.2, stop=["ca", "b b"])
        found = client("tiny-teller").generate(texts, max_new_tokens=9, seed=5, batch_size=2, **settings)
        wanted = servable_generator.generate(texts, max_new_tokens=9, seed=5, batch_size=3, **settings)
        for ours, theirs in zip(found, wanted, strict=True):
            assert (ours.prompt, ours.text, ours.tokens) == (theirs.prompt, theirs.text, theirs.tokens)
            assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
        for ours, theirs in zip(client("tiny-teller").score(texts), servable_generator.score(texts), strict=True):
            assert (ours.text, ours.tokens) == (theirs.text, theirs.tokens)
            assert ours.perplexity == pytest.approx(theirs.perplexity, rel=1e-4)

    def test_every_setting_arrives_in_its_row(self, client):
        # max_new_tokens, repetition_penalty, temperature, top_k, top_p; after seed and stop
        assert [each.text for each in client("teller").generate(["a", "bb", "c"], seed=3)] == [
            f"{seed} b'' [256.0, 1.0, 1.0, 0.0, 1.0]" for seed in (3, 4, 5)
        ]
        found = client("teller").generate(
            ["ccc", "bb", "a"],
            max_new_tokens=[1, 2, 3],
            temperature=0.5,
            top_k=[7, 8, 9],
            top_p=0.25,
            repetition_penalty=1.5,
            seed=[-1, 2**40, 0],
            stop=["é", "\n"],
            batch_size=2,
        )
        stop = "é\0\n".encode()
        assert [each.text for each in found] == [
            f"-1 {stop!r} [1.0, 1.5, 0.5, 7.0, 0.25]",
            f"{2**40} {stop!r} [2.0, 1.5, 0.5, 8.0, 0.25]",
            f"0 {stop!r} [3.0, 1.5, 0.5, 9.0, 0.25]",
        ]
        assert [each.prompt for each in found] == ["ccc", "bb", "a"]

    def test_unsigned_seeds(self, client):
        one = client("teller")
        for seed in (np.uint64(7), np.uint64([7, 8])):
            found = one.generate(["a", "b"], seed=seed)
            assert [each.text[:2] for each in found] == ["7 ", "8 "]

    def test_a_stream_never_joins_the_texts_of_two_models(self, client, monkeypatch):
        one, answers = client("teller"), iter(["first ", "another text"])
        monkeypatch.setattr(
            one, "_generated", lambda _, columns, stop: ([next(answers).encode()], [0.0], columns["max_new_tokens"])
        )
        pieces = one.stream("a", seed=1)
        assert next(pieces) == "first "
        with pytest.raises(ServingError, match="the text changed while it was written; another version") as caught:
            next(pieces)
        assert caught.value.code == "ABORTED"

    def test_batches_are_no_larger_than_was_said(self, client, fake):
        client().translate(["a"] * 7, batch_size=3)
        assert [kind for kind, *_ in fake.calls].count("predict") == 3

    def test_no_texts_need_no_server(self, nobody):
        with ServingClient(nobody["address"], "upper", protocol=nobody["protocol"]) as nowhere:
            assert (nowhere.translate([]), nowhere.generate([]), nowhere.score([])) == ([], [], [])

    def test_half_a_surrogate_pair(self, client):
        assert client(version=1).translate(["a\ud800b"])[0].text == "A?B"

    def test_classes_of_texts_and_of_pairs(self, client):
        found = client("sorter").classify(["é", "abcdef", ""], batch_size=2)
        assert [(each.text, each.label) for each in found] == [("é", "short"), ("abcdef", "long"), ("", "short")]
        assert found[1].probabilities == {"long": pytest.approx(0.7), "short": pytest.approx(0.3)}
        assert found[1].probability == found[1].probabilities["long"]
        found = client("pairs").classify([("abcd", ""), ("", "abcd")])
        assert [(each.text, each.label) for each in found] == [(("abcd", ""), "long"), (("", "abcd"), "short")]
        with pytest.raises(ValueError, match=r"must hold pairs of strings\. Received: 'ab' at position 0"):
            client("pairs").classify(["ab"])

    def test_vectors_of_texts(self, client):
        texts = [*TEXTS, "a"]
        found = client("vectors").embed(texts, batch_size=3)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.float32([[len(text.encode()), -0.1] for text in texts]))
        assert client("vectors").embed([]).shape == (0, 2)

    def test_filled_masks(self, client):
        found = client("masks").fill(["a?b??", "ab", "?"])
        assert [each.filled for each in found] == ["a!b!!", "ab", "!"]
        candidates = {"!": pytest.approx(0.7), ";": pytest.approx(0.2)}
        assert [each.candidates for each in found] == [(candidates,) * 3, (), (candidates,)]
        assert client("masks").fill(["ab"])[0].candidates == ()

    def test_a_model_of_another_kind_does_no_work(self, client, fake):
        teller, upper = client("teller"), client()
        for call, message in (
            (
                lambda: teller.translate(["a"]),
                r"its signature 'serving_default' gives log_probability, text, tokens, n",
            ),
            (lambda: upper.generate(["a"]), r"its signature 'generate' gives score, text, not text, log_probability"),
            (lambda: upper.score(["a"]), r"The signature 'score' takes target, text\. Received: text$"),
            (lambda: teller.score(["a"], ["b"]), r"The signature 'score' takes text\. Received: text, target$"),
            (lambda: upper.score(["a"], ["b", "c"]), r"`targets` must be as many as `texts`, 1\. Received: 2"),
        ):
            with pytest.raises(ValueError, match=message):
                call()
        assert "predict" not in [kind for kind, *_ in fake.calls]

    def test_settings_and_texts_that_the_zoo_refuses_are_refused(self, client, fake):
        for settings in ({"temperature": -0.1}, {"top_k": [1, 2]}, {"seed": 0.5}, {"stop": ["a" * 65]}):
            with pytest.raises(ValueError, match=f"`{next(iter(settings))}` must"):
                client("teller").generate(["a"], **settings)
        for settings, message in (
            ({"length_penalty": "1"}, r"`length_penalty` must be a number\. Received: length_penalty='1'"),
            ({"max_target_length": [1, 2]}, "`max_target_length` must be one number, or one for each of the 1 texts"),
            ({"max_target_length": 1.5}, "`max_target_length` must be a whole number"),
        ):
            with pytest.raises(ValueError, match=message):
                client().translate(["a"], **settings)
        for texts in ("a", 1, [1], [b"a"], ["a", None]):
            for call in (client().translate, client("teller").generate, client("teller").score):
                with pytest.raises(ValueError, match="`texts` must"):
                    call(texts)
        assert "predict" not in [kind for kind, *_ in fake.calls]

    def test_the_calls_are_those_of_the_zoo(self):
        """They are written twice; see the module."""
        defaults = [
            {key: each.default for key, each in inspect.signature(generate).parameters.items()}
            for generate in (ServingClient.generate, TextContinuation.generate)
        ]
        assert defaults[0] == defaults[1]


class TestErrorsOfTheServer:
    @pytest.mark.parametrize(
        ("code", "advice"),
        [
            ("INVALID_ARGUMENT", "The model's signatures say what it takes."),
            ("NOT_FOUND", "--status` shows it."),
            ("INTERNAL", "The server's log says more."),
        ],
    )
    def test_its_text_is_told_in_one_line_and_it_is_not_asked_again(self, client, fake, code, advice):
        one = client()
        one.signatures()
        fake.failures = [Refusal(code, "Tensor é\n  of shape [2]\n has a fault.")]
        with pytest.raises(ServingError) as caught:
            one.predict(text=["a"])
        assert str(caught.value).startswith(
            f"{fake.address}, model 'upper': {code}: Tensor é of shape [2] has a fault. "
        )
        assert str(caught.value).endswith(advice)
        assert (caught.value.code, caught.value.model, caught.value.errno) == (code, "upper", None)
        assert caught.value.said == "Tensor é\n  of shape [2]\n has a fault."
        assert isinstance(caught.value, OSError)

    def test_after_one_the_signatures_are_asked_for_anew(self, client, fake):
        """The version may be another, with other signatures."""
        one = client()
        one.predict(text=["a"])
        fake.failures = [Refusal("INVALID_ARGUMENT", "no")]
        with pytest.raises(ServingError):
            one.predict(text=["a"])
        one.predict(text=["a"])
        assert [kind for kind, *_ in fake.calls] == ["metadata", "predict", "metadata", "predict"]

    def test_long_ones_are_cut(self, client, fake):
        fake.failures = [Refusal("INTERNAL", "word " * 200)]
        with pytest.raises(ServingError, match=r"word ?\.\.\.\. The server's log") as caught:
            client().predict(text=["a"])
        assert len(str(caught.value)) < 700
        assert len(caught.value.said) > 900

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "the answer is not JSON: ''"),
            (b"<html>Hello</html>", "the answer is not JSON: '<html>Hello</html>'"),
            (b"[1]", "the answer is not as expected"),
            (b"{}", "the answer is not as expected: KeyError('outputs')"),
            (b'{"outputs": {"text": ["a"]}}', "the answer is not as expected: KeyError('score')"),
            (b'{"outputs": {"text": [1], "score": [1]}}', "1 is no string"),
            (b'{"outputs": {"text": ["a"], "score": ["b"]}}', "could not convert string to float"),
            (b'{"outputs": {"text": [{"b64": "?"}], "score": [1]}}', "the answer is not as expected"),
        ],
    )
    def test_answers_that_are_none(self, rest_fake, body, message):
        with ServingClient(rest_fake.address, "upper") as one:
            one.signatures()
            rest_fake.failures = [body]
            with pytest.raises(ServingError, match="UNKNOWN") as caught:
                one.predict(text=["a"])
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("status", "code", "advice"),
        [
            (413, "OUT_OF_RANGE", "Send fewer or shorter texts at once; `zoo serve` has --max-body."),
            (502, "UNAVAILABLE", "Is the server running"),
        ],
    )
    def test_answers_of_a_proxy(self, rest_fake, monkeypatch, status, code, advice):
        monkeypatch.setattr(rest.RestTransport, "_exchange", lambda *_: (status, b"<html>"))
        with pytest.raises(ServingError) as caught:
            ServingClient(rest_fake.address, "upper", retries=0).signatures()
        assert caught.value.code == code
        assert f"HTTP {status} '<html>'. {advice}" in str(caught.value)

    def test_metadata_that_is_none(self, rest_fake):
        rest_fake.failures = [b'{"metadata": {}}']
        with pytest.raises(ServingError, match="the answer is not as expected"):
            ServingClient(rest_fake.address, "upper").signatures()

    def test_the_wrong_protocol_for_a_port(self, all_models):
        told = r"is this the right port|Is this TensorFlow Serving"
        with FakeGrpc(all_models) as fake, pytest.raises(ServingError, match=told):
            ServingClient(fake.address, "upper", retries=0, timeout=5).status()
        with FakeRest(all_models) as fake, pytest.raises(ServingError, match=told):
            ServingClient(fake.address, "upper", protocol="grpc", retries=0, timeout=5).status()

    def test_it_can_be_handed_from_process_to_process(self):
        error = ServingError("here", "upper", "INTERNAL", "a\nb")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.said) == (str(error), "a\nb")


class TestPatience:
    def test_a_refused_connection(self, nobody):
        began = time.monotonic()
        with pytest.raises(ServingError, match=r"UNAVAILABLE: .*[Cc]onnection refused") as caught:
            ServingClient(nobody["address"], "upper", protocol=nobody["protocol"], timeout=20).status()
        assert "Is the server running" in str(caught.value)
        assert 0.1 < time.monotonic() - began < 5

    def test_an_unknown_host(self):
        with pytest.raises(ServingError, match=r"nowhere\.invalid, model 'upper': UNAVAILABLE: "):
            ServingClient("nowhere.invalid", "upper", retries=0, timeout=20).status()

    @pytest.fixture
    def short_pauses(self, monkeypatch):
        monkeypatch.setattr("zoo.serving.clients.client._FIRST_PAUSE", 0.001)

    @pytest.mark.usefixtures("short_pauses")
    def test_a_server_that_fails_twice_and_then_answers(self, client, fake):
        for code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
            fake.failures = [Refusal(code, "full")] * 2
            assert client(version=1).status() == [VersionStatus(1, "AVAILABLE")]
            one = client(version=1)
            one.signatures()
            fake.failures = [Refusal(code, "full")] * 2
            assert one.translate(["a"])[0].text == "A"
            assert fake.failures == []

    @pytest.mark.usefixtures("short_pauses")
    def test_not_more_often_than_was_said(self, client, fake):
        fake.failures = [Refusal("UNAVAILABLE", "full")] * 9
        with pytest.raises(ServingError, match="UNAVAILABLE: full"):
            client(retries=3).status()
        assert len(fake.failures) == 5

    def test_connections_that_break(self, rest_fake):
        rest_fake.failures = ["reset", "reset"]
        assert ServingClient(rest_fake.address, "upper").translate(["a"])[0].text == "A2"
        rest_fake.failures = ["reset"]
        with pytest.raises(ServingError, match="UNAVAILABLE"):
            ServingClient(rest_fake.address, "upper", retries=0).translate(["a"])

    def test_a_server_that_comes_up_late(self, nobody, all_models):
        """By gRPC a channel would sit out its own pauses, of a second and more, and fail at once until then."""
        fake, port = FAKES[nobody["protocol"]](all_models), int(nobody["address"].rpartition(":")[2])

        def come_up():
            time.sleep(0.5)
            fake.__enter__(port)

        thread = threading.Thread(target=come_up)
        thread.start()
        try:
            one = ServingClient(nobody["address"], "upper", protocol=nobody["protocol"], retries=6, timeout=20)
            began = time.monotonic()
            assert len(one.status()) == 2
            assert time.monotonic() - began < 8
        finally:
            thread.join()
            fake.__exit__()

    def test_a_timeout_holds(self, client, fake):
        one = client(timeout=0.5)
        one.signatures()
        self.wait_in_vain(fake, one, "hang")

    def test_a_timeout_holds_where_each_step_is_in_time(self, rest_fake):
        """An answer that comes byte by byte would never end by the time-out of a socket."""
        one = ServingClient(rest_fake.address, "upper", timeout=0.5)
        one.signatures()
        self.wait_in_vain(rest_fake, one, "trickle")

    @staticmethod
    def wait_in_vain(fake, one, failure):
        fake.failures = [failure] * 3
        began = time.monotonic()
        with pytest.raises(ServingError, match=r"DEADLINE_EXCEEDED: .* Give a longer timeout"):
            one.predict(text=["a"])
        assert 0.4 < time.monotonic() - began < 3
        fake.failures = []
        assert one.status(), "and the client goes on"

    def test_a_timeout_holds_with_the_retries(self, client, fake):
        fake.failures = [Refusal("UNAVAILABLE", "full")] * 1000
        began = time.monotonic()
        with pytest.raises(ServingError, match="UNAVAILABLE: full"):
            client(timeout=1, retries=1000).status()
        assert 0.3 < time.monotonic() - began < 3

    def test_a_timeout_holds_where_a_name_is_looked_up(self, monkeypatch):
        over = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20))
        began = time.monotonic()
        with pytest.raises(ServingError, match="DEADLINE_EXCEEDED"):
            ServingClient("localhost", "upper", timeout=0.3).status()
        over.set()
        assert time.monotonic() - began < 3


class TestConnections:
    def test_one_is_used_again_until_the_server_closes_it(self, rest_fake):
        with ServingClient(
            rest_fake.address, "upper", retries=1
        ) as one:  # its end may be seen only at the next request
            for _ in range(5):
                one.translate(["a"])
            assert rest_fake.connections == 1
            rest_fake.failures = ["close"]  # as a server does with what is idle for long
            assert [one.translate(["a"])[0].text for _ in range(2)] == ["A2", "A2"]
            assert rest_fake.connections == 2
        assert one.translate(["b"])[0].text == "B2"

    def test_a_forked_process_opens_its_own(self, rest_fake):
        """Two processes that read from the same connection would get each other's answers."""
        program = """
import os, sys
from zoo.serving import ServingClient
upper = ServingClient(sys.argv[1], "upper")
texts = [upper.translate(["a"])[0].text]
child = os.fork()
texts += [upper.translate([text])[0].text for text in "bc"]
print(texts, flush=True)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        command = [sys.executable, "-c", program, rest_fake.address]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (finished.returncode, finished.stdout, finished.stderr) == (0, "['A2', 'B2', 'C2']\n" * 2, "")
        assert rest_fake.connections == 2

    @pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
    def test_one_of_grpc_ends_when_nobody_acknowledges_what_it_sends(self, all_models):
        with FakeGrpc(all_models) as fake, ServingClient(fake.address, "upper", protocol="grpc") as one:
            one.status()
            port, found = int(fake.address.rpartition(":")[2]), []
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
                    if each.getpeername()[1:2] == (port,):
                        found.append(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
            assert found == [20_000]  # milliseconds

    def test_a_pickled_client_asks_the_same_version_by_the_same_limits(self, client):
        for which, text in (({"version": 1}, "A"), ({"label": "stable"}, "A"), ({}, "A2")):
            one = client(retries=1, **which)
            one.translate(["a"])
            again = pickle.loads(pickle.dumps(one))
            assert again.translate(["a"])[0].text == text
            assert (again.timeout, again.retries) == (20, 1)

    def test_what_a_proxy_puts_before_the_path(self, rest_fake):
        transport = rest.RestTransport(f"http://{rest_fake.address}/models/here/", "upper", None, None)
        assert transport._path == "/models/here/v1/models/upper"

    @pytest.mark.parametrize(
        ("address", "host", "port", "secure"),
        [
            ("host", "host", 8501, False),
            ("host:80", "host", 80, False),
            ("http://host", "host", 8501, False),
            ("https://host", "host", 443, True),
            ("https://host:8501", "host", 8501, True),
            ("[::1]", "::1", 8501, False),
            ("[::1]:80", "::1", 80, False),
        ],
    )
    def test_addresses(self, address, host, port, secure):
        found = Address.parse(address, 8501)
        assert (found.host, found.port, found.secure) == (host, port, secure)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"protocol": "soap"}, r"`protocol` must be 'rest' or 'grpc'\. Received: protocol='soap'"),
            ({"version": 1, "label": "stable"}, "Give `version` or `label`, not both"),
            *(
                (
                    {"version": version},
                    f"^`version` must be an integer from 0 to 2\\*\\*63 - 1. Received: version={shown}$",
                )
                for version, shown in [(-1, -1), (2**63, 2**63), (True, True), (1.0, 1.0), ("../..//x", "'../..//x'")]
            ),
            ({"label": ""}, "`label` must be the label of a version"),
            ({"timeout": 0}, "`timeout` must be a number of seconds above 0"),
            ({"timeout": float("inf")}, "`timeout` must be"),
            ({"timeout": 1e10}, "at most 100,000,000. Received: timeout=10000000000.0"),
            ({"timeout": float("nan")}, "`timeout` must be"),
            ({"timeout": "30"}, "`timeout` must be a number of seconds above 0, .* Received: timeout='30'$"),
            ({"timeout": None}, "`timeout` must be .* Received: timeout=None$"),
            ({"retries": -1}, "`retries` must be an integer, at least 0. Received: retries=-1$"),
            ({"retries": "2"}, "`retries` must be an integer, at least 0. Received: retries='2'$"),
            ({"model": ""}, "`model` must be the model's name"),
            *(({"address": a}, "`address` must be host") for a in ("", "ftp://a", "a:b", "a:99999", "http://", "a?b")),
            *(({"address": address}, "`address` must be host") for address in ("a:0", "https://a:0")),
            ({"address": "http://host/path", "protocol": "grpc"}, "gRPC knows no paths"),
            *(
                ({"address": address}, "must hold no user's name or password.* Received: one for host$")
                for address in ("https://me:secret@host/tf", "me@host")
            ),
        ],
    )
    def test_of_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            ServingClient(**{"address": "localhost", "model": "upper", **arguments})

    def test_without_the_stubs(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "zoo.serving.clients.grpc", raising=False)
        monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
        monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
        with pytest.raises(ModuleNotFoundError, match=r"gRPC needs .*: pip install tensorflow-serving-api$"):
            ServingClient("localhost", "upper", protocol="grpc")


def test_by_rest_neither_tensorflow_nor_keras_nor_grpc_is_needed(rest_fake):
    program = """
import sys
for name in ("tensorflow", "keras", "grpc", "tensorflow_serving"):
    sys.modules[name] = None  # cannot be imported
from zoo.serving import ServingClient, ServingError
with ServingClient(sys.argv[1], "upper") as upper, ServingClient(sys.argv[1], "teller") as teller:
    print([each.text for each in upper.translate(["a", "é"])], teller.generate(["a"])[0].tokens)
with ServingClient(sys.argv[1], "sorter") as sorter, ServingClient(sys.argv[1], "vectors") as vectors:
    print(sorter.classify(["a"])[0].label, vectors.embed(["a"]).shape)
"""
    command = [sys.executable, "-c", program, rest_fake.address]
    finished = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "['A2', 'É2'] 1\nshort (1, 2)\n", "")


def test_row_and_column_form_are_the_servers(rest_fake):
    """The fake's own rules, which the client's tests lean on."""
    import urllib.request

    def ask(body, signature="serving_default", model="upper/versions/1"):
        data = json.dumps({"signature_name": signature, **body}).encode()
        request = urllib.request.Request(f"http://{rest_fake.address}/v1/models/{model}:predict", data)
        return json.load(urllib.request.urlopen(request, timeout=20))

    assert ask({"instances": ["a", "b"]}) == {
        "predictions": [{"text": "A", "score": -0.5}, {"text": "B", "score": -0.5}]
    }
    assert ask({"inputs": ["a", "b"]}) == {"outputs": {"text": ["A", "B"], "score": [-0.5, -0.5]}}
    assert ask({"instances": [{"x": [1, 2]}]}, "doubled") == {"predictions": [[2.5, 5.0]]}
    assert ask({"inputs": {"x": [[1, 2]]}}, "doubled") == {"outputs": [[2.5, 5.0]]}
    assert ask({"inputs": [{"b64": "/w=="}]}, "binary") == {"outputs": {"data_bytes": [{"b64": "/w=="}], "length": [1]}}
    [pair] = ask({"instances": [{"text": "abcd", "text_pair": ""}]}, "classify", "pairs")["predictions"]
    assert pair["labels"] == ["long", "short"]
    for body in ({"instances": []}, {"inputs": {"y": []}}):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(body)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask({"instances": ["abcd"]}, "classify", "pairs")
