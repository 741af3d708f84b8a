"""The fonts with which Matplotlib draws a text in any script."""

import contextlib
import unicodedata
from collections.abc import Iterable, Sequence

# Families with many scripts on Linux, macOS and Windows. `families_for` also tries all whose name begins with "Noto
# Sans".
_FAMILIES = ("DejaVu Sans", "Arial Unicode MS", "Segoe UI", "Nirmala UI", "Microsoft YaHei", "Malgun Gothic", "Ebrima")


def families_for(
    texts: Iterable[str],
    preferred: Sequence[str] = (),
    otherwise: str = "Save the picture as .html or .svg, where the browser chooses fonts",
) -> list[str]:
    """The font families that Matplotlib tries for each character, in order.

    Without this check Matplotlib warns about a character that no font has, and draws an empty box.

    Args:
        texts: all that is written in the picture.
        preferred: families to try first.
        otherwise: what a user can do if no font has a character, besides installing one.

    Raises:
        ValueError: no font has a character, or a preferred family is not installed.
    """
    needed = set("".join(texts))
    try:
        return _chosen(needed, preferred, otherwise)
    except ValueError:
        _find_new_fonts()
        return _chosen(needed, preferred, otherwise)


def _chosen(missing: set[str], preferred: Sequence[str], otherwise: str) -> list[str]:
    """The families, of those that Matplotlib knows."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    noto = sorted(name for name in installed if name.startswith("Noto Sans"))
    families = []
    for family in [*preferred, *(name for name in (*_FAMILIES, *noto) if name in installed)]:
        font = font_manager.findfont(font_manager.FontProperties(family=[family]), fallback_to_default=False)
        has = missing & set(map(chr, font_manager.get_font(font).get_charmap()))
        if has or family in preferred:
            families.append(family)
            missing = missing - has
        if not missing:
            return families
    raise ValueError(_no_font(sorted(missing), otherwise))


def _find_new_fonts() -> None:
    """Adds the fonts that were installed after Matplotlib made its list, which it keeps on disk."""
    from matplotlib import font_manager

    known = {each.fname for each in font_manager.fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        with contextlib.suppress(OSError, RuntimeError):  # such as a colour font of emoji
            font_manager.fontManager.addfont(path)


def _no_font(missing: list[str], otherwise: str) -> str:
    shown = ", ".join(f"{each} U+{ord(each):04X} {unicodedata.name(each, '')}".rstrip() for each in missing[:5])
    hint = (
        "or install a font that has them, such as Noto Sans (on Debian the packages fonts-noto-core and fonts-noto-cjk)"
    )
    if any(unicodedata.category(character) == "So" and ord(character) > 0xFFFF for character in missing):
        hint = "Matplotlib cannot draw the colour fonts of emoji"
    return (
        f"No font has {len(missing)} of the characters: {shown}{', …' if len(missing) > 5 else ''}. {otherwise}; "
        f"{hint}."
    )
