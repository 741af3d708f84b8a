"""The command line of language models."""

import os
import threading
import types

import pytest
from command_line import pictures, refuses, run, succeeds
from zoo_training.cli import generate, lines
from zoo_training.cli.lines import read_piped

import zoo
from zoo import TextGenerator, Translator
from zoo.models import GPT, RNNSeq2Seq
from zoo.text import CharacterTokenizer

TOKENIZER = CharacterTokenizer("abc\n ")


@pytest.fixture(scope="module")
def saved(tmp_path_factory, randomize):
    """The folder of a generator that has learnt nothing."""
    model = randomize(GPT(TOKENIZER.size, 8, 2, 1, context_length=20), scale=0.5)
    return TextGenerator(model, TOKENIZER).save(tmp_path_factory.mktemp("generators") / "mine")


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory):
    return zoo.serving.export(zoo.load(saved), tmp_path_factory.mktemp("exported") / "mine").parent


@pytest.fixture(params=["saved", "exported"])
def folder(request):
    return request.getfixturevalue(request.param)


class TestGenerate:
    @pytest.mark.long
    def test_the_prompt_and_how_it_goes_on(self, folder, saved):
        expected = zoo.load(saved)(["ab"], max_new_tokens=9, temperature=0.7, seed=5)[0]
        found = succeeds("generate", folder, "ab", "-n", "9", "--temperature", "0.7", "--seed", "5")
        assert found == f"ab{expected}\n"

    def test_a_prompt_stays_as_it_is_but_for_what_is_not_utf_8(self, saved):
        assert succeeds("generate", saved, "\x1b[31ma", "-n", 0) == "\x1b[31ma\n"
        told = run("generate", saved, "a\udce9", "-n", 0)  # as Python gives the byte E9
        assert told.stdout == "a\ufffd\n"
        assert told.stderr == "zoo: warning: TEXT:1: not UTF-8; broken bytes are read as U+FFFD\n"

    def test_every_setting_is_passed_on(self, saved):
        settings = dict(temperature=2.0, top_k=3, top_p=0.9, repetition_penalty=1.5, stop=["ca", "b\n"])
        expected = zoo.load(saved)(["a"], seed=1, **settings)[0]
        options = [
            *("--seed", 1, "--temperature", 2, "--top-k", 3, "--top-p", 0.9, "--repetition-penalty", 1.5),
            *("--stop", "ca", "--stop", "b\n"),
        ]
        assert succeeds("generate", saved, "a", *options) == f"a{expected}\n"

    def test_without_a_prompt_it_begins_at_the_start_and_without_a_seed_anywhere(self, saved):
        expected = zoo.load(saved)([""], seed=1)[0]
        assert succeeds("generate", saved, "--seed", 1) == f"{expected}\n"
        assert len({succeeds("generate", saved) for _ in range(3)}) > 1

    def test_several_prompts_and_samples(self, saved):
        generator = zoo.load(saved)
        texts = [
            prompt + generator([prompt], seed=3 + number, max_new_tokens=4)[0]
            for number, prompt in enumerate(["a", "a", "b", "b"])
        ]
        rule = "\n" + "-" * 20 + "\n"
        assert succeeds("generate", saved, "a", "b", "--samples", 2, "--seed", 3, "-n", 4) == rule.join(texts) + "\n"

    def test_a_prompt_of_several_lines_from_a_file(self, saved, tmp_path):
        (tmp_path / "prompt.txt").write_text("ab\nc\n")
        expected = zoo.load(saved)(["ab\nc\n"], seed=0)[0]
        assert succeeds("generate", saved, "--file", tmp_path / "prompt.txt", "--seed", 0) == f"ab\nc\n{expected}\n"

    def test_a_prompt_that_is_piped_in_loses_the_line_end_that_echo_adds(self, saved, monkeypatch):
        expected = zoo.load(saved)(["ab\nc"], seed=0)[0]
        assert succeeds("generate", saved, "--seed", 0, stdin="ab\r\nc\r\n") == f"ab\nc{expected}\n"
        assert succeeds("generate", saved, "-n", 0, stdin="ab\n\n") == "ab\n\n"
        assert succeeds("generate", saved, "b", "-n", 0, stdin="a") == "b\n"  # stdin is not read
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
        assert read_piped() == ""

    def test_a_pipe_that_nobody_writes_to_is_named(self, saved, monkeypatch, capsys):
        """As the stdin of a service may be. The model is looked for before."""
        monkeypatch.setattr(lines, "_PATIENCE", 0.01)
        reading, writing = os.pipe()
        with open(reading) as stdin, open(writing, "w") as other_end:
            monkeypatch.setattr("sys.stdin", stdin)
            threading.Timer(0.2, other_end.close).start()
            assert read_piped() == ""
        told = 'zoo: waiting for a prompt on stdin; give "" as the prompt to begin a text without one\n'
        assert capsys.readouterr().err == told
        assert succeeds("generate", saved, "", "-n", 0) == "\n"  # stdin is not read
        monkeypatch.setattr(generate, "read_piped", None)
        assert "nowhere does not exist" in refuses("generate", "nowhere")

    def test_a_prompt_of_another_encoding(self, saved, tmp_path):
        (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfab\r\nc\n")
        (tmp_path / "plain").write_bytes(b"ab\nc\n")
        for command in (["generate", saved, "--seed", 0], ["score", saved, "--document"]):
            marked, plain = (succeeds(*command, "--file", tmp_path / name) for name in ("marked", "plain"))
            assert marked.replace("marked", "plain") == plain
            (tmp_path / "wide").write_text("ab\nc\n", "utf-16")
            told = refuses(*command, "--file", tmp_path / "wide")
            assert told.startswith(f"{tmp_path}/wide: UTF-16, and not UTF-8; convert it")
            (tmp_path / "broken").write_bytes(b"ab\nc\xff\n")
            warned = run(*command, "--file", tmp_path / "broken")
            assert warned.exit_code == 0
            told = f"zoo: warning: {tmp_path}/broken:2: not UTF-8; broken bytes are read as U+FFFD\n"
            assert warned.stderr == told

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["a", "--repetition-penalty", "0"], "--repetition-penalty must be from 1e-06 to"),
            (["a", "--stop", ""], "--stop must hold strings of 1 to 64 bytes"),
            (["a", "--file", "b"], "prompts and --file were both given"),
            (["--file", "missing.txt"], "missing.txt: No such file or directory"),
        ],
    )
    def test_mistakes(self, saved, arguments, message):
        assert message in refuses("generate", saved, *arguments)

    def test_a_path_that_looks_like_a_setting_stays_as_it_was_typed(self, tmp_path):
        missing = tmp_path / "seed=3" / "`stop`"
        assert refuses("generate", missing, "a").startswith(f"{missing} does not exist")
        tokenizer = CharacterTokenizer("ab")
        Translator(RNNSeq2Seq(6, 6, units=4), tokenizer, tokenizer).save(tmp_path / "seed=3" / "top_k=1")
        told = refuses("generate", tmp_path / "seed=3" / "top_k=1", "a")
        assert told.startswith(f"{tmp_path}/seed=3/top_k=1 is a translator")

    def test_a_translator_is_none(self, tmp_path):
        tokenizer = CharacterTokenizer("ab")
        Translator(RNNSeq2Seq(6, 6, units=4), tokenizer, tokenizer).save(tmp_path / "mine")
        for command in ("generate", "score"):
            told = refuses(command, tmp_path / "mine", "a")
            assert told.endswith(
                "is a translator, which does not continue a text, nor score one by itself; see `zoo translate`"
            )


class TestAttend:
    def test_every_head_or_what_is_chosen(self, folder, tmp_path):
        page = tmp_path / "page.html"
        succeeds("attend", folder, "abc", "ba", "--out", page)
        (first,), (second,) = (picture["kinds"] for picture in pictures(page))
        assert first["shape"][:2] == second["shape"][:2] == [len(first["layers"]), 2]
        assert (first["title"], first["heads"]) == ("Self-attention", ["head 1", "head 2"])
        succeeds("attend", folder, "abc", "--heads", 2, "--layers", 1, "--out", page)
        (chosen,) = pictures(page)[0]["kinds"]
        assert (chosen["layers"], chosen["heads"]) == (["layer 1"], ["head 2"])

    def test_there_is_no_encoder(self, folder, tmp_path):
        told = refuses("attend", folder, "abc", "--encoder", "--out", tmp_path / "page.html")
        assert told == f"{folder} is a language model, which has no encoder"
        assert list(tmp_path.iterdir()) == []


class TestScore:
    def test_a_line_for_each_text(self, folder, saved, tmp_path):
        texts = ["ab", "", "c a"]
        scores = zoo.load(saved).score(texts)
        expected = [f"{one.log_probability:.4f}\t{one.tokens}\t{one.perplexity:.4f}\t{one.text}" for one in scores]
        assert succeeds("score", folder, *texts).splitlines() == expected
        (tmp_path / "lines").write_text("\n".join(texts) + "\n")
        assert succeeds("score", folder, "--file", tmp_path / "lines").splitlines() == expected
        assert succeeds("score", folder, stdin="\n".join(texts) + "\n").splitlines() == expected

    def test_a_file_as_one_document(self, folder, saved, tmp_path):
        (tmp_path / "text").write_text("ab\nc a\n" * 9)
        (one,) = zoo.load(saved).score(["ab\nc a\n" * 9])
        assert one.tokens == 63 > 20
        *figures, name = succeeds("score", folder, "--document", "--file", tmp_path / "text").split("\t")
        # An export's products sum in another order.
        wanted = pytest.approx([one.log_probability, 63, one.perplexity], abs=1e-3)
        assert ([float(figure) for figure in figures], name) == (wanted, f"{tmp_path / 'text'}\n")
        assert "--document needs a --file" in refuses("score", folder, "--document", "ab")

    def test_a_stride(self, saved, exported):
        (one,) = zoo.load(saved).score(["abc" * 20], stride=3)
        assert succeeds("score", saved, "--stride", 3, "abc" * 20).startswith(f"{one.log_probability:.4f}\t60\t")
        told = refuses("score", saved, "--stride", 99, "a")
        assert told == "--stride must be from 1 to the context's 20. Received: 99"
        told = refuses("score", exported, "--stride", 3, "a")
        assert told.startswith(
            "An exported model scores with the stride that it was exported with. For another --stride"
        )
        assert told.endswith(" Received: --stride 3")
