"""From labelled texts to batches: the ids that the classifier reads, and each label and weight with its text."""

import numpy as np
import pytest
import tensorflow as tf
from zoo_training.batches.labelled_batches import EncodedTexts, LabelledBatches, encode
from zoo_training.batches.pair_batches import Sampler
from zoo_training.corpora.labelled import LabelledTexts
from zoo_training.ragged import Rows

from zoo.models import Classifier, Encoder
from zoo.tasks.encoder_tasks import TextClassifier
from zoo.text import END, START, BytePairTokenizer, CharacterTokenizer

TEXTS = ["abc", "d", "abcdefgh", "ba", "hgfedcba", "c", "fed"]
LABELS = np.array([0, 1, 2, 0, 1, 2, 0])
WEIGHTS = np.array([1.0, 0.5, 2.0, 3.0, 0.25, 4.0, 5.0])


@pytest.fixture(scope="module", params=[False, True], ids=["single", "pairs"])
def encoded(request):
    tokenizer = CharacterTokenizer("abcdefgh")
    encoder = Encoder(tokenizer.size, units=8, num_heads=2, num_layers=1, max_length=9, num_segments=2)
    classifier = TextClassifier(Classifier(encoder, 3), tokenizer, ["x", "y", "z"], pairs=request.param)
    texts = LabelledTexts(TEXTS, ["x"] * 7, seconds=TEXTS[::-1] if request.param else None)
    return classifier, texts, encode(classifier, texts)


def test_rows_are_what_the_task_reads(encoded):
    classifier, texts, rows = encoded
    columns = [texts.texts] if texts.seconds is None else [texts.texts, texts.seconds]
    for number in range(len(texts)):
        expected = classifier.encode(*(tf.constant([column[number]]) for column in columns))
        ids = rows.ids[number]
        assert ids.tolist() == expected["ids"][0].numpy().tolist()
        assert (ids[0], ids[-1]) == (START, END)
        assert len(ids) <= 9
        assert rows.first_lengths[number] == np.count_nonzero(expected["segments"][0].numpy() == 0)


def test_labels_weights_and_segments_stay_with_their_text(encoded):
    _, _, rows = encoded
    batches = LabelledBatches(rows, LABELS, WEIGHTS, segments=True, batch_size=3, buckets=2, seed=1)
    known = {tuple(rows.ids[n]): n for n in range(7)}
    seen = []
    for inputs, labels, weights in batches.once():
        for ids, segments, label, weight in zip(inputs["ids"], inputs["segments"], labels, weights, strict=True):
            ids = ids.numpy()
            number = known[tuple(ids[ids > 0])]
            assert label == LABELS[number]
            places = np.arange(len(ids))
            assert segments.numpy().tolist() == ((places >= rows.first_lengths[number]) & (ids > 0)).tolist()
            if weight:  # a bucket's last batch repeats rows, without weight
                assert weight == WEIGHTS[number]
                seen.append(number)
    assert sorted(seen) == list(range(7))


def test_an_epoch_of_training_has_other_batches_than_the_next_and_goes_on_anywhere(encoded):
    _, _, rows = encoded
    batches = LabelledBatches(rows, LABELS, WEIGHTS, segments=False, batch_size=2, buckets=2, seed=3)

    def some(first):
        return [inputs["ids"].numpy().tolist() for inputs, _, _ in batches.training(first).take(2 * batches.steps)]

    whole = some(0)
    assert whole[: batches.steps] != whole[batches.steps :]
    assert some(batches.steps)[: batches.steps] == whole[batches.steps :]
    assert batches.tokens == int(rows.lengths.sum())


@pytest.mark.long
def test_pieces_are_drawn_anew_in_training_and_long_texts_cut_off():
    tokenizer = BytePairTokenizer.learn(["abcd efgh"] * 9 + ["hgfe dcba"] * 9, 290)
    encoder = Encoder(tokenizer.size, units=8, num_heads=2, num_layers=1, max_length=12)
    classifier = TextClassifier(Classifier(encoder, 2), tokenizer, ["x", "y"])
    texts = LabelledTexts(["abcd efgh", "hgfe", "abcd " * 20, "dcba abcd"], ["x", "y", "x", "y"])
    sampler = Sampler(texts.texts, np.arange(4), tokenizer, 0.5, classifier.max_length - 1)
    arguments = np.array([0, 1, 0, 1]), np.ones(4), False
    batches = LabelledBatches(encode(classifier, texts), *arguments, 4, 1, sampler=sampler)

    def of(dataset, steps):
        return [(inputs["ids"].numpy().tolist(), labels.numpy().tolist()) for inputs, labels, _ in dataset.take(steps)]

    drawn = of(batches.training(), 6)
    assert drawn == of(batches.training(), 6)
    assert drawn[2:] == of(batches.training(2), 4)
    seen = {}
    for ids, labels in drawn:
        for row, label in zip(ids, labels, strict=True):
            shown = [each for each in row if each]
            assert shown[0] == START and len(shown) <= 12
            text = tokenizer.detokenize([shown]).numpy()[0].decode()
            seen.setdefault(text.strip(), set()).add(tuple(shown))
            assert label == {"abcd efgh": 0, "hgfe": 1, "dcba abcd": 1}.get(text.strip(), 0)
    assert len(seen["abcd efgh"]) > 1
    assert len({tuple(map(tuple, ids)) for ids, _ in of(batches.once(), 1)}) == 1


def test_tokens_are_dropped_in_training_only():
    ids = Rows(np.tile(np.array([START, *range(4, 104), END], "int32"), 40), np.arange(41) * 102)
    texts = EncodedTexts(ids, np.full(40, 102, np.int32))
    batches = LabelledBatches(
        texts, np.zeros(40), np.ones(40), segments=False, batch_size=20, token_dropout=0.25, dropped_id=999
    )
    first, second, later = (inputs["ids"].numpy() for inputs, _, _ in batches.training(0).take(3))
    dropped = first == 999
    assert dropped.mean() == pytest.approx(0.25, abs=0.04)
    assert not dropped[:, [0, -1]].any()  # the start and the end stay
    assert (first[~dropped] == np.broadcast_to(ids[0], first.shape)[~dropped]).all()
    assert (first != second).any() and (first != later).any()  # drawn anew for each batch
    again = next(iter(batches.training(2)))[0]["ids"].numpy()
    assert (again == later).all()  # a resumed training draws the same
    assert not any((inputs["ids"].numpy() == 999).any() for inputs, _, _ in batches.once())
