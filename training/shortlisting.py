"""A shortlist for an export: learnt from source texts, and tried on texts that it has not learnt from."""

from __future__ import annotations

from collections.abc import Iterable

from zoo.decoding import learn_shortlist
from zoo.serving.exporting import with_packed_model
from zoo.serving.packed import unsupported
from zoo.tasks.task import SavedTask
from zoo.tasks.translator import Translator

from .progress import progress_bar, say

_EVERY, _MOST = 20, 500  # of the texts: each twentieth is held out, at most so many


def with_learnt_shortlist(task: SavedTask, texts: Iterable[str], size: int) -> Translator:
    """A translator with a shortlist, and a line on stderr that says how many translations it changes.

    Args:
        task: a translator.
        texts: source texts, such as those that it was trained with; empty ones are left out. Each twentieth text, at
            most 500, is held out. These are translated with the shortlist and without.
        size: how many target tokens each text will have.

    Raises:
        ValueError: the task is no translator, its model cannot use a shortlist, there are no texts, or `size` is out
            of range.
    """
    if not isinstance(task, Translator):
        raise ValueError(f"a shortlist is for translators; this is a {type(task).__name__}")
    if reason := unsupported(task.model):
        raise ValueError(f"a shortlist makes no export faster whose model is not packed for a server: {reason}")
    packed = with_packed_model(task)
    texts = [text for text in texts if text.strip()]
    held_out = texts[_EVERY - 1 :: _EVERY][:_MOST]
    learnt_from = [text for row, text in enumerate(texts) if row % _EVERY != _EVERY - 1 or row // _EVERY >= _MOST]
    with progress_bar("learning the shortlist", len(learnt_from)) as advance:
        shortlist = learn_shortlist(packed, learnt_from, size, progress=advance)
    if held_out:
        same = sum(map(str.__eq__, packed.with_shortlist(shortlist)(held_out), packed(held_out)))
        say(f"With the shortlist, {same:,} of {len(held_out):,} held-out texts have the same translation as without.")
    return task.with_shortlist(shortlist)
