"""What a model leaves out when it is asked: tokens that nobody may attend to, and heads that are switched off."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Masks:
    """Tokens and heads that a model leaves out; the default leaves out none.

    A model takes it as the argument `masks` of `vectors`, of `begin` if it is a translator, and of `attention_maps` if
    it has heads. It also has `head_sizes`: for the name of each kind of attention, how many layers there are, and how
    many heads in each; empty if it has no heads to switch off.

    Axes: B batch, S length of the source or text, N layers, H heads.

    Attributes:
        shown: boolean `(B, S)`, False at tokens that are hidden; None hides none. What is hidden in a translator's
            source has no influence on the translation. In a language model a hidden token still attends to itself and
            to earlier tokens; later tokens do not attend to it.
        heads: for the name of each kind of attention `(B, N, H)`, 0 for heads whose output is zero and 1 for others;
            None switches none off.
    """

    shown: Any = None
    heads: Mapping[str, Any] | None = None

    def allowed(self, mask: Any) -> Any:
        """A mask `(B, S)` of tokens without those that are hidden."""
        return mask if self.shown is None else mask & self.shown

    def of_layer(self, kind: str, layer: int) -> Any:
        """The `head_mask` `(B, H)` of a layer, counted from 0; None for all heads."""
        return None if self.heads is None else self.heads[kind][:, layer]


NO_MASKS = Masks()
