"""The tokenizer of a checkpoint of BERT: the ids of `transformers`' files, in the zoo's order."""

import json
import re
import warnings

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from zoo.checkpoints.word_piece_json import read_word_pieces
from zoo.text import END, START, UNKNOWN

VOCABULARY = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"aouz.,中", "##b", "##ß", "gro", "Gro"]
TEXTS = ["Groß ab, ab.", "中 [MASK] äb", "xyz new a", "", "[SEP] gro"]


def library(bert_processing=False, vocabulary=VOCABULARY, mask="[MASK]", **options):
    """The library's tokenizer, with the components that `transformers` gives BERT."""
    ids = {piece: i for i, piece in enumerate(vocabulary)}
    made = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=vocabulary[2]))
    made.normalizer = normalizers.BertNormalizer(**options)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    start, end = ((piece, ids[piece]) for piece in vocabulary[3:5])
    if bert_processing:
        made.post_processor = processors.BertProcessing(end, start)
    else:
        made.post_processor = processors.TemplateProcessing(
            single=f"{start[0]} $A {end[0]}",
            pair=f"{start[0]} $A {end[0]} $B:1 {end[0]}:1",
            special_tokens=[start, end],
        )
    made.add_special_tokens([*vocabulary[:1], *vocabulary[2:5], AddedToken(mask, special=True, lstrip=True)])
    made.add_tokens([AddedToken("new", normalized=True)])
    return made


def written(folder, content, **files):
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


@pytest.mark.parametrize("bert_processing", [False, True])
@pytest.mark.parametrize("options", [{}, {"lowercase": False}, {"strip_accents": False, "clean_text": False}])
def test_ids_in_the_order_of_the_checkpoint(tmp_path, bert_processing, options):
    theirs = library(bert_processing, **options)
    tokenizer, order = read_word_pieces(written(tmp_path, json.loads(theirs.to_str())))
    assert sorted(order) == [*range(len(VOCABULARY) + 1)]
    assert order[: END + 1].tolist() == [0, 2, 3, 4] and order[tokenizer.mask_id] == 5
    ids = tokenizer.tokenize(TEXTS[:-1], add_start=True, add_end=True, special_tokens=True).numpy()
    for text, row in zip(TEXTS, ids, strict=False):
        assert order[row[row > 0]].tolist() == theirs.encode(text).ids, text
    # Special tokens in a text are text, unless they are asked for; and the frame's never are anything else.
    theirs.encode_special_tokens = True
    for text in TEXTS:
        row = tokenizer.tokenize([text], add_start=True, add_end=True).numpy()[0]
        assert order[row].tolist() == theirs.encode(text).ids, text
    first, second = tokenizer.tokenize_pairs(["ab"], ["gro"])
    assert order[first.numpy()[0]].tolist() == theirs.encode("ab", "gro").ids
    assert second.numpy()[0].tolist() == theirs.encode("ab", "gro").type_ids
    shown = tokenizer.detokenize(ids).numpy()[0].decode()
    assert shown == theirs.decode(theirs.encode(TEXTS[0]).ids).replace("[UNK]", "\ufffd")


def test_a_word_becomes_an_added_token_only_if_the_model_has_it_too(tmp_path):
    theirs = library()
    theirs.add_tokens([AddedToken("ab", normalized=False), AddedToken("gro", normalized=False)])
    tokenizer, order = read_word_pieces(written(tmp_path, json.loads(theirs.to_str())))
    for text, pieces in (("AB", ["a", "##b"]), ("ab", ["ab"]), ("GRO", ["gro"])):
        ids = order[tokenizer.tokenize([text]).numpy()[0]].tolist()
        assert ids == theirs.encode(text, add_special_tokens=False).ids == [theirs.token_to_id(each) for each in pieces]


def test_special_tokens_of_other_names(tmp_path):
    renamed = ["<pad>", "x", "<unk>", "<s>", "</s>", "<m>", *VOCABULARY[6:]]
    theirs = library(vocabulary=renamed, mask="<m>")
    names = {"pad_token": "<pad>", "mask_token": {"content": "<m>"}}
    tokenizer, order = read_word_pieces(written(tmp_path, json.loads(theirs.to_str()), special_tokens_map=names))
    row = tokenizer.tokenize(["a <m>q"], add_start=True, add_end=True, special_tokens=True).numpy()[0]
    assert row.tolist() == [START, *tokenizer.tokenize(["a"]).numpy()[0], tokenizer.mask_id, UNKNOWN, END]
    assert order[row].tolist() == theirs.encode("a <m>q").ids


def test_the_files_of_older_checkpoints(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    uncased = read_word_pieces(tmp_path)
    config = uncased.tokenizer.get_config()
    assert [config[name] for name in ("lowercase", "strip_accents", "handle_chinese_chars")] == [True, None, True]
    assert uncased.order.tolist() == [0, 2, 3, 4, 1, *range(5, len(VOCABULARY))]
    settings = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    config = read_word_pieces(tmp_path).tokenizer.get_config()
    assert [config[name] for name in ("lowercase", "strip_accents", "handle_chinese_chars")] == [False, True, False]


def test_settings_beside_the_file_have_the_last_word(tmp_path):
    content = json.loads(library(lowercase=True, strip_accents=False).to_str())
    settings = {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": False}

    def found(**more):
        config = read_word_pieces(written(tmp_path, content, tokenizer_config=more)).tokenizer.get_config()
        return [config[name] for name in ("lowercase", "strip_accents", "handle_chinese_chars")]

    assert found() == found(**settings, tokenizer_class="PreTrainedTokenizerFast") == [True, False, True]
    assert found(**settings, tokenizer_class="BertTokenizerFast") == found(**settings) == [False, None, False]
    # What a class is not told has its default, whatever the file says.
    assert found(tokenizer_class="BertTokenizer") == [True, None, True]
    with pytest.raises(
        ValueError, match=r"`do_lower_case` in .*/tokenizer_config\.json must be .*\. It is 'no'$"
    ) as error:
        found(do_lower_case="no")
    assert "tokenizer.json" not in str(error.value)


@pytest.mark.parametrize("file", ["tokenizer_config", "config"])
def test_a_vocabulary_for_another_way_to_cut_words(tmp_path, file):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (tmp_path / f"{file}.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    with pytest.raises(ValueError, match=r"vocab\.txt cannot be read: the tokenizer is a BertJapaneseTok"):
        read_word_pieces(tmp_path)


@pytest.mark.peers
@pytest.mark.parametrize("change", [{"do_lower_case": False}, {"strip_accents": False}, {"strip_accents": None}])
def test_settings_that_were_changed_later_are_read_as_transformers_does(tmp_path, change):
    transformers = pytest.importorskip("transformers")
    content = json.loads(library(lowercase=True, strip_accents=True).to_str())
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": True} | change
    written(tmp_path, content, tokenizer_config=settings)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    tokenizer, order = read_word_pieces(tmp_path)
    for text in ("Groß ab", "ÄB", "äb gro"):
        row = tokenizer.tokenize([text], add_start=True, add_end=True).numpy()[0]
        assert order[row].tolist() == theirs(text)["input_ids"], text


@pytest.mark.peers
@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"tokenizer_class": "BertTokenizer"}},
        {"tokenizer_config": {"tokenizer_class": "DistilBertTokenizerFast"}},
        {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}},
        {"config": {"model_type": "bert"}},
        {},
    ],
)
def test_options_that_the_settings_lack_are_read_as_transformers_does(tmp_path, files):
    transformers = pytest.importorskip("transformers")
    content = json.loads(library(lowercase=False, strip_accents=False, handle_chinese_chars=False).to_str())
    written(tmp_path, content, **files)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer, order = read_word_pieces(tmp_path)
    for text in ("Groß ab", "ÄB", "äb a中"):
        row = tokenizer.tokenize([text], add_start=True, add_end=True).numpy()[0]
        around = theirs(text)["input_ids"]
        assert order[row].tolist() == around, text


@pytest.mark.peers
@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast"])
@pytest.mark.parametrize("purpose", ["cls_token", "sep_token", "unk_token"])
def test_special_tokens_that_are_named_otherwise_are_read_as_transformers_does(tmp_path, purpose, name):
    transformers = pytest.importorskip("transformers")
    content = json.loads(library().to_str())
    written(tmp_path, content, tokenizer_config={"tokenizer_class": name, purpose: VOCABULARY[1]})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer, order = read_word_pieces(tmp_path)
    row = tokenizer.tokenize(["gro q"], add_start=True, add_end=True).numpy()[0]
    assert order[row].tolist() == theirs("gro q")["input_ids"]
    first, _ = tokenizer.tokenize_pairs(["ab"], ["gro"])
    assert order[first.numpy()[0]].tolist() == theirs("ab", "gro")["input_ids"]


@pytest.mark.parametrize("pair", ["$A $B:1", "{start} $A {end} $B {end}", "{start} $A {end} {end} $B:1 {end}:1"])
def test_pairs_that_are_put_together_otherwise_are_told(tmp_path, pair):
    made, (start, end) = library(), VOCABULARY[3:5]
    template = {"single": f"{start} $A {end}", "pair": pair.format(start=start, end=end)}
    special = [(piece, VOCABULARY.index(piece)) for piece in (start, end)]
    made.post_processor = tokenizers.processors.TemplateProcessing(**template, special_tokens=special)
    content = json.loads(made.to_str())
    with warnings.catch_warnings():  # this class makes the template anew
        warnings.simplefilter("error")
        read_word_pieces(written(tmp_path, content, tokenizer_config={"tokenizer_class": "BertTokenizer"}))
    with pytest.warns(UserWarning, match=f"^{tmp_path}: the tokenizer puts pairs of texts together otherwise than"):
        read_word_pieces(written(tmp_path, content, tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"}))


@pytest.mark.peers
@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_a_class_of_bert_has_its_own_limit_of_a_word(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    content = json.loads(library().to_str())
    content["model"]["max_input_chars_per_word"] = 120
    written(tmp_path, content, tokenizer_config={"tokenizer_class": name})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer, order = read_word_pieces(tmp_path)
    found = [len(theirs("a" + "b" * size)["input_ids"]) - 2 for size in (99, 100, 119, 120)]
    assert found == ([100, 1, 1, 1] if name == "BertTokenizer" else [100, 101, 120, 1])
    for size in (99, 100, 119, 120):
        row = tokenizer.tokenize(["a" + "b" * size], add_start=True, add_end=True).numpy()[0]
        assert order[row].tolist() == theirs("a" + "b" * size)["input_ids"]


@pytest.mark.peers
@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_added_tokens_beside_the_file_are_read_as_transformers_does(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    content, size = json.loads(library().to_str()), len(VOCABULARY) + 1
    more = {"<user>": size + 9, "<x>": size + 20, "new": size + 7}  # the id and flags of the file count for "new"
    listed = {"additional_special_tokens": ["<x>"]}
    alone = {"added_tokens_decoder": {str(size - 1): {"content": "new"}}}  # then `added_tokens.json` is not read
    for settings in (listed, alone):
        written(tmp_path, content, tokenizer_config={"tokenizer_class": name, **settings}, added_tokens=more)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        tokenizer, order = read_word_pieces(tmp_path)
        for text in ("ab <user>gro", "<USER> new a", "<x> a"):
            row = tokenizer.tokenize([text], add_start=True, add_end=True, special_tokens=True).numpy()[0]
            assert order[row].tolist() == theirs(text)["input_ids"], (text, settings)


@pytest.mark.peers
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False, "tokenize_chinese_chars": False}])
def test_folders_have_the_ids_of_transformers(tmp_path, settings, saved):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    if saved:
        theirs.save_pretrained(tmp_path / "saved")
    tokenizer, order = read_word_pieces(tmp_path / "saved" if saved else tmp_path)
    assert tokenizer.lowercase == (not settings)
    texts = ["Groß ab, ab.", "Gro 中a. [MASK] äb", "xyz a", "gro [MASK]."]
    for text in texts:
        row = tokenizer.tokenize([text], add_start=True, add_end=True, special_tokens=True).numpy()[0]
        assert order[row].tolist() == theirs(text)["input_ids"], text
    pairs = [*zip(texts, texts[::-1], strict=True)]
    for first, second in pairs:
        ids, segments = tokenizer.tokenize_pairs([first.replace("[MASK]", "")], [second.replace("[MASK]", "")], 8)
        wanted = theirs(first.replace("[MASK]", ""), second.replace("[MASK]", ""), truncation=True, max_length=8)
        assert order[ids.numpy()[0]].tolist() == wanted["input_ids"]
        assert segments.numpy()[0].tolist() == wanted["token_type_ids"]


def test_the_first_files_do_not_say_the_kind_of_the_model(tmp_path):
    theirs = library()
    content = json.loads(theirs.to_str())
    del content["model"]["type"]
    assert tokenizers.Tokenizer.from_str(json.dumps(content)).to_str() == theirs.to_str()
    found = read_word_pieces(written(tmp_path, content)).tokenizer.get_config()
    assert found == read_word_pieces(written(tmp_path, json.loads(theirs.to_str()))).tokenizer.get_config()


def test_special_tokens_beyond_the_model_are_left_out(tmp_path):
    content = json.loads(library().to_str())
    content["added_tokens"][-1] |= {"special": True}
    tokenizer, order = read_word_pieces(written(tmp_path, content), size=len(VOCABULARY))
    assert tokenizer.size == len(order) == len(VOCABULARY)


REFUSED = [
    ({"model": {"type": "BPE"}}, "its model is 'BPE'; only 'WordPiece' can be read"),
    ({"model": {"type": None, "merges": []}}, "its model is 'BPE'; only 'WordPiece' can be read"),
    ({"model": {"more": 1}}, "its WordPiece has the option more = 1"),
    ({"model": {"max_input_chars_per_word": "x"}}, "`max_input_chars_per_word` must be a number. It is 'x'"),
    ({"model": {"unk_token": "q"}}, "the vocabulary lacks ['q']"),
    ({"normalizer": {"type": "NFC"}}, "the normalizer 'NFC'"),
    ({"normalizer": {"more": 1}}, "its BertNormalizer has the option more = 1"),
    ({"normalizer": {"lowercase": "x"}}, "`lowercase` must be true or false. It is 'x'"),
    ({"normalizer": {"strip_accents": 1}}, "`strip_accents` must be true or false. It is 1"),
    ({"pre_tokenizer": {"type": "Whitespace"}}, "the pre-tokenizer 'Whitespace' cannot be read"),
    ({"decoder": {"prefix": "@@"}}, "the decoder 'WordPiece' with {'cleanup': True, 'prefix': '@@'} cannot be read"),
    ({"post_processor": {"type": "ByteLevel"}}, "the post-processor 'ByteLevel'"),
    ({"post_processor": {"single": [{"Sequence": {}}]}}, "the post-processor 'TemplateProcessing'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_known_is_refused_by_its_name(tmp_path, changes, message):
    content = json.loads(library().to_str())
    for part, change in changes.items():
        content[part] |= change
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read: .*" + re.escape(message)):
        read_word_pieces(written(tmp_path, content))


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"it has no tokenizer.json and no vocab.txt"):
        read_word_pieces(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\na\n")
    with pytest.raises(ValueError, match=r"vocab\.txt cannot be read: lines 1 and 2 have the same piece"):
        read_word_pieces(tmp_path)
