"""The cards of imported models, and `zoo export` from and to Hugging Face folders."""

import json
import re
import shutil

import pytest
from command_line import refuses, succeeds
from zoo_training.imported import Source, imported_card

import zoo
from zoo.checkpoints.loading import load_checkpoint
from zoo.checkpoints.saving import save_checkpoint
from zoo.models import GPT, Transformer
from zoo.text import BytePairTokenizer, MarianTokenizer, SentencePieceTokenizer

BY, NO_LICENCE = "by its README.md", "its folder names none: ask who published it"
TEXTS = ["a man rides a horse", "two dogs play in the snow", "children eat ice"] * 5


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    learnt = SentencePieceTokenizer.learn(TEXTS, 50)
    model, pieces = learnt.get_config()["model"], learnt.tokens([range(4, learnt.size)]).numpy()[0]
    tokenizer = MarianTokenizer(model, [*(piece.decode() for piece in pieces), ">>fra<<", ">>deu<<"])
    sizes = dict(units=12, num_heads=3, feed_forward_units=20, encoder_layers=1, decoder_layers=2)
    ties = dict(tied_embeddings="all", position_pairs="halves")
    model = Transformer(tokenizer.size, tokenizer.size, **sizes, **ties)
    settings = dict(beam_size=4, length_penalty=0.8, length_normalization="mean")
    translator = zoo.Translator(model, tokenizer, tokenizer, 30, 12, **settings)
    return save_checkpoint(translator, tmp_path_factory.mktemp("marian") / "opus-mt-en-xx")


@pytest.fixture(scope="module")
def generator():
    tokenizer = BytePairTokenizer.learn(TEXTS, 270)
    return zoo.TextGenerator(GPT(tokenizer.size, 12, 3, 1, 20), tokenizer)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"model_type": "gpt2"}')
    return tmp_path / "mine"


def rows_of(card):
    """The table of facts; no cell may hold a bar, which would end it."""
    table = card.partition("## Use")[0]
    rows = [re.split(r"(?<!\\)\|", line) for line in table.splitlines() if line.startswith("| ")]
    assert all(len(row) == 4 for row in rows)
    return {row[1].strip(): row[2].strip() for row in rows if row[1].strip()}


def test_the_card_of_a_translator(marian):
    translator = load_checkpoint(marian, "deu")
    card = imported_card("mine", Source.of(marian), translator, {"unpacked": "a reason"})
    parameters = translator.model.count_params()
    assert card.startswith("# mine\n\n| | |\n")
    rows, size = rows_of(card), translator.source_tokenizer.size
    best = "the most likely open one, scored as if it ended now, is no better"
    ending = f"a search ends when 4 are finished and {best}"
    assert rows == rows | {
        "model": f"`Transformer`, {parameters:,} parameters",
        "source": "`opus-mt-en-xx`, a checkpoint of Hugging Face",
        "family": "`marian`",
        "licence": NO_LICENCE,
        "sizes": "1 + 2 layers of 3 heads, width 12, feed-forward networks 20",
        "vocabulary": f"{size} ids of the source, {size} of the target",
        "lengths": "a source of at most 30 tokens, a result of at most 12",
        "decoding": f"beam of 4, ranked by log-probability / length^0.8, as in `transformers`; {ending}",
        "target languages": "`deu`, `fra`; a text begins with one, such as `>>deu<<`; `deu` if it names none",
        "scores": "none: the zoo imported the model, and neither trained nor scored it",
        "weights": "as in training, not packed for a server: a reason",
    }
    assert set(re.findall(r"^\| `(\w+)` \| `", card, re.MULTILINE)) == set(translator.signatures()) - set(
        translator.EXPLORE
    )
    assert "--model_name=mine" in card and "localhost:8501/v1/models/mine:predict" in card


def test_the_card_of_a_translator_that_ranks_by_wu(marian):
    translator = load_checkpoint(marian)
    translator.length_normalization, translator.early_stopping = "wu", "never"
    rows = rows_of(imported_card("mine", Source.of(marian), translator, {}))
    formula = "log-probability / ((5 + length) / 6)^0.8, as in Wu et al. 2016"
    ending = "a search ends when no open hypothesis can become better"
    assert rows["decoding"] == f"beam of 4, ranked by {formula}; {ending}"
    assert rows["target languages"].endswith("; no default") and "weights" not in rows
    translator.beam_size = 1
    assert rows_of(imported_card("mine", Source.of(marian), translator, {}))["decoding"] == "greedy"


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"README.md": "---\nlanguage: en\nlicense: mit # SPDX\n---\n# Mine\nlicense: no"}, f"`mit`, {BY}"),
        (
            {"README.md": "---\r\nlicense:\r\n- mit\r\n- 'cc0-1.0'\r\ntags: a\r\n---\n"},
            f"`mit`, `cc0-1.0`, {BY}",
        ),
        ({"README.md": "---\nlicense: [mit]\n---\n", "LICENSE": ""}, f"`mit`, {BY}; see `LICENSE` in its folder"),
        ({"README.md": "license: mit", "LICENCE.txt": ""}, "see `LICENCE.txt` in its folder"),
        ({"README.md": "---\nlicense:\ntags: a\n---\n"}, NO_LICENCE),
        ({"README.md": "---\nlicense: `a|b`\n---\n"}, f"`'a|b'`, {BY}"),
    ],
)
def test_the_licence_that_a_folder_names(folder, files, licence):
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    assert Source.of(folder).licence == licence


@pytest.mark.parametrize(
    ("said", "name_or_path"),
    [
        ("Helsinki-NLP/opus-mt-en-de", "`Helsinki-NLP/opus-mt-en-de`"),
        ("a\n# b", "`a # b`"),
        ("mine", None),
        ("./", None),
        (7, None),
    ],
)
def test_the_name_or_path_of_the_configuration(folder, said, name_or_path):
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "_name_or_path": said}))
    assert Source.of(folder) == Source("`mine`", name_or_path, "`gpt2`", NO_LICENCE)


def test_what_was_loaded_before_is_not_taken_for_the_name(marian, tmp_path):
    """`transformers` writes the base model there, or a folder of whoever saved the model."""
    shutil.copytree(marian, tmp_path / "tuned")
    config = json.loads((marian / "config.json").read_text()) | {"_name_or_path": "org/base"}
    (tmp_path / "tuned" / "config.json").write_text(json.dumps(config))
    rows = rows_of(imported_card("mine", Source.of(tmp_path / "tuned"), load_checkpoint(marian), {}))
    said = "`_name_or_path` in its config.json: `org/base`"
    assert rows["source"] == f"`tuned`, a checkpoint of Hugging Face; {said}"


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("models--org--model-7b/snapshots/c0ffee", "org/model-7b"),
        ("models--gpt2/snapshots/c0ffee", "gpt2"),
        ("models--org--model", "models--org--model"),
        ("other/snapshots/c0ffee", "c0ffee"),
    ],
)
def test_the_name_of_a_folder_in_the_cache_of_the_hub(tmp_path, place, name):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "config.json").write_text(json.dumps({"model_type": "gpt2", "_name_or_path": name}))
    assert Source.of(tmp_path / place) == Source(f"`{name}`", None, "`gpt2`", NO_LICENCE)


@pytest.mark.slow
class TestCommand:
    @pytest.mark.long
    def test_out_and_in_again(self, generator, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        generator.save("saved")
        assert succeeds("export", "saved", "--to-huggingface", "small-gpt") == "small-gpt\n"
        snapshot = tmp_path / "models--org--small-gpt/snapshots/c0ffee"
        shutil.move("small-gpt", snapshot)  # as in the cache of the hub
        assert succeeds("export", snapshot, "--weights", "float16") == "saved_models/small-gpt/1\n"
        rows = rows_of((tmp_path / "saved_models/small-gpt/1/README.md").read_text())
        special = r"`<\|endoftext\|>` ends a text; `<\|startoftext\|>`; a start token stands before every text"
        assert rows == rows | {
            "source": "`org/small-gpt`, a checkpoint of Hugging Face",
            "family": "`gpt2`",
            "sizes": "1 layers of 3 heads, width 12, feed-forward networks 48, learned positions",
            "context": "20 tokens",
            "special tokens": special,
            "precision": "weights rounded to float16 in the files; a server computes in float32",
        }
        assert " MB; loaded in " in rows["to serve"]

    def test_what_it_refuses(self, generator, marian, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        both = refuses("export", marian, "--to", "a", "--to-huggingface", "b")
        assert both == "--to and --to-huggingface were both given; give one of them"
        assert refuses("export", marian, "--weights", "int8") == "--weights must be float32 or float16. Received: int8"
        half = refuses("export", marian, "--weights", "float16", "--to-huggingface", "b")
        assert half == "--weights is for a SavedModel; --to-huggingface writes float32"
        assert refuses("export", "nowhere", "--to-huggingface", "b") == "nowhere does not exist"
        assert refuses("export", marian, "--to-huggingface", marian).endswith(
            "exists and is not empty; choose another place."
        )
        french = refuses("export", marian, "--to-huggingface", "b", "--target-language", "fra")
        assert french == (
            "--target-language cannot be written to a Marian checkpoint, where each text names its language, as in "
            ">>fra<< Hello. Leave it out. Received: 'fra'"
        )
        unknown = refuses("export", marian, "--target-language", "eng")
        assert unknown == "--target-language must be one of deu, fra. Received: 'eng'"

    def test_folders_that_hold_no_whole_checkpoint(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        snapshot = tmp_path / "models--org--name/snapshots/c0ffee"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text('{"model_type": "gpt2"}')
        told = "models--org--name/snapshots/c0ffee is not a whole checkpoint: it has no model.safetensors or "
        assert refuses("export", snapshot.relative_to(tmp_path)) == f"{told}pytorch_model.bin."
        cached = refuses("export", "models--org--name")
        assert cached == "models--org--name holds no checkpoint, but models--org--name/snapshots/c0ffee may be one"
        (snapshot / "config.json").write_text('{"model_type": "t5"}')
        assert "config.json: model_type is 't5'; only marian, " in refuses("export", snapshot)
        (tmp_path / "adapter").mkdir()
        (tmp_path / "adapter" / "adapter_config.json").touch()
        assert refuses("export", "adapter").startswith("adapter holds an adapter of PEFT, without the model that it")
