"""From a recipe to a fitted model: its parts, the best epoch, and the same weights from the same seed."""

import csv
import math

import keras
import numpy as np
import pytest

from training.corpora import Pairs
from training.fitting import _learning_rate, build_model, compile_model, fit, learn_tokenizers
from training.recipe import RecipeError, TrainingConfig, read_recipe

TRAIN = Pairs(
    ["abc", "ab", "ba", "cab", "aa", "bb", "b", "c"] * 4, ["zyx", "zy", "yz", "xzy", "zz", "yy", "y", "x"] * 4
)
CHECK = Pairs(["ca", "bc", "ad"], ["xz", "yx", "z"])
TINY = ("model.units=6", "training.batch_size=8", "training.epochs=2", "training.buckets=1", "training.warmup_steps=2")


def tiny(*overrides):
    return read_recipe("dates", [*TINY, *overrides])


def weights_of(translator):
    return [weight.copy() for weight in translator.model.get_weights()]


def equal(ours, theirs):
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """(translator, history, folder) of a fitting."""
    folder = tmp_path_factory.mktemp("fitted") / "made" / "for it"
    return *fit(tiny(), TRAIN, CHECK, folder, verbose=0), folder


class TestParts:
    def test_tokenizers_know_what_training_holds_the_commonest_first(self):
        source, target = learn_tokenizers(tiny(), TRAIN)
        assert (source.vocabulary, target.vocabulary) == ("bac", "yzx")

    def test_tokenizers_as_the_recipe_says(self):
        recipe = tiny("tokenizer.source.minimum_count=20", "tokenizer.target.maximum_size=5")
        source, target = learn_tokenizers(recipe, TRAIN)
        assert (source.vocabulary, target.vocabulary) == ("ba", "y")

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
        }
        assert (config["source_vocabulary_size"], config["target_vocabulary_size"]) == (7, 7)
        assert build_model(tiny("model.attention=none"), *sides).attention is None

    @pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
    def test_the_seed_sets_the_initial_weights(self, seed, same):
        sides = learn_tokenizers(tiny(), TRAIN)
        models = [build_model(tiny(f"seed={each}"), *sides) for each in (0, seed)]
        assert equal(*(model.get_weights() for model in models)) == same

    def test_the_optimizer_and_the_loss(self):
        model = build_model(tiny(), *learn_tokenizers(tiny(), TRAIN))
        compile_model(model, TrainingConfig(clip_norm=0.5, jit_compile=False), 10)
        assert model.optimizer.global_clipnorm == 0.5
        assert model.jit_compile is False
        # Of four tokens two count; the mean is over those two.
        ids, logits = np.array([[1, 2, 3, 0]]), np.zeros((1, 4, 7))
        loss = model.loss(ids, logits, sample_weight=np.array([[1.0, 1.0, 0.0, 0.0]]))
        assert float(loss) == pytest.approx(math.log(7))


class TestLearningRate:
    def rates(self, steps, total, **config):
        rate = _learning_rate(TrainingConfig(learning_rate=0.5, **config), total)
        return [rate if isinstance(rate, float) else float(rate(step)) for step in steps]

    def test_constant(self):
        assert self.rates([0, 50, 99], 100, schedule="constant") == [0.5, 0.5, 0.5]

    def test_constant_after_the_warm_up(self):
        rates = self.rates([0, 5, 10, 50, 99], 100, schedule="constant", warmup_steps=10)
        assert rates == pytest.approx([0, 0.25, 0.5, 0.5, 0.5])

    def test_cosine_falls_to_zero(self):
        assert self.rates([0, 50, 100], 100) == pytest.approx([0.5, 0.25, 0], abs=1e-6)

    def test_cosine_after_the_warm_up(self):
        rates = self.rates([0, 10, 20, 60, 100], 100, warmup_steps=20)
        assert rates == pytest.approx([0, 0.25, 0.5, 0.25, 0], abs=1e-6)

    @pytest.mark.parametrize("total", [1, 5])
    def test_a_warm_up_longer_than_the_training(self, total):
        rates = self.rates(range(total), total, warmup_steps=1000)
        assert all(0 <= rate <= 0.5 for rate in rates)
        assert max(rates) > 0


@pytest.mark.slow
class TestFit:
    def test_what_is_left_in_the_folder(self, fitted):
        _, history, folder = fitted
        assert {path.name for path in folder.iterdir()} == {"best.weights.h5", "history.csv"}
        with (folder / "history.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [float(row["val_loss"]) for row in rows] == pytest.approx(history.history["val_loss"])
        assert len(rows) == 2

    def test_limits_are_the_recipes(self, fitted):
        assert (fitted[0].max_source_length, fitted[0].max_target_length) == (100, 11)

    def test_the_same_seed_gives_the_same_weights_bit_for_bit(self, fitted, tmp_path):
        again, history = fit(tiny(), TRAIN, CHECK, tmp_path, verbose=0)
        assert equal(weights_of(again), weights_of(fitted[0]))
        assert history.history == fitted[1].history

    def test_another_seed_gives_others(self, fitted, tmp_path):
        other, _ = fit(tiny("seed=1"), TRAIN, CHECK, tmp_path, verbose=0)
        assert not equal(weights_of(other), weights_of(fitted[0]))

    def test_the_weights_of_the_best_epoch_are_kept(self, tmp_path):
        """The last two epochs begin from ruins."""
        kept = []

        class Ruin(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch > 0:
                    self.model.set_weights([np.full(w.shape, 9.0 * epoch) for w in self.model.get_weights()])

            def on_epoch_end(self, epoch, logs=None):
                kept.append([weight.copy() for weight in self.model.get_weights()])

        translator, history = fit(tiny("training.epochs=3"), TRAIN, CHECK, tmp_path, callbacks=[Ruin()], verbose=0)
        assert history.history["val_loss"].index(min(history.history["val_loss"])) == 0
        assert equal(weights_of(translator), kept[0])
        assert not equal(weights_of(translator), kept[2])

    @pytest.mark.parametrize(
        ("override", "fault"),
        [
            ("lengths.max_source=1", r"^lengths: All 32 pairs are longer than max_source=1 or max_target=11\.$"),
            ("lengths.max_target=1", r"^lengths: All 32 pairs are longer than max_source=100 or max_target=1\.$"),
            ("tokenizer.source.minimum_count=1000", r"^tokenizer: .*occurs at least minimum_count=1000 times"),
            ("tokenizer.target.maximum_size=4", r"^tokenizer: maximum_size: expected at least 5, .* Received 4$"),
            ('model={attention="dot",units=7}', "^model: attention='dot' needs an even `units`"),
        ],
    )
    def test_a_recipe_that_does_not_fit_its_pairs(self, tmp_path, override, fault):
        with pytest.raises(RecipeError, match=fault):
            fit(tiny(override), TRAIN, CHECK, tmp_path, verbose=0)


class TestTrouble:
    def test_pairs_left_out_are_counted(self, tmp_path, caplog):
        fit(tiny("lengths.max_source=3", "training.epochs=1"), TRAIN, CHECK, tmp_path, verbose=0)
        # Of the eight texts that TRAIN repeats four times, two have three letters, and so four tokens with the end.
        assert "train: 8 of 32 pairs have more than lengths.max_source=3 or lengths.max_target=11" in caplog.text
        assert "validation:" not in caplog.text

    def test_a_training_that_diverges_says_so_and_takes_no_older_weights(self, tmp_path):
        (tmp_path / "best.weights.h5").write_bytes(b"an earlier run's")

        class Diverge(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                self.model.set_weights([np.full_like(weight, np.nan) for weight in self.model.get_weights()])

        with pytest.raises(RecipeError, match="no epoch ended with a validation loss that is a number"):
            fit(tiny(), TRAIN, CHECK, tmp_path, callbacks=[Diverge()], verbose=0)
