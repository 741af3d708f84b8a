"""Exporting what speaks text as a SavedModel that a stock TensorFlow Serving runs."""

from __future__ import annotations

import itertools
import os
import pathlib

import tensorflow as tf

from zoo.atomic import temporary_sibling
from zoo.serving.layout import versions
from zoo.translator import Translator


def export(translator: Translator, path: str | pathlib.Path, files: dict[str, str] | None = None) -> pathlib.Path:
    """Writes the next version of a model: `path/<integer>/saved_model.pb` and what belongs to it.

    The version is written aside and renamed into place whole, because a server polls the folder and must never
    see half of one. Its signatures, all of which take `text`, a `[None]` string tensor:

    - `serving_default` gives `text` `[None]`, valid UTF-8, and `score` `[None]`, the log-probability of that text;
    - `attention` gives `source_tokens` `[None, S]`, `target_tokens` `[None, T]`, both padded with empty strings, and
      `weights` `[None, T, S]`, zero at padding. Only where the model has attention;
    - `attention_by_head` gives the same tokens, `weights` `[None, M, H, T, S]` of all M layers and H heads, and
      `source_weights` `[None, N, H, S, S]` of the encoder's self-attention. Only where there are several. It is a
      signature of its own since a client cannot refuse a part of an answer, and this one is long.

    All decode with the translator's beam.

    Args:
        translator: what to export.
        path: the model's folder, whose name is the model's name to a server.
        files: further texts to put into the version's folder, by file name, such as a card.

    Returns:
        The new version's folder.

    Raises:
        FileExistsError: `path` is a file.
    """
    path = pathlib.Path(path)
    if path.is_file():
        raise FileExistsError(f"{path} is a file; a model is exported into a folder.")
    path.mkdir(parents=True, exist_ok=True)
    # Nobody trains a served model: without their gradients, hand-written functions take a fraction of the space.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with temporary_sibling(path) as aside:
        folder = aside / "version"
        tf.saved_model.save(_bare_module(translator), str(folder), signatures=_signatures(translator), options=options)
        for name, text in (files or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        return _rename_to_next_version(folder, path)


def _signatures(translator: Translator) -> dict:
    signatures = {"serving_default": translator._translate}
    if translator.has_attention:
        signatures["attention"] = translator._attend
        if translator.has_heads:
            signatures["attention_by_head"] = translator._attend_by_head
    return signatures


def _bare_module(translator: Translator) -> tf.Module:
    """A module with nothing but what the signatures use: no layers, no optimizer, no training graph."""
    module = tf.Module()
    module.weights = [weight.value for weight in translator.model.weights]
    module.tokenizers = [translator.source_tokenizer, translator.target_tokenizer]
    return module


def _rename_to_next_version(folder: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    for number in itertools.count(max(versions(path), default=0) + 1):
        version = path / str(number)
        try:
            # Fails, and does not overwrite, if another export has just taken this number.
            os.rename(folder, version)
            break
        except OSError:
            if not version.exists():
                raise
    return version
