"""A tokenizer of the vocabularies of the sentencepiece library."""

from __future__ import annotations

import base64
import io
import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from zoo.extras import needs
from zoo.text.lookup import lookup_table
from zoo.text.pair_tokenizer import check_pieces
from zoo.text.ragged import chosen_rows, rows_of, splits_of
from zoo.text.sentence_piece_file import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN_PIECE,
    UNUSED,
    USER_DEFINED,
    SentencePieceFile,
    byte_piece,
    read_model,
)
from zoo.text.sentence_piece_graph import Cutter, Pairs, Viterbi, packed, unpacked
from zoo.text.sentence_piece_normalizer import Normalizer, repaired
from zoo.text.strings import to_learn_from
from zoo.text.tokenizer import FIRST, UNKNOWN, Tokenizer, whole_number

_UNKNOWN_PENALTY = np.float32(10)
_WITHOUT_ID = (UNKNOWN_PIECE, CONTROL)
_MOST_BYTES = 2**24  # of a text to learn from


class SentencePieceTokenizer(Tokenizer):
    """Splits texts into the pieces of a model of the sentencepiece library (Kudo and Richardson 2018).

    The file holds everything: the pieces and their scores, how a text is normalised, and whether a piece is chosen by a
    unigram language model or by byte-pair merges. For every text, broken UTF-8 included, the graph gives the pieces of
    the library's version 0.2.3 (`sentence_piece_normalizer` and `sentence_piece_graph` explain how).

    Ids 0 to 3 are padding, unknown, start and end; the piece `vocabulary[i]` has the id `i + 4`. By default these are
    the pieces of the file, in its order, but for the control and unknown ones (`<s>`, `</s>`, `<unk>`). A translator of
    Marian has a vocabulary of its own, for the pieces of two files: a piece that it lacks becomes unknown.

    Without byte fallback, a run of unknown characters is one unknown id, as in the library. If the vocabulary has that
    run as a piece that the file lacks, it gets the id of this piece.

    `detokenize` gives what the library's `decode` gives: a byte that is no UTF-8 becomes U+FFFD, and the space that
    normalisation put before the text is removed. One thing differs: for an unknown id the library writes ` ⁇ `, or what
    the file says, and we write U+FFFD as all tokenizers of the zoo do, so that a caller finds it without knowing the
    tokenizer. What normalisation changes does not come back.

    `tokens` shows pieces as they are in the file: `▁` for a space, `<0x0A>` for a byte.

    If pieces hold spaces inside, a unigram model segments whole texts, and goes along long ones character by character,
    about 20 microseconds each, for all texts of a batch at once; otherwise it segments words. Memory is linear in the
    size of the batch.

    Axes: B batch, T length.

    Example:
        >>> tokenizer = SentencePieceTokenizer.learn(["low lower lowest"] * 9, size=16)
        >>> ids = tokenizer.tokenize(["lower slow"])
        >>> [piece.decode() for piece in tokenizer.tokens(ids).numpy()[0]]
        ['▁lowe', 'r', '▁', 's', 'l', 'o', 'w']

    Args:
        model: the bytes of a `.spm` or `.model` file, or these bytes in Base64.
        vocabulary: the pieces in the order of their ids from 4 on. By default those of the file.

    Raises:
        ValueError: the model cannot be read or is neither unigram nor BPE; or a piece of the vocabulary is empty,
            repeated or no string.
    """

    def __init__(self, model: bytes | str, vocabulary: Iterable[str] | None = None):
        content = base64.b64decode(model) if isinstance(model, str) else bytes(model)
        file = read_model(content)
        own = [piece for piece, type_ in zip(file.pieces, file.types, strict=True) if type_ not in _WITHOUT_ID]
        listed = own if vocabulary is None else list(vocabulary)
        if not listed:
            raise ValueError("`vocabulary` must hold pieces. Received: none")
        check_pieces(listed)
        types = dict(zip(file.pieces, file.types.tolist(), strict=True))
        contents = [_content(piece, types.get(piece, NORMAL)) for piece in listed]
        super().__init__(listed, contents)
        # As JSON: tf.Module would wrap a list and search it for variables.
        encoded = base64.b64encode(content).decode("ascii")
        self._arguments = json.dumps({"model": encoded, "vocabulary": None if vocabulary is None else listed})

        # Inside, a piece is a number: its place in the file, and the last number stands for unknown characters.
        ids = {piece: i for i, piece in enumerate(listed, start=FIRST)}
        self._ids = np.array([*(ids.get(piece, UNKNOWN) for piece in file.pieces), UNKNOWN], np.int32)
        self._ids[:-1][np.isin(file.types, _WITHOUT_ID)] = UNKNOWN
        self._unknown = len(file.pieces)
        places = {piece: number for number, piece in enumerate(file.pieces)}
        self._byte_ids = self._ids[[places[byte_piece(byte)] for byte in range(256)]] if file.byte_fallback else None
        foreign = {piece: id_ for piece, id_ in ids.items() if piece not in places}
        self._foreign = None
        if foreign and not file.byte_fallback:
            self._foreign = lookup_table(foreign, foreign.values(), tf.string, default=-1)

        self._escaped = file.normalization.escape_spaces
        usable = {piece: i for i, piece in enumerate(file.pieces) if file.types[i] in (NORMAL, USER_DEFINED, UNUSED)}
        protected = [piece for piece in usable if types[piece] == USER_DEFINED]
        self._normalizer = Normalizer(file.normalization, protected)
        self._denormalizer = Normalizer(file.denormalization) if file.denormalization else None
        self._strips = file.normalization.dummy_space or file.normalization.remove_extra_spaces
        self._strips_all = file.normalization.remove_extra_spaces
        bare = [
            content[1:] if piece.startswith(SPACE) and types.get(piece) not in (BYTE, CONTROL) else content
            for piece, content in zip(listed, contents, strict=True)
        ]
        # What each id writes, and below that what it writes as the first piece of a text.
        self._written = np.array([*self._contents[:-1], *self._contents[:FIRST], *bare], dtype=object)
        self._writes = np.array([piece != b"" for piece in self._written[-self.size :]], np.int32)
        if self._escaped:  # a text then has no other spaces than those that stand for `▁`
            usable = {piece.replace(SPACE, " "): i for piece, i in usable.items() if " " not in piece}
        self._model = _model(file, usable)
        cutter = Cutter(usable)
        self._cutter: Any = cutter if cutter.cuts else None
        # Most words of a text are one piece, and a table finds it in one lookup.
        if self._cutter is not None:
            words = [piece for piece, i in usable.items() if file.types[i] != UNUSED]
            whole, reach = self._whole_words(words, [usable[word] for word in words])
            self._words = lookup_table(whole, [usable[word] for word in whole], tf.string, default=-1)
            self._reach = np.zeros(len(file.pieces), np.float32)
            self._reach[[usable[word] for word in whole]] = reach

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        size: int,
        model_type: str = "unigram",
        byte_fallback: bool = False,
        split_by_whitespace: bool = True,
        character_coverage: float = 0.9995,
        normalization: str = "nmt_nfkc",
        user_defined: Sequence[str] = (),
    ) -> Self:
        """Learns the pieces from texts with the sentencepiece library. The same texts give the same pieces.

        For one vocabulary on both sides of a translator, learn from the texts of both sides and use the tokenizer
        twice. Half a surrogate pair has no UTF-8 and counts as "?".

        Args:
            texts: any number of strings, read once.
            size: the `size` of the tokenizer, the four special ids included. It is smaller if the texts do not have as
                many pieces.
            model_type: how pieces are chosen: "unigram" by their probabilities, "bpe" by merging pairs.
            byte_fallback: whether a character that is no piece is split into the pieces of its bytes; otherwise it is
                unknown.
            split_by_whitespace: whether pieces end at spaces. Without it, a piece may be several words, which suits
                languages written without spaces and makes tokenizing slower.
            character_coverage: the share of the texts' characters that become pieces, from 0.98 to 1; the rarest are
                unknown.
            normalization: how texts are normalised, in learning and in use: "nmt_nfkc", "nmt_nfkc_cf", "nfkc",
                "nfkc_cf" or "identity". Those with `_cf` also turn texts into lower case.
            user_defined: texts that always are one piece.

        Returns:
            The tokenizer.

        Raises:
            MissingExtraError: the library is not installed.
            ValueError: the library cannot learn from the texts, `texts` is not an iterable of strings, or another
                argument is out of its range.
        """
        with needs("train"):
            import sentencepiece
        size = whole_number("size", size)
        if size <= FIRST:
            raise ValueError(
                f"`size` must be at least {FIRST + 1}, for {FIRST} special ids and a piece. Received: size={size}"
            )
        if model_type not in ("unigram", "bpe"):
            raise ValueError(f"`model_type` must be 'unigram' or 'bpe'. Received: model_type={model_type!r}")
        if not 0.98 <= character_coverage <= 1:  # the library's own limits
            raise ValueError(f"`character_coverage` must be from 0.98 to 1. Received: {character_coverage}")
        if isinstance(user_defined, str):
            raise ValueError(f"`user_defined` must be a list of strings. Received: {user_defined!r}")
        model = io.BytesIO()
        raised: list[BaseException] = []

        def sentences() -> Iterator[str]:
            try:
                yield from to_learn_from(texts)
            except (Exception, KeyboardInterrupt) as error:  # the library makes a RuntimeError of it
                raised.append(error)
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=sentences(),
                model_writer=model,
                vocab_size=size - FIRST + 1,  # with an unknown piece, which has an id already
                model_type=model_type,
                byte_fallback=byte_fallback,
                split_by_whitespace=split_by_whitespace,
                character_coverage=character_coverage,
                normalization_rule_name=normalization,
                user_defined_symbols=list(user_defined),
                hard_vocab_limit=False,
                max_sentence_length=_MOST_BYTES,
                bos_id=-1,
                eos_id=-1,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            if raised:  # by the texts, or by Ctrl-C while they are read
                raise raised[0] from None
            reason = str(error).split("\n")[0]
            if "all_chars_count" in reason:
                reason = "they have no characters but white space"
            if "Vocabulary size" in reason:
                reason += f" (the library's vocabulary size is `size` - {FIRST - 1})"
            raise ValueError(f"The sentencepiece library cannot learn from these texts: {reason}") from error
        return cls(model.getvalue())

    @classmethod
    def from_file(cls, path: str | pathlib.Path, vocabulary: Iterable[str] | None = None) -> Self:
        """Reads a `.spm` or `.model` file.

        Args:
            path: the file.
            vocabulary: as in the constructor.

        Returns:
            The tokenizer.

        Raises:
            ValueError: the file cannot be read, or the constructor refuses the vocabulary.
        """
        content = pathlib.Path(path).read_bytes()
        read_model(content, str(path))  # for errors that name the file
        return cls(content, vocabulary)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        return json.loads(self._arguments)

    def _whole_words(self, words: Sequence[str], numbers: Sequence[int]) -> tuple[list[str], np.ndarray]:
        """The words whose segmentation is the one piece with their number, and its reach; see `Viterbi`."""
        if not words:
            return [], np.zeros(0, np.float32)
        pieces, rows, reach = self._model(tf.constant(words))
        pieces, rows, reach = unpacked(pieces)[0].numpy(), rows.numpy(), reach.numpy()
        single = np.bincount(rows, minlength=len(words)) == 1
        single &= pieces[np.searchsorted(rows, np.arange(len(words)))] == numbers
        return [word for word, whole in zip(words, single, strict=True) if whole], reach[single]

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = self._normalizer(texts)  # (B,)
        pieces = self._of_whole_texts(texts) if self._cutter is None else self._of_words(texts)  # (B, ragged)
        numbers, characters = unpacked(pieces.values)  # (P,), (P,)
        ids = tf.gather(tf.constant(self._ids), numbers)  # (P,)
        ids, lengths = tf.cond(
            tf.reduce_any(numbers == self._unknown),
            lambda: self._with_unknown(ids, characters, numbers == self._unknown, pieces),
            lambda: (ids, pieces.row_lengths()),
        )
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def _of_whole_texts(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The packed pieces of normal texts `(B,)`, ragged `(B, None)`."""
        filled = tf.where(texts != b"")[:, 0]
        none = tf.constant([], tf.int64)
        pieces, rows = tf.cond(
            tf.size(filled) > 0,
            lambda: self._model(tf.gather(texts, filled), tf.zeros(tf.shape(filled)))[:2],
            lambda: (none, none),
        )
        rows = tf.gather(filled, rows)
        return tf.RaggedTensor.from_value_rowids(pieces, rows, tf.size(texts, tf.int64), validate=False)

    def _of_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The same, by way of words."""
        words, rows = self._cutter(texts)  # (W,), (W,)
        numbers = self._words.lookup(words)  # (W,): -1 for a word of several pieces
        whole = packed(numbers, 0)
        reach = tf.gather(tf.constant(self._reach), tf.maximum(numbers, 0))
        pieces, splits, reach = tf.cond(  # (P,), (W + 1,), (W,)
            tf.reduce_all(numbers >= 0),
            lambda: (whole, tf.range(tf.size(words, tf.int64) + 1), reach),
            lambda: self._with_rare_words(words, whole, reach),
        )
        if isinstance(self._model, Viterbi):
            scores = self._model.scores(unpacked(pieces)[0])  # (P,)
            owners = rows_of(splits[1:], tf.size(pieces))  # (P,): the word of each piece
            sums = tf.math.unsorted_segment_sum(tf.abs(scores), tf.gather(rows, owners), tf.size(texts))  # (B,)
            close = reach <= tf.gather(sums, rows)  # (W,): the text around the word might change its pieces
            pieces, splits = tf.cond(
                tf.reduce_any(close),
                lambda: self._with_close_words(words, rows, pieces, splits, sums, close),
                lambda: (pieces, splits),
            )
        splits = tf.gather(splits, splits_of(rows, tf.size(texts)))  # (B + 1,)
        return tf.RaggedTensor.from_row_splits(pieces, splits, validate=False)

    def _with_rare_words(self, words: tf.Tensor, pieces: tf.Tensor, reach: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Puts the pieces of the words whose piece is negative, of which there are some, into their places.

        Args:
            words: all words, `(W,)`.
            pieces: the packed piece of each, `(W,)`.
            reach: the sum of sizes up to which it is certain, `(W,)`.

        Returns:
            The packed pieces `(P,)`, where those of each word begin, and the end, `(W + 1,)`, and the reach of each
            word, `(W,)`.
        """
        is_rare = pieces < 0
        rare = tf.unique(tf.boolean_mask(words, is_rare))  # a repeated word is segmented once
        found, rows, rare_reach = self._model(rare.y)
        # Rows to choose from: W rows of one piece, and below them the pieces of rare words.
        count = tf.size(words, tf.int64)
        splits = tf.concat([tf.range(count), count + splits_of(rows, tf.size(rare.y))], axis=0)
        places = tf.where(is_rare)  # (rare words with repetitions, 1)
        which = tf.tensor_scatter_nd_update(tf.range(count), places, count + tf.cast(rare.idx, tf.int64))
        reach = tf.gather(tf.concat([reach, rare_reach], axis=0), which)
        return *chosen_rows(tf.concat([pieces, found], axis=0), splits, which), reach

    def _with_close_words(
        self,
        words: tf.Tensor,
        rows: tf.Tensor,
        pieces: tf.Tensor,
        splits: tf.Tensor,
        sums: tf.Tensor,
        close: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Segments words again whose pieces depend on the text before them, with the library's sum in front of them.

        U texts have such words. In each, the span from the first to the last of them is segmented as one. If the sum of
        a text's scores is so large that the library may subtract, its span is the whole text.

        Args:
            words: all words, `(W,)`.
            rows: the text of each, int64 `(W,)`.
            pieces: their packed pieces, `(P,)`.
            splits: where the pieces of each word begin, and the end, int64 `(W + 1,)`.
            sums: of the scores of each text, without their signs, `(B,)`.
            close: which words, of which there is at least one, `(W,)`.

        Returns:
            The new pieces, and where those of each word begin, and the end, `(W + 1,)`; the first word of a text's span
            has those of all.
        """
        places = tf.where(close)[:, 0]
        texts, which = tf.unique(tf.gather(rows, places))  # (U,) and of each place
        first, last = tf.math.segment_min(places, which), tf.math.segment_max(places, which)  # (U,)
        far = tf.gather(sums, texts) > self._model.farthest / 2  # (U,): half of it leaves room for other segmentations
        bounds = splits_of(rows, tf.size(sums, tf.int64))  # (B + 1,)
        first = tf.where(far, tf.gather(bounds, texts), first)
        last = tf.where(far, tf.gather(bounds, texts + 1) - 1, last)

        # The words of the spans. `spans` has the number of a word's text among the U texts, or -1.
        order, count = tf.range(tf.size(words, tf.int64)), tf.size(texts, tf.int64)  # (W,)
        spans = tf.tensor_scatter_nd_update(tf.fill(tf.shape(sums), -1), texts[:, tf.newaxis], tf.range(tf.size(texts)))
        spans = tf.gather(spans, rows)  # (W,)
        begins, ends = tf.gather(first, tf.maximum(spans, 0)), tf.gather(last, tf.maximum(spans, 0))  # (W,)
        inside = (spans >= 0) & (begins <= order) & (order <= ends)
        together = tf.strings.unsorted_segment_join(
            tf.boolean_mask(words, inside), tf.boolean_mask(spans, inside), tf.size(texts)
        )

        # The sums before the spans: float32 numbers added one after another.
        owners = rows_of(splits[1:], tf.size(pieces))  # (P,): the word of each piece
        ahead = tf.where(tf.gather((spans >= 0) & (order < begins), owners))[:, 0]
        score_splits = splits_of(tf.cast(tf.gather(spans, tf.gather(owners, ahead)), tf.int64), count)  # (U + 1,)
        scores = self._model.scores(unpacked(tf.gather(pieces, ahead))[0])
        scores = tf.RaggedTensor.from_row_splits(scores, score_splits, validate=False).to_tensor()  # (U, most)
        with tf.device("CPU"):  # which adds a row from left to right; a GPU adds in another order
            before = tf.cumsum(tf.pad(scores, [[0, 0], [1, 0]]), axis=1)[:, -1]  # (U,)

        # Rows to choose from: the W words, below them the U spans, and a row of nothing.
        found, owners, _ = self._model(together, before)
        behind = tf.size(pieces, tf.int64) + splits_of(owners, count)  # (U + 1,)
        splits = tf.concat([splits[:-1], behind, behind[-1:]], axis=0)  # (W + U + 2,)
        span = tf.size(words, tf.int64) + tf.where(order == begins, tf.cast(spans, tf.int64), count)  # (W,)
        return chosen_rows(tf.concat([pieces, found], axis=0), splits, tf.where(inside, span, order))

    def _with_unknown(
        self, ids: tf.Tensor, characters: tf.Tensor, unknown: tf.Tensor, pieces: tf.RaggedTensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Gives unknown characters the ids of their bytes, or runs of them one id.

        Args:
            ids: ids, `(P,)`.
            characters: the character of each unknown piece, `(P,)`.
            unknown: whether a piece is unknown, `(P,)`.
            pieces: the rows of the pieces, `(B, None)`.

        Returns:
            New ids, and their number in each row, int64 `(B,)`.
        """
        rows = pieces.value_rowids()  # (P,)
        texts = tf.strings.unicode_encode(tf.boolean_mask(characters, unknown)[:, tf.newaxis], "UTF-8")  # (unknown,)
        texts = tf.where(texts == b" ", SPACE, texts) if self._escaped else texts
        if self._byte_ids is not None:
            counts = tf.tensor_scatter_nd_update(tf.ones_like(ids), tf.where(unknown), tf.strings.length(texts))
            data = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8), tf.int32)
            ids, rows = tf.repeat(ids, counts), tf.repeat(rows, counts)
            places = tf.where(tf.repeat(unknown, counts))
            ids = tf.tensor_scatter_nd_update(ids, places, tf.gather(tf.constant(self._byte_ids), data))
        else:
            before = tf.concat([[False], unknown[:-1] & (rows[1:] == rows[:-1])], axis=0)
            first = unknown & ~before
            if self._foreign is not None:
                runs = tf.boolean_mask(tf.cumsum(tf.cast(first, tf.int32)) - 1, unknown)  # (unknown,)
                texts = tf.strings.unsorted_segment_join(texts, runs, tf.reduce_max(runs) + 1)
                found = self._foreign.lookup(texts)
                ids = tf.tensor_scatter_nd_update(ids, tf.where(first), tf.where(found < 0, UNKNOWN, found))
            ids, rows = tf.boolean_mask(ids, first | ~unknown), tf.boolean_mask(rows, first | ~unknown)
        return ids, tf.RaggedTensor.from_value_rowids(ids, rows, pieces.nrows(), validate=False).row_lengths()

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        if self._strips:
            # Up to the first piece that writes something, pieces lose their space; without `remove_extra_spaces`, only
            # the first piece of a row does.
            before = tf.range(tf.size(rows))  # (N,)
            if self._strips_all:
                before = tf.cumsum(tf.gather(tf.constant(self._writes), ids), exclusive=True)  # (N,)
            first = before == tf.gather(tf.math.segment_min(before, rows), rows)
            ids = tf.where(first, ids + self.size, ids)  # (N,): of the table
        contents = tf.gather(tf.constant(self._written, tf.string), ids)  # (N,)
        texts = repaired(tf.strings.unsorted_segment_join(contents, rows, count))
        if self._denormalizer is not None:
            texts = self._denormalizer(texts)
            texts = tf.strings.regex_replace(texts, " ", SPACE) if self._denormalizer.escapes else texts
        return texts


def _model(file: SentencePieceFile, usable: dict[str, int]) -> Viterbi | Pairs:
    """The module that segments by the pieces that can be used, with their numbers."""
    scores = np.append(file.scores, np.float32(0))
    of_type = {type_: {piece for piece, i in usable.items() if file.types[i] == type_} for type_ in set(file.types)}
    unused, protected = of_type.get(UNUSED, set()), of_type.get(USER_DEFINED, set())
    if file.kind == "bpe":
        return Pairs(usable, scores, protected, unused)
    normal = file.scores[file.types == NORMAL]
    scores[-1] = (normal.min() if normal.size else np.finfo(np.float32).max) - _UNKNOWN_PENALTY
    for piece in protected:  # so that it is chosen before all others, and the longer one of two
        scores[usable[piece]] = 0.1 * (len(file.pieces[usable[piece]].encode()) - 1)
    return Viterbi({piece: number for piece, number in usable.items() if piece not in unused}, scores)


def _content(piece: str, type_: int) -> bytes:
    """The bytes that a piece writes."""
    if type_ == BYTE:
        return bytes([int(piece[3:5], 16)])
    return b"" if type_ in _WITHOUT_ID else piece.replace(SPACE, " ").encode()
