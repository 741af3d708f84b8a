"""Validation: when, by what, and what is kept."""

import contextlib
import math
import types

import pytest
from zoo_training.fitting.validation import Validation
from zoo_training.schema.recipe_tables import TrainingConfig


class Model:
    """A model whose scores are known beforehand; its weights are the number of its evaluations."""

    def __init__(self, losses):
        self.losses = iter(losses)
        self.evaluations, self.stop_training = 0, False
        self.model = types.SimpleNamespace(save_weights=self.save)

    def evaluate(self, batches, verbose, return_dict):
        assert (batches, verbose, return_dict) == ("batches", 0, True)
        self.evaluations += 1
        return {"loss": next(self.losses), "token_accuracy": 0.5}

    def save(self, path):
        assert path.name.endswith(".weights.h5")  # else Keras refuses
        path.write_text(f"weights {self.evaluations}")


class Average:
    """Counts how often it was in place."""

    inside, times = False, 0

    @contextlib.contextmanager
    def in_place(self):
        self.inside, self.times = True, self.times + 1
        yield
        self.inside = False


def validated(tmp_path, losses, epochs=None, bleus=None, **config):
    """The validation after all epochs, its model, and the logs of each epoch."""
    epochs = epochs or len(losses)
    model, average = Model(losses), Average()
    scores = iter(bleus or ())

    def bleu():
        assert average.inside
        return next(scores)

    config = TrainingConfig(epochs=epochs, **config)
    best = tmp_path / "best.weights.h5"
    judge = Validation(config, "batches", bleu if bleus else None, average, best)
    judge.set_model(model)
    history = []
    for epoch in range(epochs):
        history.append({"loss": 1.0})
        judge.on_epoch_end(epoch, history[-1])
        if model.stop_training:
            break
    return judge, model, history


def best(tmp_path):
    assert [path.name for path in tmp_path.iterdir()] == ["best.weights.h5"], "something else was left behind"
    return (tmp_path / "best.weights.h5").read_text()


class TestTheBest:
    @pytest.mark.parametrize(
        ("losses", "kept"),
        [([3.0, 1.0, 2.0], 2), ([1.0, 2.0], 1), ([3.0, 2.0, 1.0], 3), ([2.0, 2.0], 1), ([math.nan, 5.0, math.nan], 2)],
    )
    def test_by_loss(self, tmp_path, losses, kept):
        judge, _, _ = validated(tmp_path, losses)
        assert best(tmp_path) == f"weights {kept}"
        assert judge.best_score == [-losses[kept - 1]]

    def test_by_bleu_whatever_the_loss(self, tmp_path):
        judge, _, history = validated(tmp_path, [1.0, 2.0, 3.0], bleus=[10.0, 30.0, 20.0])
        assert best(tmp_path) == "weights 2"
        assert judge.best_score[0] == 30.0
        assert [logs["val_bleu"] for logs in history] == [10.0, 30.0, 20.0]

    def test_by_loss_where_bleus_are_equal(self, tmp_path):
        judge, _, _ = validated(tmp_path, [4.0, 2.0, 3.0, 1.0, 0.5], bleus=[0.0, 0.0, 0.0, 7.0, 0.0])
        assert (best(tmp_path), judge.best_score) == ("weights 4", [7.0, -1.0])
        judge, _, _ = validated(tmp_path, [4.0, 2.0, 3.0], bleus=[0.0, 0.0, 0.0])
        assert (best(tmp_path), judge.best_score) == ("weights 2", [0.0, -2.0])

    def test_nothing_right_yet_is_a_score_too(self, tmp_path):
        validated(tmp_path, [1.0, 1.0], bleus=[0.0, 0.0])
        assert best(tmp_path) == "weights 1"

    @pytest.mark.parametrize("bleus", [None, [90.0, 90.0]])
    @pytest.mark.parametrize("loss", [math.nan, math.inf])
    def test_a_loss_that_is_no_number_never(self, tmp_path, loss, bleus):
        judge, _, _ = validated(tmp_path, [loss, loss], bleus=bleus)
        assert judge.best_score is None
        assert list(tmp_path.iterdir()) == []

    def test_a_failed_writing_leaves_the_older_one(self, tmp_path):
        judge, model, _ = validated(tmp_path, [3.0])

        def fail(path):
            path.write_text("half of")
            raise OSError("no space left")

        model.model.save_weights = fail
        model.losses = iter([1.0])
        with pytest.raises(OSError, match="no space left"):
            judge.on_epoch_end(1, {})
        assert (tmp_path / "best.weights.h5").read_text() == "weights 1"

    def test_logs(self, tmp_path):
        _, _, history = validated(tmp_path, [3.0])
        assert history == [{"loss": 1.0, "val_loss": 3.0, "val_token_accuracy": 0.5}]

    def test_the_averaged_weights_are_validated_and_kept(self, tmp_path):
        judge, model, _ = validated(tmp_path, [3.0])
        saved = []
        model.model.save_weights = lambda path: (saved.append(judge.average.inside), model.save(path))
        model.losses = iter([1.0])
        judge.on_epoch_end(1, {})
        assert saved == [True]
        assert judge.average.times == 2


class TestWhen:
    @pytest.mark.parametrize(
        ("every", "epochs", "when"),
        [(1, 3, [0, 1, 2]), (2, 4, [1, 3]), (2, 5, [1, 3, 4]), (3, 3, [2]), (9, 4, [3])],
    )
    def test_every_so_often_and_at_the_end(self, tmp_path, every, epochs, when):
        _, _, history = validated(tmp_path, [1.0] * len(when), epochs, validate_every=every)
        assert [epoch for epoch, logs in enumerate(history) if "val_loss" in logs] == when


class TestPatience:
    @pytest.mark.parametrize(
        ("losses", "patience", "epochs"),
        [
            ([1.0, 2.0, 2.0, 2.0], 2, 3),
            ([3.0, 4.0, 2.0, 4.0, 4.0, 1.0], 2, 5),
            ([1.0, 1.0], 1, 2),
            ([3.0, 2.0, 1.0], 1, 3),
            ([math.nan, math.nan, 1.0], 2, 2),
        ],
    )
    def test_ends_after_so_many_validations_without_a_better_one(self, tmp_path, losses, patience, epochs):
        _, _, history = validated(tmp_path, losses, patience=patience)
        assert len(history) == epochs

    def test_counts_validations_not_epochs(self, tmp_path):
        _, _, history = validated(tmp_path, [1.0, 2.0, 2.0, 2.0], epochs=8, patience=2, validate_every=2)
        assert len(history) == 6

    def test_without_it_all_epochs_are_had(self, tmp_path):
        assert len(validated(tmp_path, [1.0, *[2.0] * 20])[2]) == 21

    def test_state_and_back(self, tmp_path):
        judge, _, _ = validated(tmp_path, [1.0, 2.0], patience=5)
        assert judge.state() == {"best_score": [-1.0], "waited": 1}
        again, _, _ = validated(tmp_path, [9.0], patience=5)
        again.restore(judge.state())
        assert again.state() == judge.state()
