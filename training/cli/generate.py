"""Commands of language models."""

from __future__ import annotations

import pathlib
import random
import re
import sys
from typing import Annotated, Any

import typer

from .shared import (
    RULE,
    ModelPath,
    TextFile,
    Texts,
    app,
    chunks,
    lines_at_once,
    load_generator,
    read_lines,
    score_line,
    user_errors,
)


@app.command()
def generate(
    model: ModelPath,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Texts to go on with; none for an empty one.")
    ] = None,
    file: Annotated[pathlib.Path | None, typer.Option("--file", "-f", help="Read the prompt from this file.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=0, help="The most tokens to add.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="Below 1 likelier; 0 always the likeliest.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the so many likeliest; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Draw from the likeliest with this share.")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1, what was there becomes less likely.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="What the choices follow from; any if not given.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many for each prompt, from seeds that follow.")] = 1,
) -> None:
    """Go on with texts by a language model; prompt and text are printed as they come.

    What was exported gives each text at once. Between several texts stands a line of dashes.
    """
    with user_errors():
        if prompts and file:
            raise ValueError("prompts and --file were both given; give one of them")
        texts = [file.read_text("utf-8", errors="replace")] if file else prompts or [""]
        generator = load_generator(model)
        settings: dict[str, Any] = dict(temperature=temperature, top_k=top_k, top_p=top_p)
        settings |= dict(repetition_penalty=repetition_penalty, max_new_tokens=tokens, stop=stop or ())
        first = random.randrange(2**31) if seed is None else seed
        for number, text in enumerate(each for each in texts for _ in range(samples)):
            if number:
                typer.echo("\n" + RULE)
            pieces = generator.stream(text, seed=first + number, **settings)
            typer.echo(text, nl=False)
            for piece in pieces:
                typer.echo(piece, nl=False)
                sys.stdout.flush()
        typer.echo()


@app.command()
def score(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts to score at once.")] = 32,
) -> None:
    """Tell how likely texts are: log-probability, tokens and perplexity of each, and the text, with tabs between."""
    with user_errors():
        lines = read_lines(texts, file)
        generator = load_generator(model)
        done = 0

        def in_line(found: re.Match) -> str:  # what was given together is counted from 0
            return f"in line {done + int(found[1]) + 1}"

        for chunk in chunks(lines, lines_at_once(texts, file, batch_size)):
            try:
                scores = generator.score(chunk, batch_size)
            except ValueError as error:
                raise ValueError(re.sub(r"at position (\d+)", in_line, str(error))) from None
            done += len(chunk)
            for each in scores:
                typer.echo(score_line(each))
