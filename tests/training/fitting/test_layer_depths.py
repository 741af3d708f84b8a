"""Which layer a variable belongs to, how fast it learns, and what stays as it was."""

import keras
import numpy as np
import pytest
from zoo_training.fitting.layer_depths import frozen, layer_depths, rate_factors
from zoo_training.fitting.optimization import make_optimizer
from zoo_training.schema.recipe_tables import TrainingConfig

from zoo.models import GPT, Classifier, Encoder, NgramEncoder, RNNEncoder, RNNSeq2Seq, Transformer


def classifier():
    return Classifier(Encoder(20, units=8, num_heads=2, num_layers=3, max_length=9, num_segments=2), 2)


def depths_by_path(model):
    depths = layer_depths(model)
    return {variable.path: depths[id(variable)] for variable in model.trainable_variables}


MODELS = {
    "classifier": (classifier, 4, {"token_embedding", "positions", "segment_embedding", "embedding_norm"}),
    "rnn": (lambda: Classifier(RNNEncoder(20, units=8, num_layers=2), 2), 3, {"token_embedding"}),
    "ngrams": (lambda: Classifier(NgramEncoder(20, units=8), 2, pooling="votes"), 1, {"ngram_embedding"}),
    "gpt": (lambda: GPT(20, units=8, num_heads=2, num_layers=2, context_length=9), 3, {"embedding", "positions"}),
    "transformer": (
        lambda: Transformer(20, 22, units=8, num_heads=2, encoder_layers=3, decoder_layers=1, feed_forward_units=8),
        4,
        {"source_embedding", "target_embedding"},
    ),
    "rnn_seq2seq": (lambda: RNNSeq2Seq(20, 22, units=8), 2, {"source_embedding", "target_embedding"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_embeddings_are_lowest_layers_are_counted_and_the_rest_is_above(name):
    make, top, embeddings = MODELS[name]
    depths = depths_by_path(make())
    assert {path.split("/")[0] for path, depth in depths.items() if depth == 0} == embeddings
    assert set(depths.values()) == set(range(top + 1)) or (name, top) == ("transformer", 4)
    for path, depth in depths.items():
        first = path.split("/")[0]
        if "layer_" in first:
            assert depth == int(first.rpartition("_")[2])
        elif depth == top:
            assert first in {"logits", "readout", "initial_hidden", "norm", "encoder_norm", "decoder_norm"}


def test_factors_fall_from_the_head_to_the_embeddings():
    model = classifier()
    factors = rate_factors(model, 0.5)
    by_path = {variable.path: factors[id(variable)] for variable in model.trainable_variables}
    assert by_path["logits/kernel"] == 1
    assert by_path["layer_3/feed_forward/input/kernel"] == 0.5
    assert by_path["layer_1/feed_forward/input/kernel"] == 0.125
    assert by_path["token_embedding/embeddings"] == 0.0625


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_an_update_is_that_of_a_smaller_learning_rate(optimizer, decay):
    """A variable with the factor 0.1, against the same variable trained alone at a tenth of the rate."""

    def trained(rates, factors):
        variables = [keras.Variable(np.arange(1, 7, dtype="float32").reshape(2, 3), name="kernel") for _ in rates]
        config = TrainingConfig(
            learning_rate=rates[0], schedule="constant", clip_norm=None, weight_decay=decay, optimizer=optimizer
        )
        made = make_optimizer(config, 5, {id(v): f for v, f in zip(variables, factors, strict=True)})
        for step in range(3):
            gradient = np.array([[1.0, -2.0, 0.5], [0.3, step, -1.0]])
            made.apply([keras.ops.convert_to_tensor(gradient, "float32")] * len(variables), variables)
        return [np.array(variable) for variable in variables]

    first, second = trained([0.2, 0.2], [1.0, 0.1])
    np.testing.assert_allclose(first, trained([0.2], [1.0])[0], rtol=1e-6)
    np.testing.assert_allclose(second, trained([0.02], [1.0])[0], rtol=1e-5)
    assert np.abs(first - second).max() > 0.01


def test_frozen_layers_keep_their_weights_and_can_be_trained_afterwards():
    model = classifier()
    trainable = len(model.trainable_variables)
    with frozen(model, 2):
        assert {depth for path, depth in depths_by_path(model).items()} == {3, 4}
    assert len(model.trainable_variables) == trainable
    with frozen(model, 0):
        assert {depth for path, depth in depths_by_path(model).items()} == {1, 2, 3, 4}
    with frozen(model, None):
        assert len(model.trainable_variables) == trainable
    with pytest.raises(ValueError, match="frozen_layers must be at most the model's 3 layers"), frozen(model, 4):
        pass
