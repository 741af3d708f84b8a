"""What a training tells: tokens a second and the time left, by a clock that the test sets."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console
from zoo_training import progress
from zoo_training.fitting import training_progress
from zoo_training.fitting.training_progress import TrainingProgress


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(training_progress, "time", clock)
    return clock


def begun(clock, *, epochs=4, steps=10, tokens=500, done=0):
    """A progress at the start of the epoch after those that were done before."""
    told = TrainingProgress(epochs, steps, tokens)
    told.on_train_begin()
    told.on_epoch_begin(done)
    return told


def steps(told, clock, number, seconds):
    for batch in range(number):
        clock.now += seconds
        told.on_train_batch_end(batch, {"loss": 2.5})


class TestLines:
    def test_a_line_an_epoch_on_stderr(self, clock, capsys):
        told = begun(clock)
        steps(told, clock, 10, 0.5)
        told.on_epoch_end(0, {"loss": 1.23456, "token_accuracy": 0.5, "val_bleu": 31.415, "val_token_accuracy": 1})
        told.close()
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err == (
            "epoch 1/4  loss 1.235  token_accuracy 50.0%  val_bleu 31.41  val_token_accuracy 100.0%  "
            "100 tokens/s  0:00:15 left\n"
        )

    def test_the_time_of_validations_is_in_what_is_left(self, clock, capsys):
        told = begun(clock)
        steps(told, clock, 10, 0.5)
        clock.now += 5
        told.on_epoch_end(0, {})
        assert "0:00:30 left" in capsys.readouterr().err

    def test_speed_is_of_the_epoch_and_time_of_all(self, clock, capsys):
        told = begun(clock)
        steps(told, clock, 10, 1)
        told.on_epoch_end(0, {})
        told.on_epoch_begin(1)
        steps(told, clock, 10, 3)
        told.on_epoch_end(1, {})
        first, second = capsys.readouterr().err.splitlines()
        assert first.endswith("50 tokens/s  0:00:30 left")
        assert second.endswith("17 tokens/s  0:00:40 left")

    def test_of_a_training_that_goes_on_only_what_is_ahead_counts(self, clock, capsys):
        told = begun(clock, done=2)
        steps(told, clock, 10, 1)
        told.on_epoch_end(2, {})
        assert capsys.readouterr().err == "epoch 3/4    50 tokens/s  0:00:10 left\n"

    def test_the_last_has_no_time_left(self, clock, capsys):
        told = begun(clock, epochs=1)
        steps(told, clock, 10, 1)
        told.on_epoch_end(0, {})
        assert capsys.readouterr().err.endswith("0:00:00 left\n")

    def test_an_epoch_that_ends_before_its_first_batch(self, clock, capsys):
        begun(clock).on_epoch_end(0, None)
        assert "epoch 1/4" in capsys.readouterr().err


class TestBar:
    @pytest.fixture
    def terminal(self, monkeypatch):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, width=160, highlight=False)
        monkeypatch.setattr(progress, "console", console)
        monkeypatch.setattr(training_progress, "console", console)
        return stream

    def test_shows_epoch_loss_speed_and_time(self, clock, terminal):
        told = begun(clock, done=1)
        steps(told, clock, 4, 1)
        told._bar.refresh()
        shown = terminal.getvalue()
        for text in ("epoch 2/4", "loss 2.500", "50 tokens/s", "0:00:26 left"):
            assert text in shown
        told.close()

    def test_does_not_ask_for_the_loss_more_often_than_eyes_see(self, clock, terminal):
        class Loss(float):
            asked = 0

            def __float__(self):
                Loss.asked += 1
                return 2.5

        told = begun(clock)
        for batch in range(100):
            clock.now += 0.1
            told.on_train_batch_end(batch, {"loss": Loss()})
        told.close()
        assert 15 <= Loss.asked <= 20

    def test_colours_that_are_forced_make_no_terminal_of_a_file(self):
        program = (
            "from zoo_training.progress import *\nsay('a line')\nwith progress_bar('a bar', 3) as advance: advance(3)"
        )
        environment = {**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
        finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert (finished.stdout, finished.stderr) == (b"", b"a line\n")

    def test_off_a_terminal_there_is_none(self, clock, capsys):
        told = begun(clock)
        steps(told, clock, 10, 1)
        told.close()
        assert capsys.readouterr() == ("", "")
