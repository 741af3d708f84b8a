"""Whether texts that a model is scored on are among the files that it was trained on."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from ..corpora.corpus import Corpus, CorpusError, expanded
from ..corpora.file_labels import FileLabels
from ..corpora.file_pairs import FilePairs
from ..corpora.several_pairs import SeveralPairs
from ..corpora.texts import FileTexts, TextCorpus

_LONG = 40  # characters; shorter lines of running text, such as a title, occur in many texts
_SHOWN = 60  # characters of the example


def about_seen_texts(corpus: Any, split: str, trained: Any) -> str | None:
    """A line on the texts of a split that a model was trained on; None if there are none.

    Of pairs the sources are compared, of labelled texts what the classifier reads, of running text the lines of 40
    characters or more. Corpora that are no files of the user are not looked at: they would be downloaded.

    Args:
        corpus: the corpus to score on.
        split: its split.
        trained: the corpus that the model was trained on.
    """
    several = [trained.root[0], *trained.others] if isinstance(trained, SeveralPairs) else [trained]
    parts = [part for part in several if isinstance(part, FilePairs | FileLabels | FileTexts)]
    if not parts:
        return None
    given = list(_texts(corpus, split))
    wanted = set(given)
    seen: set[Any] = set()
    # What these warn of was said when the model was trained.
    log = logging.getLogger("zoo_training.corpora")
    level = log.level
    log.setLevel(logging.ERROR)
    not_known = f"it is not known whether the model was trained on texts of {split!r}"
    try:
        for part in parts:
            for file in part.train if isinstance(part.train, tuple) else [part.train]:
                if not (expanded(file).is_file() or expanded(file).is_dir()):  # a pipe has been read
                    return f"{not_known}: {file} is not there any more, or is no file"
            seen.update(text for text in _texts(part, "train") if text in wanted)
    except (CorpusError, OSError) as error:
        return f"{not_known}: {error}"
    finally:
        log.setLevel(level)
    if not seen:
        return None
    example = next(text for text in given if text in seen)
    shown = " / ".join(example) if isinstance(example, tuple) else example
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    what = f"lines of {_LONG} characters or more" if isinstance(corpus, TextCorpus) else "texts"
    return (
        f"warning: the model was trained on {sum(text in seen for text in given):,} of the {len(given):,} {what} of "
        f"{split!r}, such as {shown!r}; scores on such text do not show how the model does on new text"
    )


def _texts(corpus: Corpus, split: str) -> Iterable[Any]:
    """What is compared of a split."""
    if isinstance(corpus, TextCorpus):
        lines = itertools.chain.from_iterable(map(_lines, corpus.documents(split)))
        return (line.strip() for line in lines if len(line.strip()) >= _LONG)
    rows = corpus.read(split)  # type: ignore[attr-defined]
    return rows.sources if hasattr(rows, "sources") else rows.inputs


def _lines(document: Iterable[str]) -> Iterator[str]:
    """The lines of a document that comes in pieces."""
    held = ""
    for piece in document:
        *whole, held = (held + piece).split("\n")
        yield from whole
    yield held
