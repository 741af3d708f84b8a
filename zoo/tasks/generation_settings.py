"""The settings of `generate`, for whoever goes on with texts and for a client that asks a server to: no TensorFlow."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Setting(NamedTuple):
    """A number that each text has one of.

    Attributes:
        dtype: name of the type that a signature takes it in.
        default: what stands where nobody says; None for any.
        least: the least value.
        most: the largest value.
    """

    dtype: str
    default: Any = None
    least: float = -math.inf
    most: float = math.inf


SETTINGS = {
    "max_new_tokens": Setting("int32", 256, 0, 2**31 - 1),
    "temperature": Setting("float32", 1.0, 0),
    "top_k": Setting("int32", 0, 0, 2**31 - 1),
    "top_p": Setting("float32", 1.0, 0, 1),
    "repetition_penalty": Setting("float32", 1.0, 1e-6),
    "seed": Setting("int64", None, -(2**62), 2**62),  # so that those of all texts fit
}
DEFAULTS = {name: setting.default for name, setting in SETTINGS.items() if setting.default is not None}
LONGEST_STOP = 64  # bytes
STOP_SEPARATOR = b"\0"
_SEEDS = 2**31 - 1


def check_settings(
    number: int,
    max_new_tokens: int | Sequence[int] = DEFAULTS["max_new_tokens"],
    temperature: float | Sequence[float] = DEFAULTS["temperature"],
    top_k: int | Sequence[int] = DEFAULTS["top_k"],
    top_p: float | Sequence[float] = DEFAULTS["top_p"],
    repetition_penalty: float | Sequence[float] = DEFAULTS["repetition_penalty"],
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] = (),
) -> tuple[dict[str, np.ndarray], list[bytes]]:
    """The settings of so many texts, one number a text, by their names; and the stop strings.

    Raises:
        ValueError: a number is out of its range or not one a text, or a stop string is empty or too long.
    """
    seeds = random.randrange(_SEEDS) if seed is None else seed
    given = (max_new_tokens, temperature, top_k, top_p, repetition_penalty, seeds)
    columns = {
        name: column(name, value, number, setting)
        for (name, setting), value in zip(SETTINGS.items(), given, strict=True)
    }
    if np.ndim(seeds) == 0:
        columns["seed"] = columns["seed"] + np.arange(number)
    return columns, _checked_stop(stop)


def column(name: str, value: Any, number: int, setting: Setting) -> np.ndarray:
    """One number for each of so many texts, from one for all or from a list.

    Raises:
        ValueError: it is no number, out of the setting's range, or not one a text.
    """
    found = np.asarray(value)
    whole = setting.dtype.startswith("int")
    if found.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"`{name}` must be {'a whole number' if whole else 'a number'}. Received: {name}={value!r}")
    if found.ndim > 1 or (found.ndim and len(found) != number):
        raise ValueError(f"`{name}` must be one number, or one for each of the {number} texts. Received: {value!r}")
    if not ((found >= setting.least) & (found <= setting.most)).all():
        limits = f"from {setting.least} to {setting.most}" if setting.most < math.inf else f"at least {setting.least}"
        raise ValueError(f"`{name}` must be {limits}. Received: {name}={value!r}")
    return np.broadcast_to(found, number)


def _checked_stop(stop: str | Sequence[str]) -> list[bytes]:
    if not isinstance(stop, Iterable):
        raise ValueError(f"`stop` must be a string or several. Received: stop={stop!r}")
    stop = [stop] if isinstance(stop, str) else list(stop)
    for each in stop:
        if not isinstance(each, str) or not 1 <= len(each.encode("utf-8", "replace")) <= LONGEST_STOP or "\0" in each:
            raise ValueError(f"`stop` must hold strings of 1 to {LONGEST_STOP} bytes, without NUL. Received: {each!r}")
    return [each.encode("utf-8", "replace") for each in stop]
