"""Self-attention and transformers as their papers write them, in NumPy and float64, one token after the other."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
}
GATES = {"swiglu": "silu", "geglu": "gelu"}


@pytest.fixture(scope="session")
def numpy_pairs():
    """A function that says which token may attend to which `(B, T, T)`, from a mask of tokens or of pairs or None."""

    def pairs(mask, batch, length, causal=False):
        allowed = np.zeros((batch, length, length), bool)
        for b, i, j in np.ndindex(allowed.shape):
            told = mask is None or (mask[b, i] and mask[b, j] if mask.ndim == 2 else mask[b, i, j])
            allowed[b, i, j] = told and (j <= i or not causal)
        return allowed

    return pairs


@pytest.fixture(scope="session")
def called():
    """A function that calls another on arrays: eagerly, in a graph, or compiled by XLA."""

    def called(path, function, *arrays):
        import tensorflow as tf

        if path != "eager":
            function = tf.function(function, jit_compile=path == "XLA", autograph=False)
        return function(*(tf.constant(array) for array in arrays))

    return called


@pytest.fixture(scope="session")
def numpy_transformer(numpy_softmax):
    """What the layers of a transformer compute: `encoder`, `decoder`, `feed_forward`; and `weights`, a layer's by path.

    They take one sentence `(T, D)` and a namespace of the layer's arguments. Masks are of tokens, `(T,)`.
    """

    def weights_of(layer):
        return {w.path.removeprefix(f"{layer.name}/"): np.array(w, "float64") for w in layer.weights}

    def dense(x, weights, name):
        return x @ weights[f"{name}/kernel"] + weights.get(f"{name}/bias", 0)

    def feed_forward(tokens, weights, activation, prefix=""):
        outputs = []
        for x in tokens:
            function = np.vectorize(ACTIVATIONS[GATES.get(activation, activation)], otypes=["float64"])
            hidden = function(dense(x, weights, f"{prefix}input"))
            if activation in GATES:
                hidden = hidden * dense(x, weights, f"{prefix}gate")
            outputs.append(dense(hidden, weights, f"{prefix}output"))
        return np.array(outputs)

    def norm(tokens, weights, name, options):
        outputs = []
        for x in tokens:
            if options.normalization == "rms":
                outputs.append(x / np.sqrt(np.mean(x**2) + options.epsilon) * weights[f"{name}/scale"])
            else:
                deviation = np.sqrt(np.mean((x - x.mean()) ** 2) + options.epsilon)
                outputs.append((x - x.mean()) / deviation * weights[f"{name}/gamma"] + weights[f"{name}/beta"])
        return np.array(outputs)

    def turned(x, position):
        """Rotary positions: each pair of features, from either half, as a complex number times e^(i angle)."""
        half = len(x) // 2
        angles = position * 10_000.0 ** (-np.arange(half) / half)
        pairs = (x[:half] + 1j * x[half:]) * np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag])

    def attention(tokens, memory, weights, name, allowed, options, rotary=False):
        heads = weights[f"{name}/query/kernel"].shape[1]
        members = heads // weights[f"{name}/key/kernel"].shape[1]

        def head(x, part, h):
            bias = weights.get(f"{name}/{part}/bias")
            return x @ weights[f"{name}/{part}/kernel"][:, h] + (0 if bias is None else bias[h])

        outputs, shares = [], np.zeros((heads, len(tokens), len(memory)))
        for i, x in enumerate(tokens):
            total = weights.get(f"{name}/attention_output/bias", 0)
            for h in range(heads):
                query = head(x, "query", h)
                keys = [head(m, "key", h // members) for m in memory]
                if rotary:
                    query, keys = turned(query, i), [turned(key, j) for j, key in enumerate(keys)]
                scores = np.array([query @ key / math.sqrt(len(query)) for key in keys])
                shares[h, i] = numpy_softmax(scores, allowed[i])
                context = shares[h, i] @ [head(m, "value", h // members) for m in memory]
                total = total + context @ weights[f"{name}/attention_output/kernel"][h]
            outputs.append(total)
        return np.array(outputs), shares

    def added(tokens, part, weights, name, options):
        if options.norm_first:
            return tokens + part(norm(tokens, weights, name, options))
        return norm(tokens + part(tokens), weights, name, options)

    def layer(tokens, weights, options, mask, causal, memory=None, memory_mask=None):
        options = SimpleNamespace(
            **{
                **dict(norm_first=False, normalization="layer", activation="relu", epsilon=1e-5, sliding_window=None),
                **options,
            }
        )
        length, shares = len(tokens), []
        window = options.sliding_window or length
        near = [[(j <= i or not causal) and abs(i - j) < window for j in range(length)] for i in range(length)]

        def attend(x):
            rotary = getattr(options, "rotary_embedding", None) is not None
            output, share = attention(x, x, weights, "self_attention", np.array(near) & mask, options, rotary)
            shares.append(share)
            return output

        def attend_to_memory(x):
            allowed = np.ones((length, len(memory)), bool) & memory_mask
            output, share = attention(x, memory, weights, "memory_attention", allowed, options)
            shares.append(share)
            return output

        tokens = added(tokens.astype("float64"), attend, weights, "self_attention_norm", options)
        if memory is not None:
            memory = memory.astype("float64")
            tokens = added(tokens, attend_to_memory, weights, "memory_attention_norm", options)
        output = added(
            tokens,
            lambda x: feed_forward(x, weights, options.activation, "feed_forward/"),
            weights,
            "feed_forward_norm",
            options,
        )
        return output, *shares

    def encoder(tokens, weights, options, mask=True):
        return layer(tokens, weights, options, mask, causal=False)

    def decoder(tokens, weights, options, memory=None, mask=True, memory_mask=True):
        return layer(tokens, weights, options, mask, True, memory, memory_mask)

    return SimpleNamespace(encoder=encoder, decoder=decoder, feed_forward=feed_forward, weights=weights_of)
