"""`load_checkpoint`: reads a Hugging Face folder with a model of any supported family."""

from __future__ import annotations

import pathlib
import warnings

from zoo.checkpoints import ADAPTER_FILE, encoders
from zoo.checkpoints.config import Config
from zoo.checkpoints.language_models import FAMILIES, load_language_model
from zoo.checkpoints.marian import load_marian
from zoo.checkpoints.tensors import weights_file
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier, TextEmbedder
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator

_SETTINGS = (".json", ".txt", ".model", ".spm")


def load_checkpoint(
    path: str | pathlib.Path, target_language: str | None = None
) -> TextGenerator | Translator | TextClassifier | TextEmbedder | MaskFiller:
    """Reads a checkpoint of Hugging Face, of any size.

    The folder holds `config.json`; `model.safetensors` or `pytorch_model.bin`, or their parts with an index; and the
    tokenizer: `tokenizer.json`, or `vocab.json` and `merges.txt`; for Marian `source.spm`, `target.spm` and
    `vocab.json`; for BERT `tokenizer.json` or `vocab.txt`.

    Args:
        path: the folder, of a model of the types bert, distilbert, roberta, marian, gpt2, gpt_neo, gpt_neox, llama,
            mistral, qwen2 or qwen3.
        target_language: for a translator into several languages, the target language of texts that name none, such as
            "fra".

    Returns:
        A `Translator` of a `zoo.models.Transformer` for Marian; for BERT a `TextClassifier`, `TextEmbedder` or
        `MaskFiller` of a `zoo.models.Encoder`, see `zoo.checkpoints.encoders.load_encoder`; otherwise a `TextGenerator`
        of a `zoo.models.GPT`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or describes a model that the zoo does not have;
            the message names the file and the key.
    """
    path = pathlib.Path(path)
    config = Config(path)
    for file in path.iterdir():
        # Settings that are not there mean defaults. A link to nothing must not, as in a damaged cache of the hub.
        if file.suffix in _SETTINGS and not file.exists():
            raise FileNotFoundError(f"{file} is a link to a file that is not there; download the checkpoint again")
    kind, known = config.get("model_type"), ("marian", *encoders.FAMILIES, *FAMILIES)
    if kind not in known:
        raise config.wrong("model_type", f"only {', '.join(known)} can be read")
    if config.get("quantization_config") is not None:
        raise config.wrong("quantization_config", "only weights that are not quantised can be read")
    # Before the tokenizer, so that an adapter or weights of another format are told as such.
    config.only(transformers_weights=weights_file(path).name)
    if (path / ADAPTER_FILE).is_file():
        warnings.warn(f"{path}: the adapter of {ADAPTER_FILE} is left out.", stacklevel=2)
    if kind == "marian":
        return load_marian(path, config, target_language)
    if target_language is not None:
        raise ValueError(f"{path} is no translator, and has no target language. Received: {target_language!r}")
    return encoders.load_encoder(path, config) if kind in encoders.FAMILIES else load_language_model(path, config)
