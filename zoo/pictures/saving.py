"""Saving pictures: the suffix chooses the kind."""

import os
from collections.abc import Iterable
from pathlib import Path

from zoo.atomic import write_whole
from zoo.pictures.drawable import Drawable, as_list
from zoo.pictures.page import to_html
from zoo.pictures.png import png_bytes
from zoo.pictures.svg import to_svg

SUFFIXES = (".html", ".svg", ".png")


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
        alignments: One or several, each with weights of shape [T, S], or grids of heads.
        path: Where to write; the suffix is one of `.html`, `.svg` and `.png`.
        title: The heading of a page; the other kinds have none beside the titles of the alignments.
        columns: How many alignments stand side by side, in a page or a PNG; grids stand one below the other.
        vmax: The weight drawn in full ink, above 0 and at most 1.

    Returns:
        The path written.

    Raises:
        ValueError: If the suffix is another, there is nothing to draw, several pictures are asked of an `.svg`, an
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
                f"An .svg holds one picture, received {len(alignments)}: save them as .html or .png, or one by one."
            )
        content = to_svg(alignments[0], vmax).encode()
    elif suffix == ".png":
        content = png_bytes(alignments, columns, vmax)
    else:
        raise ValueError(f"Expected a path that ends in {', '.join(SUFFIXES)}, received {str(path)!r}.")
    return write_whole(path, content)
