"""Search among vectors, against a full sort in float64."""

import numpy as np
import pytest
from zoo_training import search_index
from zoo_training.search_index import SearchIndex, new_index


@pytest.fixture
def index(tmp_path):
    """A function that writes vectors as an index in two pieces, and reads it."""

    def make(vectors):
        with new_index(tmp_path / "index", tmp_path / "model", vectors.shape[1]) as add:
            for rows in (range(len(vectors) // 3), range(len(vectors) // 3, len(vectors))):
                add([f"text {row}\nof mine" for row in rows], vectors[list(rows)])
        return SearchIndex(tmp_path / "index")

    return make


@pytest.mark.parametrize("number", [1, 4, 11, 20])
def test_the_best_of_all_blocks(index, monkeypatch, number):
    monkeypatch.setattr(search_index, "_BLOCK", 4)  # the last one has 3 of 11 rows
    random = np.random.default_rng(0)
    vectors, queries = random.normal(size=(11, 5)), random.normal(size=(3, 5))
    rows, cosines = index(vectors.astype("float32")).nearest(queries.astype("float32"), number)
    wanted = (queries @ vectors.T) / np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(vectors, axis=1))
    np.testing.assert_array_equal(rows, np.argsort(-wanted, axis=1)[:, :number])
    np.testing.assert_allclose(cosines, -np.sort(-wanted, axis=1)[:, :number], atol=1e-6)
    assert cosines.dtype == np.float32


def test_equal_texts_are_in_their_order_and_zeros_are_like_nothing(index):
    vectors = np.float32([[0, 0], [3, 4], [0, 2], [6, 8]])
    rows, cosines = index(vectors).nearest(np.float32([[3, 4], [0, 0]]), 4)
    assert rows.tolist() == [[1, 3, 2, 0], [0, 1, 2, 3]]
    np.testing.assert_allclose(cosines, [[1, 1, 0.8, 0], [0, 0, 0, 0]], atol=1e-6)


def test_a_text_is_one_line(index):
    assert index(np.ones((4, 2), "float32")).texts([3, 1]) == {1: "text 1 of mine", 3: "text 3 of mine"}
