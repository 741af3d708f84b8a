"""From pairs to batches: every pair in its bucket, in few shapes, in an order set by a seed."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo_training.batches.buckets import make_buckets
from zoo_training.batches.pair_batches import Batches, BatchesInStages, EncodedPairs, Sampler, encode
from zoo_training.corpora.pairs import Pairs
from zoo_training.ragged import RowsWriter

from zoo.text import END, BytePairTokenizer, CharacterTokenizer

SOURCE, TARGET = CharacterTokenizer("abcdefgh"), CharacterTokenizer("zyxwvuts")


def some_pairs(number=23, seed=0):
    """Different sources of 1 to 9 characters, with targets of 1 to 5."""
    random = np.random.default_rng(seed)
    sources = {"".join(random.choice(list("abcdefgh"), random.integers(1, 10))) for _ in range(10 * number)}
    sources = sorted(sources)[::7][:number]
    return Pairs(sources, ["".join(random.choice(list("zyxwvuts"), random.integers(1, 6))) for _ in sources])


def encoded(pairs):
    return encode(pairs, SOURCE, TARGET, 100, 100)


def of_lengths(lengths):
    """Pairs of these (source, target) lengths; ids count up through all pairs, so each is known by its first."""
    sides = []
    for side in np.transpose(lengths):
        writer = RowsWriter(None, "ids", np.int32)
        writer.append(np.arange(10, 10 + side.sum()), side)
        sides.append(writer.finish())
    return EncodedPairs(*sides, kept=np.arange(len(lengths)), too_long=0)


def to_list(rows):
    """Rows of ids as lists."""
    return [rows[row].tolist() for row in range(len(rows))]


def shapes(batches):
    """(batch size, source length, target length) of every bucket."""
    return [(bucket.batch_size, bucket.source_length, bucket.target_length) for bucket in batches.buckets]


def padding(lengths, bounds):
    """Tokens of padding, of the longer sides, if each pair is padded to the least bound that holds it."""
    return sum(min(bound for bound in bounds if bound >= length) - length for length in lengths)


LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)
quick = settings(deadline=None, max_examples=60)


class TestEncode:
    def test_ids_end_with_the_end_token(self):
        result = encoded(Pairs(["ab", "c"], ["z", "yxw"]))
        assert to_list(result.sources) == [[4, 5, 3], [6, 3]]
        assert to_list(result.targets) == [[4, 3], [5, 6, 7, 3]]
        assert result.lengths.tolist() == [[3, 2], [2, 4]]
        assert (len(result), result.too_long) == (2, 0)

    def test_too_long_pairs_are_left_out_and_counted(self):
        pairs = Pairs(["ab", "abc", "ab", "a", "abcd"], ["zy", "zy", "zyx", "z", "zyxw"])
        result = encode(pairs, SOURCE, TARGET, max_source=3, max_target=3)
        assert SOURCE.detokenize(result.sources.padded(np.arange(2), 3)).numpy().tolist() == [b"ab", b"a"]
        assert TARGET.detokenize(result.targets.padded(np.arange(2), 3)).numpy().tolist() == [b"zy", b"z"]
        assert (len(result), result.too_long) == (2, 3)

    @pytest.mark.parametrize("limits", [(3, 100), (100, 3)])
    def test_all_too_long(self, limits):
        with pytest.raises(
            ValueError,
            match=r"^All 2 pairs are longer than max_source={} or max_target={}; raise these, ".format(*limits),
        ):
            encode(Pairs(["abc", "abcd"], ["zyx", "zyxw"]), SOURCE, TARGET, *limits)


class TestBuckets:
    @quick
    @given(LENGTHS, st.integers(1, 8))
    def test_every_pair_in_one_bucket_that_is_just_long_enough(self, lengths, number):
        lengths = np.array(lengths)
        buckets = make_buckets(lengths, number)
        assert 1 <= len(buckets) <= number
        assert sorted(itertools.chain(*(bucket.rows for bucket in buckets))) == list(range(len(lengths)))
        for bucket in buckets:
            assert (bucket.source_length, bucket.target_length) == tuple(lengths[bucket.rows].max(axis=0))
        for shorter, longer in itertools.pairwise(buckets):  # by the longer side of a pair
            assert max(shorter.source_length, shorter.target_length) < lengths[longer.rows].max(axis=1).min()

    @quick
    @given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 8))
    def test_no_other_bounds_need_less_padding(self, longer, number):
        """Against all bounds there are."""
        buckets = make_buckets(np.array([(length, 1) for length in longer]), number)
        values = sorted(set(longer))
        bounds = itertools.combinations(values, min(number, len(values)))
        least = min(padding(longer, each) for each in bounds if each[-1] == values[-1])
        assert padding(longer, [bucket.source_length for bucket in buckets]) == least

    def test_a_bucket_that_cannot_fill_a_batch_joins_its_neighbour(self):
        lengths = [(2, 9)] * 3 + [(4, 5)] * 8 + [(6, 5)] * 8 + [(9, 3)] * 2
        assert [len(bucket.rows) for bucket in make_buckets(np.array(lengths), 21)] == [8, 8, 5]
        batches = Batches(of_lengths(lengths), batch_size=6, buckets=21)
        assert [len(bucket.rows) for bucket in batches.buckets] == [8, 13]
        assert shapes(batches) == [(6, 4, 5), (6, 9, 9)]
        first = Batches(of_lengths([(2, 2)] * 3 + [(5, 5)] * 8), batch_size=4, buckets=2)
        assert shapes(first) == [(4, 5, 5)]

    @quick
    @given(LENGTHS, st.integers(1, 8), st.integers(1, 20), st.none() | st.integers(1, 200))
    def test_every_bucket_fills_a_batch_and_holds_what_fits(self, lengths, number, batch_size, tokens):
        pairs = of_lengths(lengths)
        batches = Batches(pairs, batch_size, number, batch_tokens=tokens)
        if not tokens:
            assert {bucket.batch_size for bucket in batches.buckets} == {min(batch_size, len(lengths))}
        assert sorted(itertools.chain(*(bucket.rows for bucket in batches.buckets))) == list(range(len(lengths)))
        for bucket in batches.buckets:
            assert len(bucket.rows) >= bucket.batch_size >= 1
            assert (pairs.lengths[bucket.rows] <= [bucket.source_length, bucket.target_length]).all()


class TestTokenBudget:
    @quick
    @given(LENGTHS, st.integers(1, 8), st.integers(1, 200))
    def test_no_batch_has_more_tokens_unless_a_pair_alone_does(self, lengths, number, tokens):
        for bucket in Batches(of_lengths(lengths), 7, number, batch_tokens=tokens).buckets:
            longer = max(bucket.source_length, bucket.target_length)
            assert bucket.batch_size == 1 or bucket.batch_size * longer <= tokens
            # and another pair would be too much, or there is none
            assert (bucket.batch_size + 1) * longer > tokens or bucket.batch_size == len(lengths)

    def test_the_shorter_the_pairs_the_more_of_them(self):
        lengths = [(2, 3)] * 20 + [(10, 7)] * 20
        batches = Batches(of_lengths(lengths), batch_size=1, buckets=2, batch_tokens=30)
        assert shapes(batches) == [(10, 2, 3), (3, 10, 7)]
        assert batches.steps == 2 + 6
        assert batches.training().element_spec[1].shape.as_list() == [None, None]  # sizes differ: none is promised
        one = Batches(of_lengths(lengths), batch_size=1, buckets=1, batch_tokens=30)
        assert one.training().element_spec[1].shape.as_list() == [3, None]
        found = {
            (*inputs["source"].shape, labels.shape[1])
            for inputs, labels, _ in batches.training().take(batches.steps).as_numpy_iterator()
        }
        assert found == set(shapes(batches))


class TestPlan:
    @quick
    @given(LENGTHS, st.integers(1, 4), st.integers(1, 9), st.none() | st.integers(1, 200), st.integers(0, 3))
    def test_an_epoch_holds_no_pair_twice_and_as_many_as_fill_batches(self, lengths, number, size, tokens, epoch):
        batches = Batches(of_lengths(lengths), size, number, batch_tokens=tokens)
        plan = [*batches.plan(epoch)]
        rows = [row for _, batch in plan for row in batch]
        assert len(rows) == len(set(rows))
        assert len(plan) == batches.steps
        assert min(len(batch) for _, batch in plan) == batches.fewest_rows
        assert all(set(batch) <= set(bucket.rows) and len(batch) == bucket.batch_size for bucket, batch in plan)
        assert len(rows) == len(lengths) - sum(len(bucket.rows) % bucket.batch_size for bucket in batches.buckets)

    def test_the_order_follows_from_seed_and_epoch(self):
        pairs = encoded(some_pairs())

        def plan(seed, epoch):
            batches = Batches(pairs, batch_size=4, buckets=3, seed=seed)
            return [batch.tolist() for _, batch in batches.plan(epoch)]

        assert plan(1, 5) == plan(1, 5)
        assert plan(1, 5) not in (plan(1, 6), plan(2, 5), plan(5, 1))

    def test_buckets_are_mixed(self):
        batches = Batches(of_lengths([(2, 2)] * 40 + [(9, 9)] * 40), batch_size=4, buckets=2)
        lengths = [bucket.source_length for bucket, _ in batches.plan(0)]
        assert collections.Counter(lengths) == {2: 10, 9: 10}
        assert lengths != sorted(lengths)

    def test_in_time_every_pair_has_its_turn(self):
        """What an epoch leaves out is another rest each time."""
        batches = Batches(encoded(some_pairs()), batch_size=8, buckets=2)
        assert batches.steps * 8 < 23
        seen = {row for epoch in range(20) for _, batch in batches.plan(epoch) for row in batch}
        assert seen == set(range(23))


def by_hand(pairs, rows, source_length, target_length):
    """A batch written out in plain Python."""

    def ids(text, alphabet, length):
        known = [4 + alphabet.index(character) for character in text] + [3]
        return known + [0] * (length - len(known))

    source = [ids(pairs.sources[row], "abcdefgh", source_length) for row in rows]
    labels = [ids(pairs.targets[row], "zyxwvuts", target_length) for row in rows]
    weights = [[float(label != 0) for label in row] for row in labels]
    return source, [[2, *row[:-1]] for row in labels], labels, weights


WEIGHTS = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0.25, 0.4, 1.0, 1.5, 3.0])), min_size=1, max_size=4)


class TestCorporaWithWeights:
    def rows_of(self, batches, epoch):
        return np.concatenate([rows for _, rows in batches.plan(epoch)])

    def test_a_weight_is_how_many_times_an_epoch_sees_a_row(self):
        parts = [(6, 2.0), (9, 1 / 3), (5, 1.0)]
        batches = Batches(of_lengths([(3, 4)] * 20), 5, parts=parts)
        assert batches.steps == 4  # 12, 3 and 5 rows
        seen = [np.bincount(self.rows_of(batches, epoch), minlength=20) for epoch in range(3)]
        for counts in seen:
            assert counts[:6].tolist() == [2] * 6
            assert counts[6:15].sum() == 3
            assert counts[15:].tolist() == [1] * 5
        assert np.sum(seen, axis=0)[6:15].tolist() == [1] * 9, "each once in three epochs"
        assert batches.tokens == 4 * 20

    @quick
    @given(WEIGHTS, st.integers(1, 3))
    def test_no_row_of_a_bucket_is_ahead_of_another_one_by_more_than_one(self, parts, number):
        """Of what is drawn, before some are left out because they fill no batch."""
        number_of_rows = sum(rows for rows, _ in parts)
        lengths = [(1 + row % 4, 2) for row in range(number_of_rows)]
        batches = Batches(of_lengths(lengths), 2, number, parts=parts)
        ends = np.cumsum([rows for rows, _ in parts])
        counts = np.zeros(number_of_rows, int)
        for epoch in range(5):
            for index in range(len(batches.buckets)):
                counts += np.bincount(batches._drawn(index, epoch), minlength=number_of_rows)
            if batches._corpus_weights is None:
                assert counts.tolist() == [epoch + 1] * number_of_rows
                continue
            for bucket in batches.buckets:
                of_parts = np.split(bucket.rows, np.searchsorted(bucket.rows, ends[:-1]))
                for part, (_, weight) in zip(of_parts, parts, strict=True):
                    if len(part):
                        assert np.ptp(counts[part]) <= 1
                        assert counts[part].sum() == (epoch + 1) * max(1, round(weight * len(part)))
        assert len(self.rows_of(batches, 0)) == sum(bucket.batch_size for bucket, _ in batches.plan(0))

    def test_epochs_and_seeds_have_other_orders_and_the_same_ones_have_the_same(self):
        parts = [(11, 1.5), (12, 0.5)]
        one, same, other = (Batches(of_lengths([(3, 4)] * 23), 4, seed=seed, parts=parts) for seed in (0, 0, 1))
        orders = [self.rows_of(one, 0), self.rows_of(one, 1), self.rows_of(other, 0)]
        assert np.array_equal(orders[0], self.rows_of(same, 0))
        assert len({tuple(rows) for rows in orders}) == 3

    def test_corpora_are_mixed_within_batches(self):
        batches = Batches(of_lengths([(3, 4)] * 200), 20, parts=[(100, 1.5), (100, 0.5)])
        shares = [np.mean(rows < 100) for _, rows in batches.plan(0)]
        assert 0.4 < min(shares) <= max(shares) <= 1
        assert np.mean(shares) == pytest.approx(0.75)

    def in_stages(self, batch_size, first, second, steps=None):
        """Batches of two corpora of six and nine rows, whose weights change after two epochs."""
        stages = [
            (epoch, Batches(of_lengths([(3, 4)] * 15), batch_size, parts=list(zip((6, 9), weights, strict=True))))
            for epoch, weights in ((0, first), (2, second))
        ]
        return BatchesInStages(stages, steps)

    def test_a_corpus_that_has_ended_is_seen_no_more(self):
        batches = self.in_stages(2, (1.0, 1.0), (1.0, 0.0))
        assert (batches.steps, batches.tokens) == (7, 15 * 4)
        stream = list(batches.training().take(2 * 7 + 6).as_numpy_iterator())
        rows = [[(ids[0] - 10) // 3 for ids in inputs["source"]] for inputs, *_ in stream]
        assert len(set(itertools.chain(*rows[:7]))) == 14, "a pass of both, without the row that fills no batch"
        for begin in (14, 17):
            of_pass = itertools.chain(*rows[begin : begin + 3])
            assert sorted(of_pass) == list(range(6)), "a pass of the first alone, which an epoch's end does not cut off"
        for first in (0, 5, 13, 14, 15, 19):
            for ours, theirs in zip(stream[first:], batches.training(first).as_numpy_iterator(), strict=False):
                tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)
        assert batches.training().cardinality() == tf.data.INFINITE_CARDINALITY

    def test_stages_begin_after_as_many_batches_as_an_epoch_is_told_to_have(self):
        found = self.in_stages(3, (0.0, 1.0), (1.0, 0.0), steps=4).training().take(10).as_numpy_iterator()
        of_first = [bool(inputs["source"][0, 0] < 10 + 6 * 3) for inputs, *_ in found]
        assert of_first == 8 * [False] + 2 * [True]

    def test_a_later_stage_may_have_the_smallest_batch(self):
        batches = self.in_stages(8, (0.0, 1.0), (1.0, 0.0))
        sizes = [len(labels) for _, labels, _ in batches.training().take(4).as_numpy_iterator()]
        assert sizes == [8, 8, 6, 6] and batches.fewest_rows == 6

    def test_weights_of_one_change_nothing(self):
        pairs = encoded(some_pairs())
        one, other = Batches(pairs, 4, 2), Batches(pairs, 4, 2, parts=[(10, 1.0), (13, 1.0)])
        for epoch in range(2):
            for (_, ours), (_, theirs) in zip(one.plan(epoch), other.plan(epoch), strict=True):
                assert np.array_equal(ours, theirs)

    def test_going_on_after_some_batches(self):
        batches = Batches(encoded(some_pairs()), 4, 2, parts=[(9, 2.5), (14, 0.3)])
        whole = list(batches.training().take(3 * batches.steps))
        for first in (1, batches.steps + 2):
            for ours, theirs in zip(whole[first:], batches.training(first), strict=False):
                for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
                    assert np.array_equal(one, other)


class TestTraining:
    def test_batches_are_those_of_the_plan_epoch_after_epoch(self):
        pairs = some_pairs()
        batches = Batches(encoded(pairs), batch_size=4, buckets=3, seed=7)
        assert batches.steps == sum(len(bucket.rows) // 4 for bucket in batches.buckets)
        found = batches.training().take(2 * batches.steps).as_numpy_iterator()
        for (bucket, rows), (inputs, labels, weights) in zip([*batches.plan(0), *batches.plan(1)], found, strict=True):
            wanted = by_hand(pairs, rows, bucket.source_length, bucket.target_length)
            for ours, theirs in zip((inputs["source"], inputs["target"], labels, weights), wanted, strict=True):
                assert ours.tolist() == theirs

    def test_what_the_dataset_says_of_itself(self):
        batches = Batches(encoded(some_pairs()), batch_size=4)
        inputs, labels, weights = batches.training().element_spec
        ids = tf.TensorSpec([4, None], tf.int32)
        assert (inputs, labels, weights) == ({"source": ids, "target": ids}, ids, tf.TensorSpec([4, None], tf.float32))
        assert batches.training().cardinality() == tf.data.INFINITE_CARDINALITY

    @pytest.mark.parametrize(("passes", "more", "tokens"), [(1, -1, None), (3, 1, 30)])
    def test_going_on_after_some_batches(self, passes, more, tokens):
        batches = Batches(encoded(some_pairs(40)), batch_size=4, buckets=3, seed=7, batch_tokens=tokens)
        first, number = passes * batches.steps + more, 2 * batches.steps
        wanted = batches.training().skip(first).take(number).as_numpy_iterator()
        found = batches.training(first_step=first).take(number).as_numpy_iterator()
        for one, other in zip(wanted, found, strict=True):
            for ours, theirs in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
                assert np.array_equal(ours, theirs)

    def test_fewer_pairs_than_a_batch(self):
        batches = Batches(encoded(some_pairs(5)), batch_size=64, buckets=4)
        assert (batches.buckets[0].batch_size, batches.steps, len(shapes(batches))) == (5, 1, 1)
        (inputs, _, weights), *_ = batches.training().take(1)
        assert inputs["source"].shape[0] == 5
        assert int(tf.math.count_nonzero(weights[:, 0])) == 5


class TestSampling:
    """Texts, the same on both sides, whose pieces are drawn anew each time."""

    TEXTS = some_pairs(40).sources

    @pytest.fixture(scope="class")
    def pieces(self):
        return BytePairTokenizer.learn(self.TEXTS * 3, 320)

    def batches(self, pieces, **arguments):
        sampler = Sampler(self.TEXTS, np.arange(40), pieces, 0.5, 100)
        encoded = encode(Pairs(self.TEXTS, self.TEXTS), pieces, pieces, 100, 100)
        return Batches(encoded, batch_size=4, buckets=3, samplers=(sampler, sampler), **arguments)

    @pytest.mark.long
    def test_every_text_is_itself_in_other_pieces_also_where_it_goes_on(self, pieces):
        batches = self.batches(pieces, seed=2**32 - 1)
        seen, stream = {}, list(batches.training().take(2 * batches.steps))
        for step, (inputs, labels, weights) in enumerate(stream):
            _, rows = batches.plan(step // batches.steps)[step % batches.steps]
            for ids in (inputs["source"], labels):
                assert [text.decode() for text in pieces.detokenize(ids).numpy()] == [self.TEXTS[row] for row in rows]
                assert ids[:, -1].numpy().any()  # no longer than its longest
            assert np.array_equal(weights, labels != 0)
            for row, ids in zip(rows, inputs["source"].numpy(), strict=True):
                assert int(ids[np.flatnonzero(ids)[-1]]) == END
                seen.setdefault(row, set()).add(tuple(np.trim_zeros(ids)))
        assert sum(len(drawn) > 1 for drawn in seen.values()) > len(seen) / 2
        assert any(not np.array_equal(inputs["source"], labels) for inputs, labels, _ in stream), "one draw for both"
        first = len(stream) - 3
        for one, other in zip(stream[first:], batches.training(first).take(3), strict=True):
            assert np.array_equal(one[0]["source"], other[0]["source"])

    def test_no_more_pieces_than_allowed(self, pieces):
        usual = pieces.tokenize(self.TEXTS, add_end=True).numpy()
        sampler = Sampler(self.TEXTS, np.arange(40), pieces, 0.5, usual.shape[1])
        ids = sampler(tf.constant(self.TEXTS), tf.constant([1, 2], tf.int64)).numpy()
        assert ids.shape == usual.shape
        assert [text.decode() for text in pieces.detokenize(ids).numpy()] == self.TEXTS
        same = (ids == usual).all(axis=1)
        assert 0 < same.sum() < 40, "where a draw has more pieces the usual ones take its place"

    def test_once_through_has_the_usual_pieces(self, pieces):
        encoded = encode(Pairs(self.TEXTS, self.TEXTS), pieces, pieces, 100, 100)
        plain = Batches(encoded, batch_size=4, buckets=3).once()
        for one, other in zip(plain, self.batches(pieces).once(), strict=True):
            assert np.array_equal(one[0]["source"], other[0]["source"])


class TestOnce:
    @pytest.mark.parametrize(
        ("number", "batch_size", "buckets", "tokens"),
        [(23, 4, 3, None), (24, 4, 1, None), (5, 64, 4, None), (23, 4, 3, 25)],
    )
    def test_every_pair_counts_once(self, number, batch_size, buckets, tokens):
        """Also where a bucket does not fill its last batch, which then repeats pairs without weight."""
        pairs = some_pairs(number)
        batches = Batches(encoded(pairs), batch_size, buckets, batch_tokens=tokens)
        dataset = batches.once()
        assert dataset.cardinality() == len(list(dataset))
        counted = []
        for inputs, labels, weights in dataset.as_numpy_iterator():
            assert len(inputs["source"]) in {bucket.batch_size for bucket in batches.buckets}
            texts = zip(SOURCE.detokenize(inputs["source"]).numpy(), TARGET.detokenize(labels).numpy(), strict=True)
            for text, row, weight in zip(texts, labels, weights, strict=True):
                assert weight.tolist() in ([float(label != 0) for label in row], [0.0] * len(row))
                if weight.any():
                    counted.append(tuple(side.decode() for side in text))
        assert sorted(counted) == sorted(zip(pairs.sources, pairs.targets, strict=True))
