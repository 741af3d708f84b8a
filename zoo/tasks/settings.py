"""What a task is asked with besides its texts: numbers, stop strings, and masks of tokens and heads."""

from __future__ import annotations

import math
import numbers
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Setting(NamedTuple):
    """A numeric setting with one value for each text.

    Attributes:
        dtype: name of the type in which a signature takes it.
        default: the value if none is given; None for no default.
        least: the least value.
        most: the largest value.
    """

    dtype: str
    default: Any = None
    least: float = -math.inf
    most: float = math.inf


SETTINGS = {
    # A window slides over a text of any length, so only this limit stops a model that never writes an end token.
    "max_new_tokens": Setting("int32", 256, 0, 65_536),
    "temperature": Setting("float32", 1.0, 0, 1_000_000),
    "top_k": Setting("int32", 0, 0, 2**31 - 1),
    "top_p": Setting("float32", 1.0, 0, 1),
    "repetition_penalty": Setting("float32", 1.0, 1e-6, 1e6),
    "seed": Setting("int64", None, -(2**62), 2**62),  # leaves room for the sum `seed + i` of each text
}
# Of a translator. A `max_target_length` above its own limit means that limit; a `length_penalty` out of range means its
# own. So do the defaults, which a client sends for a setting that was not given.
TRANSLATION_SETTINGS = {
    "max_target_length": Setting("int32", 2**31 - 1, 0, 2**31 - 1),
    "length_penalty": Setting("float32", -1.0),
}
DEFAULTS = {name: setting.default for name, setting in SETTINGS.items() if setting.default is not None}
# Inputs of signatures that a row need not have, if the signature takes all of them: of a generator, of a translator.
_OF_GENERATORS = {
    **{name: setting.default for name, setting in SETTINGS.items()},
    "seed": 0,  # not at random: a row that is computed twice must give the same
    "stop": "",
}
_OF_TRANSLATORS = {name: setting.default for name, setting in TRANSLATION_SETTINGS.items()}
# Inputs of the signatures by which people choose tokens. Each takes `hidden`; the model decides which others it takes.
_OF_CHOICES = {"hidden": "", "heads": "", "prefix": "", "temperature": DEFAULTS["temperature"]}
LONGEST_STOP = 64  # bytes
MOST_STOPS = 16  # a row's text is compared with all of them at each step
STOP_SEPARATOR = b"\0"
_SEEDS = 2**31 - 1


def generates(specs: Mapping[str, Any]) -> bool:
    """Whether a signature takes all settings of a generator.

    Args:
        specs: its inputs by name, each with a `dtype`: NumPy's name of it, or "string".
    """
    return _takes(specs, _OF_GENERATORS)


def defaults_of(specs: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a signature's inputs that a row need not have, by their names.

    An input of another model may have the name of a setting and another meaning. So there are no defaults in a
    signature with only some of the settings of a generator or translator, in one without `text` and `hidden`, nor where
    one of them has another type than in the zoo's exports.

    Args:
        specs: as in `generates`.
    """
    choices = {name: value for name, value in _OF_CHOICES.items() if name in specs}
    kinds = [_OF_GENERATORS, _OF_TRANSLATORS]
    if _takes(specs, {"text": "", "hidden": ""}):
        kinds.append(choices)
    return {name: value for kind in kinds if _takes(specs, kind) for name, value in kind.items()}


def _takes(specs: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether there are inputs of these names that hold such values."""
    dtypes = {str: "string", int: "int", float: "float"}
    return all(name in specs and specs[name].dtype.startswith(dtypes[type(value)]) for name, value in values.items())


def has_entries(value: Any) -> bool:
    """Whether a value can be iterated over. Arrays and tensors say so even if they hold one number or string alone."""
    return isinstance(value, Iterable) and getattr(value, "shape", None) != ()


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
    """The settings of `number` texts by name, one value for each text; and the stop strings.

    Raises:
        ValueError: a number is out of its range, a list does not have one number for each text, or stop strings are too
            many, empty or too long.
    """
    seeds = random.randrange(_SEEDS) if seed is None else seed
    given = (max_new_tokens, temperature, top_k, top_p, repetition_penalty, seeds)
    columns = {
        name: column(name, value, number, setting)
        for (name, setting), value in zip(SETTINGS.items(), given, strict=True)
    }
    columns["seed"] = columns["seed"].astype(np.int64)  # of unsigned ones NumPy would make floats in the sum
    if np.ndim(seeds) == 0:
        columns["seed"] = columns["seed"] + np.arange(number)
    return columns, _checked_stop(stop)


def column(name: str, value: Any, number: int, setting: Setting) -> np.ndarray:
    """A number for each text, made from one for all or from a list.

    Raises:
        ValueError: it is not a number, it is out of range, or a list does not have one number for each text.
    """
    found = np.asarray(value)
    whole = setting.dtype.startswith("int")
    # NumPy keeps integers of more than 64 bits as objects. They are out of any range.
    is_too_large = found.dtype == object and all(type(each) is int for each in found.flat)
    if found.size and not is_too_large and found.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"`{name}` must be {'a whole number' if whole else 'a number'}. Received: {name}={value!r}")
    if found.ndim > 1 or (found.ndim and len(found) != number):
        raise ValueError(f"`{name}` must be one number, or one for each of the {number} texts. Received: {value!r}")
    outside = ~np.asarray((found >= setting.least) & (found <= setting.most), bool)
    if outside.any():
        limits = f"from {setting.least} to {setting.most}" if setting.most < math.inf else f"at least {setting.least}"
        place = f" at position {outside.argmax()}" if found.ndim else ""
        raise ValueError(f"`{name}` must be {limits}. Received: {name}={found[outside][0]}{place}")
    return np.broadcast_to(found, number)


def _checked_stop(stop: str | Sequence[str]) -> list[bytes]:
    if not has_entries(stop):
        raise ValueError(f"`stop` must be a string or several. Received: stop={stop!r}")
    stop = [stop] if isinstance(stop, str) else list(stop)
    if len(stop) > MOST_STOPS:
        raise ValueError(f"`stop` must hold at most {MOST_STOPS} strings. Received: {len(stop)}")
    for each in stop:
        if not isinstance(each, str) or not 1 <= len(each.encode("utf-8", "replace")) <= LONGEST_STOP or "\0" in each:
            raise ValueError(f"`stop` must hold strings of 1 to {LONGEST_STOP} bytes, without NUL. Received: {each!r}")
    return [each.encode("utf-8", "replace") for each in stop]


def masks_as_strings(
    number: int,
    inputs: set[str],
    hidden: Sequence[Sequence[int]] | None,
    heads: Sequence[Sequence[str]] | None,
    head_sizes: Mapping[str, tuple[int, int]] | None,
) -> dict[str, list[str]]:
    """Tokens to hide and heads to switch off as the signatures take them: "2 3", "encoder.1.3".

    Args:
        number: how many texts there are.
        inputs: the names of what the signature takes.
        hidden: positions for each text, from 0; None for none.
        heads: names for each text; None for none.
        head_sizes: see `zoo.models.Masks`; None if they are not known, as those of an export. Then a head that the
            model lacks is ignored, as by the signatures.

    Returns:
        A string for each text, for those of the two that the signature takes.

    Raises:
        ValueError: not one list for each text, something else in it, or it is not empty and the signature takes none;
            a position is negative, or the model has no such head.
    """
    positions = lists_for_texts("hidden", hidden, number, numbers.Integral, "lists of positions")
    _check_positions(positions)
    names = lists_for_texts("heads", heads, number, str, "lists of names of heads")
    if "heads" in inputs and head_sizes is not None:
        _check_heads(names, head_sizes)
    written = {}
    for name, rows in (("hidden", positions), ("heads", names)):
        if name in inputs:
            # Each once: a signature reads no more names than there are heads.
            written[name] = [" ".join(dict.fromkeys(map(str, given))) for given in rows]
        elif any(rows):
            raise ValueError(
                f"This model takes no `{name}`. A model with masks does, and an export of it with explore=True."
            )
    return written


def lists_for_texts(name: str, rows: Any, number: int, kind: type, what: str) -> list[list[Any]]:
    """The argument `name` as a list for each of `number` texts; empty lists if it is None.

    Args:
        name: the argument's name, for errors.
        rows: the argument.
        number: how many texts there are.
        kind: the type of what each list holds.
        what: what the argument holds, for errors: "lists of positions".

    Raises:
        ValueError: it does not hold such a list for each text.
    """
    if rows is None:
        return [[] for _ in range(number)]
    if isinstance(rows, str) or not has_entries(rows):
        raise ValueError(f"`{name}` must hold {what}, one for each text. Received: {rows!r}")
    lists: list[list[Any]] = []
    for row, given in enumerate(rows):
        is_list = has_entries(given) and not isinstance(given, str)
        entries = list(given) if is_list else [given]
        wrong = [each for each in entries if isinstance(each, bool) or not isinstance(each, kind)]
        if wrong or not is_list:
            raise ValueError(
                f"`{name}` must hold {what}. Received: {(wrong or entries)[0]!r} in the one at position {row}"
            )
        lists.append(entries)
    if len(lists) != number:
        raise ValueError(f"`{name}` must be as many as `texts`, {number}. Received: {len(lists)}")
    return lists


def _check_positions(rows: list[list[int]]) -> None:
    """Checks that no position is counted from the end, as an index of Python may be."""
    for row, positions in enumerate(rows):
        if min(positions, default=0) < 0:
            raise ValueError(
                f"`hidden` must hold positions from 0. Received: {min(positions)} in the list at position {row}"
            )


def _check_heads(rows: list[list[str]], sizes: Mapping[str, tuple[int, int]]) -> None:
    """Checks that a model of these sizes has all heads that the rows name."""
    known = {
        f"{kind}.{layer}.{head}".lstrip(".")
        for kind, (layers, number) in sizes.items()
        for layer in range(1, layers + 1)
        for head in range(1, number + 1)
    }
    for row, names in enumerate(rows):
        for name in names:
            if name not in known:
                ranges = [
                    " to ".join(f"{kind}.{place}".lstrip(".") for place in ("1.1", f"{layers}.{number}"))
                    for kind, (layers, number) in sizes.items()
                ]
                raise ValueError(
                    f"`heads` must name heads of this model, by layer and number: {', '.join(ranges)}. "
                    f"Received: {name!r} in the list at position {row}"
                )
