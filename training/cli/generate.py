"""Commands of language models."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from typing import Annotated, Any

import typer

from ..answering import chunks
from .lines import LINES, Lines, read_lines, read_piped, read_whole
from .printing import RULE, print_growing, score_line
from .shared import CommandOfTexts, ModelPath, TextFile, Texts, app, check_model, load_as, user_errors

_OPTIONS = {
    "max_new_tokens": "--tokens",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("temperature", "top_k", "top_p", "repetition_penalty", "seed", "stop")
    },
}


@app.command(cls=CommandOfTexts)
def generate(
    model: ModelPath,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help='Texts to continue; with "", the model begins a text. Without texts, all of stdin is one, without its '
            "last line end; a terminal counts as empty. If a text begins with a dash, put all options first, then "
            "`--`, then the texts.",
        ),
    ] = None,
    file: Annotated[
        pathlib.Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the prompt from this file.")
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            "--tokens", "--max-new-tokens", "-n", metavar="N", min=0, help="The maximum number of tokens to add."
        ),
    ] = 256,
    temperature: Annotated[
        float,
        typer.Option(
            metavar="X", min=0, help="Below 1, likely tokens become more likely; 0 takes the most likely one."
        ),
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option(metavar="N", min=0, help="Draw only from this many of the most likely; 0 for all.")
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            metavar="P", min=0, max=1, help="Draw only from the most likely, whose probabilities add up to this."
        ),
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(metavar="X", help="Above 1, tokens that the text already has become less likely.")
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="The same seed draws the same tokens.", show_default="a random one"),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be repeated.")
    ] = None,
    samples: Annotated[
        int, typer.Option(metavar="N", min=1, help="Texts for each prompt, with consecutive seeds.")
    ] = 1,
) -> None:
    """Continue texts with a language model.

    A saved model prints a text while it is written; an exported one prints it when it is complete. A line of dashes
    separates several texts. When a text fills the model's context, the model keeps only the newest half of the
    context, and continues from there.
    """
    with user_errors(options=_OPTIONS):
        if prompts and file:
            raise ValueError("prompts and --file were both given; give one of them")
        check_model(model)
        texts = [read_whole(file)] if file else list(read_lines(prompts, None)) if prompts else [read_piped()]
        generator = load_as("generate", model)
        settings: dict[str, Any] = dict(temperature=temperature, top_k=top_k, top_p=top_p)
        settings |= dict(repetition_penalty=repetition_penalty, max_new_tokens=tokens, stop=stop or ())
        first = random.randrange(2**31) if seed is None else seed
        for number, text in enumerate(each for each in texts for _ in range(samples)):
            if number:
                typer.echo(RULE)
            print_growing(text, generator.stream(text, seed=first + number, **settings))


@app.command(cls=CommandOfTexts)
def score(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Texts to score at once.")] = 32,
    document: Annotated[bool, typer.Option("--document", help="Score the whole file as one text, not its lines.")] = (
        False
    ),
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Tokens between the starts of two windows of a text.",
            show_default="half of the context",
        ),
    ] = None,
) -> None:
    """Score texts: print log-probability, number of tokens, perplexity and the text, separated by tabs.

    A text that is longer than the model's context is read in overlapping windows; each token is scored once.
    """
    with user_errors(options={"stride": "--stride"}):
        if document and file is None:
            raise ValueError("--document needs a --file")
        lines = Lines(iter([read_whole(file)])) if document and file else read_lines(texts, file)
        generator = load_as("generate", model)
        for chunk in chunks(lines, LINES * batch_size, lines.more):
            for each in generator.score(chunk, batch_size, stride):
                typer.echo(score_line(dataclasses.replace(each, text=str(file)) if document else each))
