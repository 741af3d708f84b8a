"""`save_checkpoint`: a model of the zoo as a Hugging Face folder.

The importers' tables also serve for writing. `config.json` is written first. The importer reads it and lists the
model's arguments and tensors. An argument that differs is refused. `collect` makes the tensors from the weights.
"""

from __future__ import annotations

import base64
import inspect
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.atomic import replaced_folder
from zoo.checkpoints import CONFIG_FILE, GENERATION_FILE, TOKENIZER_CONFIG_FILE, gpt2, marian
from zoo.checkpoints.config import Config, write_json
from zoo.checkpoints.language_models import DEFAULT_END, end_piece
from zoo.checkpoints.tensors import collect, picked, write_tensors
from zoo.checkpoints.tokenizer_writing import write_tokenizer
from zoo.models import GPT, Transformer
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator
from zoo.text import END, START, UNKNOWN, BytePairTokenizer, MarianTokenizer, SentencePieceTokenizer
from zoo.text.tokenizer import FIRST

START_PIECE = "<|startoftext|>"  # of a GPT whose start has its own row; GPT-2 starts a text with its end token
_MARIAN_PIECES = marian.END_PIECE, marian.UNKNOWN_PIECE, marian.PADDING_PIECE
_POSITIONS = 512  # as in OPUS-MT. Positions are computed, so more of them add no weights.
# Arguments that are not compared: they matter only in training, follow from the weights, or belong to options that are
# refused.
_FREE = {
    *("name", "dtype", "trainable", "layer_states", "dropout", "attention_dropout", "feed_forward_dropout"),
    *("vocabulary_size", "source_vocabulary_size", "target_vocabulary_size", "unused_ids"),
    *("use_bias", "use_qkv_bias", "use_output_bias"),  # a bias that is missing is written as zeros
    *("max_wavelength", "rotary_dim", "rotary_scaling", "max_length"),  # of rotary and of learned positions
}


def save_checkpoint(task: TextGenerator | Translator, path: str | pathlib.Path) -> pathlib.Path:
    """Writes a model as a Hugging Face folder, which `transformers` and `zoo.load` read. PyTorch is not needed.

    - A `TextGenerator` of a `zoo.models.GPT` with the shape of GPT-2: `positions="learned"`, `normalization="layer"`,
      tied embeddings, any of the activations relu, gelu, gelu_tanh and silu; and with a `BytePairTokenizer`. The piece
      of id i has the id i - 4. The end token gets the id that it was imported from, or becomes `<|endoftext|>`, the
      last id. The start has the same id if it has the same embedding, otherwise another one, such as `<|startoftext|>`.
    - A `Translator` of a `zoo.models.Transformer` with the shape of Marian: `norm_first=False`,
      `normalization="layer"`, `positions="sinusoidal"` with `position_pairs="halves"`, `tied_embeddings` "all" or
      "target"; and with tokenizers that are a `MarianTokenizer` or a `SentencePieceTokenizer`. `</s>` has the id 0,
      `<unk>` 1, and `<pad>`, which is the start as well, the last one, or 2 if the sides have two vocabularies.

    A folder that was imported is written with the same ids if its special tokens were in these places. Weights are in
    float32; biases that the model does not have are zeros. Settings without a name in Hugging Face are not kept: the
    `context_length` and `stride` of a `TextGenerator`.

    The folder is first written under another name and then renamed.

    Args:
        task: what to write.
        path: the folder, which does not exist or is empty.

    Returns:
        The folder.

    Raises:
        FileExistsError: `path` exists and is not empty.
        ValueError: no checkpoint of GPT-2 or Marian has this shape; the message names the argument.

    Warns:
        UserWarning: a translator compares hypotheses by the formula of Wu et al. 2016, which `transformers` does not
            have.
    """
    path = pathlib.Path(path)
    with replaced_folder(path, marker=None) as folder:
        _writer(task)(task, folder)
    return path


def _writer(task: Any) -> Callable[[Any, pathlib.Path], None]:
    model = getattr(task, "model", None)
    for kind, family, write in ((TextGenerator, GPT, _write_gpt2), (Translator, Transformer, _write_marian)):
        if isinstance(task, kind) and type(model) is family:  # a subclass may compute something else
            return write
    what = type(task).__name__ + ("" if model is None else f" of {type(model).__name__}")
    raise ValueError(f"`task` must be a TextGenerator of GPT or a Translator of Transformer. Received: {what}")


def _check_shape(family: str, found: dict[str, Any], made: dict[str, Any]) -> None:
    """Compares the arguments of a model with those that the importer would build it with."""
    for name, value in found.items():
        if name not in _FREE and value != made[name]:
            raise ValueError(f"{name}={value!r}; a {family} checkpoint has {made[name]!r}.")


def _defaults(model: Any) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(type(model).__init__).parameters.items()}


def _write_gpt2(generator: TextGenerator, folder: pathlib.Path) -> None:
    model, tokenizer = generator.model, generator.tokenizer
    if not isinstance(tokenizer, BytePairTokenizer):
        raise ValueError(f"The tokenizer is a {type(tokenizer).__name__}; a GPT-2 checkpoint has byte pairs.")
    vocabulary, ids = _pieces_of_gpt(generator)
    size, end = max(model.vocabulary_size - FIRST, len(vocabulary)), int(ids[END])
    start = end if ids[START] < 0 else int(ids[START])
    special = {"bos_token_id": start, "eos_token_id": end}
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": size}
    write_json(folder / CONFIG_FILE, config | gpt2.configuration(model) | special)
    made = gpt2.arguments(Config(folder))
    _check_shape("GPT-2", gpt2.explicit(model.get_config()), gpt2.explicit(_defaults(model) | made))
    tensors = collect(model, gpt2.tensors(made, size, lambda array: picked(array, ids)))
    write_tensors(folder, {gpt2.PREFIX + name: array for name, array in tensors.items()})
    # Ids that the zoo never writes. The end is removed: the importer lists its old id as unused.
    never = {id_ - FIRST for id_ in model.unused_ids if id_ > END} | {start}
    generation = special | {"pad_token_id": end, "suppress_tokens": sorted(never - {end}) or None}
    write_json(folder / GENERATION_FILE, generation)
    names = {"bos_token": vocabulary[start], "eos_token": vocabulary[end], "pad_token": vocabulary[end]}
    before = vocabulary[start] if generator.add_start else None
    write_tokenizer(folder, tokenizer, vocabulary, names, before, generator.context_length)


def _pieces_of_gpt(generator: TextGenerator) -> tuple[list[str], np.ndarray]:
    """The pieces of a checkpoint, and the checkpoint's id of each of the zoo's ids `(V,)`: -1 for none."""
    model, tokenizer = generator.model, generator.tokenizer
    made = tokenizer.get_config()
    vocabulary = list(made["vocabulary"])
    ids = np.arange(-FIRST, model.vocabulary_size - FIRST)
    ids[:FIRST] = -1

    def give(special_id: int, piece: str) -> None:
        if piece not in vocabulary:
            vocabulary.append(piece)
        place = vocabulary.index(piece)
        ids[ids == place] = -1
        ids[special_id] = place

    end = end_piece(generator) or DEFAULT_END
    give(END, end)
    rows = np.asarray(model.embedding.embeddings)  # (V, D)
    if not np.array_equal(rows[START], rows[END]):
        special = [tokenizer.id_of(token["content"]) for token in made["added_tokens"] if token["special"]]
        same = (made["vocabulary"][id_ - FIRST] for id_ in special if np.array_equal(rows[id_], rows[START]))
        # GPT-2 has one token for both. If only the end was trained, the other row is still that of the end's piece.
        give(START, next((piece for piece in same if piece != end), START_PIECE))
    return vocabulary, ids


def _write_marian(translator: Translator, folder: pathlib.Path) -> None:
    model, sides = translator.model, (translator.source_tokenizer, translator.target_tokenizer)
    for side, tokenizer in zip(translator.TOKENIZERS, sides, strict=True):
        if not isinstance(tokenizer, SentencePieceTokenizer):
            raise ValueError(f"{side} is a {type(tokenizer).__name__}; a Marian checkpoint has SentencePiece.")
        if isinstance(tokenizer, MarianTokenizer) and tokenizer.target_language is not None:
            raise ValueError(
                "`target_language` cannot be written to a Marian checkpoint, where each text names its language, as in "
                f">>fra<< Hello. Leave it out. Received: {tokenizer.target_language!r}"
            )
    if {*range(END, translator.target_tokenizer.size)} & {*model.unused_ids}:
        raise ValueError(f"unused_ids={model.unused_ids!r}; a Marian checkpoint has no piece that is never written.")
    shared = model.tied_embeddings == "all"
    vocabularies = [_pieces_of_marian(tokenizer, shared) for tokenizer in sides]
    if shared and vocabularies[0] != vocabularies[1]:
        raise ValueError("tied_embeddings='all' and two vocabularies; a Marian checkpoint then has one.")
    sizes = len(vocabularies[0]), len(vocabularies[1])
    end, unknown, padding = (vocabularies[1][piece] for piece in _MARIAN_PIECES)
    special = {"eos_token_id": end, "bos_token_id": None, "forced_eos_token_id": None}
    special |= {"pad_token_id": padding, "decoder_start_token_id": padding}
    config = {"architectures": ["MarianMTModel"], "model_type": "marian", "is_encoder_decoder": True}
    config |= {"vocab_size": sizes[0], "decoder_vocab_size": sizes[1]}
    positions = max(_POSITIONS, translator.max_source_length, translator.max_target_length)
    config |= {"max_position_embeddings": positions}
    write_json(folder / CONFIG_FILE, config | marian.configuration(model) | special)
    read = Config(folder)
    made = marian.arguments(read, shared)
    _check_shape("Marian", model.get_config(), _defaults(model) | made)

    files = [marian.VOCABULARY_FILE] if shared else [marian.VOCABULARY_FILE, marian.TARGET_VOCABULARY_FILE]
    for name, vocabulary in zip(files, vocabularies, strict=False):
        write_json(folder / name, vocabulary)
    for name, tokenizer in zip((marian.SOURCE_FILE, marian.TARGET_FILE), sides, strict=True):
        (folder / name).write_bytes(base64.b64decode(tokenizer.get_config()["model"]))
    source = _with_size(marian.read_vocabulary(folder, files[0], sizes[0], read), model.source_vocabulary_size)
    target = _with_size(marian.read_vocabulary(folder, files[-1], sizes[1], read), model.target_vocabulary_size)
    write_tensors(folder, collect(model, marian.tensors(made, sizes, source, target, stored={})))
    renormalizes = START in model.unused_ids
    forbidden = [[padding]] if renormalizes and UNKNOWN not in model.unused_ids else [[padding], [unknown]]
    generation = _generation(translator) | special
    generation |= {"bad_words_ids": forbidden, "renormalize_logits": renormalizes}
    write_json(folder / GENERATION_FILE, generation)
    settings = {"tokenizer_class": "MarianTokenizer", "model_max_length": translator.max_source_length}
    settings |= {"eos_token": marian.END_PIECE, "unk_token": marian.UNKNOWN_PIECE, "pad_token": marian.PADDING_PIECE}
    # `transformers` before version 5 removes spaces unless it is told not to.
    cleans = getattr(translator.target_tokenizer, "clean_up_spaces", False)
    settings |= {"separate_vocabs": not shared, "clean_up_tokenization_spaces": cleans}
    write_json(folder / TOKENIZER_CONFIG_FILE, settings)


def _pieces_of_marian(tokenizer: SentencePieceTokenizer, shared: bool) -> dict[str, int]:
    """The pieces and their ids: as in OPUS-MT if the sides share them, else with one id of padding on both sides."""
    end, unknown, padding = _MARIAN_PIECES
    pieces = [piece.decode() for piece in tokenizer.tokens([range(FIRST, tokenizer.size)]).numpy()[0]]
    if taken := [piece for piece in _MARIAN_PIECES if piece in pieces]:
        raise ValueError(f"A tokenizer has the piece {taken[0]}, which is a special token of a Marian checkpoint.")
    pieces = [end, unknown, *pieces, padding] if shared else [end, unknown, padding, *pieces]
    return {piece: id_ for id_, piece in enumerate(pieces)}


def _with_size(vocabulary: marian.Vocabulary, size: int) -> marian.Vocabulary:
    """A vocabulary for a model with more ids than its tokenizer. The checkpoint has no ids for the additional rows."""
    return vocabulary._replace(rows=np.pad(vocabulary.rows, (0, size - len(vocabulary.rows)), constant_values=-1))


def _generation(translator: Translator) -> dict[str, Any]:
    """The keys of `generation_config.json` that the importer reads as settings."""
    if translator.length_normalization != "mean" and translator.beam_size > 1 and translator.length_penalty:
        warnings.warn(
            f"The translator ranks hypotheses by length_normalization={translator.length_normalization!r}. "
            "transformers has 'mean' alone, so a beam may give other texts there.",
            stacklevel=4,
        )
    return {
        "max_length": translator.max_target_length + 1,  # the start token is counted there
        "num_beams": translator.beam_size,
        "length_penalty": translator.length_penalty,
        "early_stopping": translator.early_stopping,
    }
