"""One worker of `test_distribution.py`: it trains the models that it is told to, and saves the weights of the chief.

python workers_program.py STEPS FOLDER MODEL...

A MODEL is a name and perhaps an option, such as `gpt` or `cnn-xla`. One process trains all, since TensorFlow takes
longer to start than a model to train.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from zoo_training.fitting.loss import TokenPrediction

from zoo.distribution import multi_worker
from zoo.models import GPT

ROWS, LENGTH, WORDS = 64, 9, 23


def cnn():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def data(name, batches=10):
    """Batches of 64 rows, whose rows differ in length: the mean over tokens is not the mean of two halves' means."""
    chance = np.random.default_rng(5)
    if name == "cnn":
        images = chance.normal(size=(batches * ROWS, 8, 8, 1)).astype("float32")
        dataset = tf.data.Dataset.from_tensor_slices((images, chance.integers(0, 3, len(images))))
        return dataset.batch(ROWS).repeat()
    rows = batches * ROWS
    lengths = chance.integers(1, LENGTH + 1, rows)
    used = np.arange(LENGTH) < lengths[:, None]  # (N, T)
    target = chance.integers(4, WORDS, (rows, LENGTH)) * used
    labels = chance.integers(4, WORDS, (rows, LENGTH)) * used
    arrays = target.astype("int32"), labels.astype("int32"), used.astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    return dataset.batch(ROWS, drop_remainder=True).repeat()


def build(name, option):
    if name == "cnn":
        model = cnn()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        adam = keras.optimizers.Adam(
            1e-3,
            global_clipnorm=0.5,
            use_ema=True,
            gradient_accumulation_steps=2 if option == "accumulation" else None,
        )
        together = 5 if option == "steps_per_execution" else 1
        xla = option == "xla"
        model.compile(adam, loss, metrics=["accuracy"], steps_per_execution=together, jit_compile=xla)
        return model
    inner = GPT(WORDS, units=8, num_heads=2, feed_forward_units=12, num_layers=1, context_length=LENGTH)
    model = TokenPrediction(inner, label_smoothing=0.1)
    # The bias of attention's keys has no gradient but for rounding; a small epsilon would make steps of that noise.
    model.compile(keras.optimizers.Adam(1e-3, epsilon=1e-4), jit_compile=False)
    return model


def train(workers, name, option, steps):
    """The model, trained, and the last values of its logs."""
    keras.config.set_dtype_policy("mixed_float16" if option == "mixed_float16" else "float32")
    keras.utils.set_random_seed(7 + workers.index)  # the chief's weights are what counts
    model = workers.distribute(build(name, option))
    keras.utils.set_random_seed(7)
    epochs = max(1, steps // 10)
    history = model.fit(workers.shard(data(name)), epochs=epochs, steps_per_epoch=min(steps, 10), verbose=0)
    logs = {key: values[-1] for key, values in history.history.items()}
    if not option:
        logs["evaluate"] = model.evaluate(workers.shard(data(name).take(10)), verbose=0, return_dict=True)
    return model, logs


def main():
    steps, folder, models = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    with multi_worker(wait=40) as workers:
        for each in models:
            name, _, option = each.partition("-")
            model, logs = train(workers, name, option, steps)
            print(each, logs, flush=True)
            if workers.is_chief:
                np.savez(folder / f"{each}.npz", *[np.array(variable) for variable in model.trainable_variables])


if __name__ == "__main__":
    main()
