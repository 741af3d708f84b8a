"""Packages that only some uses need: a missing one is named together with the extra that installs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class MissingExtraError(ModuleNotFoundError):
    """A package of an extra is not installed; the message says how to install it."""


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turns a failing import inside the block into one sentence.

    Args:
        extra: the extra of `pyproject.toml` that installs the package: "train", "pictures", "tensorboard", "serve" or
            "beam".

    Raises:
        MissingExtraError: an import in the block failed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{error.name} is not installed: this needs `pip install 'attention-zoo[{extra}]'`", name=error.name
        ) from error
