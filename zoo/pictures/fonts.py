"""The fonts with which Matplotlib draws a text in any script."""

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
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    noto = sorted(name for name in installed if name.startswith("Noto Sans"))
    missing, families = set("".join(texts)), []
    for family in [*preferred, *(name for name in (*_FAMILIES, *noto) if name in installed)]:
        font = font_manager.findfont(font_manager.FontProperties(family=[family]), fallback_to_default=False)
        has = missing & set(map(chr, font_manager.get_font(font).get_charmap()))
        if has or family in preferred:
            families.append(family)
            missing -= has
        if not missing:
            return families
    raise ValueError(_no_font(sorted(missing), otherwise))


def _no_font(missing: list[str], otherwise: str) -> str:
    shown = ", ".join(f"{each} U+{ord(each):04X} {unicodedata.name(each, '')}".rstrip() for each in missing[:5])
    hint = (
        "or install a font that has them, such as Noto Sans (on Debian the packages fonts-noto-core and "
        "fonts-noto-cjk), and remove Matplotlib's list of fonts (fontlist-*.json in matplotlib.get_cachedir())"
    )
    if any(unicodedata.category(character) == "So" and ord(character) > 0xFFFF for character in missing):
        hint = "Matplotlib cannot draw the colour fonts of emoji"
    return (
        f"No font has {len(missing)} of the characters: {shown}{', …' if len(missing) > 5 else ''}. {otherwise}; "
        f"{hint}."
    )
