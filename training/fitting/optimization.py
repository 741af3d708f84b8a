"""The optimizer of a recipe, and the learning rate over the steps."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops

from ..schema.recipe_tables import TrainingConfig
from .muon import Muon
from .update_counting import UpdateCounting

# What weight decay leaves alone, by the names that Keras and the zoo give.
_NOT_DECAYED = ("bias", "gamma", "beta", "scale")


def make_optimizer(config: TrainingConfig, updates: int) -> keras.optimizers.Optimizer:
    """What the recipe names; AdamW where weights decay.

    Args:
        config: what the recipe says.
        updates: how many updates the whole training makes.
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
    elif config.weight_decay:
        optimizer = FusedAdam(weight_decay=config.weight_decay, **arguments)
    else:
        return FusedAdam(**arguments)
    optimizer.exclude_from_weight_decay(var_names=list(_NOT_DECAYED))
    return optimizer


@keras.saving.register_keras_serializable(package="zoo")
class FusedAdam(UpdateCounting, keras.optimizers.Adam):
    """Adam, or AdamW with `weight_decay`, by one operation a variable, where Keras' own takes a dozen.

    For models of a few million parameters in many variables that is a fraction of the time. The update is that of the
    paper for every variable. Keras' differs from it, and from this, for embeddings that are nothing but looked up: of
    those it leaves alone the moments of rows that a batch does not name, and in the norm of all gradients it counts a
    row that is named twice as two.

    Reference: https://arxiv.org/abs/1412.6980
    """

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable and its two moments."""
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
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, variable.dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), variable.dtype),
        )


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
    """Rises in a line over the warm-up, then falls with one over the square root of the step.

        rate(t) = peak min(t / w, sqrt(w / t)),    t = 1, 2, ...

    With peak = (D w)^-0.5 that is the schedule of Vaswani et al. 2017, equation 3, for a model of width D.

    Args:
        peak: the highest rate, reached at the end of the warm-up.
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
