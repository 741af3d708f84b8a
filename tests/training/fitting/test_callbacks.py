"""What happens between steps and epochs: averaging, validation, divergence, and the lines and bar that are shown."""

import contextlib
import io
import math
import os
import re
import resource
import subprocess
import sys
import tracemalloc
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console
from zoo_training.fitting import callbacks
from zoo_training.fitting.callbacks import Divergence, TrainingProgress, Validation, WeightAverage
from zoo_training.fitting.optimization import make_optimizer
from zoo_training.schema.recipe_tables import TrainingConfig
from zoo_training.schema.translator_tables import TranslatorTraining


@pytest.mark.parametrize(("loss", "stops"), [(math.nan, True), (-math.inf, True), (1.1e4, True), (99, False)])
def test_divergence_ends_the_training(loss, stops, capsys):
    guard, model = Divergence(), types.SimpleNamespace(stop_training=False)
    guard.set_model(model)
    guard.on_train_batch_end(6, {"loss": loss})
    assert model.stop_training == stops
    told = f"the loss has diverged ({loss:.3g} at batch 7): the training ends with this epoch\n"
    assert capsys.readouterr() == ("", told if stops else "")


class TestAverage:
    def averaged(self, **changes):
        """(average, model), the model with one vector of weights, from zero."""
        config = TrainingConfig(schedule="constant", **changes)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(make_optimizer(config, 10), "mse")
        average = WeightAverage(config)
        average.set_model(model)
        self.put(model, 0.0)
        return average, model

    def put(self, model, value):
        model.trainable_variables[0].assign([[value], [-value]])

    def weight(self, model):
        first, second = np.array(model.trainable_variables[0])[:, 0].tolist()
        assert second == -first
        return first

    def epochs(self, average, model, *values):
        for epoch, value in enumerate(values):
            self.put(model, value)
            average.on_epoch_end(epoch)

    @pytest.mark.parametrize(
        ("last", "values", "mean"),
        [(3, [], 0.0), (3, [1.0, 2.0], 1.5), (3, [9.0, 1.0, 2.0, 6.0], 3.0), (None, [4.0], 4.0)],
    )
    def test_mean_of_the_last_epochs(self, last, values, mean):
        average, model = self.averaged(average_last=last)
        self.epochs(average, model, *values)
        self.put(model, 0.1)  # what is remembered does not change with the model
        with average.in_place():
            assert self.weight(model) == (mean if last and values else pytest.approx(0.1))
        assert self.weight(model) == float(np.float32(0.1)), "it has not come back bit for bit"

    def test_moving_average_over_the_updates(self):
        """The decay of the second update is 2/11, that of the third 3/12, then of the recipe; by hand."""
        average, model = self.averaged(average_decay=0.25, learning_rate=0.1)
        values = []
        for gradient in (1.0, -3.0, 0.5, 2.0):
            model.optimizer.apply([tf.constant([[gradient], [-gradient]])], model.trainable_variables)
            values.append(self.weight(model))
        wanted = values[0]
        for value, decay in zip(values[1:], (2 / 11, 3 / 12, 0.25), strict=True):
            wanted = decay * wanted + (1 - decay) * value
        with pytest.raises(KeyboardInterrupt), average.in_place():
            assert self.weight(model) == pytest.approx(wanted, rel=1e-6)
            raise KeyboardInterrupt
        assert self.weight(model) == values[-1], "they come back after an error too"
        assert average.state() == {}, "the optimizer holds it"

    def test_before_the_first_update_the_weights_are_as_they_are(self):
        """An epoch may have fewer batches than an update."""
        average, model = self.averaged(average_decay=0.25, accumulate=2)
        self.put(model, 3.0)
        model.optimizer.apply([tf.constant([[1.0], [-1.0]])], model.trainable_variables)
        with average.in_place():
            assert self.weight(model) == 3.0

    @pytest.mark.parametrize(("last", "done"), [(3, 2), (12, 12)])
    def test_state_and_back(self, last, done):
        """Also with fewer epochs than are averaged, and in the order of numbers: ten comes after two."""
        average, model = self.averaged(average_last=last)
        self.epochs(average, model, *map(float, range(done)))
        again, other = self.averaged(average_last=last)
        again.restore(average.state())
        for one, its in ((average, model), (again, other)):
            self.epochs(one, its, 100.0, 200.0)
        with average.in_place(), again.in_place():
            assert self.weight(model) == self.weight(other)
            assert self.weight(model) == pytest.approx(np.mean([*range(done), 100, 200][-last:]))


class Model:
    """A model whose scores are known beforehand; its weights are the number of its evaluations."""

    def __init__(self, losses):
        self.losses = iter(losses)
        self.evaluations, self.stop_training = 0, False
        self.model = types.SimpleNamespace(save_weights=self.save, count_params=lambda: 1)

    def evaluate(self, batches, verbose, return_dict):
        assert (batches, verbose, return_dict) == ("batches", 0, True)
        self.evaluations += 1
        return {"loss": next(self.losses), "token_accuracy": 0.5}

    def save(self, path):
        assert path.name.endswith(".weights.h5")  # else Keras refuses
        path.write_text(f"weights {self.evaluations}")


class Average:
    inside = False

    @contextlib.contextmanager
    def in_place(self):
        self.inside = True
        yield
        self.inside = False


class TestValidation:
    def validated(self, folder, losses, epochs=None, bleus=None, **config):
        """The validation after all epochs, its model, and the logs of each epoch."""
        model, average = Model(losses), Average()
        scores = iter(bleus or ())

        def bleu():
            assert average.inside, "BLEU of other weights"
            return next(scores)

        def save(path):
            assert average.inside, "other weights are kept than were validated"
            model.save(path)

        model.model.save_weights = save
        config = TrainingConfig(epochs=epochs or len(losses), **config)
        judge = Validation(config, "batches", bleu if bleus else None, average, folder / "best.weights.h5")
        judge.set_model(model)
        history = []
        for epoch in range(config.epochs):
            history.append({"loss": 1.0})
            judge.on_epoch_end(epoch, history[-1])
            if model.stop_training:
                break
        return judge, model, history

    @pytest.mark.parametrize(
        ("losses", "bleus", "score", "kept"),
        [
            ([3.0, 1.0, 2.0], None, [-1.0], 2),
            ([math.nan, 5.0, math.inf, 6e18], None, [-5.0], 2),
            ([1.0, 2.0, 3.0], [10.0, 30.0, 20.0], [30.0, -2.0], 2),
            ([4.0, 2.0, 3.0, 1.0, 0.5], [0.0, 0.0, 0.0, 7.0, 0.0], [7.0, -1.0], 4),
        ],
    )
    def test_the_best_weights_are_kept(self, tmp_path, losses, bleus, score, kept):
        """Where BLEU decides, the loss decides among equals."""
        judge, _, history = self.validated(tmp_path, losses, bleus=bleus)
        assert [path.name for path in tmp_path.iterdir()] == ["best.weights.h5"], "something else was left behind"
        assert (tmp_path / "best.weights.h5").read_text() == f"weights {kept}"
        assert judge.best_score == score
        assert [logs.get("val_bleu") for logs in history] == (bleus or [None] * len(losses))
        assert history[0]["val_token_accuracy"] == 0.5

    def test_the_accuracy_may_decide(self, tmp_path):
        """Here it is highest after the second epoch, and the loss is lowest after the third."""
        model, accuracies = Model([3.0, 2.0, 1.0]), iter([0.5, 0.75, 0.75 - 1e-9])
        loss_of = model.evaluate
        model.evaluate = lambda *arguments, **options: {
            **loss_of(*arguments, **options),
            "token_accuracy": next(accuracies),
        }
        model.model.save_weights = model.save
        config = TranslatorTraining(epochs=3, monitor="token_accuracy")
        judge = Validation(config, "batches", None, Average(), tmp_path / "best.weights.h5")
        judge.set_model(model)
        for epoch in range(3):
            judge.on_epoch_end(epoch, {})
        assert judge.best_score == [0.75, -2.0]
        assert (tmp_path / "best.weights.h5").read_text() == "weights 2"

    @pytest.mark.parametrize(
        ("every", "epochs", "when"),
        [(1, 3, [0, 1, 2]), (2, 4, [1, 3]), (2, 5, [1, 3, 4]), (9, 4, [3])],
    )
    def test_every_so_often_and_at_the_end(self, tmp_path, every, epochs, when):
        _, _, history = self.validated(tmp_path, [1.0] * len(when), epochs, validate_every=every)
        assert [epoch for epoch, logs in enumerate(history) if "val_loss" in logs] == when

    @pytest.mark.parametrize(
        ("losses", "config", "epochs"),
        [
            ([1.0, 2.0, 2.0, 2.0], {"patience": 2}, 3),
            ([3.0, 4.0, 2.0, 4.0, 4.0, 1.0], {"patience": 2}, 5),
            ([math.nan, math.nan, 1.0], {"patience": 2}, 2),
            ([1.0, 2.0, 2.0, 2.0], {"patience": 2, "validate_every": 2}, 6),
            ([1.0, *[2.0] * 20], {}, 21),
        ],
    )
    def test_patience_counts_validations_without_a_better_one(self, tmp_path, losses, config, epochs):
        _, _, history = self.validated(tmp_path, losses, 21 if not config else 8, **config)
        assert len(history) == epochs

    def test_a_full_disk_leaves_the_older_weights(self, tmp_path):
        """HDF5 raises errors of several lines and kinds where a file cannot grow."""
        judge, model, _ = self.validated(tmp_path, [3.0])
        layers = keras.Sequential([keras.Input((500,)), keras.layers.Dense(500)])
        model.model.save_weights = layers.save_weights
        model.losses = iter([1.0])
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            with pytest.raises(
                OSError,
                match=r"best\.weights\.h5 cannot be written: File too large; once it can, give the same command again$",
            ) as error:
                judge.on_epoch_end(1, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "\n" not in str(error.value)
        assert (tmp_path / "best.weights.h5").read_text() == "weights 1"
        assert [path.name for path in tmp_path.iterdir()] == ["best.weights.h5"]
        assert judge.best_score == [-3.0]


@pytest.fixture
def clock(monkeypatch):
    clock = types.SimpleNamespace(now=1000.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(callbacks, "time", clock)
    return clock


class TestProgress:
    """Speed and the time left, by a clock that the test sets."""

    def begun(self, clock, *, epochs=4, done=0):
        """A progress at the start of the epoch after those that were done before."""
        shown = TrainingProgress(epochs, steps=10, tokens=500)
        shown.on_train_begin()
        shown.on_epoch_begin(done)
        return shown

    def steps(self, shown, clock, *seconds, loss=2.5):
        for batch, duration in enumerate(seconds):
            clock.now += duration
            shown.on_train_batch_end(batch, {"loss": loss})

    @pytest.fixture
    def terminal(self, monkeypatch):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, width=160, highlight=False)
        monkeypatch.setattr(callbacks, "console", console)
        return stream

    @pytest.mark.parametrize(
        ("logs", "line"),
        [
            (
                {"loss": 1.23456, "token_accuracy": 0.5, "val_loss": 12.5, "val_token_accuracy": 1},
                "epoch 10/46  loss 1.235 / 12.500  accuracy 50.0% / 100.0%  100 tok/s  3 min left",
            ),
            (
                {"loss": 1.23456, "token_accuracy": 0.5, "val_loss": 2, "val_token_accuracy": 1, "val_bleu": 31.415},
                "epoch 10/46  loss 1.235 / 2.000  bleu 31.41  100 tok/s  3 min left",
            ),
        ],
    )
    def test_a_line_an_epoch_on_stderr_in_80_columns(self, clock, capsys, logs, line):
        shown = self.begun(clock, epochs=46, done=9)
        self.steps(shown, clock, *[0.5] * 10)
        clock.now += 0.8  # for the validation
        for _ in range(2):
            shown.on_epoch_end(9, logs)
        shown.close()
        out, err = capsys.readouterr()
        legend, *lines = err.splitlines()
        assert (out, lines) == ("", [line, line]), "the legend comes once"
        assert legend.startswith("two numbers mean: training / validation")
        assert ("tokens" in legend) == ("accuracy" in line)
        assert len(line) <= 80

    def test_speed_is_of_the_epoch_and_time_of_all_that_is_ahead(self, clock, capsys):
        shown = self.begun(clock, done=1)
        self.steps(shown, clock, *[1] * 10)
        shown.on_epoch_end(1, {})
        shown.on_epoch_begin(2)
        self.steps(shown, clock, *[3] * 10)
        shown.on_epoch_end(2, {})
        shown.on_epoch_begin(3)
        self.steps(shown, clock, *[0.01] * 10)
        shown.on_epoch_end(3, {})
        ends = [line.partition("  ")[2] for line in capsys.readouterr().err.splitlines() if "step" not in line]
        assert ends == ["50 tok/s  20 s left", "17 tok/s  20 s left", "5,000 tok/s  0 s left"]

    def test_validations_are_ahead_too_but_not_the_first_which_makes_graphs(self, clock, capsys):
        """Ten steps of a second an epoch, and validations of 100, 2 and 4 seconds, in six epochs."""
        shown = self.begun(clock, epochs=6)
        for epoch, seconds in enumerate([100, 2, 4]):
            shown.on_epoch_begin(epoch)
            self.steps(shown, clock, *[1] * 10)
            clock.now += seconds
            shown.on_epoch_end(epoch, {})
        ends = [line.rpartition("  ")[2] for line in capsys.readouterr().err.splitlines() if "step" not in line]
        assert ends == ["50 s left", "48 s left", "39 s left"]  # 5 x 10, 4 x (10 + 2), 3 x (10 + 3)

    @pytest.mark.parametrize(("seconds", "left"), [(2, "80 s left"), (60, "40 min left"), (600, "6:40 h left")])
    def test_time_that_is_left(self, clock, capsys, seconds, left):
        shown = self.begun(clock, epochs=5)
        self.steps(shown, clock, *[seconds] * 10)
        shown.on_epoch_end(0, {})
        assert capsys.readouterr().err.endswith(f"  {left}\n")

    def test_the_start_is_named_and_is_not_in_the_time_left(self, clock, terminal):
        shown = self.begun(clock)
        assert "starting" in terminal.getvalue()
        self.steps(shown, clock, 60)
        assert self.last(shown, terminal).endswith("starting")
        self.steps(shown, clock, 60, 1, 1, 40, 1, 1)  # a second bucket
        assert re.search(r"epoch 1/4 .* loss 2\.500 +\d+ tok/s 3\d s left", self.last(shown, terminal))
        shown.close()

    def test_days_of_steps_need_no_more_memory(self, clock, capsys):
        shown = self.begun(clock)
        self.steps(shown, clock, *[1e-9] * 2000)
        tracemalloc.start()
        try:
            self.steps(shown, clock, *[1e-9] * 20_000)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert grown < 20_000, "a byte a step"

    def last(self, shown, terminal):
        """The bar as it is now, without colours and without the time that has passed."""
        terminal.truncate(0)
        shown._bar.refresh()
        return re.sub(r"\x1b\[[\d;?]*\w", "", terminal.getvalue()).rpartition(" ")[0]

    def test_does_not_ask_for_the_loss_more_often_than_eyes_see(self, clock, terminal):
        class Loss(float):
            asked = 0

            def __float__(self):
                Loss.asked += 1
                return 2.5

        shown = self.begun(clock)
        self.steps(shown, clock, *[0.1] * 100, loss=Loss())
        shown.close()
        assert 15 <= Loss.asked <= 20

    def test_off_a_terminal_there_is_a_line_every_ten_seconds_and_no_bar(self, clock, capsys):
        self.begun(clock).on_epoch_end(0, None)  # before the first batch
        assert capsys.readouterr().err.startswith("epoch 1/4")
        shown = self.begun(clock)
        self.steps(shown, clock, 12, 4, 4, 4, 4, 4, 0.4, 0.4, 0.4, 0.4)
        shown.on_epoch_end(0, {"loss": 2.5})
        shown.on_epoch_begin(1)
        self.steps(shown, clock, *[0.9] * 10)
        shown.close()
        out, err = capsys.readouterr()
        assert (out, err.splitlines()) == (
            "",
            [
                "epoch 1/4  step 1/10  loss 2.500  4 tok/s  starting",
                "epoch 1/4  step 4/10  loss 2.500  8 tok/s  4 min left",
                "epoch 1/4  loss 2.500  15 tok/s  2 min left",
            ],
        )

    def test_colours_that_are_forced_make_no_terminal_of_a_file(self):
        program = (
            "from zoo_training.progress import *\nsay('a line')\nwith progress_bar('a bar', 3) as advance: advance(3)"
        )
        environment = {**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
        finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert (finished.stdout, finished.stderr) == (b"", b"a line\n")
