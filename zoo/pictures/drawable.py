"""What can be drawn: alignments, and grids of them."""

from collections.abc import Iterable

from zoo.pictures.alignment import Alignment
from zoo.pictures.grid import AttentionGrid

Drawable = Alignment | AttentionGrid


def as_list(pictures: Drawable | Iterable[Drawable]) -> list[Drawable]:
    """Returns one or several alignments or grids as a list.

    Raises:
        ValueError: If there are none, one of them is something else, or there are some of both.
    """
    if isinstance(pictures, Drawable):
        return [pictures]
    pictures = list(pictures)
    if not pictures:
        raise ValueError("Expected at least one Alignment to draw, received an empty list.")
    for picture in pictures:
        if not isinstance(picture, Drawable):
            raise ValueError(f"Expected Alignment objects to draw, received {type(picture).__name__}.")
    if len({type(picture) for picture in pictures}) > 1:
        raise ValueError("Expected either Alignment or AttentionGrid objects to draw, received some of both.")
    return pictures
