"""Texts with classes from TSV files: cleaned, held out so that no text is in two splits, and refused with a reason."""

import re

import pydantic
import pytest
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.file_labels import FileLabels

NAMED = {"header": True, "text_column": "text", "label_column": "label"}


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


def test_a_cell_of_several_labels_and_an_empty_one(write):
    path = write("a.tsv", "one\t b, a ,b,\ntwo\t\n \tc\nthree\tcafe\u0301\n")
    texts = FileLabels(train=path, label_separator=",", validation_texts=0, test_texts=0).read("train")
    assert texts.label_sets == [("a", "b"), (), ("caf\u00e9",)]
    assert (texts.labels, texts.separator, texts.dropped) == (["a,b", "", "caf\u00e9"], ",", {"empty": 1})
    assert FileLabels(train=path, validation_texts=0, test_texts=0).splits == ("train",)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (
            ["pos", "neg", "POS ", "Pos"],
            "the labels 'POS', 'Pos', 'pos' differ in case, spaces or invisible characters alone; ",
        ),
        (
            ["new york", "newyork", "a", "a\u200b"],
            "'a\\u200b' differ in case, spaces or invisible characters alone, and so do other labels (groups: 2)",
        ),
        (["pos", "neg", "0", "00"], None),
        (["1", "2", "\u00b2", "\u2460"], None),  # a superscript 2 and a circled 1
    ],
)
def test_labels_that_look_alike_are_told(write, caplog, labels, told):
    path = write("a.tsv", "".join(f"text {number}\t{label}\n" for number, label in enumerate(labels)))
    corpus = FileLabels(train=path, validation_texts=0, test_texts=0)
    assert len(set(corpus.read("train").labels)) == 4
    corpus.read("train")
    assert len(caplog.messages) == bool(told)
    assert (told or "") in caplog.text


@pytest.mark.parametrize(("separator", "is_told"), [(",", True), (";", False)])
def test_a_separator_that_separates_nothing_is_told(write, caplog, separator, is_told):
    path = write("a.tsv", "one\tsport;news\ntwo\tnews\n")
    FileLabels(train=path, label_separator=separator, validation_texts=0, test_texts=0).read("train")
    assert ("label_separator = ',' is in no cell of labels" in caplog.text) is is_told


def test_labels_that_look_alike_in_cells_of_several_labels(write, caplog):
    path = write("a.tsv", "one\tsport,news\ntwo\tNews\n")
    FileLabels(train=path, label_separator=",", validation_texts=0, test_texts=0).read("train")
    assert "the labels 'News', 'news' differ in case" in caplog.text


def test_of_several_labels_each_keeps_a_text_to_train_on(write):
    lines = [f"text {n}\tcommon\n" for n in range(30)] + ["rare\tcommon;rare\n", *(f"none {n}\t\n" for n in range(4))]
    for seed in range(20):
        path = write("a.tsv", "".join(lines))
        corpus = FileLabels(train=path, label_separator=";", validation_texts=17, test_texts=0, seed=seed)
        assert "rare" in corpus.read("train").texts
        assert len(corpus.read("validation")) == 17


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
        assert [len(texts) for texts in read.values()] == [8, 12, 12], "others are held out in its place"


def test_fewer_than_asked_for_the_sake_of_rare_classes_are_told(write, caplog):
    lines = [f"text {n}\tcommon\n" for n in range(5)] + [f"rare {n}\trare {n}\n" for n in range(30)]
    corpus = FileLabels(train=write("a.tsv", "".join(lines)), validation_texts=6, test_texts=0)
    assert {*corpus.read("validation").labels} == {"common"}
    assert len(corpus.read("validation")) == 4
    assert "held out 4 texts for validation; 6 were wanted" in caplog.text
    assert caplog.messages[0].endswith("is too large or has all that is left of a label.")


def splits_of_pairs(path, **fields):
    corpus = FileLabels(train=path, second_column=3, **fields)
    return {split: corpus.read(split) for split in corpus.splits}


def test_of_pairs_neither_text_is_in_two_splits_whichever_side_it_is_on(write):
    # Premises with several hypotheses, hypotheses of several premises, and chains, also across the two columns.
    lines = [f"premise {n % 23}\t{'ab'[n % 2]}\thypothesis {n // 2}" for n in range(30)]
    lines += [f"link {n}\ta\tlink {n + 1}" for n in range(90) if n % 3]
    for seed in range(8):
        splits = splits_of_pairs(write("a.tsv", "\n".join(lines)), validation_texts=8, test_texts=12, seed=seed)
        assert [len(splits[split]) for split in ("validation", "test")] == [8, 12]
        texts = [{*texts.texts, *texts.seconds} for texts in splits.values()]
        assert sum(map(len, texts)) == len(set.union(*texts))


def test_pairs_of_a_few_second_texts_are_held_out_by_their_first_texts_and_this_is_told(write, caplog):
    lines = [f"text {n // 2}\t{'yes' if n % 3 else 'no'}\tis it about {'abc'[n % 3]}?" for n in range(80)]
    splits = splits_of_pairs(write("a.tsv", "\n".join(lines)), validation_texts=10, test_texts=0)
    assert [len(texts) for texts in splits.values()] == [70, 10]
    assert not set(splits["train"].texts) & set(splits["validation"].texts)
    assert len(set(splits["train"].seconds) & set(splits["validation"].seconds)) > 0
    (message,) = caplog.messages
    assert "only their first texts are in no other split" in message


def test_pairs_of_a_second_text_for_each_label_are_held_out_by_their_first_texts(write, caplog):
    lines = [f"text {n}\ttopic {n % 40}\tis it about {n % 40}?" for n in range(200)]
    splits = splits_of_pairs(write("a.tsv", "\n".join(lines)), validation_texts=20, test_texts=30)
    assert [len(texts) for texts in splits.values()] == [150, 20, 30]
    assert len(set(splits["train"].labels)) == 40
    assert "only their first texts are in no other split" in caplog.text


def test_an_empty_second_text_ties_no_pairs_together(write, caplog):
    lines = [f"text {n}\ta\t" for n in range(30)]
    splits = splits_of_pairs(write("a.tsv", "\n".join(lines)), validation_texts=7, test_texts=0)
    assert [len(texts) for texts in splits.values()] == [23, 7]
    assert not caplog.messages


def test_pairs_of_a_rare_class_go_back_with_the_pairs_that_share_their_texts(write):
    lines = [f"one {n}\tcommon\tother {n}" for n in range(30)]
    lines += ["rare\trare\tshared", "more\tcommon\tshared"]
    for seed in range(12):
        splits = splits_of_pairs(write("a.tsv", "\n".join(lines)), validation_texts=12, test_texts=12, seed=seed)
        assert {"rare", "more"} <= set(splits["train"].texts)
        assert sum(map(len, splits.values())) == 32


def test_pairs_of_rare_labels_still_share_no_second_text_if_the_labels_are_why_few_are_held_out(write, caplog):
    lines = [f"common {n}\tcommon\tof common {n // 2}" for n in range(6)]
    lines += [f"rare {n}\trare {n}\tof rare {n}" for n in range(30)]
    splits = splits_of_pairs(write("a.tsv", "\n".join(lines)), validation_texts=10, test_texts=0)
    assert [len(texts) for texts in splits.values()] == [32, 4]
    assert not set(splits["train"].seconds) & set(splits["validation"].seconds)
    (message,) = caplog.messages
    assert "held out 4 pairs for validation; 10 were wanted" in message


def test_texts_that_are_the_same_once_cut_off_are_held_out_together(write):
    lines = [f"{n // 4:04} tail {n}\ta" for n in range(40)]
    corpus = FileLabels(train=write("a.tsv", "\n".join(lines)), max_characters=4, validation_texts=8, test_texts=4)
    texts = [set(corpus.read(split).texts) for split in corpus.splits]
    assert [len(each) for each in texts] == [7, 2, 1]
    assert len(set.union(*texts)) == 10


def test_a_text_that_is_dropped_does_not_count_as_a_text_of_its_class(write):
    lines = [f"text {n}\tcommon\n" for n in range(9)] + ["rare one\trare\n", " \trare\n"]
    for seed in range(8):
        corpus = FileLabels(train=write("a.tsv", "".join(lines)), validation_texts=6, test_texts=0, seed=seed)
        assert "rare" in corpus.read("train").labels


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
        (
            "good\n",
            {},
            r"a.tsv:1: a line must have 2 columns .* \(text_column = 1, label_column = 2\); this one has 1; docs",
        ),
        ("bad\tneg\n\ngood\t \n", {}, r"a.tsv:3: no label \(label_column = 2\). Received: 'good'"),
        ("bad\tneg\ngood\t \n", {"test_texts": None}, r"a.tsv:2: no label \(label_column = 2\). Received: 'good'"),
        ("text\ttext\tlabel\nx\ty\tz\n", NAMED, r"a.tsv:1: 2 columns are named 'text'; give the number of one"),
        ("text\tclass\nx\ty\n", {"header": True, "label_column": "klass"}, "no column 'klass' in the header.*'class'"),
        ("\n\n", {}, "Split 'train' of corpus 'labels' holds no usable text"),
        ("a\tb\n", {"validation_texts": 1}, "cannot hold out 1 text for validation"),
        (
            *("a\tx\nb\ty\nc\tz\n", {"validation_texts": 1}),
            "a.tsv: cannot hold out 1 text for validation: too few are left for validation, since each label keeps "
            r"texts to train on; give more of them for each label, or a file for the split\.$",
        ),
    ],
)
def test_what_cannot_be_read(write, text, fields, message):
    fields = {"validation_texts": 0, "test_texts": 0, **fields}
    with pytest.raises(CorpusError, match=message):
        FileLabels(train=write("a.tsv", text), **fields).read("train")


def test_swapped_columns_are_guessed_where_nothing_can_be_held_out(write):
    path = write("a.tsv", "".join(f"{('good', 'bad')[n % 2]}\tfilm {n}\n" for n in range(30)))
    told = "The 30 texts have 30 different labels, and a label names a class; are text_column and label_column swapped?"
    with pytest.raises(CorpusError, match=rf"equal texts stay together, .* {re.escape(told)}$"):
        FileLabels(train=path).read("train")
    FileLabels(train=path, text_column=2, label_column=1).read("train")


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
