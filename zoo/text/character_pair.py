"""A tokenizer whose tokens are subwords made of characters, with bytes for what it has no character for."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text.added_tokens import AddedTokens
from zoo.text.byte_pair_graph import Characters, Merging, WordPieces
from zoo.text.pair_tokenizer import (
    PairTokenizer,
    check_pieces,
    check_unk_token,
    checked_added_tokens,
    checked_pairs,
    merges_of,
    of_words,
    visible,
    whole_words,
)
from zoo.text.strings import is_utf8
from zoo.text.tokenizer import FIRST, REPLACEMENT
from zoo.text.words import SEPARATOR, separated

SPACE = "▁"
_SCHEMES = ("first", "always", "never")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class CharacterPairTokenizer(PairTokenizer):
    """Splits texts into pieces by byte-pair encoding over characters, as Llama 1 and 2 and TinyLlama do.

    Where `BytePairTokenizer` begins with bytes, this one begins with characters. A space is written `▁`, and a text
    usually begins with one. A character that the vocabulary lacks is written as its bytes, the pieces `<0x00>` to
    `<0xFF>`. The graph gives the same ids as the `tokenizers` library for every text.

    The library has no words here: it merges a whole text as one. In nearly every vocabulary `▁` stands only at the
    beginning of a piece. Then no merge crosses the border of a word, so texts are cut into words, and words are looked
    up in a table, as in `BytePairTokenizer`. A vocabulary with other pieces is read too, but slowly: each text is
    merged as one long word.

    Ids 0 to 3 are padding, unknown, start and end; the piece `vocabulary[i]` has the id `i + 4`. The vocabulary's own
    `<unk>`, `<s>` and `</s>` are among these pieces.

    Axes: B batch, T length.

    Args:
        vocabulary: the pieces in the order of their ids, and the added tokens.
        merges: pairs of pieces with a space between, in the order in which they are merged. Both pieces and what they
            make are in the vocabulary.
        prepend: whether a `▁` is put before every text, even if it begins with a space, and before the text behind an
            added token. This is the normalizer `Prepend` of Llama's `legacy` form.
        prepend_scheme: the same in the pre-tokenizer `Metaspace`, which puts no `▁` before a space: "first" for texts,
            "always" also behind added tokens, "never". None if there is no `Metaspace`.
        split: whether no piece has a `▁` behind its first character: the option of `Metaspace`.
        byte_fallback: whether a character that the vocabulary lacks becomes its bytes.
        unk_token: the piece of such a character where there are no bytes. None leaves it out.
        fuse_unk: whether several unknown characters side by side are one unknown piece.
        ignore_merges: whether a word that is in the vocabulary is one piece, whatever merging would make of it.
        strip_space: whether `detokenize` leaves out a space at a text's beginning, which `prepend` put there.
        added_tokens: the fields of `zoo.text.added_tokens.AddedToken`, a dictionary for each token: pieces that are
            matched in a text as they are. Special ones are matched only if `tokenize` is asked to.

    Raises:
        ValueError: a piece is empty or repeated; a merge is malformed or repeated; the bytes are missing; an option has
            an unknown value; or a token is not in the vocabulary.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        merges: Iterable[str],
        prepend: bool = False,
        prepend_scheme: str | None = None,
        split: bool = False,
        byte_fallback: bool = False,
        unk_token: str | None = None,
        fuse_unk: bool = False,
        ignore_merges: bool = False,
        strip_space: bool = False,
        added_tokens: Iterable[Mapping[str, Any]] = (),
    ):
        vocabulary, merges = list(vocabulary), list(merges)
        check_pieces(vocabulary)
        added = checked_added_tokens(added_tokens, vocabulary)
        check_unk_token(unk_token, vocabulary)
        pairs = checked_pairs(merges, vocabulary)
        if prepend_scheme not in (None, *_SCHEMES) or (prepend_scheme is not None and prepend):
            raise ValueError(
                f"`prepend_scheme` must be one of {', '.join(_SCHEMES)}, or None, and None with `prepend`. "
                f"Received: prepend_scheme={prepend_scheme!r}, prepend={prepend}"
            )
        if split and prepend_scheme is None:
            raise ValueError("`split` must come with a `prepend_scheme`. Received: split=True, prepend_scheme=None")
        ids = {piece: i for i, piece in enumerate(vocabulary, start=FIRST)}
        byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
        missing = [piece for piece in byte_pieces if piece not in ids]
        if missing:
            raise ValueError(
                f"`byte_fallback` must come with pieces for all bytes in the vocabulary. Received: none for {missing}"
            )
        contents = [_content(piece, byte_fallback) for piece in vocabulary]
        # The library writes an added token in its normal form, with the space that was put before it.
        normal = {piece for piece, token in added.items() if prepend and token.normalized}
        written = [
            b"" if piece in added and added[piece].special else b" " * (piece in normal) + content
            for piece, content in zip(vocabulary, contents, strict=True)
        ]
        super().__init__([visible(piece) for piece in vocabulary], written)
        self._keep(
            {
                "vocabulary": vocabulary,
                "merges": merges,
                "prepend": prepend,
                "prepend_scheme": prepend_scheme,
                "split": split,
                "byte_fallback": byte_fallback,
                "unk_token": unk_token,
                "fuse_unk": fuse_unk,
                "ignore_merges": ignore_merges,
                "strip_space": strip_space,
                "added_tokens": [dataclasses.asdict(token) for token in added.values()],
            }
        )
        self._prepend, self._scheme, self._strip_space = prepend, prepend_scheme, strip_space
        is_byte = [byte_fallback and _BYTE.fullmatch(piece) is not None for piece in vocabulary]
        self._is_byte = np.array([*[False] * FIRST, *is_byte])
        # Texts are cut before a `▁` if no merge joins it to what stands before it. They stay whole if the library looks
        # up whole texts, and if `▁` is unknown, which may be fused with the unknown character before it.
        products = (left + right for left, right in pairs)
        alone = not any(re.search(f"[^{SPACE}]{SPACE}", product) for product in products)
        is_cut = split or (alone and not ignore_merges and (byte_fallback or SPACE in vocabulary))
        before, kept = ("", b"") if split else (f"([^{SPACE}])", rb"\1")
        self._cuts = (before + SPACE, kept + SEPARATOR + SPACE.encode()) if is_cut else None
        unknown = None if unk_token is None else ids[unk_token]
        characters = {piece: ids[piece] for piece in of_words(vocabulary, added) if len(piece) == 1}
        symbols = Characters(characters, [ids[piece] for piece in byte_pieces], unknown, fuse_unk)
        options = {"byte_fallback": byte_fallback, "unk_token": unk_token, "fuse_unk": fuse_unk}
        whole = vocabulary if ignore_merges else whole_words(vocabulary, pairs, **options)
        self._words = WordPieces(
            {piece.encode(): ids[piece] for piece in of_words(whole, added)},
            symbols,
            Merging(merges_of(pairs, ids), self.size),
        )
        self._added = AddedTokens({token: ids[piece] for piece, token in added.items()}, self._normalized)

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        if self._scheme is not None:
            return texts
        texts = tf.strings.regex_replace(texts, " ", SPACE)
        return tf.where(texts == "", texts, SPACE + texts) if self._prepend else texts

    def _cut(self, texts: tf.Tensor, rows: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if self._scheme is not None:
            texts = tf.strings.regex_replace(texts, " ", SPACE)
        if self._scheme in ("first", "always"):
            prefixed = tf.strings.regex_replace(texts, rf"\A([^{SPACE}])", rf"{SPACE}\1")
            if rows is not None and self._scheme == "first":
                first = tf.concat([[True], rows[1:] != rows[:-1]], axis=0)[: tf.size(rows)]
                prefixed = tf.where(first, prefixed, texts)
            texts = prefixed
        if self._cuts is not None:
            texts = tf.strings.regex_replace(texts, *self._cuts)
        return separated(texts)

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        contents = tf.gather(tf.constant(self._contents, tf.string), ids)  # (N,)
        if self._is_byte.any():  # few texts have any
            is_byte = tf.gather(tf.constant(self._is_byte), ids)  # (N,)
            contents, rows = tf.cond(
                tf.reduce_any(is_byte), lambda: _checked_bytes(contents, is_byte, rows), lambda: (contents, rows)
            )
        texts = tf.strings.unsorted_segment_join(contents, rows, count)  # (B,)
        return tf.strings.regex_replace(texts, r"\A ", "") if self._strip_space else texts


def _content(piece: str, byte_fallback: bool) -> bytes:
    """The bytes that a piece writes."""
    byte = _BYTE.fullmatch(piece) if byte_fallback else None
    return piece.replace(SPACE, " ").encode() if byte is None else bytes([int(byte[1], 16)])


def _checked_bytes(contents: tf.Tensor, is_byte: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Replaces bytes that do not make characters.

    As the library does: of several bytes side by side all become U+FFFD, if they are not valid together. They stand
    side by side also where a special token is between them, which writes nothing.

    Args:
        contents: what each piece writes, `(N,)`.
        is_byte: which of them are bytes, `(N,)`.
        rows: the row of each, `(N,)`.

    Returns:
        New contents and their rows, without those that write nothing.
    """
    kept = tf.where(contents != b"")[:, 0]  # (N,): a smaller N
    contents, is_byte, rows = (tf.gather(each, kept) for each in (contents, is_byte, rows))
    together = is_byte[1:] & is_byte[:-1] & (rows[1:] == rows[:-1])  # (N - 1,)
    starts = tf.concat([[True], ~together], axis=0)[: tf.size(rows)]  # (N,)
    runs = tf.cumsum(tf.cast(starts, tf.int32)) - 1  # (N,)
    joined = tf.strings.unsorted_segment_join(contents, runs, tf.math.count_nonzero(starts, dtype=tf.int32))  # (runs,)
    return tf.where(tf.gather(is_utf8(joined), runs), contents, REPLACEMENT), rows
