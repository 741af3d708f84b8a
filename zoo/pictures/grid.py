"""What a picture of several layers and heads is drawn from."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from zoo.pictures.alignment import Alignment, running_text


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention of every layer and head of one kind between the same tokens.

    Axes: L layers, H heads, T target length, S source length.

    Attributes:
        title: what kind it is, as a heading.
        source_tokens: the tokens attended to, S of them, across.
        target_tokens: the tokens that attend, T of them, down.
        weights: attention weights `(L, H, T, S)`.
        layers: the names of the layers, by default "layer 1" and so on.
        heads: the names of the heads, by default "head 1" and so on.

    Raises:
        ValueError: the weights have another shape or hold what is no weight, there are no tokens, or the names are not
            as many as layers or heads.
    """

    title: str
    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray
    layers: list[str] = None  # type: ignore[assignment]  # never None when it is made
    heads: list[str] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if weights.ndim != 4 or 0 in weights.shape[:2]:
            raise ValueError(f"`weights` must be of shape `(L, H, T, S)`. Received: shape {weights.shape}")
        for name, number in (("layers", weights.shape[0]), ("heads", weights.shape[1])):
            names = getattr(self, name)
            names = [f"{name[:-1]} {n + 1}" for n in range(number)] if names is None else list(names)
            if len(names) != number:
                raise ValueError(f"`{name}` must name {number}. Received: {name}={names}")
            object.__setattr__(self, name, names)
        # Each map is an alignment, which checks tokens and weights.
        maps = [[Alignment(self.source_tokens, self.target_tokens, each) for each in layer] for layer in weights]
        object.__setattr__(self, "source_tokens", maps[0][0].source_tokens)
        object.__setattr__(self, "target_tokens", maps[0][0].target_tokens)
        weights = np.array([[each.weights for each in layer] for layer in maps])
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    def choose(self, layers: str | int = "all", heads: str | int = "all") -> "AttentionMaps":
        """Leaves some of the layers and heads, see `AttentionGrid.choose`."""
        of_layers = _chosen("layers", layers, len(self.layers), "last", self.title)
        weights, names = self.weights[of_layers], [self.layers[each] for each in of_layers]
        if heads == "mean":
            name = f"mean of {len(self.heads)} heads" if len(self.heads) > 1 else self.heads[0]
            return dataclasses.replace(self, weights=weights.mean(1, keepdims=True), layers=names, heads=[name])
        of_heads = _chosen("heads", heads, len(self.heads), "mean", self.title)
        of_names = [self.heads[each] for each in of_heads]
        return dataclasses.replace(self, weights=weights[:, of_heads], layers=names, heads=of_names)


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class AttentionGrid:
    """The attention of one text in many small heat maps: layers down and heads across, one kind below the other.

    Attributes:
        kinds: `AttentionMaps`, such as those of the attention to the source and those of the encoder.
        source_text: the running text of the source, by default the first kind's source tokens joined.
        target_text: the running text of the output, by default likewise.
        title: a heading.
        caption: a line below the picture.

    Raises:
        ValueError: there is nothing to draw.
    """

    kinds: tuple[AttentionMaps, ...]
    source_text: str
    target_text: str
    title: str | None
    caption: str | None

    def __init__(
        self,
        *kinds: AttentionMaps,
        source_text: str | None = None,
        target_text: str | None = None,
        title: str | None = None,
        caption: str | None = None,
    ):
        if not kinds or not all(isinstance(each, AttentionMaps) for each in kinds):
            raise ValueError(f"There must be at least one AttentionMaps to draw. Received: kinds={kinds!r}")
        values = {
            "kinds": kinds,
            "source_text": running_text(kinds[0].source_tokens) if source_text is None else source_text,
            "target_text": running_text(kinds[0].target_tokens) if target_text is None else target_text,
            "title": title,
            "caption": caption,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def choose(
        self, layers: str | int = "all", heads: str | int = "all", kinds: Iterable[int] | None = None
    ) -> "AttentionGrid":
        """Leaves some of the maps.

        Args:
            layers: "all", "last", or the number of one, counted from 1; of each kind.
            heads: "all", "mean", which draws the mean of all of a layer, or the number of one, counted from 1.
            kinds: which kinds, counted from 0; None for all.

        Returns:
            Another grid.

        Raises:
            ValueError: there is no such layer or head.
        """
        kept = self.kinds if kinds is None else [self.kinds[each] for each in kinds]
        return AttentionGrid(
            *(each.choose(layers, heads) for each in kept),
            source_text=self.source_text,
            target_text=self.target_text,
            title=self.title,
            caption=self.caption,
        )


def _chosen(name: str, choice: str | int, number: int, word: str, kind: str) -> list[int]:
    """The indices that a choice means."""
    if choice == "all":
        return list(range(number))
    if choice == "last" == word:
        return [number - 1]
    if isinstance(choice, bool) or not isinstance(choice, int) or not 1 <= choice <= number:
        raise ValueError(
            f"`{name}` must be 'all', {word!r} or a number from 1 to {number} ({kind.lower()}). "
            f"Received: {name}={choice!r}"
        )
    return [choice - 1]
