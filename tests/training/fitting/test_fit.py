"""From a recipe to a fitted model: its parts, the best epoch, and the same weights from the same seed."""

import csv
import io
import random

import keras
import numpy as np
import pytest
import rich.console
import zoo_training.fitting.callbacks
import zoo_training.fitting.fit
from zoo_training.corpora.pairs import Pairs
from zoo_training.fitting.callbacks import TrainingProgress
from zoo_training.schema.recipe import RecipeError, read_recipe
from zoo_training.translation import build_model, learn_tokenizers, prepare

TRAIN = Pairs(
    ["abc", "ab", "ba", "cab", "aa", "bb", "b", "c"] * 4, ["zyx", "zy", "yz", "xzy", "zz", "yy", "y", "x"] * 4
)
CHECK = Pairs(["ca", "bc", "ad"], ["xz", "yx", "z"])
TRANSFORMER = (
    'model={family="transformer",units=32,num_heads=4,feed_forward_units=64,encoder_layers=1,decoder_layers=1,'
    "norm_first=true,dropout=0.0}"
)
TINY = ("model.units=6", "training.batch_size=8", "training.epochs=2", "training.buckets=1", "training.warmup_steps=2")


def fit(recipe, train, validation, folder, callbacks=()):
    return zoo_training.fitting.fit.fit(recipe, prepare(recipe, (train, validation)), folder, callbacks)


def tiny(*overrides):
    return read_recipe("dates", [*TINY, *overrides])


def weights_of(result):
    return [weight.copy() for weight in result.task.model.get_weights()]


def equal(ours, theirs):
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """(result, folder) of a fitting."""
    folder = tmp_path_factory.mktemp("fitted") / "made" / "for it"
    return fit(tiny(), TRAIN, CHECK, folder), folder


class TestParts:
    def test_tokenizers_know_what_training_holds_the_commonest_first(self):
        source, target = learn_tokenizers(tiny(), TRAIN)
        assert (source.vocabulary, target.vocabulary) == ("bac", "yzx")

    def test_tokenizers_as_the_recipe_says(self):
        recipe = tiny("tokenizer.source.minimum_count=20", "tokenizer.target.maximum_size=5")
        source, target = learn_tokenizers(recipe, TRAIN)
        assert (source.vocabulary, target.vocabulary) == ("ba", "y")

    @pytest.mark.parametrize("sides", [("joint",), ("source", "target")])
    def test_pieces_of_one_letter_are_the_same_in_every_form(self, sides):
        kinds = [f"tokenizer.{side}.{key}" for side in sides for key in ("kind=byte_pair", "size=270")]
        assert all(each.nfc for each in learn_tokenizers(tiny(*kinds), TRAIN))

    def test_the_model_as_the_recipe_says(self):
        sides = learn_tokenizers(tiny(), TRAIN)
        recipe = tiny("model.attention=scaled", "model.cell=lstm", "model.readout_units=5", "model.dropout=0.25")
        model = build_model(recipe, *sides)
        config = model.get_config()
        assert {key: config[key] for key in recipe.model.model_dump(exclude={"family"})} == {
            "attention": "scaled",
            "cell": "lstm",
            "units": 6,
            "embedding_dim": 64,
            "readout_units": 5,
            "dropout": 0.25,
            "annotation_dropout": 0.0,
            "readout_dropout": None,
            "tied_embeddings": "none",
            "conditional": False,
        }
        assert (config["source_vocabulary_size"], config["target_vocabulary_size"]) == (7, 7)
        assert build_model(tiny("model.attention=none"), *sides).attention is None

    @pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
    def test_the_seed_sets_the_initial_weights(self, seed, same):
        sides = learn_tokenizers(tiny(), TRAIN)
        models = [build_model(tiny(f"seed={each}"), *sides) for each in (0, seed)]
        assert equal(*(model.get_weights() for model in models)) == same

    def test_joint_tokenizers_are_one_learnt_from_both_sides(self):
        source, target = learn_tokenizers(tiny('tokenizer={joint={kind="characters"}}'), TRAIN)
        assert source is target
        assert sorted(source.vocabulary) == list("abcxyz")

    def test_byte_pairs(self):
        source, target = learn_tokenizers(tiny('tokenizer.source={kind="byte_pair",size=300}'), TRAIN)
        assert (type(source).__name__, type(target).__name__) == ("BytePairTokenizer", "CharacterTokenizer")

    def test_a_transformer_as_the_recipe_says(self):
        recipe = tiny(TRANSFORMER, "training.precision=mixed_bfloat16")
        model = build_model(recipe, *learn_tokenizers(recipe, TRAIN))
        config = model.get_config()
        wanted = recipe.model.model_dump(exclude={"family"})
        assert {key: config[key] for key in wanted} == wanted
        assert model.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.slow
class TestFit:
    def test_what_is_left_in_the_folder(self, fitted):
        result, folder = fitted
        assert {path.name for path in folder.iterdir()} == {"best.weights.h5", "checkpoint.npz", "history.csv"}
        with (folder / "history.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [float(row["val_loss"]) for row in rows] == [logs["val_loss"] for logs in result.history]
        assert len(rows) == 2
        assert set(result.history[0]) == {"loss", "token_accuracy", "val_loss", "val_token_accuracy"}
        assert result.seconds > 0

    def test_limits_are_the_recipes(self, fitted):
        translator = fitted[0].task
        assert (translator.max_source_length, translator.max_target_length) == (100, 11)

    def test_the_weights_of_the_best_epoch_are_kept(self, tmp_path, monkeypatch):
        """The last two epochs begin from ruins. TensorBoard's callback, which needs its package, is told of all."""
        kept, logged = [], []

        class Board(keras.callbacks.Callback):
            def __init__(self, folder, **options):
                super().__init__()
                logged.append(folder)

            def on_epoch_end(self, epoch, logs=None):
                logged.append(set(logs))

        monkeypatch.setattr(keras.callbacks, "TensorBoard", Board)

        class Ruin(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch > 0:
                    wrapped = self.model.model
                    wrapped.set_weights([np.full(w.shape, 9.0 * epoch) for w in wrapped.get_weights()])

            def on_epoch_end(self, epoch, logs=None):
                kept.append([weight.copy() for weight in self.model.model.get_weights()])

        recipe = tiny("training.epochs=3", "training.tensorboard=true")
        result = fit(recipe, TRAIN, CHECK, tmp_path, callbacks=[Ruin()])
        losses = [logs["val_loss"] for logs in result.history]
        assert losses.index(min(losses)) == 0
        assert equal(weights_of(result), kept[0])
        assert not equal(weights_of(result), kept[2])
        scores = {"loss", "token_accuracy", "val_loss", "val_token_accuracy"}
        assert logged == [tmp_path / "tensorboard", scores, scores, scores]

    def test_an_error_leaves_no_bar_on_the_terminal(self, tmp_path, monkeypatch):
        bars = []

        class Noted(TrainingProgress):
            def on_train_begin(self, logs=None):
                super().on_train_begin(logs)
                bars.append(self._bar)

        class Failure(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                assert bars[0].live.is_started
                raise KeyboardInterrupt

        terminal = rich.console.Console(file=io.StringIO(), force_terminal=True)
        monkeypatch.setattr(zoo_training.fitting.callbacks, "console", terminal)
        monkeypatch.setattr(zoo_training.fitting.fit, "TrainingProgress", Noted)
        with pytest.raises(KeyboardInterrupt):
            fit(tiny(), TRAIN, CHECK, tmp_path, callbacks=[Failure()])
        assert not bars[0].live.is_started

    @pytest.mark.parametrize(
        ("override", "fault"),
        [
            ("lengths.max_source=1", r"^lengths: All 32 pairs are longer than max_source=1 or max_target=11\.$"),
            ("lengths.max_target=1", r"^lengths: All 32 pairs are longer than max_source=100 or max_target=1\.$"),
            ("tokenizer.source.minimum_count=1000", r"^tokenizer: .*occurs at least minimum_count=1000 times"),
            (
                "tokenizer.target.maximum_size=4",
                r"^tokenizer: `maximum_size` must be at least 5, .* Received: maximum_size=4$",
            ),
        ],
    )
    def test_a_recipe_that_does_not_fit_its_pairs(self, tmp_path, override, fault):
        with pytest.raises(RecipeError, match=fault):
            fit(tiny(override), TRAIN, CHECK, tmp_path)


class TestTrouble:
    def test_pairs_left_out_are_counted(self, capfd):
        """Of the eight texts that TRAIN repeats four times, two have three letters, so four tokens with the end."""
        prepare(tiny("lengths.max_source=3"), (TRAIN, CHECK))
        told = (
            "train: 8 of 32 pairs have more than lengths.max_source=3 or lengths.max_target=11 tokens and are left out"
        )
        assert [line for line in capfd.readouterr().err.splitlines() if "pairs" in line] == [told]

    def test_hashes_follow_from_texts_and_vocabulary(self):
        def digests(train, check, *overrides):
            return prepare(tiny(*overrides), (train, check)).digests

        alone = digests(TRAIN, CHECK)
        assert alone.keys() == {"train", "validation", "vocabulary"}
        turned = digests(Pairs(TRAIN.sources[::-1], TRAIN.targets), CHECK)
        assert {name for name, digest in turned.items() if digest != alone[name]} == {"train"}
        moved = digests(
            TRAIN, Pairs([*CHECK.sources[:-1], "a"], [*CHECK.targets[:-1], "dz"])
        )  # a letter, to the target
        assert {name for name, digest in moved.items() if digest != alone[name]} == {"validation"}
        smaller = digests(TRAIN, CHECK, "tokenizer.source.maximum_size=6")
        assert {name for name, digest in smaller.items() if digest != alone[name]} == {"vocabulary"}

    def test_a_training_that_diverges_says_so_and_takes_no_older_weights(self, tmp_path):
        """Its loss is finite, but as high as after a learning rate of a million."""
        (tmp_path / "best.weights.h5").write_bytes(b"an earlier run's")

        class Diverge(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                wrapped = self.model.model
                random = np.random.default_rng(0)
                wrapped.set_weights([1e15 * random.normal(size=each.shape) for each in wrapped.get_weights()])

        with pytest.raises(
            RecipeError,
            match=r"^training: it diverged, no epoch ended with a finite validation loss; lower learning_rate$",
        ):
            fit(tiny(), TRAIN, CHECK, tmp_path, callbacks=[Diverge()])
        assert not (tmp_path / "checkpoint.npz").exists(), "the next try, with another recipe, would be refused"

    def test_a_training_that_diverges_late_keeps_its_best(self, tmp_path, capfd):
        class Diverge(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 2:
                    wrapped = self.model.model
                    wrapped.set_weights([np.full_like(weight, np.nan) for weight in wrapped.get_weights()])

        result = fit(tiny("training.epochs=5"), TRAIN, CHECK, tmp_path, callbacks=[Diverge()])
        assert len(result.history) == 3, "it ends with the epoch that it diverged in"
        assert np.isnan(result.history[2]["loss"])
        assert all(np.isfinite(weight).all() for weight in weights_of(result))
        assert capfd.readouterr().out == ""


def numbers(amount, seed, taken=()):
    """Numbers, and their digits backwards, each a word, so that there are n-grams to be scored."""
    chance, texts = random.Random(seed), set()
    while len(texts) < amount:
        texts.add("".join(chance.choices("0123456789", k=chance.randint(2, 5))))
        texts -= set(taken)
    texts = sorted(texts)
    chance.shuffle(texts)
    return Pairs(texts, [" ".join(text[::-1]) for text in texts])


@pytest.mark.long
@pytest.mark.parametrize(
    ("monitor", "average"),
    [("bleu", "average_last=2"), ("loss", "average_decay=0.98")],
)
def test_it_learns_to_turn_numbers_round(tmp_path, monitor, average):
    """On numbers that training has not seen; with all that a long training has, but shorter."""
    train = numbers(4000, 0)
    check = numbers(64, 1, train.sources)
    recipe = tiny(
        *(TRANSFORMER, "training.epochs=8", "training.batch_tokens=512", "training.learning_rate=1e-2"),
        *("training.warmup_steps=50", "training.schedule=inverse_sqrt", "training.beta_2=0.98"),
        *("training.label_smoothing=0.1", "training.jit_compile=false", "training.weight_decay=1e-4"),
        *(f"training.monitor={monitor}", f"training.{average}"),
    )
    result = fit(recipe, train, check, tmp_path)
    unseen = numbers(200, 2, train.sources + check.sources)
    right = sum(ours == theirs for ours, theirs in zip(result.task(unseen.sources), unseen.targets, strict=True))
    assert right >= 190, result.history
