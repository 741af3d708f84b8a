"""The shortlist of an export: learnt, tried on held-out texts, written on the card, and served."""

import keras
import numpy as np
import pytest
from zoo_training.cards import serving_metrics, serving_rows
from zoo_training.shortlisting import with_learnt_shortlist

import zoo
from zoo import TextGenerator, Translator
from zoo.decoding import Shortlist, learn_shortlist
from zoo.models import GPT, RNNSeq2Seq, Transformer
from zoo.serving import export
from zoo.text import WhitespaceTokenizer

WORDS = [f"w{number}" for number in range(60)]
SIZES = dict(num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=2)
ODD = ["", "no known word", " w1 ", "w1", "w2 w2 w2 w2 w2 w2 w2 w2 w2 w2 w2 w2"]


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(3)
    return [*dict.fromkeys(" ".join(random.choice(WORDS, random.integers(2, 7))) for _ in range(60))]


@pytest.fixture(scope="module")
def translator():
    """With two vocabularies of different sizes."""
    source, target = WhitespaceTokenizer(WORDS), WhitespaceTokenizer([f"T{number}" for number in range(75)])
    model = Transformer(source.size, target.size, units=12, dropout=0.0, tied_embeddings="target", **SIZES)
    random = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(weight.numpy() + 0.3 * random.normal(size=weight.shape))
    settings = dict(length_penalty=1.2, length_normalization="mean", early_stopping=False)
    return Translator(model, source, target, max_source_length=9, max_target_length=8, beam_size=3, **settings)


@pytest.fixture(scope="module")
def listed(translator, texts):
    return with_learnt_shortlist(translator, ["", *texts, " ", texts[0]], 20)


def recurrent(**arguments):
    tokenizer = WhitespaceTokenizer(WORDS)
    return Translator(RNNSeq2Seq(tokenizer.size, tokenizer.size, units=4, **arguments), tokenizer, tokenizer)


@pytest.mark.long
def test_what_it_changes_is_counted_on_texts_that_it_has_not_learnt_from(translator, texts, listed, monkeypatch, capfd):
    learnt_from = []

    def learn(packed, given, size, progress):
        learnt_from.extend(given)
        return listed.shortlist

    monkeypatch.setattr("zoo_training.shortlisting.learn_shortlist", learn)
    with_learnt_shortlist(listed, ["", *texts, " ", texts[0]], 20)  # the one that there was before does not count
    held_out = texts[19::20]
    assert set(learnt_from) == set(texts) - set(held_out) and len(learnt_from) == len(set(learnt_from))
    same = sum(one == other for one, other in zip(translator(held_out), listed(held_out), strict=True))
    told = f"With the shortlist, {same} of {len(held_out)} held-out texts have the same translation as without."
    assert told in capfd.readouterr().err
    monkeypatch.setattr(Translator, "__call__", lambda self, texts: texts)  # which takes no time
    with_learnt_shortlist(translator, texts[:19], 20)
    assert "There are fewer than 20 texts, so none was held out" in capfd.readouterr().err
    monkeypatch.setattr("zoo_training.shortlisting._MOST", 30)
    learnt_from.clear()
    with_learnt_shortlist(translator, texts, 20)
    assert f"learnt from 30 of {len(texts)} texts." in capfd.readouterr().err
    assert len(learnt_from) == 29 and {texts[0], texts[-2]} <= set(learnt_from)


@pytest.mark.long  # as all tests with `listed`, which takes seconds
def test_settings_stay_and_a_new_model_or_setting_keeps_the_shortlist(translator, listed):
    for name in Translator.SETTINGS:
        assert getattr(listed, name) == getattr(translator, name)
    assert listed.with_model(translator.model).shortlist is listed.shortlist
    assert listed.with_settings(beam_size=2).shortlist is listed.shortlist
    assert listed.with_shortlist(None).shortlist is None


@pytest.mark.long
def test_an_export_answers_with_it_as_the_translator_does(translator, texts, listed, tmp_path):
    """Packed and not, in a batch of any size and alone, in float16, too; the answers are not those without."""
    texts = texts[:12] + ODD
    wanted = listed.translate(texts, n_best=3)
    assert [each.text for each in wanted] != translator(texts)
    assert [wanted[-5].text, wanted[-5].score, wanted[-3].text] == ["", 0.0, wanted[-2].text]
    exported = zoo.load(export(listed, tmp_path / "model", explore=True))
    for size in (1, 5, 64):
        for one, other in zip(exported.translate(texts, batch_size=size), wanted, strict=True):
            assert one.text == other.text
            assert one.score == pytest.approx(other.score, abs=1e-4)
    # Among fewer tokens each of them is likelier.
    for scored, found in zip(translator.score(texts, [each.text for each in wanted]), wanted, strict=True):
        assert scored.log_probability <= found.score + 1e-4 or not found.source.strip()
    for one, other in zip(exported.attend(texts[:4]), listed.attend(texts[:4]), strict=True):
        assert one.target_tokens == other.target_tokens
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
    # Whoever chooses tokens, chooses among all.
    completed = [each.text for each in exported.complete(texts[:12])]
    assert completed == translator(texts[:12]) != [each.text for each in wanted[:12]]
    half = export(listed, tmp_path / "half", weights="float16")
    assert zoo.load(half)(texts) == [each.text for each in wanted]
    metrics = serving_metrics(half, listed, "float16")
    same, held_out = listed.shortlist.unchanged
    assert serving_rows(metrics)["shortlist"] == (
        "a translation may use 20 of the 79 target tokens, chosen for each text; scores on this card are without it; "
        f"{same} of {held_out} held-out texts have the same translation with it"
    )


def test_what_cannot_have_one_is_refused_before_anything_is_translated(translator, texts, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("a text was translated")

    monkeypatch.setattr(Translator, "__call__", never)
    tokenizer = translator.source_tokenizer
    generator = TextGenerator(GPT(tokenizer.size, units=4, num_heads=1, num_layers=1, context_length=4), tokenizer)
    for task, given, size, message in (
        (recurrent(), texts, 20, "makes only exports of a packed `Transformer` faster: "),
        (generator, texts, 20, "a shortlist is for a translator; this is a TextGenerator"),
        (translator, texts, 80, "from 5 to 79, the number of all target tokens. Received: 80"),
        (translator, texts, 0, "Received: 0"),
        (translator, texts, None, r"this model has only 79 in all\. .*`size` \(--shortlist-size\) chooses fewer"),
        (translator, ["", " "], 20, "There is none"),
    ):
        with pytest.raises(ValueError, match=message):
            with_learnt_shortlist(task, given, size)
    shortlist = Shortlist(np.zeros((64, 2), int), np.arange(64), 20)
    with pytest.raises(ValueError, match=r"A shortlist needs a packed `zoo.models.Transformer`: "):
        export(recurrent().with_shortlist(shortlist), tmp_path / "model")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="is of 64 source and 64 target tokens; the tokenizers have 64 and 79"):
        translator.with_shortlist(shortlist)
    with pytest.raises(ValueError, match=r"must be a `zoo.decoding.Shortlist`. Received: 512"):
        translator.with_shortlist(512)


@pytest.mark.long
def test_a_recurrent_translator_can_have_one_in_python(texts):
    keras.utils.set_random_seed(4)
    translator = recurrent()
    listed = translator.with_shortlist(learn_shortlist(translator, texts[:20], 64))
    assert listed(texts[:9]) == translator(texts[:9]), "64 tokens are all of them"
