"""`load_checkpoint`: reads a folder of Hugging Face, whatever family its model is of."""

from __future__ import annotations

import pathlib

from zoo.checkpoints.hugging_face import Config
from zoo.checkpoints.language_models import FAMILIES, load_language_model
from zoo.tasks.text_generator import TextGenerator


def load_checkpoint(path: str | pathlib.Path) -> TextGenerator:
    """Reads a checkpoint of Hugging Face, of any size.

    The folder holds `config.json`; `model.safetensors` or `pytorch_model.bin`, or their parts with an index; and the
    tokenizer, as `tokenizer.json` or as `vocab.json` and `merges.txt`.

    Args:
        path: the folder, of a model of the types gpt2, gpt_neo, gpt_neox, llama, mistral, qwen2 or qwen3.

    Returns:
        A `TextGenerator` of a `zoo.models.GPT`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or describes a model that the zoo does not have;
            the message names the file and the key.
    """
    path = pathlib.Path(path)
    config = Config(path)
    if config.get("model_type") not in FAMILIES:
        raise config.wrong("model_type", f"only {', '.join(FAMILIES)} can be read")
    return load_language_model(path, config)
