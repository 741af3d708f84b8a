"""`tokenizer.json` of every family that can be read: the ids and the texts of the `tokenizers` library.

The files are made here, with small vocabularies that the library learns, and with each family's own components, as
`transformers` 5 writes them or as they were published.
"""

import copy
import functools
import gzip
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from characters import EVERY
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from zoo_training.corpora.dates import Dates

from zoo.checkpoints.special_tokens import read_special_tokens
from zoo.checkpoints.tokenizer_json import read_tokenizer
from zoo.testing import TokenizerTests
from zoo.text import compiled_encoder
from zoo.text.words import LLAMA_3, QWEN_2, QWEN_3_5

DATA = Path(__file__).parents[2] / "shared" / "data"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
CORPUS = [
    "A man in a blue shirt is standing on a ladder, isn't he? They're 1234 men; I'll say: it's 12!",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter – größer als 30 Meter.",
    "नीली कमीज़ में एक आदमी सीढ़ी पर खड़ा है। एक आदमी",
    "一个穿蓝色衬衫的男人站在梯子上。一个男人 파란 셔츠를 입은 남자가 남자가",
    "😀😀 👩\u200d👩\u200d👧 e\u0301e\u0301 é \n\n\n\t\t   x = foo(bar)  # comment ###\n        return 2026\n",
] * 3
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# What vocabularies are learnt from, and how large they are.
LEARNT = {"texts": CORPUS, "byte pairs": 900, "character pairs": 600}
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


def learnt_bytes(normalizer, pre_tokenizer, special=(), added=(), lacks="", **options):
    """The content of a `tokenizer.json` with byte-level pairs."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizer
    library.decoder = decoders.ByteLevel()
    if normalizer is not None:
        library.normalizer = normalizer
    alphabet = [character for character in ALPHABET if character not in lacks]
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNT["byte pairs"], initial_alphabet=alphabet, special_tokens=[*special], show_progress=False
    )
    texts = [text for text in LEARNT["texts"] if not lacks or text.isascii()]
    library.train_from_iterator(texts, trainer)
    library.add_tokens([*added])
    content = json.loads(library.to_str())
    content["model"] |= options
    assert not set(lacks) & content["model"]["vocab"].keys()
    return content


def learnt_characters(normalizer, pre_tokenizer, strip, byte_fallback=True, whole_texts=False, every=True, **options):
    """The content of a `tokenizer.json` with pairs of characters."""
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True))
    library.normalizer = normalizers.Replace(" ", "▁")
    if not whole_texts:
        library.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *BYTE_PIECES * byte_fallback]
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNT["character pairs"],
        special_tokens=special,
        limit_alphabet=90,
        show_progress=False,
        max_token_length=12,
    )
    library.train_from_iterator([" " + text for text in LEARNT["texts"]], trainer)
    parts = [decoders.Replace("▁", " "), *[decoders.ByteFallback()] * byte_fallback, decoders.Fuse()]
    library.decoder = decoders.Sequence(parts + [decoders.Strip(" ", 1, 0)] * strip)
    library.normalizer = normalizer
    library.pre_tokenizer = pre_tokenizer
    content = json.loads(library.to_str())
    del content["added_tokens"][3:]  # bytes are no added tokens
    model = content["model"]
    if every:  # as `transformers` makes merges of a SentencePiece model: all ways in which a piece is two others
        ids = {piece: i for i, piece in enumerate(model["vocab"]) if i >= len(special)}
        model["merges"] = [
            [piece[:i], piece[i:]]
            for piece in ids
            for i in sorted(range(1, len(piece)), key=lambda i: (ids.get(piece[:i], 0), ids.get(piece[i:], 0)))
            if piece[:i] in ids and piece[i:] in ids
        ]
    model |= options
    return content


def with_fewer_merges(content):
    """Without every third merge: some pieces are then words that only `ignore_merges` finds."""
    content["model"]["merges"] = [merge for i, merge in enumerate(content["model"]["merges"]) if i % 3]
    return content | {"model": {**content["model"], "ignore_merges": True}}


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)


BYTES = functools.partial(pre_tokenizers.ByteLevel, add_prefix_space=False)
AFTER_SPLIT = functools.partial(BYTES, use_regex=False)
SPACES = [AddedToken(" " * number, normalized=True) for number in range(2, 9)]
LEGACY = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
# GPT-NeoX lacks the bytes that are in no UTF-8, C0, C1 and F5 to FF. SmolLM2 lacks others too, as here E0 and 0B.
NEVER_IN_UTF8 = "ÀÁõö÷øùúûüýþÿ"
RARE = "àáâðñċČ"


def metaspace(scheme, split=False):
    return pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=split)


def sequence(*steps):
    return pre_tokenizers.Sequence([*steps])


MAKERS = {
    "gpt2": lambda: learnt_bytes(None, BYTES(), special=SPECIAL[:1]),
    "gpt2 with a space before": lambda: learnt_bytes(
        normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        special=SPECIAL[:2],
    ),
    "gpt_neox": lambda: learnt_bytes(
        normalizers.NFC(), BYTES(), special=["<|endoftext|>", "<|padding|>"], added=SPACES, lacks=NEVER_IN_UTF8
    ),
    "smollm": lambda: learnt_bytes(
        None,
        sequence(pre_tokenizers.Digits(individual_digits=True), BYTES()),
        special=SPECIAL,
        lacks=NEVER_IN_UTF8 + RARE,
    ),
    "smollm with an unknown token": lambda: learnt_bytes(
        None,
        sequence(pre_tokenizers.Digits(individual_digits=False), BYTES()),
        special=SPECIAL,
        lacks=NEVER_IN_UTF8 + RARE,
        unk_token="<|endoftext|>",
        fuse_unk=True,
    ),
    "qwen2": lambda: learnt_bytes(
        normalizers.NFC(),
        sequence(split(QWEN_2), AFTER_SPLIT()),
        added=[*(AddedToken(each, special=True, normalized=False) for each in SPECIAL), "<tool_call>"],
    ),
    "qwen3_5": lambda: learnt_bytes(normalizers.NFC(), sequence(split(QWEN_3_5), AFTER_SPLIT()), special=SPECIAL),
    "llama3": lambda: with_fewer_merges(
        learnt_bytes(None, sequence(split(LLAMA_3), AFTER_SPLIT()), special=["<|begin_of_text|>"])
    ),
    "llama2 legacy": lambda: learnt_characters(LEGACY, None, strip=True),
    "llama2": lambda: learnt_characters(None, metaspace("first"), strip=True),
    "llama2 as learnt": lambda: learnt_characters(None, metaspace("always"), strip=True, every=False),
    "without a space before": lambda: learnt_characters(normalizers.Replace(" ", "▁"), None, strip=False),
    "each space a word": lambda: learnt_characters(None, metaspace("never", split=True), strip=False),
    "texts in the vocabulary": lambda: with_fewer_merges(learnt_characters(LEGACY, None, strip=True)),
    "words in the vocabulary": lambda: with_fewer_merges(
        learnt_characters(None, metaspace("always", split=True), strip=True)
    ),
    "pieces of several words": lambda: learnt_characters(LEGACY, None, strip=True, whole_texts=True, every=False),
    "unknown characters": lambda: learnt_characters(LEGACY, None, strip=True, byte_fallback=False),
    "unknown characters one by one": lambda: learnt_characters(
        None, metaspace("first"), strip=True, byte_fallback=False, fuse_unk=False
    ),
    "characters left out": lambda: learnt_characters(LEGACY, None, strip=True, byte_fallback=False, unk_token=None),
}
family = pytest.mark.parametrize("name", MAKERS)


@functools.cache
def content_of(name):
    return json.dumps(MAKERS[name]())


@functools.cache
def library_of(name, special_tokens=False):
    """The library's tokenizer; one that reads special tokens as text, or one that finds them."""
    library = tokenizers.Tokenizer.from_str(content_of(name))
    library.encode_special_tokens = not special_tokens
    return library


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A function that writes a `tokenizer.json` and gives its folder."""

    def written(content):
        folder = tmp_path_factory.mktemp("tokenizer")
        (folder / "tokenizer.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return folder

    return written


@functools.cache
def ours_of(name):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(content_of(name))
        return read_tokenizer(folder)


def library_ids(library, texts):
    return [[i + 4 for i in each.ids] for each in library.encode_batch(texts, add_special_tokens=False)]


def our_ids(name, texts, special_tokens=False):
    """Without a graph: to trace one takes as long as 20 batches. `TokenizerTests` and the long tests trace it."""
    rows = ours_of(name).tokenize(tf.constant(texts, tf.string, [len(texts)]), special_tokens=special_tokens)
    return [[i for i in row if i] for row in rows.numpy().tolist()]


def our_texts(name, ids):
    width = max(map(len, ids), default=0)
    rows = np.array([row + [0] * (width - len(row)) for row in ids], np.int32).reshape(len(ids), width)
    return [text.decode() for text in ours_of(name).detokenize(rows).numpy()]


def library_texts(library, ids):
    return library.decode_batch([[i - 4 for i in row] for row in ids], skip_special_tokens=True)


def check_texts(name, texts):
    """Ids and decoded texts are the library's."""
    library = library_of(name)
    ids = library_ids(library, texts)
    assert our_ids(name, texts) == ids
    assert our_texts(name, ids) == library_texts(library, ids)


EDGES = [
    "",
    " ",
    "\n",
    "'",
    "\0",
    " a",
    "  a",
    "a ",
    "<s>",
    "▁",
    "a▁b",
    "\ufeff",
    "e\u0301",
    "12 345",
    "a\x0bक",
    "\x0b\x0c",
]
WORDS = sorted({word for text in CORPUS for word in text.split(" ")})
SIGNS = [*"abeinsΣÉ中가कअबا7²!'’_ \t\n\r\0\x85\xa0\u2028\u200b\u0301\ufffd\ufeff\U0010ffff▁", "  ", "   \n ", "     "]
TOKENS = [*SPECIAL, "<|padding|>", "<|begin_of_text|>", "<tool_call>", "<s>", "</s>", "<unk>", "<0x41>", "<0xE4>", "<s"]
FRAGMENTS = st.sampled_from(WORDS + SIGNS + TOKENS)
TEXTS = st.lists(
    st.lists(FRAGMENTS | st.sampled_from([" ", ""]), max_size=20).map("".join) | st.text(st.characters(codec="utf-8")),
    max_size=16,
)


@family
def test_ids_and_texts_are_the_librarys(name):
    @settings(deadline=None, max_examples=4)
    @given(TEXTS)
    @example(EDGES + WORDS)
    @example(CORPUS)
    def check(texts):
        check_texts(name, texts)

    check()


# One of each kind of added tokens.
@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "qwen3_5", "llama2 legacy", "unknown characters"])
def test_special_tokens_are_found_only_where_they_are_allowed(name):
    library, ours = library_of(name, special_tokens=True), ours_of(name)
    special = [token.content for token in library.get_added_tokens_decoder().values() if token.special]
    texts = [f"a{special[0]}b {special[-1]} c", special[0], f" {special[0] * 2}", "none", ""]
    ids = library_ids(library, texts)
    numbers = [ours.id_of(token) for token in special]
    assert all(set(row) & set(numbers) for row in ids[:3])
    assert our_ids(name, texts, special_tokens=True) == ids
    if ours.get_config()["unk_token"] not in special:
        assert not set(itertools.chain(*our_ids(name, texts))) & set(numbers)
    check_texts(name, texts)

    @settings(deadline=None, max_examples=4)
    @given(TEXTS)
    @example(EDGES)
    def check(texts):
        assert our_ids(name, texts, special_tokens=True) == library_ids(library, texts)

    check()


@family
def test_any_ids_are_decoded_as_the_library_does(name):
    size = ours_of(name).size
    bytes_ = st.integers(4, 263)

    @settings(deadline=None, max_examples=4)
    @given(st.lists(st.lists(st.integers(4, size - 1) | bytes_, max_size=12), max_size=16))
    @example([[*range(4, size)], [*range(size - 1, 3, -1)]])
    @example([[7, 4, 7 + 0x80], [7, 4, 7 + 0x41], [7 + 0xC3, 4, 7 + 0xA9, 7], [7 + 0xC3], [7 + 0xA9]])  # some are bytes
    def check(ids):
        assert our_texts(name, ids) == library_texts(library_of(name), ids)

    check()


# The first plane, and of the others the borders and the marks.
PLANES = [chr(c) for c in itertools.chain(range(0xD800), range(0xE000, 0x20000, 7), range(0xE0000, 0xE0200))]
PLANES += [chr(c) for c in range(0x20000, 0x110000, 0x400)] + [chr(c - 1) for c in range(0x20400, 0x110001, 0x400)]


@family
def test_every_character_alone(name):
    """Of the first scripts and the blocks of spaces, punctuation and signs all, of the others one in 41."""
    texts = [each for each in PLANES if (code := ord(each)) < 0x500 or code >> 8 in (0x20, 0x25, 0x30) or not code % 41]
    assert our_ids(name, texts) == library_ids(library_of(name), texts)


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen2", "llama2"])  # a family of each kind, for the time it takes
def test_every_character_of_unicode_alone(name):
    for begin in range(0, len(EVERY), 65536):
        texts = EVERY[begin : begin + 65536]
        assert our_ids(name, texts) == library_ids(library_of(name), texts)


def lines_of(file, column=None):
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        rows = [line.rstrip("\n") for line in lines]
    return rows if column is None else [row.split("\t")[column] for row in rows]


@functools.cache
def corpus():
    """All sentences of Multi30k and Tatoeba."""
    return [
        *lines_of(DATA / "multi30k" / "train.en.gz"),
        *lines_of(DATA / "multi30k" / "train.de.gz"),
        *lines_of(DATA / "tatoeba-hin-eng" / "hin.txt", 0),
        *lines_of(DATA / "tatoeba-hin-eng" / "hin.txt", 1),
    ]


needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the corpora in {DATA}, not part of the project")


@functools.cache
def some_sentences():
    """Dates in all scripts, and sentences of the corpora where they are at hand."""
    return [*Dates().read("validation").sources[::5], *(corpus()[::150] if DATA.is_dir() else ())]


@family
def test_some_sentences(name):
    check_texts(name, some_sentences())


@pytest.mark.long
@needs_data
@pytest.mark.parametrize("name", ["smollm", "qwen2", "llama2 legacy"])
def test_sentences_of_the_corpora(name, written, monkeypatch):
    """Every third, with a vocabulary that was learnt from these."""
    texts = corpus()[::3]
    for key, value in {"texts": texts, "byte pairs": 8000, "character pairs": 8000}.items():
        monkeypatch.setitem(LEARNT, key, value)
    content = MAKERS[name]()
    assert len(content["model"]["vocab"]) > 7000
    library, ours = tokenizers.Tokenizer.from_str(json.dumps(content)), read_tokenizer(written(content))
    encode = compiled_encoder(ours)
    decode = tf.function(ours.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    for begin in range(0, len(texts), 4096):
        batch = texts[begin : begin + 4096]
        values, lengths = encode(batch)
        ids = library_ids(library, batch)
        assert values.tolist() == [*itertools.chain(*ids)]
        assert lengths.tolist() == [len(row) for row in ids]
        rows = tf.RaggedTensor.from_row_lengths(values, lengths).to_tensor()
        assert [text.decode() for text in decode(rows).numpy()] == library_texts(library, ids)


def changed(name, changes):
    """A family's file with other values: `{"model.dropout": 0.1}`."""
    content = copy.deepcopy(json.loads(content_of(name)))
    for path, value in changes.items():
        *outer, last = path.split(".")
        functools.reduce(lambda part, key: part[key], outer, content)[last] = value
    return content


ADDED = {"content": "<x>", "special": False, "normalized": False, "lstrip": False, "rstrip": False}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated", "invert": False}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
REFUSED = [
    ("gpt2", {"model.type": "WordPiece"}, r"its model is 'WordPiece'; only 'BPE' can be read"),
    ("gpt2", {"model.dropout": 0.1}, r"its model has the option dropout = 0\.1, which cannot be read"),
    ("gpt2", {"model.continuing_subword_prefix": "##"}, "the option continuing_subword_prefix = '##', which cannot"),
    ("gpt2", {"model.end_of_word_suffix": "</w>"}, "the option end_of_word_suffix = '</w>', which cannot"),
    ("gpt2", {"model.byte_fallback": True}, "the option byte_fallback = True beside ByteLevel"),
    ("gpt2", {"model.fuse_unk": "yes"}, "`fuse_unk` must be true or false. It is 'yes'"),
    ("gpt2", {"model.unk_token": "<none>"}, "`unk_token` must be in the vocabulary. Received: '<none>'"),
    ("gpt2", {"model.unk_token": 3}, "`unk_token` must be a string. It is 3"),
    ("gpt2", {"model.vocab": ["a"]}, r"`vocab` must be an object. It is \['a'\]"),
    ("gpt2", {"model.vocab": {"a": "0"}}, "the id of 'a' must be a number. It is '0'"),
    ("gpt2", {"model.vocab": {"a": True}}, "the id of 'a' must be a number. It is True"),
    ("gpt2", {"model.vocab": {"<|endoftext|>": 0, "a": 2}}, "its ids must be 0 to 1, each once. 'a' has the id 2"),
    (
        "gpt2",
        {"model.vocab": {"<|endoftext|>": 0, "a b": 1}},
        "`vocabulary` must hold strings of the characters .* 'a b'",
    ),
    ("gpt2", {"model.vocab": {"<|endoftext|>": 0, "\ud800": 1}}, r"must hold strings of the characters .*'\\ud800'"),
    ("gpt2", {"model.merges": {}}, "`merges` must be a list"),
    ("gpt2", {"model.merges": [["a"]]}, r"a merge must be two pieces without a space. It is \['a'\]"),
    ("gpt2", {"model.merges": [["a", 3]]}, "a piece of a merge must be a string. It is 3"),
    ("gpt2", {"model.merges": [["a", "zzz"]]}, "`merges` must hold strings of two pieces .* Received: 'a zzz'"),
    ("gpt2", {"model": 3}, "`model` must be an object. It is 3"),
    ("gpt2", {"normalizer": {"type": "NFKC"}}, "the normalizer 'NFKC' cannot be read"),
    ("gpt2", {"normalizer": {"type": "NFC", "form": 1}}, "its NFC has the option form = 1"),
    ("gpt2", {"normalizer": "NFC"}, "a component must be an object. It is 'NFC'"),
    ("gpt2", {"normalizer": {"type": 1}}, "the `type` of a component must be a string. It is 1"),
    ("gpt2", {"normalizer": {"type": "Sequence"}}, "`normalizers` must be a list. It is None"),
    (
        "gpt2",
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, LEVEL]}},
        r"by the expression '\\\\w\+'; only those of GPT-2, Qwen and Llama 3, and of runs of digits, can be read",
    ),
    (
        "gpt2",
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{**SPLIT, "behavior": "Removed"}, LEVEL]}},
        "the pre-tokenizer 'Split' with {.*'Removed'.*} cannot be read",
    ),
    (
        "gpt2",
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{**SPLIT, "pattern": {"String": "a"}}, LEVEL]}},
        "the `Regex` of a `pattern` must be a string. It is None",
    ),
    (
        "smollm",
        {"pre_tokenizer.pretokenizers": [LEVEL, {"type": "Digits", "individual_digits": True}]},
        "the pre-tokenizer 'ByteLevel' with {.* cannot be read",
    ),
    (
        "smollm",
        {"pre_tokenizer.pretokenizers": [{"type": "Digits"}, {**LEVEL, "add_prefix_space": True}]},
        "its ByteLevel has the option add_prefix_space = True behind another pre-tokenizer",
    ),
    ("gpt2", {"pre_tokenizer.unicode": 1}, "its ByteLevel has the option unicode = 1"),
    ("gpt2", {"pre_tokenizer": None}, "the pre-tokenizer None cannot be read"),
    ("gpt2", {"decoder": {"type": "WordPiece"}}, "the decoder 'WordPiece' cannot be read"),
    ("gpt2", {"decoder": None}, "the decoder None cannot be read"),
    ("gpt2", {"added_tokens": [{**ADDED, "id": 0}]}, "the added token|its ids must be"),
    ("gpt2", {"added_tokens": [{**ADDED, "id": "7"}]}, "the id of the added token '<x>' must be a number. It is '7'"),
    ("gpt2", {"added_tokens": [{"content": "Ġ", "id": 7}]}, r"the added token 'Ġ' has two ids, \d+ and 7"),
    ("gpt2", {"added_tokens": [{"content": 7, "id": 7}]}, "the content of an added token must be a string. It is 7"),
    ("gpt2", {"added_tokens": [{**ADDED, "id": 900, "lstrip": 1}]}, "`lstrip` must be true or false. It is 1"),
    (
        "gpt2",
        {"added_tokens": [{**ADDED, "id": 900, "single_word": True}]},
        "'<x>' has single_word = True",
    ),
    ("llama2", {"model.vocab.<0x41>": 600}, "its ids must be"),
    ("llama2", {"pre_tokenizer": {**METASPACE, "replacement": "_"}}, "the pre-tokenizer 'Metaspace' with {.*'_'"),
    ("llama2", {"pre_tokenizer": {**METASPACE, "prepend_scheme": "last"}}, "`prepend_scheme` must be one of .*'last'"),
    ("llama2", {"pre_tokenizer": {**METASPACE, "add_prefix_space": False}}, "the pre-tokenizer 'Metaspace' with {"),
    ("llama2", {"pre_tokenizer": {**METASPACE, "words": 1}}, "its Metaspace has the option words = 1"),
    ("llama2", {"pre_tokenizer": None}, "the pre-tokenizer None cannot be read"),
    ("llama2", {"normalizer": {"type": "NFKC"}}, "the pre-tokenizer 'Metaspace' with {"),
    ("llama2 legacy", {"normalizer": {"type": "NFKC"}}, "the normalizer 'NFKC' cannot be read"),
    (
        "llama2 legacy",
        {"normalizer.normalizers": [{"type": "Prepend", "prepend": "_"}]},
        "the normalizer 'Prepend' with {'prepend': '_'} cannot",
    ),
    ("llama2", {"decoder.decoders": [REPLACE, {"type": "Fuse"}]}, "the decoder 'Replace' with {.* cannot be read"),
    ("llama2", {"decoder": {"type": "Metaspace"}}, "the decoder 'Metaspace' cannot be read"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_known_is_refused_by_its_name(written, name, changes, message):
    folder = written(changed(name, changes))
    with pytest.raises(ValueError, match=rf"^{folder}/tokenizer\.json cannot be read: .*{message}") as found:
        read_tokenizer(folder)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ('{"model": {"vocab": {"a', "Unterminated string"),
        ("[" * 100_000, "its brackets are nested too deeply"),
        ('{"normalizer": ' + '{"type": "Sequence", "normalizers": [' * 450 + "]}" * 450 + "}", "`model` must be"),
        ("[1]", r"it must be an object. It is \[1\]"),
        ('{"model": {"vocab": {"a": 1' + "0" * 5000 + "}}}", "digits"),
        ('{"model": {"vocab": {}, "merges": []}}', "the pre-tokenizer None cannot be read"),
    ],
)
def test_a_broken_file(written, text, message):
    folder = written(text)
    with pytest.raises(ValueError, match=rf"^{folder}/tokenizer\.json cannot be read: .*{message}") as found:
        read_tokenizer(folder)
    assert "\n" not in str(found.value)


def test_sequences_in_sequences(written):
    content = changed("qwen2", {})
    nested = functools.reduce(
        lambda inner, _: {"type": "Sequence", "normalizers": [inner]}, range(300), {"type": "NFC"}
    )
    assert read_tokenizer(written(content | {"normalizer": nested})).get_config() == ours_of("qwen2").get_config()


def test_a_gigantic_file(tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(2**40)  # a hole, which takes no room on the disk
    with pytest.raises(ValueError, match=r"it has 1,099,511,627,776 bytes, and more than 134,217,728 are refused$"):
        read_tokenizer(tmp_path)


def test_bytes_that_are_no_utf8(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b'{"model": "\xff"}')
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read: 'utf-8' codec can't decode"):
        read_tokenizer(tmp_path)


class TestAddedTokens:
    """Flags of added tokens, by hand and against the library."""

    TEXTS = (
        "a ",
        "<x>",
        " b",
        "a <x> b",
        "a <xy>b<x>  c",
        "<y> a  <y>",
        " <z> <z>\n",
        "A  B a  b",
        "<x><y> <x>",
        "<s><x>",
        "",
        "  ",
    )

    def check(self, written, content, texts=TEXTS):
        ours = read_tokenizer(written(content))
        for special_tokens in (False, True):
            library = tokenizers.Tokenizer.from_str(json.dumps(content))
            library.encode_special_tokens = not special_tokens
            found = ours.tokenize(list(texts), special_tokens=special_tokens).numpy().tolist()
            assert [[i for i in row if i] for row in found] == library_ids(library, list(texts))
        return ours

    def content(self, name, *tokens):
        content = json.loads(content_of(name))
        size = len({*content["model"]["vocab"], *(token["content"] for token in content["added_tokens"])})
        numbers = itertools.count(size)
        ids = [content["model"]["vocab"].get(token["content"]) or next(numbers) for token in tokens]
        entries = [{**ADDED, "single_word": False, **token, "id": i} for i, token in zip(ids, tokens, strict=True)]
        content["added_tokens"] += entries
        return content

    @pytest.mark.parametrize("name", ["gpt2", "gpt2 with a space before", "llama2 legacy", "llama2"])
    @pytest.mark.parametrize("flag", ["lstrip", "rstrip", "normalized", "special"])
    def test_each_flag(self, written, name, flag):
        content = self.content(name, {"content": "<x>", flag: True}, {"content": "<y>"}, {"content": "<z>", flag: True})
        self.check(written, content)

    def test_white_space_on_both_sides(self, written):
        token = {"content": "<x>", "lstrip": True, "rstrip": True}
        ours = self.check(written, self.content("gpt2", token))
        x = ours.id_of("<x>")
        assert ours.tokenize(["  <x>\u3000\n<x>  "]).numpy().tolist() == [[x, x]]

    def test_the_longest_token_at_the_first_place(self, written):
        tokens = [{"content": text} for text in ("<x", "<x>", "<xy>", "y>b", "  ", "   ")]
        ours = self.check(written, self.content("gpt2", *tokens), ["<x><xy>b", "<xz", "a    b", "a     b"])
        pieces = ours.tokens(ours.tokenize(["<x><xy>b<x"])).numpy()[0].tolist()
        assert pieces == [b"<x>", b"<xy>", b"b", b"<x"]

    def test_a_normalised_token_is_found_in_the_normalised_text(self, written):
        tokens = [{"content": "É B", "normalized": True}, {"content": "Q"}]
        content = self.content("gpt2 with a space before", *tokens)
        ours = self.check(written, content, ["xE\u0301 b", "é b", "É B", "q Q", "a q"])
        assert ours.id_of("É B") in ours.tokenize(["xe\u0301 b"]).numpy()
        assert ours.id_of("Q") not in ours.tokenize(["q"]).numpy()

    def test_signs_that_mean_something_in_expressions(self, written):
        tokens = [{"content": text} for text in (".*", "\\d", "[a]", "a|b", "\n\n", "$", "中", "\0", "(?i)")]
        texts = [".*", "\\d 5", "[a]b", "a|b", "\n\n\n", "x$", "a中b", "\0\0", "(?i)A", "aab"]
        self.check(written, self.content("qwen2", *tokens), texts)

    def test_a_normalised_token_is_written_with_the_space_that_was_put_before_it(self, written):
        """As the library does; by `Metaspace`, a space belongs to words and not to the token."""
        tokens = [{"content": "<x>", "normalized": True}, {"content": "<y>"}]
        for name, wanted in (("llama2 legacy", b"a <x><y> <x>"), ("llama2", b"a<x><y><x>")):
            content = self.content(name, *tokens)
            ours, library = self.check(written, content), tokenizers.Tokenizer.from_str(json.dumps(content))
            pieces = ("a", "<x>", "<y>", "<x>")
            assert library.decode([library.token_to_id(piece) for piece in pieces]).encode() == wanted
            assert ours.detokenize([[ours.id_of(piece) for piece in pieces]]).numpy().tolist() == [wanted]

    def test_what_ids_write(self, written):
        tokens = [{"content": "<x>", "special": True}, {"content": "<y> \n"}]
        ours = self.check(written, self.content("llama2", *tokens))
        x, y = ours.id_of("<x>"), ours.id_of("<y> \n")
        assert ours.written([x, y]).numpy().tolist() == [b"", b"<y> \n"]
        assert [piece.decode() for piece in ours.tokens([[x, y]]).numpy()[0]] == ["<x>", "<y>▁\\n"]

    @pytest.mark.parametrize("name", ["llama3", "texts in the vocabulary", "llama2"])
    @pytest.mark.parametrize("piece", ["secret", "☃", "▁secret"])
    def test_no_text_gives_a_special_token_that_the_model_has_as_a_piece(self, written, name, piece):
        """Although the library gives it where `ignore_merges` finds the word, or where it is one character."""
        content = self.content(name, {"content": piece, "special": True})
        content["model"]["vocab"][piece] = content["added_tokens"][-1]["id"]
        ours = read_tokenizer(written(content))
        texts = [piece, f"a{piece}", f" {piece} a", piece * 2]
        assert ours.id_of(piece) not in ours.tokenize([*texts, piece.strip("▁")]).numpy()
        assert (ours.tokenize(texts, special_tokens=True).numpy() == ours.id_of(piece)).any(axis=1).all()

    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize(
        ("name", "piece", "text"), [("gpt2 with a space before", "xq", ",XQ"), ("llama2", "▁xq", "a xq")]
    )
    def test_a_word_becomes_one_that_is_not_special_if_the_model_has_it_too(self, written, name, piece, text, known):
        """Where the text has it only once it is in lower case, or once its spaces are `▁`."""
        content = self.content(name, {"content": piece})
        content["model"]["ignore_merges"] = True
        content["pre_tokenizer"]["split" if name == "llama2" else "use_regex"] = True
        if known:
            content["model"]["vocab"][piece] = content["added_tokens"][-1]["id"]
        ours = self.check(written, content, [text])
        assert (ours.id_of(piece) in ours.tokenize([text]).numpy()) == known

    @pytest.mark.parametrize("name", ["gpt2", "llama2"])
    def test_they_are_never_split_at_random(self, written, name):
        ours = read_tokenizer(written(self.content(name, {"content": "<xy>"}, {"content": "<z>", "special": True})))
        texts = ["a <xy>b", "<xy><z>", "größer als 30", ""]
        np.testing.assert_array_equal(ours.sample(texts, 0, [0, 1]), ours.tokenize(texts))
        ids = ours.sample(texts, 1, [0, 1]).numpy()
        assert (ids == ours.id_of("<xy>")).sum(axis=1).tolist() == [1, 1, 0, 0]
        assert ours.id_of("<z>") not in ids
        assert [text.decode() for text in ours.detokenize(ids).numpy()] == texts

    def test_two_that_take_the_same_white_space(self, written):
        content = self.content("gpt2", {"content": "<x>", "rstrip": True}, {"content": "  "})
        with pytest.raises(ValueError, match=r"\(rstrip\) beside one that .* Received: '<x>' and '  '"):
            read_tokenizer(written(content))

    def test_two_that_match_the_same(self, written):
        tokens = [{"content": "Ab", "normalized": True}, {"content": "aB", "normalized": True}]
        with pytest.raises(
            ValueError, match=r"No two `added_tokens` may match the same text. Received: \['ab', 'ab'\]"
        ):
            read_tokenizer(written(self.content("gpt2 with a space before", *tokens)))

    def test_settings_beside_the_file_have_the_last_word(self, written):
        folder = written(self.content("gpt2", {"content": "<x>"}))
        size = read_tokenizer(folder).size - 4
        entry = {"content": "<x>", "special": True, "normalized": False}
        more = {"content": "<y>", "special": True, "normalized": False}
        settings = {"added_tokens_decoder": {str(size - 1): entry, str(size): more}}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        config = read_tokenizer(folder).get_config()
        assert [(each["content"], each["special"]) for each in config["added_tokens"][1:]] == [
            ("<x>", True),
            ("<y>", True),
        ]
        assert config["vocabulary"][-1] == "<y>"
        assert read_tokenizer(folder, size=size).get_config()["vocabulary"] == config["vocabulary"][:-1]
        settings = {"added_tokens_decoder": {str(size - 1): {"content": "<x>"}}}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        found = read_tokenizer(folder).get_config()["added_tokens"][-1]
        assert (found["special"], found["normalized"]) == (False, True)
        (folder / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"a": {}}}')
        with pytest.raises(ValueError, match=r"tokenizer_config\.json has an added token with the id 'a'"):
            read_tokenizer(folder)


def test_a_space_before_a_text_by_the_settings_beside_the_file(written):
    folder = written(changed("gpt2", {}))

    def beside(**settings):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return read_tokenizer(folder).get_config()["add_prefix_space"]

    assert not beside(add_prefix_space=None)
    assert beside(add_prefix_space=True, tokenizer_class="GPT2TokenizerFast")
    # For `transformers`, these have a general class, which leaves tokenizer.json as it is.
    assert not beside(add_prefix_space=True, tokenizer_class="PreTrainedTokenizerFast")
    assert not beside(add_prefix_space=True, tokenizer_class="LlamaTokenizerFast")
    for kind, named in (("llama", {}), ("mistral", {}), ("mistral", {"tokenizer_class": "GPT2Tokenizer"})):
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        assert not beside(add_prefix_space=True, **named)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    assert beside(add_prefix_space=True)
    with pytest.raises(
        ValueError, match=rf"^`add_prefix_space` in {folder}/tokenizer_config\.json must be .*\. It is 1$"
    ):
        beside(add_prefix_space=1)
    folder = written(changed("llama2", {}))
    with pytest.raises(
        ValueError, match=r"config\.json has add_prefix_space = False, but tokenizer\.json adds a space\.$"
    ):
        beside(add_prefix_space=False)


def test_merges_of_older_files(written):
    content = changed("gpt2", {})
    content["model"]["merges"] = ["#version: 0.2", *map(" ".join, content["model"]["merges"])]
    del content["model"]["type"]
    assert read_tokenizer(written(content)).get_config() == ours_of("gpt2").get_config()


def test_the_two_files_of_gpt_2(tmp_path):
    library = library_of("gpt2")
    library.model.save(str(tmp_path))
    ours = read_tokenizer(tmp_path, special_tokens=["<|endoftext|>"])
    assert ours.get_config() == ours_of("gpt2").get_config()
    (tmp_path / "merges.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=rf"^{tmp_path}/merges\.txt must be in UTF-8: "):
        read_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("a b c\n")
    with pytest.raises(ValueError, match=rf"^{tmp_path}/vocab\.json and merges\.txt cannot be read: "):
        read_tokenizer(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"it has no merges\.txt \(and no tokenizer\.json\)\.$"):
        read_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"has the tokenizer vocab\.txt; this kind of model is read only"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("said_by", ["the class", "the model"])
def test_the_two_files_of_qwen2(tmp_path, said_by):
    library_of("qwen2").model.save(str(tmp_path))
    if said_by == "the class":
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    else:
        (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    ours, alike = read_tokenizer(tmp_path), ours_of("qwen2")
    for name in ("patterns", "nfc", "add_prefix_space", "individual_digits", "merges"):
        assert ours.get_config()[name] == alike.get_config()[name]


def test_the_flags_of_special_tokens_beside_two_files(tmp_path):
    library_of("gpt2").model.save(str(tmp_path))
    described = {"content": "<|endoftext|>", "lstrip": True, "rstrip": False, "__type": "AddedToken"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": described, "pad_token": "<pad>"}))
    (found,) = read_tokenizer(tmp_path).get_config()["added_tokens"]
    assert (found["content"], found["lstrip"], found["rstrip"], found["special"]) == (
        "<|endoftext|>",
        True,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("special_tokens_map", {"additional_special_tokens": ["<user>"]}),
        ("tokenizer_config", {"additional_special_tokens": [{"content": "<user>"}]}),
        ("special_tokens_map", {"extra_special_tokens": ["<user>"]}),
        ("special_tokens_map", {"pad_token": "<user>"}),
        (None, None),
    ],
)
def test_added_tokens_beside_two_files(tmp_path, file, said):
    library_of("gpt2").model.save(str(tmp_path))
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<user>": size}))
    if file is not None:
        (tmp_path / f"{file}.json").write_text(json.dumps(said))
    ours = read_tokenizer(tmp_path)
    (found,) = ours.get_config()["added_tokens"]
    special = file is not None
    assert (found["content"], found["special"], found["normalized"]) == ("<user>", special, not special)
    assert ours.id_of("<user>") == size + 4
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {}}')  # which counts alone
    assert read_tokenizer(tmp_path).get_config()["added_tokens"] == []


@pytest.mark.peers
@pytest.mark.parametrize("name", [None, "GPT2Tokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral"])
def test_a_space_before_a_text_is_put_as_transformers_does(written, kind, name):
    transformers = pytest.importorskip("transformers")
    folder = written(changed("gpt2", {}))
    settings = {"add_prefix_space": True} | ({"tokenizer_class": name} if name else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert (read_tokenizer(folder).tokenize(["ab"]).numpy()[0] - 4).tolist() == theirs("ab")["input_ids"]


@pytest.mark.peers
@pytest.mark.parametrize("listed", [False, True])
def test_added_tokens_beside_two_files_are_read_as_transformers_does(tmp_path, listed):
    transformers = pytest.importorskip("transformers")
    library_of("gpt2").model.save(str(tmp_path))
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<user>": size, "<x>": size + 1}))
    settings = {"tokenizer_class": "GPT2Tokenizer"} | ({"additional_special_tokens": ["<user>"]} if listed else {})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path)
    text = "a <user> b<x>"
    assert (ours.tokenize([text], special_tokens=True).numpy()[0] - 4).tolist() == theirs(text)["input_ids"]
    wanted = {token.content: token.special for id_, token in theirs.added_tokens_decoder.items() if id_ >= size}
    assert {each["content"]: each["special"] for each in ours.get_config()["added_tokens"]} == wanted


@pytest.mark.peers
@pytest.mark.parametrize("name", ["gpt2", "llama2"])
@pytest.mark.parametrize(
    ("own", "listed", "wanted"),
    [
        ({}, {"<user>": 0, "<x>": 1}, {"<user>": 0, "<x>": 1}),
        ({"<x>": 0}, {"<x>": 0, "<user>": 1}, {"<x>": 0, "<user>": 1}),
        ({"<x>": 0}, {"<x>": 44, "<user>": 45}, {"<x>": 0, "<user>": 1}),
        ({"<x>": 0}, {"<user>": 0}, {"<x>": 0}),
        ({}, {"<x>": 50, "<user>": 44}, {"<user>": 0, "<x>": 1}),
        ({}, {"<x>": 0, "<user>": -5}, {"<user>": 0, "<x>": 1}),
        ({}, {"<x>": 0, "<user>": 0}, {"<user>": 0}),
    ],
    ids=["new", "the same id", "two ids", "of another token", "gaps", "of a piece", "one id"],
)
def test_added_tokens_beside_the_file_are_read_as_transformers_does(written, name, own, listed, wanted):
    """The numbers are what the ids are above the number of pieces."""
    transformers = pytest.importorskip("transformers")
    content = json.loads(content_of(name))
    size = read_tokenizer(written(content)).size - 4
    flags = {**ADDED, "single_word": False, "special": True, "normalized": False}
    content["added_tokens"] += [{**flags, "content": piece, "id": size + i} for piece, i in own.items()]
    folder = written(content)
    (folder / "added_tokens.json").write_text(json.dumps({piece: size + i for piece, i in listed.items()}))
    settings = '{"pad_token": "<x>"}' if "<x>" in wanted else "{}"
    (folder / "special_tokens_map.json").write_text(settings)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ours = read_tokenizer(folder)
    ids = (ours.tokenize(["a <user>b<x> b"], special_tokens=True).numpy() - 4).tolist()
    assert ids == theirs(["a <user>b<x> b"], add_special_tokens=False)["input_ids"]
    assert {piece: ours.id_of(piece) - 4 - size for piece in wanted} == wanted
    kinds = {token.content: token.special for token in theirs.added_tokens_decoder.values()}
    assert {each["content"]: each["special"] for each in ours.get_config()["added_tokens"]} == kinds


def test_the_flags_of_an_added_token_in_the_file_count_and_an_id_beside_it_must_be_a_number(written):
    content = json.loads(content_of("gpt2"))
    entry = {**ADDED, "special": True, "normalized": False, "rstrip": True}
    content["added_tokens"].append({**entry, "id": len(content["model"]["vocab"])})
    folder = written(content)
    (folder / "added_tokens.json").write_text('{"<x>": 9999}')
    config = read_tokenizer(folder).get_config()
    assert config["vocabulary"][-1] == "<x>"
    found = config["added_tokens"][-1]
    assert (found["content"], found["special"], found["rstrip"]) == ("<x>", True, True)
    (folder / "added_tokens.json").write_text('{"<x>": "7"}')
    with pytest.raises(ValueError, match=rf"^{folder}/added_tokens\.json has an added token with the id '7'$"):
        read_tokenizer(folder)


@pytest.mark.peers
def test_special_tokens_that_are_only_named_are_written_as_transformers_does(tmp_path):
    transformers = pytest.importorskip("transformers")
    library_of("gpt2").model.save(str(tmp_path))
    ids = json.loads((tmp_path / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps(ids | {"<sep>": len(ids), "<x>": len(ids) + 1}))
    (tmp_path / "special_tokens_map.json").write_text('{"sep_token": "<sep>"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    row = [ids["a"], len(ids), len(ids) + 1]
    (text,) = read_tokenizer(tmp_path).detokenize([[id_ + 4 for id_ in row]]).numpy()
    assert text.decode() == theirs.decode(row, skip_special_tokens=True) == "a<x>"


def test_two_files_of_an_unknown_class(tmp_path):
    library_of("gpt2").model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "XGLMTokenizerFast"}')
    with pytest.raises(ValueError, match=r"the tokenizer is a XGLMTokenizer; without tokenizer\.json, only GPT2Tok"):
        read_tokenizer(tmp_path)


class TestSpecialTokens:
    @pytest.mark.peers
    @pytest.mark.parametrize("start", [None, False, True])
    @pytest.mark.parametrize("whole", [False, True], ids=["two files", "tokenizer.json"])
    def test_the_token_that_the_settings_ask_for(self, written, start, whole):
        transformers = pytest.importorskip("transformers")
        folder = written(changed("gpt2", {}))
        if not whole:
            (folder / "tokenizer.json").unlink()
            library_of("gpt2").model.save(str(folder))
        settings = {"tokenizer_class": "GPT2Tokenizer"} | ({} if start is None else {"add_bos_token": start})
        settings |= {f"{name}_token": "<|endoftext|>" for name in ("bos", "eos", "unk")}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        theirs = transformers.GPT2Tokenizer.from_pretrained(folder)
        found = read_special_tokens(folder)
        assert [*found.before, "a", *found.after] == theirs.convert_ids_to_tokens(theirs("a")["input_ids"])

    def test_a_token_that_is_asked_for_and_has_no_name(self, tmp_path):
        (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
        with pytest.raises(ValueError, match=r"`bos_token` in .*/tokenizer_config\.json must be a string\. It is None"):
            read_special_tokens(tmp_path)
        (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": 1}')
        with pytest.raises(ValueError, match=rf"^`add_bos_token` in {tmp_path}/tokenizer_config\.json must be true"):
            read_special_tokens(tmp_path)

    def test_a_broken_file(self, written):
        folder = written([1])
        with pytest.raises(ValueError, match=rf"^{folder}/tokenizer\.json cannot be read: it must be an object"):
            read_special_tokens(folder)

    def test_which_of_two_files_has_the_last_word(self, tmp_path):
        (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<a>", "pad_token": "<b>"}')
        settings = {"eos_token": "<c>", "bos_token": "<d>"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        assert read_special_tokens(tmp_path).names == {"eos_token": "<a>", "pad_token": "<b>", "bos_token": "<d>"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"added_tokens_decoder": {}}))
        assert read_special_tokens(tmp_path).names == settings

    @pytest.mark.peers
    @pytest.mark.parametrize("decoder", [False, True])
    def test_names_are_those_of_transformers(self, tmp_path, decoder):
        transformers = pytest.importorskip("transformers")
        library_of("gpt2").model.save(str(tmp_path))
        last = max(library_of("gpt2").get_vocab().values())
        (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "a", "pad_token": {"content": "b"}}')
        settings = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "c", "bos_token": "d"}
        if decoder:
            settings["added_tokens_decoder"] = {str(last + 1): {"content": "<x>", "special": True}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path).special_tokens_map
        names = read_special_tokens(tmp_path).names
        assert names == {name: theirs.get(name) for name in ("bos_token", "eos_token", "pad_token") if name in theirs}

    def test_what_stands_around_a_text(self, written):
        content = changed("llama3", {})
        library = library_of("llama3")
        begin = library.token_to_id("<|begin_of_text|>")
        processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)]
                ),
            ]
        )
        content["post_processor"] = json.loads(processor.__getstate__())
        folder = written(content)
        (folder / "special_tokens_map.json").write_text('{"eos_token": {"content": "<|end|>"}, "pad_token": "<|p|>"}')
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<|eot|>", "bos_token": null, "other": 1}')
        found = read_special_tokens(folder)
        assert (found.before, found.after) == (("<|begin_of_text|>",), ())
        assert found.names == {"eos_token": "<|end|>", "pad_token": "<|p|>"}
        library = tokenizers.Tokenizer.from_str(json.dumps(content))
        ids = [read_tokenizer(folder).id_of(token) for token in found.before]
        assert [i + 4 for i in library.encode("a b").ids] == ids + library_ids(library, ["a b"])[0]

    def test_nothing_is_said(self, written):
        found = read_special_tokens(written(changed("gpt2", {})))
        assert (found.names, found.before, found.after) == ({}, (), ())

    @pytest.mark.parametrize(
        ("processor", "message"),
        [
            ({"type": "BertProcessing"}, "the post-processor 'BertProcessing' cannot be read"),
            ({"type": "TemplateProcessing", "single": []}, "TemplateProcessing must have one text in `single`"),
            ({"type": "TemplateProcessing"}, "`single` must be a list. It is None"),
            (
                {"type": "Sequence", "processors": [{"type": "TemplateProcessing"}, {"type": "RobertaProcessing"}]},
                "the post-processor 'TemplateProcessing', 'RobertaProcessing' cannot be read",
            ),
        ],
    )
    def test_errors(self, written, processor, message):
        with pytest.raises(ValueError, match=rf"tokenizer\.json cannot be read: {message}$"):
            read_special_tokens(written(changed("gpt2", {"post_processor": processor})))


def test_an_id_by_its_piece():
    ours = ours_of("gpt2")
    assert ours.id_of("<|endoftext|>") == 4
    with pytest.raises(ValueError, match=r"^The vocabulary has no piece '<none>'\.$"):
        ours.id_of("<none>")


@pytest.mark.long
class TestGptNeox(TokenizerTests):
    texts = ("größer  中 😀", "ab\n", "", "a\0b \u2028\ufeff<|endoftext|>", "a    b")

    def make_tokenizer(self):
        return ours_of("gpt_neox")


class TestLlama2(TokenizerTests):
    texts = ("größer 中 😀", "ab\n", "", "<s> a  b", "▁<0x41>".replace("▁", "_"), " a")
    before = " "
    test_it_is_exported_with_core_operations = None  # `test_text_export.py` tests more
    # As those of bytes are; and ids of batches are those of the library, which encodes each text alone.
    test_a_corpus_is_encoded_by_one_graph = None
    test_a_row_does_not_depend_on_its_neighbours = None

    def make_tokenizer(self):
        return ours_of("llama2 legacy")


@pytest.mark.long
class TestCharactersLeftOut(TokenizerTests):
    texts = ("a man  in", "a\n", "", "is it")
    before = " "

    def make_tokenizer(self):
        return ours_of("unknown characters")
