"""Labels of tokens: every character is visible, and none affects the text around it."""

import math
import unicodedata
from collections.abc import Sequence

_DOTTED_CIRCLE = "◌"
_VISIBLE = {" ": "␣", "\u00a0": "⍽", "\u202f": "⍽", "\n": "↵", "\t": "⇥"}
# Between letters these two are part of the spelling in Arabic and Indic scripts, and of many emoji.
_JOINERS = "\u200c\u200d"
# Marks of direction that are common in Arabic and Hebrew dates. They act on their neighbours only.
_HARMLESS_MARKS = "\u200e\u200f\u061c"


def label(token: str) -> str:
    """What to show for a token: always something visible.

    A space becomes `␣` (a no-break space `⍽`), a line feed `↵`, a tab `⇥`. A leading combining mark stands on a dotted
    circle. Characters that cannot be seen, or that would change the direction of the text, become their code point.
    """
    if not token:
        return "∅"
    shown = "".join(_visible(character, keep=_JOINERS if len(token) > 1 else "") for character in token)
    return _DOTTED_CIRCLE + shown if unicodedata.category(shown[0]).startswith("M") else shown


def describe(token: str) -> str:
    """The code point and the Unicode name of a token of one character, and the label of any other."""
    if len(token) != 1:
        return label(token)
    return f"{_code_point(token)} {unicodedata.name(token, '')}".rstrip()


def readable(text: str) -> str:
    """Running text without control characters and without characters that change the direction of text around them.

    Joiners, left-to-right marks and right-to-left marks stay, because they are part of the spelling.
    """
    keep = _JOINERS + _HARMLESS_MARKS
    spaces = str.maketrans("\n\r\t", "   ")
    return "".join(
        character if unicodedata.category(character) == "Zs" else _visible(character, keep)
        for character in text.translate(spaces)
    )


def is_right_to_left(text: str) -> bool:
    """Whether the text holds a letter of a right-to-left script, such as Arabic or Hebrew."""
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


def width(shown: str) -> float:
    """Estimates the width of a label in units of the font size; only the program that draws it knows it exactly."""
    return sum(map(_character_width, shown))


def turns(shown: Sequence[str], room: float) -> list[int]:
    """Chooses by how many degrees to turn each label above a map, so that no two overlap.

    Labels that fit stay upright. A few long ones, such as `</s>` after characters, stand on end. If long labels are
    common, as with subwords, all are slanted, which is easier to read.

    Args:
        shown: the labels, in order.
        room: the width of a column in units of the font size.

    Returns:
        The angle of each label: 0, 45 or 90.
    """
    # One letter with its marks stays upright even if it is wide: it may overlap the empty edge of the next column.
    long = [_letters(text) > 1 and width(text) > 0.95 * room for text in shown]
    if sum(long) > len(shown) / 4:
        return [45] * len(shown)
    return [90 if is_long else 0 for is_long in long]


def rise(shown: Sequence[str], angles: Sequence[int]) -> float:
    """Estimates the height of turned labels above a map, in units of the font size."""
    return max(0.9, *(math.sin(math.radians(angle)) * width(text) for text, angle in zip(shown, angles, strict=True)))


def _letters(shown: str) -> int:
    """Counts the characters of a label without marks and joiners, which take no space."""
    return sum(unicodedata.category(character)[0] != "M" and character not in _JOINERS for character in shown)


def _visible(character: str, keep: str) -> str:
    if character in keep:
        return character
    if character in _VISIBLE:
        return _VISIBLE[character]
    category = unicodedata.category(character)
    if category == "Zs":
        return _VISIBLE[" "]
    # Controls, formats, surrogates, private and unassigned characters (C*), and the separators of lines (Zl, Zp).
    return _code_point(character) if category[0] in "CZ" else character


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _character_width(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.6 if character.isascii() else 0.75
