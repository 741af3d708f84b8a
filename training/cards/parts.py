"""What the cards of all models have: the scores, how the model is used, and what it can read."""

from __future__ import annotations

import shlex
import urllib.parse
from typing import Any

from zoo.text import CharacterTokenizer, Tokenizer

from ..scoring.headline import headlines, scored_on


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


def vocabulary(tokenizer: Tokenizer, learnt_from: str) -> str:
    """A sentence on what texts it can read."""
    if isinstance(tokenizer, CharacterTokenizer):
        return f"It knows the {tokenizer.size - 4:,} characters of its {learnt_from}; any other is unknown to it."
    return f"It reads texts as {tokenizer.size - 4:,} pieces of words, in which any text can be written."
