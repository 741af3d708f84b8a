"""One door to everything that was saved."""

from __future__ import annotations

import pathlib

from zoo.serving import Servable, newest_version
from zoo.text_to_text import TextToText
from zoo.translator import CONFIG_FILE, Translator


def load(path: str | pathlib.Path) -> TextToText:
    """Loads a saved `Translator`, or an exported SavedModel.

    Args:
        path: a folder that `Translator.save` wrote; or a folder that `zoo.serving.export` wrote, of one model (its
            newest version is taken) or of one version.

    Returns:
        A `Translator`, which can be trained on, or a `Servable`, which cannot; both are called with a list of
        strings and have `translate` and `attend`.

    Raises:
        FileNotFoundError: there is neither.
    """
    path = pathlib.Path(path)
    if (path / CONFIG_FILE).is_file():
        return Translator.load(path)
    if newest_version(path) is not None:
        return Servable(path)
    what = "holds neither a saved Translator nor a SavedModel" if path.exists() else "does not exist"
    raise FileNotFoundError(f"{path} {what}.")
