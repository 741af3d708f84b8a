"""From a recipe to a fitted model: its parts, the best epoch, and the same weights from the same seed."""

import contextlib
import csv
import io
import random
import types

import keras
import numpy as np
import pytest
import rich.console
import tensorflow as tf
import zoo_training.fitting.callbacks
import zoo_training.fitting.fit
from zoo_training.corpora.pairs import Pairs
from zoo_training.fitting.callbacks import TrainingProgress
from zoo_training.fitting.loss import TokenPrediction
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
TINY = (
    *("model.units=6", "training.batch_size=8", "training.epochs=2", "training.buckets=1", "training.warmup_steps=2"),
    "training.jit_compile=false",
)


def fit(recipe, train, validation, folder, callbacks=()):
    return zoo_training.fitting.fit.fit(recipe, prepare(recipe, (train, validation)), folder, callbacks)


def tiny(*overrides):
    return read_recipe("dates", [*TINY, *overrides])


def equal(ours, theirs):
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("rows", [1, 3, 5, 7])
@pytest.mark.parametrize("axes", [(), (4,)])
def test_each_of_five_workers_has_rows_to_validate_with(rows, axes):
    """Those that are repeated have no weight."""
    ids = np.arange(rows * 2).reshape(rows, 2)
    labels, weights = np.arange(np.prod((rows, *axes))).reshape(rows, *axes), np.full((rows, *axes), 0.5, "float32")
    batches = tf.data.Dataset.from_tensors(({"ids": ids, "places": ids + 1}, labels, weights))
    filled = zoo_training.fitting.fit._with_rows_for(batches, 5)
    assert len(filled) == 1
    ((inputs, found, weight),) = filled.as_numpy_iterator()
    assert len(found) == max(rows, 5)
    assert found.shape == weight.shape
    np.testing.assert_array_equal(inputs["places"], inputs["ids"] + 1)
    for one, other in ((inputs["ids"], ids), (found, labels), (weight, weights)):
        np.testing.assert_array_equal(one[:rows], other)
    assert weight.sum() == weights.sum()


def test_a_batch_with_fewer_rows_than_workers_is_told_before_the_first_step(tmp_path, monkeypatch):
    """Here only the batches of long pairs have too few, and an epoch might begin with others."""
    monkeypatch.setattr(zoo_training.fitting.fit, "_fitted", lambda *_: "fitted")
    texts = ["a" * length for length in (1, 1, 1, 1, 1, 1, 7, 7, 7, 7)]
    recipe = tiny("training.batch_tokens=24", "training.buckets=2")  # 12 pairs of 2 tokens, but there are 10; 3 of 8
    prepared = prepare(recipe, (Pairs(texts, texts), CHECK))
    for count, told in ((3, None), (4, "the smallest batch has 3 for 4 workers; raise batch_size or batch_tokens, or")):
        workers = types.SimpleNamespace(is_chief=True, count=count, agree=lambda *_: None)
        with pytest.raises(RecipeError, match=told) if told else contextlib.nullcontext():
            assert zoo_training.fitting.fit.fit(recipe, prepared, tmp_path, workers=workers) == "fitted"


class TestParts:
    def test_tokenizers_as_the_recipe_says(self):
        source, target = learn_tokenizers(tiny(), TRAIN)
        assert (source.vocabulary, target.vocabulary) == ("bac", "yzx")  # the commonest first
        recipe = tiny("tokenizer.source.minimum_count=20", "tokenizer.target.maximum_size=5")
        source, target = learn_tokenizers(recipe, TRAIN)
        assert (source.vocabulary, target.vocabulary) == ("ba", "y")
        pieces = {side: f'tokenizer.{side}={{kind="byte_pair",size=270}}' for side in ("source", "target", "joint")}
        source, target = learn_tokenizers(tiny(pieces["source"], pieces["target"]), TRAIN)
        joint, _ = learn_tokenizers(tiny(pieces["joint"]), TRAIN)
        assert all(each.nfc for each in (source, target, joint))  # a letter has the same pieces in every form

    def test_the_model_as_the_recipe_says(self):
        sides = learn_tokenizers(tiny(), TRAIN)
        recipe = tiny("model.attention=scaled", "model.cell=lstm", "model.readout_units=5", "model.dropout=0.25")
        model = build_model(recipe, *sides)
        config = model.get_config()
        assert {key: config[key] for key in recipe.model.model_dump(exclude={"family", "start"})} == {
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
            "encoder_layers": 1,
        }
        assert (config["source_vocabulary_size"], config["target_vocabulary_size"]) == (7, 7)
        assert build_model(tiny("model.attention=none"), *sides).attention is None
        weights, again, other = (build_model(tiny(f"seed={seed}"), *sides).get_weights() for seed in (0, 0, 1))
        assert equal(weights, again) and not equal(weights, other)

    def test_joint_tokenizers_are_one_learnt_from_both_sides(self):
        source, target = learn_tokenizers(tiny('tokenizer={joint={kind="characters"}}'), TRAIN)
        assert source is target
        assert sorted(source.vocabulary) == list("abcxyz")

    def test_a_transformer_as_the_recipe_says(self):
        recipe = tiny(TRANSFORMER, "training.precision=mixed_bfloat16")
        model = build_model(recipe, *learn_tokenizers(recipe, TRAIN))
        config = model.get_config()
        wanted = recipe.model.model_dump(exclude={"family", "start"})
        assert {key: config[key] for key in wanted} == wanted
        assert model.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.slow
class TestFit:
    @pytest.mark.long
    def test_the_weights_of_the_best_epoch_are_kept(self, tmp_path, monkeypatch, capfd):
        """The second and third epoch begin from ruins, and the fourth of five diverges and is the last."""
        kept, logged = [], []

        class Board(keras.callbacks.Callback):
            """In the place of TensorBoard's, which needs its package; it is told of all epochs."""

            def __init__(self, folder, **options):
                super().__init__()
                logged.append(folder)

            def on_epoch_end(self, epoch, logs=None):
                logged.append(set(logs))

        class Ruin(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch > 0:
                    wrapped = self.model.model
                    value = 9.0 * epoch if epoch < 3 else np.nan
                    wrapped.set_weights([np.full(w.shape, value) for w in wrapped.get_weights()])

            def on_epoch_end(self, epoch, logs=None):
                kept.append([weight.copy() for weight in self.model.model.get_weights()])

        monkeypatch.setattr(keras.callbacks, "TensorBoard", Board)
        folder = tmp_path / "made" / "for it"
        recipe = tiny("training.epochs=5", "training.tensorboard=true")
        result = fit(recipe, TRAIN, CHECK, folder, callbacks=[Ruin()])
        losses = [logs["val_loss"] for logs in result.history]
        assert len(losses) == 4 and losses[0] < losses[1] and losses[0] < losses[2]
        assert np.isnan(losses[3]) and np.isnan(result.history[3]["loss"])
        assert equal(result.task.model.get_weights(), kept[0])
        assert not equal(kept[0], kept[1])
        assert (result.task.max_source_length, result.task.max_target_length) == (100, 11)  # as the recipe says
        scores = {"loss", "token_accuracy", "val_loss", "val_token_accuracy"}
        assert logged == [folder / "tensorboard", *[scores] * 4]
        assert {path.name for path in folder.iterdir()} == {"best.weights.h5", "checkpoint.npz", "history.csv"}
        with (folder / "history.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [row["val_loss"] for row in rows] == [str(loss) for loss in losses]
        assert result.seconds > 0
        assert capfd.readouterr().out == ""

    def test_an_error_leaves_no_bar_on_the_terminal(self, tmp_path, monkeypatch):
        bars = []

        class Noted(TrainingProgress):
            def on_train_begin(self, logs=None):
                super().on_train_begin(logs)
                bars.append(self._bar)

        class Failure(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                assert bars[0].live.is_started
                assert self.model.jit_compile is True
                raise KeyboardInterrupt

        terminal = rich.console.Console(file=io.StringIO(), force_terminal=True)
        monkeypatch.setattr(zoo_training.fitting.callbacks, "console", terminal)
        monkeypatch.setattr(zoo_training.fitting.fit, "TrainingProgress", Noted)
        with pytest.raises(KeyboardInterrupt):
            fit(tiny("training.jit_compile=true"), TRAIN, CHECK, tmp_path, callbacks=[Failure()])
        assert not bars[0].live.is_started

    @pytest.mark.parametrize(
        ("override", "sources", "fault"),
        [
            (
                "lengths.max_source=2",
                ["ab"],
                r"^lengths, train: All 1 pairs are longer than max_source=2 or max_target=",
            ),
            ("tokenizer.source.minimum_count=1000", ["a"], r"^tokenizer: .*occurs at least minimum_count=1000 times"),
        ],
    )
    def test_a_recipe_that_does_not_fit_its_pairs(self, override, sources, fault):
        with pytest.raises(RecipeError, match=fault):
            prepare(tiny(override), (Pairs(sources, ["x"]), CHECK))

    def test_a_training_without_an_update_is_refused(self, tmp_path):
        prepared = prepare(tiny(), (TRAIN, CHECK))  # 2 epochs of 4 batches
        with pytest.raises(RecipeError, match=r"^training: accumulate=9 is more than the 8 batches of the training,"):
            zoo_training.fitting.fit.fit(tiny("training.accumulate=9"), prepared, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_r_drop_reaches_the_objective_and_needs_dropout(self, tmp_path):
        recipe = tiny("training.r_drop=2.0", "model.dropout=0.0")
        prepared = prepare(recipe, (TRAIN, CHECK))
        assert prepared.objective.r_drop == 2.0
        with pytest.raises(RecipeError, match=r"^training: r_drop compares two passes .* Received: r_drop=2\.0$"):
            zoo_training.fitting.fit.fit(recipe, prepared, tmp_path)

    @pytest.mark.long
    def test_a_training_with_r_drop(self, tmp_path):
        recipe = tiny("training.r_drop=2.0", "model.dropout=0.1", "training.epochs=1")
        assert len(fit(recipe, TRAIN, CHECK, tmp_path).history) == 1


class TestTrouble:
    def test_pairs_left_out_are_counted(self, capfd):
        """Of the eight texts that TRAIN repeats four times, two have three letters, so four tokens with the end."""
        prepare(tiny("lengths.max_source=3"), (TRAIN, CHECK))
        assert [line for line in capfd.readouterr().err.splitlines() if "pairs" in line] == [
            "32 pairs to train on, 3 to validate with",
            "train: 8 of 32 pairs have more than lengths.max_source=3 or lengths.max_target=11 tokens and are left out",
        ]

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

    @pytest.mark.usefixtures("eager")
    def test_more_epochs_are_advised_if_the_last_of_few_was_the_best(self, tmp_path, capfd, monkeypatch):
        """Of 2 updates in 2 epochs; 1,000 updates are no longer few, and a model that is always right needs no more."""
        recipe = tiny("training.batch_size=32")
        prepared = prepare(recipe, (TRAIN, CHECK))
        told = (
            "the best epoch was the last one, and the training had few updates (2); more epochs may help, such as "
            "--set training.epochs=1001\n"
        )
        # Only the first call trains. A training that has ended says it again.
        for other in (None, ("_FEW_UPDATES", 2), ("_ALL_RIGHT", 0.0), None):
            with monkeypatch.context() as patch:
                if other:
                    patch.setattr(zoo_training.fitting.fit, *other)
                zoo_training.fitting.fit.fit(recipe, prepared, tmp_path)
            assert (told in capfd.readouterr().err) == (not other)

    def test_a_training_without_one_finite_validation_says_so_and_takes_nothing_older(self, tmp_path, monkeypatch):
        def diverge(model, *arguments, **options):
            assert [path.name for path in tmp_path.iterdir()] == ["history.csv"], "an earlier run's, or none"
            (tmp_path / "checkpoint.npz").touch()

        (tmp_path / "best.weights.h5").touch()
        (tmp_path / "tensorboard" / "train").mkdir(parents=True)
        monkeypatch.setattr(TokenPrediction, "fit", diverge)
        told = "^training: it diverged, no epoch ended with a finite validation loss; lower learning_rate$"
        with pytest.raises(RecipeError, match=told):
            fit(tiny(), TRAIN, CHECK, tmp_path)
        left = [path.name for path in tmp_path.iterdir()]
        assert left == ["history.csv"], "the next try, with another recipe, would be refused"


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
def test_it_learns_to_turn_numbers_round(tmp_path):
    """On numbers that training has not seen; with all that a long training has, but shorter."""
    train = numbers(4000, 0)
    check = numbers(64, 1, train.sources)
    recipe = tiny(
        *(TRANSFORMER, "training.epochs=8", "training.batch_tokens=512", "training.learning_rate=1e-2"),
        *("training.warmup_steps=50", "training.schedule=inverse_sqrt", "training.beta_2=0.98"),
        *("training.label_smoothing=0.1", "training.jit_compile=false", "training.weight_decay=1e-4"),
        *("training.monitor=bleu", "training.average_last=2"),
    )
    result = fit(recipe, train, check, tmp_path)
    unseen = numbers(200, 2, train.sources + check.sources)
    right = sum(ours == theirs for ours, theirs in zip(result.task(unseen.sources), unseen.targets, strict=True))
    assert right >= 190, result.history
