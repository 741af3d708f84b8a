"""Tokens that were added to a vocabulary, such as `<|im_start|>`: found in texts before anything else is done."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from zoo.text.lookup import lookup_table
from zoo.text.words import SEPARATOR, character_class, separated

# Marks the beginning of what may be a token, and replaces a span that is a token. No UTF-8 contains this byte.
_MARK = b"\xfe"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is matched in a text as it is, by the names of `tokenizer.json`.

    Attributes:
        content: the text that it matches.
        special: whether it is a control token, such as the beginning of a turn. It is matched only if the caller allows
            it, and `detokenize` writes nothing for it.
        normalized: whether it is matched in the normalised text, and in its normalised form.
        lstrip: whether white space before it belongs to it.
        rstrip: whether white space behind it belongs to it.
        in_words: whether words may become it too, as they become any piece. In `tokenizer.json` they may if the model's
            own vocabulary has it. A special token is never part of a word.
    """

    content: str
    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    in_words: bool = True


class AddedTokens(tf.Module):
    """Cuts texts into spans, which are added tokens or the text between them, as the `tokenizers` library does.

    First it finds the tokens with `normalized=False`. Then it normalises the text between them, and finds the other
    tokens there. It searches from left to right; of several tokens that begin at one place, it takes the longest.

    Axes: B batch, P spans of all texts.

    Args:
        tokens: the tokens, and the id of each.
        normalize: the function that normalises texts `(B,)`.

    Raises:
        ValueError: two tokens match the same text.
    """

    def __init__(self, tokens: Mapping[AddedToken, int], normalize: Callable[[tf.Tensor], tf.Tensor]):
        super().__init__()
        self._normalize = normalize
        self._without_special = self._finders({token: tokens[token] for token in tokens if not token.special})
        self._with_special = self._finders(tokens)

    def _finders(self, tokens: Mapping[AddedToken, int]) -> list["_Finder | None"]:
        """What finds the tokens before the texts are normalised, and after."""
        found: list[_Finder | None] = []
        for normalized in (False, True):
            texts = {token: token.content for token in tokens if token.normalized == normalized}
            if normalized and texts:
                normal = self._normalize(tf.constant([*texts.values()])).numpy()
                # A token of which nothing is left, such as an accent where accents are stripped, is in no text.
                texts = {token: text.decode() for token, text in zip(texts, normal, strict=True) if text}
            if len({*texts.values()}) < len(texts):
                raise ValueError(f"No two `added_tokens` may match the same text. Received: {sorted(texts.values())}")
            found.append(_Finder([*texts], [*texts.values()], [tokens[token] for token in texts]) if texts else None)
        return found

    def may_be_in_texts(self, special_tokens: bool) -> bool:
        """Whether there are any tokens to find; if not, texts need only be normalised."""
        return any(self._with_special if special_tokens else self._without_special)

    def __call__(self, texts: tf.Tensor, special_tokens: bool) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Normalises texts and cuts them.

        Args:
            texts: valid UTF-8, `(B,)`.
            special_tokens: whether special tokens are found too.

        Returns:
            The spans in their order, none of them empty, `(P,)`; in place of a token stands the byte FE, which no text
            has. The text of each span, int64 `(P,)`. The id of each token and -1 for text, int32 `(P,)`.
        """
        before, after = self._with_special if special_tokens else self._without_special
        rows = tf.range(tf.size(texts, tf.int64))
        ids = tf.fill(tf.shape(texts), -1)
        if before is not None:
            texts, rows, ids = before(texts, rows, ids)
        texts = tf.where(ids < 0, self._normalize(tf.where(ids < 0, texts, "")), _MARK)  # (P,)
        if after is not None:
            texts, rows, ids = after(texts, rows, ids)
        return texts, rows, ids


class _Finder(tf.Module):
    """Finds some tokens in spans of text.

    Args:
        tokens: the tokens.
        texts: the text that each of them matches.
        ids: the id of each.
    """

    def __init__(self, tokens: list[AddedToken], texts: list[str], ids: list[int]):
        super().__init__()
        # RE2 takes the first alternative that matches: here the longest one.
        longest_first = sorted(texts, key=len, reverse=True)
        self._pattern = "|".join("".join(f"\\x{{{ord(c):x}}}" for c in text) for text in longest_first)
        space = character_class(r"\s")
        self._space_before, self._space_after = rf"[{space}]+\z", rf"\A[{space}]+"
        # The index after the last token stands for text.
        keys = [_MARK + text.encode() for text in texts]
        self._indices = lookup_table(keys, range(len(keys)), tf.string, default=len(keys))
        self._ids = np.array([*ids, -1], np.int32)
        self._lstrip = np.array([*(token.lstrip for token in tokens), False])
        self._rstrip = np.array([*(token.rstrip for token in tokens), False])

    def __call__(self, texts: tf.Tensor, rows: tf.Tensor, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Cuts spans at the tokens in them: spans, their rows and ids, all `(P,)`, with a larger P."""
        spans = tf.strings.regex_replace(texts, self._pattern, SEPARATOR + _MARK + rb"\0" + SEPARATOR)
        spans, origins = separated(spans)  # (P,), (P,): a larger P
        indices = self._indices.lookup(spans)  # (P,)
        if self._lstrip.any() or self._rstrip.any():
            spans = self._stripped(spans, indices, origins)
            kept = tf.where(spans != b"")[:, 0]  # (P,): without spans that were only white space
            spans, origins, indices = (tf.gather(each, kept) for each in (spans, origins, indices))
        found = tf.gather(tf.constant(self._ids), indices)  # (P,)
        spans = tf.where(found < 0, spans, _MARK)
        return spans, tf.gather(rows, origins), tf.maximum(found, tf.gather(ids, origins))

    def _stripped(self, spans: tf.Tensor, indices: tf.Tensor, origins: tf.Tensor) -> tf.Tensor:
        """Takes white space that belongs to tokens off the spans beside them, `(P,)`."""
        size, together = tf.size(spans), origins[1:] == origins[:-1]  # (P - 1,)
        before = tf.gather(tf.constant(self._lstrip), indices)[1:] & together
        after = tf.gather(tf.constant(self._rstrip), indices)[:-1] & together
        # Cut to the size: without any spans, the added False would be one entry too many.
        before = tf.concat([before, [False]], axis=0)[:size]  # (P,)
        after = tf.concat([[False], after], axis=0)[:size]  # (P,)
        spans = tf.where(before, tf.strings.regex_replace(spans, self._space_before, ""), spans)
        return tf.where(after, tf.strings.regex_replace(spans, self._space_after, ""), spans)
