"""A tokenizer whose tokens are pieces of words, down to single bytes."""

import collections
import itertools
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import tensorflow as tf
import tokenizers

from zoo.text.byte_pair_graph import Merging, split_into_words
from zoo.text.normalization import Lowercase, Nfc
from zoo.text.tokenizer import SPECIAL_PIECES, Tokenizer, checked_texts

_FIRST = len(SPECIAL_PIECES)
_BYTES = 256


def _byte_alphabet() -> list[str]:
    """The printable character for each byte: itself in Latin-1, or one from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = itertools.count(_BYTES)
    return [chr(byte if byte in printable else next(others)) for byte in range(_BYTES)]


_ALPHABET = _byte_alphabet()
_BYTE_OF = {character: byte for byte, character in enumerate(_ALPHABET)}


class BytePairTokenizer(Tokenizer):
    r"""Splits texts into pieces of words by byte-level byte-pair encoding, as GPT-2 does (Sennrich et al. 2016).

    A text is cut into words, a word into its bytes, and pairs of neighbours are merged as learnt: a frequent word is
    one piece, and every text has pieces. The vocabulary is learnt with the `tokenizers` library, and the graph gives
    the same ids as the library for every text (`byte_pair_graph` explains how). `detokenize` is the exact inverse of
    `tokenize`, except for what `lowercase` and `nfc` change.

    Ids 0 to 3 are padding, unknown, start and end; the piece `vocabulary[i]` has the id `i + 4`, also in an imported
    vocabulary: id i of GPT-2 is id `i + 4` here, and row i of its embedding belongs into row `i + 4`. GPT-2 has one
    special token, `<|endoftext|>`, for start and end. No text is tokenised to it, so its row may serve as the row of
    our start and end. No text gives the unknown id.

    A broken sequence of bytes is read as U+FFFD, as in `bytes.decode("utf-8", "replace")`. `detokenize` writes U+FFFD
    in the same way where a piece ends inside a character.

    `tokens` shows a space as `▁`, an unprintable character by its escape, such as `\n` or `\u200d`, and a byte of an
    incomplete character as in `\xe2`.

    Pieces are written in GPT-2's alphabet: one printable character for each of the 256 bytes, `Ġ` for the space.

    Axes: B batch, T length.

    Example:
        >>> tokenizer = BytePairTokenizer.learn(["low lower lowest"] * 2, size=268)
        >>> ids = tokenizer.tokenize(["lower slow"])
        >>> [piece.decode() for piece in tokenizer.tokens(ids).numpy()[0]]
        ['low', 'e', 'r', '▁', 's', 'low']

    Args:
        vocabulary: the pieces in the order of their ids, all single bytes among them.
        merges: pairs of pieces with a space between, in the order in which they are merged: the lines of GPT-2's
            `merges.txt`. Both pieces and what they make are in the vocabulary.
        lowercase: whether texts are turned into lower case, character by character.
        nfc: whether texts are brought into NFC first. A letter then has the same ids whether it is written as one code
            point or as several.

    Raises:
        ValueError: a piece is empty, repeated or not in the alphabet; a byte is missing; or a merge is malformed or
            repeated.
    """

    def __init__(self, vocabulary: Iterable[str], merges: Iterable[str], lowercase: bool = False, nfc: bool = False):
        vocabulary, merges = list(vocabulary), list(merges)
        _check_vocabulary(vocabulary)
        pairs = _checked_pairs(merges, vocabulary)
        contents = [_content(piece) for piece in vocabulary]
        super().__init__([_visible(content) for content in contents], contents)
        # As JSON: tf.Module would wrap lists and dictionaries and search them for variables.
        arguments = {"vocabulary": vocabulary, "merges": merges, "lowercase": lowercase, "nfc": nfc}
        self._arguments = json.dumps(arguments)
        self.lowercase, self.nfc = lowercase, nfc
        self._lowercase = Lowercase() if lowercase else None
        self._nfc = Nfc() if nfc else None
        ids = {piece: i for i, piece in enumerate(vocabulary, start=_FIRST)}
        triples = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
        self._merging = Merging([ids[character] for character in _ALPHABET], triples, self.size)
        # Most words of a text are one piece, and a table finds it in one lookup. The few other words, which need rounds
        # of merging, still take about half of the time (benchmarks/notes.md, tokenizing.py).
        whole = _whole_words(vocabulary, pairs)
        words = tf.lookup.KeyValueTensorInitializer(
            tf.constant([_content(piece) for piece in whole]), tf.constant([ids[piece] for piece in whole], tf.int32)
        )
        self._words = tf.lookup.StaticHashTable(words, default_value=-1)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        size: int,
        minimum_frequency: int = 2,
        lowercase: bool = False,
        nfc: bool = False,
    ) -> Self:
        """Learns the pieces from texts. The same texts give the same pieces.

        For one vocabulary on both sides of a translator, learn from the texts of both sides and use the tokenizer
        twice. Lone surrogates have no UTF-8 and count as U+FFFD, as they are read.

        Args:
            texts: any number of strings, read once.
            size: the largest `size` of the tokenizer, the four special ids and the 256 bytes included. The tokenizer is
                smaller if too few pairs are frequent enough.
            minimum_frequency: how often a pair must occur to be merged.
            lowercase: whether texts are turned into lower case, in learning and in use.
            nfc: whether texts are brought into NFC, in learning and in use.

        Returns:
            The tokenizer.

        Raises:
            ValueError: `size` leaves no room for the bytes, `minimum_frequency` is below 1, or `texts` is not an
                iterable of strings.
        """
        if size < _FIRST + _BYTES:
            raise ValueError(
                f"`size` must be at least {_FIRST + _BYTES}, for {_FIRST} special ids and {_BYTES} bytes. "
                f"Received: size={size}"
            )
        if minimum_frequency < 1:
            raise ValueError(f"`minimum_frequency` must be at least 1. Received: minimum_frequency={minimum_frequency}")
        if isinstance(texts, str | bytes):
            raise ValueError(f"`texts` must be an iterable of strings. Received: one {type(texts).__name__}")
        learner = tokenizers.Tokenizer(tokenizers.models.BPE())
        learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        kinds = {tokenizers.normalizers.NFC: nfc, tokenizers.normalizers.Lowercase: lowercase}
        if any(kinds.values()):
            learner.normalizer = tokenizers.normalizers.Sequence([kind() for kind, wanted in kinds.items() if wanted])
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size - _FIRST,
            min_frequency=minimum_frequency,
            initial_alphabet=_ALPHABET,
            show_progress=False,
        )
        learner.train_from_iterator(_readable(texts), trainer)
        model = json.loads(learner.to_str())["model"]
        vocabulary = sorted(model["vocab"], key=model["vocab"].get)
        return cls(vocabulary, [" ".join(pair) for pair in model["merges"]], lowercase=lowercase, nfc=nfc)

    @classmethod
    def from_files(cls, vocab_json: str | pathlib.Path, merges_txt: str | pathlib.Path) -> Self:
        """Reads a byte-level vocabulary in the two files of GPT-2.

        Args:
            vocab_json: pieces and their ids, which are 0, 1, 2 and so on; ours are greater by 4.
            merges_txt: a merge a line, with a space between the pieces; lines that begin with `#version` are ignored.

        Returns:
            The tokenizer.

        Raises:
            ValueError: the ids are not 0, 1, 2 and so on, or the constructor refuses the pieces or merges.
        """
        ids = json.loads(pathlib.Path(vocab_json).read_text(encoding="utf-8"))
        vocabulary = sorted(ids, key=ids.get)
        if [ids[piece] for piece in vocabulary] != list(range(len(ids))):
            raise ValueError(f"{vocab_json} must have the ids 0 to {len(ids) - 1}, each once.")
        lines = pathlib.Path(merges_txt).read_text(encoding="utf-8").splitlines()
        return cls(vocabulary, [line for line in lines if not line.startswith("#version")])

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        return json.loads(self._arguments)

    def sample(
        self,
        texts: Any,
        dropout: float,
        seed: Any,
        add_start: bool = False,
        add_end: bool = False,
        max_length: int | None = None,
    ) -> tf.Tensor:
        """Turns strings into ids as `tokenize` does, but draws the pieces at random.

        This is BPE-dropout (Provilkov et al. 2020): while a word is merged, each of its pairs is passed over with the
        probability `dropout`, drawn anew in each round. A model trained on such ids sees a word in several
        segmentations and learns more from few texts. `detokenize` still gives the texts back.

        Args:
            texts: strings in UTF-8, `(B,)`.
            dropout: the probability: 0 gives the ids of `tokenize`, 1 gives single bytes.
            seed: what the random numbers follow from, integers `(2,)`.
            add_start: whether each row begins with the start id.
            add_end: whether the last id of each row is followed by the end id.
            max_length: the most ids a row may have, start and end included.

        Returns:
            Ids, int32 `(B, T)`.

        Raises:
            ValueError: `dropout` is not from 0 to 1, or `tokenize` refuses the rest.
        """
        if not 0 <= dropout <= 1:
            raise ValueError(f"`dropout` must be from 0 to 1. Received: dropout={dropout}")
        texts = checked_texts(texts)
        words, rows = self._words_of(texts)  # (W,), (W,)
        pieces = tf.cond(  # (W, ragged); the rounds of merging need at least one word
            tf.size(words) > 0,
            lambda: self._merging(words, dropout, tf.cast(seed, tf.int64)),
            lambda: tf.RaggedTensor.from_row_splits(tf.constant([], tf.int32), tf.constant([0], tf.int64)),
        )
        rows = tf.repeat(rows, pieces.row_lengths())  # the text of each piece
        ids = tf.RaggedTensor.from_value_rowids(pieces.values, rows, tf.size(texts, tf.int64), validate=False)
        return self._padded(ids, texts.shape[0], add_start, add_end, max_length)

    def _words_of(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The words of all texts `(W,)`, and the number of the text of each `(W,)`."""
        readable = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        readable = readable if self._nfc is None else self._nfc(readable)
        readable = readable if self._lowercase is None else self._lowercase(readable)
        return split_into_words(readable)

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words, rows = self._words_of(texts)
        ids = self._words.lookup(words)  # (W,): -1 for a word of several pieces
        ids, rows = tf.cond(
            tf.reduce_all(ids >= 0), lambda: (ids, rows), lambda: self._with_rare_words(words, ids, rows)
        )
        return tf.RaggedTensor.from_value_rowids(ids, rows, tf.size(texts, tf.int64), validate=False)

    def _with_rare_words(self, words: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts the pieces of the words whose id is -1, of which there are some, into their places."""
        is_rare = ids < 0
        rare = tf.unique(tf.boolean_mask(words, is_rare), tf.int64)  # a repeated word is merged once
        pieces = self._merging(rare.y)  # (rare words, ragged)
        # One ragged tensor to choose rows from: W rows of one id, and below them the pieces of rare words.
        count = tf.size(words, tf.int64)
        splits = tf.concat([tf.range(count), count + pieces.row_splits], axis=0)
        choices = tf.RaggedTensor.from_row_splits(tf.concat([ids, pieces.values], axis=0), splits, validate=False)
        which = tf.maximum(tf.cumsum(tf.cast(is_rare, tf.int32)) - 1, 0)
        chosen = tf.gather(choices, tf.where(is_rare, count + tf.gather(rare.idx, which), tf.range(count)))
        return chosen.values, tf.repeat(rows, chosen.row_lengths())

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        contents = tf.gather(tf.constant(self._contents, tf.string), ids.values)
        texts = tf.strings.unsorted_segment_join(contents, ids.value_rowids(), ids.nrows())
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def _content(piece: str) -> bytes:
    """The bytes that a piece stands for."""
    return bytes(_BYTE_OF[character] for character in piece)


def _visible(content: bytes) -> str:
    """Bytes as `tokens` shows them."""
    return "".join(map(_visible_character, content.decode("utf-8", "backslashreplace")))


def _visible_character(character: str) -> str:
    if character == " ":
        return "▁"
    if character.isprintable():
        return character
    # Beyond ASCII with four digits or more, since "\x85" would look like a byte.
    return ascii(character)[1:-1] if character.isascii() else f"\\u{ord(character):04x}"


def _whole_words(vocabulary: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The pieces that merging really gives for a word of the same bytes; others are merged differently."""
    model = tokenizers.models.BPE({piece: i for i, piece in enumerate(vocabulary)}, list(pairs))
    return [piece for i, piece in enumerate(vocabulary) if [token.id for token in model.tokenize(piece)] == [i]]


def _readable(texts: Iterable[str]) -> Iterator[str]:
    """Passes strings on, with surrogates replaced."""
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"`texts` must hold strings. Received: {text!r} of type {type(text).__name__}")
        yield text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _check_vocabulary(vocabulary: list[Any]) -> None:
    """Refuses pieces that cannot be a vocabulary."""
    alphabet = frozenset(_ALPHABET)
    for piece in vocabulary:
        if not isinstance(piece, str) or not piece or not alphabet.issuperset(piece):
            raise ValueError(
                "`vocabulary` must hold strings of the characters that GPT-2 writes for bytes, such as Ġ for a space. "
                f"Received: {piece!a}"
            )
    repeated = [piece for piece, count in collections.Counter(vocabulary).items() if count > 1]
    if repeated:
        raise ValueError(f"`vocabulary` must hold each piece once. Received: {repeated} more than once")
    missing = alphabet.difference(vocabulary)
    if missing:
        raise ValueError(f"`vocabulary` must hold all single bytes. Received: none for {sorted(missing)}")


def _checked_pairs(merges: list[Any], vocabulary: list[str]) -> list[tuple[str, str]]:
    """The left and the right piece of each merge."""
    pieces = frozenset(vocabulary)
    pairs = []
    for merge in merges:
        pair = tuple(merge.split(" ")) if isinstance(merge, str) else ()
        if len(pair) != 2 or not pieces.issuperset((*pair, "".join(pair))):
            raise ValueError(
                "`merges` must each be two pieces with a space between, which are in the vocabulary as is what they "
                f"make. Received: {merge!a}"
            )
        pairs.append(pair)
    repeated = [merge for merge, count in collections.Counter(merges).items() if count > 1]
    if repeated:
        raise ValueError(f"`merges` must hold each pair once. Received: {repeated} more than once")
    return pairs
