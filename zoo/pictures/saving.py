"""Saving pictures: the suffix chooses the kind."""

import os
from collections.abc import Iterable
from pathlib import Path

from zoo.atomic import write_whole
from zoo.pictures.drawable import Drawable, as_list
from zoo.pictures.page import to_html
from zoo.pictures.png import to_png
from zoo.pictures.svg import to_svg

_SUFFIXES = (".html", ".svg", ".png")


def save(
    alignments: Drawable | Iterable[Drawable],
    path: str | os.PathLike[str],
    title: str | None = None,
    columns: int = 1,
    vmax: float = 1.0,
) -> Path:
    """Draws alignments into a file, whose suffix chooses the kind of picture.

    `.html` is a page for any number of pictures in any script. `.svg` holds one picture, with fonts left to whoever
    shows it. `.png` is drawn here, and needs Matplotlib and installed fonts. The folder is made if need be. The file
    appears at once and whole: if drawing fails, an older file of that name stays as it was.

    Args:
        alignments: one or several, or grids of heads.
        path: where to write; the suffix is one of `.html`, `.svg` and `.png`.
        title: the heading of a page; the other kinds have none beside the titles of the alignments.
        columns: how many alignments stand side by side, in a page or a PNG; grids stand one below the other.
        vmax: the weight drawn in full ink, above 0 and at most 1.

    Returns:
        The path written.

    Raises:
        ValueError: the suffix is another, there is nothing to draw, several pictures are asked of an `.svg`, an
            argument is out of range, or no installed font has a character that a `.png` needs.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    alignments = as_list(alignments)
    if suffix == ".html":
        content = to_html(alignments, path.stem if title is None else title, columns, vmax).encode()
    elif suffix == ".svg":
        if len(alignments) > 1:
            raise ValueError(
                f"An .svg must be of one picture; save several as .html or .png. Received: {len(alignments)}"
            )
        content = to_svg(alignments[0], vmax).encode()
    elif suffix == ".png":
        content = to_png(alignments, columns, vmax)
    else:
        raise ValueError(f"`path` must end in {', '.join(_SUFFIXES)}. Received: path={str(path)!r}")
    return write_whole(path, content)
