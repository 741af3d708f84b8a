"""Exports that store their weights in float16."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import build
from zoo import TextGenerator
from zoo.models import GPT
from zoo.serving import export, half_weights, open_servable

pytestmark = pytest.mark.long

TEXTS = ["abc", "", "12 é", "dédé 4321 😀"]


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """A translator whose larger weights are in float16; those below 100 numbers are in float32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(half_weights, "_SMALL", 100)
        return export(build(), tmp_path_factory.mktemp("half") / "tiny", weights="float16")


@pytest.fixture(scope="module")
def rounded():
    """The translator with these weights rounded in NumPy."""
    translator = build()
    for weight in translator.model.weights:
        if weight.shape.num_elements() >= 100:
            weight.assign(weight.numpy().astype("float16").astype("float32"))
    return translator


def test_large_weights_take_half_the_bytes(version):
    stored = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    dtypes = {name: dtype for name, dtype in stored.get_variable_to_dtype_map().items() if "OBJECT_GRAPH" not in name}
    shapes = stored.get_variable_to_shape_map()
    assert {tf.float16, tf.float32} == set(dtypes.values())
    assert all((np.prod(shapes[name]) >= 100) == (dtype == tf.float16) for name, dtype in dtypes.items())


def test_python_computes_with_the_rounded_weights(version, rounded):
    servable = open_servable(version)
    assert servable(TEXTS) == rounded(TEXTS)
    targets = ["zyx", "w", "", "987 ü"]
    ours, theirs, exact = (
        [score.log_probability for score in model.score(TEXTS, targets)] for model in (servable, rounded, build())
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert np.abs(np.subtract(ours, exact)).max() > 1e-4


def test_a_session_computes_with_the_rounded_weights(version, rounded):
    """As a server loads it: restores the variables, then runs the initialisers."""
    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        signature = v1.saved_model.load(session, ["serve"], str(version)).signature_def["serving_default"]
        feed = {signature.inputs["text"].name: TEXTS}
        texts = session.run(signature.outputs["text"].name, feed)
    assert [text.decode() for text in texts] == rounded(TEXTS)


def test_a_signature_may_outlive_its_module(version, rounded):
    """As in one line: `tf.saved_model.load(folder).signatures["serving_default"](text=...)`."""
    signature = tf.saved_model.load(version).signatures["serving_default"]
    gc.collect()
    assert [text.decode() for text in signature(text=tf.constant(TEXTS))["text"].numpy()] == rounded(TEXTS)


def test_ids_that_are_never_written_stay_so(tmp_path, monkeypatch):
    """Their logits are -1e9, beyond float16."""
    monkeypatch.setattr(half_weights, "_SMALL", 1)
    tokenizer = build().source_tokenizer
    model = GPT(tokenizer.size, units=8, num_heads=2, num_layers=1, context_length=8, unused_ids=[0, 1, 2, 3, 5])
    version = export(TextGenerator(model, tokenizer), tmp_path / "tiny", weights="float16")
    stored = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    biases = [
        stored.get_tensor(name)[-1]
        for name, shape in stored.get_variable_to_shape_map().items()
        if shape[1:] == [tokenizer.size]
    ]
    assert [np.flatnonzero(bias < -65000).tolist() for bias in biases] == [[0, 1, 2, 3, 5]]
    # At the highest temperature that counts, an id whose logit is the lowest number of float16 would be drawn.
    texts = open_servable(version).generate(["ab"] * 50, temperature=1e6, seed=1)
    assert tokenizer.detokenize([[5]]).numpy()[0].decode() not in "".join(text.text for text in texts)


def test_an_unknown_type_and_weights_beyond_float16(tmp_path, monkeypatch):
    monkeypatch.setattr(half_weights, "_SMALL", 100)
    translator = build()
    with pytest.raises(ValueError, match=r"^`weights` must be 'float32' or 'float16'\. Received: weights='int8'$"):
        export(translator, tmp_path / "tiny", weights="int8")
    large = next(weight for weight in translator.model.weights if weight.shape.num_elements() >= 100)
    large.assign(tf.fill(large.shape, 65536.0))
    with pytest.raises(ValueError, match=r"^The weights cannot be stored in float16: .* has a value of 65536\.$"):
        export(translator, tmp_path / "tiny", weights="float16")
    assert not list((tmp_path / "tiny").iterdir())
