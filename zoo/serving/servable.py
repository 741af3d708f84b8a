"""Exported SavedModels, called from Python with the methods of the tasks that they were exported from."""

from __future__ import annotations

import pathlib
import shlex

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from zoo.serving.layout import SAVED_MODEL_FILE, check_loadable, newest_version
from zoo.tasks.text_continuation import TextContinuation
from zoo.tasks.text_reading import MaskFilling, TextClassification, TextEmbedding
from zoo.tasks.text_to_text import TextToText

_EXPLORE = "; export the model again with explore=True, or by zoo export --explore"


class _Servable:
    """A loaded version.

    Args:
        path: a version's folder, or a model's folder, of which the newest version is taken.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel is damaged, or has no signature of that name, with such inputs and outputs.
    """

    # The signature that such a SavedModel has, inputs of it and an output.
    _named, _takes, _gives = "serving_default", {"text"}, "text"

    def __init__(self, path: str | pathlib.Path):
        folder = newest_version(pathlib.Path(path))
        if folder is None:
            raise FileNotFoundError(f"{path} holds no SavedModel, nor versions of one.")
        check_loadable(folder)
        self.path = folder
        try:
            self._saved_model = tf.saved_model.load(str(folder))
        except MemoryError:
            raise
        except Exception as error:
            first, _, _ = str(error).partition("\n")
            raise ValueError(
                f"{folder} cannot be loaded; its files may be damaged ({type(error).__name__}: {first}). `zoo check "
                f"--run {shlex.quote(str(folder))}` looks for what is wrong"
            ) from error
        self._signatures = self._saved_model.signatures
        named = self._signatures.get(self._named)
        inputs = {} if named is None else named.structured_input_signature[1]
        if named is None or self._gives not in named.structured_outputs or not self._takes <= set(inputs):
            takes = " and ".join(f"`{name}`" for name in sorted(self._takes, reverse=True))
            raise ValueError(
                f"The SavedModel {folder} has no signature {self._named!r} from {takes} to `{self._gives}`."
            )

    def _signature(self, name, why="; export the model again"):
        """A signature that not all have.

        Raises:
            ValueError: this one has not.
        """
        if name not in self._signatures:
            raise ValueError(f"The SavedModel {self.path} has no signature {name!r}{why}.")
        return self._signatures[name]

    # Of tasks that can be explored.

    def _explore(self, signature, **tensors):
        return self._signature(signature, _EXPLORE)(**tensors)

    def _inputs(self, signature):
        return set(self._signature(signature, _EXPLORE).structured_input_signature[1])


class ServableTranslator(_Servable, TextToText):
    """An exported `Translator`.

    Args:
        path: a version's folder, or a model's folder, of which the newest version is taken.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel does not turn `text` into `text`.
    """

    def _search(self, beam_size, length_penalty, n_best):
        asked = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": None if n_best == 1 else n_best}
        given = [f"`{name}`" for name, value in asked.items() if value is not None]
        if given:
            raise ValueError(
                f"The SavedModel {self.path} decodes with the beam that it was exported with, and gives the best text "
                f"alone. For {' and '.join(given)} load what was exported: a saved Translator, or its run, runs/NAME."
            )
        return self._translate

    def _translate(self, text):
        result = self._signatures["serving_default"](text=text)
        return {name: tf.expand_dims(tensor, 1) for name, tensor in result.items()}

    def _score(self, text, target):
        return self._signature("score")(text=text, target=target)

    def fills_source(self, text: tf.Tensor) -> tf.Tensor:
        """As in `TextToText`."""
        if not hasattr(self._saved_model, "fills_source"):
            raise ValueError(f"The SavedModel {self.path} does not tell which texts it cuts off; export it again.")
        return self._saved_model.fills_source(text)

    def _attend(self, text):
        return self._signature("attention", ": its model attends to nothing")(text=text)

    def _attend_by_head(self, text):
        why = ": its model has no layers and heads of attention to choose from"
        return self._signature("attention_by_head", why)(text=text)


class ServableGenerator(_Servable, TextContinuation):
    """An exported `TextGenerator`.

    Args:
        path: a version's folder, or a model's folder, of which the newest version is taken.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel has no signature `generate`.
    """

    _named, _takes = "generate", {"text", "max_new_tokens"}

    def _generate(self, **tensors):
        return self._signatures["generate"](**tensors)

    def _score(self, text):
        return self._signature("score")(text=text)

    def _attend(self, text):
        return self._signature("attention")(text=text)

    def _attend_by_head(self, text):
        return self._signature("attention_by_head")(text=text)


class _ServableEncoder(_Servable):
    """An exported task of an encoder.

    Args:
        path: a version's folder, or a model's folder, of which the newest version is taken.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel is of another task.
    """

    def __init__(self, path: str | pathlib.Path):
        super().__init__(path)
        self.pairs = "text_pair" in self._signatures[self._named].structured_input_signature[1]

    def _ask(self, signature, **tensors):
        return self._signature(signature, ": its model has no such attention to show")(**tensors)


class ServableClassifier(_ServableEncoder, TextClassification):
    """An exported `TextClassifier`."""

    _named, _gives = "classify", "labels"


class ServableEmbedder(_ServableEncoder, TextEmbedding):
    """An exported `TextEmbedder`."""

    _named, _gives = "embed", "embedding"


class ServableFiller(_ServableEncoder, MaskFilling):
    """An exported `MaskFiller`."""

    _named, _gives = "fill", "tokens"


Servable = ServableTranslator | ServableGenerator | ServableClassifier | ServableEmbedder | ServableFiller
_BY_SIGNATURE = (ServableGenerator, ServableClassifier, ServableEmbedder, ServableFiller)


def open_servable(path: str | pathlib.Path) -> Servable:
    """Loads a SavedModel as what it was exported from.

    Args:
        path: a version's folder, or a model's folder, of which the newest version is taken.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel is not of a task.
    """
    inputs = _inputs_of_signatures(path)
    fitting = (each for each in _BY_SIGNATURE if each._takes <= inputs.get(each._named, set()))
    return next(fitting, ServableTranslator)(path)


def _inputs_of_signatures(path: str | pathlib.Path) -> dict[str, set[str]]:
    """The names of each signature's inputs, without loading the SavedModel; none where it cannot be read."""
    folder = newest_version(pathlib.Path(path))
    try:
        saved_model = saved_model_pb2.SavedModel.FromString((folder / SAVED_MODEL_FILE).read_bytes() if folder else b"")
    except (OSError, DecodeError):
        return {}
    return {name: set(each.inputs) for graph in saved_model.meta_graphs for name, each in graph.signature_def.items()}
