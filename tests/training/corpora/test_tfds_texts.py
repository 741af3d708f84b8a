"""Running text from TensorFlow Datasets: each example a document."""

import pytest
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.tfds import TfdsTexts


def corpus(data_dir, config="plain", **fields):
    return TfdsTexts(name=f"pairs/{config}", data_dir=str(data_dir), **fields)


def texts(read, split):
    return ["".join(document) for document in read.documents(split)]


def test_a_feature_of_each_example(prepared):
    read = corpus(prepared, feature="question")
    assert read.splits == ("train", "validation", "test")
    # The plain config calls its validation split 'dev', so validation is held out of train.
    found = "".join("".join(texts(read, split)) for split in ("train", "validation"))
    size = len("question ü train 0")
    examples = [found[begin : begin + size] for begin in range(0, len(found), size)]
    assert sorted(examples) == [f"question ü train {n}" for n in range(10)]
    assert sorted(texts(read, "test")) == [f"question ü test {n}" for n in range(3)]


def test_splits_of_its_own_and_nested_features(prepared):
    read = corpus(prepared, "nested", feature="both/de")
    assert sorted(texts(read, "validation")) == [f"de ü validation {n}" for n in range(4)]
    named = corpus(prepared, feature="answer", train_split="train[:4]", validation_split="dev")
    assert len(texts(named, "train")) == 4
    assert sorted(texts(named, "validation")) == [f"answer ü validation {n}" for n in range(4)]


def test_what_is_not_told_or_not_there(prepared):
    with pytest.raises(CorpusError, match=r"^pairs/plain: set feature to one of its text features: answer, question\."):
        corpus(prepared).check("train")
    with pytest.raises(CorpusError, match=r"feature = 'text' is not one of its text features: answer, question\."):
        corpus(prepared, feature="text").check("train")
    with pytest.raises(CorpusError, match=r"has no corpus 'pairs/other'|cannot load 'pairs/other'"):
        corpus(prepared, "other").check("train")
