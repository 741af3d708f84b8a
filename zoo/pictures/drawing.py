"""What every picture shares: colours, sizes, and how much ink a weight gets.

They are written once, in `explorer.html`, which draws the pictures in a browser. This file reads them from there.
"""

import json
import pathlib
import re

import numpy as np

PAGE = pathlib.Path(__file__).with_name("explorer.html")
_TEXT = PAGE.read_text(encoding="utf-8")

# In pixels; `inks` is the number of steps from no ink to full ink.
DRAWING: dict[str, float] = json.loads(re.search(r"const DRAWING = (\{.*?\});", _TEXT, re.DOTALL)[1])  # type: ignore[index]
# The custom properties of CSS for a light and for a dark page.
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", _TEXT, re.DOTALL)
)


def ink_of(weights: np.ndarray, vmax: float) -> np.ndarray:
    """The share of full ink of each weight: none at 0, full from `vmax` on, in steps."""
    return np.rint(DRAWING["inks"] * np.minimum(weights / vmax, 1)) / DRAWING["inks"]
