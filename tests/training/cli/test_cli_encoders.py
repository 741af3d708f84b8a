"""The command line of classifiers, embedders and mask fillers."""

import json
import os

import numpy as np
import pytest
from command_line import pictures, refuses, run, succeeds

import zoo
from zoo import MaskFiller, TextClassifier, TextEmbedder
from zoo.models import Classifier, Encoder, MaskedLanguageModel, RNNEncoder, SentenceEmbedder
from zoo.tasks.text_reading import MaskFilling
from zoo.text import CharacterTokenizer, WordPieceTokenizer

CHARACTERS = CharacterTokenizer("abcd ")
PIECES = WordPieceTokenizer(["[MASK]", *"abcd", *(f"##{letter}" for letter in "abcd")])
LABELS = ["low", "middling", "high"]
TEXTS = ["cab", "dab ba c", "", "d"]


def encoder(tokenizer, units=6):
    return Encoder(tokenizer.size, units=units, num_heads=2, num_layers=1, feed_forward_units=8, max_length=16)


@pytest.fixture(scope="module")
def models(tmp_path_factory, randomize):
    """The folder of models of each kind, which have learnt nothing."""
    folder = tmp_path_factory.mktemp("models")
    recurrent = Classifier(RNNEncoder(CHARACTERS.size, units=3), 3, pooling="attention")
    several = Classifier(encoder(CHARACTERS), 3, multi_label=True)
    pooled = Classifier(encoder(CHARACTERS), 3, pooling="attention")
    tasks = {
        "classifier": TextClassifier(randomize(recurrent, scale=3), CHARACTERS, LABELS, max_length=16),
        "pooled": TextClassifier(randomize(pooled), CHARACTERS, LABELS, max_length=16),
        "of_pairs": TextClassifier(randomize(several), CHARACTERS, LABELS, pairs=True),
        "embedder": TextEmbedder(randomize(SentenceEmbedder(encoder(CHARACTERS), normalize=False)), CHARACTERS),
        "narrow": TextEmbedder(randomize(SentenceEmbedder(encoder(CHARACTERS, 4))), CHARACTERS),
        "filler": MaskFiller(randomize(MaskedLanguageModel(encoder(PIECES))), PIECES, num_candidates=3),
    }
    for name, task in tasks.items():
        task.save(folder / name)
    return folder


@pytest.fixture
def exported(models, monkeypatch):
    """The folder of the mask filler, which is loaded as an export is: with its calls and nothing else."""
    load = zoo.load

    class Exported(MaskFilling):
        def __init__(self, path):
            self._task = load(path)

        def _ask(self, signature, **tensors):
            return self._task._ask(signature, **tensors)

    monkeypatch.setattr(zoo, "load", Exported)
    return models / "filler"


@pytest.fixture(params=["saved", "exported"])
def filler(request, models):
    return request.getfixturevalue("exported") if request.param == "exported" else models / "filler"


@pytest.fixture
def lines(tmp_path):
    """A file of the texts."""
    (tmp_path / "lines").write_text("".join(f"{text}\n" for text in TEXTS))
    return tmp_path / "lines"


class TestClassify:
    def test_a_class_for_each_text(self, models, lines):
        found = zoo.load(models / "classifier").classify(TEXTS)
        assert len({each.label for each in found}) > 1
        for given in (TEXTS, ["--file", lines], ["--file", lines, "--batch-size", 1]):
            assert succeeds("classify", models / "classifier", *given).splitlines() == [each.label for each in found]
        printed = succeeds("classify", models / "classifier", "--scores", stdin="\n".join(TEXTS))
        assert printed.splitlines() == [f"{each.probability:.4f}\t{each.label}" for each in found]

    def test_all_classes(self, models):
        first, rest = succeeds("classify", models / "classifier", "--all", "cab", "d").split("\n\n", 1)
        rows = [line.split("\t") for line in first.splitlines()]
        assert sorted(label for _, label in rows) == sorted(LABELS)
        probabilities = [float(probability) for probability, _ in rows]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1, abs=2e-4)
        assert rest.endswith("\n\n"), "an empty line after the last text too"

    def test_a_model_of_several_labels_says_what_is_left_out(self, models):
        told = "zoo: the probabilities do not sum to 1, so a text may have several labels, or none."
        printed = run("classify", models / "of_pairs", "cab\td", "d\tcab")
        assert printed.exit_code == 0 and len(printed.stdout.splitlines()) == 2
        assert printed.stderr.startswith(told) and printed.stderr.count("\n") == 1
        for option in (["--all"], ["--above", 0.5]):
            assert run("classify", models / "of_pairs", *option, "cab\td").stderr == ""
        assert run("classify", models / "classifier", "cab").stderr == ""

    def test_all_classes_above_a_probability(self, models):
        pairs = ["cab\td", "\tdab", "d\tcab"]
        found = zoo.load(models / "of_pairs").classify([tuple(each.split("\t")) for each in pairs])
        middle = sorted(each for one in found for each in one.probabilities.values())[4]  # of 9
        above = [[label for label, each in one.probabilities.items() if each > middle] for one in found]
        printed = succeeds("classify", models / "of_pairs", "--above", repr(middle), *pairs)
        assert printed.splitlines() == [", ".join(labels) for labels in above]
        assert sum(map(len, above)) == 4
        scored = succeeds("classify", models / "of_pairs", "--above", repr(middle), "--scores", *pairs)
        assert scored.splitlines() == [
            ", ".join(f"{one.probabilities[label]:.4f} {label}" for label in labels)
            for one, labels in zip(found, above, strict=True)
        ]
        assert succeeds("classify", models / "of_pairs", "--above", 1, "a\tb") == "\n"
        assert refuses("classify", models / "of_pairs", "--above", 0.5, "--all", "a\tb").startswith(
            "--all and --above "
        )

    def test_pairs_have_a_tab_between(self, models):
        pairs = [("cab", "d"), ("", "dab"), ("d", "cab")]
        found = zoo.load(models / "of_pairs").classify(pairs)
        wanted = "".join(f"{each.probability:.4f}\t{each.label}\n" for each in found)
        stdin = "".join(f"{first}\t{second}\n" for first, second in pairs)
        assert succeeds("classify", models / "of_pairs", "--scores", stdin=stdin) == wanted
        told = refuses("classify", models / "of_pairs", stdin="a\tb\ncab\n")
        assert told == ("line 2 must hold two texts with one tab between, since the model reads pairs. Received: 'cab'")
        assert refuses("classify", models / "of_pairs", "a\tb\tc").startswith("text 1 must hold two texts with one tab")


class TestEmbed:
    def test_json_lines(self, models, lines, tmp_path):
        vectors = zoo.load(models / "embedder")(TEXTS)
        printed = succeeds("embed", models / "embedder", "--file", lines)
        rows = [json.loads(line) for line in printed.splitlines()]
        assert [row["text"] for row in rows] == TEXTS
        np.testing.assert_array_equal(np.array([row["embedding"] for row in rows], "float32"), vectors)
        out = tmp_path / "new" / "vectors.jsonl"
        assert succeeds("embed", models / "embedder", "--file", lines, "--out", out) == f"{out}\n"
        assert out.read_text() == printed

    def test_an_array_that_is_written_piece_by_piece(self, models, tmp_path):
        texts = ["cab", "d", "ab"] * 12  # more than a chunk of 16
        out = tmp_path / "vectors.npy"
        succeeds("embed", models / "embedder", "--batch-size", 1, "--out", out, stdin="\n".join(texts))
        found = np.load(out)
        assert (found.shape, found.dtype) == ((36, 6), np.float32)
        np.testing.assert_allclose(found, zoo.load(models / "embedder")(texts), atol=1e-6)
        succeeds("embed", models / "embedder", "--out", out, stdin="")
        assert np.load(out).shape == (0, 6)

    def test_a_pipe_is_read_once(self, models, tmp_path):
        """As in `zoo embed MODEL --file <(some command) --out vectors.npy`."""
        reading, writing = os.pipe()
        os.write(writing, b"cab\nd\n")
        os.close(writing)
        try:
            succeeds("embed", models / "embedder", "--file", f"/dev/fd/{reading}", "--out", tmp_path / "vectors.npy")
        finally:
            os.close(reading)
        assert np.load(tmp_path / "vectors.npy").shape == (2, 6)

    @pytest.mark.parametrize("option", [["--out", "vectors.npy"], ["--out", "vectors.jsonl"], ["--index", "folder"]])
    def test_what_was_there_stays_until_the_new_is_complete(self, models, tmp_path, monkeypatch, option):
        monkeypatch.chdir(tmp_path)
        arguments = ["embed", models / "embedder", "--batch-size", 1, *option]
        succeeds(*arguments, "cab")
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        real, calls = TextEmbedder.embed, []

        def interrupted(self, texts, batch_size=32):
            calls.append(texts)
            if len(calls) == 3:  # the first one asks for the width
                raise KeyboardInterrupt
            return real(self, texts, batch_size)

        monkeypatch.setattr(TextEmbedder, "embed", interrupted)
        assert run(*arguments, stdin="d\n" * 40).exit_code != 0
        assert len(calls) == 3
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--out", "a.csv"], "--out must end in .npy or .jsonl; --index makes an index. Received: a.csv"),
            (["--out", "a.npy", "--index", "b"], "--out and --index were both given; give one of them"),
            (["--file", "missing.txt"], "missing.txt: No such file or directory"),
            (["--index", "full", "cab"], "full exists and holds something else (no index.json); choose another place."),
        ],
    )
    def test_mistakes(self, models, tmp_path, monkeypatch, options, message):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thesis.tex").touch()
        assert refuses("embed", models / "embedder", *options) == message
        assert [path.name for path in tmp_path.rglob("*")] == ["full", "thesis.tex"]


class TestSearch:
    @pytest.fixture
    def index(self, models, lines, tmp_path):
        succeeds("embed", models / "embedder", "--file", lines, "--index", tmp_path / "index")
        return tmp_path / "index"

    def test_the_nearest_by_cosine(self, index, models):
        vectors = zoo.load(models / "embedder")([*TEXTS, "bad"]).astype("float64")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = vectors[:-1] @ vectors[-1]
        wanted = [f"{cosines[row]:.4f}\t{TEXTS[row]}" for row in np.argsort(-cosines)]
        assert succeeds("search", index, "bad").splitlines() == [*wanted, ""]
        assert succeeds("search", index, "bad", "--top", 2).splitlines() == [*wanted[:2], ""]
        assert succeeds("search", index, "--top", 1, stdin="d\nbad\n").splitlines() == ["1.0000\td", wanted[0]]

    def test_a_model_that_is_gone_or_another(self, index, models):
        content = json.loads((index / "index.json").read_text())
        assert content == {"model": str(models / "embedder"), "texts": 4, "width": 6}
        (index / "index.json").write_text(json.dumps({**content, "model": "/gone/away"}))
        assert refuses("search", index, "d") == "/gone/away, which made the index, is gone; give it by --model"
        assert succeeds("search", index, "d", "--model", models / "embedder", "--top", 1) == "1.0000\td\n"
        assert refuses("search", index, "d", "--model", models / "narrow") == (
            f"{models}/narrow did not make the index {index}: its vectors have 4 numbers, those of the index 6"
        )

    def test_an_index_without_texts(self, models, tmp_path):
        succeeds("embed", models / "embedder", "--index", tmp_path / "empty", stdin="")
        assert succeeds("search", tmp_path / "empty", "d") == "\n"

    def test_what_is_no_index(self, index, tmp_path):
        makes = "`zoo embed MODEL --file FILE --index FOLDER` makes one"
        assert refuses("search", tmp_path / "gone", "d") == f"{tmp_path}/gone does not exist; {makes}"
        assert refuses("search", tmp_path, "d") == f"{tmp_path} is no index; {makes}"
        whole = (index / "vectors.npy").read_bytes()
        for damaged in (b"", whole[:50], whole[:-4]):
            (index / "vectors.npy").write_bytes(damaged)
            assert f"the index {index} cannot be read; its files may be damaged" in refuses("search", index, "d")
        (index / "vectors.npy").write_bytes(whole)
        texts = (index / "texts.txt").read_bytes()
        for damaged in (b"", texts[:5], b"\xff" + texts):
            (index / "texts.txt").write_bytes(damaged)
            assert refuses("search", index, "d").startswith(f"the index {index} is damaged: texts.txt ")
        np.save(index / "vectors.npy", np.ones((4, 5), "float32"))
        assert "is damaged: vectors.npy is not float32 (4, 6)" in refuses("search", index, "d")


class TestFill:
    def test_a_line_for_each_text(self, filler, tmp_path):
        texts = ["[MASK] cab", "d[MASK] [MASK]"]
        (tmp_path / "lines").write_text("\n".join(texts))
        wanted = zoo.load(filler)(texts)
        assert succeeds("fill", filler, *texts).splitlines() == wanted
        assert succeeds("fill", filler, "--file", tmp_path / "lines", "--batch-size", 1).splitlines() == wanted

    def test_the_likeliest_tokens_of_each_mask(self, filler):
        (found,) = zoo.load(filler).fill(["d[MASK] [MASK]"])
        first, second = ([f"{p:.4f}\t{token}" for token, p in each.items()][:2] for each in found.candidates)
        assert succeeds("fill", filler, "--top", 2, "d[MASK] [MASK]").splitlines() == [*first, "", *second, ""]

    def test_more_tokens_than_a_saved_model_was_made_for(self, models):
        rows = [
            line.split("\t") for line in succeeds("fill", models / "filler", "--top", 5, "[MASK]").splitlines()[:-1]
        ]
        assert (len(rows), len({token for _, token in rows})) == (5, 5)
        told = refuses("fill", models / "filler", "--top", 50, "[MASK]")
        assert told == "--top must be from 1 to 8. Received: 50", "8 pieces that are no mask"

    def test_an_export_has_as_many_tokens_as_it_was_made_for(self, exported):
        told = refuses("fill", exported, "--top", 5, "[MASK]")
        assert told == f"{exported} was exported with 3 tokens for each mask, not 5"

    def test_a_text_without_a_mask(self, filler):
        assert refuses("fill", filler, stdin="cab\n") == "line 1 has no [MASK] that the model reads. Received: 'cab'"
        told = refuses("fill", filler, "d" * 100 + "[MASK]")
        assert told == f"text 1 has no [MASK] that the model reads. Received: '{'d' * 60}...'"


class TestAttend:
    def test_from_the_text_to_its_tokens_or_from_token_to_token(self, models, tmp_path):
        page = tmp_path / "page.html"
        for name, text, heads in (
            ("classifier", "cab", [""]),
            ("of_pairs", "a\tcab", ["head 1", "head 2"]),
            ("embedder", "cab", ["head 1", "head 2"]),
        ):
            succeeds("attend", models / name, text, "--out", page)
            [picture] = pictures(page)
            assert picture["kinds"][0]["heads"] == heads, name

    def test_every_head_below_how_much_each_token_counted(self, models, tmp_path):
        page, texts = tmp_path / "page.html", ["cab", "dd"]
        succeeds("attend", models / "pooled", *texts, "--out", page)
        drawn = pictures(page)
        for picture, text in zip(drawn, ["cab", "cab", "dd", "dd"], strict=True):
            assert picture["source_text"] == text
        tokens = len(drawn[0]["kinds"][0]["source_tokens"])
        assert [picture["kinds"][0]["shape"] for picture in drawn[:2]] == [[1, 1, 1, tokens], [1, 2, tokens, tokens]]
        labels = [each.label for each in zoo.load(models / "pooled").classify(texts)]
        assert [picture["kinds"][0]["target_tokens"] for picture in drawn[::2]] == [[label] for label in labels]

    def test_what_a_model_does_not_have(self, models, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert refuses("attend", models / "embedder", "cab", "--encoder") == (
            f"{models}/embedder is an embedder, which has no attention but its encoder's"
        )
        assert refuses("attend", models / "classifier", "cab", "--heads", "1") == (
            "--heads: This model has no attention of layers and heads to show."
        )
        assert "text 1 must hold two texts with one tab between" in refuses("attend", models / "of_pairs", "cab")
        told = refuses("attend", models / "of_pairs", stdin="a\tcab\n\ncab\n")
        assert told.startswith("line 3 must hold two texts with one tab between")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "name", "message"),
    [
        ("translate", "classifier", "is a classifier, which does not turn one text into another; see `zoo classify`"),
        (
            "generate",
            "embedder",
            "is an embedder, which does not continue a text, nor score one by itself; see `zoo embed`",
        ),
        (
            "score",
            "filler",
            "is a mask filler, which does not continue a text, nor score one by itself; see `zoo fill`",
        ),
        ("classify", "embedder", "is an embedder, which does not put texts into classes; see `zoo embed`"),
        ("embed", "filler", "is a mask filler, which does not turn texts into vectors; see `zoo fill`"),
        ("fill", "classifier", "is a classifier, which does not fill the masks of texts; see `zoo classify`"),
    ],
)
def test_a_command_of_another_kind(models, command, name, message):
    assert refuses(command, models / name, "a") == f"{models / name} {message}"


def test_what_cannot_be_scored_on_a_corpus_or_on_that_one(models):
    told = refuses("evaluate", models / "embedder", "--recipe", "dates")
    assert told == f"{models}/embedder is an embedder, which is not scored on a corpus"
    told = refuses("evaluate", models / "classifier", "--recipe", "dates")
    assert told == "only a translator can be scored on pairs of texts"
    told = refuses("evaluate", models / "classifier", "--recipe", "bert-pydoc")
    assert told == "only the run of a masked language model can be scored on hidden tokens, such as runs/NAME"


def test_no_model_at_all(tmp_path):
    for command in ("classify", "embed", "fill"):
        assert refuses(command, tmp_path / "gone", "a") == (
            f"{tmp_path}/gone does not exist; `zoo list` shows the exported models"
        )


def test_pairs_are_exported_of_classifiers_of_hugging_face_only(models):
    told = refuses("export", models / "classifier", "--pairs")
    assert told == "--pairs is for the export of a classifier of Hugging Face"
