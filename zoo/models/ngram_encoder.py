"""An encoder of n-grams: each token with the few before it, and nothing else of the text."""

from typing import Any

import keras
from keras import ops

from zoo.layers import Dropout, ReversibleEmbedding
from zoo.layers.checks import check_positive, check_rate
from zoo.layers.functions.tensors import Tensor
from zoo.models.family import FunctionalModel

_FACTOR = 20_011  # odd; times the largest key, plus the largest id, it is still an int32
_MOST_BUCKETS = 2**16


@keras.saving.register_keras_serializable(package="zoo")
class NgramEncoder(FunctionalModel):
    """Looks up the n-grams that end at each token, for every n from 1 to N: nothing farther away counts.

        h_t = sum over n of d_n E[key(x_t, x_{t-1}, ..., x_{t-n+1})],    d = dropout(ones)

    There are far more n-grams than rows of E. Each is given a row by a hash, so that some n-grams share one. This is
    how fastText reads texts (Joulin et al. 2016), without a mean over the text: a head decides how vectors are joined.
    The positions before the start of a text count as padding, id 0.

    With few texts, such a model memorises less than one that reads the whole text, especially under a `Classifier`
    with `pooling="votes"`.

    Axes: B batch, T length, V vocabulary, D width, N the longest n-gram.

    Args:
        vocabulary_size: number of ids, V.
        units: width of the vectors, D.
        longest: tokens of the longest n-gram, N.
        buckets: rows of E, a power of two, at most 65,536.
        dropout: rate, on whole n-grams, so that the shorter ones of a token also learn what a longer one says.
        dtype: name or policy that all layers compute in; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict):
        ids: `(B, T)`, 0 for padding.

    Returns:
        A vector for each token, `(B, T, D)`; the vectors at padding have no meaning.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> import numpy as np
        >>> tuple(NgramEncoder(vocabulary_size=20, units=8)({"ids": np.ones((2, 5), "int32")}).shape)
        (2, 5, 8)

    Reference: https://arxiv.org/abs/1607.01759
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 32,
        longest: int = 4,
        buckets: int = 65_536,
        dropout: float = 0.0,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        vocabulary_size = check_positive("vocabulary_size", vocabulary_size)
        units = check_positive("units", units)
        longest = check_positive("longest", longest)
        buckets = check_positive("buckets", buckets)
        if buckets > _MOST_BUCKETS or buckets & (buckets - 1):
            raise ValueError(f"`buckets` must be a power of two, at most {_MOST_BUCKETS}. Received: buckets={buckets}")
        check_rate("dropout", dropout)
        dtype = keras.dtype_policies.get(dtype)

        # Layers.
        self.ngram_embedding = ReversibleEmbedding(
            buckets,
            units,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=0.1),
            dtype=dtype,
            name="ngram_embedding",
        )
        self.ngram_dropout = Dropout(dropout, dtype=dtype, name="ngram_dropout")

        # Graph.
        ids = keras.Input((None,), dtype="int32", name="ids")  # (B, T)
        keys = ops.stack(ngram_keys(ids, longest, buckets), axis=-1)  # (B, T, N)
        kept = self.ngram_dropout(ops.ones_like(keys, dtype=dtype.compute_dtype))  # (B, T, N)
        hidden = ops.sum(kept[..., None] * self.ngram_embedding(keys), axis=2)  # (B, T, D)
        super().__init__({"ids": ids}, hidden, dtype, name, trainable)

        # Config.
        self.vocabulary_size = vocabulary_size
        self.units = units
        self.longest = longest
        self.buckets = buckets
        self.dropout = dropout


def ngram_keys(ids: Tensor, longest: int, buckets: int) -> list[Tensor]:
    """The keys of the n-grams that end at each token: for each n a tensor `(B, T)`, from 0 to `buckets - 1`.

    A token with those before it is read like the digits of a number, of which the remainder counts:

        key_1 = x_t mod buckets,    key_n = (20011 key_{n-1} + x_{t-n+1} + 1) mod buckets

    Modulo a power of two, an odd factor keeps different keys apart and spreads them. Modulo 20,000 it would be 11, and
    the 27,000 trigrams of 30 letters would have 3,858 keys.

    Args:
        ids: int32 `(B, T)`.
        longest: the largest n.
        buckets: a power of two, at most 65,536.
    """
    keys = [ids % buckets]  # (B, T)
    for _ in range(longest - 1):
        ids = ops.pad(ids, [[0, 0], [1, 0]])[:, :-1]  # (B, T): one token farther back
        keys.append((keys[-1] * _FACTOR + ids + 1) % buckets)  # (B, T)
    return keys
