"""`load_checkpoint`: reads a folder of Hugging Face, whatever family its model is of."""

from __future__ import annotations

import pathlib

from zoo.checkpoints.hugging_face import Config
from zoo.checkpoints.language_models import FAMILIES, load_language_model
from zoo.checkpoints.marian import load_marian
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator


def load_checkpoint(path: str | pathlib.Path, target_language: str | None = None) -> TextGenerator | Translator:
    """Reads a checkpoint of Hugging Face, of any size.

    The folder holds `config.json`; `model.safetensors` or `pytorch_model.bin`, or their parts with an index; and the
    tokenizer: `tokenizer.json`, or `vocab.json` and `merges.txt`; for Marian `source.spm`, `target.spm` and
    `vocab.json`.

    Args:
        path: the folder, of a model of the types marian, gpt2, gpt_neo, gpt_neox, llama, mistral, qwen2 or qwen3.
        target_language: for a translator into several languages, the one of texts that name none, such as "fra".

    Returns:
        A `Translator` of a `zoo.models.Transformer` for Marian, otherwise a `TextGenerator` of a `zoo.models.GPT`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or describes a model that the zoo does not have;
            the message names the file and the key.
    """
    path = pathlib.Path(path)
    config = Config(path)
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise config.wrong("model_type", "a string")
    if kind == "marian":
        return load_marian(path, config, target_language)
    if kind not in FAMILIES:
        raise config.wrong("model_type", f"only marian, {', '.join(FAMILIES)} can be read")
    if target_language is not None:
        raise ValueError(f"{path} is a language model, which has no target language. Received: {target_language!r}")
    return load_language_model(path, config)
