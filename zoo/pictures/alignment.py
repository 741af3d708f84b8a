"""What every picture is drawn from: the tokens of both sides and the attention weights between them."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

# Tokens that steer a model and stand for no text. They keep their row or column, but are left out of the derived text.
_SPECIAL_TOKENS = frozenset(
    {"<pad>", "<unk>", "<s>", "</s>", "<bos>", "<eos>", "<start>", "<end>"}
    | {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[BOS]", "[EOS]", "[START]", "[END]"}
)
# A weight is a share of one; a little above one is the rounding of half precision, more is a score before the softmax.
_ROUNDING = 1e-2


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment:
    """The attention of one output over one source, as one heat map: one layer, one head, or an average.

    For several layers or heads make one alignment each, with a `title` that says which, and draw the list in
    `columns`.

    Axes: S source length, T target length.

    Attributes:
        source_tokens: the source tokens, S of them, in the order in which the model reads them.
        target_tokens: the output tokens, T of them, in the order in which the model writes them.
        weights: attention weights `(T, S)`: row i holds the weights α_ij of output token i over the source tokens j.
            Rows may sum to less than one; a row without attention is all zero.
        source_text: the running text of the source. By default the source tokens joined, without special tokens and
            with `▁` read as a space; pass it for word tokens and for vocabularies that mark spaces in another way.
        target_text: the running text of the output, by default derived likewise.
        title: a heading, such as the language, or the layer and the head.
        caption: a line below the picture, such as the score of the output.

    Raises:
        ValueError: a side has no tokens, a token is not a string, or the weights are not `(T, S)` finite numbers from 0
            to 1.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    weights: np.ndarray
    source_text: str = None  # type: ignore[assignment]  # never None when it is made
    target_text: str = None  # type: ignore[assignment]
    title: str | None = None
    caption: str | None = None

    def __post_init__(self) -> None:
        source_tokens = _tokens("source_tokens", self.source_tokens)
        target_tokens = _tokens("target_tokens", self.target_tokens)
        derived = {
            "source_tokens": source_tokens,
            "target_tokens": target_tokens,
            "weights": _weights(self.weights, len(target_tokens), len(source_tokens)),
            "source_text": running_text(source_tokens) if self.source_text is None else self.source_text,
            "target_text": running_text(target_tokens) if self.target_text is None else self.target_text,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


def running_text(tokens: Sequence[str]) -> str:
    """Joins tokens into the text they spell, without special tokens and with `▁` as a space."""
    return "".join(token for token in tokens if token not in _SPECIAL_TOKENS).replace("▁", " ").strip()


def check_drawing(columns: int, vmax: float) -> None:
    """Checks the two arguments that every picture shares.

    Raises:
        ValueError: `columns` is below 1, or `vmax` is not above 0 and at most 1.
    """
    if columns < 1:
        raise ValueError(f"`columns` must be at least 1. Received: columns={columns}")
    if not 0 < vmax <= 1:
        raise ValueError(f"`vmax` must be above 0 and at most 1. Received: vmax={vmax}")


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


def _weights(weights: np.ndarray, targets: int, sources: int) -> np.ndarray:
    try:
        weights = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`weights` must be an array of numbers `(T, S)`. Received: {error}") from error
    if weights.shape != (targets, sources):
        swapped = ", which looks transposed" if weights.shape == (sources, targets) else ""
        raise ValueError(
            f"`weights` must be of shape `(T, S)`, here {(targets, sources)}, one row a target token and one column a "
            f"source token. Received: shape {weights.shape}{swapped}"
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
