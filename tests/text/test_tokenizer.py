"""What every tokenizer says of its ids."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.text import BytePairTokenizer, CharacterTokenizer, encode_corpus, previous

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


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("add_end", [False, True])
class TestACorpus:
    def test_has_the_ids_of_its_texts(self, tokenizer, add_end):
        texts = [*TEXTS, "", "", "a" * 50, *TEXTS]
        done = []
        ids, lengths = encode_corpus(tokenizer, iter(texts), add_end, done.append, batch_size=4)
        assert ids.dtype == np.int32 and done == [4, 4, 1]
        for text, row in zip(texts, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
            alone = tokenizer.tokenize([text], add_end=add_end).numpy()[0]
            assert row.tolist() == alone[alone != 0].tolist()

    def test_of_no_texts(self, tokenizer, add_end):
        assert [each.tolist() for each in encode_corpus(tokenizer, [], add_end)] == [[], []]

    def test_is_encoded_by_one_graph(self, tokenizer, add_end, monkeypatch):
        calls, split = [], type(tokenizer)._split
        monkeypatch.setattr(type(tokenizer), "_split", lambda self, texts: calls.append(texts) or split(self, texts))
        encode_corpus(tokenizer, TEXTS * 10, add_end, batch_size=3)
        assert len(calls) == 1 and not hasattr(calls[0], "numpy")  # traced once, never run eagerly
