"""The card of an exported language model."""

from __future__ import annotations

from typing import Any

from zoo.tasks.text_generator import TextGenerator

from ..schema.generator_tables import GeneratorRecipe
from .parts import facts, sentence, use, vocabulary

_SAMPLE = dict(max_new_tokens=300, temperature=0.8, seed=0)


def card(name: str, recipe: GeneratorRecipe, generator: TextGenerator, metrics: dict[str, Any]) -> str:
    """The card as Markdown."""
    model = generator.model
    lines = [
        f"# {name}",
        "",
        *sentence(recipe.description),
        "| | |",
        "|---|---|",
        f"| model | `{type(model).__name__}`, {metrics['parameters']:,} parameters |",
        f"| attention | {model.num_layers} layers of {model.num_heads} heads, width {model.units},"
        f" {model.positions} positions |",
        f"| context | {generator.context_length:,} tokens |",
        f"| corpus | `{recipe.corpus.kind}`, {metrics['training_tokens']:,} training tokens |",
        *facts(metrics),
        "",
        "Each token of the split was predicted once, from those before it in a window of the model's context; the loss"
        " is the mean negative log-likelihood in nats.",
        "",
        "## Sample",
        "",
        "From nothing, at temperature 0.8, seed 0:",
        "",
        *(f"    {line}".rstrip() for line in generator([""], **_SAMPLE)[0].split("\n")),
        "",
        *use(name, "text, log_probability, tokens"),
        "Signatures: `serving_default` from `text` to how it goes on, `text`, with `log_probability` and the number of"
        " `tokens`; `generate`, the same with settings for each text: `max_new_tokens`, `temperature`, `top_k`,"
        " `top_p`, `repetition_penalty`, `seed` and `stop`; `score` from `text` to `log_probability` and `tokens`;"
        " `attention` from `text` to its `tokens` and the `weights` with which they attend to those before, and"
        " `attention_by_head`, the same for each layer and head.",
        "",
        "## Limits",
        "",
        f"- A prompt and what follows it have at most {generator.context_length:,} tokens, a start token counted; of a"
        " longer prompt the end is read.",
        f"- {vocabulary(generator.tokenizer, 'training text')} What it writes sounds like its training text, and need"
        " not be true.",
        *([f"- {recipe.corpus.licence}"] if recipe.corpus.licence else []),
        "",
    ]
    return "\n".join(lines)
