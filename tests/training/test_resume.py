"""A training that was stopped, at any moment and in any way, ends as one left alone: bit for bit."""

import itertools
import json
import random
import shutil

import h5py
import keras
import numpy as np
import pytest
import zoo_training.fitting.fit
from zoo_training.corpora.pairs import Pairs, Part
from zoo_training.fitting.checkpoint import CheckpointError
from zoo_training.run_files import CHECKPOINT_FILE
from zoo_training.schema.recipe import read_recipe
from zoo_training.translation import prepare


def numbers(amount, seed):
    """Numbers, and the same backwards."""
    chance = random.Random(seed)
    texts = ["".join(chance.choices("0123456789", k=chance.randint(1, 7))) for _ in range(amount)]
    return Pairs(texts, [text[::-1] for text in texts])


TRAIN, FEW, CHECK = numbers(200, 0), numbers(32, 0), numbers(16, 1)
# Two corpora; the second one alone in later epochs.
WEIGHTED = Pairs(TRAIN.sources, TRAIN.targets, parts=[Part(70, 1.5, epochs=2), Part(130, 0.4)])
SHORT = (
    *("training.batch_size=16", "training.epochs=5", "training.buckets=1", "training.jit_compile=false"),
    *("training.label_smoothing=0.1", "lengths.max_source=10", "lengths.max_target=10"),
)
TRANSFORMER = (
    'model={family="transformer",units=8,num_heads=2,feed_forward_units=16,encoder_layers=1,decoder_layers=1,'
    "dropout=0.2,attention_dropout=0.1,feed_forward_dropout=0.1}"
)
RNN = "model={units=8,dropout=0.2,annotation_dropout=0.1}"
SIMPLE = 'model={units=8,dropout=0.2,attention="none"}'
DECAY, EVERY_SECOND = "training.weight_decay=0.1", "training.validate_every=2"
TWO_BUCKETS = "training.buckets=2"  # for each one the step is traced
FLOAT16, BFLOAT16 = "training.precision=mixed_float16", "training.precision=mixed_bfloat16"


def fit(recipe, train, validation, folder, callbacks=()):
    return zoo_training.fitting.fit.fit(recipe, prepare(recipe, (train, validation)), folder, callbacks)


def short(*overrides):
    return read_recipe("dates", [*SHORT, *overrides])


class Stop(Exception):
    """What a kill is to a process."""


class StopAt(keras.callbacks.Callback):
    """Stops the training after so many batches."""

    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left < 0:
            raise Stop


class CopyAt(keras.callbacks.Callback):
    """Keeps what a kill after so many batches would have left behind."""

    def __init__(self, batches, folder, copy):
        super().__init__()
        self.left, self.folder, self.copy = batches, folder, copy

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            shutil.copytree(self.folder, self.copy)


def left_behind(folder):
    """The arrays and the log of a training, by name: the best weights, and all that the last checkpoint holds."""
    found = {}
    with h5py.File(folder / "best.weights.h5") as file:
        file.visititems(lambda name, each: found.update({name: each[()]} if isinstance(each, h5py.Dataset) else {}))
    with np.load(folder / CHECKPOINT_FILE) as arrays:
        found |= {name: arrays[name] for name in arrays.files}
    state = json.loads(str(found.pop("state")))
    del state["seconds"]
    return found, {**state, "log": (folder / "history.csv").read_text()}


def assert_the_same(folder, other):
    (ours, our_state), (theirs, their_state) = left_behind(folder), left_behind(other)
    assert our_state == their_state
    assert set(ours) == set(theirs)
    assert len(ours) > 30
    different = [name for name in ours if not np.array_equal(ours[name], theirs[name])]
    assert not different


@pytest.mark.long
class TestStops:
    def test_it_ends_as_if_it_had_not_been_stopped(self, tmp_path, capfd):
        """From what a kill in the second epoch leaves behind; in between somebody tries it with other texts."""
        keys = "training.epochs=2", "training.average_decay=0.9", "training.warmup_steps=7", TWO_BUCKETS
        recipe, stopped = short(SIMPLE, *keys), tmp_path / "stopped"

        alone = fit(recipe, TRAIN, CHECK, tmp_path / "alone", [CopyAt(18, tmp_path / "alone", stopped)])
        same_letters = Pairs([text[::-1] for text in TRAIN.sources], TRAIN.targets)
        with pytest.raises(CheckpointError, match=r"unfinished training of other texts \(train changed\); --restart"):
            fit(recipe, same_letters, CHECK, stopped)
        harmless = short(SIMPLE, *keys, "description=another", "decoding.beam_size=3")
        capfd.readouterr()
        resumed = fit(recipe, TRAIN, CHECK, stopped)
        told = capfd.readouterr()
        assert ("going on after epoch 1 of 2" in told.err.splitlines(), told.out) == (True, "")
        assert fit(harmless, TRAIN, CHECK, tmp_path / "alone", [StopAt(0)]).history == alone.history  # nothing is left
        assert_the_same(tmp_path / "alone", stopped)
        for ours, theirs in zip(*(each.task.model.get_weights() for each in (alone, resumed)), strict=True):
            assert np.array_equal(ours, theirs)

    def test_lost_weights_are_told_at_once(self, tmp_path, eager):
        recipe = short(SIMPLE, "training.validate_every=2")
        best = tmp_path / "best.weights.h5"
        for validated in (False, True):
            with pytest.raises(Stop):
                fit(recipe, FEW, CHECK, tmp_path, [StopAt(2)])  # 2 batches in an epoch
            assert best.exists() is validated
        best.unlink()
        with pytest.raises(CheckpointError, match=r"best\.weights\.h5 is missing; --restart begins anew there"):
            fit(recipe, FEW, CHECK, tmp_path, [StopAt(0)])

    @pytest.mark.parametrize(
        "overrides",
        [
            (RNN, FLOAT16, "training.steps_per_epoch=5", "training.accumulate=4", "training.average_decay=0.9", DECAY),
            (RNN, BFLOAT16, "training.batch_tokens=160", "training.average_last=2", EVERY_SECOND, TWO_BUCKETS),
        ],
        ids=["float16", "bfloat16"],
    )
    def test_in_the_middle_of_epochs(self, tmp_path, overrides):
        recipe = short(*overrides)
        folder, stopped = tmp_path / "alone", tmp_path / "stopped"
        alone = fit(recipe, TRAIN, CHECK, folder, [CopyAt(18, folder, stopped)])
        resumed = fit(recipe, TRAIN, CHECK, stopped)
        assert_the_same(folder, stopped)
        assert resumed.history == alone.history
        assert len(alone.history) == 5
        for ours, theirs in zip(*(each.task.model.get_weights() for each in (alone, resumed)), strict=True):
            assert np.array_equal(ours, theirs)

    def test_every_kind_of_dropout_of_a_transformer(self, tmp_path, eager):
        recipe = short(TRANSFORMER, "training.epochs=2")
        fit(recipe, FEW, CHECK, tmp_path / "alone", [CopyAt(3, tmp_path / "alone", tmp_path / "stopped")])
        fit(recipe, FEW, CHECK, tmp_path / "stopped")
        assert_the_same(tmp_path / "alone", tmp_path / "stopped")

    def test_of_corpora_with_weights_of_which_one_ends(self, tmp_path, monkeypatch):
        """Also stopped between the best weights and the checkpoint, when one file tells of an epoch and the other does
        not.
        """
        recipe, stopped = short(SIMPLE), tmp_path / "stopped"
        fit(recipe, WEIGHTED, CHECK, tmp_path / "alone")
        saves, savez = itertools.count(1), np.savez

        def stops_second_time(*arguments, **arrays):
            if next(saves) == 2:
                raise Stop
            savez(*arguments, **arrays)

        with pytest.raises(Stop):
            fit(recipe, WEIGHTED, CHECK, stopped, [StopAt(4)])  # before the first checkpoint
        with monkeypatch.context() as patch, pytest.raises(Stop):
            patch.setattr(np, "savez", stops_second_time)
            fit(recipe, WEIGHTED, CHECK, stopped)
        with pytest.raises(Stop):
            fit(recipe, WEIGHTED, CHECK, stopped, [StopAt(19)])  # 9 batches in an epoch; the first corpus ends after 18
        fit(recipe, WEIGHTED, CHECK, stopped)
        assert_the_same(tmp_path / "alone", stopped)

    def test_one_that_ended_early_has_ended(self, tmp_path, eager):
        """Also when the process is killed before it used its result."""
        recipe = short(SIMPLE, "training.epochs=50", "training.learning_rate=1e-9", "training.monitor=bleu")
        recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"patience": 2})})
        first = fit(recipe, FEW, CHECK, tmp_path)
        assert len(first.history) == 3, "one best epoch, and two that were no better"
        assert fit(recipe, FEW, CHECK, tmp_path, [StopAt(0)]).history == first.history
