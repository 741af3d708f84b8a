"""What a training tells as it goes: a bar on a terminal, and a line an epoch."""

from __future__ import annotations

import datetime
import time

import keras
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..progress import console, say

_REFRESH_SECONDS = 0.5
_COLUMNS = ("description", "fields[loss]", "fields[speed]", "fields[left]")


class TrainingProgress(keras.callbacks.Callback):
    """Tells loss, tokens a second and the time left. `close` it, lest an error leave the bar on the terminal.

    Args:
        epochs: how many epochs the training has.
        steps: batches an epoch.
        tokens: target tokens an epoch, padding not counted.
    """

    def __init__(self, epochs: int, steps: int, tokens: float):
        super().__init__()
        self.epochs, self.steps, self.tokens = epochs, steps, tokens
        self._bar: Progress | None = None

    def on_train_begin(self, logs=None):
        """Starts the bar and the clock."""
        epoch, *rest = (TextColumn(f"{{task.{name}}}") for name in _COLUMNS)
        self._bar = Progress(
            epoch,
            BarColumn(),
            *rest,
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=self.steps, loss="", speed="", left="")
        self._bar.start()
        self._done = 0
        self._begin = self._shown = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        """A new bar."""
        self._epoch, self._step = epoch, 0
        self._bar.reset(self._task, description=f"epoch {epoch + 1}/{self.epochs}", loss="", speed="", left="")
        self._epoch_begin = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        """The bar goes on, but not more often than eyes can see: reading the loss waits for the step."""
        self._step, self._done = batch + 1, self._done + 1
        now = time.monotonic()
        if self._bar.disable or now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        self._bar.update(
            self._task,
            completed=self._step,
            loss=f"loss {float(logs['loss']):.3f}",
            speed=f"{self._speed(now):,.0f} tokens/s",
            left=f"{self._left(now)} left",
        )

    def on_epoch_end(self, epoch, logs=None):
        """A line of scores."""
        now = time.monotonic()
        scores = "  ".join(_score(name, float(value)) for name, value in (logs or {}).items())
        pace = f"{self._speed(now):,.0f} tokens/s  {self._left(now)} left"
        say(f"epoch {epoch + 1}/{self.epochs}  {scores}  {pace}")

    def close(self) -> None:
        """Takes the bar away, if there is one."""
        if self._bar:
            self._bar.stop()

    def _speed(self, now: float) -> float:
        """Tokens a second in this epoch."""
        return self._step * self.tokens / self.steps / max(now - self._epoch_begin, 1e-9)

    def _left(self, now: float) -> str:
        """The time until the last epoch ends, as steps and validations have gone since the start."""
        ahead = (self.epochs - self._epoch) * self.steps - self._step
        seconds = (now - self._begin) / max(self._done, 1) * ahead
        return str(datetime.timedelta(seconds=round(seconds)))


def _score(name: str, value: float) -> str:
    if name.endswith("accuracy"):
        return f"{name} {value:.1%}"
    return f"{name} {value:.2f}" if name.endswith("bleu") else f"{name} {value:.3f}"
