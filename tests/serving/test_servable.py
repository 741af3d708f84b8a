"""An exported model in Python: the same answers as the translator it came from."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from zoo.serving import Servable, export

TEXTS = ["cab", "", "4321 abcd", "é 1", "  ", "?", "dd", "a"]


def test_translates_as_the_translator_does(servable, translator):
    assert servable.translate(TEXTS, batch_size=3) == translator.translate(TEXTS, batch_size=3)
    assert servable(TEXTS) == translator(TEXTS)


def test_attends_as_the_translator_does(servable, translator):
    texts = [text for text in TEXTS if text.strip()]
    for ours, theirs in zip(servable.attend(texts), translator.attend(texts), strict=True):
        assert ours.source_tokens == theirs.source_tokens
        assert ours.target_tokens == theirs.target_tokens
        np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-6)


@pytest.mark.slow
def test_without_attention_there_is_no_such_signature(without_attention, tmp_path):
    version = export(without_attention, tmp_path / "vector")
    servable = Servable(version)
    assert servable(TEXTS) == without_attention(TEXTS)
    assert list(tf.saved_model.load(str(version)).signatures) == ["serving_default"]
    with pytest.raises(ValueError, match=r"vector/1 has no signature 'attention'"):
        servable.attend(["a"])


def test_the_newest_version_that_is_whole(exported, tmp_path):
    shutil.copytree(exported / "1", tmp_path / "9")
    shutil.copytree(exported / "1", tmp_path / "10")
    (tmp_path / "11").mkdir()
    assert Servable(tmp_path).path == tmp_path / "10"
    assert Servable(str(tmp_path / "9")).path == tmp_path / "9"


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_where_there_is_no_saved_model(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=rf"{name} holds no SavedModel, nor versions of one\.$"):
        Servable(tmp_path / name)


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
        Servable(tmp_path)
    tf.saved_model.save(other, str(tmp_path / "2"))
    with pytest.raises(ValueError, match=r"2 has no signature 'serving_default' from `text` to `text`\.$"):
        Servable(tmp_path)
