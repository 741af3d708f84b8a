"""Saves a picture; the suffix of the file decides its kind."""

import os
from collections.abc import Iterable
from pathlib import Path

from zoo.atomic import write_whole
from zoo.pictures.alignment import Picture, as_list
from zoo.pictures.page import to_html
from zoo.pictures.png import to_png
from zoo.pictures.svg import to_svg

_SUFFIXES = (".html", ".svg", ".png")


def save(
    alignments: Picture | Iterable[Picture],
    path: str | os.PathLike[str],
    title: str | None = None,
    columns: int = 1,
    vmax: float = 1.0,
) -> Path:
    """Draws alignments into a file, whose suffix decides the kind of picture.

    `.html` is a page for any number of pictures in any script. `.svg` holds one picture. For both, the program that
    shows them chooses the fonts. `.png` needs Matplotlib (`pip install "attention-zoo[pictures]"`) and a font for
    every character. Missing folders are made. If drawing fails, an older file of that name stays unchanged.

    Args:
        alignments: one or several alignments, or grids of heads.
        path: the file, which ends in `.html`, `.svg` or `.png`.
        title: the heading of a page, by default the file's name; the other kinds have only each picture's own title.
        columns: how many pictures stand side by side in a page, and how many alignments in a PNG.
        vmax: the weight drawn in full ink, above 0 and at most 1.

    Returns:
        The path written.

    Raises:
        ValueError: the suffix is unknown, there is nothing to draw, there are several pictures for an `.svg`, an
            argument is out of range, or no font has a character of a `.png`.
        MissingExtraError: Matplotlib is not installed, for a `.png`.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    alignments = as_list(alignments)
    check_picture_file(path, len(alignments))
    if suffix == ".html":
        content = to_html(alignments, path.stem if title is None else title, columns, vmax).encode()
    elif suffix == ".svg":
        content = to_svg(alignments[0], vmax).encode()
    else:
        content = to_png(alignments, columns, vmax)
    return write_whole(path, content)


def check_picture_file(path: Path, number: int) -> None:
    """Refuses a file that `save` cannot write, before anything is computed.

    Raises:
        ValueError: the suffix is unknown, or an `.svg` is for several pictures.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"`path` must end in {', '.join(_SUFFIXES)}. Received: path={str(path)!r}")
    if path.suffix.lower() == ".svg" and number > 1:
        raise ValueError(f"An .svg must be of one picture; save several as .html or .png. Received: {number}")
