"""Texts with classes from TSV files: cleaned, held out so that no text is in two splits, and refused with a reason."""

import pydantic
import pytest
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.file_labels import FileLabels


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def rows(texts):
    return list(zip(texts.texts, texts.labels, strict=True))


def test_the_columns_of_each_line_without_white_space_around_them_in_nfc(write):
    path = write("a.tsv", "good  \tpos\n bad\t neg \ncafe\u0301\tpos\n")
    texts = FileLabels(train=path, validation_texts=0, test_texts=0).read("train")
    assert rows(texts) == [("good", "pos"), ("bad", "neg"), ("caf\u00e9", "pos")]
    assert texts.inputs == texts.texts
    assert (texts.groups, texts.seconds) == (None, None)


def test_pairs_and_columns_by_name(write):
    path = write("a.tsv", "id\thypothesis\tlabel\tpremise\n7\tit rains\tyes\tit pours\n8\tit snows\tno\tit pours\n")
    corpus = FileLabels(
        train=path,
        text_column="premise",
        second_column="hypothesis",
        label_column="label",
        header=True,
        validation_texts=0,
        test_texts=0,
    )
    texts = corpus.read("train")
    assert texts.inputs == [("it pours", "it rains"), ("it pours", "it snows")]
    assert texts.labels == ["yes", "no"]


def test_held_out_texts_are_in_no_other_split_and_do_not_depend_on_the_order_of_lines(write):
    lines = [f"text {n % 40}\t{'ab'[n % 2]}\n" for n in range(120)]  # each text occurs three times
    one = FileLabels(train=write("a.tsv", "".join(lines)), validation_texts=9, test_texts=12)
    other = FileLabels(train=write("b.tsv", "".join(reversed(lines))), validation_texts=9, test_texts=12)
    assert one.splits == ("train", "validation", "test")
    assert [len(one.read(split)) for split in one.splits] == [99, 9, 12]
    held = {split: set(one.read(split).texts) for split in one.splits}
    assert not (held["train"] & held["validation"] or held["train"] & held["test"] or held["test"] & held["validation"])
    assert held == {split: set(other.read(split).texts) for split in other.splits}


def test_a_class_of_few_texts_is_never_held_out_as_a_whole(write):
    lines = [f"text {n}\tcommon\n" for n in range(30)] + ["rare one\trare\n", "rare two\trare\n"]
    for seed in range(12):
        corpus = FileLabels(train=write("a.tsv", "".join(lines)), validation_texts=12, test_texts=12, seed=seed)
        read = {split: corpus.read(split) for split in corpus.splits}
        assert "rare" in read["train"].labels
        assert sum(map(len, read.values())) == 32


def test_files_for_all_splits_with_texts_in_common_are_told(write, caplog):
    train, test = write("a.tsv", "x\tp\ny\tq\n"), write("b.tsv", "z\tp\ny\tp\n")
    corpus = FileLabels(train=train, test=test, validation_texts=0)
    assert (rows(corpus.read("train")), rows(corpus.read("test"))) == (
        [("x", "p"), ("y", "q")],
        [("z", "p"), ("y", "p")],
    )
    assert "of the 2 texts of 'test', 1 are also in 'train'" in caplog.text


def test_long_texts_are_cut_off_and_empty_ones_dropped(write, caplog):
    path = write("a.tsv", "abcdef\tp\n\tq\n\nxy\tq\n")
    corpus = FileLabels(train=path, max_characters=4, validation_texts=0, test_texts=0)
    assert rows(corpus.read("train")) == [("abcd", "p"), ("xy", "q")]
    assert "split 'train' keeps 2 texts; dropped 2 empty" in caplog.text


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("good\n", {}, r"a.tsv:1: found 1 of the 2 columns needed \(text_column = 1, label_column = 2\)"),
        ("good\t \n", {}, "the text 'good' has no label"),
        ("text\tclass\nx\ty\n", {"header": True, "label_column": "klass"}, "no column 'klass' in the header.*'class'"),
        ("\n\n", {}, "Split 'train' of corpus 'labels' holds no usable text"),
        ("a\tb\n", {"validation_texts": 1}, "cannot hold out 1 texts for validation"),
    ],
)
def test_what_cannot_be_read(write, text, fields, message):
    fields = {"validation_texts": 0, "test_texts": 0, **fields}
    with pytest.raises(CorpusError, match=message):
        FileLabels(train=write("a.tsv", text), **fields).read("train")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label_column": 1}, "`text_column` and `label_column` must differ. Received: 1 for both"),
        ({"label_column": "class"}, "`label_column` is a name, which needs `header = true`"),
        ({"second_column": 0}, "`second_column` must be a column's number, from 1, or its header's name"),
        (
            {"test": "b.tsv", "test_texts": 3},
            r"Give `test` \(a file\) or `test_texts` \(held out of",
        ),
    ],
)
def test_keys_that_do_not_fit(fields, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        FileLabels(train="a.tsv", **fields)
