"""A tokenizer of BERT's vocabularies: the longest pieces of a word, from left to right."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tokenizers

from zoo.text.added_tokens import AddedToken, AddedTokens
from zoo.text.byte_pair_graph import WholeWords
from zoo.text.pair_tokenizer import check_pieces, checked_added_tokens, of_words, visible
from zoo.text.strings import to_learn_from
from zoo.text.tokenizer import FIRST, REPLACEMENT, UNKNOWN, whole_number
from zoo.text.word_piece_graph import BertNormalizer, LongestMatch, cut_into_words
from zoo.text.word_tokenizer import WordTokenizer

BERT_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
MASK_PIECE = "[MASK]"
_PREFIX = "##"
# What Rust's `trim_end` removes from the lines of a `vocab.txt`; Python's `rstrip` removes four characters more.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LONGEST = 100  # characters of a word that has pieces, as in BERT; a longer one is unknown
_CHUNK = 1000  # repetitions of a word in one text for the trainer


class WordPieceTokenizer(WordTokenizer):
    """Splits texts into the pieces of a WordPiece vocabulary, as BERT does (Wu et al. 2016, Devlin et al. 2019).

    A text is normalised and cut into words. A word is split into the longest piece that it begins with, the longest
    that continues it, and so on; if there is none, the whole word is one unknown id. For every text, the graph gives
    the ids of the `tokenizers` library (`word_piece_graph` explains how). The arguments have the names of
    `tokenizer.json`.

    Ids 0 to 3 are padding, unknown, start and end; the piece `vocabulary[i]` has the id `i + 4`. BERT's `[PAD]`,
    `[UNK]`, `[CLS]` and `[SEP]` are ids 0 to 3, and a text that contains `[CLS]` does not give its id. `[MASK]` keeps
    its place among the others. `special_pieces_first` gives this order, for the rows of an embedding.

    `detokenize` gives what the library's decoder gives: spaces between words, but not before a full stop, a question or
    exclamation mark and a comma. Special pieces such as `[MASK]` write nothing, and the unknown id writes the word
    U+FFFD. Normalisation is not undone. `written` has a space before each word.

    A broken sequence of bytes is read as U+FFFD, as in `bytes.decode("utf-8", "replace")`. With `clean_text`, U+FFFD is
    left out.

    Axes: B batch, T length.

    Example:
        >>> tokenizer = WordPieceTokenizer(["[MASK]", "low", "##er", "slow", "."])
        >>> ids = tokenizer.tokenize(["Slower low."], add_start=True, add_end=True)
        >>> [piece.decode() for piece in tokenizer.tokens(ids).numpy()[0]]
        ['<s>', 'slow', '##er', 'low', '.', '</s>']
        >>> tokenizer.detokenize(ids).numpy().tolist()
        [b'slower low.']

    Args:
        vocabulary: the pieces in the order of their ids from 4 on.
        clean_text: whether control characters are left out, and all white space is a space.
        handle_chinese_chars: whether each ideograph is a word.
        strip_accents: whether characters are decomposed and accents left out; None means as `lowercase`.
        lowercase: whether texts are turned into lower case.
        continuing_subword_prefix: how pieces begin that continue a word.
        max_input_chars_per_word: a word of more characters is unknown.
        cleanup: whether `detokenize` writes no space before some punctuation.
        mask_token: the piece of `mask_id`, if the vocabulary has it.
        added_tokens: the fields of `zoo.text.added_tokens.AddedToken`, a dictionary for each token: pieces that are
            matched in a text as they are. Special ones, and the mask, are matched only if `tokenize` is asked to.

    Raises:
        ValueError: a piece is empty, repeated or not a string; there are no pieces; or an added token is not in the
            vocabulary.

    Attributes:
        mask_id: the id of the mask; None if the vocabulary has none.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        clean_text: bool = True,
        handle_chinese_chars: bool = True,
        strip_accents: bool | None = None,
        lowercase: bool = True,
        continuing_subword_prefix: str = _PREFIX,
        max_input_chars_per_word: int = _LONGEST,
        cleanup: bool = True,
        mask_token: str | None = MASK_PIECE,
        added_tokens: Iterable[Mapping[str, Any]] = (),
    ):
        vocabulary = list(vocabulary)
        check_pieces(vocabulary)
        added = checked_added_tokens(added_tokens, vocabulary)
        arguments = {
            "vocabulary": vocabulary,
            "clean_text": clean_text,
            "handle_chinese_chars": handle_chinese_chars,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
            "continuing_subword_prefix": continuing_subword_prefix,
            "max_input_chars_per_word": max_input_chars_per_word,
            "cleanup": cleanup,
            "mask_token": mask_token,
            "added_tokens": [dataclasses.asdict(token) for token in added.values()],
        }
        if mask_token in vocabulary:
            added.setdefault(mask_token, AddedToken(mask_token, special=True))
        special = {piece for piece, token in added.items() if token.special}
        if not set(vocabulary) - special:
            raise ValueError("`vocabulary` must hold pieces that are not special. Received: none")
        normalizer = tokenizers.normalizers.BertNormalizer(clean_text, handle_chinese_chars, strip_accents, lowercase)
        decode = tokenizers.decoders.WordPiece(continuing_subword_prefix, cleanup).decode
        # The library writes an added token in its normal form.
        normal = {piece: normalizer.normalize_str(piece) for piece, token in added.items() if token.normalized}
        written = {piece: normal.get(piece, piece) for piece in vocabulary if piece not in special}
        # What a piece writes behind another one, and as the first of a text, where there is no space before it.
        contents = [decode(["x", written[piece]])[1:].encode() if piece in written else b"" for piece in vocabulary]
        first = [decode([written[piece]]).encode() if piece in written else b"" for piece in vocabulary]
        super().__init__([visible(piece) for piece in vocabulary], contents)
        self._keep(arguments)
        inside = self._contents[:-1].copy()
        inside[UNKNOWN] = b" " + REPLACEMENT.encode()
        # What each id writes, and below that what it writes as the first word of a text.
        self._written = np.concatenate([inside, self._contents[:FIRST], np.array(first, dtype=object)])
        self._is_word = np.array([*[1] * FIRST, *(piece not in special for piece in vocabulary)], np.int32)
        self.lowercase = lowercase
        ids = {piece: id_ for id_, piece in enumerate(vocabulary, start=FIRST)}
        self.mask_id = None if mask_token is None else ids.get(mask_token)

        strips = lowercase if strip_accents is None else strip_accents
        self._normalizer = BertNormalizer(clean_text, handle_chinese_chars, strips, lowercase)
        words = {piece: ids[piece] for piece in of_words(vocabulary, added)}
        size = len(continuing_subword_prefix)
        continuing = {
            piece[size:]: id_
            for piece, id_ in words.items()
            if piece.startswith(continuing_subword_prefix) and len(piece) > size
        }
        whole = {piece.encode(): id_ for piece, id_ in words.items() if len(piece) <= max_input_chars_per_word}
        self._words = WholeWords(whole, LongestMatch(words, continuing, max_input_chars_per_word))
        self._added = AddedTokens({token: ids[piece] for piece, token in added.items()}, self._normalized)

    @classmethod
    def from_vocabulary(
        cls,
        pieces: str | pathlib.Path | Iterable[str],
        special_pieces: Sequence[str] = BERT_PIECES,
        **options: Any,
    ) -> Self:
        """The tokenizer of a whole vocabulary, its special pieces included.

        Args:
            pieces: all pieces in the order of the vocabulary's own ids, or the path of a `vocab.txt`, one a line.
            special_pieces: the pieces for padding, unknown, start and end, in this order.
            options: further arguments of the constructor.

        Returns:
            The tokenizer. Its ids differ from the vocabulary's as `special_pieces_first` says.

        Raises:
            ValueError: a special piece is missing, or the constructor refuses the pieces.
        """
        listed = read_vocabulary(pieces) if isinstance(pieces, str | pathlib.Path) else list(pieces)
        return cls(special_pieces_first(listed, special_pieces)[0], **options)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        size: int,
        minimum_frequency: int = 2,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        limit_alphabet: int = 1000,
    ) -> Self:
        """Learns the pieces from texts with the `tokenizers` library. The same texts give the same pieces.

        For one vocabulary on both sides of a translator, learn from the texts of both sides and use the tokenizer
        twice. Half a surrogate pair has no UTF-8 and counts as "?". Words of more than 100 characters, which are
        unknown to the tokenizer, are left out.

        Args:
            texts: any number of strings, read once.
            size: the `size` of the tokenizer, the four special ids and the mask included. It is smaller if too few
                pairs are frequent enough, and larger if the characters alone need more.
            minimum_frequency: how often a pair must occur to be merged.
            lowercase: whether texts are turned into lower case, in learning and in use.
            strip_accents: whether accents are left out, in learning and in use; as `lowercase` if None.
            limit_alphabet: the largest number of characters, the most frequent ones; a word with others is unknown.

        Returns:
            The tokenizer.

        Raises:
            ValueError: `size`, `minimum_frequency` or `limit_alphabet` is no integer or below 1, `texts` is not an
                iterable of strings, or no word is left.
        """
        least = {"size": size, "minimum_frequency": minimum_frequency, "limit_alphabet": limit_alphabet}
        for name, number in least.items():
            if whole_number(name, number) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={number}")
        words = _counted_words(texts, tokenizers.normalizers.BertNormalizer(True, True, strip_accents, lowercase))
        counts: collections.Counter[str] = collections.Counter()
        for word, count in words.items():
            for character in word:
                counts[character] += count
        known = {*sorted(counts, key=lambda character: (-counts[character], character))[:limit_alphabet]}
        words = {word: count for word, count in words.items() if known.issuperset(word)}
        if not words:
            raise ValueError(f"`texts` must hold a word of at most {_LONGEST} characters to learn from. Received: none")
        # The library numbers the characters inside words in the order of its hash table, which varies, and breaks ties
        # by these numbers. Special tokens are numbered first, in our order. So these characters are passed as special
        # tokens.
        inside = sorted({_PREFIX + character for word in words for character in word[1:]})
        learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=BERT_PIECES[UNKNOWN]))
        learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        trainer = tokenizers.trainers.WordPieceTrainer(
            vocab_size=max(0, size - FIRST - 1),
            min_frequency=minimum_frequency,
            special_tokens=[*sorted(known), *inside],
            continuing_subword_prefix=_PREFIX,
            show_progress=False,
        )
        repeated = (
            f"{word} " * min(_CHUNK, count - done) for word, count in words.items() for done in range(0, count, _CHUNK)
        )
        learner.train_from_iterator(repeated, trainer)
        vocabulary = json.loads(learner.to_str())["model"]["vocab"]
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        return cls([MASK_PIECE, *pieces], lowercase=lowercase, strip_accents=strip_accents)

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        return self._normalizer(texts)

    def _cut(self, texts: tf.Tensor, rows: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        return cut_into_words(texts)

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        # The first piece of a row that is not special has no other such piece before it in the row.
        before = tf.cumsum(tf.gather(tf.constant(self._is_word), ids), exclusive=True)  # (N,)
        is_first = before == tf.gather(tf.math.segment_min(before, rows), rows)
        entries = tf.where(is_first, ids + self.size, ids)  # (N,)
        written = tf.gather(tf.constant(self._written, tf.string), entries)  # (N,)
        return tf.strings.unsorted_segment_join(written, rows, count)


def special_pieces_first(
    pieces: Sequence[str], special_pieces: Sequence[str] = BERT_PIECES
) -> tuple[list[str], np.ndarray]:
    """The order of a vocabulary in which its special pieces have the ids 0 to 3, and the others follow as they were.

    Args:
        pieces: all pieces in the order of the vocabulary's own ids.
        special_pieces: the pieces for padding, unknown, start and end, in this order.

    Returns:
        The pieces from id 4 on, and for each id the vocabulary's own one, int64 `(V,)`: row `order[i]` of a
        checkpoint's embedding belongs into row i.

    Raises:
        ValueError: a special piece is missing, or there are not four.
    """
    places = {piece: place for place, piece in enumerate(pieces)}
    missing = [piece for piece in special_pieces if piece not in places]
    if missing or len(special_pieces) != FIRST or len(set(special_pieces)) != FIRST:
        fault = f"of which the vocabulary lacks {missing}" if missing else "which are not four different pieces"
        raise ValueError(
            f"`special_pieces` must be the {FIRST} pieces of the vocabulary for padding, unknown, start and end. "
            f"Received: {[*special_pieces]}, {fault}"
        )
    others = [place for place, piece in enumerate(pieces) if piece not in special_pieces]
    order = np.array([*(places[piece] for piece in special_pieces), *others], np.int64)
    return [pieces[place] for place in others], order


def read_vocabulary(path: str | pathlib.Path) -> list[str]:
    """The pieces of a `vocab.txt`, one a line, without white space at the end of the line.

    A line without a piece keeps its id, which no text gives: its piece is "[unused line 8]", with the line's number.

    Raises:
        ValueError: the file is not UTF-8.
    """
    try:
        # Only `\n` ends a line: a piece may be another line break, such as U+2028.
        lines = pathlib.Path(path).read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be in UTF-8: {error}") from None
    found = (line.rstrip(_WHITE_SPACE) for line in (lines if lines[-1] else lines[:-1]))
    return [piece or f"[unused line {number}]" for number, piece in enumerate(found, start=1)]


def _counted_words(texts: Iterable[str], normalizer: Any) -> dict[str, int]:
    """The words of texts that may have pieces, as the library cuts them, and how often each comes."""
    cutter = tokenizers.pre_tokenizers.BertPreTokenizer()
    counts: collections.Counter[str] = collections.Counter()
    for text in to_learn_from(texts):
        words = (word for word, _ in cutter.pre_tokenize_str(normalizer.normalize_str(text)))
        counts.update(word for word in words if len(word) <= _LONGEST)
    return dict(counts)
