"""The optimizer of a recipe, and the learning rate over the updates.

The optimizers here are Keras' own with a few methods replaced. Keras has no public hook for some of them, so this is
the one file of the zoo that reads private names of Keras; `tests/training/fitting/test_optimization.py` lists each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import keras
import tensorflow as tf
from keras import ops

from ..schema.recipe_tables import TrainingConfig

# What weight decay leaves out, by the names that Keras and the zoo give.
_NOT_DECAYED = ("bias", "gamma", "beta", "scale")


def make_optimizer(
    config: TrainingConfig, updates: int, rate_factors: Mapping[int, float] | None = None
) -> keras.optimizers.Optimizer:
    """The optimizer that the recipe names; AdamW where it sets `weight_decay`.

    Args:
        config: the recipe's table `training`.
        updates: how many updates the whole training makes.
        rate_factors: what the learning rate of each variable is multiplied by, by the variable's `id`; 1 if left out.
    """
    arguments = {
        "learning_rate": learning_rate(config, updates),
        "beta_2": config.beta_2,
        "epsilon": config.epsilon,
        "global_clipnorm": config.clip_norm,
        "gradient_accumulation_steps": config.accumulate if config.accumulate > 1 else None,
        "use_ema": config.average_decay is not None,
        "ema_momentum": config.average_decay or 0.0,
    }
    if config.optimizer == "muon":
        arguments["adam_beta_2"] = arguments.pop("beta_2")
        decay = config.weight_decay or None
        optimizer = Muon(weight_decay=decay, adam_weight_decay=decay, exclude_layers=["logits"], **arguments)
    else:
        optimizer = FusedAdam(weight_decay=config.weight_decay or None, **arguments)
    if config.weight_decay:
        optimizer.exclude_from_weight_decay(var_names=list(_NOT_DECAYED))
    optimizer.rate_factors = dict(rate_factors or {})
    return optimizer


def learning_rate(config: TrainingConfig, updates: int) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """The learning rate, a number or a schedule over the updates."""
    if config.schedule == "inverse_sqrt":
        return InverseSquareRoot(config.learning_rate, max(1, config.warmup_steps))
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    warmup = min(config.warmup_steps, updates - 1)
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup else config.learning_rate,
        decay_steps=max(1, updates - warmup),
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
        alpha=1.0 if config.schedule == "constant" else 0.0,
    )


@keras.saving.register_keras_serializable(package="zoo")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly over the warm-up, then falls with one over the square root of the step.

        rate(t) = peak min(t / w, sqrt(w / t)),    t = 1, 2, ...

    With peak = (D w)^-0.5 it is the schedule of Vaswani et al. 2017, equation 3, for a model of width D.

    Args:
        peak: the highest rate, at the end of the warm-up.
        warmup_steps: w, at least 1.

    Raises:
        ValueError: `warmup_steps` below 1.

    Reference: https://arxiv.org/abs/1706.03762
    """

    def __init__(self, peak: float, warmup_steps: int):
        if warmup_steps < 1:
            raise ValueError(f"`warmup_steps` must be at least 1. Received: warmup_steps={warmup_steps}")
        self.peak, self.warmup_steps = peak, warmup_steps

    def __call__(self, step):
        """The rate of an update, counted from 0."""
        number = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(number / self.warmup_steps, ops.sqrt(self.warmup_steps / number))

    def get_config(self):
        """The constructor's arguments."""
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


class UpdateCounting:
    """A base, before a Keras optimizer, whose schedule and moving average count updates instead of batches.

    Variables may have learning rates of their own, see `rate_factors`.

    With accumulated gradients Keras computes the learning rate and the moving average for each batch; then a recipe's
    `warmup_steps` and `average_decay` would mean something else for each value of `accumulate`.

    The decay of the moving average rises over the first updates: after n updates it is at most (1 + n) / (10 + n), as
    in `tf.train.ExponentialMovingAverage`. A constant 0.999 needs some 5,000 updates to forget the initial weights,
    more than a small corpus has in all.

    Attributes:
        average_warmup: whether the decay rises; false where a training goes on that version 0.1 began without it.
        rate_factors: what the learning rate of a variable is multiplied by, by the `id` of the variable. Set it before
            `build`.
    """

    average_warmup = True
    rate_factors: Mapping[int, float] = {}

    def build(self, variables):
        """Creates the slots, and notes the factor of each variable."""
        super().build(variables)
        # By index, because in an update the variables are other objects.
        self._factors = {
            self._get_variable_index(variable): self.rate_factors.get(id(variable), 1.0) for variable in variables
        }

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable, with its own learning rate."""
        super().update_step(gradient, variable, self._rate(variable, learning_rate))

    def _rate(self, variable, learning_rate):
        factor = self._factors[self._get_variable_index(variable)]
        return learning_rate if factor == 1 else learning_rate * factor

    def _apply_weight_decay(self, variables):
        if all(factor == 1 for factor in self._factors.values()):
            super()._apply_weight_decay(variables)
        elif self.weight_decay is not None:
            for variable in filter(self._use_weight_decay, variables):
                variable.assign(variable * (1 - self._rate(variable, self.learning_rate) * self.weight_decay))

    def apply(self, grads, trainable_variables=None):
        """Updates the variables by their gradients."""
        # An embedding's gradient comes as slices, a row for each token. Summed by row first, clipping sees the norm of
        # the real gradient, and every optimizer sees one gradient for each row.
        super().apply([None if grad is None else tf.convert_to_tensor(grad) for grad in grads], trainable_variables)

    def _get_current_learning_rate(self):
        schedule = isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        return self._learning_rate(self.iterations) if schedule else super()._get_current_learning_rate()

    def _update_model_variables_moving_average(self, trainable_variables):
        batches = self.gradient_accumulation_steps or 1
        if batches == 1:
            self._update_average(trainable_variables)
        else:
            # `iterations` counts updates and `_iterations` batches; both are increased after this call.
            last = (self._iterations + 1) % batches == 0
            ops.cond(last, lambda: self._update_average(trainable_variables), lambda: None)

    def _update_average(self, trainable_variables):
        if not (self.use_ema and self.average_warmup):
            super()._update_model_variables_moving_average(trainable_variables)
            return
        done = ops.cast(self.iterations, "float32")
        decay = ops.minimum(self.ema_momentum, (1 + done) / (10 + done))
        decay = ops.where(done == 0, 0.0, decay)  # the average begins as the weights after the first update
        for variable, average in zip(trainable_variables, self._model_variables_moving_average, strict=True):
            average.assign(decay * average + (1 - decay) * variable)


@keras.saving.register_keras_serializable(package="zoo")
class FusedAdam(UpdateCounting, keras.optimizers.Adam):
    """Adam, or AdamW with `weight_decay`, with one operation a variable, where Keras' own needs a dozen.

    For a model of a few million parameters in many variables it takes a fraction of the time (benchmarks/notes.md,
    `translation_training.py`). The update is that of the paper for every variable. Keras' own differs for embeddings
    that are only looked up: it leaves out the moments of rows that a batch does not use, and in the norm of all
    gradients it counts a row that is used twice as two rows.

    Reference: https://arxiv.org/abs/1412.6980
    """

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable and its two moments, with the variable's own learning rate."""
        if self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, variable.dtype)
        beta_1, beta_2 = (tf.cast(beta, variable.dtype) for beta in (self.beta_1, self.beta_2))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            lr=tf.cast(self._rate(variable, learning_rate), variable.dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, variable.dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), variable.dtype),
        )


@keras.saving.register_keras_serializable(package="zoo")
class Muon(UpdateCounting, keras.optimizers.Muon):
    """`keras.optimizers.Muon`, which orthogonalises the update of a matrix, also for the kernels of attention.

    Keras' own leaves kernels of three axes to Adam. Those of attention are stored as `(D, H, d)` and `(H, d, D)`, and
    are matrices `(D, H d)` and `(H d, D)`. Embeddings, biases and normalisations are Adam's. With `rms_rate`, which is
    set by default, both take the same learning rate.

    References: https://kellerjordan.github.io/posts/muon, https://arxiv.org/abs/2502.16982
    """

    def build(self, var_list):
        """Creates the momentums, and the second moments of the variables that are Adam's."""
        super().build(var_list)
        # By index, because in an update the variables have no paths.
        self._matrix_shapes = {self._get_variable_index(variable): _matrix_shape(variable) for variable in var_list}

    def _should_use_adamw(self, variable):
        if len(variable.shape) == 3 and variable.path.endswith("kernel"):
            return False
        return not variable.path.endswith("kernel") or super()._should_use_adamw(variable)

    def _muon_update_step(self, gradient, variable, lr, m):
        self.assign_add(m, ops.add(gradient, m * (self.momentum - 1)))
        update = ops.add(gradient, self.momentum * m) if self.nesterov else ops.convert_to_tensor(m)
        matrix = ops.reshape(update, self._matrix_shapes[self._get_variable_index(variable)])  # (inputs, outputs)
        matrix = self.lr_adjust(self.zeropower_via_newtonschulz5(matrix, self.ns_steps))
        self.assign_sub(variable, ops.cast(lr, variable.dtype) * ops.reshape(matrix, variable.shape))


def _matrix_shape(variable) -> tuple[int, ...]:
    """(inputs, outputs) for a kernel of attention; the variable's own shape otherwise."""
    shape = tuple(variable.shape)
    if len(shape) != 3:
        return shape
    inputs = 2 if "attention_output" in variable.path else 1
    return math.prod(shape[:inputs]), math.prod(shape[inputs:])
