"""Imports encoders of Hugging Face as a `TextClassifier`, `TextEmbedder` or `MaskFiller`: what all families share."""

from __future__ import annotations

import itertools
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from zoo.checkpoints import CONFIG_FILE, MODULES_FILE, TOKENIZER_CONFIG_FILE, bert, distilbert, roberta
from zoo.checkpoints.config import Config, read_json, read_settings
from zoo.checkpoints.pytorch_file import StoredArray
from zoo.checkpoints.special_tokens import read_special_tokens
from zoo.checkpoints.tensors import Tensor, assign, check_tensors, dense, norm, picked, repeated, stored_tensors
from zoo.checkpoints.tokenizer_components import OTHER_PAIRS
from zoo.checkpoints.tokenizer_files import TOKENIZER_FILE, check_size, is_of_a_family, special_names
from zoo.checkpoints.tokenizer_json import read_tokenizer
from zoo.checkpoints.word_piece_json import read_word_pieces
from zoo.models import Classifier, Encoder, MaskedLanguageModel, SentenceEmbedder
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier, TextEmbedder
from zoo.text import Tokenizer
from zoo.text.tokenizer import FIRST

FAMILIES: dict[str, ModuleType] = {"bert": bert, "distilbert": distilbert, "roberta": roberta}
# Of sentence-transformers. The first one is that of every family today; old folders have one that names the family.
_SENTENCE_FILES = [f"sentence_{family}_config.json" for family in ("bert", "roberta", "distilbert")]
_PROMPTS_FILE = "config_sentence_transformers.json"
# By how the name of the architecture ends.
_TASKS = {"ForSequenceClassification": "classifier", "ForMaskedLM": "filler", "ForPreTraining": "filler"}
_SEGMENTS = "segment_embedding/embeddings"
_SHORTEST = 5  # tokens of a text
_MOST_LABELS = 100_000
# By the names of sentence-transformers: those of today, and the flags of older files.
_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def load_encoder(path: pathlib.Path, config: Config) -> TextClassifier | TextEmbedder | MaskFiller:
    """Reads an encoder of one of `FAMILIES`, for the task that it was trained for.

    With a `modules.json`, as sentence-transformers writes it, the checkpoint is a `TextEmbedder` with the pooling of
    that file. Otherwise `architectures` of `config.json` decides: a model for sequence classification is a
    `TextClassifier`, a model for masked tokens or pre-training a `MaskFiller`. A bare encoder becomes a `TextEmbedder`
    that averages the vectors of the tokens, with a warning.

    `[PAD]`, `[UNK]`, `[CLS]` and `[SEP]` have the zoo's ids 0 to 3, and the order of the other tokens stays. RoBERTa's
    ids are the checkpoint's plus 4.

    Args:
        path: the checkpoint's folder.
        config: its configuration.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or asks for something that `Encoder` cannot do.
    """
    family = FAMILIES[config.get("model_type")]
    kind = _kind(path, config)
    config.only(is_causal=False)
    if kind == "filler":
        config.only(tie_word_embeddings=True)  # the embedding is the output matrix
    made, size = family.arguments(config), config.whole("vocab_size")
    vocabulary = (_of_byte_pairs if family is roberta else _of_word_pieces)(path, size)
    labels = _labels(config) if kind == "classifier" else []
    stored = stored_tensors(path, lambda name: family.renamed(name).removeprefix(family.PREFIX))
    of_head = _of_head(family, kind, made["units"], size, len(labels), vocabulary.rows)
    copies = [*_copies(family, made["units"], size, stored)] if kind == "filler" else []
    all_parts = itertools.chain(family.tensors(made, size, vocabulary.rows), of_head, copies)
    wanted = check_tensors(path, stored, all_parts, _ignored(family, kind))
    if made["num_segments"] > 1 and (family is roberta or not _tells_segments(path)):
        made["num_segments"] = 1
        wanted = [each._replace(change=_first_row) if each.weight == _SEGMENTS else each for each in wanted]
    try:
        encoder = Encoder(vocabulary.size, **made, name=config.get("model_type"))
    except ValueError as error:
        raise ValueError(f"{config.file} asks for a model that cannot be built: {error}") from None
    max_length = _max_length(path, made["max_length"])
    if _cuts_left(path):
        warnings.warn(f"{path}: the tokenizer cuts long texts at their beginning. Here their end is cut.", stacklevel=4)
    model: Any
    task: TextClassifier | TextEmbedder | MaskFiller
    if kind == "classifier":
        several = config.get("problem_type") == "multi_label_classification"
        between = dict(hidden_units=made["units"], activation=family.CLASSIFIER_ACTIVATION)
        model = Classifier(encoder, len(labels), "first", **between, multi_label=several, name="classifier")
        task = TextClassifier(model, vocabulary.tokenizer, labels, max_length)
    elif kind == "filler":
        layers = family.MASKED_ACTIVATION or made["activation"], made["epsilon"], vocabulary.unused
        model = MaskedLanguageModel(encoder, *layers, name="masked_language_model")
        task = MaskFiller(model, vocabulary.tokenizer, max_length)
    else:
        _check_texts(path, vocabulary.tokenizer)
        model = SentenceEmbedder(encoder, *_modules(path), name="sentence_embedder")
        task = TextEmbedder(model, vocabulary.tokenizer, max_length)
    assign(model, wanted, stored, path)
    return task


class _Vocabulary(NamedTuple):
    """The tokenizer of a checkpoint, and where its ids are in the checkpoint.

    Attributes:
        tokenizer: the tokenizer.
        size: the number of the zoo's ids.
        rows: a function from the checkpoint's rows `(V, ...)` to the zoo's.
        unused: ids that no text has.
    """

    tokenizer: Tokenizer
    size: int
    rows: Callable[[np.ndarray], np.ndarray]
    unused: list[int]


def _of_word_pieces(path: pathlib.Path, size: int) -> _Vocabulary:
    """BERT's ids: the special tokens first, the others in their order."""
    tokenizer, order = read_word_pieces(path, size)
    check_size(path, int(order.max()) + 1, size)

    def rows(array: np.ndarray) -> np.ndarray:  # rows without a piece are put at the end
        return picked(array, np.concatenate([order, np.setdiff1d(np.arange(size), order)]))

    return _Vocabulary(tokenizer, size, rows, [])


def _of_byte_pairs(path: pathlib.Path, size: int) -> _Vocabulary:
    """RoBERTa's ids: the checkpoint's plus 4. Ids 0 to 3 have copies of the rows of its special tokens."""
    special, names = read_special_tokens(path), special_names(path, ("cls_token", "sep_token"))
    start, end, separators = special.before, special.after, special.separators
    if is_of_a_family(path):  # its class puts these around texts, and two between those of a pair
        start = (names["cls_token"],) if "cls_token" in names else start or ("<s>",)
        end = (names["sep_token"],) if "sep_token" in names else end or ("</s>",)
        separators = 2
    if len(start) != 1 or len(end) != 1:
        raise ValueError(f"{path}: a text must stand between one token and another, not {start} and {end}.")
    pieces = [special.names.get("pad_token", "<pad>"), special.names.get("unk_token", "<unk>"), *start, *end]
    mask = special.names.get("mask_token", "<mask>")
    if separators is None:
        warnings.warn(f"{path}: {OTHER_PAIRS}", stacklevel=5)
    options: dict[str, Any] = {"mask_token": mask, "pair_separators": separators or 2}
    options["strip"] = (path / MODULES_FILE).is_file()  # of BERT, all tokenizers leave white space out
    tokenizer = read_tokenizer(path, {*pieces, mask}, size, **options)
    check_size(path, tokenizer.size - FIRST, size)
    try:
        copied = [tokenizer.id_of(piece) for piece in pieces]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    # `transformers` gives the token with this id the position of padding, also where it is part of a text.
    made = tokenizer.get_config()
    piece = made["vocabulary"][roberta.PADDING]
    in_no_text = {token["content"] for token in made["added_tokens"] if token["special"]} - {*start, *end, mask}
    if piece not in in_no_text:
        raise ValueError(
            f"{path}: {piece} has the id {roberta.PADDING}, which must be that of the padding or of a token that no "
            "text has."
        )

    def rows(array: np.ndarray) -> np.ndarray:
        ids = np.arange(-FIRST, size)  # (4 + V,): the checkpoint's id of each of the zoo's
        ids[:FIRST] = np.array(copied) - FIRST
        return picked(array, ids)

    return _Vocabulary(tokenizer, FIRST + size, rows, copied)


def _kind(path: pathlib.Path, config: Config) -> str:
    """Which task the checkpoint is for."""
    if (path / MODULES_FILE).is_file():
        return "embedder"
    architectures = config.get("architectures") or ["Model"]
    name = architectures[0] if isinstance(architectures, list) else "Model"
    if not isinstance(name, str):
        raise config.wrong("architectures", "a list of names")
    for ending, kind in _TASKS.items():
        if name.endswith(ending):
            return kind
    if not name.endswith("Model") or name.endswith("HeadModel"):
        raise config.wrong("architectures", f"only models that end in {', '.join((*_TASKS, 'Model'))} can be read")
    what = "has no head" if name != "Model" else f"has no `architectures` in {CONFIG_FILE}, so a head is left out,"
    warnings.warn(
        f"{path} {what} and no {MODULES_FILE}. Its embeddings are the mean of the vectors of the tokens, which it "
        "may not have been trained for.",
        stacklevel=4,
    )
    return "embedder"


def _of_head(
    family: ModuleType, kind: str, width: int, size: int, classes: int, rows: Callable[[np.ndarray], np.ndarray]
) -> Iterator[Tensor]:
    """What the checkpoint holds of the head."""
    if kind == "classifier":
        yield from dense(family.CLASSIFIER["hidden"], "hidden", (width, width))
        yield from dense(family.CLASSIFIER["logits"], "logits", (classes, width))
    elif kind == "filler":
        yield from dense(family.MASKED["transform"], "transform", (width, width))
        yield from norm(family.MASKED["transform_norm"], "transform_norm", width)
        yield Tensor(family.MASKED_BIAS, (size,), "output_bias/bias", rows)


def _copies(family: ModuleType, width: int, size: int, stored: dict[str, StoredArray]) -> Iterator[Tensor]:
    """What a masked language model holds twice: the embedding as its output matrix, and the bias of it."""
    matrix, *bias = family.MASKED_COPIES
    yield from repeated(stored, Tensor("embeddings.word_embeddings.weight", (size, width), None), [matrix])
    yield from repeated(stored, Tensor(family.MASKED_BIAS, (size,), None), bias)


def _ignored(family: ModuleType, kind: str) -> list[str]:
    """Other tensors that the checkpoint may hold: copies, and heads that were used only in its training."""
    layers = [*family.CLASSIFIER.values()] if kind != "classifier" else []
    layers += [*family.MASKED.values()] if kind != "filler" else []
    single = [*family.MASKED_COPIES, family.MASKED_BIAS] if kind != "filler" else []
    return [*family.IGNORED, *map(re.escape, single), *(rf"{re.escape(name)}\.(weight|bias)" for name in layers)]


def _labels(config: Config) -> list[str]:
    """The names of the classes, in the order of the logits."""
    names = config.get("id2label")
    if config.whole("num_labels", 2) > _MOST_LABELS:  # before a list of them is made
        raise config.wrong("num_labels", f"at most {_MOST_LABELS:,}")
    if names is None:
        names = {str(number): f"LABEL_{number}" for number in range(config.whole("num_labels", 2))}
    if not isinstance(names, dict) or sorted(names) != sorted(map(str, range(len(names)))):
        raise config.wrong("id2label", "names by the numbers 0, 1, 2 and so on")
    labels = [names[str(number)] for number in range(len(names))]
    if len(labels) < 2:
        raise config.wrong("id2label", "of two classes or more; a model with one output (regression) cannot be read")
    if config.get("problem_type") == "regression":
        raise config.wrong("problem_type", "only classification can be read")
    if not all(isinstance(label, str) and label for label in labels) or len(set(labels)) < len(labels):
        raise config.wrong("id2label", "different strings")
    return labels


def _modules(path: pathlib.Path) -> tuple[str, bool]:
    """The pooling of an embedder, and whether its vectors have the length 1."""
    file = path / MODULES_FILE
    if not file.is_file():
        return "mean", False
    modules = read_json(file)
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise ValueError(f"{file} must hold a list of modules.")
    kinds = [str(each.get("type")).rpartition(".")[2] for each in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ValueError(
            f"{file}: the modules are {', '.join(kinds)}; only Transformer, Pooling and Normalize, in this order, can "
            "be read."
        )
    folders = [each.get("path") for each in modules]
    if folders[0] or not isinstance(folders[1], str) or pathlib.PurePath(folders[1]).name != folders[1]:
        raise ValueError(f"{file}: the paths must be the folder itself and one inside it, not {folders[:2]}.")
    file = path / folders[1] / CONFIG_FILE
    content = read_json(file)
    return _pooling(file, content if isinstance(content, dict) else {}), len(kinds) == 3


def _pooling(file: pathlib.Path, content: dict[str, Any]) -> str:
    """How an embedder makes one vector of a text: `pooling_mode`, a name or a list, or the flags of older files."""
    mode = content.get("pooling_mode")
    if mode is None:
        flags = [name for name, value in content.items() if name.startswith("pooling_mode_") and value is True]
        asked = [_POOLING_FLAGS.get(name, name) for name in flags] or ["mean"]
    else:
        asked = [str(each) for each in (mode if isinstance(mode, list) else [mode])]
    if len(asked) != 1 or asked[0] not in _POOLINGS:
        raise ValueError(f"{file}: the pooling is {', '.join(asked)}; one of {', '.join(_POOLINGS)} can be read.")
    return _POOLINGS[asked[0]]


def _check_texts(path: pathlib.Path, tokenizer: Tokenizer) -> None:
    """Checks what sentence-transformers does to a text before the tokenizer.

    Raises:
        ValueError: it removes capitals, and the tokenizer does not.
    """
    file, prompts = _sentence_file(path), read_settings(path / _PROMPTS_FILE)
    if read_settings(file).get("do_lower_case") and not tokenizer.get_config().get("lowercase"):
        raise ValueError(f"{file}: do_lower_case is True, and the tokenizer keeps capitals.")
    name, known = prompts.get("default_prompt_name"), prompts.get("prompts")
    if name is not None and isinstance(known, dict) and known.get(name):
        warnings.warn(
            f"{path}: sentence-transformers puts {known[name]!r} before each text. Here, put it there yourself.",
            stacklevel=4,
        )


def _sentence_file(path: pathlib.Path) -> pathlib.Path:
    """Where sentence-transformers has the settings of its first module; the file may be missing."""
    files = [path / name for name in _SENTENCE_FILES]
    return next((file for file in files if file.is_file()), files[0])


def _tells_segments(path: pathlib.Path) -> bool:
    """Whether the tokenizer of BERT tells the texts of a pair apart; otherwise both are of the first kind."""
    names = read_settings(path / TOKENIZER_CONFIG_FILE).get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


def _first_row(array: np.ndarray) -> np.ndarray:
    return array[:1]


def _cuts_left(path: pathlib.Path) -> bool:
    """Whether a text that is too long loses its beginning in `transformers`."""
    truncation = read_settings(path / TOKENIZER_FILE).get("truncation")
    direction = truncation.get("direction") if isinstance(truncation, dict) else None
    side = read_settings(path / TOKENIZER_CONFIG_FILE).get("truncation_side", direction)
    return str(side).lower() == "left"


def _max_length(path: pathlib.Path, positions: int) -> int:
    """The most tokens of a text: the limit of sentence-transformers, else of the tokenizer, else of the positions."""
    file = path / TOKENIZER_CONFIG_FILE
    # In the first checkpoints, `model_max_length` is called `max_len`.
    for name, key in ((_sentence_file(path), "max_seq_length"), (file, "model_max_length"), (file, "max_len")):
        limit = read_settings(name).get(key)
        if type(limit) is int and limit > 0:
            return max(_SHORTEST, min(limit, positions))
    return positions
