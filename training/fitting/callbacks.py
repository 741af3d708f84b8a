"""What happens between the steps and epochs of a training: Keras callbacks, in the order in which they are called."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from zoo.atomic import put_in_place
from zoo.distribution import Workers

from ..progress import console, say, time_left
from ..run_files import check_room, not_written
from ..schema.recipe_tables import TrainingConfig

# A guess among V words has a loss of ln V, about 10. Above this limit, in nats a token, nothing is learnt any more.
_HIGHEST_LOSS = 1e4
_REFRESH_SECONDS = 0.5  # of the bar
_LINE_SECONDS = 10  # from one line to the next, where there is no bar
_FIRST_STEPS = 1000  # among which are those that XLA compiles
_COLUMNS = ("description", "fields[loss]", "fields[speed]", "fields[left]")


def diverged(loss: float) -> bool:
    """Whether a loss is NaN, infinite, or too high for a training to recover from."""
    return not abs(loss) < _HIGHEST_LOSS


class Divergence(keras.callbacks.Callback):
    """Ends a training whose loss has diverged. Keras' `TerminateOnNaN` knows NaN only, and prints on stdout."""

    def on_train_batch_end(self, batch, logs=None):
        """Looks at the mean loss since the beginning of the epoch, which stays NaN once it is."""
        if diverged(logs["loss"]):
            say(f"the loss has diverged ({logs['loss']:.3g} at batch {batch + 1}): the training ends with this epoch")
            self.model.stop_training = True


class WeightAverage(keras.callbacks.Callback):
    """Puts averaged weights into the model for a while; they are usually better than those of the last step.

    With `average_decay` it is an exponential moving average over the updates, which the optimizer keeps; with
    `average_last` the mean of the weights at the end of each of the last epochs, as in Vaswani et al. 2017. With
    neither, and before the first update, it is the weights as they are.

    Args:
        config: the recipe's table `training`.
    """

    def __init__(self, config: TrainingConfig):
        super().__init__()
        self._moving = config.average_decay is not None
        self._last: collections.deque[list[np.ndarray]] | None = None
        if config.average_last:
            self._last = collections.deque(maxlen=config.average_last)

    def on_epoch_end(self, epoch, logs=None):
        """Remembers the weights."""
        if self._last is not None:
            self._last.append(self._weights())

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the model has the averaged weights, afterwards its own again."""
        moving = self._moving and self.model.optimizer.iterations > 0  # Keras' average is zero until the first update
        if not moving and not self._last:
            yield
            return
        own = self._weights()
        if moving:
            self.model.optimizer.finalize_variable_values(self.model.trainable_variables)
        else:
            remembered = zip(*(self._last or ()), strict=True)
            self._assign([np.asarray(np.mean(arrays, axis=0, dtype=np.float32)) for arrays in remembered])
        try:
            yield
        finally:
            self._assign(own)

    def state(self) -> dict[str, np.ndarray]:
        """The arrays that a checkpoint must hold in addition to the optimizer's."""
        return {
            f"{age}/{index}": array
            for age, weights in enumerate(self._last or ())
            for index, array in enumerate(weights)
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Takes back the result of `state`."""
        ages: dict[int, dict[int, np.ndarray]] = collections.defaultdict(dict)
        for name, array in state.items():
            age, index = map(int, name.split("/"))
            ages[age][index] = array
        if self._last is not None:
            self._last.extend([ages[age][index] for index in sorted(ages[age])] for age in sorted(ages))

    def _weights(self) -> list[np.ndarray]:
        return [np.array(variable) for variable in self.model.trainable_variables]

    def _assign(self, weights: list[np.ndarray]) -> None:
        for variable, array in zip(self.model.trainable_variables, weights, strict=True):
            variable.assign(array)


class Validation(keras.callbacks.Callback):
    """Scores the averaged weights, keeps the best, and ends a training that no longer gets better.

    It adds `val_loss` and `val_token_accuracy` or `val_accuracy` to an epoch's logs, and `val_bleu` where BLEU chooses
    the best weights; so it must be called before the callbacks that read the logs.

    Args:
        config: the recipe's table `training`; the last of its epochs is always validated.
        batches: the validation batches.
        measure_bleu: translates the validation sources with the model as it is, and scores the result; None
            where the loss decides.
        average: gives the weights that are validated.
        best: the file of the best weights.
        workers: who validate together; the chief measures BLEU, and writes the file.
    """

    def __init__(
        self,
        config: TrainingConfig,
        batches: Any,
        measure_bleu: Callable[[], float] | None,
        average: WeightAverage,
        best: pathlib.Path,
        workers: Workers | None = None,
    ):
        super().__init__()
        self.config = config
        self.monitor = "bleu" if measure_bleu else getattr(config, "monitor", "loss")
        self.batches, self.measure_bleu = batches, measure_bleu
        self.average, self.best = average, best
        self.workers = workers or Workers()
        self.best_score: list[float] | None = None
        self.waited = 0

    def on_epoch_end(self, epoch, logs=None):
        """Validates, if it is time."""
        if (epoch + 1) % self.config.validate_every and epoch + 1 < self.config.epochs:
            return
        with self.average.in_place():
            scores = self.model.evaluate(self.batches, verbose=0, return_dict=True)
            if self.measure_bleu:
                bleu = self.measure_bleu() if self.workers.is_chief else 0.0
                scores["bleu"] = float(self.workers.broadcast_bytes(repr(bleu).encode()))
            # The loss decides between equal scores: BLEU is 0 until some four words in a row are correct.
            first = [] if self.monitor == "loss" else [scores[self.monitor]]
            score = [*first, -scores["loss"]]
            if not diverged(scores["loss"]) and (self.best_score is None or score > self.best_score):
                if self.workers.is_chief:
                    self._keep(self.model.model)
                self.best_score, self.waited = score, 0
            else:
                self.waited += 1
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in scores.items()})
        if self.config.patience and self.waited >= self.config.patience:
            self.model.stop_training = True

    def _keep(self, model: keras.Model) -> None:
        # Written aside and renamed, because the process may be killed at any moment. Keras asks for this ending.
        check_room(self.best, 4 * model.count_params())
        aside = self.best.with_name(f".{self.best.name.removesuffix('.weights.h5')}.tmp.weights.h5")
        try:
            model.save_weights(aside)
            put_in_place(aside, self.best)
        except (OSError, RuntimeError) as error:  # h5py raises both where the disk is full
            aside.unlink(missing_ok=True)
            raise not_written(self.best, error) from error

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, fit for JSON."""
        return {"best_score": self.best_score, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back the result of `state`."""
        self.best_score, self.waited = state["best_score"], state["waited"]


class TrainingProgress(keras.callbacks.Callback):
    """Loss, tokens a second and time left: a line an epoch, and within epochs a bar. `close` it, also after an error.

    Where stderr is no terminal, as on a build server, a line every ten seconds takes the place of the bar.

    Args:
        epochs: how many epochs the training has.
        steps: batches an epoch.
        tokens: target tokens an epoch, without padding.
    """

    def __init__(self, epochs: int, steps: int, tokens: float):
        super().__init__()
        self.epochs, self.steps, self.tokens = epochs, steps, tokens
        self._bar: Progress | None = None
        self._explained = False

    def on_train_begin(self, logs=None):
        """Starts the bar and the clock."""
        epoch, *rest = (TextColumn(f"{{task.{name}}}") for name in _COLUMNS)
        self._bar = Progress(
            epoch,
            BarColumn(bar_width=16),
            *rest,
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=self.steps, loss="", speed="", left="starting")
        self._bar.start()
        self._durations: list[float] = []  # of the first steps; all steps of days would fill the memory
        self._ends: list[float] = []  # from the last step of each epoch to here: validation and checkpoint
        self._done = 0  # steps
        self._begin = self._shown = self._step_begin = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        """A new bar."""
        self._epoch, self._step, self._ends_ahead = epoch, 0, self.epochs - epoch
        left = "" if self._done else "starting"
        self._bar.reset(self._task, description=f"epoch {epoch + 1}/{self.epochs}", loss="", speed="", left=left)
        self._epoch_begin = self._step_begin = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        """Updates the bar or prints a line, but not more often than is read: the loss is there only after the step."""
        now = time.monotonic()
        self._step = batch + 1
        self._done += 1
        if self._done <= _FIRST_STEPS:
            self._durations.append(now - self._step_begin)
        self._step_begin = now
        if now - self._shown < (_LINE_SECONDS if self._bar.disable else _REFRESH_SECONDS):
            return
        self._shown = now
        loss, speed = f"loss {float(logs['loss']):.3f}", self._speed()
        left = self._left(now) if self._done > 1 else "starting"
        if self._bar.disable:
            place = f"epoch {self._epoch + 1}/{self.epochs}", f"step {self._step:,}/{self.steps:,}"
            say("  ".join([*place, loss, speed, left]))
        else:
            self._bar.update(self._task, completed=self._step, loss=loss, speed=speed, left=left)

    def on_epoch_end(self, epoch, logs=None):
        """A line of scores, training / validation, that fits 80 columns; before the first, a line that says so."""
        now = self._shown = time.monotonic()
        self._ends.append(now - self._step_begin)
        self._ends_ahead = self.epochs - epoch - 1
        scores = dict(logs or {})
        if "val_bleu" in scores:  # the more telling of the two
            scores.pop("token_accuracy", None), scores.pop("val_token_accuracy", None)
        if not self._explained and "val_loss" in scores:
            tokens = "; accuracy: the share of right tokens" if "token_accuracy" in scores else ""
            say(f"two numbers mean: training / validation{tokens}")
            self._explained = True
        parts = [f"epoch {epoch + 1}/{self.epochs}"]
        for name, form in (("loss", ".3f"), ("token_accuracy", ".1%"), ("accuracy", ".1%"), ("bleu", ".2f")):
            values = [f"{float(scores[key]):{form}}" for key in (name, f"val_{name}") if key in scores]
            if values:
                parts.append(f"{name.removeprefix('token_')} {' / '.join(values)}")
        say("  ".join([*parts, self._speed(), self._left(now)]))

    def close(self) -> None:
        """Takes the bar away, if there is one."""
        if self._bar and not self._bar.disable:  # one that was never shown ends with an empty line in rich before 15
            self._bar.stop()

    def _speed(self) -> str:
        """Tokens a second in the steps of this epoch."""
        speed = self._step * self.tokens / self.steps / max(self._step_begin - self._epoch_begin, 1e-9)
        return f"{speed:,.0f} tok/s" if speed < 10_000 else f"{speed / 1000:,.0f}k tok/s"

    def _left(self, now: float) -> str:
        """The time until the last epoch ends, from the time that steps and validations took so far."""
        if not self._done:
            return ""
        # TensorFlow makes the graph of the step, or XLA compiles it for each shape, within the first batches. Such a
        # step takes as long as hundreds of others and happens only once, so its extra time is left out.
        usual = statistics.median(self._durations)
        starting = sum(seconds - usual for seconds in self._durations if seconds > 10 * usual)
        a_step = (now - self._begin - starting - sum(self._ends)) / self._done
        # The longest of the ends is left out, too: the first validation, which makes graphs of its own.
        an_end = (sum(self._ends) - max(self._ends, default=0)) / max(len(self._ends) - 1, 1)
        steps = (self.epochs - self._epoch) * self.steps - self._step
        return time_left(a_step * steps + an_end * self._ends_ahead)
