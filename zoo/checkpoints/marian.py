"""Marian, the translators of OPUS-MT: Junczys-Dowmunt et al. 2018, Tiedemann and Thottingal 2020.

Reference: https://huggingface.co/docs/transformers/model_doc/marian
"""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from zoo.checkpoints import ADDED_TOKENS_FILE, CONFIG_FILE, TOKENIZER_CONFIG_FILE
from zoo.checkpoints.config import (
    ACTIVATIONS,
    Config,
    activation_name,
    generation_settings,
    read_json,
    read_settings,
    warn_of_generation,
)
from zoo.checkpoints.tensors import Tensor, assign, check_tensors, dense, norm, picked, repeated, stored_tensors
from zoo.checkpoints.tokenizer_files import special_names
from zoo.models import Transformer
from zoo.tasks.translator import Translator
from zoo.text import END, PADDING, START, UNKNOWN
from zoo.text.marian import MarianTokenizer
from zoo.text.tokenizer import FIRST
from zoo.text.vocabulary import pieces_in_order

SOURCE_FILE, TARGET_FILE = "source.spm", "target.spm"
VOCABULARY_FILE, TARGET_VOCABULARY_FILE = "vocab.json", "target_vocab.json"
UNKNOWN_PIECE, END_PIECE, PADDING_PIECE = "<unk>", "</s>", "<pad>"
_IGNORED = (r"(model\.)?(encoder|decoder)\.embed_positions\.weight",)  # constants
_PROJECTIONS = (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "attention_output"))


class Vocabulary(NamedTuple):
    """The ids of one side.

    Attributes:
        pieces: the pieces of the zoo's ids from 4 on.
        rows: for each id of the zoo, the id in the checkpoint; -1 for none.
    """

    pieces: list[str]
    rows: np.ndarray

    def of(self, array: np.ndarray) -> np.ndarray:
        """The rows of the zoo's ids `(V, ...)`, from the checkpoint's rows; zero where there is none."""
        return picked(array, self.rows)


def load_marian(path: pathlib.Path, config: Config, target_language: str | None) -> Translator:
    """Reads a translator of Marian.

    The folder holds `config.json`, the weights, `source.spm`, `target.spm` and `vocab.json` (and `target_vocab.json` if
    the sides do not share a vocabulary). Beam size, length penalty and lengths come from `generation_config.json`; only
    without that file, from `config.json`.

    The special tokens have other ids in the zoo. The other tokens keep their order. A text may begin with the target
    language, such as `>>fra<<`, if the vocabulary has it.

    Args:
        path: the checkpoint's folder.
        config: its configuration.
        target_language: the target language of texts that name none, such as "fra"; None adds no language.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or asks for something that `Transformer` cannot do;
            or the vocabulary has no such language.
    """
    for name in (SOURCE_FILE, TARGET_FILE):
        if not (path / name).is_file():
            raise FileNotFoundError(f"{path} is not a whole checkpoint: it has no {name}.")
    shared = config.flag("share_encoder_decoder_embeddings", True)
    _check_tokenizer(path, shared)
    config.only(tie_word_embeddings=True, normalize_embedding=False, is_decoder=False, static_position_embeddings=True)
    sizes = config.whole("vocab_size"), config.whole("decoder_vocab_size", config.whole("vocab_size"))
    files = VOCABULARY_FILE, VOCABULARY_FILE if shared else TARGET_VOCABULARY_FILE
    source, target = (read_vocabulary(path, name, size, config) for name, size in zip(files, sizes, strict=True))
    _check_added_tokens(path, {*source.pieces, *target.pieces, UNKNOWN_PIECE, END_PIECE, PADDING_PIECE})
    generation = generation_settings(path, config)
    made, settings = arguments(config, shared), _settings(path, config, generation)
    unused = _unused_ids(path, generation, target)
    stored = stored_tensors(path)
    wanted = check_tensors(path, stored, tensors(made, sizes, source, target, stored), _IGNORED)
    try:
        model = Transformer(len(source.rows), len(target.rows), **made, unused_ids=unused, name="marian")
    except ValueError as error:
        raise ValueError(f"{config.file} asks for a model that cannot be built: {error}") from None
    assign(model, wanted, stored, path)
    source_tokenizer = MarianTokenizer.from_file(path / SOURCE_FILE, source.pieces)
    target_tokenizer = MarianTokenizer.from_file(path / TARGET_FILE, target.pieces)
    if read_settings(path / TOKENIZER_CONFIG_FILE).get("clean_up_tokenization_spaces"):
        target_tokenizer = MarianTokenizer(**target_tokenizer.get_config() | {"clean_up_spaces": True})
    if target_language is not None:
        source_tokenizer = source_tokenizer.with_target_language(target_language)
    return Translator(model, source_tokenizer, target_tokenizer, **settings)


def arguments(config: Config, shared: bool) -> dict[str, Any]:
    """The arguments of `zoo.models.Transformer`."""
    heads, hidden = config.whole("encoder_attention_heads"), config.whole("encoder_ffn_dim")
    config.only(decoder_attention_heads=heads, decoder_ffn_dim=hidden)  # one argument for both sides
    config.only(normalize_before=False, add_final_layer_norm=False)
    return {
        "units": config.whole("d_model"),
        "num_heads": heads,
        "feed_forward_units": hidden,
        "encoder_layers": config.layers("encoder_layers"),
        "decoder_layers": config.layers("decoder_layers"),
        "activation": config.one_of("activation_function", ACTIVATIONS, "gelu"),
        "dropout": config.get("dropout", 0.1),
        "tied_embeddings": "all" if shared else "target",
        "use_output_bias": True,
        "scale_embeddings": config.flag("scale_embedding", False),
        "position_pairs": "halves",
    }


def configuration(model: Any) -> dict[str, Any]:
    """The keys of `config.json` for a `zoo.models.Transformer`.

    Raises:
        ValueError: Hugging Face has no name for the model's activation. Other arguments are not checked.
    """
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("attention_heads", model.num_heads), ("ffn_dim", model.feed_forward_units))
    }
    return sides | {
        "d_model": model.units,
        "encoder_layers": model.encoder_layers,
        "decoder_layers": model.decoder_layers,
        "activation_function": activation_name("Marian", model),
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.feed_forward_dropout,
        "scale_embedding": model.scale_embeddings,
        "share_encoder_decoder_embeddings": model.tied_embeddings == "all",
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
    }


def read_vocabulary(path: pathlib.Path, name: str, size: int, config: Config) -> Vocabulary:
    """The ids of one side: padding, unknown, start and end first, then the others in their order."""
    file = path / name
    ids = read_json(file)
    pieces = pieces_in_order(ids, str(file))
    if len(ids) > size:
        raise ValueError(f"{file} has {len(ids)} pieces, and {CONFIG_FILE} asks for {size}.")
    for piece in (UNKNOWN_PIECE, END_PIECE):
        if piece not in ids:
            raise ValueError(f"{file} has no piece {piece!r}.")
    end, start = config.token("eos_token_id"), config.token("decoder_start_token_id")
    if end is not None and end != ids[END_PIECE]:
        raise config.wrong("eos_token_id", f"{ids[END_PIECE]}, the id of {END_PIECE} in {name}")
    generation = generation_settings(path, config)
    start = generation("decoder_start_token_id", generation("bos_token_id", start))  # as in `transformers`
    if generation("eos_token_id", ids[END_PIECE]) not in (ids[END_PIECE], [ids[END_PIECE]]):
        raise ValueError(f"{path}: eos_token_id of the generation must be {ids[END_PIECE]}, the id of {END_PIECE}.")
    padding = config.token("pad_token_id")
    start = ids.get(PADDING_PIECE, padding) if start is None else start
    if type(start) is not int or not 0 <= start < size:
        raise ValueError(
            f"{path}: decoder_start_token_id, or else bos_token_id, is {start!r}, and must be an id below {size}."
        )
    special = {ids[UNKNOWN_PIECE], ids[END_PIECE], ids.get(PADDING_PIECE, start)}
    others = [id_ for id_ in range(len(pieces)) if id_ not in special]
    rows = np.full(FIRST + len(others), -1)
    rows[[UNKNOWN, START, END]] = ids[UNKNOWN_PIECE], start, ids[END_PIECE]
    rows[FIRST:] = others
    return Vocabulary([pieces[id_] for id_ in others], rows)


def tensors(
    made: dict[str, Any], sizes: tuple[int, int], source: Vocabulary, target: Vocabulary, stored: Any
) -> Iterator[Tensor]:
    """What the checkpoint holds."""
    width, hidden = made["units"], made["feed_forward_units"]
    if made["tied_embeddings"] == "all":
        shape, names = (sizes[0], width), ["shared", "encoder.embed_tokens", "decoder.embed_tokens"]
    else:
        yield Tensor("model.encoder.embed_tokens.weight", (sizes[0], width), "source_embedding/embeddings", source.of)
        shape, names = (sizes[1], width), ["decoder.embed_tokens"]
    name, *copies = (f"model.{name}.weight" for name in names)
    table = Tensor(name, shape, "target_embedding/embeddings", target.of)
    yield from (table, *repeated(stored, table, [*copies, "lm_head.weight"]))
    yield Tensor("final_logits_bias", (1, sizes[1]), "output_bias/bias", lambda array: target.of(array[0]))
    for side, layers in (("encoder", made["encoder_layers"]), ("decoder", made["decoder_layers"])):
        for index in range(layers):
            theirs, ours = f"model.{side}.layers.{index}", f"{side}_layer_{index + 1}"
            attentions = [("self_attn", "self_attention")]
            attentions += [("encoder_attn", "memory_attention")] if side == "decoder" else []
            for attention, weight in attentions:
                yield from norm(f"{theirs}.{attention}_layer_norm", f"{ours}/{weight}_norm", width)
                for name, part in _PROJECTIONS:
                    yield from dense(f"{theirs}.{attention}.{name}", f"{ours}/{weight}/{part}", (width, width))
            yield from norm(f"{theirs}.final_layer_norm", f"{ours}/feed_forward_norm", width)
            yield from dense(f"{theirs}.fc1", f"{ours}/feed_forward/input", (hidden, width))
            yield from dense(f"{theirs}.fc2", f"{ours}/feed_forward/output", (width, hidden))


def _check_tokenizer(path: pathlib.Path, shared: bool) -> None:
    """Refuses a tokenizer with another end or unknown token, or with another number of vocabularies than the model."""
    usual = {"eos_token": END_PIECE, "unk_token": UNKNOWN_PIECE}
    for purpose, piece in special_names(path, usual).items():
        if piece != usual[purpose]:
            raise ValueError(f"{path}: the tokenizer's {purpose} is {piece!r}; only {usual[purpose]!r} can be read.")
    if shared and read_settings(path / TOKENIZER_CONFIG_FILE).get("separate_vocabs"):
        raise ValueError(
            f"{path}: {TOKENIZER_CONFIG_FILE} has separate_vocabs = true, but by {CONFIG_FILE} both sides have one."
        )


def _check_added_tokens(path: pathlib.Path, pieces: set[str]) -> None:
    """Refuses tokens that are in no vocabulary: the library finds them in a text before SentencePiece does."""
    described = read_settings(path / TOKENIZER_CONFIG_FILE).get("added_tokens_decoder")
    entries = described.values() if isinstance(described, dict) else []
    added = [
        *read_settings(path / ADDED_TOKENS_FILE),
        *(each.get("content") for each in entries if isinstance(each, dict)),
    ]
    more = [token for token in dict.fromkeys(map(str, added)) if token not in pieces]
    if more:
        raise ValueError(f"{path} adds the tokens {', '.join(more[:5])}, which are in no vocabulary file.")


def _unused_ids(path: pathlib.Path, setting: Callable[[str, Any], Any], target: Vocabulary) -> list[int]:
    """The ids whose logits are -1e9: padding and, with `renormalize_logits`, the tokens of `bad_words_ids`.

    OPUS-MT forbids its padding, which is also the start of a text. With `renormalize_logits`, a forbidden token has the
    probability 0, and those of the others rise. Without it, the others keep their probabilities. Searches of the zoo
    never write padding, the start or the unknown token, so in that case these need no change.
    """
    words = setting("bad_words_ids", []) or []
    if not isinstance(words, list) or not all(
        isinstance(word, list) and word and all(type(id_) is int for id_ in word) for word in words
    ):
        raise ValueError(f"{path}: bad_words_ids of the generation must be lists of ids. Received: {words!r}")
    ids = {int(row): id_ for id_, row in enumerate(target.rows)}
    unused, left_out = {PADDING}, []
    for word in words:
        id_ = ids.get(word[0], PADDING) if len(word) == 1 else END
        if id_ != END and setting("renormalize_logits", False) is True:
            unused.add(id_)
        elif id_ not in (PADDING, UNKNOWN, START):
            left_out.append(word)
    if left_out:
        warnings.warn(
            f"{path}: these bad_words_ids of the generation are left out: {left_out!r}. Words of several tokens and "
            "the end of a text cannot be forbidden, and other tokens only with renormalize_logits.",
            stacklevel=4,
        )
    return sorted(unused)


def _settings(path: pathlib.Path, config: Config, setting: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The translator's settings. The limit of a source is the smaller one of the tokenizer and the positions."""
    longest, beams, penalty = setting("max_length", 512), setting("num_beams", 1), setting("length_penalty", 1.0)
    if type(more := setting("max_new_tokens", None)) is int:
        longest = more + 1  # `max_length` counts the start token
    if type(longest) is not int or type(beams) is not int or type(penalty) not in (int, float):
        raise ValueError(
            f"{path}: max_length, num_beams and length_penalty of the generation must be numbers. They are "
            f"{longest!r}, {beams!r} and {penalty!r}."
        )
    if not 0 <= penalty <= 10:
        raise ValueError(f"{path}: length_penalty of the generation must be from 0 to 10. It is {penalty}.")
    if beams < 1:
        raise ValueError(f"{path}: num_beams of the generation must be above 0. It is {beams}.")
    if longest < 2:
        raise ValueError(f"{path}: max_length of the generation must be above 1. It is {longest}.")
    stopping = setting("early_stopping", False)
    if type(stopping) is not bool and stopping != "never":
        raise ValueError(f"{path}: early_stopping of the generation must be true, false or 'never', not {stopping!r}.")
    warn_of_generation(path, setting, read={"bad_words_ids", "num_beams", "forced_eos_token_id"})
    longest_source = config.whole("max_position_embeddings", 512)
    limit = read_settings(path / TOKENIZER_CONFIG_FILE).get("model_max_length")
    return {
        "max_source_length": min(limit, longest_source) if type(limit) is int and limit > 1 else longest_source,
        "max_target_length": longest - 1,
        "beam_size": beams,
        "length_penalty": penalty,
        "length_normalization": "mean",
        "early_stopping": stopping,
    }
