"""The arguments of `GPT` that published language models need, against the formulas in NumPy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from zoo.models import GPT
from zoo.serving.packed import pack, unsupported

V, D, H, F, N, LENGTH = 13, 12, 3, 10, 3, 9
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 8,
}
ROTARY = {"positions": "rotary", "normalization": "rms", "activation": "swiglu", "use_bias": False}
CASES = {
    "key_dim": {"key_dim": 6},
    "qkv bias": {"use_bias": False, "use_qkv_bias": True},
    "no qkv bias": {"use_qkv_bias": False},
    "query key norm": {**ROTARY, "use_query_key_norm": True, "num_key_value_heads": 1},
    "one scale": {"score_scale": 1.0},
    "a scale for each layer": {"score_scale": [0.5, 0.25, 0.125]},
    "window": {"sliding_window": 3},
    "alternating windows": {"sliding_window": [None, 2]},
    "wavelength": {**ROTARY, "max_wavelength": 50.0},
    "partial rotary": {**ROTARY, "rotary_dim": 2},
    "linear scaling": {**ROTARY, "rotary_scaling": {"rope_type": "linear", "factor": 3.0}},
    "llama3 scaling": {**ROTARY, "key_dim": 8, "rotary_scaling": LLAMA3},
    "parallel residual": {"parallel_residual": True},
    "epsilon": {"epsilon": 0.3},
    "GPT-NeoX": {
        "positions": "rotary",
        "rotary_dim": 2,
        "parallel_residual": True,
        "activation": "gelu",
        "tied_embeddings": False,
    },
    "Qwen3 with windows": {
        **ROTARY,
        "key_dim": 6,
        "rotary_dim": 4,
        "num_key_value_heads": 1,
        "use_qkv_bias": True,
        "use_query_key_norm": True,
        "score_scale": 0.7,
        "sliding_window": [4, None],
        "epsilon": 1e-3,
    },
}


@pytest.fixture(scope="module", params=CASES)
def model(request):
    layers = N if any(isinstance(value, list) for value in CASES[request.param].values()) else 1
    sizes = dict(units=D, num_heads=H, num_layers=layers, context_length=LENGTH, feed_forward_units=F)
    model = GPT(V, **sizes, **CASES[request.param])
    random = np.random.default_rng(2)
    model.set_weights([random.normal(size=w.shape, scale=0.5) for w in model.get_weights()])
    return model


def expected_logits(model, tokens):
    """Logits `(T, V)` of one text, from the formulas of the papers, a position and a head at a time."""
    weights = {weight.path: weight.numpy().astype("float64") for weight in model.weights}
    d = model.key_dim or D // H
    groups = model.num_key_value_heads or H
    x = weights["embedding/embeddings"][tokens]  # (T, D)
    if model.positions == "learned":
        x = x + weights["positions/embeddings"][: len(tokens)]

    def dense(name, x, axes="td,dhk->thk"):
        kernel, bias = weights[f"{name}/kernel"], weights.get(f"{name}/bias", 0)
        return np.einsum(axes if kernel.ndim > 2 else "td,dk->tk", x, kernel) + bias

    def norm(name, x):
        if f"{name}/scale" in weights:
            return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + model.epsilon) * weights[f"{name}/scale"]
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + model.epsilon)
        return scaled * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def rotated(vector, position):
        """One head `(d,)`, with complex numbers."""
        size = model.rotary_dim or d
        vector = vector.copy()
        for i in range(size // 2):
            speed = model.max_wavelength ** (-2 * i / size)
            scaling = model.rotary_scaling
            if scaling and scaling["rope_type"] == "linear":
                speed /= scaling["factor"]
            elif scaling:
                wavelength, old = 2 * math.pi / speed, scaling["original_max_position_embeddings"]
                if wavelength > old / scaling["low_freq_factor"]:
                    speed /= scaling["factor"]
                elif wavelength > old / scaling["high_freq_factor"]:
                    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
                    smooth = (old / wavelength - low) / (high - low)
                    speed = (1 - smooth) * speed / scaling["factor"] + smooth * speed
            pair = complex(vector[i], vector[i + size // 2]) * np.exp(1j * speed * position)
            vector[i], vector[i + size // 2] = pair.real, pair.imag
        return vector

    def attention(layer, index, x):
        q, k, v = (dense(f"{layer}/self_attention/{name}", x) for name in ("query", "key", "value"))
        if model.use_query_key_norm:
            q, k = (norm(f"{layer}/self_attention/{name}_norm", y) for name, y in (("query", q), ("key", k)))
        if model.positions == "rotary":
            q, k = (np.array([[rotated(y[t, h], t) for h in range(y.shape[1])] for t in range(len(y))]) for y in (q, k))
        scale, window = model.score_scale, model.sliding_window
        scale = scale[index % len(scale)] if isinstance(scale, list | tuple) else scale or d**-0.5
        window = window[index % len(window)] if isinstance(window, list | tuple) else window
        contexts = np.zeros((len(x), H, d))
        for t in range(len(x)):
            first = 0 if window is None else max(0, t - window + 1)
            for h in range(H):
                group = h * groups // H
                scores = np.array([scale * q[t, h] @ k[s, group] for s in range(first, t + 1)])
                powers = np.exp(scores - scores.max())
                contexts[t, h] = powers / powers.sum() @ v[first : t + 1, group]
        return dense(f"{layer}/self_attention/attention_output", contexts, "thk,hkd->td")

    def feed_forward(layer, x):
        hidden = dense(f"{layer}/feed_forward/input", x)
        if model.activation == "swiglu":
            gate = dense(f"{layer}/feed_forward/gate", x)
            hidden = hidden / (1 + np.exp(-hidden)) * gate
        elif model.activation == "gelu":
            hidden = hidden * (1 + np.vectorize(math.erf)(hidden / 2**0.5)) / 2
        else:
            hidden = hidden * (1 + np.tanh((2 / math.pi) ** 0.5 * (hidden + 0.044715 * hidden**3))) / 2
        return dense(f"{layer}/feed_forward/output", hidden)

    for index in range(model.num_layers):
        layer = f"layer_{index + 1}"
        attended = x + attention(layer, index, norm(f"{layer}/self_attention_norm", x))
        source = x if model.parallel_residual else attended
        x = attended + feed_forward(layer, norm(f"{layer}/feed_forward_norm", source))
    x = norm("norm", x)
    return x @ (weights["embedding/embeddings"].T if model.tied_embeddings else weights["logits/kernel"])


TOKENS = np.array([[5, 7, 4, 12, 9, 8, 6], [4, 11, 5, 0, 0, 0, 0]])


def test_logits_follow_the_formulas(model):
    logits = model(TOKENS).numpy()
    np.testing.assert_allclose(logits[0], expected_logits(model, TOKENS[0]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(logits[1, :3], expected_logits(model, TOKENS[1, :3]), rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_steps_and_the_packed_form_give_the_same(model):
    """From prompts of two tokens on, one token at a time; the second row's text is shorter."""
    assert unsupported(model) is None
    whole, packed = model(TOKENS).numpy(), pack(model, LENGTH)
    for form in (model, packed):
        memory, cache = form.begin(tf.constant([[5, 7], [4, 0]]))
        for step in range(5):
            tokens = tf.constant([[TOKENS[0, 2 + step]], [TOKENS[1, 1 + step]]])
            logits, cache, _ = form.step(tokens, tf.constant(step), memory, cache)
            np.testing.assert_allclose(logits[0, 0], whole[0, 2 + step], rtol=1e-3, atol=1e-4)
            if step < 2:
                np.testing.assert_allclose(logits[1, 0], whole[1, 1 + step], rtol=1e-3, atol=1e-4)
    logits = packed.logits_of(packed.without_logits()(tf.constant(TOKENS))[0])
    np.testing.assert_allclose(logits, whole[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("model", ["GPT-NeoX", "Qwen3 with windows"], indirect=True)
def test_the_config_gives_the_same_model_again(model):
    again = GPT.from_config(model.get_config())
    assert [weight.path for weight in again.weights] == [weight.path for weight in model.weights]
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(TOKENS), model(TOKENS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"score_scale": [1.0] * (N + 1)}, "`score_scale` must hold 1 to 3 values"),
        ({"sliding_window": []}, "`sliding_window` must hold 1 to 3 values"),
        ({"sliding_window": 0}, "`sliding_window` must be a positive integer"),
        ({"score_scale": -1.0}, "`score_scale` must be a positive number"),
        ({"epsilon": 0}, "`epsilon` must be a positive number"),
        ({"positions": "rotary", "rotary_dim": 3}, "`rotary_dim` must be even"),
        ({"positions": "rotary", "rotary_scaling": {"rope_type": "yarn"}}, "'linear' or 'llama3'"),
        ({"positions": "rotary", "rotary_scaling": {"rope_type": "linear"}}, "has the keys factor"),
        ({"positions": "rotary", "rotary_scaling": {"rope_type": "linear", "factor": 0}}, "`factor` must be"),
        (
            {"positions": "rotary", "rotary_scaling": {**LLAMA3, "high_freq_factor": 1.0}},
            "`low_freq_factor` must be below `high_freq_factor`",
        ),
    ],
)
def test_arguments_out_of_their_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GPT(V, units=D, num_heads=H, num_layers=N, context_length=LENGTH, **arguments)
