"""One door to everything that was saved."""

from __future__ import annotations

import pathlib

from zoo.gpt2_checkpoint import is_gpt2, load_gpt2
from zoo.serving import newest_version, open_servable
from zoo.text_continuation import TextContinuation
from zoo.text_generator import CONFIG_FILE as GENERATOR_FILE
from zoo.text_generator import TextGenerator
from zoo.text_to_text import TextToText
from zoo.translator import CONFIG_FILE as TRANSLATOR_FILE
from zoo.translator import Translator


def load(path: str | pathlib.Path) -> TextToText | TextContinuation:
    """Loads a saved `Translator` or `TextGenerator`, an exported SavedModel, or a GPT-2 checkpoint of Hugging Face.

    Args:
        path: a folder that the `save` of either wrote; or a folder that `zoo.serving.export` wrote, of one model (its
            newest version is taken) or of one version; or a folder with GPT-2's `config.json`, `model.safetensors`,
            `vocab.json` and `merges.txt`, which becomes a `TextGenerator`.

    Returns:
        A `Translator` or `TextGenerator`, which can be trained on; or a `ServableTranslator` or `ServableGenerator`,
        which cannot, and has the same calls: `translate`, `score` and `attend`, or `generate` and `score`.

    Raises:
        FileNotFoundError: there is none of these, or a file is missing in it.
        ValueError: a file cannot be read, or does not fit the others.
    """
    path = pathlib.Path(path)
    if (path / TRANSLATOR_FILE).is_file():
        return Translator.load(path)
    if (path / GENERATOR_FILE).is_file():
        return TextGenerator.load(path)
    if is_gpt2(path):
        return load_gpt2(path)
    if newest_version(path) is not None:
        return open_servable(path)
    what = "holds no saved Translator or TextGenerator, and no SavedModel" if path.exists() else "does not exist"
    raise FileNotFoundError(f"{path} {what}.")
