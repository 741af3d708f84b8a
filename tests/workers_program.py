"""One worker of `test_distribution.py`: it trains the model that it is told to, and saves the weights of the chief.

python workers_program.py MODEL STEPS FILE
"""

import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from zoo_training.fitting.loss import TokenPrediction

from zoo.distribution import multi_worker
from zoo.models import GPT, RNNSeq2Seq, Transformer

ROWS, LENGTH, SOURCE, WORDS = 64, 9, 7, 23


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
    inputs = target.astype("int32")
    if name != "gpt":
        source = chance.integers(4, WORDS, (rows, SOURCE)) * (np.arange(SOURCE) < chance.integers(1, 8, rows)[:, None])
        inputs = {"source": source.astype("int32"), "target": inputs}
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels.astype("int32"), used.astype("float32")))
    return dataset.batch(ROWS, drop_remainder=True).repeat()


def optimizer():
    accumulated = int(os.environ.get("ACCUMULATE", 1))
    return keras.optimizers.Adam(
        1e-3,
        global_clipnorm=0.5,
        use_ema=True,
        gradient_accumulation_steps=accumulated if accumulated > 1 else None,
    )


def build(name):
    if name == "cnn":
        model = cnn()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(), loss, metrics=["accuracy"], steps_per_execution=int(os.environ.get("TOGETHER", 1)))
        return model
    if name == "rnn":
        inner = RNNSeq2Seq(WORDS, WORDS, units=6, embedding_dim=5)
    elif name == "transformer":
        inner = Transformer(
            WORDS, WORDS, units=8, num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=1, dropout=0.0
        )
    else:
        inner = GPT(WORDS, units=8, num_heads=2, feed_forward_units=12, num_layers=1, context_length=LENGTH)
    model = TokenPrediction(inner, label_smoothing=0.1)
    # The bias of attention's keys has no gradient but for rounding; a small epsilon would make steps of that noise.
    model.compile(keras.optimizers.Adam(1e-3, epsilon=1e-4), jit_compile=os.environ.get("XLA") == "1")
    return model


def main():
    name, steps, file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    keras.config.set_dtype_policy(os.environ.get("POLICY", "float32"))
    with multi_worker(wait=40) as workers:
        keras.utils.set_random_seed(7 + workers.index)  # the chief's weights are what counts
        model = workers.distribute(build(name))
        keras.utils.set_random_seed(7)
        pause = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: time.sleep(float(os.environ.get("PAUSE", 0)))
        )
        epochs = max(1, steps // 10)
        history = model.fit(
            workers.shard(data(name)), epochs=epochs, steps_per_epoch=min(steps, 10), verbose=0, callbacks=[pause]
        )
        scores = model.evaluate(workers.shard(data(name).take(10)), verbose=0, return_dict=True)
        print("logs", {key: values[-1] for key, values in history.history.items()}, scores, flush=True)
    if workers.is_chief:
        np.savez(file, *[np.array(variable) for variable in model.trainable_variables])


if __name__ == "__main__":
    main()
