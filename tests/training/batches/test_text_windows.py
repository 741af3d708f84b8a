"""Windows: each token as a label once an epoch, in an order that follows from the seed, and resumed anywhere."""

import itertools

import numpy as np
import pytest
from zoo_training.batches.text_windows import STARTED, Windows, encode, windows_once

from zoo.text import START, BytePairTokenizer, CharacterTokenizer


def batches(dataset, number):
    return [[each.numpy() for each in batch] for batch in itertools.islice(dataset, number)]


class TestEncode:
    def test_each_document_between_start_and_end(self):
        ids = encode(iter([iter(["ab", "c"]), iter(["b?"])]), CharacterTokenizer("abc"))
        assert ids.dtype == np.uint8
        assert ids.tolist() == [2, 4, 5, 6, 3, 2, 5, 1, 3]

    def test_many_ids_take_more_bytes(self):
        tokenizer = BytePairTokenizer.learn(["low lower lowest " * 9], 300)
        assert tokenizer.size > 256
        assert encode(iter([iter(["low"])]), tokenizer).dtype == np.uint16
        assert encode(iter([]), tokenizer).tolist() == []


class TestTraining:
    ids = np.arange(10, 10 + 7 * 5 + 1)  # 36 tokens: windows of 5, one less than seven of them

    def test_an_epoch_has_every_label_once_and_inputs_one_before(self):
        windows = Windows(self.ids, 5, 3)
        assert (windows.steps, windows.tokens) == (2, 30)
        for epoch in range(20):
            found = []
            for tokens, labels, weights in batches(windows.training(2 * epoch), 2):
                assert (tokens.shape, labels.shape, weights.tolist()) == ((3, 5), (3, 5), [[1.0] * 5] * 3)
                np.testing.assert_array_equal(tokens[:, 1:], labels[:, :-1])
                began = tokens[:, 0] != START
                np.testing.assert_array_equal(tokens[began, 0] + 1, labels[began, 0])
                found += labels.ravel().tolist()
            first = min(found)
            assert sorted(found) == list(range(first, first + 30))
            assert 11 <= first <= 15

    def test_borders_and_order_change_from_epoch_to_epoch(self):
        windows = Windows(self.ids, 5, 3)
        begins = [windows.plan(epoch)[0] for epoch in range(30)]
        assert {int(each.min()) for each in begins} == set(range(5))
        assert len({tuple((each - each.min()).ravel()) for each in begins}) > 25

    def test_one_window_in_eight_begins_with_the_start_token(self):
        windows = Windows(np.full(200_001, 7, "uint8"), 20, 10)
        started = sum((tokens[:, 0] == START).sum() for tokens, _, _ in batches(windows.training(), 990))
        assert abs(started / 9900 - 1 / STARTED) < 0.02

    def test_it_goes_on_from_any_step_as_if_never_stopped(self):
        windows = Windows(self.ids, 5, 2, seed=3)
        whole = batches(windows.training(), 10)
        for first in (1, 3, 4, 9):
            for ours, theirs in zip(batches(windows.training(first), 10 - first), whole[first:], strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    np.testing.assert_array_equal(one, other)

    def test_another_seed_is_another_order(self):
        one, other = (Windows(self.ids, 5, 2, seed).plan(0)[0] for seed in (0, 1))
        assert one.tolist() != other.tolist()

    def test_a_start_token_is_never_a_label_that_counts(self):
        ids = np.array([2, 5, 6, 3] * 12)
        for _, labels, weights in batches(Windows(ids, 5, 2).training(), 4):
            np.testing.assert_array_equal(weights, labels != START)

    def test_too_short_a_text(self):
        with pytest.raises(
            ValueError,
            match=r"^a text of 15 tokens is too short for batches of 2 windows of 5 tokens; .* 16; lower batch_size, ",
        ):
            Windows(np.arange(15), 5, 2)
        with pytest.raises(
            ValueError, match=r"; shorten the windows, by model\.context_length or training\.window, or "
        ):
            Windows(np.arange(10), 5, 2)
        assert Windows(np.arange(16), 5, 2).steps == 1


class TestOnce:
    @pytest.mark.parametrize(("size", "length", "batch"), [(23, 5, 2), (21, 5, 2), (6, 5, 9), (3, 5, 2), (2, 1, 1)])
    @pytest.mark.parametrize("least", [1, 8])
    def test_every_token_but_the_first_is_a_label_once(self, size, length, batch, least):
        ids = np.arange(10, 10 + size)
        dataset = windows_once(ids, length, batch, least)
        found = batches(dataset, 99)
        assert len(found) == int(dataset.cardinality())
        counted = np.concatenate([labels[weights > 0] for _, labels, weights in found])
        assert counted.tolist() == ids[1:].tolist()
        for tokens, labels, weights in found:
            assert len(tokens) >= least
            np.testing.assert_array_equal((tokens + 1)[weights > 0], labels[weights > 0])
