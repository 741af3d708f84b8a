"""Byte pairs merged in the graph, against merging by the definition and against the `tokenizers` library."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models

from zoo.text.byte_pair_graph import Bytes, Merging

IDS = np.random.default_rng(0).permutation(256)  # of the bytes, so that they cannot be mistaken for them


class Pieces:
    """The bytes, and what pairs of strings make, in the order of their ranks."""

    def __init__(self, pairs):
        self.ids = {(byte,): int(i) for byte, i in enumerate(IDS)}
        self.ranks = {}
        for left, right in pairs:
            left, right = tuple(left.encode()), tuple(right.encode())
            self.ids.setdefault(left + right, len(self.ids))
            self.ranks.setdefault((left, right), len(self.ranks))
        assert all(part in self.ids for pair in self.ranks for part in pair)

    def module(self):
        triples = [(self.ids[left], self.ids[right], self.ids[left + right]) for left, right in self.ranks]
        symbols, merging = Bytes(IDS.tolist()), Merging(triples, len(self.ids))

        def merged(words, *dropout):
            pieces, rows = merging(*symbols(words), *dropout)
            return tf.RaggedTensor.from_value_rowids(pieces, rows, tf.size(words, tf.int64))

        return merged

    def by_definition(self, word):
        """One pair at a time: that of the lowest rank, of these the first."""
        parts = [(byte,) for byte in word]
        while True:
            places = [(self.ranks[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in self.ranks]
            if not places:
                return [self.ids[part] for part in parts]
            _, i = min(places)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]

    def by_library(self, word):
        def name(part):
            return "".join(chr(0x100 + byte) for byte in part)

        model = models.BPE({name(part): i for part, i in self.ids.items()}, [(name(a), name(b)) for a, b in self.ranks])
        return [token.id for token in model.tokenize(name(word))]


@st.composite
def merges(draw):
    """Pairs whose parts are bytes or have been made before, in an order in which they may be used before."""
    made, pairs = list("ab "), []
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        if len("".join(pair)) <= 8 and pair not in pairs:
            pairs.append(pair)
            made.append("".join(pair))
    return draw(st.permutations(pairs))


SEED = tf.constant([3, 4], tf.int64)
WORDS = st.lists(
    st.text("ab ", min_size=1, max_size=60).map(str.encode) | st.binary(min_size=1, max_size=8), min_size=4
)


@pytest.mark.parametrize(
    ("pairs", "word", "parts"),
    [
        ([], "aab", "a a b"),
        (["a b"], "abcab", "ab c ab"),
        (["a a"], "aaaaa", "aa aa a"),
        (["b c", "a b"], "abc", "a bc"),  # by rank, not from the left
        (["a a", "aa a"], "aaaaaaa", "aa aa aaa"),
        (["a a", "aa aa"], "aaaaaaa", "aaaa aa a"),
        (["b c", "a b", "ab c", "ab bc"], "ababc", "ab a bc"),
        (["a b", "b a"], "abaab", "ab a ab"),
        # As soon as there is one "aa", it is merged with what follows, before there is a second "aa".
        (["aa a", "a a"], "aaaa", "aaa a"),
        (["aa a", "a a"], "aaaaa", "aaa aa"),
        (["baa a", "b aa", "a a"], "baaaa", "baaa a"),  # the same by way of what precedes it
        (["a b", "b c", "d e", "f g", "ab c"], "abcdefg", "abc de fg"),  # `d e` need not wait, `b c` must
        # Of equal pairs side by side, every other one is merged from the first one on that is left for them.
        (["x a", "a b", "b b"], "xabbbb", "xa bb bb"),
        (["a b", "b b"], "abbbb", "ab bb b"),
        # Words that are longer than a block, of six symbols. What comes before a pair may begin in the block before
        # its own, or in the one behind it.
        (["a b", "ab c", "c d"], "zabcd" * 9, "z abc d " * 9),
        (["c d", "b cd", "a b"], "zzzzzabcd" * 3, "z z z z z a bcd " * 3),
        # A block is twice as long as the longest piece: `i j` begins nine symbols behind `abcd r`, whose `r` it takes.
        (
            ["a b", "ab c", "abc d", "e f", "ef g", "efg h", "efgh z", "i j", "efgh ij", "r efghij", "abcd r"],
            "zzzzzabcdrefghij",
            "z z z z z abcd refghij",
        ),
    ],
)
def test_by_hand(pairs, word, parts):
    pieces = Pieces([tuple(pair.split(" ")) for pair in pairs])
    expected = [pieces.ids[tuple(part.encode())] for part in parts.split()]
    alone = [pieces.ids[tuple(b"a")]]
    assert pieces.module()(tf.constant([word, "a", word])).to_list() == [expected, alone, expected]


def random_parts(pieces, word, dropout, probability=1.0):
    """All results of dropout for a word, with their probabilities: any subset of its pairs may be skipped."""
    places = [(pieces.ranks[pair], i) for i, pair in enumerate(itertools.pairwise(word)) if pair in pieces.ranks]
    found = collections.Counter()
    for kept in itertools.product([False, True], repeat=len(places)):
        chance = probability * (1 - dropout) ** sum(kept) * dropout ** (len(kept) - sum(kept))
        left = list(itertools.compress(places, kept))
        if not left:
            found[word] += chance
            continue
        _, i = min(left)
        found += random_parts(pieces, (*word[:i], word[i] + word[i + 1], *word[i + 2 :]), dropout, chance)
    return found


class TestDropout:
    def test_by_hand(self):
        """Both pairs are kept or dropped at first; then, if `ab` was made, the last one is."""
        pieces = Pieces([("a", "b"), ("b", "c"), ("ab", "c")])
        found = random_parts(pieces, tuple((byte,) for byte in b"abc"), 0.3)
        shares = {" ".join(bytes(part).decode() for part in word): chance for word, chance in found.items()}
        assert shares == pytest.approx({"abc": 0.49, "ab c": 0.21, "a bc": 0.21, "a b c": 0.09})

    @pytest.mark.parametrize(("dropout", "word"), [(0.5, b"abc"), (0.1, b"bcab"), (0.5, b"cabc")])
    def test_how_often_words_get_which_pieces(self, dropout, word):
        """Words without equal pairs: all of those that are not dropped merge at once, and not one by one."""
        pieces = Pieces([("b", "c"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("c", "a")])
        number = 20_000
        found = collections.Counter(map(tuple, pieces.module()(tf.fill([number], word), dropout, SEED).to_list()))
        expected = random_parts(pieces, tuple((byte,) for byte in word), dropout)
        expected = {tuple(pieces.ids[part] for part in parts): chance for parts, chance in expected.items()}
        assert set(found) <= set(expected)
        for parts, chance in expected.items():
            assert abs(found[parts] / number - chance) < 5 * (chance * (1 - chance) / number) ** 0.5 + 1e-9

    @settings(deadline=None, max_examples=30)
    @given(merges(), WORDS, st.sampled_from([0.01, 0.5, 0.99]), st.integers(0, 2**40))
    def test_pieces_make_up_the_word(self, pairs, words, dropout, seed):
        pieces = Pieces(pairs)
        content = {i: bytes(part) for part, i in pieces.ids.items()}
        found = pieces.module()(tf.constant(words), dropout, tf.constant([3, seed], tf.int64)).to_list()
        assert [b"".join(content[i] for i in ids) for ids in found] == words

    def test_extremes(self):
        module, words = Pieces([("a", "b"), ("ab", "a")]).module(), [b"abab", b"ba", b"aba"]
        assert module(tf.constant(words), 0.0, SEED).to_list() == module(tf.constant(words)).to_list()
        assert module(tf.constant(words), 1.0, SEED).to_list() == [[int(IDS[byte]) for byte in word] for word in words]

    def test_the_seed_decides(self):
        module = Pieces([("a", "b"), ("b", "a"), ("ab", "ab")]).module()
        words = tf.constant(["abababab"] * 50)
        first, again, other, another = (
            module(words, 0.3, tf.constant(seed, tf.int64)).to_list() for seed in ([1, 2], [1, 2], [1, 3], [2, 2])
        )
        assert first == again
        assert first not in (other, another)
        assert len(set(map(tuple, first))) > 5  # a word is not always split alike within a batch


@pytest.mark.parametrize("letters", ["ab", "abcdefgh"])
def test_words_of_many_blocks(letters):
    random = np.random.default_rng(0)
    words = ["".join(random.choice([*letters], 3000)), letters[0] * 1001, "".join(random.choice([*letters], 700))]
    made, pairs = [*letters], []
    while len(pairs) < 60:  # each pair uses what earlier ones have made, as in a learnt vocabulary
        left, right = random.choice(made), random.choice(made)
        if len(left + right) <= 12 and left + right not in made:
            pairs.append((left, right))
            made.append(left + right)
    pieces = Pieces(pairs)
    expected = [pieces.by_library(word.encode()) for word in words]
    assert pieces.module()(tf.constant(words)).to_list() == expected


def test_merges_of_one_rank():
    """As in the files of SentencePiece: of equal ranks, the first place in the word comes first, through all blocks."""
    a, b, c, ab, bc, ca, abca = range(7)
    merging = Merging([(a, b, ab), (b, c, bc), (c, a, ca), (ab, ca, abca)], 7, ranks=[0, 0, 0, 1])
    word = [a, b, c] * 30  # a block has eight symbols
    pieces, rows = merging(tf.constant([*word, c, *word], tf.int32), tf.constant([0] * 90 + [1] * 91, tf.int64))
    assert pieces.numpy().tolist() == [abca, bc] * 15 + [ca, bc] + [abca, bc] * 14 + [ab, c]
    assert rows.numpy().tolist() == [0] * 30 + [1] * 32


@settings(deadline=None, max_examples=40)
@given(merges(), WORDS)
@example([("aa", "a"), ("a", "a")], [b"aaaaaaa", b"a", b"aaa"])
def test_any_merges_of_any_words(pairs, words):
    pieces = Pieces(pairs)
    expected = [pieces.by_definition(word) for word in words]
    assert pieces.module()(tf.constant(words)).to_list() == expected
    assert [pieces.by_library(word) for word in words] == expected
