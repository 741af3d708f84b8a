"""What all tasks share: from lists of texts to tensors and back to arrays, and a model with tokenizers on disk."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from zoo.atomic import replaced_folder
from zoo.tasks import MODEL_FILE
from zoo.text import PADDING, Tokenizer
from zoo.text.strings import as_utf8
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config


def strings(texts: Sequence[str]) -> tf.Tensor:
    """Texts as a tensor `(B,)` of UTF-8; what UTF-8 cannot encode, such as half a surrogate pair, becomes "?"."""
    return tf.constant([as_utf8(text) for text in texts], tf.string)


def as_arrays(
    function: Callable[..., dict[str, tf.Tensor]], texts: Sequence[str], **more: tf.Tensor
) -> dict[str, np.ndarray]:
    """The results of a function of texts `(B,)` and other arguments, as arrays."""
    return {name: tensor.numpy() for name, tensor in function(text=strings(texts), **more).items()}


def unpadded(tokens: np.ndarray) -> list[str]:
    """The tokens `(T,)` of a row without its padding, whose piece is the empty string."""
    return [token.decode() for token in tokens if token]


def shown_tokens(tokens: np.ndarray, row: int) -> list[str]:
    """The tokens `(T,)` without padding, of which there must be some if their attention is to be shown.

    Raises:
        ValueError: there are none; it names the row.
    """
    if not (shown := unpadded(tokens)):
        raise ValueError(f"The text at position {row} has no tokens whose attention could be shown.")
    return shown


def zeroed(maps: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Weights `(B, layers, H, T, S)` in float32, zero in the rows where ids `(B, T)` are padding."""
    return tf.where((ids != PADDING)[:, None, None, :, None], tf.cast(maps, tf.float32), 0.0)


def check_one_for_each_text(text: tf.Tensor, **settings: tf.Tensor | None) -> tf.Tensor:
    """The texts `(B,)`, after a check that each setting that is not None has one value for each text.

    Without the check, a plain graph would broadcast one number to all texts, while a server that batches refuses such a
    request.
    """
    checks = [
        tf.debugging.assert_equal(tf.size(setting), tf.size(text), f"`{name}` must be one for each text")
        for name, setting in settings.items()
        if setting is not None
    ]
    with tf.control_dependencies(checks):
        return tf.identity(text)


class SavedTask(tf.Module):
    """A Keras model with its tokenizers, which is saved as a folder that `zoo.load` reads.

    A subclass has an attribute for each tokenizer and setting, a constructor that takes the model, the tokenizers, and
    the settings by their names, and the methods that raise NotImplementedError here.

    Args:
        model: the model.

    Raises:
        ValueError: Keras does not run on TensorFlow.
    """

    CONFIG_FILE: ClassVar[str]
    TOKENIZERS: ClassVar[tuple[str, ...]]
    SETTINGS: ClassVar[tuple[str, ...]]
    FORMER_DEFAULTS: ClassVar[dict[str, Any]] = {}  # of settings that older files do not have
    EXPLORE: ClassVar[tuple[str, ...]] = ()  # signatures by which people choose tokens, see `zoo.serving.export`

    def __init__(self, model: Any):
        super().__init__()
        check_backend(type(self).__name__)
        self.model = model

    @property
    def packed_lengths(self) -> tuple[int, ...]:
        """The most tokens that the model decodes or reads: what `zoo.serving.packed.pack` takes."""
        raise NotImplementedError

    def signatures(self) -> dict[str, Any]:
        """The functions that an export has, by their names."""
        raise NotImplementedError

    def example_texts(self) -> list[str]:
        """Texts for warm-up requests, if there are no better ones."""
        raise NotImplementedError

    def example_requests(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """What a client sends to each signature, but those of `EXPLORE`, with these texts."""
        raise NotImplementedError

    @property
    def tokenizers(self) -> list[Tokenizer]:
        """The tokenizers, which an export must hold in addition to the model's weights."""
        return [getattr(self, name) for name in self.TOKENIZERS]

    def with_model(self, model: Any) -> Self:
        """The same tokenizers and settings around another model, such as a packed one."""
        return type(self)(model, *self.tokenizers, **self._settings())

    def with_settings(self, **changes: Any) -> Self:
        """The same model and tokenizers with other settings, such as `beam_size=4`.

        Raises:
            TypeError: the constructor has no such setting.
            ValueError: the constructor refuses a value.
        """
        return type(self)(self.model, *self.tokenizers, **self._settings() | changes)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.SETTINGS}

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Writes the model and its tokenizers as a folder, which `zoo.load` reads.

        The folder is first written under another name and then renamed; a folder that `save` wrote before is replaced.

        Returns:
            The folder.

        Raises:
            FileExistsError: `path` exists and is not a folder of such a task.
        """
        path = pathlib.Path(path)
        with replaced_folder(path, marker=self.CONFIG_FILE) as folder:
            self.model.save(folder / MODEL_FILE)
            config = {name: tokenizer_to_config(getattr(self, name)) for name in self.TOKENIZERS}
            config |= self._settings()
            text = json.dumps(config, ensure_ascii=False, indent=1)
            (folder / self.CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | pathlib.Path) -> Self:
        """Reads what `save` has written.

        Raises:
            FileNotFoundError: `path` is not such a folder, or a file of it is missing.
            ValueError: a file is damaged or holds a value that is refused, the model has a class that is not imported,
                or Keras does not run on TensorFlow.
        """
        import keras

        import zoo.models  # noqa: F401  registers the families, so that Keras finds the class that a saved model names

        check_backend(cls.__name__)
        path = pathlib.Path(path)
        for file in (cls.CONFIG_FILE, MODEL_FILE):
            if not (path / file).is_file():
                raise FileNotFoundError(f"{path} is not a saved {cls.__name__}: it has no {file}.")
        try:
            config: dict[str, Any] = json.loads((path / cls.CONFIG_FILE).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path / cls.CONFIG_FILE} cannot be read; it may be damaged ({error})") from error
        try:
            model = keras.models.load_model(path / MODEL_FILE, compile=False)
        except MemoryError:
            raise
        except Exception as error:
            _, known, reason = str(error).rpartition("Exception encountered: ")  # so Keras introduces the cause
            reason = reason if known else reason.partition("\n")[0]
            raise ValueError(
                f"{path / MODEL_FILE} cannot be loaded; it may be damaged, or need a class of your own that is not "
                f"imported ({type(error).__name__}: {reason})"
            ) from error
        try:
            tokenizers = [tokenizer_from_config(config.pop(name)) for name in cls.TOKENIZERS]
            return cls(model, *tokenizers, **{**cls.FORMER_DEFAULTS, **config})
        except ValueError as error:  # it says what is wrong with which value
            raise ValueError(f"{path / cls.CONFIG_FILE}: {error}") from error
        except (AttributeError, KeyError, TypeError) as error:  # something is missing, unknown or of another type
            raise ValueError(
                f"{path / cls.CONFIG_FILE} cannot be read; it may be damaged, or of a newer version of the zoo "
                f"({type(error).__name__}: {error})"
            ) from error


def check_tokenizer(tokenizer: Tokenizer, model: Any, side: str = "", kind: str = "model") -> None:
    """Refuses a tokenizer with more ids than its model. A model of the user's own may not tell how many it has.

    Args:
        tokenizer: the tokenizer.
        model: the model.
        side: "source_" or "target_", if the model has two sides.
        kind: what the model is called in the message.

    Raises:
        ValueError: it has more.
    """
    size = getattr(model, f"{side}vocabulary_size", tokenizer.size)
    if tokenizer.size > size:
        raise ValueError(
            f"`{side}tokenizer` has {tokenizer.size} ids, more than the {kind}'s {side}vocabulary_size={size}. Build "
            f"the {kind} with the tokenizer's size."
        )


def check_backend(what: str) -> None:
    """Refuses a Keras that does not run on TensorFlow.

    Raises:
        ValueError: it does not.
    """
    import keras  # here, since what was exported is called without Keras

    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"{what} decodes and tokenizes with TensorFlow. Set KERAS_BACKEND=tensorflow before Keras is imported. "
            f"Received: a Keras that runs on {keras.backend.backend()}"
        )
