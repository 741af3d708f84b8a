"""The recurrent model against PyTorch: written in it, and run on it by Keras."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from zoo.models import RNNSeq2Seq

SIZES = dict(source_vocabulary_size=11, target_vocabulary_size=9, units=6, embedding_dim=5, readout_units=4)
SOURCE = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [10, 9, 3, 0, 0]], "int32")
TARGET = np.array([[2, 4, 5], [2, 6, 7], [2, 8, 0]], "int32")
LABELS = np.array([[4, 5, 3], [6, 7, 3], [8, 3, 0]], "int32")


def write_up(attention):
    """The GRU model, additive or without attention, as one writes it in PyTorch, and where our weights go in it."""
    import torch
    from torch import nn

    class Seq2Seq(nn.Module):
        def __init__(self, units=6, width=5, readout=4):
            super().__init__()
            self.source_embedding = nn.Embedding(11, width)
            self.target_embedding = nn.Embedding(9, width)
            self.encoder = nn.GRU(width, units, bidirectional=True, batch_first=True)
            self.initial = nn.Linear(units if attention else 2 * units, units)
            if attention:
                self.query = nn.Linear(units, units, bias=False)
                self.key = nn.Linear(2 * units, units, bias=False)
                self.score = nn.Linear(units, 1, bias=False)
            self.cell = nn.GRUCell(width + 2 * units, units)
            self.readout = nn.Linear(3 * units + width, 2 * readout)
            self.output = nn.Linear(readout, 9)

        def forward(self, source, target):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.source_embedding(source), (source != 0).sum(1), batch_first=True, enforce_sorted=False
            )
            outputs, (forward, backward) = self.encoder(packed)
            annotations, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
            thought = torch.cat([forward, backward], -1)
            state = torch.tanh(self.initial(backward if attention else thought))
            logits = []
            for token in self.target_embedding(target).unbind(1):
                context = thought
                if attention:
                    scores = self.score(torch.tanh(self.query(state)[:, None] + self.key(annotations)))[..., 0]
                    weights = scores.masked_fill(source == 0, -torch.inf).softmax(-1)
                    context = (weights[:, None] @ annotations)[:, 0]
                state = self.cell(torch.cat([token, context], -1), state)
                pairs = self.readout(torch.cat([state, token, context], -1)).unflatten(-1, (-1, 2))
                logits.append(self.output(pairs.amax(-1)))
            return torch.stack(logits, 1)

    def gates(array):
        """Keras has the gates in the order z, r, n, PyTorch r, z, n; there and back it is the same exchange."""
        update, reset, candidate = np.split(array, 3, axis=-1)
        return np.concatenate([reset, update, candidate], axis=-1)

    def same(array):
        return array

    def transposed(array):
        return array.T

    # By parameter of the write-up: our weight, its part if it has parts, and the way between them.
    places = {
        "source_embedding.weight": ("source_embedding/embeddings", ..., same),
        "target_embedding.weight": ("target_embedding/embeddings", ..., same),
        "initial.weight": ("initial_hidden/kernel", ..., transposed),
        "initial.bias": ("initial_hidden/bias", ..., same),
        "readout.weight": ("readout/dense/kernel", ..., transposed),
        "readout.bias": ("readout/dense/bias", ..., same),
        "output.weight": ("logits/kernel", ..., transposed),
        "output.bias": ("logits/bias", ..., same),
    }
    cells = {"encoder/forward_cell": "encoder.{}_l0", "encoder/backward_cell": "encoder.{}_l0_reverse"}
    for ours, theirs in {**cells, "decoder/cell": "cell.{}"}.items():
        places[theirs.format("weight_ih")] = (f"{ours}/kernel", ..., lambda array: gates(array).T)
        places[theirs.format("weight_hh")] = (f"{ours}/recurrent_kernel", ..., lambda array: gates(array).T)
        places[theirs.format("bias_ih")] = (f"{ours}/bias", 0, gates)
        places[theirs.format("bias_hh")] = (f"{ours}/bias", 1, gates)
    if attention:
        for name in ("query", "key", "score"):
            places[f"{name}.weight"] = (f"decoder/attention/{name}_kernel", ..., transposed)
    return Seq2Seq(), places


@pytest.mark.peers
@pytest.mark.parametrize("attention", ["additive", None])
def test_a_write_up_in_torch_has_the_same_logits_loss_and_gradients(attention, randomize):
    import torch

    model = randomize(RNNSeq2Seq(attention=attention, **SIZES))
    peer, places = write_up(attention)

    def in_torchs_order(by_path):
        return {name: convert(by_path[path][part]) for name, (path, part, convert) in places.items()}

    weights = in_torchs_order({weight.path: weight.numpy() for weight in model.weights})
    peer.load_state_dict({name: torch.from_numpy(np.array(weight)) for name, weight in weights.items()})

    with tf.GradientTape() as tape:
        logits = model({"source": SOURCE, "target": TARGET})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits)
        loss = tf.reduce_sum(losses * (LABELS != 0)) / np.sum(LABELS != 0)
    gradients = tape.gradient(loss, model.trainable_weights)

    peer_logits = peer(torch.from_numpy(SOURCE).long(), torch.from_numpy(TARGET).long())
    labels = torch.from_numpy(LABELS).long().flatten()
    peer_loss = torch.nn.functional.cross_entropy(peer_logits.flatten(0, 1), labels, ignore_index=0)
    peer_loss.backward()

    np.testing.assert_allclose(logits, peer_logits.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(loss, peer_loss.item(), rtol=1e-5)
    ours = in_torchs_order(
        {w.path: np.array(tf.convert_to_tensor(g)) for w, g in zip(model.trainable_weights, gradients, strict=True)}
    )
    parameters = dict(peer.named_parameters())
    assert ours.keys() == parameters.keys()
    for name, parameter in parameters.items():
        np.testing.assert_allclose(ours[name], parameter.grad.numpy(), atol=1e-5, err_msg=name)


ON_TORCH = """
import json
import sys

import keras
import numpy as np

import zoo.layers
from zoo.models import RNNSeq2Seq

assert keras.backend.backend() == "torch"
data = np.load(sys.argv[1])
source, target = (keras.ops.convert_to_tensor(data[name]) for name in ("source", "target"))
results = {}
for kind, config in json.loads(str(data["configs"])).items():
    model = RNNSeq2Seq(**config)
    model.set_weights([data[f"{kind} {i}"] for i in range(len(model.weights))])
    logits = model({"source": source, "target": target})
    results[kind] = keras.ops.convert_to_numpy(logits)
    (logits**2).sum().backward()
    for i, weight in enumerate(model.weights):
        results[f"{kind} gradient {i}"] = weight.value.grad.cpu().numpy()
    memory, cache = model.begin(source)
    steps = []
    for i in range(target.shape[1]):
        logits, cache, _ = model.step(target[:, i : i + 1], i, memory, cache)
        steps.append(keras.ops.convert_to_numpy(logits))
    results[f"{kind} stepped"] = np.concatenate(steps, 1)
np.savez(sys.argv[2], **results)
"""


@pytest.mark.peers
def test_keras_on_torch_gives_the_same_logits_and_gradients(randomize, tmp_path):
    source, target = (np.concatenate([ids, ids[:1] * 0]) for ids in (SOURCE, TARGET))  # and a row without any token
    configs, arrays, expected = {}, {}, {}
    for attention, cell in zip(
        ("additive", "dot", "scaled", "general", "concat", None),
        ("gru", "lstm", "gru", "lstm", "lstm", "gru"),
        strict=True,
    ):
        kind = f"{attention} {cell}"
        configs[kind] = dict(attention=attention, cell=cell, **SIZES)
        model = randomize(RNNSeq2Seq(**configs[kind]))
        arrays |= {f"{kind} {i}": weight for i, weight in enumerate(model.get_weights())}
        with tf.GradientTape() as tape:
            logits = model({"source": source, "target": target})
            loss = tf.reduce_sum(logits**2)
        expected[kind] = expected[f"{kind} stepped"] = logits
        for i, gradient in enumerate(tape.gradient(loss, model.weights)):
            expected[f"{kind} gradient {i}"] = tf.convert_to_tensor(gradient)
    np.savez(tmp_path / "given.npz", source=source, target=target, configs=json.dumps(configs), **arrays)
    subprocess.run(
        [sys.executable, "-c", ON_TORCH, tmp_path / "given.npz", tmp_path / "results.npz"],
        env={**os.environ, "KERAS_BACKEND": "torch"},
        check=True,
    )
    results = np.load(tmp_path / "results.npz")
    assert set(results) == set(expected)
    for name, value in expected.items():
        # Gradients of a sum over 108 logits go up to some hundred.
        np.testing.assert_allclose(results[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
