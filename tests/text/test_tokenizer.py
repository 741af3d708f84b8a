"""What every tokenizer says of its ids."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.text import BytePairTokenizer, CharacterTokenizer, previous

TEXTS = ["größer 中 😀", "ab\n", ""]
TOKENIZERS = {
    "characters": CharacterTokenizer("größe 中😀ab\n"),
    "pieces": BytePairTokenizer.learn(["größer größer ab"] * 3, 270),
}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
class TestWritten:
    def test_adds_up_to_the_text(self, tokenizer):
        written = tokenizer.written(tokenizer.tokenize(TEXTS, add_start=True, add_end=True))
        assert [b"".join(row).decode() for row in written.numpy()] == TEXTS
        assert max(map(len, written.numpy().ravel())) <= tokenizer.longest_written

    def test_special_and_unknown_ids(self, tokenizer):
        replacement = "\ufffd".encode()
        ids = [[0, 1, 2, 3], [-1, tokenizer.size, 2**31 - 1, -(2**31)]]
        assert tokenizer.written(ids).numpy().tolist() == [[b"", replacement, b"", b""], [replacement] * 4]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_is_read_to_write_ids(dtype):
    read = previous(tf.constant([[4, 5, 3], [6, 3, 0]], dtype))
    np.testing.assert_array_equal(read, np.array([[2, 4, 5], [2, 6, 3]], dtype), strict=True)
