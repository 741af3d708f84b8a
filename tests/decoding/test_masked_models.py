"""Models without some tokens and heads, against the same models with other weights or other texts; and their names."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import WithMasks, WithPrefix, beam_search, logits_after, read_heads, read_hidden, score_tokens
from zoo.layers.functions import forward_only
from zoo.models import GPT, Masks, RNNSeq2Seq, Transformer
from zoo.serving.packed import layers, pack

SOURCE = np.array([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
TARGET = np.array([[2, 4, 5, 6], [2, 7, 0, 0]])
SHOWN = np.array([[True, False, True, True, True], [True, True, False, True, True]])
SIZES = dict(units=12, num_heads=6, feed_forward_units=10, dropout=0.0)


def random_weights(model, seed=0):
    random = np.random.default_rng(seed)
    for weight in model.weights:
        scale = weight.path.endswith(("gamma", "scale"))
        weight.assign(random.uniform(0.5, 1.5, weight.shape) if scale else 0.7 * random.normal(size=weight.shape))
    return model


@pytest.fixture(scope="module", params=["post-norm", "modern"])
def transformer(request):
    modern = dict(norm_first=True, positions="rotary", normalization="rms") if request.param == "modern" else {}
    return random_weights(Transformer(11, 10, encoder_layers=1, decoder_layers=2, **SIZES, **modern))


@pytest.fixture(scope="module", params=["plain", "grouped"])
def gpt(request):
    more = dict(num_key_value_heads=2, positions="rotary", parallel_residual=True) if request.param == "grouped" else {}
    return random_weights(GPT(11, num_layers=2, context_length=8, units=12, num_heads=6, **more))


def in_both_forms(model):
    """The model, and packed: with layers in two parts if its positions are rotary, so that each has been tried."""
    in_parts = model.positions == "rotary"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "WIDE", 1 if in_parts else layers.WIDE)
        packed = pack(model, 8)
    assert packed.in_parts == in_parts
    return [model, packed]


def without_head(model, kind, layer, head):
    """A copy of the model in which the rows of a head are zero in the kernel behind it."""
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    name = {"encoder": "encoder_layer", "": "layer"}.get(kind, "decoder_layer")
    part = copy.get_layer(f"{name}_{layer + 1}")
    part = part.memory_attention if kind == "source" else part.self_attention
    kernel = np.array(part.output_dense.kernel)  # (H, d, D)
    kernel[head] = 0
    part.output_dense.kernel.assign(kernel)
    return copy


def all_heads(model, rows):
    return {kind: np.ones((rows, *sizes), "float32") for kind, sizes in model.head_sizes.items()}


def scores(model, inputs, labels):
    with forward_only(16):
        return score_tokens(model, inputs, tf.constant(labels, tf.int32)).numpy()


def translated(model, source=SOURCE, **options):
    with forward_only(16):
        found = beam_search(model, tf.constant(source, tf.int32), tf.fill([len(source)], 4), beam_size=3, **options)
    return found.ids.numpy()[:, 0], found.log_probabilities.numpy()[:, 0]


LABELS = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
INPUTS = {"source": tf.constant(SOURCE, tf.int32), "target": tf.constant(TARGET, tf.int32)}
TOKENS = tf.constant([[2, 5, 6, 7, 8], [2, 9, 4, 6, 0]])
NEXT = np.array([[5, 6, 7, 8, 3], [9, 4, 6, 3, 0]])


@pytest.mark.long
@pytest.mark.parametrize("off", [("encoder", 0, 4), ("source", 1, 0), ("decoder", 0, 1)], ids=lambda off: off[0])
def test_a_head_that_is_off_is_one_whose_output_weights_are_zero(transformer, off):
    """In the second row only; of scores, of a beam search, and in the packed model. Its weights are zero too."""
    kind, layer, head = off
    heads = all_heads(transformer, 2)
    heads[kind][1, layer, head] = 0
    wanted = without_head(transformer, *off)
    plain_scores, wanted_scores = (scores(model, INPUTS, LABELS) for model in (transformer, wanted))
    (_, plain_beam), (wanted_ids, wanted_beam) = (translated(model) for model in (transformer, wanted))
    assert np.abs(wanted_scores[1] - plain_scores[1]).max() > 1e-3
    for model in in_both_forms(transformer):
        masked = WithMasks(model, Masks(heads={name: tf.constant(each) for name, each in heads.items()}))
        found, (ids, beam) = scores(masked, INPUTS, LABELS), translated(masked)
        np.testing.assert_allclose(found, [plain_scores[0], wanted_scores[1]], atol=1e-4)
        np.testing.assert_allclose(beam, [plain_beam[0], wanted_beam[1]], atol=1e-4)
        np.testing.assert_array_equal(ids[1][ids[1] != 0], wanted_ids[1][wanted_ids[1] != 0])
        with forward_only(16):
            maps = dict(zip(("source", "encoder", "decoder"), masked.attention_maps(*INPUTS.values()), strict=True))
        is_zero = [not np.any(maps[kind][row, layer, head]) for row in (0, 1)]
        assert is_zero == [False, True]


def test_a_head_of_a_language_model_that_is_off(gpt):
    heads = all_heads(gpt, 2)
    heads[""][0, 1, 2] = 0
    plain, wanted = (scores(model, TOKENS, NEXT) for model in (gpt, without_head(gpt, "", 1, 2)))
    for model in in_both_forms(gpt):
        masked = WithMasks(model, Masks(heads={"": tf.constant(heads[""])}))
        found = scores(masked, TOKENS, NEXT)
        np.testing.assert_allclose(found, [wanted[0], plain[1]], atol=1e-4)
        assert not np.any(masked.attention_maps(TOKENS)[0, 1, 2])


def test_what_is_hidden_in_a_source_has_no_influence(transformer):
    """Another token in its place changes nothing, and nobody attends to it; the layers' own masks give the same."""
    other = np.where(SHOWN, SOURCE, 10)
    memory = transformer._embed(SOURCE, transformer.source_embedding, transformer.source_positions)
    for layer in transformer.encoder:
        memory = layer(memory, mask=(SOURCE != 0) & SHOWN)
    memory = memory if transformer.encoder_norm is None else transformer.encoder_norm(memory)
    hidden = transformer._embed_target(TARGET)
    for layer in transformer.decoder:
        hidden = layer(hidden, memory, memory_mask=(SOURCE != 0) & SHOWN)
    logits = transformer.logits_of(transformer._normalized(hidden))
    wanted = np.take_along_axis(np.array(tf.nn.log_softmax(logits)), LABELS[..., None], 2)[..., 0] * (LABELS != 0)
    unmasked = scores(transformer, INPUTS, LABELS)
    for model in in_both_forms(transformer):
        masked = WithMasks(model, Masks(tf.constant(SHOWN)))
        found = scores(masked, INPUTS, LABELS)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
        np.testing.assert_allclose(scores(masked, {**INPUTS, "source": tf.constant(other)}, LABELS), found, atol=1e-5)
        assert np.abs(found - unmasked).max(1).min() > 1e-3
        ids, log_probabilities = translated(masked)
        of_other = translated(masked, other)
        np.testing.assert_array_equal(of_other[0], ids)
        np.testing.assert_allclose(of_other[1], log_probabilities, atol=1e-5)
        with forward_only(16):
            to_source, within, _ = masked.attention_maps(*INPUTS.values())
        for maps in (to_source, within):
            assert not (np.array(maps) * ~SHOWN[:, None, None, None]).any()


@pytest.mark.parametrize("options", [{"attention": "additive"}, {"attention": None, "cell": "lstm"}])
def test_a_recurrent_model_skips_what_is_hidden(options):
    """As if the source were shorter."""
    model = random_weights(RNNSeq2Seq(11, 10, units=6, **options))
    masked = WithMasks(model, Masks(tf.constant(SHOWN)))
    found, (ids, log_probabilities) = scores(masked, INPUTS, LABELS), translated(masked)
    for row in range(2):
        source = SOURCE[row][(SOURCE[row] != 0) & SHOWN[row]][None]
        inputs = {"source": tf.constant(source), "target": INPUTS["target"][row : row + 1]}
        np.testing.assert_allclose(found[row], scores(model, inputs, LABELS[row : row + 1])[0], atol=1e-5)
        alone = translated(model, source)
        np.testing.assert_array_equal(ids[row][: alone[0].shape[1]], alone[0][0])
        assert log_probabilities[row] == pytest.approx(alone[1][0], abs=1e-4)


def test_later_tokens_do_not_attend_to_what_is_hidden_in_a_text(gpt):
    """It attends to itself: its own logits stay, those of later tokens no longer depend on it."""
    shown = np.array([[True, True, False, True, True], [True, False, True, True, True]])
    other = tf.where(shown, TOKENS, 10)
    for model in in_both_forms(gpt):
        masked = WithMasks(model, Masks(tf.constant(shown)))
        found = scores(masked, TOKENS, NEXT)
        plain, changed = scores(gpt, TOKENS, NEXT), scores(masked, other, NEXT)
        for row, place in enumerate((2, 1)):
            np.testing.assert_allclose(found[row, : place + 1], plain[row, : place + 1], atol=1e-4)
            np.testing.assert_allclose(found[row, place + 1 :], changed[row, place + 1 :], atol=1e-5)
            assert np.abs(found - plain)[row, place + 1] > 1e-3
        maps = np.array(masked.attention_maps(TOKENS))
        for row, place in enumerate((2, 1)):
            assert not maps[row, :, :, place + 1 :, place].any() and maps[row, :, :, place, place].all()
        lengths = tf.constant([5, 4])
        logits = logits_after(masked, TOKENS, lengths)
        logits_alone = logits_after(WithMasks(model, Masks(tf.constant(shown[1:, :4]))), TOKENS[1:, :4], lengths[1:])
        np.testing.assert_allclose(logits[1], logits_alone[0], atol=1e-4)


def test_all_of_a_source_may_be_hidden(transformer):
    for model in in_both_forms(transformer):
        masked = WithPrefix(WithMasks(model, Masks(tf.zeros([2, 5], tf.bool))), tf.constant([[4], [0]]))
        ids, log_probabilities = translated(masked)
        assert ids[0, 0] == 4 and np.isfinite(log_probabilities).all()


def test_positions_as_strings():
    rows = ["1 3", "", "4 5 -1 x 2.0 99999999999 0", "0 0 0", "\u0663", "1,2"]
    found = read_hidden(tf.constant(rows), 5).numpy()
    hidden = [np.flatnonzero(~row).tolist() for row in found]
    assert hidden == [[1, 3], [], [0, 4], [0], [], []]
    assert read_hidden(tf.constant([], tf.string), 5).shape == (0, 5)
    assert read_hidden(tf.constant(["0", "1"]), 0).shape == (2, 0)


def test_heads_as_strings():
    sizes = {"encoder": (1, 3), "source": (2, 2)}
    rows = [
        "encoder.1.3 source.2.1",
        "",
        "encoder.0.1 encoder.2.1 decoder.1.1 1.2 oops source.1.3 source.1.2",
        "x " * 9,
    ]
    found = read_heads(tf.constant(rows), sizes)
    assert {kind: each.shape for kind, each in found.items()} == {"encoder": (4, 1, 3), "source": (4, 2, 2)}
    off = [(kind, *place) for kind, each in found.items() for place in np.argwhere(each.numpy() == 0).tolist()]
    assert off == [("encoder", 0, 0, 2), ("source", 0, 1, 0), ("source", 2, 0, 1)]
    found = read_heads(tf.constant(["2.1", ".1.1"]), {"": (2, 1)})[""].numpy()
    assert np.argwhere(found == 0).tolist() == [[0, 1, 0]]


def test_the_heads_of_attention_over_several_axes():
    """`head_mask` of a layer whose positions have two axes."""
    from zoo.layers import MultiHeadAttention

    layer = MultiHeadAttention(3, 4, attention_axes=(1, 2))
    x, head_mask = (
        np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype("float32"),
        np.array([[1, 1, 1], [0, 1, 1]]),
    )
    plain, weights = layer(x, x, return_attention_scores=True)
    found, found_weights = layer(x, x, return_attention_scores=True, head_mask=head_mask)
    kernel = np.array(layer.output_dense.kernel)
    kernel[0] = 0
    layer.output_dense.kernel.assign(kernel)
    np.testing.assert_allclose(found[0], plain[0], atol=1e-5)
    np.testing.assert_allclose(found[1], layer(x, x)[1], atol=1e-5)
    np.testing.assert_allclose(found_weights[1, 1:], weights[1, 1:], atol=1e-6)
    assert not np.any(found_weights[1, 0])
    assert keras.ops.shape(found_weights) == keras.ops.shape(weights)
