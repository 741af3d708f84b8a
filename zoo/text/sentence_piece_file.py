"""What a `.spm` or `.model` file of the sentencepiece library says, read with `protobuf` alone.

The file is one message of protocol buffers, whose description is `sentencepiece_model.proto` in the library's
repository. The fields that segmentation depends on are described here once more, so that a vocabulary can be read where
the library is not installed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from zoo.git_lfs import check_no_pointer
from zoo.protobuf import message_class

NORMAL, UNKNOWN_PIECE, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # the types of pieces
SPACE = "▁"  # U+2581, which stands for a space in pieces
_MOST_STEPS = 1_000_000  # in reading a map of characters; the library's own take up to 75,000
_LENGTHS = (1,) * 12 + (2, 2, 3, 4)  # bytes of a character, by the first four bits of its first one
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}

# Text is read as bytes, since the file may hold anything.
_Model = message_class(
    "Model",
    {
        "Piece": {"piece": (1, "BYTES"), "score": (2, "FLOAT"), "type": (3, "INT32", "1")},
        "Trainer": {
            "model_type": (3, "INT32", "1"),
            "treat_whitespace_as_suffix": (24, "BOOL"),
            "byte_fallback": (35, "BOOL"),
        },
        "Normalizer": {
            "precompiled_charsmap": (2, "BYTES"),
            "add_dummy_prefix": (3, "BOOL", "true"),
            "remove_extra_whitespaces": (4, "BOOL", "true"),
            "escape_whitespaces": (5, "BOOL", "true"),
        },
        "Model": {
            "pieces": (1, "*Piece"),
            "trainer_spec": (2, "Trainer"),
            "normalizer_spec": (3, "Normalizer"),
            "denormalizer_spec": (5, "Normalizer"),
        },
    },
)


@dataclasses.dataclass(frozen=True)
class CharacterMap:
    """A compiled map: what takes the place of which sequences of bytes.

    The keys are a double-array trie (Darts-clone). From a state, the offset of its unit leads to a base; the base XOR a
    byte is the state after this byte, if its label is that byte. If a key ends in a state, the unit at the base holds
    its value: where in `texts` the replacement begins, which ends in NUL.

    Attributes:
        units: the double array, int64.
        texts: the replacements.
    """

    units: np.ndarray
    texts: bytes

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """The byte that leads to each unit; above 255 where the unit is a value."""
        return self.units & (1 << 31 | 0xFF)

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """From each unit to its base."""
        return (self.units >> 10) << ((self.units & (1 << 9)) >> 6)

    @functools.cached_property
    def has_value(self) -> np.ndarray:
        """Whether a key ends in each unit."""
        return (self.units >> 8 & 1).astype(bool)

    @functools.cached_property
    def values(self) -> np.ndarray:
        """Where the replacement begins, for the units that are values."""
        return self.units & ((1 << 31) - 1)

    @functools.cached_property
    def changing(self) -> frozenset[str]:
        """The characters without which the map changes nothing: keys of one character, and all but the first of others.

        Equal endings of keys share their states, so each state between characters is visited once.

        Raises:
            ValueError: a key is not valid UTF-8, or the array is no trie of a sensible size.
        """
        found: set[str] = set()
        seen, open_ = {0}, [0]
        steps = 0
        while open_:
            origin = open_.pop()
            for character, state in self._characters_from(origin):
                steps += 1
                if origin or self.has_value[state]:
                    found.add(character)
                if state not in seen:
                    seen.add(state)
                    open_.append(state)
            if steps > _MOST_STEPS:
                raise ValueError("a map that no one writes")
        return frozenset(found)

    def _characters_from(self, state: int) -> Iterator[tuple[str, int]]:
        """The next characters of keys, and the states after them."""
        paths = [(state, b"")]
        while paths:
            state, prefix = paths.pop()
            base = state ^ int(self.offsets[state])
            around = np.arange(1, 256) ^ base
            for child in around[self.labels[around] == around ^ base].tolist():
                text = prefix + bytes([child ^ base])
                if len(text) == _LENGTHS[text[0] >> 4]:
                    yield text.decode("utf-8"), child
                else:
                    paths.append((child, text))


@dataclasses.dataclass(frozen=True)
class Normalization:
    """How a text is changed before it is segmented.

    Attributes:
        character_map: what takes the place of which characters; the longest key counts.
        dummy_space: whether a space is added, before the text or behind it.
        remove_extra_spaces: whether spaces around the text and further spaces in a row are removed.
        escape_spaces: whether a space becomes `▁`.
        space_behind: whether the added space stands behind the text.
    """

    character_map: CharacterMap | None
    dummy_space: bool = True
    remove_extra_spaces: bool = True
    escape_spaces: bool = True
    space_behind: bool = False


@dataclasses.dataclass(frozen=True)
class SentencePieceFile:
    """A vocabulary of the sentencepiece library.

    Attributes:
        kind: "unigram" or "bpe".
        pieces: the pieces in the order of the file.
        scores: the score of each, float32.
        types: the type of each.
        byte_fallback: whether unknown characters are written in their bytes.
        normalization: how a text is changed first.
        denormalization: how a decoded text is changed, if at all.
    """

    kind: str
    pieces: list[str]
    scores: np.ndarray
    types: np.ndarray
    byte_fallback: bool
    normalization: Normalization
    denormalization: Normalization | None


def read_model(content: bytes, name: str = "the model") -> SentencePieceFile:
    """Reads the content of a file.

    Args:
        content: the bytes.
        name: what to call it in errors.

    Raises:
        ValueError: they are no such file, or one that the library itself does not load, or of a kind that has no
            subwords.
    """
    check_no_pointer(name, content)
    try:
        model = _Model.FromString(content)
    except DecodeError as error:
        raise ValueError(f"{name} is not a SentencePiece model: it is damaged or another format.") from error
    kind = _KINDS.get(model.trainer_spec.model_type, f"number {model.trainer_spec.model_type}")
    if not model.pieces:
        raise ValueError(f"{name} is not a SentencePiece model: it has no pieces.")
    if kind not in ("unigram", "bpe"):
        raise ValueError(f"{name} must be a SentencePiece model of the type unigram or bpe. Received: {kind}")
    try:
        pieces = [each.piece.decode("utf-8") for each in model.pieces]
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is damaged: a piece is not valid UTF-8.") from error
    types = np.array([each.type for each in model.pieces])
    scores = np.array([each.score for each in model.pieces], np.float32)
    byte_fallback = model.trainer_spec.byte_fallback
    _check_pieces(name, pieces, types, byte_fallback)
    if not np.isfinite(scores).all():
        raise ValueError(f"{name} is damaged: a score is not a finite number.")
    behind = model.trainer_spec.treat_whitespace_as_suffix
    has_denormalizer = bool(model.denormalizer_spec.precompiled_charsmap)
    return SentencePieceFile(
        kind=kind,
        pieces=pieces,
        scores=scores,
        types=types,
        byte_fallback=byte_fallback,
        normalization=_normalization(name, model.normalizer_spec, behind),
        denormalization=_normalization(name, model.denormalizer_spec, False) if has_denormalizer else None,
    )


def byte_piece(byte: int) -> str:
    """The name of the piece that stands for a byte."""
    return f"<0x{byte:02X}>"


def _check_pieces(name: str, pieces: list[str], types: np.ndarray, byte_fallback: bool) -> None:
    """Refuses pieces that the library refuses."""
    if unfit := [piece for piece in pieces if not piece or "\0" in piece]:
        raise ValueError(f"{name} is damaged: a piece is empty or holds the character NUL. Received: {unfit[0]!a}")
    if len(set(pieces)) < len(pieces):
        raise ValueError(f"{name} is damaged: it has a piece twice.")
    if not set(types.tolist()) <= {NORMAL, UNKNOWN_PIECE, CONTROL, USER_DEFINED, UNUSED, BYTE}:
        raise ValueError(f"{name} has a piece of an unknown type. Received: types {sorted(set(types.tolist()))}")
    bytes_of_file = {piece for piece, type_ in zip(pieces, types, strict=True) if type_ == BYTE}
    if bytes_of_file != ({byte_piece(byte) for byte in range(256)} if byte_fallback else set()):
        raise ValueError(
            f"{name} must have a piece for each byte with byte_fallback, and none without. "
            f"Received: {len(bytes_of_file)} pieces, byte_fallback={byte_fallback}"
        )
    unknown = np.count_nonzero(types == UNKNOWN_PIECE)
    if unknown > 1 or not (unknown or byte_fallback):
        raise ValueError(f"{name} must have one piece for unknown text. Received: {unknown}")


def _normalization(name: str, spec: Any, space_behind: bool) -> Normalization:
    try:
        character_map = _character_map(spec.precompiled_charsmap)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{name} is damaged: its map of characters cannot be read.") from error
    return Normalization(
        character_map=character_map,
        dummy_space=spec.add_dummy_prefix,
        remove_extra_spaces=spec.remove_extra_whitespaces,
        escape_spaces=spec.escape_whitespaces,
        space_behind=space_behind,
    )


@functools.lru_cache(maxsize=8)  # most files have one of the library's few maps
def _character_map(content: bytes) -> CharacterMap | None:
    """Reads a compiled map: the number of bytes of its double array, the array, and the texts."""
    if not content:
        return None
    size = int.from_bytes(content[:4], "little")
    texts = content[4 + size :]
    if size < 1024 or size % 1024 or not texts.endswith(b"\0"):
        raise ValueError("its parts do not fit together")
    map_ = CharacterMap(np.frombuffer(content[4 : 4 + size], "<u4").astype(np.int64), texts)
    states = np.flatnonzero(map_.labels < 256)
    bases = states ^ map_.offsets[states]
    if (bases | 0xFF).max(initial=0) >= len(map_.units):
        raise ValueError("a state leads out of the array")
    # What takes the place of valid text is valid text.
    for begin in np.unique(map_.values[bases[map_.has_value[states]]]).tolist():
        texts[begin : texts.index(b"\0", begin)].decode("utf-8")
    _ = map_.changing  # raises if a key is no valid text
    return map_
