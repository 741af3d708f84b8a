"""A tokenizer whose tokens are subwords, down to single bytes."""

import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import tensorflow as tf
import tokenizers

from zoo.text.added_tokens import AddedToken, AddedTokens
from zoo.text.byte_pair_graph import Bytes, Merging, WordPieces
from zoo.text.normalization import Lowercase, Nfc
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
from zoo.text.strings import strip, to_learn_from, valid_utf8
from zoo.text.tokenizer import FIRST, whole_number
from zoo.text.vocabulary import pieces_in_order
from zoo.text.words import GPT_2, check_patterns, split_into_words

_BYTES = 256
_LONGEST = 1000  # characters of what is learnt from as one word
# A run of white space is a word too. By the look-behind, a run is tried only once, from its start.
_LONG = re.compile(rf"(?<!\S)\S{{{_LONGEST + 1},}}|(?<!\s)\s{{{_LONGEST + 1},}}")


def _byte_alphabet() -> list[str]:
    """The printable character for each byte: itself in Latin-1, or one from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = itertools.count(_BYTES)
    return [chr(byte if byte in printable else next(others)) for byte in range(_BYTES)]


_ALPHABET = _byte_alphabet()
_BYTE_OF = {character: byte for byte, character in enumerate(_ALPHABET)}


def _without_long_words(texts: Iterable[str]) -> Iterator[str]:
    """Texts in parts, none with a longer word than `_LONGEST`: the library takes the square of a word's length."""
    for text in texts:
        begin = 0
        for word in _LONG.finditer(text):
            for end in range(word.start() + _LONGEST, word.end(), _LONGEST):
                yield text[begin:end]
                begin = end
        yield text[begin:]


class BytePairTokenizer(PairTokenizer):
    r"""Splits texts into subwords by byte-level byte-pair encoding, as GPT-2 does (Sennrich et al. 2016).

    A text is cut into words, a word into its bytes, and pairs of neighbours are merged as learnt: a frequent word is
    one piece, and every text has pieces. The vocabulary is learnt with the `tokenizers` library, and the graph gives
    the same ids as the library for every text (`byte_pair_graph` explains how). `detokenize` is the exact inverse of
    `tokenize`, except for what the arguments change: `lowercase`, `nfc`, `add_prefix_space`, `strip`, bytes that are
    missing.

    Ids 0 to 3 are padding, unknown, start and end; the piece `vocabulary[i]` has the id `i + 4`, also in an imported
    vocabulary: id i of GPT-2 is id `i + 4` here, and row i of its embedding belongs into row `i + 4`. GPT-2 has one
    special token, `<|endoftext|>`, for start and end. No text is tokenised to it, so its row may serve as the row of
    our start and end. No text gives the unknown id.

    The arguments from `patterns` on are what later models do differently: GPT-NeoX, SmolLM, Qwen2, Llama 3. They have
    the names of `tokenizer.json`, which `zoo.checkpoints.tokenizer_json.read_tokenizer` reads.

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
        vocabulary: the pieces in the order of their ids, all single bytes among them, and the added tokens.
        merges: pairs of pieces with a space between, in the order in which they are merged: the lines of GPT-2's
            `merges.txt`. Both pieces and what they make are in the vocabulary.
        lowercase: whether texts are turned into lower case, character by character.
        nfc: whether texts are brought into NFC first. A letter then has the same ids whether it is written as one code
            point or as several.
        patterns: the regular expressions that cut a text into words. Each one cuts the words of the one before it
            further. All must be in `zoo.text.words.PATTERNS`.
        individual_digits: how digits are cut off before that: True cuts off each digit, False each run of digits, None
            cuts off none.
        add_prefix_space: whether a text that begins with no space gets one, and so does the text behind an added token.
        ignore_merges: whether a word that is in the vocabulary is one piece, whatever merging would make of it.
        unk_token: the piece of a byte that the vocabulary lacks. None leaves such a byte out.
        fuse_unk: whether several such bytes side by side are one unknown piece.
        allow_missing_bytes: whether the vocabulary may lack bytes without an `unk_token`. SmolLM2 lacks 21.
        added_tokens: the fields of `zoo.text.added_tokens.AddedToken`, a dictionary for each token: pieces that are
            matched in a text as they are. Special ones are matched only if `tokenize` is asked to.
        mask_token: the piece of `mask_id`, a special added token; None for none.
        pair_separators: how many end ids stand between the texts of a pair.
        strip: whether white space around a text is left out, as sentence-transformers does.

    Raises:
        ValueError: a piece is empty, repeated or not in the alphabet; a byte is missing; a merge is malformed or
            repeated; a pattern is unknown; a token is not in the vocabulary; or `pair_separators` is below 1.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        merges: Iterable[str],
        lowercase: bool = False,
        nfc: bool = False,
        patterns: Iterable[str] = (GPT_2,),
        individual_digits: bool | None = None,
        add_prefix_space: bool = False,
        ignore_merges: bool = False,
        unk_token: str | None = None,
        fuse_unk: bool = False,
        allow_missing_bytes: bool = False,
        added_tokens: Iterable[Mapping[str, Any]] = (),
        mask_token: str | None = None,
        pair_separators: int = 1,
        strip: bool = False,
    ):
        vocabulary, merges, patterns = list(vocabulary), list(merges), list(patterns)
        added = checked_added_tokens(added_tokens, vocabulary)
        if mask_token is not None and not (mask_token in added and added[mask_token].special):
            raise ValueError(f"`mask_token` must be a special token of `added_tokens`. Received: {mask_token!r}")
        if pair_separators < 1:
            raise ValueError(f"`pair_separators` must be at least 1. Received: pair_separators={pair_separators}")
        _check_vocabulary(vocabulary, added, allow_missing_bytes or unk_token is not None)
        check_unk_token(unk_token, vocabulary)
        check_patterns(patterns)
        pairs = checked_pairs(merges, vocabulary)
        # The library writes an added token in its normal form.
        normal = _normalizer(nfc, lowercase).normalize_str
        contents = [
            _content(normal(piece) if piece in added and added[piece].normalized else piece) for piece in vocabulary
        ]
        shown = [
            visible(piece) if piece in added else _visible(content)
            for piece, content in zip(vocabulary, contents, strict=True)
        ]
        written = [
            b"" if piece in added and added[piece].special else content
            for piece, content in zip(vocabulary, contents, strict=True)
        ]
        super().__init__(shown, written)
        self._keep(
            {
                "vocabulary": vocabulary,
                "merges": merges,
                "lowercase": lowercase,
                "nfc": nfc,
                "patterns": patterns,
                "individual_digits": individual_digits,
                "add_prefix_space": add_prefix_space,
                "ignore_merges": ignore_merges,
                "unk_token": unk_token,
                "fuse_unk": fuse_unk,
                "allow_missing_bytes": allow_missing_bytes,
                "added_tokens": [dataclasses.asdict(token) for token in added.values()],
                "mask_token": mask_token,
                "pair_separators": pair_separators,
                "strip": strip,
            }
        )
        self.pair_separators = pair_separators
        self.lowercase, self.nfc = lowercase, nfc
        self._patterns, self._individual_digits = tuple(patterns), individual_digits
        self._add_prefix_space, self._strip = add_prefix_space, strip
        self._lowercase = Lowercase() if lowercase else None
        self._nfc = Nfc() if nfc else None
        ids = {piece: i for i, piece in enumerate(vocabulary, start=FIRST)}
        self.mask_id = None if mask_token is None else ids[mask_token]
        unknown = None if unk_token is None else ids[unk_token]
        symbols = Bytes([ids.get(character, unknown) for character in _ALPHABET], unknown if fuse_unk else None)
        whole = vocabulary if ignore_merges else whole_words(vocabulary, pairs)
        # `_split` of `WordTokenizer` turns texts into ids: `_normalized`, `_cut` into words, then these tables and
        # merges.
        self._words = WordPieces(
            {_content(piece): ids[piece] for piece in of_words(whole, added)},
            symbols,
            Merging(merges_of(pairs, ids), self.size),
        )
        self._added = AddedTokens({token: ids[piece] for piece, token in added.items()}, self._normalized)

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
        twice. Half a surrogate pair has no UTF-8 and counts as "?", as it is read. More than 1,000 characters without
        white space, as of DNA, are learnt from in parts of 1,000, and so is white space of more than 1,000 characters.

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
            ValueError: `size` is no integer or leaves no room for the bytes, `minimum_frequency` is below 1, or `texts`
                is not an iterable of strings.
        """
        size = whole_number("size", size)
        if size < FIRST + _BYTES:
            raise ValueError(
                f"`size` must be at least {FIRST + _BYTES}, for {FIRST} special ids and {_BYTES} bytes. "
                f"Received: size={size}"
            )
        if minimum_frequency < 1:
            raise ValueError(f"`minimum_frequency` must be at least 1. Received: minimum_frequency={minimum_frequency}")
        learner = tokenizers.Tokenizer(tokenizers.models.BPE())
        learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        learner.normalizer = _normalizer(nfc, lowercase)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size - FIRST,
            min_frequency=minimum_frequency,
            initial_alphabet=_ALPHABET,
            show_progress=False,
        )
        learner.train_from_iterator(_without_long_words(to_learn_from(texts)), trainer)
        model = json.loads(learner.to_str())["model"]
        vocabulary = sorted(model["vocab"], key=model["vocab"].get)
        return cls(vocabulary, [" ".join(pair) for pair in model["merges"]], lowercase=lowercase, nfc=nfc)

    @classmethod
    def from_files(cls, vocab_json: str | pathlib.Path, merges_txt: str | pathlib.Path) -> Self:
        """Reads a byte-level vocabulary in the two files of GPT-2.

        Args:
            vocab_json: pieces and their ids, which are 0, 1, 2 and so on; ours are greater by 4.
            merges_txt: one merge on each line, with a space between the pieces; empty lines and those that begin with
                `#version` are ignored.

        Returns:
            The tokenizer.

        Raises:
            ValueError: `vocab_json` is no JSON, the ids are not 0, 1, 2 and so on, or the constructor refuses the
                pieces or merges.
        """
        try:
            ids = json.loads(pathlib.Path(vocab_json).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{vocab_json} cannot be read: {error}") from None
        vocabulary = pieces_in_order(ids, str(vocab_json))
        lines = pathlib.Path(merges_txt).read_text(encoding="utf-8").splitlines()
        return cls(vocabulary, [line for line in lines if line and not line.startswith("#version")])

    def _words_of(
        self, texts: tf.Tensor, special_tokens: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        return super()._words_of(strip(valid_utf8(texts)) if self._strip else texts, special_tokens)

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        texts = texts if self._nfc is None else self._nfc(texts)
        return texts if self._lowercase is None else self._lowercase(texts)

    def _cut(self, texts: tf.Tensor, rows: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if self._add_prefix_space:
            texts = tf.strings.regex_replace(texts, r"\A([^ ])", r" \1")
        return split_into_words(texts, self._patterns, self._individual_digits)

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        contents = tf.gather(tf.constant(self._contents, tf.string), ids)  # (N,)
        return valid_utf8(tf.strings.unsorted_segment_join(contents, rows, count))


def _normalizer(nfc: bool, lowercase: bool) -> Any:
    """What the `tokenizers` library normalises texts with."""
    kinds = {tokenizers.normalizers.NFC: nfc, tokenizers.normalizers.Lowercase: lowercase}
    return tokenizers.normalizers.Sequence([kind() for kind, wanted in kinds.items() if wanted])


def _content(piece: str) -> bytes:
    """The bytes that a piece stands for: an added token that is not of the alphabet stands for itself."""
    if _BYTE_OF.keys() >= set(piece):
        return bytes(_BYTE_OF[character] for character in piece)
    return piece.encode()


def _visible(content: bytes) -> str:
    """Bytes as `tokens` shows them."""
    return visible(content.decode("utf-8", "backslashreplace"))


def _check_vocabulary(vocabulary: list[Any], added: Mapping[str, AddedToken], allow_missing_bytes: bool) -> None:
    """Refuses pieces that cannot be a vocabulary."""
    alphabet = frozenset(_ALPHABET)
    for piece in vocabulary:
        if not isinstance(piece, str) or not piece or not (alphabet.issuperset(piece) or piece in added):
            raise ValueError(
                "`vocabulary` must hold strings of the characters that GPT-2 writes for bytes, such as Ġ for a space. "
                f"Received: {piece!a}"
            )
    check_pieces(vocabulary)
    missing = alphabet.difference(vocabulary)
    if missing and not allow_missing_bytes:
        raise ValueError(f"`vocabulary` must hold all single bytes. Received: none for {sorted(missing)}")
