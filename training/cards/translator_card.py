"""The card of an exported translator: what it is, what it was made from, how good it is, and where it ends."""

from __future__ import annotations

from typing import Any

from zoo.tasks.translator import Translator

from ..schema.translator_tables import TranslatorRecipe
from .parts import facts, sentence, use, vocabulary

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
