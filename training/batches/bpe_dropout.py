"""Training ids that are drawn anew each time that a pair is seen: BPE-dropout (https://arxiv.org/abs/1910.13267)."""

from __future__ import annotations

import tensorflow as tf

from zoo.text import BytePairTokenizer


class Sampler:
    """Splits the words of texts into other pieces each time.

    Args:
        texts: the texts.
        tokenizer: their tokenizer.
        dropout: how likely a pair of pieces is passed over, at each merge.
        longest: the most ids of a text, end token included. Where a draw has more, the usual pieces take its place;
            none of those has more.
    """

    def __init__(self, texts: list[str], tokenizer: BytePairTokenizer, dropout: float, longest: int):
        self._texts = tf.constant(texts)
        self._tokenizer = tokenizer
        self._dropout = dropout
        self._longest = longest

    def __call__(self, rows: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws ids, each row with its end token: int32 `(B, T)`.

        Args:
            rows: numbers of the texts, int `(B,)`.
            seed: what the pieces follow from, int `(2,)`.
        """
        texts = tf.gather(self._texts, rows)
        ids = self._tokenizer.sample(texts, self._dropout, seed, add_end=True)
        too_long = tf.math.count_nonzero(ids, axis=1) > self._longest
        return tf.cond(tf.reduce_any(too_long), lambda: self._shortened(ids, too_long, texts), lambda: ids)

    def _shortened(self, ids: tf.Tensor, too_long: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        usual = self._tokenizer.tokenize(texts, add_end=True)
        usual = tf.pad(usual, [[0, 0], [0, self._longest - tf.shape(usual)[1]]])
        return tf.where(too_long[:, None], usual, ids[:, : self._longest])
