"""`zoo.load`: loads everything that the zoo saves or exports."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from zoo.checkpoints import is_checkpoint
from zoo.serving import newest_version
from zoo.tasks import GENERATOR_FOLDER, TRANSLATOR_FOLDER

if TYPE_CHECKING:
    from zoo.tasks.text_continuation import TextContinuation
    from zoo.tasks.text_to_text import TextToText


def load(path: str | pathlib.Path) -> TextToText | TextContinuation:
    """Loads a saved `Translator` or `TextGenerator`, an exported SavedModel, or a checkpoint of Hugging Face.

    Args:
        path: a folder that the `save` of either wrote, or the folder of a training run that holds one in `translator/`
            or `generator/`; or a folder that `zoo.serving.export` wrote, of one model (its newest version is taken) or
            of one version; or a folder with a translator of OPUS-MT or a language model of Hugging Face, see
            `zoo.checkpoints.loading.load_checkpoint`.

    Returns:
        A `Translator` or `TextGenerator`, which can be trained on; or a `ServableTranslator` or `ServableGenerator`,
        which cannot, and has the same calls: `translate`, `score` and `attend`, or `generate` and `score`.

    Raises:
        FileNotFoundError: the folder holds none of these, or one of its files is missing.
        ValueError: a file cannot be read, or does not fit the others; a run holds one of both kinds; or Keras does not
            run on TensorFlow.
    """
    path = pathlib.Path(path)
    # Modules are imported only when they are needed: an exported model is called without Keras.
    if (path / f"{TRANSLATOR_FOLDER}.json").is_file():
        from zoo.tasks.translator import Translator

        return Translator.load(path)
    if (path / f"{GENERATOR_FOLDER}.json").is_file():
        from zoo.tasks.text_generator import TextGenerator

        return TextGenerator.load(path)
    kinds = TRANSLATOR_FOLDER, GENERATOR_FOLDER
    in_run = [path / kind for kind in kinds if (path / kind / f"{kind}.json").is_file()]
    if len(in_run) > 1:
        raise ValueError(f"{path} holds models of both kinds; give {' or '.join(map(str, in_run))}.")
    if in_run:
        return load(in_run[0])
    if is_checkpoint(path):
        from zoo.checkpoints.loading import load_checkpoint

        return load_checkpoint(path)
    if newest_version(path) is not None:
        from zoo.serving import open_servable

        return open_servable(path)
    what = "holds no saved Translator or TextGenerator, and no SavedModel" if path.exists() else "does not exist"
    raise FileNotFoundError(f"{path} {what}.")
