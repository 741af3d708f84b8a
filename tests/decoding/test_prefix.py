"""Given tokens at the beginning: read from strings, written first by every search, and what may come after them."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import WithPrefix, beam_search, greedy, next_tokens, read_prefix
from zoo.text.tokenizer import END, START


class Chain:
    """A model whose logits depend on the token before only: (V, V)."""

    def __init__(self, logits):
        self.logits = tf.constant(logits, tf.float32)

    def begin(self, source):
        return (source,), tf.zeros([len(source), 1, 1])

    def step(self, tokens, position, memory, cache):
        return tf.gather(self.logits, tokens), cache, tf.one_hot(tokens, 9)


CHAIN = Chain(np.random.default_rng(3).normal(size=(9, 9)) * 2)
SOURCE = tf.ones([2, 1], tf.int32)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("4 5 8", [4, 5, 8]),
        ("", []),
        ("  7\t4  ", [7, 4]),
        ("5 3 6", [5, 3]),  # 3 ends a text
        ("5 9 6", [5]),  # there are 9 ids
        ("5 2 6", [5]),  # a start token is never written
        ("5 -1", [5]),
        ("5 six 7", [5]),
        ("99999999999999999999", []),
        ("٤ 5", []),  # only ASCII digits
    ],
)
def test_a_prefix_ends_before_what_cannot_be_written(text, ids):
    rows = read_prefix(tf.constant([text, "4 4 4 4"]), 9).numpy()
    assert rows[0].tolist() == ids + [0] * (4 - len(ids))
    assert rows[1].tolist() == [4, 4, 4, 4]
    assert read_prefix(tf.constant([text]), 9).numpy().tolist()[0][: len(ids)] == ids


def test_greedy_goes_on_from_the_given_tokens():
    prefix = tf.constant([[8, 4, 0], [5, 6, 7]])
    found = greedy(WithPrefix(CHAIN, prefix), SOURCE, tf.constant([6, 6])).ids.numpy()
    for row, given in zip(found, ([8, 4], [5, 6, 7]), strict=True):
        wanted = list(given)
        while wanted[-1] != END and len(wanted) < 6:
            wanted.append(END + int(np.argmax(CHAIN.logits.numpy()[wanted[-1], END:])))
        assert [each for each in row if each] == wanted
    assert greedy(WithPrefix(CHAIN, [[], [5, 6, 7]]), SOURCE, [6, 6]).ids.numpy()[1, :3].tolist() == [5, 6, 7]


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_a_wide_beam_finds_the_best_of_all_texts_that_begin_so(penalty):
    """By the score that they have without a prefix: of all their tokens, the given one too."""
    prefix = tf.constant([[6], [4]])
    found = beam_search(WithPrefix(CHAIN, prefix), SOURCE, tf.constant([3, 3]), 48, penalty, early_stopping="never")
    logits = CHAIN.logits.numpy()
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))  # (9, 9)
    for row, given in enumerate((6, 4)):
        texts = [(given, END), *itertools.product([given], range(END + 1, 9), range(END, 9))]
        scores = {text: sum(logs[pair] for pair in itertools.pairwise((START, *text))) for text in texts}
        best = max(texts, key=lambda text: scores[text] / ((5 + len(text)) / 6) ** penalty)
        assert tuple(each for each in found.ids.numpy()[row, 0] if each) == best
        assert found.log_probabilities.numpy()[row, 0] == pytest.approx(scores[best], abs=1e-5)


@pytest.mark.parametrize("never", [-1e9, float("-inf")])
def test_a_given_token_that_the_model_never_writes(never):
    """What follows it is found as behind any other token."""
    logits = CHAIN.logits.numpy().copy()
    logits[:, 7] = never
    prefix = tf.constant([[7], [7]])
    for search in (greedy, lambda *arguments: beam_search(*arguments, 48, 0.0)):
        found = search(WithPrefix(Chain(logits), prefix), SOURCE, tf.constant([2, 2]))
        best = END + np.argmax(logits[7, END:])
        assert found.ids.numpy().reshape(2, -1).tolist() == [[7, best]] * 2
        assert np.isfinite(found.log_probabilities).all()


@pytest.mark.parametrize("wrong", [1, START, -1, 9])
def test_a_given_token_that_no_search_writes(wrong):
    """An end token of the probability 0 was written in its place."""
    model = Chain(CHAIN.logits)
    model.target_vocabulary_size = 9
    with pytest.raises(ValueError, match=rf"^`prefix` must hold ids .* Received: {wrong}$"):
        WithPrefix(model, [[4], [5, wrong]])


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_prefix_for_other_rows(rows):
    model = WithPrefix(CHAIN, [[4]] * rows)
    with pytest.raises(
        ValueError, match=r"^`prefix` must have as many rows as `source`, 2\. Received: prefix of shape"
    ):
        greedy(model, SOURCE, 3)


def test_an_end_token_that_is_given_ends_the_text():
    prefix = tf.constant([[8, END], [5, 0]])
    for search in (greedy, lambda *arguments: beam_search(*arguments, 4)):
        ids = search(WithPrefix(CHAIN, prefix), SOURCE, tf.constant([6, 1])).ids.numpy().reshape(2, -1)
        assert [[each for each in row if each] for row in ids] == [[8, END], [5]]


def test_an_empty_prefix_changes_nothing():
    none = tf.zeros([2, 0], tf.int32)
    one = beam_search(WithPrefix(CHAIN, none), SOURCE, tf.constant([5, 4]), 3)
    other = beam_search(CHAIN, SOURCE, tf.constant([5, 4]), 3)
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.scores, other.scores)


def test_weights_are_those_of_the_given_tokens():
    prefix = tf.constant([[8, 4], [5, 6]])
    found = greedy(WithPrefix(CHAIN, prefix), SOURCE, tf.constant([3, 3]), return_weights=True)
    np.testing.assert_array_equal(found.weights.numpy()[:, 1:].argmax(-1), [[8, 4], [5, 6]])


@pytest.mark.parametrize(("temperature", "powers"), [(1.0, 1.0), (2.0, 0.5), (0.25, 4.0), (1e7, 1e-6), (np.inf, 1e-6)])
def test_next_tokens_have_the_probabilities_of_a_draw_at_their_temperature(temperature, powers):
    logits = np.array([[9.0, 9.0, 9.0, 1.0, 2.0, -1.0, 0.5]], "float32")  # the first three are never written
    ids, probabilities = next_tokens(tf.constant(logits), tf.constant([temperature]))
    wanted = np.exp(logits[0, 3:] * powers)
    assert ids.numpy().tolist() == [[4, 3, 6, 5]]
    np.testing.assert_allclose(probabilities[0], (wanted / wanted.sum())[[1, 0, 3, 2]], rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), 1e-21])
def test_where_a_draw_takes_the_likeliest_token_it_is_certain(temperature):
    logits = tf.constant([[0.0] * 3 + [500.0, 501.0, -1e30] + [0.0] * 40 + [501.0]])  # of two equal ones, the first
    ids, probabilities = next_tokens(logits, tf.constant([temperature]))
    assert (int(ids[0, 0]), ids.shape) == (4, (1, 20))
    np.testing.assert_array_equal(probabilities[0], [1.0] + [0.0] * 19)
