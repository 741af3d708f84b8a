"""A shortlist for an export: learnt from source texts, and tried on texts that it has not learnt from."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.decoding import learn_shortlist
from zoo.decoding.shortlist import size_or_default
from zoo.serving.exporting import with_packed_model
from zoo.serving.packed import unsupported
from zoo.tasks.task import SavedTask
from zoo.tasks.translator import Translator

from .progress import progress_bar, say

_MOST = 30_000  # texts to learn from
_EVERY, _MOST_HELD_OUT = 20, 500


def with_learnt_shortlist(task: SavedTask, texts: Sequence[str], size: int | None = None) -> Translator:
    """A translator with a shortlist. A line on stderr says how many translations it changes.

    Args:
        task: a translator.
        texts: source texts, such as those of its training. Empty and repeated ones are left out, and of more than
            30,000 so many are used, at even distances. Each twentieth text, at most 500, is held out: these are
            translated with the shortlist and without.
        size: how many target tokens each text will have; None for 2,048.

    Raises:
        ValueError: the task is no translator, its model cannot use a shortlist, there are no texts, `size` is out of
            range, or there is none and the target vocabulary has no more than 2,048 tokens.
    """
    if not isinstance(task, Translator):
        raise ValueError(f"a shortlist is for a translator; this is a {type(task).__name__}")
    if reason := unsupported(task.model):
        raise ValueError(f"a shortlist makes only exports of a packed `Transformer` faster: {reason}")
    size = size_or_default(size, task.target_tokenizer.size)
    texts = [*dict.fromkeys(text for text in texts if text.strip())]
    if len(texts) > _MOST:
        say(f"The shortlist is learnt from {_MOST:,} of {len(texts):,} texts.")
        texts = [texts[number * len(texts) // _MOST] for number in range(_MOST)]
    if len(languages := getattr(task.source_tokenizer, "languages", ())) > 1:
        say(f"The model has {len(languages)} target languages; the shortlist knows those that the texts ask for.")
    held_out = texts[_EVERY - 1 :: _EVERY][:_MOST_HELD_OUT]
    set_aside = set(held_out)
    learnt_from = [text for text in texts if text not in set_aside]
    packed = with_packed_model(task)
    with progress_bar("learning the shortlist", len(learnt_from)) as advance:
        shortlist = learn_shortlist(packed, learnt_from, size, progress=advance)
    if held_out:
        same = sum(map(str.__eq__, packed.with_shortlist(shortlist)(held_out), packed.with_shortlist(None)(held_out)))
        shortlist.unchanged = same, len(held_out)
        say(f"With the shortlist, {same:,} of {len(held_out):,} held-out texts have the same translation as without.")
    else:
        say(f"There are fewer than {_EVERY} texts, so none was held out to see what the shortlist changes.")
    return task.with_shortlist(shortlist)
