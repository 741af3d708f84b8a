"""What every picture is drawn from: the tokens of both sides and the attention weights between them."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

# Tokens that steer a model and stand for no text. They keep their row or column, but are left out of the derived text.
SPECIAL_TOKENS = frozenset(
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

    Args:
        source_tokens: The S source tokens, in the order in which the model reads them.
        target_tokens: The T output tokens, in the order in which the model writes them.
        weights: Attention weights of shape [T, S]: row i holds the weights α_ij of output token i over the source
            tokens j. Rows may sum to less than one; a row without attention is all zero.
        source_text: The running text of the source. By default the source tokens joined, without special tokens and
            with `▁` read as a space; pass it for word tokens and for vocabularies that mark spaces in another way.
        target_text: The running text of the output, by default derived likewise.
        title: A heading, such as the language, or the layer and the head.
        caption: A line below the picture, such as the score of the output.

    Raises:
        ValueError: If a side has no tokens, a token is not a string, or `weights` is not of shape [T, S] with finite
            numbers from 0 to 1. The message says what was expected and received.

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
    return "".join(token for token in tokens if token not in SPECIAL_TOKENS).replace("▁", " ").strip()


def check_drawing(columns: int, vmax: float) -> None:
    """Checks the two arguments that every picture shares.

    Raises:
        ValueError: If `columns` is below one or `vmax` is not above zero and at most one.
    """
    if columns < 1:
        raise ValueError(f"Expected `columns` to be 1 or more, received {columns}.")
    if not 0 < vmax <= 1:
        raise ValueError(f"Expected `vmax` to be above 0 and at most 1, received {vmax}.")


def _tokens(name: str, tokens: Iterable[str]) -> list[str]:
    # A string is iterable too, but its characters are rarely the tokens that the model saw.
    if isinstance(tokens, str | bytes):
        raise ValueError(f"Expected `{name}` to be a list of tokens, received {tokens!r}; list(...) gives characters.")
    tokens = list(tokens)
    if not tokens:
        raise ValueError(f"Expected `{name}` to hold at least one token, received none.")
    for position, token in enumerate(tokens):
        if not isinstance(token, str):
            hint = "; decode it from UTF-8 first" if isinstance(token, bytes) else ""
            raise ValueError(f"Expected `{name}` to hold strings, received {token!r} at position {position}{hint}.")
    return tokens


def _weights(weights: np.ndarray, targets: int, sources: int) -> np.ndarray:
    try:
        weights = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected `weights` to be an array of numbers of shape [T, S]: {error}") from error
    if weights.shape != (targets, sources):
        swapped = " It looks transposed." if weights.shape == (sources, targets) else ""
        raise ValueError(
            f"Expected `weights` of shape [T, S] = ({targets}, {sources}), one row a target token and one column a "
            f"source token, received shape {weights.shape}.{swapped}"
        )
    if not np.isfinite(weights).all():
        broken = np.count_nonzero(~np.isfinite(weights))
        raise ValueError(f"Expected finite `weights`, received {broken} that are NaN or infinite.")
    if weights.min() < 0 or weights.max() > 1 + _ROUNDING:
        raise ValueError(
            f"Expected `weights` from 0 to 1, received {weights.min():.4g} to {weights.max():.4g}; "
            "pass them after the softmax."
        )
    weights.flags.writeable = False
    return weights
