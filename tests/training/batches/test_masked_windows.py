"""From running text to batches with hidden tokens: which are hidden, what stands in their place, and what is asked."""

import numpy as np
import pytest
from zoo_training.batches.masked_windows import MaskedWindows

from zoo.text import END, START, WordPieceTokenizer
from zoo.text.tokenizer import FIRST

TOKENIZER = WordPieceTokenizer.learn(["the quick brown fox jumps over the lazy dog"] * 3, 60)


def text(number):
    """Ids in which each is the one before plus one, so that a hidden token follows from its neighbours."""
    return np.concatenate([[START], FIRST + np.arange(number) % (TOKENIZER.size - FIRST), [END]]).astype("int32")


def windows(length=22, masked=0.15, batch_size=4, seed=0):
    return MaskedWindows(text(2000), TOKENIZER, length, batch_size, masked, seed)


def test_a_label_is_what_stood_there():
    """Each id is followed by the next one, so the labels follow from the tokens that were not hidden."""
    made = windows()
    size = TOKENIZER.size - FIRST
    for inputs, labels, weights in made.training().take(3):
        ids, places = inputs["ids"].numpy(), inputs["places"].numpy()
        assert ids.shape == (4, 22) and places.shape == labels.shape == weights.shape == (4, 3)  # 15% of 20 tokens
        assert (ids[:, 0] == START).all() and (ids[:, -1] == END).all()
        assert (weights.numpy() == 1).all() and (places >= 1).all() and (places <= 20).all()
        for row, at, of in zip(ids, places, labels.numpy(), strict=True):
            shown = np.setdiff1d(np.arange(1, 21), at)
            first = (row[shown[0]] - FIRST - shown[0]) % size
            assert ((row[shown] - FIRST - shown) % size == first).all()
            assert ((of - FIRST - at) % size == first).all()
            assert len(set(at)) == 3


def test_four_fifths_are_masks_one_tenth_other_tokens_and_one_tenth_as_they_were():
    made = windows(length=102, masked=0.5, batch_size=8)
    counts = np.zeros(3)
    for inputs, labels, _ in made.training().take(30):  # 12,000 hidden tokens
        written = np.take_along_axis(inputs["ids"].numpy(), inputs["places"].numpy(), axis=1)
        assert (written > END).all()
        words = labels.numpy() != TOKENIZER.mask_id  # this text also holds the mask itself
        masks, kept = (written == TOKENIZER.mask_id)[words], (written == labels.numpy())[words]
        counts += [masks.sum(), kept.sum(), (~masks & ~kept).sum()]
    np.testing.assert_allclose(counts / counts.sum(), [0.8, 0.1, 0.1], atol=0.015)


def test_what_is_hidden_changes_from_epoch_to_epoch_and_follows_from_the_seed():
    made = windows()

    def batches(of, first, number):
        return [[each.numpy().tolist() for each in batch[0].values()] for batch in of.training(first).take(number)]

    two = batches(made, 0, 2 * made.steps)
    assert batches(windows(), made.steps + 1, 2) == two[made.steps + 1 : made.steps + 3]
    assert batches(windows(seed=1), 0, 1) != two[:1]
    places = [batch[1] for batch in two]
    assert places[: made.steps] != places[made.steps :]


def test_validation_is_the_same_each_time_and_reads_the_text_in_order():
    made = windows()
    once, again = ([batch[1].numpy().tolist() for batch in made.once()] for _ in range(2))
    assert once == again
    assert len(once) == made.steps == int(made.once().cardinality())


def test_a_text_shorter_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="a text of 2,000 tokens is too short for batches of 200 windows"):
        windows(batch_size=200)
