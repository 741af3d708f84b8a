"""BytePairTokenizer against the `tokenizers` library: for every text, the library's ids and the library's text."""

import functools
import gzip
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.text import BytePairTokenizer, compiled_encoder

DATA = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
# In GPT-2's order, in which "!" is 0, "a" is 64 and a space 220.
ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
CORPUS = [
    "A man in a blue shirt is standing on a ladder, isn't he? They're 1234 men; I'll say: it's 12!",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter – größer als 30 Meter.",
    "नीली कमीज़ में एक आदमी सीढ़ी पर खड़ा है। एक आदमी",
    "一个穿蓝色衬衫的男人站在梯子上。一个男人",
    "파란 셔츠를 입은 남자가 사다리 위에 서 있다 남자가",
    "رجل يرتدي قميصا أزرق يقف على سلم רגל של אדם",
    "😀😀 👩\u200d👩\u200d👧 🇩🇪🇩🇪  e\u0301e\u0301 \n\n\n\t\t   \0\0 x = foo(bar)  # comment ### ##",
] * 3
# What may stand side by side: words that are learnt, parts of them, and what a pattern or a decoder might trip over.
WORDS = sorted({word for text in CORPUS for word in text.split(" ")})
SIGNS = [*"abeinsΣİÉ中가कअبا7²!'’_ \t\n\r\0\x85\xa0\u2028\u200b\u200d\u0301\ufffd\ufeff\U0010ffff", "  ", "   \n "]
PARTS = ["'s", "'S", "n't", "'re", "'ve", " '", "😀", "👩\u200d👧", "a" * 40, "<s>", "<unk>", "<|endoftext|>", "Ġ", "▁"]
FRAGMENTS = st.sampled_from(WORDS + SIGNS + PARTS)
TEXTS = st.lists(
    st.lists(FRAGMENTS | st.sampled_from([" ", ""]), max_size=30).map("".join) | st.text(st.characters(codec="utf-8")),
    max_size=16,
)
BYTES = st.lists(st.lists(st.binary(max_size=4) | FRAGMENTS.map(str.encode), max_size=8).map(b"".join), max_size=16)


def library_of(model, lowercase=False):
    """The library's tokenizer with that model and the other parts of byte-level BPE."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if lowercase:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    return tokenizer


def learnt_by_library(texts, size, minimum_frequency=2, lowercase=False):
    """The library's tokenizer, learnt by the library."""
    tokenizer = library_of(tokenizers.models.BPE(), lowercase)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, min_frequency=minimum_frequency, initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def library_ids(library, texts):
    return [[i + 4 for i in encoding.ids] for encoding in library.encode_batch(texts)]


encoder = functools.cache(compiled_encoder)


def our_ids(tokenizer, texts):
    ids, lengths = encoder(tokenizer)(texts)
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])] if texts else []


def our_texts(tokenizer, ids):
    width = max(map(len, ids), default=0)
    rows = np.array([row + [0] * (width - len(row)) for row in ids], np.int32).reshape(len(ids), width)
    return [text.decode() for text in tokenizer.detokenize(rows).numpy()]


PAIRS = {
    # Of many pieces, and of few, so that most words are merged in the graph.
    "many": (BytePairTokenizer.learn(CORPUS, 1000), learnt_by_library(CORPUS, 996)),
    "few": (BytePairTokenizer.learn(CORPUS, 290), learnt_by_library(CORPUS, 286)),
    "lowercase": (
        BytePairTokenizer.learn(CORPUS, 600, lowercase=True),
        learnt_by_library(CORPUS, 596, lowercase=True),
    ),
}
pairs = pytest.mark.parametrize(("tokenizer", "library"), PAIRS.values(), ids=PAIRS)
TOKENIZER, LIBRARY = PAIRS["many"]


def test_ids_by_hand():
    tokenizer = BytePairTokenizer([*ALPHABET, "ab", "Ġab", "abab"], ["a b", "Ġ ab", "ab ab"])
    a, b, space = 64 + 4, 65 + 4, 220 + 4
    ab, space_ab, abab = 260, 261, 262
    assert tokenizer.size == 263
    texts = ["ab ab", "aab", " abab", "ababab", "", "b  ab", "a\0"]
    expected = [[ab, space_ab], [a, ab], [space_ab, ab], [abab, ab], [], [b, space, space_ab], [a, 188 + 4]]
    assert our_ids(tokenizer, texts) == expected
    assert our_texts(tokenizer, expected) == texts


def test_pieces_that_merging_passes_by():
    # "bc" comes before "ab", so that "abc" is not made of a word "abc"; and nothing makes "xyz".
    pieces = [*ALPHABET, "bc", "ab", "abc", "xyz"]
    merges = ["b c", "a b", "ab c"]
    library = library_of(
        tokenizers.models.BPE({p: i for i, p in enumerate(pieces)}, [tuple(m.split()) for m in merges])
    )
    ids = our_ids(BytePairTokenizer(pieces, merges), ["abc", "xyz", "ab"])
    assert ids == [[68, 260], [91, 92, 93], [261]] == library_ids(library, ["abc", "xyz", "ab"])


@pairs
def test_ids_are_the_librarys(tokenizer, library):
    @settings(deadline=None, max_examples=20)
    @given(TEXTS)
    @example(["", " ", "\n", "'", "\0", "a\u0301"])
    def check(texts):
        ids = library_ids(library, texts)
        assert our_ids(tokenizer, texts) == ids
        expected = [library.normalizer.normalize_str(text) if library.normalizer else text for text in texts]
        assert our_texts(tokenizer, ids) == expected

    check()


@settings(deadline=None, max_examples=15)
@given(BYTES)
# A lone continuation, cut off characters, an overlong slash, a surrogate, beyond U+10FFFF.
@example([b"a\x80b", b"\xe2\x82 \xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\xbd", b"\xf4\x90\x80\x80", b"\xff"])
def test_broken_bytes_are_read_as_replacement_characters(strings):
    assert our_ids(TOKENIZER, strings) == library_ids(LIBRARY, [s.decode("utf-8", "replace") for s in strings])


@settings(deadline=None, max_examples=15)
@given(st.lists(st.lists(st.integers(4, TOKENIZER.size - 1) | st.integers(4, 259), max_size=12), max_size=16))
def test_any_ids_are_decoded_as_the_library_does(ids):
    expected = [LIBRARY.decode([i - 4 for i in row], skip_special_tokens=False) for row in ids]
    assert our_texts(TOKENIZER, ids) == expected


def long_texts(length=5000):
    """Texts and single words of that many characters."""
    choices = random.Random(0).choices
    word = "".join(CORPUS[1].split()) * length
    return {
        "sentences": (" ".join(CORPUS) * length)[:length],
        "one letter": "a" * length,
        "spaces": " " * length,
        "newlines": "\n" * length + "x",
        "emoji": "😀" * length,
        "joined words": "".join(filter(str.isalpha, word[: 2 * length]))[:length],
        "letters of many scripts": "".join(choices("".join(filter(str.isalpha, "".join(CORPUS))), k=length)),
        "different words": " ".join("".join(choices("abcdefg", k=7)) for _ in range(length // 8)),
    }


@pytest.mark.parametrize("name", long_texts(1))
@pytest.mark.parametrize("size", ["many", "few"])
def test_long_texts(size, name):
    (tokenizer, library), text = PAIRS[size], long_texts()[name]
    batch = [text, "a", text[::-1]]
    ids = library_ids(library, batch)
    assert our_ids(tokenizer, batch) == ids
    assert our_texts(tokenizer, ids) == batch


def test_one_very_long_word():
    # A matrix of its letters by its letters would have 40,000,000,000 numbers.
    text = long_texts(200_000)["joined words"]
    ids = our_ids(TOKENIZER, [text])
    assert ids == library_ids(LIBRARY, [text])
    assert our_texts(TOKENIZER, ids) == [text]


@pytest.mark.long
@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the corpora in {DATA}, which are not part of the project")
def test_sentences_of_multi30k():
    """The pairs are learnt from all of them; every third is compared."""
    texts = {}
    for language in ("en", "de"):
        with gzip.open(DATA / f"train.{language}.gz", "rt", encoding="utf-8", newline="\n") as file:
            texts[language] = file.read().removesuffix("\n").split("\n")
        assert len(texts[language]) == 29_000
    both = texts["en"] + texts["de"]
    tokenizer = BytePairTokenizer.learn(both, 10_000)
    assert tokenizer.size == 10_000
    config = tokenizer.get_config()
    ids = {piece: i for i, piece in enumerate(config["vocabulary"])}
    merges = [tuple(merge.split(" ")) for merge in config["merges"]]
    library = library_of(tokenizers.models.BPE(ids, merges))
    tokenize = tf.function(tokenizer.tokenize, [tf.TensorSpec([None], tf.string)], autograph=False)
    detokenize = tf.function(tokenizer.detokenize, [tf.TensorSpec([None, None], tf.int32)], autograph=False)
    some = both[::3]
    for begin in range(0, len(some), 1000):
        batch = some[begin : begin + 1000]
        rows = tokenize(tf.constant(batch))
        assert [[i for i in row if i] for row in rows.numpy().tolist()] == library_ids(library, batch)
        assert [text.decode() for text in detokenize(rows).numpy()] == batch


def learnt(library):
    """The pieces and the merges that the library has."""
    ids = library.get_vocab()
    merges = json.loads(library.to_str())["model"]["merges"]
    return sorted(ids, key=ids.get), [" ".join(merge) for merge in merges]


@pytest.mark.parametrize(
    ("size", "minimum_frequency", "lowercase"),
    [(260, 2, False), (261, 1, True), (300, 2, False), (1000, 1, True), (1000, 4, False)],
)
def test_the_library_learns(size, minimum_frequency, lowercase):
    tokenizer = BytePairTokenizer.learn(iter(CORPUS), size, minimum_frequency, lowercase)
    pieces, merges = learnt(learnt_by_library(CORPUS, size - 4, minimum_frequency, lowercase))
    config = tokenizer.get_config()
    assert (config["vocabulary"], config["merges"]) == (pieces, merges)
    assert (config["lowercase"], config["nfc"]) == (lowercase, False)
    assert tokenizer.size <= size
    if minimum_frequency <= 3:  # each text of the corpus comes three times
        assert tokenizer.size == min(size, len(pieces) + 4)


def test_lower_case_is_learnt_and_read():
    tokenizer = BytePairTokenizer.learn(["LOW Low low ÀÉ àé"] * 2, 300, lowercase=True)
    assert tokenizer.lowercase
    assert (
        tokenizer.get_config() == BytePairTokenizer.learn(["low low low àé àé"] * 2, 300, lowercase=True).get_config()
    )
    ids = tokenizer.tokenize(["LOW low Àé", "low low àé"]).numpy().tolist()
    assert ids[0] == ids[1]
    assert tokenizer.detokenize(ids).numpy()[0].decode() == "low low àé"


def test_surrogates_are_learnt_as_they_are_read():
    texts, read = ["a\ud83d", "\ude00\ud83d"], ["a?", "??"]
    assert BytePairTokenizer.learn(texts * 2, 300).get_config() == BytePairTokenizer.learn(read * 2, 300).get_config()
    assert our_ids(TOKENIZER, texts) == our_ids(TOKENIZER, read)


def test_a_long_text_without_white_space_is_learnt_in_parts():
    """The library needs a minute for 200,000 letters in one word, and hours for a million."""
    chance = random.Random(0)
    dna = "".join(chance.choices("acgt", k=2300))
    parts = [dna[:1000], dna[1000:2000], f"{dna[2000:]} {dna[:1000]} end"]
    whole = BytePairTokenizer.learn([f"{dna} {dna[:1000]} end"], 400)
    assert whole.get_config() == BytePairTokenizer.learn(parts, 400).get_config()
    assert whole.detokenize(whole.tokenize([dna])).numpy()[0].decode() == dna


def test_a_long_run_of_white_space_is_learnt_in_parts():
    """The library needs six seconds for 100,000 spaces, and a hundred times as long for a million."""
    spaces = "\n" + " " * 2299
    parts = ["low", spaces[:1000], spaces[1000:2000], f"{spaces[2000:]}low"]
    whole = BytePairTokenizer.learn([f"low{spaces}low"], 400)
    assert whole.get_config() == BytePairTokenizer.learn(parts, 400).get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 300.0}, r"^`size` must be an integer\. Received: size=300\.0$"),
        ({"size": 259}, r"`size` must be at least 260, for 4 special ids and 256 bytes\. Received: size=259"),
        ({"minimum_frequency": 0}, r"`minimum_frequency` must be at least 1\. Received: minimum_frequency=0"),
        ({"texts": "abc"}, r"`texts` must be an iterable of strings\. Received: one str"),
        ({"texts": ["a", b"b"]}, r"`texts` must hold strings\. Received: b'b' of type bytes"),
    ],
)
def test_learning_errors(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        BytePairTokenizer.learn(**{"texts": ["ab"], "size": 300, **arguments})


@pytest.mark.parametrize(
    ("vocabulary", "merges", "message"),
    [
        ([*ALPHABET, 7], [], r"`vocabulary` must hold strings of the characters .* Received: 7"),
        ([*ALPHABET, "a b"], [], r"`vocabulary` must hold strings of the characters .* Received: 'a b'"),
        ([*ALPHABET, "中"], [], r"`vocabulary` must hold strings of the characters .* Received: '\\u4e2d'"),
        ([*ALPHABET, "ab", "ab", "!"], [], r"`vocabulary` must hold each piece once.*: \['!', 'ab'\] more than once"),
        (ALPHABET[:-1], [], r"`vocabulary` must hold all single bytes\. Received: none for \['Ń'\]"),
        ([*ALPHABET, "ab"], [("a", "b")], r"`merges` must hold strings of two pieces .* Received: \('a', 'b'\)"),
        ([*ALPHABET, "ab"], ["ab"], r"`merges` must hold strings of two pieces .* Received: 'ab'"),
        ([*ALPHABET, "ab"], [""], r"`merges` must hold strings of two pieces .* Received: ''"),
        ([*ALPHABET, "ab"], ["a c"], r"`merges` must hold strings of two pieces .* Received: 'a c'"),
        ([*ALPHABET, "abc"], ["ab c"], r"`merges` must hold strings of two pieces .* Received: 'ab c'"),
        (
            [*ALPHABET, *"abcde"],
            [],
            r"`vocabulary` must hold each piece once\. Received: \['a', 'b', 'c'\] and 2 others more than once",
        ),
        ([*ALPHABET, "ab"], ["a b", "a b"], r"`merges` must hold each pair once\. Received: \['a b'\] more than once"),
    ],
)
def test_constructor_errors(vocabulary, merges, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        BytePairTokenizer(vocabulary, merges)


@pytest.fixture
def files(tmp_path):
    """A function that writes GPT-2's two files with the library, with one more piece that no merge makes."""

    def files(end="\n"):
        LIBRARY.model.save(str(tmp_path))
        vocab, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
        ids = json.loads(vocab.read_text(encoding="utf-8"))
        # Not in the order of the ids, as in GPT-2's own file.
        ids = dict(sorted({**ids, "<|endoftext|>": len(ids)}.items()))
        vocab.write_text(json.dumps(ids), encoding="utf-8")
        lines = merges.read_text(encoding="utf-8").split("\n")
        assert lines[0].startswith("#version") and lines[-1] == ""
        assert "# #" in lines  # a merge that looks like a remark
        merges.write_text(end.join(lines), encoding="utf-8", newline="")
        return vocab, merges

    return files


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_files_of_gpt_2(files, end):
    vocab, merges = files()
    library = library_of(tokenizers.models.BPE.from_file(str(vocab), str(merges)))
    if end == "\n":  # then also without the version and with an empty line at the end
        merges.write_text("\n".join([*merges.read_text(encoding="utf-8").split("\n")[1:], ""]), encoding="utf-8")
    else:
        vocab, merges = files(end)
    tokenizer = BytePairTokenizer.from_files(vocab, merges)
    assert tokenizer.size == 4 + library.get_vocab_size() == TOKENIZER.size + 1
    assert tokenizer.get_config()["merges"] == learnt(LIBRARY)[1]
    texts = [*CORPUS, "<|endoftext|>", "a <|endoftext|>b", "#### ## #"]
    ids = library_ids(library, texts)
    assert our_ids(tokenizer, texts) == ids
    end_of_text = tokenizer.size - 1
    assert not any(end_of_text in row for row in ids)
    assert tokenizer.detokenize([[end_of_text]]).numpy().tolist() == [b"<|endoftext|>"]


def test_files_with_wrong_ids(files):
    vocab, merges = files()
    ids = json.loads(vocab.read_text(encoding="utf-8"))
    for content in (
        {**ids, "<|endoftext|>": len(ids)},
        {**ids, "<|endoftext|>": 5},
        {**ids, "<|endoftext|>": "5"},
        [1],
    ):
        vocab.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(
            ValueError, match=rf"^{re.escape(str(vocab))} must hold pieces with the ids 0, 1, 2 and so on, each once\.$"
        ):
            BytePairTokenizer.from_files(vocab, merges)
    for content in (b"{", b"\xff"):
        vocab.write_bytes(content)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(vocab))} cannot be read: "):
            BytePairTokenizer.from_files(vocab, merges)


def test_an_added_token_is_written_as_it_is_found():
    library = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(ALPHABET)}, []))
    library.normalizer, library.decoder = tokenizers.normalizers.Lowercase(), tokenizers.decoders.ByteLevel()
    library.add_tokens([tokenizers.AddedToken("<ABC>", normalized=True)])
    added = [{"content": "<ABC>", "normalized": True}]
    tokenizer = BytePairTokenizer([*ALPHABET, "<ABC>"], [], lowercase=True, added_tokens=added)
    ids = tokenizer.tokenize(["a<Abc>"])
    assert ids.numpy().tolist() == [[i + 4 for i in library.encode("a<Abc>").ids]]
    assert tokenizer.detokenize(ids).numpy() == [library.decode(library.encode("a<Abc>").ids).encode()]
    assert tokenizer.detokenize(ids).numpy() == [b"a<abc>"]


def test_characters_that_ids_cut_are_joined_again():
    euro = our_ids(BytePairTokenizer.learn([], 260), ["€"])[0]
    assert len(euro) == 3
    texts = our_texts(TOKENIZER, [euro, euro[:2], [*euro[:1], 68], euro[1:], [*euro[:2], *euro]])
    assert texts == ["€", "\ufffd", "\ufffda", "\ufffd\ufffd", "\ufffd€"]


def test_tokens_can_be_printed():
    tokenizer = BytePairTokenizer([*ALPHABET, "Ġa", "ĠĠ", "Ċĉ", "âĢį", "Âł", "ÃĦ", "ÃĦÃ", "\\n", "Ġâĸģ"], [])
    first = 260
    pieces = tokenizer.tokens([[first + i for i in range(9)] + [0, 1, 2, 3, tokenizer.size, -1]]).numpy()[0].tolist()
    readable = [piece.decode() for piece in pieces]
    assert readable[:9] == ["▁a", "▁▁", r"\n\t", r"\u200d", r"\u00a0", "Ä", r"Ä\xc3", r"\n", "▁▁"]
    assert readable[9:] == ["", "<unk>", "<s>", "</s>", "\ufffd", "\ufffd"]
    every = b"".join(tokenizer.tokens([list(range(4, tokenizer.size))]).numpy()[0].tolist()).decode()
    assert every.isprintable() and " " not in every


class TestSample:
    def test_other_pieces_of_the_same_texts(self):
        texts = [*CORPUS, "", "größer", "x" * 300]
        pieces = set()
        for number in range(5):
            ids = TOKENIZER.sample(texts, 0.3, [0, number], add_end=True)
            assert [text.decode() for text in TOKENIZER.detokenize(ids).numpy()] == texts
            pieces.add(tuple(ids.numpy()[1]))
        assert len(pieces) == 5

    def test_without_dropout_it_is_tokenize(self):
        arguments = {"add_start": True, "add_end": True, "max_length": 9}
        ours = TOKENIZER.sample(CORPUS, 0, [0, 1], **arguments).numpy()
        assert np.array_equal(ours, TOKENIZER.tokenize(CORPUS, **arguments).numpy())

    def test_with_all_dropped_it_is_bytes(self):
        text = "Größe 1"
        ids = TOKENIZER.sample([text], 1, [0, 1]).numpy()[0]
        assert ids.tolist() == [int(TOKENIZER.tokenize([byte]).numpy()[0, 0]) for byte in ["G", "r"]] + ids.tolist()[2:]
        assert len(ids) == len(text.encode())

    @pytest.mark.parametrize("dropout", [-0.1, float("nan")])
    def test_errors(self, dropout):
        with pytest.raises(ValueError, match=r"^`dropout` must be from 0 to 1\. Received: dropout="):
            TOKENIZER.sample(["a"], dropout, [0, 1])
        with pytest.raises(ValueError, match="put a single string into a list"):
            TOKENIZER.sample("a", 0.1, [0, 1])

    def test_no_words_and_lower_case(self):
        assert TOKENIZER.sample(["", ""], 0.1, [0, 1]).numpy().tolist() == [[0], [0]]
        tokenizer, _ = PAIRS["lowercase"]
        assert tokenizer.detokenize(tokenizer.sample(["EIN Mann"], 0.5, [0, 1])).numpy().tolist() == [b"ein mann"]


def test_a_mask_and_the_ids_between_the_texts_of_a_pair():
    learnt = BytePairTokenizer.learn(["low lower"] * 2, size=264).get_config()
    added = [{"content": "<mask>", "special": True, "lstrip": True}]
    options = {**learnt, "vocabulary": [*learnt["vocabulary"], "<mask>"], "added_tokens": added}
    tokenizer = BytePairTokenizer(**{**options, "mask_token": "<mask>", "pair_separators": 2})
    assert tokenizer.mask_id == tokenizer.size - 1
    ids = tokenizer.tokenize(["low <mask>"], special_tokens=True)
    assert ids.numpy()[0].tolist() == [*tokenizer.tokenize(["low"]).numpy()[0], tokenizer.mask_id]
    ids, _ = tokenizer.tokenize_pairs(["l"], ["o"])
    assert [piece.decode() for piece in tokenizer.tokens(ids).numpy()[0]] == ["<s>", "l", "</s>", "</s>", "o", "</s>"]
    with pytest.raises(ValueError, match=r"`pair_separators` must be at least 1\. Received: pair_separators=0"):
        BytePairTokenizer(ALPHABET, [], pair_separators=0)
    with pytest.raises(ValueError, match="`mask_token` must be a special token of"):
        BytePairTokenizer(**{**options, "mask_token": "<none>"})
