"""What can be drawn: alignments, and grids of them."""

from collections.abc import Iterable

from zoo.pictures.alignment import Alignment
from zoo.pictures.grid import AttentionGrid

Drawable = Alignment | AttentionGrid


def as_list(pictures: Drawable | Iterable[Drawable]) -> list[Drawable]:
    """One or several alignments or grids as a list.

    Raises:
        ValueError: there are none, one of them is something else, or there are some of both.
    """
    if isinstance(pictures, Drawable):
        return [pictures]
    pictures = list(pictures)
    if not pictures:
        raise ValueError("There must be at least one Alignment to draw. Received: an empty list")
    for picture in pictures:
        if not isinstance(picture, Drawable):
            raise ValueError(f"What is drawn must be Alignment objects. Received: {type(picture).__name__}")
    if len({type(picture) for picture in pictures}) > 1:
        raise ValueError("What is drawn must be either Alignment or AttentionGrid objects. Received: some of both")
    return pictures
