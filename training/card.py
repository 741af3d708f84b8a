"""The card of an exported translator: what it is, what it was made from, how good it is, and where it ends."""

from __future__ import annotations

import shlex
import urllib.parse
from typing import Any

from training.headline import headlines, scored_on
from training.translator_tables import TranslatorRecipe
from zoo.text import CharacterTokenizer, Tokenizer
from zoo.translator import Translator

_SIGNATURES = {
    "serving_default": "from `text` to `text` and `score` (natural logarithm of the probability)",
    "generate": "to the same from `text` and, for each text, `max_target_length` and `length_penalty`",
    "score": "from `text` and a `target` for each to the target's `log_probability` and `tokens`, how many it has",
    "attention": "from `text` to `source_tokens`, `target_tokens` and `weights`",
    "attention_by_head": "from `text` to the same tokens, the `weights` of each layer and head, and the encoder's"
    " `source_weights`",
}


def card(name: str, recipe: TranslatorRecipe, translator: Translator, metrics: dict[str, Any]) -> str:
    """The card as Markdown."""
    lengths = recipe.lengths
    lines = [
        f"# {name}",
        "",
        *sentence(recipe.description),
        "| | |",
        "|---|---|",
        f"| model | `{type(translator.model).__name__}`, {metrics['parameters']:,} parameters |",
        f"| attention | {_attention(translator)} |",
        f"| decoding | {_decoding(translator)} |",
        f"| corpus | `{recipe.corpus.kind}`, {metrics['training_pairs']:,} training pairs |",
        *facts(metrics),
        *_how_scored(metrics),
        "",
        *use(name, "text, score"),
        f"Signatures: {'; '.join(f'`{each}` {_SIGNATURES[each]}' for each in translator.signatures())}.",
        "",
        "## Limits",
        "",
        f"- A source longer than {lengths.max_source} tokens is cut off there; a result ends at {lengths.max_target}"
        " tokens at the latest. An empty text gives an empty text.",
        f"- {vocabulary(translator.source_tokenizer, 'training sources')} It gives an answer to whatever it is given,"
        " also to what is not its task: look at the score.",
        *([f"- {recipe.corpus.licence}"] if recipe.corpus.licence else []),
        *_weakest(metrics),
        "",
    ]
    return "\n".join(lines)


def sentence(description: str) -> list[str]:
    """The description as a paragraph, if there is one."""
    return [f"{description[:1].upper()}{description[1:].removesuffix('.')}.", ""] if description else []


def use(name: str, outputs: str) -> list[str]:
    """How any program calls it, what `serving_default` gives, and how it is served."""
    path = urllib.parse.quote(name, safe="")
    return [
        "## Use",
        "",
        "Any SavedModel loader runs it; no other package is needed.",
        "",
        "```python",
        "import tensorflow as tf",
        "",
        'model = tf.saved_model.load("PATH/OF/THIS/FOLDER")',
        f'model.signatures["serving_default"](text=tf.constant(["..."]))  # {outputs}',
        "```",
        "",
        "TensorFlow Serving takes the folder above, which holds the versions; its path must be absolute:",
        "",
        "```sh",
        f"tensorflow_model_server --rest_api_port=8501 --model_name={shlex.quote(name)}"
        " --model_base_path=/PATH/OF/THE/FOLDER/ABOVE",
        f"""curl localhost:8501/v1/models/{path}:predict -d '{{"instances": ["..."]}}'""",
        "```",
        "",
    ]


def facts(metrics: dict[str, Any]) -> list[str]:
    """Rows of the table: the scores, the most important in bold, and how they were come by."""
    (first, value), *others = headlines(metrics).items()
    rows = [f"| {first} | **{value}** of {scored_on(metrics)} |"]
    return [
        *rows,
        *(f"| {name} | {value} |" for name, value in others),
        f"| training | {metrics['training_seconds']:.0f} s |",
        f"| command | `{metrics['command']}` |",
        f"| made with | TensorFlow {metrics['tensorflow']}, Keras {metrics['keras']} |",
        *_start_up(metrics.get("start_up")),
    ]


def _start_up(measured: dict[str, Any] | None) -> list[str]:
    """A row on what a server needs, if it was measured."""
    if measured is None:
        return []
    seconds = {name: f"{measured[f'{name}_seconds']:.1f} s" for name in ("load", "first")}
    return [
        f"| to serve | {measured['size'] / 1e6:.1f} MB; loaded in {seconds['load']}, the first text, of at most 16"
        f" tokens, in {seconds['first']}, later ones in {measured['later_seconds'] * 1e3:.1f} ms, on"
        f" {measured['cores']} cores |"
    ]


def _how_scored(metrics: dict[str, Any]) -> list[str]:
    """A paragraph on how BLEU was computed, if it was."""
    if "bleu" not in metrics:
        return []
    lines = [
        "",
        f"BLEU and chrF are sacrebleu's, on the texts as they are; in brackets 95% intervals by the bootstrap."
        f" BLEU: `{metrics['bleu']['signature']}`; chrF: `{metrics['chrf']['signature']}`.",
    ]
    if style := metrics.get("bleu_published_style"):
        lines[-1] += (
            " Published style: both sides in lower case, with punctuation normalised and cut into tokens by the rules"
            f" of Moses, as many published figures are: `{style['signature']}`."
        )
    return lines


def vocabulary(tokenizer: Tokenizer, learnt_from: str) -> str:
    """A sentence on what texts it can read."""
    if isinstance(tokenizer, CharacterTokenizer):
        return f"It knows the {tokenizer.size - 4:,} characters of its {learnt_from}; any other is unknown to it."
    return f"It reads texts as {tokenizer.size - 4:,} pieces of words, in which any text can be written."


def _decoding(translator: Translator) -> str:
    if translator.beam_size == 1:
        return "greedy"
    return f"beam of {translator.beam_size}, length penalty {translator.length_penalty:g}"


def _weakest(metrics: dict[str, Any], shown: int = 5) -> list[str]:
    """A line on the groups with most mistakes, if there are groups."""
    groups = metrics.get("by_group")
    if not groups:
        return []
    weak = sorted((each["exact_match"], group) for group, each in groups.items() if each["exact_match"] < 1)[:shown]
    listed = ", ".join(f"{group} {rate:.1%}" for rate, group in weak)
    judged = f"Weakest: {listed}." if weak else "None has a mistake."
    return [f"- {len(groups)} groups, each scored in `metrics.json`. {judged}"]


def _attention(translator: Translator) -> str:
    model = translator.model
    return getattr(model, "attention", f"{getattr(model, 'num_heads', '')} heads") or "none"
