"""One door to everything that was saved."""

from __future__ import annotations

import pathlib

from zoo.serving import newest_version, open_servable
from zoo.text_continuation import TextContinuation
from zoo.text_generator import CONFIG_FILE as GENERATOR_FILE
from zoo.text_generator import TextGenerator
from zoo.text_to_text import TextToText
from zoo.translator import CONFIG_FILE as TRANSLATOR_FILE
from zoo.translator import Translator


def load(path: str | pathlib.Path) -> TextToText | TextContinuation:
    """Loads a saved `Translator` or `TextGenerator`, or an exported SavedModel.

    Args:
        path: a folder that the `save` of either wrote; or a folder that `zoo.serving.export` wrote, of one model (its
            newest version is taken) or of one version.

    Returns:
        A `Translator` or `TextGenerator`, which can be trained on; or a `ServableTranslator` or `ServableGenerator`,
        which cannot, and has the same calls: `translate` and `attend`, or `generate` and `score`.

    Raises:
        FileNotFoundError: there is neither.
    """
    path = pathlib.Path(path)
    if (path / TRANSLATOR_FILE).is_file():
        return Translator.load(path)
    if (path / GENERATOR_FILE).is_file():
        return TextGenerator.load(path)
    if newest_version(path) is not None:
        return open_servable(path)
    what = "holds no saved Translator or TextGenerator, and no SavedModel" if path.exists() else "does not exist"
    raise FileNotFoundError(f"{path} {what}.")
