"""Cleaning of the text to train on: what is dropped and what is not, the counts, and splits that it leaves alone."""

import collections
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zoo_training.corpora import cleaning
from zoo_training.corpora.cleaning import CleanPairs, CleanTexts, KnownHashes
from zoo_training.corpora.file_labels import FileLabels
from zoo_training.corpora.file_pairs import FilePairs
from zoo_training.schema.recipe import RecipeError, read_recipe


def kept(rows, columns=2, kind=CleanPairs, **options):
    dropped = collections.Counter()
    return list(kind(**options).kept(rows, dropped, columns)), dict(dropped)


class TestPairs:
    def test_nothing_is_dropped_unless_told(self):
        rows = [("a", "a"), ("a", "a"), ("a", "日" * 99)]
        assert kept(rows) == (rows, {})

    def test_the_first_of_equal_pairs_stays_in_its_place(self):
        rows = [("a", "b", "g"), ("a", "c", "g"), ("a", "b", "h"), ("b", "a", "g"), ("a", "c", "g"), ("ab", "", "g")]
        assert kept(rows, duplicates=True) == ([rows[0], rows[1], rows[3], rows[5]], {"duplicates": 2})

    def test_texts_of_a_pair_are_told_apart(self):
        rows = [("ab", "c"), ("a", "bc"), ("abc", "d")]
        assert kept(rows, duplicates=True)[0] == rows

    def test_duplicates_are_found_over_many_batches_of_rows(self, monkeypatch):
        monkeypatch.setattr(cleaning, "_AT_ONCE", 7)
        numbers = np.random.default_rng(0).integers(0, 200, 1000).tolist()
        rows = [(f"s{number}", f"t{number}") for number in numbers]
        assert kept(rows, duplicates=True) == (list(dict.fromkeys(rows)), {"duplicates": 1000 - len(set(numbers))})

    def test_identical_sides(self):
        rows = [("a b", "a b"), ("a b", "a c"), ("A", "a")]
        assert kept(rows, identical=True) == (rows[1:], {"with identical sides": 1})

    def test_the_ratio_of_lengths_counts_both_ways_and_may_be_reached(self):
        rows = [("abc", "x"), ("abcd", "x"), ("x", "abcd"), ("ab", "yyyyy"), ("ab", "yyyyyy"), ("ab", "yyyyyyy")]
        assert kept(rows, max_ratio=3) == ([rows[0], rows[3], rows[4]], {"of unequal lengths": 3})

    def test_each_side_has_its_script(self):
        rows = [
            ("Hello, world!", "नमस्ते, दुनिया!"),
            ("नमस्ते", "Hello"),
            ("Hello", "Hello"),
            ("12:30", "१२:३०"),
            ("ok", "ok ठीक है"),
        ]
        found, dropped = kept(rows, source_script="Latin", target_script="Devanagari")
        assert found == [rows[0], rows[3], rows[4]]
        assert dropped == {"with a source in another script": 1, "with a target in another script": 1}

    def test_several_scripts_of_a_language(self):
        rows = [("カメラを買う", "x"), ("ひらがな", "x"), ("Фото и камера", "x"), ("コーヒー", "x"), ("한국어", "x")]
        found, _ = kept(rows, source_script=["Han", "Hiragana", "Katakana"])
        assert found == [rows[0], rows[1], rows[3]]

    @pytest.mark.parametrize(("share", "stays"), [(0.5, True), (0.6, True), (0.61, False), (1, False)])
    def test_the_share_of_letters(self, share, stays):
        row = ("abc где", "x")  # three of six letters
        assert (kept([row], source_script="Latin", script_share=share)[0] == [row]) is (share <= 0.5)
        row = ("a. b! c? 123 гд", "x")  # three of five
        assert (kept([row], source_script="Latin", script_share=share)[0] == [row]) is stays

    def test_a_pair_counts_for_one_cause(self):
        rows = [("日", "日"), ("日", "日"), ("日", "日日日"), ("日本", "a"), ("ab", "c"), ("ab", "c")]
        found, dropped = kept(rows, duplicates=True, identical=True, max_ratio=2, source_script="Latin")
        assert found == [rows[4]]
        assert dropped == {
            "with identical sides": 2,
            "of unequal lengths": 1,
            "with a source in another script": 1,
            "duplicates": 1,
        }
        assert len(found) + sum(dropped.values()) == len(rows)

    @given(st.text(max_size=30))
    def test_a_text_is_latin_where_the_names_of_its_letters_say_so(self, text):
        """By the names of characters, which Unicode gives independently of the table of scripts."""
        if any(unicodedata.category(char) in ("Lm", "Lo", "Cn") for char in text):
            return  # modifier letters such as the ordinal indicators; and what this Python's Unicode lacks
        letters = [unicodedata.name(char, "") for char in unicodedata.normalize("NFKC", text) if char.isalpha()]
        if any(word in name for name in letters for word in ("MATHEMATICAL", "SYMBOL", "SIGN", "FULLWIDTH")):
            return
        latin = sum("LATIN" in name for name in letters)
        text = unicodedata.normalize("NFKC", text)
        assert (kept([(text, "x")], source_script="Latin")[0] == []) is (2 * latin < len(letters))


class TestTexts:
    def test_script_and_duplicates_with_their_label(self):
        rows = [
            ("good", None, "yes", None),
            ("good", None, "no", None),
            ("good", None, "yes", "group"),
            ("хорошо", None, "yes", None),
            ("good", "хорошо", "yes", None),
            ("good", "", "yes", None),
        ]
        found, dropped = kept(rows, 3, CleanTexts, duplicates=True, script="Latin")
        assert found == rows[:2]
        assert dropped == {"in another script": 2, "duplicates": 2}


def test_known_hashes_are_those_of_a_set():
    random = np.random.default_rng(1)
    known, seen = KnownHashes(), set()
    for size in random.integers(0, 60, 100).tolist():
        hashes = random.integers(0, 3000, size, np.uint64)
        new = known.add(hashes).tolist()
        for each, is_new in zip(hashes.tolist(), new, strict=True):
            assert is_new is (each not in seen)
            seen.add(each)
    assert sum(map(len, known._arrays)) == len(seen)
    assert len(known._arrays) < 12, "few arrays, or each search would take long"


@pytest.fixture
def table(tmp_path):
    """Sixty clean pairs; then each of ten a second time, and five with equal sides."""
    lines = [f"source {n}\tЦель {n}" for n in range(60)]
    lines += lines[20:30] + [f"same {n}\tsame {n}" for n in range(5)] + [" \tx"]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


CLEAN = {"duplicates": True, "target_script": "Cyrillic"}


def test_what_is_held_out_is_cleaned_and_a_split_with_a_file_is_not(table, tmp_path, caplog):
    corpus = FilePairs(train=table, clean=CLEAN, test=table, validation_pairs=7)
    sizes = {split: len(corpus.read(split)) for split in corpus.splits}
    assert sizes == {"train": 53, "validation": 7, "test": 75}
    (told,) = [message for message in caplog.messages if "'train' keeps" in message]
    assert told == (
        "text: split 'train' keeps 53 pairs; dropped 10 duplicates, 1 empty, 5 with a target in another script"
    )
    texts = {split: list(zip(found.sources, found.targets, strict=True)) for split, found in corpus._cache.items()}
    assert len({*texts["train"], *texts["validation"]}) == 60
    assert len(FilePairs(train=table, validation_pairs=0, test_pairs=0).read("train")) == 75


def test_labelled_texts(table):
    held = {"validation_texts": 0, "test_texts": 0}
    corpus = FileLabels(train=table, clean={"duplicates": True}, **held)
    assert (len(corpus.read("train")), corpus.read("train").dropped) == (65, {"empty": 1, "duplicates": 10})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("clean.max_ratio=0.5", "'corpus.clean.max_ratio': input should be greater than or equal to 1 (received 0.5)"),
        ("clean.script_share=0", "'corpus.clean.script_share': input should be greater than 0 (received 0)"),
        (
            "clean.source_script='Latinn'",
            "'corpus.clean.source_script': 'Latinn' is no script of Unicode (did you mean 'Latin'?); such are",
        ),
        ("clean.target_script=['Latin','L}x']", "'corpus.clean.target_script': 'L}x' is no script of Unicode; such"),
        ("clean.source_script=[]", "'corpus.clean.source_script': must be the name of a script, or a list of names"),
        ("clean.duplicate=true", "unknown key 'corpus.clean.duplicate' (did you mean 'duplicates'?); valid here: "),
        ("clean.script='Latin'", "unknown key 'corpus.clean.script' (did you mean 'script_share'?); valid here: "),
    ],
)
def test_wrong_values_are_one_sentence(change, told):
    with pytest.raises(RecipeError, match=re.escape(told)):
        read_recipe("multi30k-rnn", [f"corpus.{change}"])


def test_a_recipe_is_read_back_with_its_scripts():
    recipe = read_recipe("dates", ["corpus.clean.target_script=['Latin', 'Greek']", "corpus.clean.max_ratio=4"])
    assert recipe.corpus.clean.target_script == ("Latin", "Greek")
    assert type(recipe).model_validate_json(recipe.model_dump_json()) == recipe
