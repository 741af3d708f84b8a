"""What every tokenizer says of its ids."""

import pytest

from zoo.text import BytePairTokenizer, CharacterTokenizer

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
