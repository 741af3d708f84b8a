"""The card of an exported model."""

import re

import pytest
from zoo_training.cards.translator_card import card
from zoo_training.schema.recipe import read_recipe
from zoo_training.schema.translator_tables import TranslatorRecipe

from zoo import Translator
from zoo.models import RNNSeq2Seq, Transformer
from zoo.text import BytePairTokenizer, CharacterTokenizer

METRICS = {
    "exact_match": 0.98765,
    "total": 12345,
    "split": "test",
    "parameters": 1234567,
    "training_pairs": 130000,
    "training_seconds": 98.6,
    "command": "zoo train dates",
    "tensorflow": "2.21.0",
    "keras": "3.15.0",
    "by_group": {},
}


def write(attention="additive", metrics=(), **changes):
    tokenizers = CharacterTokenizer("abcdefg"), CharacterTokenizer("xyz")
    model = RNNSeq2Seq(11, 7, attention=attention, units=4)
    recipe = read_recipe("dates", [f"{key}={value}" for key, value in changes.items()])
    return card("dates", recipe, Translator(model, *tokenizers), {**METRICS, **dict(metrics)})


TRANSLATOR = Translator(RNNSeq2Seq(11, 7, units=4), CharacterTokenizer("abcdefg"), CharacterTokenizer("xyz"))


def scores(**rates):
    return {"by_group": {group: {"exact_match": rate} for group, rate in rates.items()}}


def test_tells_what_it_is_what_it_was_made_from_and_how_good_it_is():
    text = write()
    assert text.startswith("# dates\n\nDates as people write them, in 60 locales, to ISO 8601: ")
    for row in (
        "| model | `RNNSeq2Seq`, 1,234,567 parameters |",
        "| attention | additive |",
        "| corpus | `dates`, 130,000 training pairs |",
        "| exact match | **98.77%** of 12,345 test pairs |",
        "| training | 99 s |",
        "| command | `zoo train dates` |",
        "| made with | TensorFlow 2.21.0, Keras 3.15.0 |",
    ):
        assert f"\n{row}\n" in text


BLEU = {
    "metric": "bleu",
    "bleu": {"score": 38.904, "low": 37.54, "high": 40.26, "signature": "nrefs:1|tok:13a"},
    "chrf": {"score": 63.2, "low": 62.0, "high": 64.0, "signature": "nrefs:1|nc:6"},
    "exact_match": 0.0821,
}


def test_sentences_have_bleu_in_bold_and_how_it_was_computed():
    style = {"score": 41.0249, "low": 39.61, "high": 42.4, "signature": "nrefs:1|tok:none"}
    text = write(metrics={**BLEU, "bleu_published_style": style})
    rows = (
        "| BLEU | **38.90 [37.5, 40.3]** of 12,345 test pairs |",
        "| BLEU, published style | 41.02 [39.6, 42.4] |",
        "| chrF | 63.20 [62.0, 64.0] |",
        "| exact match | 8.21% |",
    )
    assert "\n".join(["", *rows, ""]) in text
    assert "BLEU: `nrefs:1|tok:13a`; chrF: `nrefs:1|nc:6`. Published style: " in text
    assert "as many published figures are: `nrefs:1|tok:none`.\n\n## Use" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") == 3 for line in table), "a signature's bars would be columns"


def test_sentences_of_an_unknown_language():
    text = write(metrics=BLEU)
    assert "| BLEU | **38.90 [37.5, 40.3]** of 12,345 test pairs |\n| chrF |" in text
    assert "ublished style" not in text


def test_a_restricted_corpus_is_told():
    text = card(
        "captions", TranslatorRecipe.model_validate({"corpus": {"kind": "multi30k"}}), TRANSLATOR, {**METRICS, **BLEU}
    )
    assert "\n- The texts of Multi30k are for research and education only.\n" in text
    assert "research" not in write()


def test_pieces_of_words():
    pieces = BytePairTokenizer.learn(["low lower lowest"] * 2, size=268)
    translator = Translator(RNNSeq2Seq(pieces.size, 7, units=4), pieces, CharacterTokenizer("xyz"))
    text = card("dates", read_recipe("dates"), translator, METRICS)
    assert (
        f"- It reads texts as {pieces.size - 4:,} pieces of words, in which any text can be written. It gives" in text
    )
    assert "characters of its training" not in text


def test_tells_its_limits():
    text = write()
    assert "longer than 100 tokens is cut off there; a result ends at 11 tokens" in text
    assert "It knows the 7 characters of its training sources" in text


@pytest.mark.parametrize(
    ("description", "begins"),
    [("words.", "# dates\n\nWords.\n\n| | |"), ("", "# dates\n\n| | |"), ("É a", "# dates\n\nÉ a.\n\n| | |")],
)
def test_the_description_is_a_sentence_if_there_is_one(description, begins):
    assert write(description=description).startswith(begins)


def test_signatures_are_those_that_are_exported():
    assert "`attention` from `text` to `source_tokens`, `target_tokens` and `weights`" in write()
    text = write(attention=None)
    assert "| attention | none |" in text
    assert "`attention` from" not in text
    assert "`serving_default` from `text` to `text` and `score`" in text


@pytest.mark.parametrize("attention", ["additive", None])
def test_every_signature_is_named(attention):
    model = RNNSeq2Seq(11, 7, attention=attention, units=4)
    exported = Translator(model, CharacterTokenizer("abcdefg"), CharacterTokenizer("xyz")).signatures()
    assert named(write(attention=attention)) == set(exported) >= {"serving_default", "generate", "score"}


def test_every_signature_of_a_transformer_is_named():
    tokenizer = CharacterTokenizer("abc")
    model = Transformer(tokenizer.size, tokenizer.size, 4, 2, 4, encoder_layers=1, decoder_layers=1)
    translator = Translator(model, tokenizer, tokenizer)
    assert named(card("dates", read_recipe("dates"), translator, METRICS)) == set(translator.signatures())


def named(text):
    """The signatures that a card tells of."""
    (line,) = (line for line in text.splitlines() if line.startswith("Signatures: "))
    return {re.match("`(\\w+)`", told)[1] for told in line.removeprefix("Signatures: ").split("; ")}


@pytest.mark.parametrize(
    ("name", "option", "path"),
    [("dates", "dates", "dates"), ("my d\u00e4tes", "'my d\u00e4tes'", "my%20d%C3%A4tes")],
)
def test_tells_how_it_is_served(name, option, path):
    text = card(name, read_recipe("dates"), TRANSLATOR, METRICS)
    server, request = re.search(r"```sh\n(.*)\n(.*)\n```", text).groups()
    assert server.startswith("tensorflow_model_server ") and f" --model_name={option} " in server
    assert request == f"""curl localhost:8501/v1/models/{path}:predict -d '{{"instances": ["..."]}}'"""


def test_the_weakest_groups_first_and_no_perfect_ones():
    text = write(metrics=scores(a=0.5, b=1.0, c=0.25, d=0.999, e=0.6, f=0.7, g=0.8))
    assert "- 7 groups, each scored in `metrics.json`. Weakest: c 25.0%, a 50.0%, e 60.0%, f 70.0%, g 80.0%.\n" in text


def test_groups_without_a_mistake():
    assert "- 2 groups, each scored in `metrics.json`. None has a mistake.\n" in write(metrics=scores(a=1.0, b=1.0))


def test_no_groups():
    assert " groups" not in write()
