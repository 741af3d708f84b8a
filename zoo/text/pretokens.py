"""GPT-2's pre-tokenisation in the graph: texts to words, of which byte pairs never leave one."""

import functools
import itertools
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tokenizers import Regex, normalizers

from zoo.text.expansion import Expansion

# In no UTF-8, so that it can neither be in a text nor be matched by the patterns.
_SEPARATOR = b"\xff"


def split_into_words(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Cuts texts as the regular expression of GPT-2 does, without leaving anything out.

    It is `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: English endings; letters,
    numbers or other characters, with the space before them; whitespace, of which the last character is left to what
    follows. The classes of characters are those of the `tokenizers` library, which may know more of Unicode than
    TensorFlow.

    Axes: B batch, W words of all texts.

    Args:
        texts: valid UTF-8, `(B,)`.

    Returns:
        All words of all texts in their order, none of them empty, `(W,)`, and the index of the text of each, int64
        `(W,)`.
    """
    before_last_space, word = _patterns()
    # TensorFlow's expressions have no look-ahead. So the last of several spaces before a word is cut off first: no
    # expression matches across a separator.
    texts = tf.strings.regex_replace(texts, before_last_space, rb"\1" + _SEPARATOR + rb"\2")
    texts = tf.strings.regex_replace(texts, word, rb"\0" + _SEPARATOR)
    split = tf.raw_ops.StringSplitV2(input=texts, sep=_SEPARATOR)
    kept = tf.where(split.values != b"")[:, 0]  # (W,)
    return tf.gather(split.values, kept), tf.gather(split.indices[:, 0], kept)


class Lowercase(tf.Module):
    """Turns texts into lower case, character by character, as the `Lowercase` of the `tokenizers` library does.

    Unlike `tf.strings.lower`, it does not depend on the locale of the process, nor on what follows a sigma.
    """

    def __init__(self):
        super().__init__()
        self._expansion = Expansion(_lowered())

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Turns valid UTF-8 `(B,)` into lower case, `(B,)`."""
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        values, rows = self._expansion(code_points.values, code_points.value_rowids())
        lowered = tf.RaggedTensor.from_value_rowids(values, rows, code_points.nrows(), validate=False)
        return tf.strings.unicode_encode(lowered, "UTF-8", errors="replace")


@functools.cache
def _patterns() -> tuple[str, str]:
    """The expressions for the end of whitespace before a word, in two groups, and for a word."""
    letter, number, space = (_character_class(name) for name in (r"\p{L}", r"\p{N}", r"\s"))
    words = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+| ?[^{space}{letter}{number}]+|[{space}]+"
    return rf"([{space}])([{space}][^{space}])", words


def _character_class(name: str) -> str:
    """The code points that a class of the library's regular expressions has, as ranges for RE2."""
    members = normalizers.Replace(Regex(f"[^{name}]+"), "").normalize_str(_all_characters())
    ranges = (f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in _ranges(map(ord, members)))
    return "".join(ranges)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers."""
    # Inside a run, number and index grow alike.
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


@functools.cache
def _lowered() -> dict[str, str]:
    """The lower case of each character that the library changes."""
    lowercase = normalizers.Lowercase().normalize_str
    characters = _all_characters()
    # Most stretches have no upper case, and one call tells.
    stretches = (characters[start : start + 256] for start in range(0, len(characters), 256))
    changed = itertools.chain.from_iterable(stretch for stretch in stretches if lowercase(stretch) != stretch)
    return {character: lower for character in changed if (lower := lowercase(character)) != character}


def _all_characters() -> str:
    """All that UTF-8 can spell."""
    return "".join(map(chr, itertools.chain(range(0xD800), range(0xE000, 0x110000))))
