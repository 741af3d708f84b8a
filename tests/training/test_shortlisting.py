"""The shortlist of an export: learnt, tried on held-out texts, written on the card, and served."""

import numpy as np
import pytest
from zoo_training.cards import serving_metrics, serving_rows
from zoo_training.shortlisting import with_learnt_shortlist

import zoo
from zoo import Translator
from zoo.models import RNNSeq2Seq, Transformer
from zoo.serving import export
from zoo.text import WhitespaceTokenizer

WORDS = [f"w{number}" for number in range(60)]
SIZES = dict(num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=2)


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(3)
    return [" ".join(random.choice(WORDS, random.integers(1, 7))) for _ in range(60)]


@pytest.fixture(scope="module")
def translator():
    tokenizer = WhitespaceTokenizer(WORDS)
    model = Transformer(tokenizer.size, tokenizer.size, units=12, dropout=0.0, **SIZES)
    random = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(weight.numpy() + 0.3 * random.normal(size=weight.shape))
    return Translator(model, tokenizer, tokenizer, max_target_length=8, beam_size=3)


@pytest.fixture(scope="module")
def listed(translator, texts):
    return with_learnt_shortlist(translator, ["", *texts, " "], 20)


def test_what_it_changes_is_counted_on_texts_that_it_has_not_learnt_from(translator, texts, listed, monkeypatch, capfd):
    learnt_from = []

    def learn(packed, given, size, progress):
        learnt_from.extend(given)
        return listed.shortlist

    monkeypatch.setattr("zoo_training.shortlisting.learn_shortlist", learn)
    with_learnt_shortlist(translator, ["", *texts, " "], 20)
    held_out = texts[19::20]
    assert learnt_from == texts[:19] + texts[20:39] + texts[40:59]
    same = sum(one == other for one, other in zip(translator(held_out), listed(held_out), strict=True))
    told = f"With the shortlist, {same} of 3 held-out texts have the same translation as without."
    assert told in capfd.readouterr().err


@pytest.mark.long
def test_an_export_answers_with_it_as_the_translator_does(translator, texts, listed, tmp_path):
    """Packed and not, in a batch of any size and alone, in float16, too; the answers are not those without."""
    wanted = listed.translate(texts[:12])
    assert [each.text for each in wanted] != translator(texts[:12])
    exported = zoo.load(export(listed, tmp_path / "model", explore=True))
    for size in (1, 5, 64):
        for one, other in zip(exported.translate(texts[:12], batch_size=size), wanted, strict=True):
            assert one.text == other.text
            assert one.score == pytest.approx(other.score, abs=1e-4)
    for one, other in zip(exported.attend(texts[:4]), listed.attend(texts[:4]), strict=True):
        assert one.target_tokens == other.target_tokens
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
    # Whoever chooses tokens, chooses among all.
    completed = [each.text for each in exported.complete(texts[:12])]
    assert completed == translator(texts[:12]) != [each.text for each in wanted]
    half = export(listed, tmp_path / "half", weights="float16")
    assert zoo.load(half)(texts[:12]) == [each.text for each in wanted]
    metrics = serving_metrics(half, listed, "float16")
    assert serving_rows(metrics)["shortlist"].startswith("a translation consists of 20 of the target's tokens")


def test_what_cannot_have_one_is_refused_before_anything_is_translated(translator, texts, tmp_path):
    tokenizer = translator.source_tokenizer
    recurrent = Translator(RNNSeq2Seq(tokenizer.size, tokenizer.size, units=4), tokenizer, tokenizer)
    with pytest.raises(ValueError, match="a shortlist makes no export faster whose model is not packed"):
        with_learnt_shortlist(recurrent, texts, 20)
    with pytest.raises(ValueError, match="This export would not be: "):
        export(recurrent.with_shortlist(with_learnt_shortlist(translator, texts, 20).shortlist), tmp_path / "model")
    assert not list((tmp_path / "model").iterdir())
    with pytest.raises(ValueError, match="from 5 to 64, which is the whole vocabulary"):
        with_learnt_shortlist(translator, texts, 65)
    with pytest.raises(ValueError, match="There is none"):
        with_learnt_shortlist(translator, ["", " "], 20)
    with pytest.raises(ValueError, match="a shortlist is for translators; this is a"):
        with_learnt_shortlist(object(), texts, 20)
