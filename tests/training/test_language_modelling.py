"""A language model by a recipe, from its text to its export, on text whose entropy is known."""

import json
import math
import random
import re
import shutil

import keras
import numpy as np
import pytest
from zoo_training import language_modelling, translation
from zoo_training.corpora.corpus import CorpusError
from zoo_training.fitting.fit import fit
from zoo_training.run import Run
from zoo_training.run_files import CHECKPOINT_FILE
from zoo_training.schema.recipe import RecipeError, read_recipe

import zoo
from zoo.models import GPT, RNNSeq2Seq
from zoo.text import CharacterTokenizer, WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("eager_unless_long")

# A space or not, a letter of four, and the same as a capital, again and again: ln 2 + ln 4 for 2.5 characters.
ENTROPY = (math.log(2) + math.log(4)) / 2.5
ACCURACY = (1 / 2 + 1 / 2 * 1 / 4 + 1) / 2.5
RECIPE = """
description = "letters and their capitals"

[corpus]
kind = "text"
train = "letters.txt"

[model]
family = "gpt"
units = 24
num_heads = 2
num_layers = 1
context_length = 16

[training]
batch_size = 16
epochs = 3
learning_rate = 1e-2
optimizer = "{}"
jit_compile = false
"""


def letters(number=4000):
    chance = random.Random(0)
    return "".join(chance.choice(["", " "]) + letter + letter.upper() for letter in chance.choices("abcd", k=number))


TEXT = letters()
TRAINED_ON = int(len(TEXT) * 0.9)
HELD_OUT = len(TEXT) - TRAINED_ON


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    (folder / "letters.txt").write_text(TEXT)
    for optimizer in ("adam", "muon"):
        (folder / f"{optimizer}.toml").write_text(RECIPE.format(optimizer))
    return folder


@pytest.fixture(scope="module")
def training(workplace, zoo_command):
    finished = zoo_command("train", "adam.toml", cwd=workplace)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture
def trained(training, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    return workplace


def recipe(folder, *changes, name="adam"):
    return read_recipe(str(folder / f"{name}.toml"), [f'corpus.train="{folder / "letters.txt"}"', *changes])


@pytest.mark.long
class TestTraining:
    def test_it_learns_what_can_be_known_and_no_more(self, trained):
        metrics = json.loads((trained / "runs" / "adam" / "metrics.json").read_text())
        assert ENTROPY - 0.02 < metrics["loss"] < ENTROPY + 0.06
        assert abs(metrics["token_accuracy"] - ACCURACY) < 0.03
        (text,) = zoo.load("saved_models/adam")(["aA"], max_new_tokens=14, seed=1)
        assert re.fullmatch(r"( ?(aA|bB|cC|dD))+[abcd ]*", text)

    def test_muon_learns_it_too(self, workplace, tmp_path):
        changed = recipe(workplace, "training.learning_rate=2e-2", name="muon")
        history = fit(changed, language_modelling.prepare(changed), tmp_path).history
        assert ENTROPY - 0.02 < history[-1]["val_loss"] < ENTROPY + 0.06

    def test_what_the_command_tells(self, training):
        told = [line for line in training.stderr.splitlines() if "  step " not in line]
        assert told[0] == "Reading the corpus 'text' ..."
        sizes = f"{TRAINED_ON + 2:,} tokens to train on, {HELD_OUT + 2:,} to validate with"
        assert told[1] == f"{sizes}; 13 in the vocabulary"
        assert "the training step" in told[2]
        assert told[3].startswith("two numbers mean: training / validation; ")
        for epoch, line in enumerate(told[4:7], start=1):
            assert re.match(rf"epoch {epoch}/3  loss \d\.\d+ / \d\.\d+  accuracy ", line)
        for name, line in zip(("loss", "perplexity", "bits per byte"), told[-4:-1], strict=True):
            assert re.fullmatch(rf"{name} on {HELD_OUT + 1:,} validation tokens: \d\.\d{{4}}", line)
        assert told[-6:-4] == ["Scoring the model on the validation split ...", "Exporting the model ..."]
        assert told[-1] == "run: runs/adam   exported: saved_models/adam/1", "TensorFlow's notes are on the terminal"
        assert training.stdout == ""

    def test_what_it_leaves_behind(self, trained):
        run = trained / "runs" / "adam"
        assert {path.name for path in run.iterdir()} == {
            *("recipe.json", "history.csv", "best.weights.h5", "generator", "metrics.json")
        }
        loaded = Run.load(run)
        assert loaded.metrics["training_tokens"] == TRAINED_ON + 2
        assert loaded.metrics["parameters"] == loaded.task.model.count_params()
        version = trained / "saved_models" / "adam" / "1"
        metrics = json.loads((version / "metrics.json").read_text())
        assert metrics.pop("start_up")["size"] > 0
        assert metrics | {"models": "../../saved_models"} == json.loads((run / "metrics.json").read_text())

    def test_the_program_on_the_card_runs(self, trained):
        card = (trained / "saved_models" / "adam" / "1" / "README.md").read_text()
        (sample,) = zoo.load("saved_models/adam")([""], max_new_tokens=300, temperature=0.8, seed=0)
        assert f"    {sample}".rstrip() in card
        assert " --model_name=adam " in card and "curl localhost:8501/v1/models/adam:predict -d" in card
        task = Run.load(trained / "runs" / "adam").task
        assert all(f"\n| `{name}` | `text`" in card for name in task.signatures() if name not in task.EXPLORE)
        program = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
        program = program.replace("PATH/OF/THIS/FOLDER", "saved_models/adam/1").replace('"..."', '"aA"')
        *statements, call = program.strip().splitlines()
        scope = {}
        exec("\n".join(statements), scope)
        assert set(eval(call, scope)) == {"text", "log_probability", "tokens"}

    def test_stopped_it_goes_on_to_the_same_weights(self, workplace, tmp_path):
        """From what a kill in the second epoch leaves behind; compiled by XLA, as language models are by default."""

        class CopyAt6(keras.callbacks.Callback):
            number = 0

            def on_train_batch_end(self, batch, logs=None):
                self.number += 1
                if self.number == 6:
                    shutil.copytree(tmp_path / "alone", tmp_path / "stopped")

        few = "training.epochs=2", "training.steps_per_epoch=4", "training.jit_compile=true"
        short = recipe(workplace, "model.dropout=0.1", *few)
        alone = fit(short, language_modelling.prepare(short), tmp_path / "alone", [CopyAt6()])
        assert (tmp_path / "stopped" / CHECKPOINT_FILE).is_file()
        resumed = fit(short, language_modelling.prepare(short), tmp_path / "stopped")
        assert len(alone.history) == 2 and resumed.history == alone.history
        for ours, theirs in zip(resumed.task.model.get_weights(), alone.task.model.get_weights(), strict=True):
            assert (ours == theirs).all()


@pytest.mark.long
class TestScore:
    def test_it_is_the_mean_of_what_the_model_says_of_each_window(self, trained):
        run = Run.load(trained / "runs" / "adam")
        scores = language_modelling.score(run.task, run.recipe.corpus, "validation")
        assert scores.pop("digests").items() <= run.metrics["digests"].items()
        assert {name: run.metrics[name] for name in scores} == scores
        ids = np.concatenate([[2], run.task.tokenizer.tokenize([TEXT[TRAINED_ON:]]).numpy()[0], [3]])
        total = 0.0
        for begin in range(0, len(ids) - 1, 16):
            window = ids[begin : begin + 17]
            logits = np.array(run.task.model(window[None, :-1])[0], "float64")
            logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
            total -= logits[np.arange(len(window) - 1), window[1:]].sum()
        assert scores["total"] == len(ids) - 1 == HELD_OUT + 1
        assert scores["loss"] == pytest.approx(total / (HELD_OUT + 1), abs=1e-5)
        assert scores["perplexity"] == pytest.approx(math.exp(total / (HELD_OUT + 1)), rel=1e-5)
        assert scores["bits_per_byte"] == pytest.approx(total / math.log(2) / HELD_OUT, abs=1e-5)
        assert scores["unknown"] == 0

    def test_what_the_vocabulary_lacks_is_counted_and_told(self, trained, tmp_path, capsys):
        (tmp_path / "other.txt").write_text("aAxXé")
        other = recipe(trained, f'corpus.validation="{tmp_path / "other.txt"}"').corpus
        generator = zoo.load("runs/adam/generator")
        scores = language_modelling.score(generator, other, "validation")
        assert (scores["unknown"], scores["total"]) == (3, 6)
        assert "3 of the 6 validation tokens are not in the vocabulary" in " ".join(capsys.readouterr().err.split())


def test_r_drop_reaches_the_objective_and_digests_are_of_the_splits(workplace):
    with_r_drop = recipe(workplace, "training.r_drop=0.5")
    prepared = language_modelling.prepare(with_r_drop)
    assert prepared.objective.r_drop == 0.5
    for split in ("train", "validation"):
        digest = language_modelling.digest(prepared.task, with_r_drop.corpus, split)
        assert digest == prepared.digests[split]


def test_a_batch_of_validation_has_windows_for_each_of_several_workers(workplace, monkeypatch):
    monkeypatch.setattr(language_modelling, "BATCH_TOKENS", 64)  # 4 windows
    prepared = language_modelling.prepare(recipe(workplace, "training.batch_size=6"))
    assert prepared.validation.element_spec[0].shape == (6, 16)


class TestFaults:
    def test_a_text_too_short_for_a_batch(self, workplace, tmp_path):
        short = recipe(workplace, "training.batch_size=999")
        with pytest.raises(
            RecipeError, match=r"^training: a text of [0-9,]+ tokens is too short for batches of 999 windo"
        ):
            language_modelling.prepare(short)

    def test_a_split_of_which_the_tokenizer_leaves_nothing(self, workplace, tmp_path):
        (tmp_path / "blank.txt").write_text(" \n")
        corpus = recipe(workplace, f'corpus.validation="{tmp_path / "blank.txt"}"').corpus
        pieces = WordPieceTokenizer.learn(["a b c d"], 80)
        generator = zoo.TextGenerator(GPT(pieces.size, 8, 2, 1, 6), pieces, add_start=False)
        with pytest.raises(CorpusError, match=r"^Split 'validation' has 1 tokens; it takes 2 or more"):
            language_modelling.score(generator, corpus, "validation")

    def test_a_missing_file(self, workplace):
        with pytest.raises(CorpusError, match="there is no such file"):
            language_modelling.prepare(read_recipe(str(workplace / "adam.toml"), ["corpus.train=nowhere.txt"]))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                "corpus.kind=dates",
                "corpus.kind = 'dates' is for model.family = 'rnn_seq2seq' or 'transformer'; here it must be one of "
                "pydoc, text, tfds, tiny_shakespeare",
            ),
            ("tokenizer={kind='byte_pair',dropout=0.1}", "tokenizer.dropout is for translators"),
            ("training.buckets=3", "unknown key 'training.buckets'"),
            ("model.family=['gpt']", "'model.family' must be one of"),
            ("corpus.folder=here", "'corpus.folder' is a key of corpus.kind = 'tiny_shakespeare'"),
            (
                "tokenizer.kind=words",
                "'tokenizer.kind' must be one of characters, byte_pair, sentencepiece, word",
            ),
        ],
    )
    def test_what_a_recipe_may_not_say(self, workplace, change, message):
        with pytest.raises(RecipeError, match=re.escape(message)):
            recipe(workplace, change)

    @pytest.mark.long
    def test_a_model_of_the_other_kind(self, trained):
        letters = CharacterTokenizer("abcd")
        generator = zoo.TextGenerator(GPT(8, 8, 2, 1, 6), letters)
        with pytest.raises(ValueError, match="only a translator can be scored on pairs of texts"):
            translation.score(generator, read_recipe("dates").corpus, "test")
        translator = zoo.Translator(RNNSeq2Seq(8, 8, units=4), letters, letters)
        with pytest.raises(ValueError, match="only a language model can be scored on running text"):
            language_modelling.score(translator, recipe(trained).corpus, "validation")
        with pytest.raises(ValueError, match="an exported language model cannot be scored on a corpus"):
            language_modelling.score(zoo.load("saved_models/adam"), recipe(trained).corpus, "validation")
