"""Commands of encoders: classes, vectors and their search, and the words behind masks."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..answering import answers, at_once, chunks
from .lines import LINES, read_lines, read_pairs, threads_for
from .printing import SeveralLabels, classes_above, one_line, shortened, with_vector
from .shared import Above, CommandOfTexts, ModelPath, TextFile, Texts, app, check_model, load_as, user_errors

if TYPE_CHECKING:
    import numpy as np

    from zoo.tasks.results import Classification

_MASKS = "[MASK]", "<mask>"
BatchSize = Annotated[int, typer.Option(min=1, metavar="N", help="Number of texts to read at once.")]


@app.command(cls=CommandOfTexts)
def classify(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print the probability and a tab before each class; with --above a space.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Print every class with its probability, and after each text an empty line.")
    ] = False,
    above: Above = None,
    batch_size: BatchSize = 64,
) -> None:
    """Put texts into classes; print one class per line.

    For a model of pairs, such as a premise and a hypothesis, each line holds two texts with a tab between.
    """
    with user_errors():
        if every and above is not None:
            raise ValueError("--all and --above were both given; give one of them")
        lines = read_lines(texts, file)
        check_model(model)
        threads = threads_for(texts, file)
        classifier = load_as("classify", model)
        given: Iterator = read_pairs(lines, texts) if classifier.pairs else lines
        several = SeveralLabels()

        def classified(batch: list) -> list[Classification]:
            return classifier.classify(batch, batch_size)

        for results in answers(classified, given, LINES * batch_size, batch_size, threads, lines.more):
            if not every and above is None:
                several.look_at(results)
            for result in results:
                if above is not None:
                    typer.echo(classes_above(above, result, scores))
                    continue
                shown = result.probabilities if every else {result.label: result.probability}
                for label, probability in shown.items():
                    typer.echo(f"{probability:.4f}\t{one_line(label)}" if scores or every else one_line(label))
                if every:
                    typer.echo()


@app.command(cls=CommandOfTexts)
def embed(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    out: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="A .npy file, float32 with a row for each text; or a .jsonl file."),
    ] = None,
    index: Annotated[
        pathlib.Path | None, typer.Option(metavar="FOLDER", help="Write texts and vectors there, for `zoo search`.")
    ] = None,
    batch_size: BatchSize = 64,
) -> None:
    """Turn texts into vectors; print JSON lines with `text` and `embedding`, or write a file or an index.

    A file of any length needs little memory. What is written appears when it is complete.
    """
    with user_errors():
        from ..progress import progress_bar

        if out and index:
            raise ValueError("--out and --index were both given; give one of them")
        if out and out.suffix not in (".npy", ".jsonl"):
            raise ValueError(f"--out must end in .npy or .jsonl; --index makes an index. Received: {out}")
        lines = read_lines(texts, file)
        embedder = load_as("embed", model)
        width = embedder.embed([]).shape[1]
        total = _count(file) if file and file.is_file() and (out or index) else None  # a pipe can be read only once
        more = at_once if out or index else lines.more  # a file is of use when it is complete
        bar = contextlib.nullcontext(lambda done: None) if total is None else progress_bar("texts", total)
        with bar as advance, _written(out, index, model, width) as write:
            for chunk in chunks(lines, LINES * batch_size, more):
                write(chunk, embedder.embed(chunk, batch_size))
                advance(len(chunk))
    if out or index:
        typer.echo(out or index)


@app.command(cls=CommandOfTexts)
def search(
    index: Annotated[pathlib.Path, typer.Argument(metavar="INDEX", help="A folder that `zoo embed --index` wrote.")],
    texts: Texts = None,
    file: TextFile = None,
    model: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="MODEL", help="The model that made the index.", show_default="where it was"),
    ] = None,
    top: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Print the N nearest texts; if N > 1, then an empty line."),
    ] = 10,
) -> None:
    """Find the texts of an index that are nearest to each given text; print their cosine, a tab and the text.

    Every text of the index is compared, so the answer is exact: among a million texts it takes less than a second.
    """
    with user_errors():
        from ..search_index import SearchIndex

        found = SearchIndex(index)
        if model is None and not found.model.exists():
            raise FileNotFoundError(f"{found.model}, which made the index, is gone; give it by --model")
        lines = read_lines(texts, file)
        embedder = load_as("embed", model or found.model)
        for chunk in chunks(lines, LINES, lines.more):
            queries, width = embedder.embed(chunk), found.vectors.shape[1]  # (Q, D)
            if queries.shape[1] != width:
                raise ValueError(
                    f"{model or found.model} did not make the index {index}: its vectors have {queries.shape[1]} "
                    f"numbers, those of the index {width}"
                )
            rows, cosines = found.nearest(queries, top)
            by_row = found.texts(rows.ravel().tolist())
            for of_query in zip(rows.tolist(), cosines.tolist(), strict=True):
                for row, cosine in zip(*of_query, strict=True):
                    typer.echo(f"{cosine:.4f}\t{by_row[row]}")
                if top > 1:
                    typer.echo()


@app.command(cls=CommandOfTexts)
def fill(
    model: ModelPath,
    texts: Texts = None,
    file: TextFile = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Print the N most likely tokens of each mask instead, and after each mask an empty line.",
        ),
    ] = None,
    batch_size: BatchSize = 64,
) -> None:
    """Fill the masks of texts, such as [MASK]; print one text per line. With --top, tokens and their probabilities."""
    with user_errors(options={"num_candidates": "--top"}):
        lines = read_lines(texts, file)
        filler = load_as("fill", model)
        if top is not None and hasattr(filler, "num_candidates"):  # an export stays as it is
            filler = filler.with_settings(num_candidates=top)
        number = 0
        for chunk in chunks(lines, LINES * batch_size, lines.more):
            for result in filler.fill(chunk, batch_size):
                number += 1
                if not result.candidates:
                    which, shown = f"{'text' if texts else 'line'} {number}", shortened(result.text)
                    raise ValueError(f"{which} has no {_mask(filler)} that the model reads. Received: {shown!r}")
                if top is None:
                    typer.echo(one_line(result.filled))
                    continue
                for candidates in result.candidates:
                    if len(candidates) < top:
                        raise ValueError(f"{model} was exported with {len(candidates)} tokens for each mask, not {top}")
                    for token, probability in list(candidates.items())[:top]:
                        typer.echo(f"{probability:.4f}\t{one_line(token)}")
                    typer.echo()


def _mask(filler) -> str:
    """How the mask is written: by a trial, since an export does not tell."""
    return next((mask for mask, result in zip(_MASKS, filler.fill(_MASKS), strict=True) if result.candidates), "mask")


def _count(file: pathlib.Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


@contextlib.contextmanager
def _written(
    out: pathlib.Path | None, index: pathlib.Path | None, model: pathlib.Path, width: int
) -> Iterator[Callable[[list[str], np.ndarray], None]]:
    """A function that takes texts and their vectors, and writes them where they belong."""
    from zoo.atomic import whole_file

    from ..search_index import array_file, new_index

    def as_lines(chunk: list[str], vectors: np.ndarray) -> Iterator[str]:
        for text, vector in zip(chunk, vectors, strict=True):
            yield json.dumps(with_vector(text, vector), ensure_ascii=False)

    if index:
        with new_index(index, model, width) as add:
            yield add
    elif out and out.suffix == ".npy":
        with whole_file(out) as file, array_file(file, width) as add_vectors:
            yield lambda chunk, vectors: add_vectors(vectors)
    elif out:
        with whole_file(out) as file:
            yield lambda *given: file.writelines(f"{line}\n".encode() for line in as_lines(*given))
    else:

        def show(*given) -> None:
            for line in as_lines(*given):
                typer.echo(line)

        yield show
