"""`zoo.load`: loads everything that the zoo saves or exports."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import zoo
from zoo.checkpoints import hub_hint, is_checkpoint, other_format
from zoo.extras import MissingExtraError
from zoo.serving import newest_version
from zoo.serving.layout import first_of
from zoo.tasks import CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER, GENERATOR_FOLDER, TRANSLATOR_FOLDER

if TYPE_CHECKING:
    from zoo.tasks.text_continuation import TextContinuation
    from zoo.tasks.text_reading import MaskFilling, TextClassification, TextEmbedding
    from zoo.tasks.text_to_text import TextToText

# Who saves a model writes `<kind>.json`, and in a run the folder `<kind>`.
_KINDS = {
    TRANSLATOR_FOLDER: "Translator",
    GENERATOR_FOLDER: "TextGenerator",
    CLASSIFIER_FOLDER: "TextClassifier",
    EMBEDDER_FOLDER: "TextEmbedder",
    FILLER_FOLDER: "MaskFiller",
}


def load(path: str | pathlib.Path) -> TextToText | TextContinuation | TextClassification | TextEmbedding | MaskFilling:
    """Loads a saved task, an exported SavedModel, or a checkpoint of Hugging Face.

    Args:
        path: a folder that the `save` of a task wrote, or the folder of a training run that holds one, for example in
            `translator/` or `generator/`; or a folder that `zoo.serving.export` wrote, of one model (its newest version
            is taken) or of one version; or a folder with a checkpoint of Hugging Face, see
            `zoo.checkpoints.loading.load_checkpoint`.

    Returns:
        The task, such as a `Translator` or `TextGenerator`, which can be trained on; or, of an export, a
        `ServableTranslator`, `ServableGenerator` and so on, which cannot, and has the same calls, for example
        `translate`, `score` and `attend`, or `generate` and `score`. If a type checker should know the kind, call
        `zoo.Translator.load`, of what `save` wrote, or `zoo.serving.ServableTranslator`, of an export.

    Raises:
        FileNotFoundError: the folder holds none of these, or one of its files is missing.
        OSError: the system cannot read a file.
        ValueError: a file is damaged, or does not fit the others; a run holds several kinds; or Keras does not run
            on TensorFlow.
        MissingExtraError: a package that reads it is not installed.
    """
    path = pathlib.Path(path)
    try:
        return _load(path)
    except (ValueError, FileNotFoundError, MemoryError, MissingExtraError):
        raise
    except Exception as error:  # what a damaged file raises depends on where it ends: KeyError, tf.errors, ...
        if isinstance(error, OSError) and error.errno is not None:  # of the system, which says what is wrong
            raise
        raise ValueError(
            f"{path} cannot be loaded; its files may be damaged ({type(error).__name__}: {error})"
        ) from error


def _load(path: pathlib.Path) -> TextToText | TextContinuation | TextClassification | TextEmbedding | MaskFilling:
    # Modules are imported only when they are needed: an exported model is called without Keras.
    for kind, name in _KINDS.items():
        if (path / f"{kind}.json").is_file():
            return getattr(zoo, name).load(path)
    in_run = _saved_in(path)
    if len(in_run) > 1:
        raise ValueError(f"{path} holds models of several kinds; give {' or '.join(map(str, in_run))}.")
    if in_run:
        return _load(in_run[0])
    if is_checkpoint(path):
        from zoo.checkpoints.loading import load_checkpoint

        return load_checkpoint(path)
    if newest_version(path) is not None:
        from zoo.serving import open_servable

        return open_servable(path)
    if path.suffix == ".keras" and path.is_file():
        raise ValueError(
            f"{path} is a Keras file: a model without its tokenizers. keras.models.load_model reads it after "
            "`import zoo`. Wrap it: zoo.Translator(model, source_tokenizer, target_tokenizer), "
            "zoo.TextGenerator(model, tokenizer), or the task of its encoder; what their `save` writes can be loaded "
            "here."
        )
    what = "holds no saved model of the zoo, no SavedModel and no checkpoint"
    if not path.exists():
        what = f"does not exist{hub_hint(path)}"
    elif (path / "checkpoint.npz").is_file():  # of `zoo train`
        what = "holds a training that has not ended; the command that began it goes on with it"
    elif instead := other_format(path):
        what = f"holds {instead}"
    elif inside := models_in(path):
        what += f"; the models in it are {inside}"
    raise FileNotFoundError(f"{path} {what}.")


def _is_model(path: pathlib.Path) -> bool:
    try:
        saved = any((path / f"{kind}.json").is_file() for kind in _KINDS)
        return saved or bool(_saved_in(path)) or newest_version(path) is not None
    except OSError:  # such as a folder that may not be read
        return False


def _saved_in(run: pathlib.Path) -> list[pathlib.Path]:
    """The folders of the tasks that a run holds: one, as a rule."""
    return [run / kind for kind in _KINDS if (run / kind / f"{kind}.json").is_file()]


def models_in(path: pathlib.Path) -> str:
    """For a message: the runs, exports and saved tasks in a folder, such as the runs in `runs`; five at most."""
    return first_of([each for each in sorted(path.iterdir()) if _is_model(each)] if path.is_dir() else [])
