"""The base of tokenizers that merge pairs inside words: pairs of bytes (GPT-2, Qwen2) or of characters (Llama)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tokenizers

from zoo.text.added_tokens import AddedToken
from zoo.text.byte_pair_graph import WordPieces
from zoo.text.ragged import splits_of
from zoo.text.strings import checked_texts
from zoo.text.vocabulary import check_each_once
from zoo.text.word_tokenizer import WordTokenizer


class PairTokenizer(WordTokenizer):
    """Base of tokenizers that cut texts into words and merge the symbols of each word.

    An imported vocabulary has its own ids plus 4.
    """

    _words: WordPieces

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

        This is BPE-dropout (Provilkov et al. 2020): while a word is merged, each of its pairs is skipped with the
        probability `dropout`, anew in each round. A model trained on such ids sees a word in several
        segmentations and learns more from few texts. `detokenize` still gives the texts back.

        Args:
            texts: strings in UTF-8, `(B,)`.
            dropout: the probability: 0 gives the ids of `tokenize`, 1 gives single symbols.
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
        ids, rows = self._words.sample(*self._words_of(texts), dropout, tf.cast(seed, tf.int64))
        ids = tf.RaggedTensor.from_row_splits(ids, splits_of(rows, tf.size(texts, tf.int64)), validate=False)
        return self._padded(ids, texts.shape[0], add_start, add_end, max_length)


def visible(piece: str) -> str:
    """A piece as `tokens` shows it: a space as `▁`, an unprintable character as its escape."""
    return "".join(map(_visible_character, piece))


def _visible_character(character: str) -> str:
    if character == " ":
        return "▁"
    if character.isprintable():
        return character
    # Beyond ASCII with four digits or more, since "\x85" would look like a byte.
    return ascii(character)[1:-1] if character.isascii() else f"\\u{ord(character):04x}"


def whole_words(vocabulary: Sequence[str], pairs: Sequence[tuple[str, str]], **options: Any) -> list[str]:
    """The pieces that merging gives for their own text. The text of any other piece is merged to something else."""
    model = tokenizers.models.BPE({piece: i for i, piece in enumerate(vocabulary)}, list(pairs), **options)
    return [piece for i, piece in enumerate(vocabulary) if [token.id for token in model.tokenize(piece)] == [i]]


def merges_of(pairs: Iterable[tuple[str, str]], ids: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """The merges for `Merging`."""
    return [(ids[left], ids[right], ids[left + right]) for left, right in pairs]


def check_pieces(vocabulary: Sequence[Any]) -> None:
    """Refuses a piece that is empty, is not a string or occurs twice."""
    for piece in vocabulary:
        if not isinstance(piece, str) or not piece:
            raise ValueError(f"`vocabulary` must hold strings that are not empty. Received: {piece!a}")
    check_each_once("vocabulary", vocabulary, "piece")


def checked_pairs(merges: list[Any], vocabulary: list[str]) -> list[tuple[str, str]]:
    """The left and the right piece of each merge."""
    pieces = frozenset(vocabulary)
    pairs = []
    for merge in merges:
        pair = tuple(merge.split(" ")) if isinstance(merge, str) else ()
        if len(pair) != 2 or not pieces.issuperset((*pair, "".join(pair))):
            raise ValueError(
                "`merges` must hold strings of two pieces with a space between. Both pieces and their concatenation "
                f"must be in the vocabulary. Received: {merge!a}"
            )
        pairs.append(pair)
    check_each_once("merges", merges, "pair")
    return pairs


def checked_added_tokens(added_tokens: Iterable[Mapping[str, Any]], vocabulary: list[str]) -> dict[str, AddedToken]:
    """The added tokens by their contents."""
    pieces, tokens = frozenset(vocabulary), {}
    for entry in added_tokens:
        token = AddedToken(**entry)
        if not token.content or token.content not in pieces or token.content in tokens:
            raise ValueError(
                "`added_tokens` must have different `content`s, and the vocabulary must have all of them. "
                f"Received: {token.content!a}"
            )
        tokens[token.content] = token
    # In this case the library lets the same white space belong to two tokens.
    spaced = [token.content for token in tokens.values() if token.content[0].isspace()]
    greedy = [token.content for token in tokens.values() if token.rstrip]
    if spaced and greedy:
        raise ValueError(
            "`added_tokens` cannot have one that takes the white space behind it (rstrip) beside one that begins with "
            f"white space. Received: {greedy[0]!a} and {spaced[0]!a}"
        )
    return tokens


def of_words(pieces: Iterable[str], added: Mapping[str, AddedToken]) -> list[str]:
    """The pieces that words may become: all but some of the added tokens."""
    return [piece for piece in pieces if piece not in added or (added[piece].in_words and not added[piece].special)]


def check_unk_token(unk_token: str | None, vocabulary: list[str]) -> None:
    """Refuses an unknown token without an id."""
    if unk_token is not None and unk_token not in vocabulary:
        raise ValueError(f"`unk_token` must be in the vocabulary. Received: {unk_token!a}")
