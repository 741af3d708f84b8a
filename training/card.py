"""The card of an exported model: what it is, what it was made from, how good it is, and where it ends."""

from __future__ import annotations

from typing import Any

from training.recipe import Recipe
from zoo.translator import Translator


def card(name: str, recipe: Recipe, translator: Translator, metrics: dict[str, Any]) -> str:
    """The card as Markdown."""
    lengths = recipe.lengths
    lines = [
        f"# {name}",
        "",
        *_sentence(recipe.description),
        "| | |",
        "|---|---|",
        f"| model | `{type(translator.model).__name__}`, {metrics['parameters']:,} parameters |",
        f"| attention | {getattr(translator.model, 'attention', None) or 'none'} |",
        f"| corpus | `{recipe.corpus.kind}`, {metrics['training_pairs']:,} training pairs |",
        f"| exact match | **{metrics['exact_match']:.2%}** of {metrics['total']:,} {metrics['split']} pairs |",
        f"| training | {metrics['training_seconds']:.0f} s |",
        f"| command | `{metrics['command']}` |",
        f"| made with | TensorFlow {metrics['tensorflow']}, Keras {metrics['keras']} |",
        "",
        "## Use",
        "",
        "Any SavedModel loader runs it; no other package is needed.",
        "",
        "```python",
        "import tensorflow as tf",
        "",
        'model = tf.saved_model.load("PATH/OF/THIS/FOLDER")',
        'model.signatures["serving_default"](text=tf.constant(["..."]))  # text, score',
        "```",
        "",
        f"Signatures: {_signatures(translator)}.",
        "",
        "## Limits",
        "",
        f"- A source longer than {lengths.max_source} tokens is cut off there; a result ends at {lengths.max_target}"
        " tokens at the latest. An empty text gives an empty text.",
        f"- It knows the {translator.source_tokenizer.size - 4:,} characters of its training sources; any other is"
        " unknown to it. It gives an answer to whatever it is given, also to what is not its task: look at the score.",
        *_weakest(metrics),
        "",
    ]
    return "\n".join(lines)


def _sentence(description: str) -> list[str]:
    """The description as a paragraph, if there is one."""
    return [f"{description[:1].upper()}{description[1:].removesuffix('.')}.", ""] if description else []


def _signatures(translator: Translator) -> str:
    texts = "`serving_default` from `text` to `text` and `score` (natural logarithm of the probability)"
    if not translator.has_attention:
        return texts
    return f"{texts}; `attention` from `text` to `source_tokens`, `target_tokens` and `weights`"


def _weakest(metrics: dict[str, Any], shown: int = 5) -> list[str]:
    """A line on the groups with most mistakes, if there are groups."""
    groups = metrics.get("by_group")
    if not groups:
        return []
    weak = sorted((each["exact_match"], group) for group, each in groups.items() if each["exact_match"] < 1)[:shown]
    listed = ", ".join(f"{group} {rate:.1%}" for rate, group in weak)
    judged = f"Weakest: {listed}." if weak else "None has a mistake."
    return [f"- {len(groups)} groups, each scored in `metrics.json`. {judged}"]
