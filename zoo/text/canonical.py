"""Tables of Unicode for the graphs of `normalization`, `words` and `word_piece_graph`.

Plain Python, run once at construction. The `tokenizers` library itself is called to learn what it does to characters:
it has another version of Unicode than Python, whose own depends on Python's version, and BERT's rules have special
cases.
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Callable, Collection, Iterator

import numpy as np
from tokenizers import normalizers, pre_tokenizers

_HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)


@dataclasses.dataclass(frozen=True)
class CanonicalTables:
    """The parts of Unicode's canonical equivalence whose results are in a vocabulary.

    Attributes:
        expansions: the full canonical decomposition of each character whose pieces all occur in decompositions of the
            vocabulary. Hangul syllables are left out: no mark can come between their pieces.
        classes: combining class of every mark (not only the vocabulary's, so that unknown marks do not stand between
            known ones); empty when the vocabulary has no marks.
        pairs: what a base and a mark compose to.
        spellings: composed characters outside the vocabulary which known characters can spell.
        watched: a text without any of these characters needs no change.
        passes: the largest number of marks that compose into one character.
    """

    expansions: dict[str, str]
    classes: dict[str, int]
    pairs: dict[tuple[str, str], str]
    spellings: dict[str, str]
    watched: frozenset[str]
    passes: int


@functools.cache
def canonical_characters() -> frozenset[str]:
    """All characters that have a decomposition or occur in one, as far as NFC leaves them as they are."""
    with_pieces = (*_decompositions(), *map(chr, _HANGUL_SYLLABLES))
    pieces = {piece for character in with_pieces for piece in _decomposed(character)}
    return frozenset(character for character in (*with_pieces, *pieces) if composed(character) == character)


@functools.cache
def canonical_tables(vocabulary: frozenset[str]) -> CanonicalTables:
    """Collects what canonical equivalence can do to texts over a vocabulary.

    Args:
        vocabulary: single characters, each its own NFC.

    Returns:
        The tables. All are empty if no other sequence is equivalent to one over the vocabulary.
    """
    alphabet = {piece for character in vocabulary for piece in _decomposed(character)}
    expansions = {character: pieces for character, pieces in _decompositions().items() if alphabet.issuperset(pieces)}
    pairs = _pairs(vocabulary.union(expansions))
    spellings = {
        whole: spelling
        for whole in pairs.values()
        if whole not in vocabulary and vocabulary.issuperset(spelling := _spelt(whole, vocabulary))
    }
    classes = _classes() if any(map(unicodedata.combining, alphabet)) else {}
    unstable = {character for character in expansions if composed(character) != character}
    return CanonicalTables(
        expansions=expansions,
        classes=classes,
        pairs=pairs,
        spellings=spellings,
        watched=frozenset(unstable.union(classes, spellings, (mark for _, mark in pairs))),
        passes=max((len(_decomposed(whole)) - 1 for whole in pairs.values()), default=0),
    )


def _pairs(characters: Collection[str]) -> dict[tuple[str, str], str]:
    """Every (base, mark) on the way to `characters`, with what it composes to."""
    pairs: dict[tuple[str, str], str] = {}
    for character in characters:
        while (pair := _pair(character)) is not None and pair not in pairs:
            pairs[pair] = character
            character = pair[0]
    return pairs


def _pair(character: str) -> tuple[str, str] | None:
    """The base and the last mark that NFC composes to `character`, or None if it composes nothing to it."""
    pieces = _decomposed(character)
    if len(pieces) == 1 or composed(character) != character:
        return None
    # In every composed character, also in Hangul syllables, the pieces before the last one compose to one character.
    return composed(pieces[:-1]), pieces[-1]


def _spelt(character: str, vocabulary: frozenset[str]) -> str:
    """The character with its last pieces split off until what precedes them is in the vocabulary."""
    pair = _pair(character)
    if character in vocabulary or pair is None:
        return character
    return _spelt(pair[0], vocabulary) + pair[1]


def composed(text: str) -> str:
    """The NFC of a text without surrogates, as the library writes it."""
    return text if text.isascii() else normalizers.NFC().normalize_str(text)


def _decomposed(text: str) -> str:
    return normalizers.NFD().normalize_str(text)


@functools.cache
def _decompositions() -> dict[str, str]:
    """The full canonical decomposition of each character that has one, without the Hangul syllables."""
    changed = _changed_by(_decomposed)
    return {character: pieces for character, pieces in changed.items() if ord(character) not in _HANGUL_SYLLABLES}


@functools.cache
def _classes() -> dict[str, int]:
    """The combining class of every mark that the library's NFD moves.

    Python gives the classes, which no version of Unicode changes. The library knows fewer marks than Python.
    """
    # A mark changes places with one of the lowest class before it, or of the highest class behind it.
    pairs = (("{}\u0334", 1), ("\u0345{}", 0))
    return {
        character: combining_class
        for character in every_character()
        if (combining_class := unicodedata.combining(character))
        and any(_decomposed(pair.format(character))[place] == _decomposed(character)[0] for pair, place in pairs)
    }


@functools.cache
def lowercase_of() -> dict[str, str]:
    """The lower case of each character that the `tokenizers` library changes."""
    return _changed_by(normalizers.Lowercase().normalize_str)


@functools.cache
def bert_changes(**options: bool) -> dict[str, str]:
    """What the library's `BertNormalizer` makes of each character that it changes. All other options are False."""
    off = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), False)
    return _changed_by(normalizers.BertNormalizer(**{**off, **options}).normalize_str)


@functools.cache
def bert_separators() -> tuple[str, str]:
    """The characters that the library's `BertPreTokenizer` drops as white space, and those that are separate words."""
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    found: dict[int, list[str]] = {1: [], 2: [], 3: []}
    for stretch in _stretches():
        if len(pieces(stretch)) != 1:
            for character in stretch:
                found[len(pieces(f"a{character}a"))].append(character)
    return "".join(found[2]), "".join(found[3])


@dataclasses.dataclass(frozen=True)
class KeptMarks:
    """What decides the order of the marks that `BertNormalizer` leaves when it strips accents.

    Attributes:
        watched: the marks that stay, and the characters that decompose into such marks. A text without any of them
            needs no ordering.
        expansions: the canonical decomposition of characters that contain a mark that stays, or begin with a mark.
        classes: the combining class of every mark.
    """

    watched: str
    expansions: dict[str, str]
    classes: dict[str, int]


@functools.cache
def kept_marks() -> KeptMarks:
    """The marks that `BertNormalizer` leaves, such as U+302E: its table of accents is older than that of its NFD."""
    removed = {character for character, new in bert_changes(strip_accents=True).items() if not new}
    classes = _classes()
    kept = classes.keys() - removed
    decomposed = _decompositions()
    holding = {character: pieces for character, pieces in decomposed.items() if not kept.isdisjoint(pieces)}
    leading = {character: pieces for character, pieces in decomposed.items() if pieces[0] in classes}
    return KeptMarks("".join(sorted({*kept, *holding})), holding | leading, classes)


def _changed_by(change: Callable[[str], str]) -> dict[str, str]:
    """The result for each character that a function changes."""
    changed = itertools.chain.from_iterable(stretch for stretch in _stretches() if change(stretch) != stretch)
    return {character: new for character in changed if (new := change(character)) != character}


def _stretches() -> Iterator[str]:
    """All characters, 256 at a time: one call for a stretch shows whether it has anything special."""
    characters = every_character()
    return (characters[start : start + 256] for start in range(0, len(characters), 256))


def every_character() -> str:
    """All characters that UTF-8 can write, in the order of their code points."""
    codes = np.delete(np.arange(0x110000, dtype="<u4"), slice(0xD800, 0xE000))
    return codes.tobytes().decode("utf-32-le")
