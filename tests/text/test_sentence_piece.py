"""SentencePieceTokenizer against the sentencepiece library: for every text, its ids, and for all ids, its text."""

import functools
import gzip
import io
import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from characters import EVERY
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zoo_training.corpora.dates import Dates

from zoo.testing import TokenizerTests
from zoo.text import END, UNKNOWN, SentencePieceTokenizer, compiled_encoder
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config

# Apache Beam brings protobuf to 6.33, and the library's messages of version 0.2.3 ask for 7, which they do not need.
with mock.patch("google.protobuf.runtime_version.ValidateProtobufRuntimeVersion"):
    from sentencepiece import sentencepiece_model_pb2

DATA = Path(__file__).parents[3] / "shared" / "data"
CORPUS = [
    "A man in a blue shirt is standing on a ladder, isn't he? They're 1234 men; I'll say: it's 12!",
    "Two men are cleaning a window. A man (in blue) is cleaning two windows; the men are standing.",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter – größer als 30 Meter.",
    "नीली कमीज़ में एक आदमी सीढ़ी पर खड़ा है। एक आदमी",
    "一个穿蓝色衬衫的男人站在梯子上。一个男人",
    "파란 셔츠를 입은 남자가 사다리 위에 서 있다 남자가",
    "😀😀 aaa aa a ... .. lll ll 000 00 0 --- -- é ½ ﬁ ff f",
] * 4
# What may stand side by side: words that are learnt, parts of them, and what might be stumbled over.
WORDS = sorted({word for text in CORPUS for word in text.split(" ")})
SIGNS = [*"aeinsl0.-'İﬁ①½¨ﷺ中가क각़▁ \t\n\r\0\x85\xa0\u3000\u200b\u200d\u0301\ufffd\ufeff\U0010ffff", "  ", "   \n "]
PARTS = [
    "<sep>",
    "ing",
    "<a b>",
    "  a ",
    "<s>",
    "<unk>",
    "<0x41>",
    "<c>",
    "a" * 40,
    "e\u0301",
    "😀",
    "👩\u200d👧",
    "▁▁",
]
FRAGMENTS = st.sampled_from(WORDS + SIGNS + PARTS).map(str.encode)
TEXTS = st.lists(
    st.lists(FRAGMENTS | st.sampled_from([b" ", b""]), max_size=30).map(b"".join)
    | st.lists(FRAGMENTS | st.binary(max_size=3), max_size=8).map(b"".join)
    | st.text(st.characters(codec="utf-8")).map(str.encode)
    | st.text("a ", max_size=60).map(str.encode),
    max_size=20,
)
SPACES = {"user_defined_symbols": ["▁▁", "▁▁▁▁"], "remove_extra_whitespaces": False}
PROTECTED = {"user_defined_symbols": ["<sep>", "ing", "in", "<a b>", "ﬁ", "▁the"], "control_symbols": ["<c>"]}
MODELS = {
    "unigram": {},
    "bytes": {"byte_fallback": True, "vocab_size": 560},
    "across spaces": {"split_by_whitespace": False, "max_sentencepiece_length": 9},
    "lower case": {"normalization_rule_name": "nmt_nfkc_cf"},
    "as it is": {"normalization_rule_name": "identity"},
    "user-defined": PROTECTED,
    "spaces kept": {**SPACES, "normalization_rule_name": "identity", "byte_fallback": True, "vocab_size": 560},
    "space behind, kept": {"treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False},
    "pairs": {"model_type": "bpe"},
    "pairs across spaces": {"model_type": "bpe", "split_by_whitespace": False},
    "pairs, user-defined": {"model_type": "bpe", **PROTECTED},
}


FAST = ("user-defined", "pairs, user-defined")
LONG = ("bytes", "across spaces", "lower case", "as it is", "spaces kept", "space behind, kept", "pairs across spaces")
EACH = [*FAST, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]


@functools.cache
def learnt(name):
    """The bytes of a small model learnt by the library."""
    model = io.BytesIO()
    options = {"vocab_size": 400, "hard_vocab_limit": False, "character_coverage": 0.99, **MODELS[name]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, minloglevel=2, **options
    )
    return model.getvalue()


def written(pieces, model_type="UNIGRAM", types=None, **options):
    """The bytes of a model of these pieces and scores, beside an unknown one.

    Options are those of the trainer and the normaliser. A text is taken as it is, without a space before it, unless
    they say otherwise.
    """
    model = sentencepiece_model_pb2.ModelProto()
    model.pieces.add(piece="<unk>", score=0, type="UNKNOWN")
    for piece, score in pieces.items():
        model.pieces.add(piece=piece, score=score, type=(types or {}).get(piece, "NORMAL"))
    model.trainer_spec.model_type = model.trainer_spec.ModelType.Value(model_type)
    options = {"add_dummy_prefix": False, "remove_extra_whitespaces": False, **options}
    for name, value in options.items():
        setattr(model.trainer_spec if hasattr(model.trainer_spec, name) else model.normalizer_spec, name, value)
    return model.SerializeToString()


class Pair:
    """A tokenizer of ours and the library's, of the same model; `compiled` pays for many texts."""

    def __init__(self, model, vocabulary=None, compiled=False):
        self.ours = SentencePieceTokenizer(model, vocabulary)
        self.library = sentencepiece.SentencePieceProcessor(model_proto=model)
        names = [self.library.id_to_piece(i) for i in range(self.library.get_piece_size())]
        unseen = [self.library.is_control(i) or self.library.is_unknown(i) for i in range(len(names))]
        own = [name for name, hidden in zip(names, unseen, strict=True) if not hidden]
        ids = {piece: i for i, piece in enumerate(own if vocabulary is None else vocabulary, start=4)}
        self.ids = [UNKNOWN if hidden else ids.get(name, UNKNOWN) for name, hidden in zip(names, unseen, strict=True)]
        self.back = {id_: i for i, id_ in enumerate(self.ids) if id_ != UNKNOWN}
        self.encode = compiled_encoder(self.ours) if compiled else self.encode_eagerly

    def encode_eagerly(self, texts):
        ids = self.ours._split(tf.constant(texts))
        return ids.values.numpy(), ids.row_lengths().numpy()

    def check(self, texts, batch=4096):
        """The ids of texts are the library's."""
        for begin in range(0, len(texts), batch):
            some = texts[begin : begin + batch]
            values, lengths = self.encode(some)
            rows = [[self.ids[i] for i in row] for row in self.library.encode(some)]
            if values.tolist() != [i for row in rows for i in row] or lengths.tolist() != [*map(len, rows)]:
                found = np.split(values, np.cumsum(lengths)[:-1])
                wrong = [each for each in zip(some, found, rows, strict=True) if each[1].tolist() != each[2]]
                text, ids, wanted = wrong[0]
                raise AssertionError(f"{len(wrong)} texts, first {text!r}: {self.pieces(ids)} != {self.pieces(wanted)}")

    def pieces(self, ids):
        return [piece.decode() for piece in self.ours.tokens(np.array([ids], np.int32).reshape(1, -1)).numpy()[0]]

    def split(self, text):
        """The visible pieces of a text, which are the library's too."""
        self.check([text])
        return self.pieces(self.encode([text])[0])

    def check_decoding(self, rows):
        """The texts of known ids are the library's."""
        dense = tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1).to_tensor()
        wanted = [self.library.decode([self.back[i] for i in row]).encode() for row in rows]
        assert self.ours.detokenize(dense).numpy().tolist() == wanted


@functools.cache
def pair(name):
    return Pair(learnt(name), compiled=True)


def by_hand(pieces, **options):
    return Pair(written(pieces, **options))


# What every tokenizer does.


class LearntTests(TokenizerTests):
    texts = ("A man in blue", "", "is cleaning", "(a) window, men.")
    before = " "
    # Ids of batches are those of the library, which encodes each text alone; a graph takes seconds to trace.
    test_a_row_does_not_depend_on_its_neighbours = None

    def make_tokenizer(self):
        return SentencePieceTokenizer(learnt(self.name))


class TestBytes(LearntTests):
    name = "bytes"
    texts = (*LearntTests.texts, "Ж\x00\U0010ffff")
    test_it_is_exported_with_core_operations = None  # `test_text_export.py` tests more


@pytest.mark.long
class TestAcrossSpaces(LearntTests):
    name = "across spaces"


# Ids against the library.


@pytest.mark.parametrize("name", EACH)
@given(TEXTS)
@settings(max_examples=8, deadline=None)
@example([b"", b" ", b"  ", b"\t", b"\x01", b" \x01 ", b"a \x01", b"\xff", b"\xe2\x96", b"\xe2\x96\x81 \xe2\x96\x81"])
@example(
    [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xf0\x9f\x98", b"\xef\xbf\xbd", b"a\xefb", b"\xe2\x96 \x81"]
)
@example(["  ".join(CORPUS).encode(), " ".join(CORPUS).encode() * 3, b"a" * 500])
def test_texts_have_the_ids_of_the_library(name, texts):
    pair(name).check([*texts, *(text.encode() for text in CORPUS[:7])])


@pytest.mark.parametrize("name", EACH)
@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_ids_have_the_text_of_the_library(name, seed):
    """Pieces in any order: several spaces at the beginning, and bytes that are no characters."""
    both, random = pair(name), np.random.default_rng(seed)
    known = np.array([*both.back])
    odd = [i for i in known if (piece := both.library.id_to_piece(both.back[i])).strip("▁") == "" or piece[:3] == "<0x"]
    pools = [known, np.array([*odd, *known[:5]])]
    both.check_decoding([random.choice(pools[random.integers(2)], random.integers(0, 9)).tolist() for _ in range(64)])


# Each rule by hand. The library agrees with what is written here, since `split` asks it too.


def test_a_space_is_put_before_the_text():
    pieces = {"▁": -1, "a": -2, "▁a": -2.5, "b": -3}
    assert by_hand(pieces, add_dummy_prefix=True).split("ab a") == ["▁a", "b", "▁a"]
    assert by_hand(pieces).split("ab a") == ["a", "b", "▁a"]
    assert by_hand(pieces, add_dummy_prefix=True, treat_whitespace_as_suffix=True).split("a") == ["a", "▁"]


def test_extra_spaces_are_removed():
    pieces = {"▁": -1, "a": -2}
    assert by_hand(pieces, remove_extra_whitespaces=True).split("  a   a ") == ["a", "▁", "a"]
    assert by_hand(pieces).split("  a   a ") == [*"▁▁a▁▁▁a▁"]


def test_spaces_stay_spaces_without_escapes():
    pieces = {" ": -1, "▁": -5, "a": -2, " a": -2}
    assert by_hand(pieces, escape_whitespaces=False).split("a a▁a") == ["a", " a", "▁", "a"]


def test_an_unknown_character_costs_ten_more_than_the_least_likely_piece():
    # b alone is no piece: 0 - (12 + 10) - 0 against -10.5 - 12, or -9.5 - 12.
    pieces = {"a": 0, "cd": 0, "d": -12}
    assert by_hand({**pieces, "abc": -10.5}).split("abcd") == ["a", "<unk>", "cd"]
    assert by_hand({**pieces, "abc": -9.5}).split("abcd") == ["abc", "d"]


def test_a_run_of_unknown_characters_is_one():
    both = by_hand({"▁": -1, "a": -2})
    assert both.split("xyaz z") == ["<unk>", "a", "<unk>", "▁", "<unk>"]
    # ... across words, if the space is unknown too, but not across texts
    assert by_hand({"a": -2}).split("x yax y") == ["<unk>", "a", "<unk>"]
    assert both.encode(["x", "x"])[1].tolist() == [1, 1]


def test_an_unknown_character_is_written_in_bytes():
    pieces = {"a": -1, **{f"<0x{byte:02X}>": -9 for byte in range(256)}}
    types = {f"<0x{byte:02X}>": "BYTE" for byte in range(256)}
    both = by_hand(pieces, types=types, byte_fallback=True)
    assert both.split("aé a") == ["a", "<0xC3>", "<0xA9>", "<0xE2>", "<0x96>", "<0x81>", "a"]
    assert both.split("<0x41>") == [f"<0x{byte:02X}>" for byte in b"<0x41>"]


def test_user_defined_pieces_come_first():
    pieces, types = {"a": -1, "b": -1, "ab": -0.1, "bc": 0, "c": -1, "d": -1}, {"bc": "USER_DEFINED"}
    assert by_hand(pieces, types=types).split("abcd") == ["a", "bc", "d"]
    assert by_hand(pieces).split("abd") == ["ab", "d"]
    two = {"a": -1, "b": -1, "c": -1, "ab": 0, "abc": 0}
    assert by_hand(two, types=dict.fromkeys(["ab", "abc"], "USER_DEFINED")).split("abcab") == ["abc", "ab"]


def test_user_defined_pieces_are_not_normalised():
    assert pair("user-defined").split("ﬁ ﬀ") == ["▁", "ﬁ", "▁f", "f"]


def test_control_and_unused_pieces_are_never_chosen():
    pieces = {"a": -1, "b": -1, "ab": -0.1, "ba": -0.1}
    both = by_hand(pieces, types={"ab": "CONTROL", "ba": "UNUSED"})
    assert both.split("aba") == ["a", "b", "a"]
    assert both.ours.size == 4 + 3  # control pieces have no id


def test_of_equally_good_segmentations_the_longer_last_piece_counts():
    pieces = {"▁": -1, "a": -1, "aa": -1.5, "b": -2}
    assert by_hand(pieces).split("aaa") == ["a", "aa"]


def test_rounding_decides_as_in_the_library():
    """Which of `a` `aa` and `aa` `a` has the larger float32 sum depends on what stands before."""
    pieces = {"▁": -1.7, "a": -1.9, "aa": -2.1, "b": -2.3, "▁b": -1.3}
    both = by_hand(pieces, add_dummy_prefix=True)
    texts = [" ".join(["b" * n, "aaa"]) for n in range(60)]
    both.check(texts)
    assert len({tuple(ids[-2:]) for ids in both.library.encode(texts)}) == 2


def test_decisions_as_close_as_rounding_in_long_texts():
    """Two letters together are better or worse than apart by 0.01 to 1e-7; what stands before decides the closest."""
    random = np.random.default_rng(0)
    letters = [chr(code) for code in range(0x391, 0x3D1)]  # 64, of which two stand beside each other
    scores = {letter: float(score) for letter, score in zip(letters, -12 * random.random(64), strict=True)}
    couples = [left + right for left, right in zip(letters[::2], letters[1::2], strict=True)]
    for couple, exponent, sign in zip(couples, random.uniform(-7, -2, 32), random.choice([-1, 1], 32), strict=True):
        scores[couple] = scores[couple[0]] + scores[couple[1]] + float(sign * 10**exponent)
    both = Pair(written({"▁": -3.3, **scores}), compiled=True)
    sizes = (1, 5, 30, 200, 1000) * 6
    words = [["".join(random.choice(couples, n)) for n in random.choice([1, 1, 2, 5, 40], size)] for size in sizes]
    both.check([" ".join(text) for text in words])
    alone = both.library.encode(couples)
    behind = both.library.encode([" ".join([*words[-1], couple]) for couple in couples])
    assert any(long[-len(short) :] != short for short, long in zip(alone, behind, strict=True))


def test_sums_far_from_zero_start_anew():
    """Beyond 100,000 the library subtracts the sum so far; before that, a difference of 0.001 is lost in rounding."""
    both = by_hand({"b": -9993, "x": -1, "y": -1, "xy": -2.001})
    assert both.split("b" * 10 + "xy")[-2:] == ["b", "xy"]
    assert both.split("b" * 11 + "xy")[-2:] == ["x", "y"]
    both.check(["b" * n + "xy" * 3 + "b" * n + "xyx" for n in range(8, 14)])


def test_pieces_with_spaces_inside():
    pieces = {"▁": -2, "a": -2, "b": -2, "a▁b": -1, "▁▁": -1}
    assert by_hand(pieces).split("a b a  b") == ["a▁b", "▁", "a", "▁▁", "b"]
    assert SentencePieceTokenizer(written(pieces))._cutter is None
    assert pair("unigram").ours._cutter is not None


def test_punctuation_that_pieces_hold_inside_stays():
    pieces = {"▁": -2, "a": -2, "b": -2, ".": -2, "-": -2, "a-b": -1, "▁a.": -1, "(": -2, "(b": -1}
    both = by_hand(pieces, add_dummy_prefix=True)
    assert both.split("a-b a. (b a-.b") == ["▁", "a-b", "▁a.", "▁", "(b", "▁", "a", "-", ".", "b"]


# Byte-pair encoding, by hand.


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ({"a": -9, "b": -9, "c": -9, "ab": -1, "bc": -2}, "abc", "ab c"),  # the best one first
        ({"a": -9, "b": -9, "c": -9, "ab": -2, "bc": -1}, "abc", "a bc"),
        ({"a": -9, "aa": -1}, "aaaaa", "aa aa a"),  # of equal ones the leftmost
        ({"a": -9, "b": -9, "ab": -1, "ba": -1}, "babab", "ba ba b"),
        ({"a": -9, "aa": -1, "aaa": -1}, "aaaaaa", "aaa aaa"),  # a new pair comes before an equal one on its right
        ({"a": -9, "aa": -2, "aaa": -1}, "aaaaaa", "aaa aaa"),
        ({"a": -9, "aa": -1, "aaa": -2}, "aaaaaa", "aa aa aa"),
        ({"ab": -1, "c": -2}, "abc", "ab c"),  # `a` and `b` alone are no pieces
        ({"a": -9, "b": -9, "c": -9, "abc": -1, "ab": -3, "bc": -2}, "abcabc", "abc abc"),
    ],
)
def test_pairs_by_hand(pieces, text, expected):
    assert by_hand(pieces, model_type="BPE").split(text) == expected.split()


def test_user_defined_pieces_never_merge():
    pieces = {"a": -9, "b": -9, "c": -9, "ab": -1, "bc": -2, "abc": -1}
    assert by_hand(pieces, model_type="BPE", types={"bc": "USER_DEFINED"}).split("abc") == ["a", "bc"]
    two = dict.fromkeys(["ab", "abc"], "USER_DEFINED")
    assert by_hand(pieces, model_type="BPE", types=two).split("abcabb") == ["abc", "ab", "b"]


def test_unused_pieces_fall_apart():
    pieces = {"a": -9, "b": -9, "c": -9, "ab": -1, "abc": -2, "abca": -3, "bc": -9}
    assert by_hand(pieces, model_type="BPE", types={"abc": "UNUSED"}).split("abcb") == ["ab", "c", "b"]
    both = by_hand(pieces, model_type="BPE", types=dict.fromkeys(["ab", "abc"], "UNUSED"))
    assert both.split("abcabca") == ["a", "b", "c", "abca"]
    assert by_hand(pieces, model_type="BPE", types={"a": "UNUSED"}).split("acabc") == ["<unk>", "c", "abc"]


# Models at random.


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 30))])
def test_random_models_of_few_letters(seed):
    """Pieces with equal, positive and zero scores, which overlap and hold spaces; texts with many repetitions."""
    random = np.random.default_rng(seed)
    letters = [*str(random.choice(["ab", "ab▁", "abc▁.", "aé▁"]))]
    scores = [[-1, -2, -3], [0.0, -0.0, 1, -1], [-0.1, -0.7, -1.3, -2.9], -8 * random.random(9)][seed % 4]
    pieces = {
        "".join(random.choice(letters, random.choice([1, 1, 2, 2, 2, 3, 3, 4, 5]))): float(random.choice(scores))
        for _ in range(random.integers(2, 16))
    }
    types = dict(
        zip(pieces, random.choice(["NORMAL", "USER_DEFINED", "CONTROL"], len(pieces), p=[0.8, 0.1, 0.1]), strict=True)
    )
    flags = ("add_dummy_prefix", "remove_extra_whitespaces", "treat_whitespace_as_suffix", "escape_whitespaces")
    options = {flag: bool(random.random() < 0.6) for flag in flags}
    both = by_hand(pieces, types=types, model_type=["UNIGRAM", "BPE"][seed // 4 % 2], **options)
    typed = [*"".join(letters).replace("▁", "  "), *"az"]
    both.check(["".join(random.choice(typed, random.choice([0, 3, 8, 20, 60]))) for _ in range(40)])


# The vocabulary.


def test_a_vocabulary_from_outside():
    """It orders the pieces, lacks one of them, and has some that the file lacks."""
    pieces = {"▁a": -1, "b": -1, "c": -1, "▁": -2}
    both = Pair(written(pieces, add_dummy_prefix=True), vocabulary=["c", "▁z", "▁a", "xy", "▁"])
    assert both.ours.size == 9
    assert both.encode(["abc c"])[0].tolist() == [6, UNKNOWN, 4, 8, 4]
    # An unknown run that the vocabulary has, as in Marian, whose two files share a vocabulary.
    assert both.encode(["axy"])[0].tolist() == [6, 7]
    assert both.encode(["axyx xy"])[0].tolist() == [6, UNKNOWN, 8, 7]
    assert both.ours.detokenize([[6, 4, 5, 4], [5, 7, UNKNOWN, END]]).numpy().tolist() == [
        b"ac zc",
        "zxy\ufffd".encode(),
    ]


def test_pieces_are_shown_as_in_the_file():
    both = Pair(learnt("bytes"))
    assert both.split("men Ж")[-3:] == ["▁", "<0xD0>", "<0x96>"]
    shown = [piece.decode() for piece in both.ours.tokens([range(4, both.ours.size)]).numpy()[0]]
    assert shown == [both.library.id_to_piece(i) for i in both.back.values()]


def test_the_config_holds_the_model():
    tokenizer = SentencePieceTokenizer(learnt("unigram"), vocabulary=["▁", "a", "b"])
    config = json.loads(json.dumps(tokenizer_to_config(tokenizer)))
    assert config["vocabulary"] == ["▁", "a", "b"]
    copy = tokenizer_from_config(config)
    assert copy.get_config() == tokenizer.get_config()
    assert copy.tokenize(["a b a"]).numpy().tolist() == tokenizer.tokenize(["a b a"]).numpy().tolist()


def test_a_denormaliser_is_applied():
    model = sentencepiece_model_pb2.ModelProto.FromString(written({"▁": -1, "ﬁ": -2, "a": -2}))
    rules = sentencepiece_model_pb2.ModelProto.FromString(learnt("unigram")).normalizer_spec
    for escape in (False, True):
        model.denormalizer_spec.CopyFrom(rules)
        model.denormalizer_spec.add_dummy_prefix, model.denormalizer_spec.escape_whitespaces = False, escape
        both = Pair(model.SerializeToString())
        both.check_decoding([[5, 4, 6], [4, 4, 5, 4, 4, 5], [6]])


# Learning and files.


def test_learning_gives_the_models_of_the_library():
    options = {"byte_fallback": True, "character_coverage": 0.98, "user_defined": ["<sep>"]}
    tokenizer = SentencePieceTokenizer.learn(CORPUS, 500, **options)
    assert 4 + 256 < tokenizer.size <= 500
    again = SentencePieceTokenizer.learn(iter(CORPUS), 500, **options)
    assert again.get_config() == tokenizer.get_config()
    assert b"<sep>" in tokenizer.tokens(tokenizer.tokenize(["A<sep>man"])).numpy()[0]
    assert tokenizer.detokenize(tokenizer.tokenize(CORPUS[:1])).numpy()[0].decode() == CORPUS[0]


def test_learning_options_reach_the_library():
    spaces = SentencePieceTokenizer.learn(CORPUS, 400, split_by_whitespace=False)
    assert any("▁" in piece.decode()[1:] for piece in spaces.tokens([range(4, spaces.size)]).numpy()[0])
    lower = SentencePieceTokenizer.learn(CORPUS, 400, normalization="nmt_nfkc_cf")
    assert lower.detokenize(lower.tokenize(["A MAN"])).numpy().tolist() == [b"a man"]


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("one text", {}, "`texts` must be an iterable of strings. Received: one str"),
        (None, {}, "`texts` must be an iterable of strings. Received: one NoneType"),
        ([1], {}, "`texts` must hold strings. Received: 1 of type int"),
        (["a b", 1], {}, "^`texts` must hold strings. Received: 1 of type int$"),
        ([" ", "\t\n"], {}, "cannot learn from these texts: they have no characters but white space$"),
        (CORPUS, {"size": 20}, "cannot learn from these texts: .*Vocabulary size is smaller than required_chars"),
        (CORPUS, {"size": 20}, r"\(the library's vocabulary size is `size` - 3\)$"),
        (CORPUS, {"normalization": "other"}, "cannot learn from these texts: "),
        ([], {}, "cannot learn from these texts: "),
        (CORPUS, {"size": 400.5}, r"^`size` must be an integer\. Received: size=400\.5$"),
        (CORPUS, {"size": 4}, r"^`size` must be at least 5, for 4 special ids and a piece\. Received: size=4$"),
        (CORPUS, {"model_type": "word"}, "^`model_type` must be 'unigram' or 'bpe'. Received: model_type='word'$"),
        (CORPUS, {"character_coverage": 0.9}, r"^`character_coverage` must be from 0\.98 to 1\. Received: 0\.9$"),
        (CORPUS, {"user_defined": "<sep>"}, "^`user_defined` must be a list of strings. Received: '<sep>'$"),
    ],
)
def test_texts_that_cannot_be_learnt_from(texts, options, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer.learn(texts, **{"size": 400, **options})


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_raised_while_texts_are_read_stays_what_it_is(error):
    """Ctrl-C ended a training as an error of its texts."""

    def texts():
        yield from CORPUS
        raise error

    with pytest.raises(error) as caught:
        SentencePieceTokenizer.learn(texts(), 400)
    assert type(caught.value) is error


def test_a_file_is_read(tmp_path):
    (tmp_path / "source.spm").write_bytes(written({"a": -1, "b": -2, "c": -3}))
    tokenizer = SentencePieceTokenizer.from_file(tmp_path / "source.spm", vocabulary=["b", "a"])
    assert tokenizer.tokenize(["abc"]).numpy().tolist() == [[5, 4, UNKNOWN]]


def changed(**fields):
    model = sentencepiece_model_pb2.ModelProto.FromString(written({"a": -1, "b": -2}))
    for field, value in fields.items():
        setattr(model.normalizer_spec if field == "precompiled_charsmap" else model.pieces[1], field, value)
    return model.SerializeToString()


CHARSMAP = sentencepiece_model_pb2.ModelProto.FromString(learnt("unigram")).normalizer_spec.precompiled_charsmap


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", "is a pointer of git-lfs, not the file"),
        (learnt("unigram")[:-100], "is not a SentencePiece model: it is damaged or another format"),
        (b"\x0a\xff\xff\xff\xff\x07", "is not a SentencePiece model: it is damaged or another format"),  # 2 GB follow
        (np.random.default_rng(0).bytes(1000), "is not a SentencePiece model"),
        (b"{}", "is not a SentencePiece model"),
        (b"", "is not a SentencePiece model: it has no pieces"),
        (written({}), "`vocabulary` must hold pieces. Received: none"),
        (written({"a": 1}, "WORD"), "must be a SentencePiece model of the type unigram or bpe. Received: word"),
        (written({"a": 1}, "CHAR"), "must be a SentencePiece model of the type unigram or bpe. Received: char"),
        (changed(score=float("nan")), "is damaged: a score is not a finite number"),
        (changed(piece=""), "is damaged: a piece is empty or holds the character NUL. Received: ''"),
        (changed(piece="b"), "is damaged: it has a piece twice"),
        (changed(type="UNKNOWN"), "must have one piece for unknown text. Received: 2"),
        (changed(type="BYTE"), "must have a piece for each byte with byte_fallback, and none without. Received: 1 "),
        (changed(piece="a").replace(b"\x01a", b"\x01\xff"), "is damaged: a piece is not valid UTF-8"),
        (changed(precompiled_charsmap=b"\xff\xff\xff\xff" * 9), "is damaged: its map of characters cannot be read"),
        (changed(precompiled_charsmap=CHARSMAP[:-1]), "is damaged: its map of characters cannot be read"),
        (changed(precompiled_charsmap=b"\0\4\0\0" + b"\xff" * 512 + b"\0" * 1024), "its map of characters cannot be"),
        (
            changed(precompiled_charsmap=b"\0\4\0\0" + np.random.default_rng(1).bytes(1024) + b"a\0"),
            "is damaged: its map of characters cannot be read",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "source.spm").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        SentencePieceTokenizer.from_file(tmp_path / "source.spm")
    assert "\n" not in str(caught.value)
    assert "source.spm" in str(caught.value) or "`vocabulary`" in message


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ([], "`vocabulary` must hold pieces. Received: none"),
        (["a", ""], "`vocabulary` must hold strings that are not empty. Received: ''"),
        ([b"a"], "`vocabulary` must hold strings that are not empty. Received: b'a'"),
        (["a", "b", "a"], r"`vocabulary` must hold each piece once. Received: \['a'\] more than once"),
    ],
)
def test_a_bad_vocabulary_is_refused(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer(learnt("unigram"), vocabulary)


def test_every_cut_of_a_file_is_refused_or_read():
    """No length of a truncated file gives another error."""
    content = written({"a": -1, "b": -2})
    for length in range(len(content)):
        try:
            SentencePieceTokenizer(content[:length])
        except ValueError as error:
            assert "\n" not in str(error)


# Corpora.

LARGE = {
    "unigram 500": ({"vocab_size": 500}, 3_000),
    "unigram 8k": ({"vocab_size": 8_000, "byte_fallback": True, "character_coverage": 0.99}, 20_000),
    "unigram 8k across spaces": ({"vocab_size": 8_000, "split_by_whitespace": False}, 800),
    "pairs 8k": ({"vocab_size": 8_000, "model_type": "bpe"}, 20_000),
}


@functools.cache
def corpora():
    """All sentences of Multi30k and Tatoeba, and strings of the dates corpus in all locales."""
    if not DATA.is_dir():
        pytest.skip(f"{DATA} with Multi30k and Tatoeba is not here")
    files = sorted((DATA / "multi30k").glob("*.gz"))
    sentences = [gzip.decompress(file.read_bytes()).decode().removesuffix("\n").split("\n") for file in files]
    table = (DATA / "tatoeba-hin-eng" / "hin.txt").read_text(encoding="utf-8").splitlines()
    dates = Dates(train_examples=20_000).read("train")
    return [
        [text for texts in sentences for text in texts],
        [text for line in table for text in line.split("\t")[:2]],
        [*dates.sources, *dates.targets],
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_sentences_of_corpora(name):
    """The library learns from them; a ninth of them is compared."""
    options, number = LARGE[name]
    multi30k, tatoeba, dates = corpora()
    learnt_from = multi30k[:: max(1, len(multi30k) // number)] if number else multi30k
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*learnt_from, *tatoeba[::10]]),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    both = Pair(model.getvalue(), compiled=True)
    texts = [*multi30k, *tatoeba, *dates][::9]
    both.check(texts)
    known = [row for row in both.library.encode(texts[::3]) if both.library.unk_id() not in row]
    both.check_decoding([[both.ids[i] for i in row] for row in known])


@pytest.mark.long
@pytest.mark.parametrize("name", ["bytes", "pairs"])
def test_every_character_alone_and_inside_a_word(name):
    both = pair(name)
    both.check(EVERY, batch=65536)
    both.check([f"ma{character}n a" for character in EVERY[:0x20000:2]], batch=65536)
