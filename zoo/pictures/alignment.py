"""What pictures are drawn from: tokens, and the attention weights between them.

An `AttentionGrid` is one heat map for each layer and head of a model. An `Alignment` is a grid of one map.
"""

import dataclasses
import numbers
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

_UNKNOWN_TOKENS = frozenset({"<unk>", "[UNK]"})
_UNKNOWN_LENGTH = 100  # the most characters that one of them is taken to stand for
# Tokens that steer a model and stand for no text. They keep their row or column, but are not part of the text.
_SPECIAL_TOKENS = _UNKNOWN_TOKENS | {
    *("<pad>", "<s>", "</s>", "<bos>", "<eos>", "<start>", "<end>"),
    *("[PAD]", "[CLS]", "[SEP]", "[BOS]", "[EOS]", "[START]", "[END]"),
}
# A weight is a share of 1. In half precision it may be a little above 1; more than that is a score before the softmax.
_ROUNDING = 1e-2


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment:
    """The attention of one output over one source as one heat map: one layer, one head, or an average.

    Axes: S source length, T target length.

    Attributes:
        source_tokens: S source tokens, in the order in which the model reads them.
        target_tokens: T output tokens, in the order in which the model writes them.
        weights: attention weights `(T, S)`. Row i holds the weights α_ij of output token i over the source tokens j.
            A row may sum to less than 1; a row without attention is zero.
        source_text: the running text of the source. The default joins the source tokens, without special tokens and
            with `▁` as a space. Set it for word tokens, and for vocabularies that mark spaces in another way.
        target_text: the running text of the output; the default is made in the same way.
        title: a heading, such as the language, or the layer and the head.
        caption: a line below the picture, such as the score of the output.

    Raises:
        ValueError: a side has no tokens, a token is not a string, or the weights are not finite numbers `(T, S)` from 0
            to 1.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray
    source_text: str = None  # type: ignore[assignment]  # a string after __post_init__
    target_text: str = None  # type: ignore[assignment]
    title: str | None = None
    caption: str | None = None

    def __post_init__(self) -> None:
        source_tokens = _tokens("source_tokens", self.source_tokens)
        target_tokens = _tokens("target_tokens", self.target_tokens)
        values = {
            "source_tokens": source_tokens,
            "target_tokens": target_tokens,
            "weights": _weights(self.weights, "(T, S)", (len(target_tokens), len(source_tokens))),
            "source_text": running_text(source_tokens) if self.source_text is None else self.source_text,
            "target_text": running_text(target_tokens) if self.target_text is None else self.target_text,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMaps:
    """The attention of every layer and head of one kind, between the same tokens.

    Axes: L layers, H heads, S source length, T target length.

    Attributes:
        title: the kind of attention, as a heading.
        source_tokens: S tokens that are attended to; one column each.
        target_tokens: T tokens that attend; one row each.
        weights: attention weights `(L, H, T, S)`.
        layers: names of the layers; the default is "layer 1" and so on.
        heads: names of the heads; the default is "head 1" and so on.

    Raises:
        ValueError: the weights have another shape or are no weights, a side has no tokens, or the number of names is
            not the number of layers or heads.
    """

    title: str
    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray
    layers: list[str] = None  # type: ignore[assignment]  # a list after __post_init__
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
        source_tokens = _tokens("source_tokens", self.source_tokens)
        target_tokens = _tokens("target_tokens", self.target_tokens)
        shape = *weights.shape[:2], len(target_tokens), len(source_tokens)
        object.__setattr__(self, "source_tokens", source_tokens)
        object.__setattr__(self, "target_tokens", target_tokens)
        object.__setattr__(self, "weights", _weights(weights, "(L, H, T, S)", shape))

    def choose(self, layers: str | int = "all", heads: str | int = "all") -> "AttentionMaps":
        """Keeps some of the layers and heads, see `AttentionGrid.choose`."""
        of_layers = _chosen("layers", layers, len(self.layers), "last", self.title)
        weights, names = self.weights[of_layers], [self.layers[index] for index in of_layers]
        if heads == "mean":
            name = f"mean of {len(self.heads)} heads" if len(self.heads) > 1 else self.heads[0]
            return dataclasses.replace(self, weights=weights.mean(1, keepdims=True), layers=names, heads=[name])
        of_heads = _chosen("heads", heads, len(self.heads), "mean", self.title)
        of_names = [self.heads[index] for index in of_heads]
        return dataclasses.replace(self, weights=weights[:, of_heads], layers=names, heads=of_names)


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class AttentionGrid:
    """The attention of one text in many small heat maps: layers from top to bottom, heads from left to right.

    Attributes:
        kinds: `AttentionMaps`, for example of the attention to the source and of the encoder's self-attention. They
            are drawn one below the other.
        source_text: the running text of the source; the default joins the first kind's source tokens.
        target_text: the running text of the output; the default joins the first kind's target tokens.
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
        if not kinds or not all(isinstance(kind, AttentionMaps) for kind in kinds):
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
        """Keeps some of the maps.

        Args:
            layers: of each kind, "all", "last", or the number of one layer, counted from 1.
            heads: "all", "mean" for the mean of a layer's heads, or the number of one head, counted from 1.
            kinds: which kinds to keep, counted from 0; None keeps all.

        Returns:
            Another grid.

        Raises:
            ValueError: there is no such layer or head.
        """
        kept = self.kinds if kinds is None else [self.kinds[index] for index in kinds]
        return AttentionGrid(
            *(kind.choose(layers, heads) for kind in kept),
            source_text=self.source_text,
            target_text=self.target_text,
            title=self.title,
            caption=self.caption,
        )


Picture = Alignment | AttentionGrid


def as_grid(picture: Picture) -> AttentionGrid:
    """Returns a picture as a grid: an alignment is a grid of one map, whose kind, layer and head have no names."""
    if isinstance(picture, AttentionGrid):
        return picture
    weights = picture.weights[None, None]
    maps = AttentionMaps("", picture.source_tokens, picture.target_tokens, weights, layers=[""], heads=[""])
    texts = {"source_text": picture.source_text, "target_text": picture.target_text}
    return AttentionGrid(maps, **texts, title=picture.title, caption=picture.caption)


def as_list(pictures: Picture | Iterable[Picture]) -> list[Picture]:
    """Returns one or several alignments or grids as a list.

    Raises:
        ValueError: the list is empty, or holds something else.
    """
    if isinstance(pictures, Picture):
        return [pictures]
    pictures = list(pictures)
    if not pictures:
        raise ValueError("There must be at least one Alignment to draw. Received: an empty list")
    for picture in pictures:
        if not isinstance(picture, Picture):
            raise ValueError(
                f"What is drawn must be Alignment or AttentionGrid objects. Received: {type(picture).__name__}"
            )
    return pictures


def check_drawing(columns: int, vmax: float) -> None:
    """Checks the two arguments that all kinds of pictures share.

    Raises:
        ValueError: `columns` is no integer or below 1, or `vmax` is not above 0 and at most 1.
    """
    if not isinstance(columns, numbers.Integral) or columns < 1:
        raise ValueError(f"`columns` must be an integer of at least 1. Received: columns={columns}")
    if not 0 < vmax <= 1:
        raise ValueError(f"`vmax` must be above 0 and at most 1. Received: vmax={vmax}")


def both_sides(picture: Picture) -> tuple[list[str], list[str]]:
    """The source tokens and the target tokens of a picture; of a grid, those of its first kind."""
    first = picture if isinstance(picture, Alignment) else picture.kinds[0]
    return first.source_tokens, first.target_tokens


def is_of_one_text(picture: Picture) -> bool:
    """Whether a text attends to itself, as in a language model: both sides have the same tokens and text."""
    sources, targets = both_sides(picture)
    return sources == targets and picture.source_text == picture.target_text


def notes(picture: Picture) -> list[str]:
    """The lines below a picture: its caption, and where the source was cut."""
    tokens, _ = both_sides(picture)
    cut = ""
    if unread := _unread(tokens, picture.source_text):
        shown = unread if len(unread) <= 40 else f"{unread[:39]}…"
        side = "text" if is_of_one_text(picture) else "source"
        cut = f"The {side} was cut after {len(tokens)} tokens. The model did not read “{shown}”."
    return [note for note in (picture.caption, cut) if note]


def running_text(tokens: Sequence[str]) -> str:
    """Joins tokens into the text they spell, without special tokens and with `▁` as a space."""
    return "".join(token for token in tokens if token not in _SPECIAL_TOKENS).replace("▁", " ").strip()


def _unread(tokens: Sequence[str], text: str) -> str:
    """The end of a text that its tokens do not spell; empty if they spell all of it, or another text.

    A model cuts a long source at its limit, and only the tokens show it. So this follows them through the text. It
    keeps all places where they may have ended: an unknown token stands for up to 100 characters, and a single byte for
    at most one.
    """
    text = unicodedata.normalize("NFC", text)
    # Tokens do not say how many spaces stand before them.
    begins = list(range(len(text) + 1))  # the first place from each one on without white space
    for place in reversed(range(len(text))):
        if text[place].isspace():
            begins[place] = begins[place + 1]
    places = {0}  # how much of the text the tokens so far may have spelt
    for token in tokens:
        starts = {begins[place] for place in places}
        if token in _UNKNOWN_TOKENS:
            places = {*range(min(starts), min(len(text), max(starts) + _UNKNOWN_LENGTH) + 1)} if starts else set()
            continue
        if token in _SPECIAL_TOKENS:
            continue
        spelt = "".join(token.replace("▁", " ").split())
        places = {start + len(spelt) for start in starts if text.startswith(spelt, start)}
        if "\\" in token:  # a byte that is no character is shown as \xe2
            places |= {min(start + step, len(text)) for start in starts for step in range(2)}
    return text[max(places) :].strip() if places else ""


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


def _tokens(name: str, tokens: Iterable[str]) -> list[str]:
    # A string is iterable too, but its characters are rarely the tokens that the model saw.
    if isinstance(tokens, str | bytes):
        raise ValueError(f"`{name}` must be a list of tokens; list(...) gives characters. Received: {tokens!r}")
    tokens = list(tokens)
    if not tokens:
        raise ValueError(f"`{name}` must hold at least one token. Received: none")
    for position, token in enumerate(tokens):
        if not isinstance(token, str):
            hint = "; decode bytes from UTF-8 first" if isinstance(token, bytes) else ""
            raise ValueError(f"`{name}` must hold strings{hint}. Received: {token!r} at position {position}")
    return tokens


def _weights(weights: np.ndarray, axes: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        weights = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`weights` must be an array of numbers `{axes}`. Received: {error}") from error
    if weights.shape != shape:
        swapped = ", which looks transposed" if weights.shape == (*shape[:-2], shape[-1], shape[-2]) else ""
        raise ValueError(
            f"`weights` must be of shape `{axes}`, here {shape}: a row for each target token, a column "
            f"for each source token. Received: shape {weights.shape}{swapped}"
        )
    if not np.isfinite(weights).all():
        broken = np.count_nonzero(~np.isfinite(weights))
        raise ValueError(f"`weights` must be finite. Received: {broken} that are NaN or infinite")
    if weights.min() < 0 or weights.max() > 1 + _ROUNDING:
        raise ValueError(
            "`weights` must be from 0 to 1; pass them after the softmax. "
            f"Received: {weights.min():.4g} to {weights.max():.4g}"
        )
    weights.flags.writeable = False
    return weights
