"""The checkpoint's file: what is in it, and which recipes it is for. Going on by it is for `test_resume`."""

import csv
import errno
import io
import json
import os
import resource

import numpy as np
import pytest
from zoo_training.fitting.callbacks import Validation, WeightAverage
from zoo_training.fitting.checkpoint import (
    Checkpoint,
    CheckpointError,
    _table,
    _variables,
    changes,
)
from zoo_training.fitting.loss import TokenPrediction
from zoo_training.fitting.optimization import make_optimizer
from zoo_training.run_files import CHECKPOINT_FILE, HISTORY_FILE
from zoo_training.schema.recipe import read_recipe
from zoo_training.schema.recipe_tables import TrainingConfig

from zoo.models import RNNSeq2Seq


def prediction(**config):
    config = TrainingConfig(**config)
    model = TokenPrediction(RNNSeq2Seq(9, 9, units=4, dropout=0.5, dtype=config.precision))
    model.compile(make_optimizer(config, 10), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def checkpoint(folder, *overrides, digests=("train", "vocabulary")):
    recipe = read_recipe("dates", overrides)
    average = WeightAverage(recipe.training)
    judge = Validation(recipe.training, None, None, average, folder / "best.weights.h5")
    return Checkpoint(folder, recipe, average, judge, dict.fromkeys(digests, "12ab"))


def written(folder, model, *overrides, epochs=1):
    made = checkpoint(folder, *overrides)
    for part in (made, made.average):
        part.set_model(model)
    made.on_train_begin()
    for epoch in range(epochs):
        made.average.on_epoch_end(epoch)
        made.on_epoch_end(epoch, {"loss": 3.0 - epoch})
    return made


def randomized(variables):
    random = np.random.default_rng(0)
    for each in variables:
        each.assign(np.asarray(random.integers(1, 100, each.shape), each.dtype))
    return [np.array(each) for each in variables]


class TestVariables:
    @pytest.mark.parametrize(
        ("config", "slots"),
        [
            ({"average_decay": 0.9, "accumulate": 2}, ["momentum", "velocity", "average", "gradient_accumulator"]),
            ({"precision": "mixed_float16"}, ["momentum", "velocity", "dynamic_scale", "step_counter"]),
            ({"schedule": "constant"}, ["momentum", "velocity", "learning_rate"]),
        ],
    )
    def test_all_that_a_step_changes(self, config, slots):
        model = prediction(**config)
        names = [variable.path for variable in _variables(model)]
        assert len({id(variable) for variable in _variables(model)}) == len(names), "one is there twice"
        for slot in (*slots, "iteration", "seed_generator_state"):
            assert any(slot in name for name in names), slot
        assert {each.path for each in model.trainable_variables} <= set(names)
        assert not any("token_accuracy" in name for name in names)

    @pytest.mark.parametrize("config", [{"precision": "mixed_float16"}, {"accumulate": 3, "average_decay": 0.5}])
    def test_come_back_bit_for_bit(self, tmp_path, config):
        model = prediction(**config)
        wanted = randomized(_variables(model))
        written(tmp_path, model)
        other = prediction(**config)
        assert checkpoint(tmp_path).restore(other)
        for variable, array in zip(_variables(other), wanted, strict=True):
            assert np.array_equal(variable, array)
            assert variable.dtype == array.dtype


class TestTheRest:
    def test_history_time_and_what_others_remember(self, tmp_path):
        made = checkpoint(tmp_path)
        assert not made.restore(prediction())  # there is no file yet
        assert (made.epoch, made.history, made.finished) == (0, [], False)
        made = written(tmp_path, prediction(), "training.average_last=2", epochs=3)
        made.validation.restore({"best_score": [30.0, -2.5], "waited": 3})
        made.seconds = 1000.0
        made.on_epoch_end(3, {"loss": np.float32(0.1), "val_loss": float("nan")})
        again = checkpoint(tmp_path, "training.average_last=2")
        assert again.restore(prediction())
        assert again.epoch == 4
        assert [logs["loss"] for logs in again.history] == [3.0, 2.0, 1.0, float(np.float32(0.1))]
        assert np.isnan(again.history[3]["val_loss"])
        assert again.seconds == made.seconds > 1000, "time adds up"
        assert again.validation.state() == {"best_score": [30.0, -2.5], "waited": 3}
        assert len(again.average.state()) == 2 * len(prediction().trainable_variables)

    @pytest.mark.parametrize("name", [CHECKPOINT_FILE, HISTORY_FILE])
    def test_a_full_disk_is_told_with_the_way_to_go_on(self, tmp_path, monkeypatch, name):
        def replace(partial, path):
            if path.name == name:
                raise OSError(errno.ENOSPC, "No space left on device", str(partial))

        monkeypatch.setattr(os, "replace", replace)
        told = rf"{name} cannot be written: No space left on device; once it can, give the same command again$"
        with pytest.raises(OSError, match=told):
            written(tmp_path, prediction())

    def test_a_stop_between_the_files_loses_no_line_of_the_history(self, tmp_path, monkeypatch):
        """After the last epoch nothing would write it again."""

        def stopped(partial, path):
            replace(partial, path)
            if path.name == CHECKPOINT_FILE:
                raise KeyboardInterrupt

        replace = os.replace
        monkeypatch.setattr(os, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            written(tmp_path, prediction())
        assert (tmp_path / HISTORY_FILE).read_text() == "epoch,loss\n0,3.0\n"

    def test_a_disk_that_is_full_in_the_middle_leaves_the_older_checkpoint(self, tmp_path):
        model = prediction()
        before = written(tmp_path, model).folder.joinpath(CHECKPOINT_FILE).read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
        try:
            with pytest.raises(OSError, match=r"checkpoint\.npz cannot be written: File too large; once it can, give"):
                written(tmp_path, model)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (tmp_path / CHECKPOINT_FILE).read_bytes() == before
        assert {path.name for path in tmp_path.iterdir()} == {CHECKPOINT_FILE, HISTORY_FILE}

    def test_what_is_in_the_folder(self, tmp_path):
        model = prediction()
        model.stop_training = True
        written(tmp_path, model, epochs=2)
        made = checkpoint(tmp_path)
        made.restore(model)
        assert made.finished, "it has ended early"
        assert {path.name for path in tmp_path.iterdir()} == {CHECKPOINT_FILE, HISTORY_FILE}
        with np.load(tmp_path / CHECKPOINT_FILE, allow_pickle=False) as arrays:
            assert json.loads(str(arrays["state"]))["recipe"]["corpus"]["kind"] == "dates"
        assert (tmp_path / HISTORY_FILE).read_text() == "epoch,loss\n0,3.0\n1,2.0\n"


@pytest.fixture(scope="module")
def model():
    return prediction()


def rewritten(folder, **new):
    """Writes a folder's checkpoint anew, with other entries of its state; None takes an entry away."""
    with np.load(folder / CHECKPOINT_FILE) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    state = json.loads(str(content.pop("state"))) | new
    state = {name: value for name, value in state.items() if value is not None}
    np.savez(folder / CHECKPOINT_FILE, state=np.array(json.dumps(state)), **content)


class TestCheckpointsThatDoNotFit:
    @pytest.fixture
    def folder(self, tmp_path, model):
        written(tmp_path, model)
        return tmp_path

    def refused(self, made, model, fault):
        before = {path.name: path.read_bytes() for path in made.folder.iterdir()}
        with pytest.raises(CheckpointError, match=fault):
            made.restore(model)
        assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == before, "something was lost"

    def test_truncated_or_damaged_in_the_middle(self, folder, model):
        file = folder / CHECKPOINT_FILE
        content = bytearray(file.read_bytes())
        damaged, middle = bytearray(content), slice(len(content) // 2, len(content) // 2 + 64)
        damaged[middle] = bytes(255 - byte for byte in damaged[middle])
        # One bit of the list of files: a file then needs a newer version of zip, or a password.
        newer, secret = bytearray(content), bytearray(content)
        listed = content.index(b"PK\x01\x02")
        newer[listed + 6] ^= 64
        secret[listed + 8] ^= 1
        for broken in (b"", content[:1000], content[:-1], damaged, newer, secret):
            file.write_bytes(broken)
            self.refused(checkpoint(folder), model, r"checkpoint\.npz cannot be read \(.*\); --restart begins anew$")

    @pytest.mark.parametrize(
        "content",
        [
            {"other": np.zeros(3)},
            {"state": np.zeros(3)},
            {"state": np.array("[1, 2]")},
            {"state": np.array('{"recipe": [], "history": [], "validation": {}, "seconds": 1.5}')},
            {"state": np.array([{}])},  # pickled
        ],
    )
    def test_with_other_content(self, folder, model, content):
        np.savez(folder / CHECKPOINT_FILE, **content)
        self.refused(checkpoint(folder), model, r"cannot be read \(.*\); --restart begins anew$")

    def test_without_an_entry(self, folder, model):
        rewritten(folder, validation=None)
        self.refused(checkpoint(folder), model, r"cannot be read \('validation'\); --restart begins anew$")

    def test_of_another_recipe(self, folder, model):
        made = checkpoint(folder, "training.epochs=3", "training.learning_rate=0.5", "model.units=9")
        keys = "model.units, training.epochs, training.learning_rate"
        self.refused(made, model, f"holds an unfinished training whose recipe differs in {keys}; --restart begins anew")

    def test_of_other_texts(self, folder, model):
        """Even where all shapes are the same, as with a vocabulary that fills its size."""
        made = checkpoint(folder)
        made.digests = {"train": "other", "validation": "new", "vocabulary": "12ab"}
        self.refused(
            made, model, r"holds an unfinished training of other texts \(train, validation changed\); --restart"
        )

    def test_of_another_shape(self, folder):
        other = TokenPrediction(RNNSeq2Seq(9, 10, units=4))
        other.compile(make_optimizer(TrainingConfig(), 10), jit_compile=False)
        other.optimizer.build(other.trainable_variables)
        rewritten(folder, digests=None)
        self.refused(checkpoint(folder), other, "holds an unfinished training of other texts; --restart begins anew")

    def test_a_key_added_since_at_its_default_is_no_change(self, folder, model):
        old = checkpoint(folder).recipe.model_dump(mode="json")
        del old["training"]["tensorboard"], old["lengths"]
        rewritten(folder, recipe=old)
        self.refused(
            checkpoint(folder), model, r"recipe differs in lengths\.max_source, lengths\.max_target; --restart"
        )
        del old["decoding"]
        rewritten(folder, recipe=old | {"lengths": {"max_source": 100, "max_target": 11}})
        assert checkpoint(folder).restore(model)

    def test_of_version_0_1(self, folder):
        """It had no hashes of the texts, and its moving average no warm-up; both go on as they were."""
        rewritten(folder, digests=None, average_warmup=None)
        model = prediction()
        assert checkpoint(folder).restore(model)
        assert not model.optimizer.average_warmup
        assert prediction().optimizer.average_warmup


class TestRecipes:
    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            ([], []),
            (["description=x", "decoding.beam_size=4"], []),
            (["training.epochs=9", "model.units=3"], ["model.units", "training.epochs"]),
            (['tokenizer.joint={kind="byte_pair"}'], ["tokenizer.joint"]),
            (['corpus={kind="multi30k"}'], ["corpus.kind"]),
        ],
    )
    def test_differences(self, overrides, expected):
        old, new = (read_recipe("dates", each).model_dump(mode="json") for each in ([], overrides))
        found = changes(old, new, but=("description", "decoding"))
        assert found[: len(expected)] == expected
        assert bool(found) == bool(expected)
        everything = [key.partition("=")[0] for key in overrides if "{" not in key]
        assert set(everything) <= set(changes(old, new))

    def test_a_key_that_only_one_has(self):
        assert changes({"training": {"old": 1, "same": 2}}, {"training": {"same": 2}}) == ["training.old"]
        assert changes({"training": {"same": 2}}, {"training": {"same": 2, "new": 1}}) == ["training.new"]


def test_a_table_of_epochs_that_were_not_all_validated():
    rows = list(csv.DictReader(io.StringIO(_table([{"loss": 3.0}, {"loss": 2.0, "val_loss": 2.5}, {"loss": 1.0}]))))
    assert [row["val_loss"] for row in rows] == ["", "2.5", ""]
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
