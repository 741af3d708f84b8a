"""The export of a model that was imported from Hugging Face, with its card: where it comes from, and how it decodes."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from zoo.checkpoints import CONFIG_FILE, hub_name
from zoo.checkpoints.language_models import end_piece
from zoo.serving import export
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier, TextEmbedder
from zoo.tasks.task import SavedTask
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator

from .cards import card, serving_metrics, serving_rows
from .run_files import CARD_FILE

_README, _LONGEST = "README.md", 2**16  # bytes of it that are read
_LICENCE_FILES = ("LICENSE*", "LICENCE*", "COPYING*", "license*", "licence*")
_FORMULAS = {
    "mean": "log-probability / length^{penalty:g}, as in `transformers`",
    "wu": "log-probability / ((5 + length) / 6)^{penalty:g}, as in Wu et al. 2016",
}
_ENDINGS = {
    True: "as soon as {beam} hypotheses are finished",
    False: "when {beam} are finished and the most likely open one, scored as if it ended now, is no better",
    "never": "when no open hypothesis can become better",
}


@dataclasses.dataclass(frozen=True)
class Source:
    """What a checkpoint's folder says of itself. Its texts are a stranger's; each becomes a short line of code.

    Attributes:
        name: the name on the hub, if the folder is in its cache; otherwise the name of the folder.
        name_or_path: `_name_or_path` of `config.json`, if it is another name. It is what was loaded before the model
            was saved: its base model, a folder of its author, or the model itself.
        family: `model_type` of `config.json`.
        licence: what the folder says of its licence.
    """

    name: str
    name_or_path: str | None
    family: str
    licence: str

    @classmethod
    def of(cls, path: pathlib.Path) -> Source:
        """Reads a folder that an importer has read."""
        config = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
        name, name_or_path = hub_name(path) or path.resolve().name, config.get("_name_or_path")
        if not isinstance(name_or_path, str) or name_or_path.strip("./") in ("", name):
            name_or_path = None
        return cls(
            _quoted(name),
            None if name_or_path is None else _quoted(name_or_path),
            _quoted(str(config["model_type"])),
            _licence(path),
        )


def _licence(path: pathlib.Path) -> str:
    """The licence in the head of the README, or the names of files; a plain sentence where there are none."""
    said = []
    if (path / _README).is_file():
        with (path / _README).open("rb") as file:
            text = file.read(_LONGEST).decode("utf-8", "replace")
        head = re.match(r"---\r?\n(.*?)^---\s*$", text, re.DOTALL | re.MULTILINE)
        # A word, or a list with a word a line. No more of YAML is needed.
        found = re.search(r"^license:([^\n]*(?:\n[ \t]*-[^\n]*)*)", head[1] if head else "", re.MULTILINE)
        value = re.sub(r"#.*", "", found[1]) if found else ""
        words = re.findall(r"[^\s'\"\[\],-][^\s'\"\[\],]*", value)
        said = [f"{', '.join(map(_quoted, words))}, by its {_README}"] if words else []
    files = sorted({file.name for pattern in _LICENCE_FILES for file in path.glob(pattern) if file.is_file()})
    said += [f"see {_quoted(name)} in its folder" for name in files[:1]]
    return "; ".join(said) or "its folder names none: ask who published it"


def _quoted(text: str) -> str:
    """A text as code, in one short line."""
    line = " ".join(text.replace("`", "'").split())
    return f"`{line if len(line) <= 100 else f'{line[:97]}...'}`"


def export_imported(
    task: SavedTask, source: pathlib.Path, path: pathlib.Path, weights: str = "float32", explore: bool = False
) -> pathlib.Path:
    """Exports an imported model with its card.

    Args:
        task: the model.
        source: the folder that it was imported from.
        path: the model's folder.
        weights: how the files store the weights, see `zoo.serving.export`.
        explore: whether people can choose tokens, see there.

    Returns:
        The new version's folder.
    """

    def files(folder: pathlib.Path) -> dict[str, str]:
        metrics = serving_metrics(folder, task, weights, explore)
        return {CARD_FILE: imported_card(path.resolve().name, Source.of(source), task, metrics)}

    return export(task, path, files, weights=weights, explore=explore)


def imported_card(name: str, source: Source, task: SavedTask, metrics: dict[str, Any]) -> str:
    """The card of an imported model, as Markdown.

    Args:
        name: the model's name.
        source: where it comes from.
        task: the model.
        metrics: `start_up`, `stored_as`, `unpacked` and `explore`, if known, as in the metrics of a run.
    """
    loaded = f"; `_name_or_path` in its {CONFIG_FILE}: {source.name_or_path}" if source.name_or_path else ""
    facts, limits = next(describe(task) for kind, describe in _FACTS.items() if isinstance(task, kind))
    rows = {
        "model": f"`{type(task.model).__name__}`, {task.model.count_params():,} parameters",
        "source": f"{source.name}, a checkpoint of Hugging Face{loaded}",
        "family": source.family,
        "licence": source.licence,
        **facts,
        "scores": "none: the zoo imported the model, and neither trained nor scored it",
        "made with": f"TensorFlow {tf.__version__}, Keras {keras.__version__}",
        **serving_rows(metrics),
    }
    return card(name, "", rows, [], task, limits, metrics.get("explore", False))


def _of_translator(translator: Translator) -> tuple[dict[str, str], list[str]]:
    """The facts and the limits of a translator."""
    model = translator.model
    sizes = [tokenizer.size for tokenizer in translator.tokenizers]
    ranked = _FORMULAS[translator.length_normalization].format(penalty=translator.length_penalty)
    ending = _ENDINGS[translator.early_stopping].format(beam=translator.beam_size)
    decoding = f"beam of {translator.beam_size}, ranked by {ranked}; a search ends {ending}"
    facts = {
        "sizes": f"{model.encoder_layers} + {model.decoder_layers} layers of {model.num_heads} heads, width"
        f" {model.units}, feed-forward networks {model.feed_forward_units}",
        "vocabulary": f"{sizes[0]:,} ids of the source, {sizes[1]:,} of the target",
        "lengths": f"a source of at most {translator.max_source_length:,} tokens, a result of at most"
        f" {translator.max_target_length:,}",
        "decoding": "greedy" if translator.beam_size == 1 else decoding,
    }
    languages = getattr(translator.source_tokenizer, "languages", ())
    if languages:
        default = translator.source_tokenizer.target_language
        facts["target languages"] = (
            f"{', '.join(map(_quoted, languages))}; a text begins with one, such as {_quoted(f'>>{languages[0]}<<')}; "
            + (f"{_quoted(default)} if it names none" if default else "no default")
        )
    limits = [
        f"A source longer than {translator.max_source_length:,} tokens is cut off there. An empty text gives an empty"
        " text, and the unknown token is never written.",
        "It answers any input, also input outside its task: look at the score.",
    ]
    return facts, limits


def _of_generator(generator: TextGenerator) -> tuple[dict[str, str], list[str]]:
    """The facts and the limits of a language model."""
    model, end = generator.model, end_piece(generator)
    added = generator.tokenizer.get_config()["added_tokens"]
    special = [token["content"] for token in added if token["special"] and token["content"] != end]
    shown = ", ".join(map(_quoted, special[:5])) + (f" and {len(special) - 5} more" if len(special) > 5 else "")
    facts = {
        "sizes": f"{model.num_layers} layers of {model.num_heads} heads, width {model.units}, feed-forward networks"
        f" {model.feed_forward_units}, {model.positions} positions",
        "vocabulary": f"{generator.tokenizer.size:,} ids",
        "context": f"{generator.context_length:,} tokens",
        "special tokens": f"{_quoted(end or '')} ends a text"
        + (f"; {shown}" if special else "")
        + ("; a start token stands before every text" if generator.add_start else ""),
    }
    limits = [
        f"The model reads at most {generator.context_length:,} tokens at once. After that it continues from their last"
        f" half. `score` reads a longer text in windows that begin {generator.stride:,} tokens apart.",
        "Special tokens in a prompt are read as plain text.",
        "Its texts need not be true.",
    ]
    return facts, limits


def _of_encoder(task: Any) -> tuple[dict[str, str], list[str]]:
    """The facts and the limits of a classifier, an embedder or a mask filler."""
    encoder = task.encoder
    facts = {
        "sizes": f"{encoder.num_layers} layers of {encoder.num_heads} heads, width {encoder.units}, feed-forward"
        f" networks {encoder.feed_forward_units}, {encoder.positions} positions",
        "vocabulary": f"{task.tokenizer.size:,} ids",
        "length": f"a text of at most {task.max_length:,} tokens",
    }
    limits = [f"A text longer than {task.max_length:,} tokens is cut off there."]
    if isinstance(task, TextClassifier):
        shown = ", ".join(map(_quoted, task.labels[:20]))
        several = "; a text may belong to several" if task.model.multi_label else ""
        facts["classes"] = f"{len(task.labels):,}: {shown}{' and others' if len(task.labels) > 20 else ''}{several}"
        limits.append("It puts any text into one of its classes, also text outside its task: look at the probability.")
    elif isinstance(task, TextEmbedder):
        length = "of length 1" if task.model.normalize else "of any length"
        facts["embeddings"] = f"{task.model.output.shape[-1]} numbers, {length}; pooling: {task.model.pooling}"
        limits.append("Vectors of two models cannot be compared.")
    else:
        (mask,) = task.tokenizer.tokens([[task.tokenizer.mask_id]]).numpy()[0].tolist()
        facts["mask"] = _quoted(mask.decode())
        limits.append("Each mask of a text is filled independently of the others, with one token.")
    return facts, limits


# How each task is described.
_FACTS: dict[type[SavedTask], Callable[[Any], tuple[dict[str, str], list[str]]]] = {
    Translator: _of_translator,
    TextGenerator: _of_generator,
    TextClassifier: _of_encoder,
    TextEmbedder: _of_encoder,
    MaskFiller: _of_encoder,
}
