"""WordPieceTokenizer against the `tokenizers` library: for every text, its ids, and for all ids, its text."""

import functools
import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from characters import EVERY
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from zoo.testing import TokenizerTests
from zoo.text import END, START, UNKNOWN, WordPieceTokenizer, compiled_encoder
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config
from zoo.text.word_piece import BERT_PIECES, read_vocabulary, special_pieces_first
from zoo.text.word_piece_graph import BertNormalizer, cut_into_words

DATA = Path(__file__).parents[3] / "shared" / "data"
CORPUS = [
    "A man in a blue shirt is standing on a ladder, isn't he? They're 1234 men; I'll say: it's 12!",
    "Two men are cleaning a window. A man (in blue) is cleaning two windows; the men are standing.",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter – größer als 30 Meter, à la Élise.",
    "नीली कमीज़ में एक आदमी सीढ़ी पर खड़ा है। एक आदमी",
    "一个穿蓝色衬衫的男人站在梯子上。一个男人",
    "파란 셔츠를 입은 남자가 사다리 위에 서 있다 남자가",
    "😀😀 aaa aa a ... .. lll ll 000 00 0 --- -- é ½ ﬁ ff f ΑΣ σ İstanbul \u302e\u1d16d \ufffd",
] * 2
WORDS = sorted({word for text in CORPUS for word in text.split(" ")})
# White space, controls, marks that stay and marks that go, signs that are punctuation to the library and signs that
# are not, the letters that lower case changes in number or by their neighbours, ideographs of several blocks.
SIGNS = [*" \t\n\r\x0b\x0c\0\x85\xa0\xad\u2028\u3000\u200b\u200d\ufeff\ufffd\ue000\U0010ffff.-'$+|~^¡€•"]
SIGNS += [*"İıßẞΣσςÅÅŉﬁ①½각ゔヴ中丽豈\u3402\U00020000\U0002b8b8\U0002f9f4"]
SIGNS += [*"\u0301\u0327\u0334\u0345\u0344\u034f\u0f73\u0f71\u0903\u302e\u302f\u08d4\u1b44\ua953\u1dfb\u0898"]
SIGNS += [*"\U0001d15e\U0001d160\U0001d165\U0001d16d\U0001d16e\U0001d1bd\U0001e000\U00011938"]
PARTS = ["[MASK]", "[SEP]", "[UNK]", "##", "##ing", "a" * 101, "😀", "👩\u200d👧", "e\u0301", "x" * 100]
FRAGMENTS = st.sampled_from(WORDS + SIGNS + PARTS).map(str.encode)
TEXTS = st.lists(
    st.lists(FRAGMENTS | st.sampled_from([b" ", b""]), max_size=20).map(b"".join)
    | st.lists(st.sampled_from(SIGNS).map(str.encode), max_size=12).map(b"".join)
    | st.lists(FRAGMENTS | st.binary(max_size=3), max_size=8).map(b"".join)
    | st.text(st.characters(codec="utf-8")).map(str.encode),
    max_size=6,
)
KINDS = {
    "uncased": {},
    "cased": {"lowercase": False},
    "lower case with accents": {"strip_accents": False, "handle_chinese_chars": False},
    "cased without accents": {"lowercase": False, "strip_accents": True},
    "as it is": {"lowercase": False, "clean_text": False, "handle_chinese_chars": False},
    "unclean": {"clean_text": False, "cleanup": False, "max_input_chars_per_word": 5},
}
FAST = ("uncased", "as it is")
EACH = [name if name in FAST else pytest.param(name, marks=pytest.mark.long) for name in KINDS]


@functools.cache
def pieces():
    """A vocabulary of all kinds of pieces, which no normalisation has touched."""
    learnt = [WordPieceTokenizer.learn(CORPUS, 700, 1, lowercase) for lowercase in (False, True)]
    kept = (tokenizer.get_config()["vocabulary"] for tokenizer in learnt)
    signs = [sign for sign in SIGNS if not sign.isspace()]
    return [*dict.fromkeys([*itertools.chain(*kept), *signs, *(f"##{sign}" for sign in signs), "x" * 100, "##"])]


class Pair:
    """A tokenizer, and the library's of the same vocabulary.

    The library is told to read special tokens as text, as we do.
    """

    def __init__(self, **options):
        self.tokenizer = WordPieceTokenizer(pieces(), **options)
        self.library = library_of(self.tokenizer)
        self.library.encode_special_tokens = True
        self._encode = compiled_encoder(self.tokenizer)

    def check(self, texts):
        """Ids of any bytes."""
        read = [text.decode("utf-8", "replace") for text in texts]
        theirs = [encoding.ids for encoding in self.library.encode_batch(read)]
        values, lengths = self._encode(texts)
        for text, ours, wanted in zip(texts, np.split(values, np.cumsum(lengths)[:-1]), theirs, strict=bool(texts)):
            assert ours.tolist() == wanted, text

    def check_decoding(self, rows):
        """Texts of any ids of the vocabulary; for an unknown id, the library's decoder gets the piece U+FFFD."""
        width = max(map(len, rows), default=0)
        padded = np.array([[*row, *[0] * (width - len(row))] for row in rows], np.int32)
        ours = [text.decode() for text in self.tokenizer.detokenize(padded).numpy()]
        for row, text in zip(rows, ours, strict=True):
            shown = [self.library.id_to_token(i) for i in row if i not in (0, 2, 3, self.tokenizer.mask_id)]
            shown = ["\ufffd" if piece == "[UNK]" else piece for piece in shown]
            assert text == self.library.decoder.decode(shown), row


def library_of(tokenizer):
    config = tokenizer.get_config()
    vocabulary = [*BERT_PIECES, *config["vocabulary"]]
    prefix = config["continuing_subword_prefix"]
    library = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {piece: i for i, piece in enumerate(vocabulary)},
            unk_token="[UNK]",
            max_input_chars_per_word=config["max_input_chars_per_word"],
            continuing_subword_prefix=prefix,
        )
    )
    options = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    library.normalizer = tokenizers.normalizers.BertNormalizer(**{name: config[name] for name in options})
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    library.decoder = tokenizers.decoders.WordPiece(prefix, config["cleanup"])
    return library


@functools.cache
def pair(name):
    return Pair(**KINDS[name])


class TestWordPieces(TokenizerTests):
    texts = ("a man, 中 größe 😀!", "ab", "", "a.")
    before = " "
    test_it_is_exported_with_core_operations = None  # `test_text_export.py` tests more

    def make_tokenizer(self):
        return WordPieceTokenizer([*"a中,!😀.", "man", "##b", "größe", "x", "ab", "[MASK]"], strip_accents=False)


# Ids against the library.


@pytest.mark.parametrize("name", EACH)
@given(TEXTS)
@settings(max_examples=25, deadline=None)
@example([b"", b" ", b"\t", b"\x01", b"\xff", b"\xe2\x96", b"\xed\xa0\x80", b"a\xc0\xafb", b"\xef\xbf\xbd", b"\0"])
@example([("".join(SIGNS)).encode(), " ".join(SIGNS).encode(), " ".join(CORPUS).encode() * 3, b"a" * 500])
@example([f"a{first}{second}".encode() for first in SIGNS[-26:] for second in SIGNS[-26:]])
def test_texts_have_the_ids_of_the_library(name, texts):
    pair(name).check([*texts, *(text.encode() for text in CORPUS[:7])])


@pytest.mark.parametrize("name", FAST)
@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_ids_have_the_text_of_the_library(name, seed):
    """Pieces in any order: those that continue a word at the beginning, unknown ones and the mask among them."""
    random, size = np.random.default_rng(seed), pair(name).tokenizer.size
    rows = [random.integers(1, size, random.integers(0, 9)).tolist() for _ in range(32)]
    few = [*range(1, 5), *range(size - 8, size), *pair(name).tokenizer.tokenize([".,?!'-"]).numpy()[0].tolist()]
    rows += [random.choice(few, random.integers(0, 9)).tolist() for _ in range(32)]
    pair(name).check_decoding([[i for i in row if i != END] for row in rows])


def check_characters(name, characters):
    """The words of characters alone, inside words, and with an accent between two of them."""
    options = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    options |= {option: value for option, value in KINDS[name].items() if option in options}
    library, cutter = tokenizers.normalizers.BertNormalizer(**options), tokenizers.pre_tokenizers.BertPreTokenizer()
    strips = options["lowercase"] if options["strip_accents"] is None else options["strip_accents"]
    normalizer = BertNormalizer(**{**options, "strip_accents": strips})
    cut = tf.function(
        lambda texts: cut_into_words(normalizer(texts)), [tf.TensorSpec([None], tf.string)], autograph=False
    )
    forms = [f"{character} a{character}b {character}\u0301{character}" for character in characters]
    texts = [" ".join(forms[start : start + 64]) for start in range(0, len(forms), 64)]
    for start in range(0, len(texts), 1024):
        batch = texts[start : start + 1024]
        words, rows = (values.numpy() for values in cut(tf.constant(batch)))
        wanted = [[word for word, _ in cutter.pre_tokenize_str(library.normalize_str(text))] for text in batch]
        found = np.split(words, rows.searchsorted(range(1, len(batch))))
        for text, theirs, ours in zip(batch, wanted, found, strict=True):
            assert [word.decode() for word in ours] == theirs, text


def test_characters_of_some_blocks():
    """Latin to Cyrillic, Indic marks, punctuation, Hangul, ideographs, compatibility forms, and music."""
    blocks = ((0, 0x530), (0x900, 0x960), (0x1E00, 0x2100), (0xAC00, 0xAC40), (0xFA00, 0xFA40), (0x1D150, 0x1D1D0))
    check_characters("uncased", [chr(code) for block in blocks for code in range(*block)])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in KINDS if name != "unclean"])
def test_every_character(name):
    check_characters(name, EVERY)


# Each rule by hand.


def shown(tokenizer, text, **options):
    row = tokenizer.tokenize([text], **options).numpy()[0]
    return [piece.decode() for piece in tokenizer.tokens(row[None]).numpy()[0] if piece]


def test_the_longest_piece_comes_first():
    tokenizer = WordPieceTokenizer(["un", "una", "##ff", "##aff", "##able", "##a", "unaffable!", "aff"])
    assert shown(tokenizer, "unaffable") == ["una", "##ff", "##able"]
    assert shown(tokenizer, "UNAFF unaffx aff") == ["una", "##ff", "<unk>", "aff"]  # all of a word is unknown
    assert shown(tokenizer, "affa") == ["aff", "##a"]


def test_long_words_are_unknown():
    tokenizer = WordPieceTokenizer(["é", "##é", "éééé"], strip_accents=False, max_input_chars_per_word=3)
    assert shown(tokenizer, "éé ééé éééé") == ["é", "##é", "é", "##é", "##é", "<unk>"]


@pytest.mark.parametrize("prefix", ["", "_", "x"])
def test_other_prefixes(prefix):
    listed = ["a", "ab", f"{prefix}bb", f"{prefix}c", "xc", "##c", *([prefix] if prefix else [])]
    tokenizer = WordPieceTokenizer(dict.fromkeys(listed), continuing_subword_prefix=prefix)
    library = library_of(tokenizer)
    for text in ("abb", "abbc", "ac", "xc", "axc", "a_c c", "##c", "x", "_"):
        assert tokenizer.tokenize([text]).numpy()[0].tolist() == library.encode(text).ids, text


def test_marks_that_stay_are_put_in_order():
    """U+1D16D (class 226) and U+302E (224) are no accents to the library; U+0301 (230) goes, as does U+0903 (0)."""
    tokenizer = WordPieceTokenizer([*"ab", "##\u302e", "##\U0001d16d"])
    last, first = "\U0001d16d", "\u302e"
    assert shown(tokenizer, f"a{last}{first}") == ["a", f"##{first}", f"##{last}"]
    assert shown(tokenizer, f"a{last}\u0301{first}\u200b") == ["a", f"##{first}", f"##{last}"]
    assert shown(tokenizer, f"a{last}\u034f{first}") == ["a", f"##{last}", f"##{first}"]  # it had class 0 and went


def test_special_pieces_in_texts():
    tokenizer = WordPieceTokenizer([*"[]", "mask", "sep", "[MASK]", "a"])
    assert tokenizer.mask_id == 8
    text = "a [MASK]a [SEP]"
    assert shown(tokenizer, text) == ["a", "[", "mask", "]", "a", "[", "sep", "]"]
    assert shown(tokenizer, text, special_tokens=True) == ["a", "[MASK]", "a", "[", "sep", "]"]
    ids = tokenizer.tokenize([text], special_tokens=True)
    assert tokenizer.detokenize(ids).numpy().tolist() == [b"a a [ sep ]"]
    assert WordPieceTokenizer(["a"]).mask_id is None
    assert WordPieceTokenizer(["a", "[MASK]"], mask_token=None).mask_id is None


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True, "normalized": True}])
def test_the_mask_is_found_where_the_library_finds_it(flags):
    tokenizer = WordPieceTokenizer(pieces(), added_tokens=[{"content": "[MASK]", "special": True, **flags}])
    library = library_of(tokenizer)
    library.add_special_tokens([tokenizers.AddedToken("[MASK]", special=True, **{"normalized": False, **flags})])
    texts = [
        "a [MASK] b.",
        "[MASK]",
        "[MASK][MASK]\u0301x",
        "[mask] É [MASK",
        "",
        "\x01[MASK]\x01",
        "in\u3000[MASK]\tthe",
    ]
    ids = tokenizer.tokenize(texts, special_tokens=True).numpy()
    for text, row in zip(texts, ids.tolist(), strict=True):
        assert [i for i in row if i] == library.encode(text).ids, text


def test_added_tokens_are_written_as_they_are_found():
    added = [{"content": content, "normalized": True} for content in ("COVID", "Ä É")]
    tokenizer = WordPieceTokenizer([*pieces(), *(token["content"] for token in added)], added_tokens=added)
    library = library_of(tokenizer)
    library.add_tokens([tokenizers.AddedToken(**token) for token in added])
    texts = ["a covid\u0301 b", "CÓVID19 ä é", ""]
    ids = tokenizer.tokenize(texts).numpy()
    assert [[i for i in row if i] for row in ids.tolist()] == [library.encode(text).ids for text in texts]
    rows = [[library.token_to_id(token["content"]), library.token_to_id("a")] for token in added]
    assert [text.decode() for text in tokenizer.detokenize(rows).numpy()] == library.decode_batch(rows)


def test_added_tokens_of_which_normalisation_leaves_nothing_are_in_no_text():
    """On such a token, version 0.23 of the library runs out of memory."""
    added = [{"content": content, "normalized": True} for content in ("\u0301", "\ufffd")]
    tokenizer = WordPieceTokenizer(["ab", "\u0301", "\ufffd"], added_tokens=added)
    assert shown(tokenizer, "ab \u0301a\u0301b\ufffd") == ["ab", "ab"]


# Pairs of texts.


class TestPairs:
    first = ("a man is standing on a ladder", "in", "", "two men", "a a a a a a a", "a a a a")
    second = ("two men are cleaning", "a man in blue is cleaning two windows", "the", "", "a a a a a a a", "a a a")

    def library(self, template, max_length):
        library = library_of(pair("uncased").tokenizer)
        kinds = [("[CLS]", START), ("[SEP]", END)]
        library.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair=template, special_tokens=kinds
        )
        if max_length:
            library.enable_truncation(max_length, strategy="longest_first")
        library.enable_padding(pad_id=0, pad_type_id=0, pad_token="[PAD]")
        return library

    @pytest.mark.parametrize("max_length", [None, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17, 18, 40])
    def test_pairs_are_those_of_the_library(self, max_length):
        library = self.library("[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", max_length)
        encodings = library.encode_batch([*zip(self.first, self.second, strict=True)])
        ids, segments = pair("uncased").tokenizer.tokenize_pairs(self.first, self.second, max_length)
        assert ids.dtype == segments.dtype == tf.int32
        assert ids.numpy().tolist() == [encoding.ids for encoding in encodings]
        assert segments.numpy().tolist() == [encoding.type_ids for encoding in encodings]

    @pytest.mark.parametrize("max_length", [None, 6, 9, 10, 11])
    def test_pairs_with_two_separators(self, max_length, monkeypatch):
        library = self.library("[CLS]:0 $A:0 [SEP]:0 [SEP]:0 $B:1 [SEP]:1", max_length)
        encodings = library.encode_batch([*zip(self.first, self.second, strict=True)])
        tokenizer = pair("uncased").tokenizer
        monkeypatch.setattr(tokenizer, "pair_separators", 2)
        ids, segments = tokenizer.tokenize_pairs(self.first, self.second, max_length)
        assert ids.numpy().tolist() == [encoding.ids for encoding in encodings]
        assert segments.numpy().tolist() == [encoding.type_ids for encoding in encodings]

    def test_single_texts_keep_start_and_end(self):
        library = self.library("[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", 6)
        ids = pair("uncased").tokenizer.tokenize(self.first, add_start=True, add_end=True, max_length=6)
        assert ids.numpy().tolist() == [encoding.ids for encoding in library.encode_batch(self.first)]

    @pytest.mark.parametrize(
        ("texts", "options", "message"),
        [
            ((["a"], ["a", "b"]), {}, "`first` and `second` must have the same number of texts. Received: 1 and 2"),
            ((["a"], "a"), {}, r"`texts` must be a batch of strings `\(B,\)`"),
            ((["a"], ["a"]), {"max_length": 4}, "`max_length` must leave room for start, ends and an id of each text."),
        ],
    )
    def test_wrong_pairs(self, texts, options, message):
        with pytest.raises(ValueError, match=message):
            pair("uncased").tokenizer.tokenize_pairs(*texts, **options)


# Vocabularies.


def test_special_pieces_come_first(tmp_path):
    listed = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "c", "##b"]
    (tmp_path / "vocab.txt").write_bytes("\n".join([*listed, ""]).encode())
    others, order = special_pieces_first(listed)
    assert others == ["[unused1]", "[MASK]", "a", "c", "##b"]
    assert order.tolist() == [0, 2, 3, 4, 1, 5, 6, 7, 8]
    tokenizer = WordPieceTokenizer.from_vocabulary(str(tmp_path / "vocab.txt"), lowercase=False)
    assert WordPieceTokenizer.from_vocabulary(iter(listed)).mask_id == 5
    assert tokenizer.get_config() == WordPieceTokenizer(others, lowercase=False).get_config()
    assert tokenizer.mask_id == 5
    ids = tokenizer.tokenize(["ab [unused1] q"], add_start=True, add_end=True).numpy()[0]
    assert order[ids].tolist() == [3, 6, 8, 2, 2, 2, 2, 4]
    assert read_vocabulary(tmp_path / "vocab.txt") == listed


def test_lines_of_a_vocabulary_lose_the_white_space_at_their_end_as_in_the_library(tmp_path):
    lines = ["[UNK]\r", "a ", "\u2028", "b\u3000\t", "", "c\x1c", "d\u200b", " e\x85"]
    (tmp_path / "vocab.txt").write_bytes("\n".join([*lines, ""]).encode())
    found = read_vocabulary(tmp_path / "vocab.txt")
    assert found == ["[UNK]", "a", "[unused line 3]", "b", "[unused line 5]", "c\x1c", "d\u200b", " e"]
    theirs = tokenizers.models.WordPiece.read_file(str(tmp_path / "vocab.txt"))
    del theirs[""]  # no text gives it
    assert {piece: id_ for id_, piece in enumerate(found) if "unused" not in piece} == theirs
    tokenizer = WordPieceTokenizer(found[1:], lowercase=False)
    text = "\u2028 [unused line 3] a  b"
    assert {*tokenizer.tokenize([text]).numpy()[0]} == {1, 4, 6}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WordPieceTokenizer([]), "`vocabulary` must hold pieces that are not special. Received: none"),
        (lambda: WordPieceTokenizer(["[MASK]"]), "`vocabulary` must hold pieces that are not special. Received: none"),
        (lambda: WordPieceTokenizer(["a", ""]), "`vocabulary` must hold strings that are not empty. Received: ''"),
        (lambda: WordPieceTokenizer(["a", "a"]), r"must hold each piece once. Received: \['a'\] more than once"),
        (
            lambda: WordPieceTokenizer(["a"], added_tokens=[{"content": "b"}]),
            "`added_tokens` must have different `content`s, and the vocabulary must have all of them. Received: 'b'",
        ),
        (lambda: special_pieces_first(["[PAD]", "[UNK]", "[CLS]"]), r"of which the vocabulary lacks \['\[SEP\]'\]"),
        (
            lambda: special_pieces_first([*"abc"], "abca"),
            "must be the 4 pieces .*, which are not four different pieces",
        ),
        (lambda: WordPieceTokenizer.learn("a text", 50), "`texts` must be an iterable of strings. Received: one str"),
        (lambda: WordPieceTokenizer.learn([1], 50), "`texts` must hold strings. Received: 1 of type int"),
        (lambda: WordPieceTokenizer.learn([" "], 50), "`texts` must hold a word of at most 100 char"),
        (lambda: WordPieceTokenizer.learn(["a"], 0), "`size` must be at least 1. Received: size=0"),
        (lambda: WordPieceTokenizer.learn(["a"], 30.5), "`size` must be an integer. Received: size=30.5"),
        (lambda: WordPieceTokenizer.learn(["a"], 9, 0), "`minimum_frequency` must be at least 1. Received: minimum_fr"),
        (lambda: WordPieceTokenizer.learn(["a"], 9, limit_alphabet=0), "`limit_alphabet` must be at least 1."),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_vocabulary_that_is_not_utf8(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match=r"vocab.txt must be in UTF-8: .*invalid start byte"):
        WordPieceTokenizer.from_vocabulary(tmp_path / "vocab.txt")


def test_pieces_are_learnt():
    """`l o` comes 5 times, `lo w` 4 times, the others once: two merges, behind the characters in their order.

    Half a surrogate pair is read as a question mark.
    """
    tokenizer = WordPieceTokenizer.learn(["low Low, lów lo", "low\ud800"], 100)
    characters = [",", "?", "l", "o", "w", "##o", "##w"]
    assert tokenizer.get_config()["vocabulary"] == ["[MASK]", *characters, "lo", "low"]
    assert WordPieceTokenizer.learn(["low Low, lów lo", "low"], 11 + 1).size == 12
    cased = WordPieceTokenizer.learn(["LÓ Ló Lo"] * 2, 100, lowercase=False, limit_alphabet=2)
    assert cased.get_config()["vocabulary"] == ["[MASK]", "L", "o", "##o", "Lo"]  # Ó and ó come as often as o


def test_the_same_texts_give_the_same_pieces():
    texts = [text[::step] for text in CORPUS for step in (1, 2, -1)]  # many pairs come equally often
    tokenizers_ = [WordPieceTokenizer.learn(iter(texts), 400) for _ in range(4)]
    assert len({str(tokenizer.get_config()) for tokenizer in tokenizers_}) == 1


def test_words_that_are_too_long_to_have_pieces_are_not_learnt_from():
    """The library needs a minute for 200,000 letters in one word."""
    words, long = "low lower " * 2, "lq" * 50
    learnt = [WordPieceTokenizer.learn([words + word], 40).get_config() for word in ("", f"{long}x", long)]
    assert learnt[0] == learnt[1] != learnt[2]


def test_the_pieces_are_those_that_the_library_learns():
    """As a set, and where no two pairs come equally often: the library breaks ties by chance."""
    texts = [" ".join(["ab"] * 40 + ["abc"] * 30 + ["xabc"] * 21 + ["dx"] * 13 + ["dxa"] * 7)]
    library = library_of(WordPieceTokenizer(["a"]))
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=100, special_tokens=["[MASK]"], show_progress=False)
    library.train_from_iterator(texts, trainer)
    assert {*library.get_vocab()} == {*WordPieceTokenizer.learn(texts, 104).get_config()["vocabulary"]}


def test_the_config_keeps_every_option():
    options = {
        "clean_text": False,
        "handle_chinese_chars": False,
        "strip_accents": True,
        "lowercase": False,
        "continuing_subword_prefix": "_",
        "max_input_chars_per_word": 7,
        "cleanup": False,
        "mask_token": "m",
    }
    tokenizer = WordPieceTokenizer(["a", "_b", "m"], **options)
    config = tokenizer_to_config(tokenizer)
    assert config == {"class": "WordPieceTokenizer", "vocabulary": ["a", "_b", "m"], "added_tokens": [], **options}
    assert tokenizer_from_config(config).mask_id == 6
    assert WordPieceTokenizer(["a"]).get_config()["strip_accents"] is None


# Whole corpora.


@functools.cache
def corpora():
    """All sentences of Multi30k and Tatoeba."""
    if not DATA.is_dir():
        pytest.skip(f"{DATA} with Multi30k and Tatoeba is not here")
    files = sorted((DATA / "multi30k").glob("*.gz"))
    multi30k = [line for file in files for line in gzip.decompress(file.read_bytes()).decode().splitlines()]
    table = (DATA / "tatoeba-hin-eng" / "hin.txt").read_text(encoding="utf-8").splitlines()
    return [*multi30k, *(text for line in table for text in line.split("\t")[:2])]


@pytest.mark.long
@pytest.mark.parametrize(("size", "lowercase"), [(30_000, True), (8_000, False), (500, True)])
def test_sentences_of_corpora(size, lowercase):
    """A twelfth of them, of which the tokenizer is learnt, and a twelfth that it has not seen."""
    texts = [*corpora()[::12], *corpora()[1::12]]
    tokenizer = WordPieceTokenizer.learn(texts[: len(texts) // 2], size, lowercase=lowercase, limit_alphabet=200)
    library = library_of(tokenizer)
    values, lengths = compiled_encoder(tokenizer)(texts)
    theirs = [encoding.ids for encoding in library.encode_batch(texts)]
    assert [row.tolist() for row in np.split(values, np.cumsum(lengths)[:-1])] == theirs
    assert (values == UNKNOWN).any()
    for start in range(0, len(texts), 4096):
        rows = [[i for i in row if i != UNKNOWN] for row in theirs[start : start + 4096 : 7]]
        padded = np.array([*itertools.zip_longest(*rows, fillvalue=0)], np.int32).T
        ours = [text.decode() for text in tokenizer.detokenize(padded).numpy()]
        assert ours == library.decode_batch(rows)
