"""The tokenizer of Marian's translators: a target language before a text is one token."""

import io

import pytest
import sentencepiece

from zoo.testing import TokenizerTests
from zoo.text.marian import MarianTokenizer
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config

LANGUAGES = [">>fra<<", ">>deu<<"]


@pytest.fixture(scope="module")
def model():
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["low lower lowest slow a b"] * 9),
        model_writer=content,
        vocab_size=18,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return content.getvalue()


@pytest.fixture(scope="module")
def library(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


@pytest.fixture(scope="module")
def tokenizer(model, library):
    return MarianTokenizer(model, [*LANGUAGES, *(library.id_to_piece(i) for i in range(3, library.get_piece_size()))])


class TestMarian(TokenizerTests):
    texts = ("lower slow", "", "a", "b a")
    before = " "
    # As all of `SentencePieceTokenizer`, whose graph takes seconds to trace.
    test_a_row_does_not_depend_on_its_neighbours = None
    test_a_corpus_is_encoded_by_one_graph = None

    @pytest.fixture(autouse=True)
    def _of_the_module(self, tokenizer):
        type(self)._shared = tokenizer

    def make_tokenizer(self):
        return self._shared


def pieces(tokenizer, text):
    return [piece.decode() for piece in tokenizer.tokens(tokenizer.tokenize([text])).numpy()[0] if piece]


def test_spaces_are_cleaned_up_as_transformers_does():
    """Its ten replacements, one after the other, in a text of characters."""
    content = io.BytesIO()
    characters = "abcdefilmnorstuvy .?!,'"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([characters, characters[::-1]] * 9),
        model_writer=content,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    cleaning = MarianTokenizer(content.getvalue(), clean_up_spaces=True)
    texts = ["bon . bon ? bon ! bon , bon", "a ' b 's c 'm d 've e 're f n't", "a . . b .c", "a . 's", "a ' 's ! ?", ""]
    for text in texts:
        expected = text
        for old in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
            expected = expected.replace(old, old.strip())
        assert cleaning.detokenize(cleaning.tokenize([text])).numpy()[0].decode() == expected
    again = tokenizer_from_config(tokenizer_to_config(cleaning))
    assert again.detokenize(again.tokenize(["a !"])).numpy()[0] == b"a!"


@pytest.mark.parametrize("text", ["lower", " lower", "a >>fra<< b", "<<", ">>", ">>fra", "", "slow\nlow"])
def test_without_a_language_a_text_has_the_pieces_of_the_library(tokenizer, library, text):
    expected = [piece if library.piece_to_id(piece) else "<unk>" for piece in library.encode(text, out_type=str)]
    assert pieces(tokenizer, text) == expected


@pytest.mark.parametrize(
    ("text", "language", "rest"),
    [
        (">>fra<< lower", ">>fra<<", " lower"),
        (">>deu<<lower", ">>deu<<", "lower"),
        (">>deu<<", ">>deu<<", ""),
        (">>xyz<< lower", "<unk>", " lower"),
        (">>fra<<>>deu<<", ">>fra<<", ">>deu<<"),
        (">>a\nb<< slow", "<unk>", " slow"),
        (">><< slow", "<unk>", " slow"),
    ],
)
def test_a_language_at_the_beginning_is_one_token(tokenizer, library, text, language, rest):
    expected = [piece if library.piece_to_id(piece) else "<unk>" for piece in library.encode(rest, out_type=str)]
    assert pieces(tokenizer, text) == [language, *expected]


def test_a_language_is_unknown_to_a_vocabulary_without_languages(model):
    """As in `transformers`, whose code for the language does not depend on the vocabulary."""
    only_pieces = MarianTokenizer(model)
    assert pieces(only_pieces, ">>fra<< lower") == ["<unk>", *pieces(only_pieces, "lower")]


def test_a_language_counts_in_its_row_alone(tokenizer):
    texts = [">>deu<<lower", "slow", ">>fra<< a", "", ">>xyz<<", "b"]
    rows = tokenizer.tokenize(texts).numpy()
    assert [row[row > 0].tolist() for row in rows] == [
        row[row > 0].tolist() for row in (tokenizer.tokenize([text]).numpy()[0] for text in texts)
    ]


def test_broken_bytes_in_a_language_are_part_of_it(tokenizer):
    ids = tokenizer.tokenize([b">>\xff\n<<slow", "slow"]).numpy()
    assert ids[0].tolist() == [1, *ids[1][ids[1] > 0]]


def test_no_space_stays_around_a_text(tokenizer, library):
    names = [piece.decode() for piece in tokenizer.tokens([range(tokenizer.size)]).numpy()[0]]
    pieces = ["▁", "▁low", "▁"]
    assert library.decode_pieces(pieces) == "low "
    assert tokenizer.detokenize([[names.index(piece) for piece in pieces]]).numpy() == [b"low"]


def test_texts_without_a_language_get_the_one_that_is_set(tokenizer):
    french = tokenizer.with_target_language("fra")
    assert pieces(french, "lower") == [">>fra<<", *pieces(tokenizer, "lower")]
    assert pieces(french, ">>deu<< lower") == pieces(tokenizer, ">>deu<< lower")
    assert pieces(french, "") == [">>fra<<"]
    again = tokenizer_from_config(tokenizer_to_config(french))
    assert (again.target_language, again.languages) == ("fra", ("deu", "fra"))
    assert pieces(again, "lower") == pieces(french, "lower")


def test_an_unknown_language_is_refused(tokenizer, model):
    with pytest.raises(ValueError, match=r"`target_language` must be one of deu, fra\. Received: 'eng'"):
        tokenizer.with_target_language("eng")
    with pytest.raises(ValueError, match=r"so the translator has one\. Leave out `target_language`\. Received: 'fra'"):
        MarianTokenizer(model, target_language="fra")
