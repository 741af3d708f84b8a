"""A shortlist: which tokens a source chooses, the search among them, and what is learnt from attention."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import Shortlist, WithShortlist, beam_search, greedy, learn_shortlist
from zoo.text import WhitespaceTokenizer

VOCABULARY = 40


class Chain:
    """A model whose logits depend on the token before and on the row's source: (B, V, V)."""

    def __init__(self, seed):
        self.logits = tf.constant(np.random.default_rng(seed).normal(size=(3, VOCABULARY, VOCABULARY)) * 2, tf.float32)

    def begin(self, source):
        return tf.gather(self.logits, source[:, 0] % 3), tf.zeros([len(source), 1, 1])

    def step(self, tokens, position, memory, cache):
        return tf.gather(memory, tokens, batch_dims=1), cache, tf.one_hot(tokens, VOCABULARY)


class Without(Chain):
    """The same without the tokens that are not in `ids` (B, C): their logits are minus infinity."""

    def __init__(self, seed, ids):
        super().__init__(seed)
        self.allowed = tf.reduce_any(tf.range(VOCABULARY)[:, None] == ids[:, None], axis=2)  # (B, V)

    def begin(self, source):
        logits, cache = super().begin(source)
        return tf.where(self.allowed[:, None], logits, float("-inf")), cache


@pytest.mark.parametrize(
    ("source", "size", "wanted"),
    [
        # By frequency the tokens are 11, 10, 8, 9, 7, 6, 5, 4. Half of those that are chosen are the first of these.
        # Then come the likeliest translation of each source token, the second ones, and more frequent tokens.
        ([1, 2], 8, {11, 10, 9, 7}),
        ([2, 1], 8, {11, 10, 9, 7}),
        ([1, 2], 10, {11, 10, 8, 9, 7, 4}),
        ([1, 0], 6, {11, 9}),
        ([1, 0], 7, {11, 9, 4}),
        ([1, 0], 9, {11, 10, 9, 4, 8}),
        ([0, 0], 7, {11, 10, 8}),  # padding has no translations, whatever its row says
        ([1, 1], 12, {4, 5, 6, 7, 8, 9, 10, 11}),
    ],
)
def test_frequent_tokens_and_translations_are_chosen(source, size, wanted):
    translations = [[6, 5, 4], [9, 4, 0], [7, 5, 2]]
    counts = [90, 80, 70, 60, 1, 2, 3, 4, 6, 5, 7, 8]  # of special tokens, too
    ids = Shortlist(translations, counts, size)(tf.constant([source, [0, 0]])).numpy()
    assert ids.shape == (2, size)
    assert ids[0, :4].tolist() == [0, 1, 2, 3]
    assert set(ids[0, 4:].tolist()) == wanted
    assert set(ids[1, 4:].tolist()) == set(np.argsort(-np.array(counts[4:]))[: size - 4] + 4)


def test_a_search_among_some_tokens_is_a_search_that_may_not_take_the_others():
    random = np.random.default_rng(7)
    source = tf.constant([[0, 5], [1, 6], [2, 0], [1, 1]])
    ids = Shortlist(random.integers(4, VOCABULARY, (7, 3)), random.permutation(VOCABULARY), 15)(source)
    limits = tf.constant([9, 5, 7, 9])
    listed = WithShortlist(Chain(3), ids)
    for search in (greedy, lambda *arguments: beam_search(*arguments, 3, 0.7, n_best=2)):
        found, wanted = search(listed, source, limits), search(Without(3, ids), source, limits)
        places = found.ids if found.ids.shape.rank == 3 else found.ids[:, None]
        expected = wanted.ids if wanted.ids.shape.rank == 3 else wanted.ids[:, None]
        assert listed.ids_of(places).numpy().tolist() == expected.numpy().tolist()
        np.testing.assert_allclose(found.log_probabilities, wanted.log_probabilities, atol=1e-5)
        assert not np.array_equal(search(Chain(3), source, limits).ids, wanted.ids), "the shortlist changes nothing"


@pytest.mark.parametrize(
    ("translations", "counts", "size", "message"),
    [
        (np.zeros(3, int), np.arange(12), 8, r"must be a matrix of target ids.* Received: shape \(3,\) of int64"),
        (np.zeros((3, 2)), np.arange(12), 8, r"Received: shape \(3, 2\) of float64"),
        ([[4], [12]], np.arange(12), 8, "must hold ids from 0 to 11"),
        ([[4], [-1]], np.arange(12), 8, "must hold ids from 0 to 11"),
        ([[4]], np.zeros((12, 1)), 8, "a number for each target token"),
        ([[4]], ["many"] * 12, 8, r"a number for each target token\. Received: shape \(12,\) of <U4"),
        ([[4]], np.arange(12), 6.5, "`size` must be an integer. Received: size=6.5"),
        ([[4]], np.arange(12), "8", "`size` must be an integer. Received: size='8'"),
    ],
)
def test_what_is_no_shortlist_is_refused(translations, counts, size, message):
    with pytest.raises(ValueError, match=message):
        Shortlist(translations, counts, size)


def test_a_size_may_be_numpys():
    assert Shortlist(np.zeros((3, 1), int), np.arange(12), np.int64(8)).size == 8


@pytest.mark.parametrize("size", [4, 13, -1])
def test_a_size_that_cannot_be_is_refused(size):
    with pytest.raises(ValueError, match=rf"must be from 5 to 12, the number of all target tokens\. Received: {size}"):
        Shortlist(np.zeros((3, 1), int), np.arange(12), size)


class Reversing:
    """A translator that writes a text back word by word, in capitals, from the last word on."""

    def __init__(self, source, target):
        self.tokenizers = source, target

    def with_shortlist(self, shortlist):
        assert shortlist is None
        return self

    def __call__(self, texts, batch_size):
        assert batch_size == len(texts)
        return [" ".join(text.upper().split()[::-1]) for text in texts]


def test_translations_are_those_of_the_same_texts():
    source, target = WhitespaceTokenizer(["a", "b", "c", "d"]), WhitespaceTokenizer(["D", "C", "B", "A", "X"])
    found = learn_shortlist(
        Reversing(source, target), ["a b c", "c a", "", "b", "a c b c"] * 20, size=6, translations=2
    )
    for word, other in (("a", "A"), ("b", "B"), ("c", "C")):
        ids = found(source.tokenize([word], add_end=True)).numpy()[0]
        assert target.tokenize([other]).numpy()[0, 0] in ids[4:], word
    assert found.size == 6
    # `d` was never read, so it has the most frequent words.
    most = {target.tokenize([other]).numpy()[0, 0] for other in ("C", "A", "B")}
    assert set(found(source.tokenize(["d"])).numpy()[0, 4:]) < most


def test_with_one_vocabulary_a_token_may_be_copied_from_a_long_text():
    words = [f"w{number}" for number in range(200)]
    tokenizer = WhitespaceTokenizer([*words, *map(str.upper, words), "oslo"])
    random = np.random.default_rng(2)
    texts = [" ".join(random.choice(words, 9)) for _ in range(600)]
    found = learn_shortlist(Reversing(tokenizer, tokenizer), texts, size=80, translations=32)
    ids = tokenizer.tokenize([" ".join([*words[:19], "oslo"])], add_end=True)  # (1, 21)
    assert (found.translations.numpy()[4:204] > 0).all(), "the rows are full"
    assert set(ids.numpy()[0]) <= set(found(ids).numpy()[0])


def test_half_of_a_surrogate_pair_is_a_question_mark():
    source, target = WhitespaceTokenizer(["a", "?"]), WhitespaceTokenizer(["A", "?"])
    tables = [learn_shortlist(Reversing(source, target), [f"a {each}"], 6).translations for each in ("?", "\ud800")]
    np.testing.assert_array_equal(*tables)


def test_of_unknown_words_nothing_is_learnt_but_how_frequent_tokens_are():
    source, target = WhitespaceTokenizer(["a"]), WhitespaceTokenizer(["X", "Y", "Z"])
    found = learn_shortlist(Reversing(source, target), ["x y", "z z", "y"], size=6)
    assert not found.translations.numpy().any()
    assert found.ranks[4:].argmin() == 0  # X was written once, the others twice


def test_probabilities_are_those_of_model_1():
    """Against the equations written as loops."""
    texts = ["a b c", "c a", "b", "", "a c b c", "d a"]
    source, target = WhitespaceTokenizer(["a", "b", "c", "d"]), WhitespaceTokenizer(["D", "C", "B", "A"])
    translator = Reversing(source, target)
    pairs = [(set(text.split()), set(text.upper().split())) for text in texts]
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(5):
        c = collections.Counter()
        for e_all, f_all in pairs:
            for f in f_all:
                for e in e_all:
                    c[f, e] += t[f, e] / sum(t[f, each] for each in e_all)
        t = {(f, e): value / sum(c[other, e] for other in "ABCD") for (f, e), value in c.items()}
    found = learn_shortlist(translator, texts, size=8, translations=4).translations.numpy()
    for e in "abcd":
        wanted = sorted((f for f in "ABCD" if (f, e) in t), key=lambda f: -t[f, e])
        row = found[source.tokenize([e]).numpy()[0, 0]]
        assert [target.tokenize([f]).numpy()[0, 0] for f in wanted] == [each for each in row if each], (e, t)


@pytest.mark.parametrize(
    ("texts", "arguments", "message"),
    [
        ([], {}, "There is none"),
        (["", ""], {}, "There is none"),
        ("a b", {}, "`texts` must be a list of strings. Received: 'a b'"),
        (None, {}, "`texts` must be a list of strings. Received: None"),
        (["a", None], {}, "must be a list of strings"),
        (["a"], {"translations": 0}, "must be at least 1. Received: translations=0"),
        (["a"], {"translations": 2.5}, "`translations` must be an integer. Received: translations=2.5"),
        (["a"], {"size": 6}, "must be from 5 to 5"),
        (["a"], {"size": None}, r"has 2,048 target tokens .* this model has only 5 in all"),
    ],
)
def test_what_nothing_can_be_learnt_from_is_refused(texts, arguments, message):
    tokenizer = WhitespaceTokenizer(["a"])
    with pytest.raises(ValueError, match=message):
        learn_shortlist(Reversing(tokenizer, tokenizer), texts, **{"size": 5, **arguments})
