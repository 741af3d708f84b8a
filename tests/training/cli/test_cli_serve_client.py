"""The command that asks a server, against servers on loopback that speak as TensorFlow Serving."""

import json
import os
import pathlib
import socket
import sys
import time

import pytest
from command_line import refuses, run, succeeds

RULE = "-" * 20


@pytest.fixture(scope="module")
def fakes():
    """The fakes of the client's own tests, and their models."""
    folder = str(pathlib.Path(__file__).parents[2] / "serving")
    sys.path.insert(0, folder)
    try:
        import fake_models
        import fake_serving
    finally:
        sys.path.remove(folder)
    return fake_serving, fake_models


@pytest.fixture(scope="module")
def rest(fakes):
    serving, models = fakes
    with serving.FakeRest(models.models(), models.LABELS) as fake:
        yield fake


@pytest.fixture(scope="module", params=["rest", "grpc"])
def server(request, fakes, rest):
    """The arguments that lead to a server, by either protocol."""
    if request.param == "rest":
        yield [rest.address]
        return
    serving, models = fakes
    with serving.FakeGrpc(models.models(), models.LABELS) as fake:
        yield ["--grpc", fake.address]


@pytest.fixture(autouse=True)
def anew(rest):
    rest.failures, rest.calls = [], []


class TestTranslating:
    def test_a_line_for_each_text(self, server, tmp_path):
        texts = ["cab", "", "é 😀"]
        assert succeeds("serve-client", *server, "upper", "--version", 1, *texts) == "CAB\n\nÉ 😀\n"
        assert succeeds("serve-client", *server, "upper", "--label", "canary", "a") == "A2\n"
        (tmp_path / "lines").write_text("\n".join(texts) + "\n")
        assert (
            succeeds("serve-client", *server, "upper", "--version", 1, "--file", tmp_path / "lines") == "CAB\n\nÉ 😀\n"
        )
        assert succeeds("serve-client", *server, "upper", stdin="a\r\nb\n") == "A2\nB2\n"
        assert succeeds("serve-client", *server, "upper", stdin="") == ""

    def test_as_json(self, server):
        printed = succeeds("serve-client", *server, "upper", "--version", 1, "--json", "é", "b c")
        assert [json.loads(line) for line in printed.splitlines()] == [
            {"source": "é", "text": "É", "score": -1.0},
            {"source": "b c", "text": "B C", "score": -1.5},
        ]
        assert "É" in printed, "letters, not escapes"

    def test_with_settings_by_the_signature_that_takes_them(self, server):
        for options in (["--set", "max_target_length=2"], ["--signature", "generate", "--set", "max_target_length=2"]):
            assert succeeds("serve-client", *server, "upper", *options, "cab", "d") == "CA\nD\n"
        printed = succeeds("serve-client", *server, "upper", "--json", "--set", "length_penalty=0.5", "cab")
        assert json.loads(printed) == {"source": "cab", "text": "CAB", "score": 0.5}
        assert succeeds("serve-client", *server, "upper", "--signature", "generate", "--version", 1, "cab") == "CAB\n"


class TestGenerating:
    def test_a_text_is_printed_while_it_is_written(self, rest):
        # `tell` says what it was asked for, and ends with the prompt's length: at the first question, for 8 tokens.
        arguments = ("--stream", "--set", "seed=5", "--set", "top_k=3")
        once = succeeds("serve-client", rest.address, "teller", *arguments[1:], "--set", "max_new_tokens=8", "ab", "c")
        assert succeeds("serve-client", rest.address, "teller", *arguments, "ab", "c") == once
        told = refuses("serve-client", rest.address, "upper", "--stream", "a")
        assert told == "--stream is for the texts of a language model, without --json"
        told = refuses("serve-client", rest.address, "teller", "--stream", "--set", "seed=abc", "a")
        assert told == "`seed` must be a whole number. Received: seed='abc'"

    def test_prompts_and_how_they_go_on(self, server):
        settings = ["max_new_tokens=9", "temperature=0.5", "top_k=3", "seed=4", "stop=é", "stop=x=y"]
        options = [part for setting in settings for part in ("--set", setting)]
        stop = "é\0x=y".encode()
        expected = [f"{text}{seed} {stop!r} [9.0, 1.0, 0.5, 3.0, 1.0]" for seed, text in ((4, "a"), (5, "b "))]
        assert succeeds("serve-client", *server, "teller", *options, "a", "b ") == f"\n{RULE}\n".join(expected) + "\n"

    def test_seeds_follow_from_batch_to_batch(self, rest):
        printed = succeeds(
            "serve-client", rest.address, "teller", "--set", "seed=7", "--batch-size", 2, stdin="a\n" * 5
        )
        assert [line[: line.index(" ")] for line in printed.splitlines()[::2]] == [f"a{seed}" for seed in range(7, 12)]
        assert printed.splitlines()[1::2] == [RULE] * 4
        assert [kind for kind, *_ in rest.calls].count("predict") == 3

    def test_as_json(self, server):
        (line,) = succeeds("serve-client", *server, "teller", "--json", "--set", "seed=1", "ab").splitlines()
        assert json.loads(line) == {
            "prompt": "ab",
            "text": "1 b'' [256.0, 1.0, 1.0, 0.0, 1.0]",
            "log_probability": -1.0,
            "tokens": 2,
        }


class TestReading:
    def test_classes(self, server):
        assert succeeds("serve-client", *server, "sorter", "é", "abcdef") == "short\nlong\n"
        (line,) = succeeds("serve-client", *server, "sorter", "--json", "abcdef").splitlines()
        row = json.loads(line)
        assert (row["text"], row["label"], list(row["probabilities"])) == ("abcdef", "long", ["long", "short"])
        assert succeeds("serve-client", *server, "pairs", "--signature", "classify", stdin="\tab\nab\t\n") == (
            "short\nlong\n"
        )
        assert "line 1 must hold two texts with one tab between" in refuses("serve-client", *server, "pairs", stdin="a")

    def test_several_labels(self, server):
        def printed(*options):
            return run("serve-client", *server, "tagger", *options, "ab", "abc", "c")

        assert printed("--above", 0.5).stdout == "short, word\n\nshort, word\n"
        assert printed("--above", 0.5625).stdout == "short\n\nshort\n", "above, and not from"
        assert printed("--above", 0.5).stderr == printed("--json").stderr == ""
        alone = printed("--batch-size", 1)
        assert alone.stdout == "short\nword\nshort\n"
        assert alone.stderr.startswith("zoo: the probabilities do not sum to 1") and alone.stderr.count("\n") == 1
        assert run("serve-client", *server, "sorter", "a").stderr == ""

    def test_above_is_for_classes_on_lines(self, server):
        for options in (["upper"], ["tagger", "--signature", "x"]):
            told = refuses("serve-client", *server, *options, "--above", 0.5, "a")
            assert told == "--above is for the classes of a classifier"
        told = refuses("serve-client", *server, "tagger", "--json", "--above", 0.5, "a")
        assert told == "--above and --json were both given; --json has all probabilities"

    def test_vectors_with_the_digits_of_a_float32(self, server):
        assert succeeds("serve-client", *server, "vectors", "é", "") == (
            '{"text": "é", "embedding": [2.0, -0.1]}\n{"text": "", "embedding": [0.0, -0.1]}\n'
        )

    def test_filled_masks(self, server):
        assert succeeds("serve-client", *server, "masks", "a?b?", "c") == "a!b!\nc\n"
        (line,) = succeeds("serve-client", *server, "masks", "--json", "a?").splitlines()
        assert json.loads(line)["candidates"] == [{"!": pytest.approx(0.7), ";": pytest.approx(0.2)}]

    def test_there_are_no_settings(self, server):
        for model in ("sorter", "vectors", "masks"):
            told = refuses("serve-client", *server, model, "--set", "seed=1", "a")
            assert told == "this model has no settings. Received: seed"


class TestOtherSignatures:
    def test_scores_as_zoo_score_prints_them(self, server):
        printed = succeeds("serve-client", *server, "teller", "--signature", "score", "ab", "")
        assert printed == "-1.0000\t2\t1.6487\tab\n0.0000\t0\t1.0000\t\n"

    def test_what_has_no_form_of_its_own_is_json(self, server):
        printed = succeeds("serve-client", *server, "upper", "--signature", "grid", "a", "b")
        assert [json.loads(line) for line in printed.splitlines()] == [
            {"input": text, "pieces": ["a", "a"], "weights": [[1.0] * 3] * 2} for text in "ab"
        ]
        (line,) = succeeds("serve-client", *server, "teller", "--signature", "serving_default", "ab").splitlines()
        assert json.loads(line) == {"input": "ab", "text": "ab", "log_probability": -1.0, "tokens": 2}

    def test_settings_that_are_not_given_leave_nothing_out(self, server):
        def given(*settings):
            options = [part for setting in settings for part in ("--set", setting)]
            printed = succeeds("serve-client", *server, "upper", "--signature", "complete", *options, "ab", "c")
            return [json.loads(line)["given"] for line in printed.splitlines()]

        # heads, hidden, prefix, text, temperature
        assert given() == ["|||ab|1.0", "|||c|1.0"]
        # What stands for ids is a string, also where it looks like a number.
        assert given("prefix=17", "hidden=2 3", "temperature=0.5") == ["|2 3|17|ab|0.5", "|2 3|17|c|0.5"]
        told = refuses("serve-client", *server, "upper", "--signature", "complete", "--set", "x=1", "ab")
        assert told.startswith("The signature 'complete' takes ")


class TestStatus:
    def test_versions_and_signatures(self, server):
        lines = succeeds("serve-client", *server, "teller", "--status").splitlines()
        assert lines[0] == "version 7\tAVAILABLE"
        assert "score\ttext -> log_probability, tokens" in lines
        printed = json.loads(succeeds("serve-client", *server, "teller", "--status", "--json"))
        assert printed["versions"] == [{"version": 7, "state": "AVAILABLE", "error": ""}]
        assert printed["signatures"]["score"]["inputs"] == {"text": {"dtype": "string", "shape": [None]}}

    def test_the_version_of_a_label_and_one_that_could_not_be_loaded(self, rest):
        lines = succeeds("serve-client", rest.address, "upper", "--status", "--label", "stable").splitlines()
        assert [line for line in lines if line.startswith("version")] == ["version 1\tAVAILABLE"]
        rest.models["gone"] = {1: None}
        assert succeeds("serve-client", rest.address, "gone", "--status") == "version 1\tEND\tno variables\n"


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["lower", "a"], "NOT_FOUND: Servable not found for request: Latest(lower)"),
            (["lower", "--status"], "NOT_FOUND: Could not find any versions of model lower"),
            (["upper", "--signature", "nothing", "a"], "The model 'upper' has no signature 'nothing'; it has binary"),
            (["upper", "--signature", "doubled", "a"], "The signature 'doubled' takes x. Received: text"),
            (
                ["upper", "--set", "seed=1", "a"],
                "this model has no setting 'seed'; there are max_target_length, length_penalty",
            ),
            (
                ["upper", "--signature", "serving_default", "--set", "length_penalty=1", "a"],
                "serving_default takes no settings; leave out --signature. Received: length_penalty",
            ),
            (
                ["teller", "--set", "temprature=1", "a"],
                "this model has no setting 'temprature'; did you mean temperature? There are max_new_tokens, temp",
            ),
            (["teller", "--set", "temperature", "a"], "--set takes NAME=VALUE, such as temperature=0.8"),
            (
                ["teller", "--set", "temperature=hot", "a"],
                "`temperature` must be a number. Received: temperature='hot'",
            ),
            (["teller", "--set", "top_k=1.5", "a"], "`top_k` must be a whole number"),
            (["upper", "--version", "1", "--label", "stable", "a"], "Give --version or --label, not both"),
            (["upper", "--timeout", "0", "a"], "--timeout must be a number of seconds above 0"),
            (["upper", "--file", "missing.txt"], "missing.txt: No such file or directory"),
        ],
    )
    def test_one_line_and_exit_code_2(self, server, arguments, message):
        assert message in refuses("serve-client", *server, *arguments)

    def test_nobody_there(self):
        assert "ADDRESS must be host, host:port" in refuses("serve-client", "a:b", "upper", "a")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        told = refuses("serve-client", address, "upper", "a")
        assert told.startswith(
            f"{address}, model 'upper': UNAVAILABLE: Connection refused (over REST). Is the server running"
        )

    def test_a_server_that_hangs(self, rest):
        rest.failures = ["hang"]
        began = time.monotonic()
        told = refuses("serve-client", rest.address, "upper", "--timeout", "0.3", "a")
        assert "DEADLINE_EXCEEDED: no answer within 0.3 s. Give a longer timeout" in told
        assert time.monotonic() - began < 3

    def test_what_came_before_an_error_is_printed(self, rest, fakes):
        rest.models["brittle"] = {1: rest.models["teller"][7]}
        rest.failures = [None, None, fakes[0].Refusal("INTERNAL", "out of memory")]
        result = run("serve-client", rest.address, "brittle", "--set", "seed=1", "--batch-size", 1, "a", "b")
        assert (result.exit_code, result.stdout.splitlines()[0][:2]) == (2, "a1")
        assert "INTERNAL: out of memory" in result.stderr


def test_by_rest_tensorflow_is_not_started(rest, zoo_command, tmp_path):
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    finished = zoo_command("serve-client", rest.address, "upper", cwd=tmp_path, input="a\n", env=environment)
    assert (finished.returncode, finished.stdout) == (0, "A2\n")
    assert "zoo.serving.clients" in finished.stderr
    imported = [line.rpartition("|")[2].strip().partition(".")[0] for line in finished.stderr.splitlines()]
    assert not {"tensorflow", "keras", "grpc", "tensorflow_serving"} & set(imported)


def test_by_grpc_stderr_is_quiet(fakes, zoo_command, tmp_path):
    serving, models = fakes
    with serving.FakeGrpc(models.models()) as fake:
        finished = zoo_command("serve-client", "--grpc", fake.address, "upper", "é", cwd=tmp_path)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "É2\n", "")
