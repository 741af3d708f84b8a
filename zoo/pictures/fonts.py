"""Which installed fonts can draw a text.

Left to itself, Matplotlib warns about a letter that its fonts lack, and draws an empty box.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

# Fonts that claim code points for other shapes, draw boxes on purpose, or hold bitmaps that Matplotlib cannot draw.
_UNFIT = re.compile(r"^cm[a-z]+10$|^STIX|Last ?Resort|Emoji|Adobe Blank", re.IGNORECASE)


def families_for(texts: Iterable[str], preferred: Sequence[str] = ()) -> dict[str, list[str]]:
    """Chooses font families for each text: one that has all its characters if there is one, else as few as needed.

    One font for a whole label matters: a mark sits well on its dotted circle only if both come from the same font.

    Args:
        texts: the texts to draw.
        preferred: families to try first.

    Returns:
        For each text, the families to hand to Matplotlib.

    Raises:
        ValueError: no installed font has some of the characters. The message names them and their scripts.
    """
    texts = list(texts)
    characters = sorted(set("".join(texts)))
    families = _families(preferred)
    missing = [character for character in characters if not _having(families, character)]
    if missing and _register_new_fonts():
        families = _families(preferred)
        missing = [character for character in missing if not _having(families, character)]
    if missing:
        raise ValueError(_describe(missing))
    return {text: _choose(families, text) for text in texts}


def _choose(families: list[str], text: str) -> list[str]:
    return _having(families, text) or list(dict.fromkeys(_having(families, character)[0] for character in text))


def _having(families: list[str], text: str) -> list[str]:
    """The first family that has every character of a text, as a list; an empty list if none has."""
    whole = (family for family in families if all(_has(family, character) for character in text))
    return list(itertools.islice(whole, 1))


def _families(preferred: Sequence[str]) -> list[str]:
    """All upright families of regular weight: plain sans serifs first, the first face of a collection before others."""
    from matplotlib import font_manager

    def order(entry: font_manager.FontEntry) -> tuple:
        name = entry.name
        ranks = (name == "DejaVu Sans", name.startswith("Noto Sans"), "Sans" in name)
        rank = ranks.index(True) if any(ranks) else len(ranks)
        return "Mono" in name or "Display" in name, rank, entry.index, name

    entries = font_manager.fontManager.ttflist
    regular = (e for e in entries if e.style == "normal" and e.weight in (400, "normal", "regular"))
    names = [entry.name for entry in sorted(regular, key=order) if not _UNFIT.search(entry.name)]
    return list(dict.fromkeys([*preferred, *names]))


@functools.cache
def _has(family: str, character: str) -> bool:
    from matplotlib import font_manager

    path = font_manager.findfont(font_manager.FontProperties(family=[family]), fallback_to_default=False)
    return font_manager.get_font(path).get_char_index(ord(character)) != 0


def _register_new_fonts() -> bool:
    """Tells Matplotlib of fonts installed since it last made its list, and returns whether there were any."""
    from matplotlib import font_manager

    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    new = [path for path in font_manager.findSystemFonts() if path not in known]
    for path in new:
        try:
            font_manager.fontManager.addfont(path)
        except (OSError, RuntimeError):  # not a font that FreeType can open: nothing lost
            continue
    _has.cache_clear()  # a new file may be a better face of a family already asked
    return bool(new)


def _describe(missing: list[str]) -> str:
    scripts: dict[str, list[str]] = {}
    for character in missing:
        script = unicodedata.name(character, "unnamed").split()[0]
        scripts.setdefault(script, []).append(f"{character} U+{ord(character):04X}")
    listed = "; ".join(
        f"{script} ({', '.join(characters[:5])}{', …' if len(characters) > 5 else ''})"
        for script, characters in scripts.items()
    )
    return (
        f"No installed font can draw {len(missing)} of the characters: {listed}. "
        "Save the picture as .html, where the browser chooses fonts, or install fonts for these scripts, such as Noto "
        "(on Debian the packages fonts-noto-core and fonts-noto-cjk)."
    )
