"""The interval that a share lies in."""

from __future__ import annotations

import math
import statistics


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """Wilson's 95% interval (1927) of a share. Unlike `p ± 1.96 s`, it stays within 0 and 1 and never has width 0.

    Args:
        right: how many of the total, which is at least 1.
        total: the number of trials.
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    share, scale = right / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)
