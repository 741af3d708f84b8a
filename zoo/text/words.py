r"""Cutting texts into words by the regular expressions of byte-level tokenizers, without look-ahead.

Merges never leave a word, so a text has the library's ids only if it is cut exactly as the library cuts it. The
library's expressions end in `\s+(?!\S)|\s+`: of several white-space characters before a word, the last goes to the
word. RE2, TensorFlow's engine, has no look-ahead. Here a first replacement cuts that last character off the others; the
expression without its look-ahead does the rest.

Whether this gives the same words depends on the rest of the expression. So only the expressions of `PATTERNS` are
allowed, and tests compare each of them with the library on all characters and on random texts.

Axes: B batch, W words of all texts.
"""

import functools
import re
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from tokenizers import Regex, normalizers, pre_tokenizers

from zoo.text.canonical import every_character

# No UTF-8 contains this byte, so it is in no text and no pattern matches it.
SEPARATOR = b"\xff"

GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# White space ends at its last line break here, if it has one.
QWEN_2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_3 = QWEN_2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
QWEN_3_5 = QWEN_2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
# The expressions that can be read. Between the matches of `_PARTIAL` there are other characters, which are words too.
_WHOLE = (GPT_2, QWEN_2, LLAMA_3, QWEN_3_5)
_PARTIAL = (r"\p{N}", r"\p{N}+", r"\p{N}{1,3}")
PATTERNS = (*_WHOLE, *_PARTIAL)
_LOOK_AHEAD = r"|\s+(?!\S)"


def split_into_words(
    texts: tf.Tensor, patterns: Sequence[str] = (GPT_2,), individual_digits: bool | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Cuts texts as the regular expressions of the `tokenizers` library do, without leaving anything out.

    GPT-2's expression cuts off English endings such as `'s`; runs of letters, of numbers or of other characters, with
    the space before them; and white space, whose last character goes to the next word. The classes of characters are
    those of the library, which may know a newer Unicode than TensorFlow.

    Args:
        texts: valid UTF-8, `(B,)`. Bytes that are no UTF-8 are words, unless they are `SEPARATOR`.
        patterns: some of `PATTERNS`; each one cuts the words of the one before it further. An empty sequence leaves
            texts whole.
        individual_digits: as in the library's `Digits`, which comes before the patterns: True cuts off every digit,
            False every run of digits, None none.

    Returns:
        All words of all texts in their order, none of them empty, `(W,)`, and the index of the text of each word, int64
        `(W,)`.
    """
    if individual_digits is not None:
        digits = _digits() if individual_digits else _digits() + "+"
        texts = tf.strings.regex_replace(texts, digits, SEPARATOR + rb"\0" + SEPARATOR)  # (B,)
    for pattern in patterns:
        before_last_space, word, whole = _translated(pattern)
        if before_last_space is not None:
            texts = tf.strings.regex_replace(texts, before_last_space, rb"\1" + SEPARATOR + rb"\2")  # (B,)
        # Every word ends with a separator, across which no expression matches.
        texts = tf.strings.regex_replace(texts, word, (b"" if whole else SEPARATOR) + rb"\0" + SEPARATOR)  # (B,)
    return separated(texts)


def separated(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What stands between the separators in texts `(B,)`: words `(W,)`, none empty, and the text of each, `(W,)`."""
    split = tf.raw_ops.StringSplitV2(input=texts, sep=SEPARATOR)  # values (W + empty ones,), indices (.., 2)
    kept = tf.where(split.values != b"")[:, 0]  # (W,)
    return tf.gather(split.values, kept), tf.gather(split.indices[:, 0], kept)  # (W,), (W,)


def check_patterns(patterns: Sequence[str]) -> None:
    """Raises a `ValueError` for a pattern that cannot be read."""
    for pattern in patterns:
        if pattern not in PATTERNS:
            raise ValueError(
                "`patterns` must be of zoo.text.words.PATTERNS, which have been compared with the library. "
                f"Received: {pattern!r}"
            )


@functools.cache
def _translated(pattern: str) -> tuple[str | None, str, bool]:
    """For RE2: white space before a word, in two groups; a word; and whether words leave nothing between them."""
    if _LOOK_AHEAD not in pattern:
        return None, _with_ranges(pattern), pattern in _WHOLE
    # If line breaks end white space, a line break before a word does not belong to the word.
    before_last_space = r"(\s)([^\S\r\n]\S)" if r"|\s*[\r\n]+" in pattern else r"(\s)(\s\S)"
    return _with_ranges(before_last_space), _with_ranges(pattern.replace(_LOOK_AHEAD, "")), pattern in _WHOLE


def _with_ranges(pattern: str) -> str:
    r"""A pattern with the library's characters in place of classes such as `\p{L}` and `\s`."""
    inside, parts = False, []
    for part in re.findall(r"\\p\{\w+\}|\\.|[^\\]", pattern):
        if part in ("[", "]"):
            inside = part == "["
        if part.startswith(r"\p") or part in (r"\s", r"\S"):
            part = character_class(part) if inside else f"[{character_class(part)}]"
        parts.append(part)
    return "".join(parts)


@functools.cache
def character_class(name: str) -> str:
    """The code points that a class of the library's regular expressions has, as ranges for RE2."""
    return in_ranges(normalizers.Replace(Regex(f"[^{name}]+"), "").normalize_str(every_character()))


@functools.cache
def _digits() -> str:
    r"""The characters that the library's `Digits` cuts off; it may know more of them than its own `\p{N}`."""
    # Runs of digits and of other characters alternate, so the first character of a run tells its kind.
    runs = (run for run, _ in pre_tokenizers.Digits().pre_tokenize_str(every_character()))
    return f"[{in_ranges(''.join(run for run in runs if _is_digit(run[0])))}]"


def _is_digit(character: str) -> bool:
    return len(pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(character * 2)) == 2


def in_ranges(characters: Iterable[str]) -> str:
    """Sorted characters as ranges for RE2."""
    codes = np.frombuffer("".join(characters).encode("utf-32-le"), "<u4")  # a class may have a million
    ends = np.flatnonzero(np.diff(codes) != 1)
    firsts, lasts = np.insert(codes[ends + 1], 0, codes[:1]), np.append(codes[ends], codes[-1:])
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in zip(firsts, lasts, strict=True))
