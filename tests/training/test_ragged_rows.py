"""Rows of different lengths: the same from memory and from files."""

import numpy as np
import pytest
from zoo_training import ragged
from zoo_training.ragged import (
    JoinedTexts,
    Rows,
    RowsWriter,
    StoredRows,
    StoredTexts,
    TextsWriter,
    is_stored,
    joined,
    select,
)
from zoo_training.storage import Storage


class TestTexts:
    def test_texts_in_a_file_are_a_sequence_as_a_list_is(self, small, tmp_path):
        texts = [f"{word} {number}" for number in range(30) for word in ("ab", "cde", "fé", "日本", "g", "hij")] + [""]
        with Storage(near=tmp_path).writing("texts", None) as entry:
            writer = TextsWriter(entry, "one", "other")
            for text in texts:
                writer.append(text, text[::-1])
            found, turned = writer.finish()
        assert isinstance(found, StoredTexts)
        assert len(found) == len(texts)
        assert list(found) == texts == list(found)
        assert list(turned) == [text[::-1] for text in texts]
        assert (found[3], found[-2], found[5:9]) == (texts[3], texts[-2], texts[5:9])
        with pytest.raises(IndexError):
            found[len(texts)]
        odd = found.select(np.arange(1, len(texts), 2))
        assert isinstance(odd, StoredTexts)
        assert list(odd) == texts[1::2]
        assert list(odd.select(np.arange(3, 60))) == texts[1::2][3:60]
        few = odd.select(np.array([2, 4]))
        assert few == [texts[5], texts[9]]
        assert odd.encoded(np.array([7, 0])) == [texts[15].encode(), texts[1].encode()]

    def test_a_lone_surrogate_is_replaced(self, small, tmp_path):
        with Storage(near=tmp_path).writing("texts", None) as entry:
            writer = TextsWriter(entry, "one")
            for _ in range(400):
                writer.append("a\ud800")
            (found,) = writer.finish()
        assert found[399] == "a?"

    def test_few_texts_stay_in_memory_and_no_folder_is_made(self, tmp_path):
        kept = Storage(tmp_path / "cache", tmp_path)
        with kept.writing("texts", "0123") as entry:
            writer = TextsWriter(entry, "one")
            writer.append("a")
            assert writer.finish() == [["a"]]
        assert not list(tmp_path.iterdir())
        assert kept.find("texts", "0123") is None


class TestRows:
    @pytest.mark.parametrize("in_files", [False, True])
    def test_rows_are_what_was_appended(self, tmp_path, in_files):
        with Storage(tmp_path).writing("ids", "key") as entry:
            writer = RowsWriter(entry if in_files else None, "ids", np.uint8)
            writer.append(np.array([1, 2, 255], np.int32), np.array([1, 2]))
            writer.append(np.array([], np.int32), np.array([0]))
            writer.append(np.array([7], np.int32), np.array([1]))
            rows = writer.finish()
        assert [rows[number].tolist() for number in range(len(rows))] == [[1], [2, 255], [], [7]]
        assert isinstance(rows, StoredRows if in_files else Rows)
        assert (rows[1].dtype, rows.count, len(rows)) == (np.uint8, 4, 4)
        assert rows.lengths.tolist() == [1, 2, 0, 1]
        padded = rows.padded(np.array([3, 1, 2]), 4)
        assert padded.dtype == np.int32
        assert padded.tolist() == [[7, 0, 0, 0], [2, 255, 0, 0], [0, 0, 0, 0]]


def test_joined_texts_are_a_sequence_as_a_list_is(tmp_path, monkeypatch):
    monkeypatch.setattr(ragged, "IN_MEMORY", 20)
    monkeypatch.setattr(ragged, "_USUAL", 10)
    lists = [[f"{name}{number}" for number in range(size)] for name, size in (("a", 4), ("é", 9), ("c", 5))]
    with Storage(near=tmp_path).writing("texts", None) as entry:
        writer = TextsWriter(entry, "one")
        for text in lists[1]:
            writer.append(text + " " * 5)
        (stored,) = writer.finish()
    assert isinstance(stored, StoredTexts)
    found = joined([lists[0], stored, lists[2]])
    wanted = [*lists[0], *(text + " " * 5 for text in lists[1]), *lists[2]]
    assert isinstance(found, JoinedTexts)
    assert is_stored(found)
    assert (len(found), list(found), found[3:6], found[-1], found[4]) == (18, wanted, wanted[3:6], "c4", wanted[4])
    with pytest.raises(IndexError):
        found[18]
    for rows in ([0, 3, 5, 12, 13, 17], [5, 6], [1], list(range(18)), []):
        assert list(select(found, np.array(rows, int))) == [wanted[row] for row in rows]
    assert joined([["a"], ["b", "c"]]) == ["a", "b", "c"]
