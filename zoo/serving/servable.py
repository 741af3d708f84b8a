"""An exported SavedModel, called from Python."""

from __future__ import annotations

import pathlib

import tensorflow as tf

from zoo.serving.layout import newest_version
from zoo.text_to_text import TextToText


class Servable(TextToText):
    """The signatures of an exported SavedModel, behind the calls that a `Translator` has.

    Args:
        path: a version's folder, or a model's folder, of which the newest version is taken.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel does not turn `text` into `text`.
    """

    def __init__(self, path: str | pathlib.Path):
        folder = newest_version(pathlib.Path(path))
        if folder is None:
            raise FileNotFoundError(f"{path} holds no SavedModel, nor versions of one.")
        self.path = folder
        self._saved_model = tf.saved_model.load(str(folder))
        self._signatures = self._saved_model.signatures
        default = self._signatures.get("serving_default")
        if default is None or "text" not in default.structured_outputs or "text" not in _input_names(default):
            raise ValueError(f"The SavedModel {folder} has no signature 'serving_default' from `text` to `text`.")

    def _search(self, beam_size, length_penalty, n_best):
        if (beam_size, length_penalty, n_best) != (None, None, 1):
            raise ValueError(
                f"The SavedModel {self.path} decodes with the beam that it was exported with, and gives the best text "
                "alone: `beam_size`, `length_penalty` and `n_best` are for a saved Translator."
            )
        return self._translate

    def _translate(self, texts):
        result = self._signatures["serving_default"](text=texts)
        return {name: tf.expand_dims(tensor, 1) for name, tensor in result.items()}

    def _attend(self, texts):
        if "attention" not in self._signatures:
            raise ValueError(f"The SavedModel {self.path} has no signature 'attention': its model attends to nothing.")
        return self._signatures["attention"](text=texts)

    def _attend_by_head(self, texts):
        if "attention_by_head" not in self._signatures:
            raise ValueError(
                f"The SavedModel {self.path} has no signature 'attention_by_head': its model has no layers and heads "
                "of attention to choose from."
            )
        return self._signatures["attention_by_head"](text=texts)


def _input_names(signature) -> dict:
    return signature.structured_input_signature[1]
