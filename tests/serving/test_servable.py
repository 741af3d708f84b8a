"""An exported model in Python. That it answers as what was exported is in `zoo.testing.TaskTests`."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.serving import ServableTranslator, export

TEXTS = ["cab", "", "4321 abcd", "é 1", "  ", "?", "dd", "a"]


def test_without_attention_there_is_no_such_signature(without_attention, exported_without_attention):
    servable = ServableTranslator(exported_without_attention)
    assert servable(TEXTS) == without_attention(TEXTS)
    with pytest.raises(ValueError, match=r"vector/1 has no signature 'attention'"):
        servable.attend(["a"])


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_where_there_is_no_saved_model(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=rf"{name} holds no SavedModel, nor versions of one\.$"):
        ServableTranslator(tmp_path / name)


@pytest.mark.parametrize(("given", "gives"), [("text", "label"), ("x", "text")])
def test_a_saved_model_of_another_kind(tmp_path, given, gives):
    class Other(tf.Module):
        @tf.function
        def call(self, **inputs):
            return {gives: tf.identity(inputs[given])}

    other = Other()
    call = other.call.get_concrete_function(**{given: tf.TensorSpec([None], tf.string, given)})
    tf.saved_model.save(other, str(tmp_path / "1"), signatures={"serving_default": call})
    with pytest.raises(ValueError, match=r"1 has no signature 'serving_default' from `text` to `text`\.$"):
        ServableTranslator(tmp_path)
    tf.saved_model.save(other, str(tmp_path / "2"))
    with pytest.raises(ValueError, match=r"2 has no signature 'serving_default' from `text` to `text`\.$"):
        ServableTranslator(tmp_path)


def test_a_generator_streams_what_it_generates(servable_generator):
    assert "".join(servable_generator.stream("ab", seed=1)) == servable_generator(["ab"], seed=1)[0]


@pytest.mark.long
def test_a_transformer_decodes_with_its_beam_and_shows_its_heads(servable_transformer, transformer):
    servable = servable_transformer
    assert transformer.beam_size == 3
    for ours, theirs in zip(servable.translate(TEXTS), transformer.translate(TEXTS), strict=True):
        assert (ours.text, ours.alternatives) == (theirs.text, ())
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)
    assert servable(TEXTS) != transformer(TEXTS, beam_size=1), "a beam that changes nothing"
    texts = ["cab", "4321 abcd"]
    for ours, theirs in zip(servable.attend_by_head(texts), transformer.attend_by_head(texts), strict=True):
        assert (ours.source_text, ours.target_text) == (theirs.source_text, theirs.target_text)
        for kind, wanted in zip(ours.kinds, theirs.kinds, strict=True):
            np.testing.assert_allclose(kind.weights, wanted.weights, atol=1e-5)


@pytest.mark.parametrize("change", [{"beam_size": 3}, {"length_penalty": 0.6}, {"n_best": 2}, {"beam_size": 1}])
def test_its_beam_is_fixed(servable, change):
    (name,) = change
    with pytest.raises(ValueError, match=rf"/1 decodes with the beam that it was exported with, .* For `{name}` load "):
        servable.translate(TEXTS, **change)


def test_one_attention_has_no_heads(servable):
    with pytest.raises(ValueError, match=r"/1 has no signature 'attention_by_head': its model has no layers and heads"):
        servable.attend_by_head(["a"])


@pytest.mark.long
def test_masks_of_an_export_and_of_an_older_one_without(translator, tmp_path):
    export(translator, tmp_path, explore=True)
    servable = ServableTranslator(tmp_path)
    ours, theirs = (each.complete(["4321 abcd"], hidden=[[0, 2]])[0] for each in (servable, translator))
    assert ours.text == theirs.text != translator(["4321 abcd"])[0]
    np.testing.assert_allclose(ours.log_probabilities, theirs.log_probabilities, atol=1e-4)
    servable._inputs = lambda name: {"text", "prefix"}  # as exports had them
    asked = []
    servable._explore = lambda name, **tensors: (
        asked.append(set(tensors)) or translator._explore(name, **tensors, hidden=tf.constant([""]))
    )
    assert servable.complete(["cab"])[0].text == translator(["cab"])[0] and asked == [{"text", "prefix"}]
    with pytest.raises(ValueError, match="takes no `hidden`"):
        servable.complete(["cab"], hidden=[[1]])


def test_tokens_can_be_chosen_only_if_it_was_exported_so(servable, servable_generator):
    with pytest.raises(ValueError, match=r"/1 has no signature 'complete'; export the model again with explore=True"):
        servable.complete(["a"])
    with pytest.raises(ValueError, match=r"has no signature 'score_tokens'; export the model again with explore=True"):
        servable_generator.score_tokens(["a"])
