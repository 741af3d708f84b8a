import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import ReversibleEmbedding


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_gives_what_keras_layer_gives_and_its_gradient_as_one_matrix(arrays, policy):
    x, ids = arrays(table=(7, 5), hidden=(2, 3, 5)), np.array([[1, 6, 1], [0, 2, 6]])
    results = []
    for layer_class in (ReversibleEmbedding, keras.layers.ReversibleEmbedding):
        layer = layer_class(7, 5, dtype=policy)
        layer.build()
        layer.set_weights([x.table])
        with tf.GradientTape() as tape:
            vectors = layer(ids)
            loss = tf.reduce_sum(tf.cast(vectors, "float32") ** 2)
        gradient = tape.gradient(loss, layer.embeddings.value)
        results.append((vectors, layer(x.hidden, reverse=True), gradient))
    ours, theirs = results
    assert isinstance(ours[2], tf.Tensor)
    if policy == "float32":
        assert isinstance(theirs[2], tf.IndexedSlices), "or Keras' layer does the same, and ours has no purpose"
    for result, expected in zip(ours, theirs, strict=True):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        tolerance = 1e-5 if policy == "float32" else 2**-6
        expected = np.array(tf.cast(tf.convert_to_tensor(expected), "float32"))
        np.testing.assert_allclose(tf.cast(result, "float32"), expected, atol=tolerance * np.abs(expected).max())


def test_refuses_vectors_of_another_width():
    layer = ReversibleEmbedding(7, 5)
    layer.build()
    with pytest.raises(ValueError, match=r"`inputs` must have the width 5, which .* of shape \(2, 3, 4\)"):
        layer(np.zeros((2, 3, 4)), reverse=True)
