"""One door to everything that was saved."""

from __future__ import annotations

import pathlib

from zoo.gpt2_checkpoint import is_gpt2, load_gpt2
from zoo.run_layout import GENERATOR_FOLDER, TRANSLATOR_FOLDER
from zoo.serving import newest_version, open_servable
from zoo.tasks.text_continuation import TextContinuation
from zoo.tasks.text_generator import CONFIG_FILE as GENERATOR_FILE
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.text_to_text import TextToText
from zoo.tasks.translator import CONFIG_FILE as TRANSLATOR_FILE
from zoo.tasks.translator import Translator

# By the folder in a run: the file that what is saved is known by, and who reads it.
_SAVED: dict[str, tuple[str, type[Translator] | type[TextGenerator]]] = {
    TRANSLATOR_FOLDER: (TRANSLATOR_FILE, Translator),
    GENERATOR_FOLDER: (GENERATOR_FILE, TextGenerator),
}


def load(path: str | pathlib.Path) -> TextToText | TextContinuation:
    """Loads a saved `Translator` or `TextGenerator`, an exported SavedModel, or a GPT-2 checkpoint of Hugging Face.

    Args:
        path: a folder that the `save` of either wrote, or the folder of a training run that holds one in `translator/`
            or `generator/`; or a folder that `zoo.serving.export` wrote, of one model (its newest version is taken) or
            of one version; or a folder with GPT-2's `config.json`, `model.safetensors`, `vocab.json` and `merges.txt`,
            which becomes a `TextGenerator`.

    Returns:
        A `Translator` or `TextGenerator`, which can be trained on; or a `ServableTranslator` or `ServableGenerator`,
        which cannot, and has the same calls: `translate`, `score` and `attend`, or `generate` and `score`.

    Raises:
        FileNotFoundError: there is none of these, or a file is missing in it.
        ValueError: a file cannot be read, or does not fit the others, or a run holds one of both kinds.
    """
    path = pathlib.Path(path)
    for file, kind in _SAVED.values():
        if (path / file).is_file():
            return kind.load(path)
    in_run = [folder for folder, (file, _) in _SAVED.items() if (path / folder / file).is_file()]
    if len(in_run) > 1:
        raise ValueError(f"{path} holds models of both kinds; give {' or '.join(str(path / each) for each in in_run)}.")
    if in_run:
        return load(path / in_run[0])
    if is_gpt2(path):
        return load_gpt2(path)
    if newest_version(path) is not None:
        return open_servable(path)
    what = "holds no saved Translator or TextGenerator, and no SavedModel" if path.exists() else "does not exist"
    raise FileNotFoundError(f"{path} {what}.")
