import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.functions.random import DropoutMask, threefry

SHAPE = (2, 3, 50, 70)  # 21,000 numbers: a share of 0.3 has a standard deviation of 0.0032


def make(rate=0.3, seed=7):
    return DropoutMask(rate, keras.random.SeedGenerator(seed))


@pytest.mark.parametrize(("shape", "rate"), [(SHAPE, 0.3), ((40, 501), 0.8), ((20_000,), 0.1), ((20_000, 1), 0.5)])
def test_the_rate_is_the_share_of_zeros_in_both_halves_and_the_mean_stays_one(shape, rate):
    dropout_mask = make(rate)(shape)
    assert (dropout_mask.shape, dropout_mask.dtype) == (shape, "float32")
    np.testing.assert_allclose(np.unique(dropout_mask), [0, 1 / (1 - rate)], rtol=1e-6)
    zeros, half = np.array(dropout_mask) == 0, (shape[-1] + 1) // 2
    for part in (zeros[..., :half], zeros[..., half:]):
        deviation = (rate * (1 - rate) / max(part.size, 1)) ** 0.5
        assert not part.size or abs(part.mean() - rate) < 5 * deviation


def test_no_rate_is_no_noise():
    np.testing.assert_array_equal(make(0.0)((2, 5)), np.ones((2, 5)))


def test_zeros_are_spread_over_all_axes():
    zeros = np.array(make()(SHAPE)) == 0
    for axis in range(4):
        slices = np.moveaxis(zeros, axis, 0).reshape(SHAPE[axis], -1)
        assert len(np.unique(slices, axis=0)) == SHAPE[axis]
        np.testing.assert_allclose(slices.mean(axis=1), 0.3, atol=0.12)


def test_a_block_is_drawn_the_same_each_time():
    dropout_mask = make()
    first = dropout_mask((4, 9), 5)
    dropout_mask((4, 9), 6)
    np.testing.assert_array_equal(dropout_mask((4, 9), 5), first)
    np.testing.assert_array_equal(dropout_mask((4, 9), 0), dropout_mask((4, 9)))


def test_equal_seeds_give_equal_numbers_and_others_do_not():
    np.testing.assert_array_equal(make()(SHAPE, 3), make()(SHAPE, 3))
    assert (np.array(make(seed=7)(SHAPE)) != np.array(make(seed=8)(SHAPE))).mean() > 0.3


def test_each_call_and_each_block_has_numbers_of_its_own():
    generator = keras.random.SeedGenerator(7)
    calls = [DropoutMask(0.3, generator) for _ in range(4)]
    drawn = [np.array(call((20, 30), block)) for call in calls for block in (0, 1, 2, 1000, 2_000_000)]
    # Two independent draws differ in 2 x 0.3 x 0.7 of their places.
    for one, other in itertools.combinations(drawn, 2):
        np.testing.assert_allclose(np.mean(one != other), 0.42, atol=0.1)


def test_takes_one_step_of_the_generator():
    generator, other = keras.random.SeedGenerator(7), keras.random.SeedGenerator(7)
    dropout_mask = DropoutMask(0.3, generator)
    dropout_mask((2, 3)), dropout_mask((2, 3), 1)
    other.next()
    np.testing.assert_array_equal(generator.state.value, other.state.value)


def test_shape_and_block_may_be_tensors_in_a_graph():
    dropout_mask = make()

    @tf.function(input_signature=[tf.TensorSpec((None, 4)), tf.TensorSpec((), tf.int32)], autograph=False)
    def call(like, block):
        return dropout_mask((2, tf.shape(like)[0], 4), block)

    for length, block in ((3, 1), (6, 5)):
        np.testing.assert_array_equal(call(tf.zeros((length, 4)), block), dropout_mask((2, length, 4), block))


def test_draws_what_keras_draws_in_a_graph_and_without_one():
    """A stopped training goes on with the numbers that it would have had."""
    generator, other = keras.random.SeedGenerator(7), keras.random.SeedGenerator(7)
    expected = keras.random.uniform((4, 50), seed=other) >= 0.3
    np.testing.assert_array_equal(DropoutMask(0.3, generator)((4, 100))[:, :50] != 0, expected)
    masks = [DropoutMask(0.3, keras.random.SeedGenerator(5)) for _ in range(2)]
    np.testing.assert_array_equal(tf.function(lambda: masks[0](SHAPE), autograph=False)(), masks[1](SHAPE))


@pytest.mark.parametrize(
    ("counters", "keys", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
@pytest.mark.parametrize("jit_compile", [True, False], ids=["XLA", "graph"])
def test_threefry_gives_the_words_that_its_authors_publish(counters, keys, words, jit_compile):
    """The known answers of Random123."""
    given = [tf.constant([each] if number < 2 else each, tf.uint32) for number, each in enumerate((*counters, *keys))]
    results = tf.function(lambda a, b, *keys: threefry((a, b), keys), jit_compile=jit_compile, autograph=False)(*given)
    assert [int(each[0]) for each in results] == list(words)


def compiled(rate=0.3, seed=7, block=0, shape=SHAPE):
    """What `DropoutMask` draws under XLA."""
    generator = keras.random.SeedGenerator(seed)
    return np.array(
        tf.function(lambda: DropoutMask(rate, generator)(shape, block), jit_compile=True, autograph=False)()
    )


@pytest.mark.parametrize("rate", [0.05, 0.8])
def test_xla_drops_the_share_of_each_quarter_independently_of_the_others(rate):
    """A word decides two places, and a counter gives two words."""
    shape = (300, 402)  # not a multiple of four
    dropout_mask = compiled(rate, shape=shape)
    np.testing.assert_allclose(np.unique(dropout_mask), [0, 1 / (1 - rate)], rtol=1e-6)
    dropped = dropout_mask == 0
    quarters = [dropped[:, 101 * i : 101 * i + 99] for i in range(4)]
    neighbours = [(dropped[:, :-1], dropped[:, 1:]), (dropped[:-1], dropped[1:])]
    for one, other in [*itertools.combinations(quarters, 2), *neighbours]:
        for share, expected in ((one.mean(), rate), (other.mean(), rate), ((one & other).mean(), rate**2)):
            assert abs(share - expected) < 5 * (expected * (1 - expected) / one.size) ** 0.5


def test_under_xla_each_seed_call_and_block_has_numbers_of_its_own():
    generator = keras.random.SeedGenerator(7)

    @tf.function(jit_compile=True, autograph=False)
    def call():
        dropout_mask = DropoutMask(0.3, generator)
        return [dropout_mask((40, 30), block) for block in (0, 1, 1000)], dropout_mask((40, 30), 1)

    drawn, others = [], []
    for _ in range(3):
        blocks, again = call()
        np.testing.assert_array_equal(blocks[1], again)
        drawn += [np.array(each) for each in blocks]
    others = [compiled(seed=seed, shape=(40, 30)) for seed in (8, 2**31)]
    for one, other in itertools.combinations([*drawn, *others], 2):
        np.testing.assert_allclose(np.mean(one != other), 0.42, atol=0.08)


def test_xla_draws_without_the_function_that_is_slow_there():
    generator = keras.random.SeedGenerator(7)
    call = tf.function(lambda: DropoutMask(0.3, generator)(SHAPE), jit_compile=True, autograph=False)
    operations = {each.type for each in call.get_concrete_function().graph.get_operations()}
    assert not [each for each in operations if each.startswith("StatelessRandom")]
