"""Sequence distillation: a translator learns from the translations of another one, its teacher.

A corpus with `teacher` keeps its sources, and its training targets become what the teacher answers to them. They are
more regular than people's translations, so a small model learns them better (Kim and Rush 2016,
https://arxiv.org/abs/1606.07947). Validation and test keep the translations of people.

1. Equal sources are translated once.
2. They are translated in pieces of `_PIECE` texts, each in a file of the run's cache. A file is written whole, and
   begins with the hash of its content. What is there is not translated again.
3. The folder of these files is named by the hash of the sources and of the teacher's files. With another teacher or
   other sources, it is another folder, and the old one is removed once the new one is complete.
4. While the translations are in the cache, the teacher itself is not needed: they are found by its path.
5. Several workers share the work: what the chief's cache lacks is translated by all of them, a piece by each in turn.
   Each gets all pieces of the others over the network, so they need no shared disk. All train on the same texts, also
   where their processors round differently, and the teacher would not answer each of them alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.atomic import write_whole
from zoo.local_workers import cores
from zoo.serving.layout import newest_version
from zoo.tasks import TRANSLATOR_FOLDER

from .answering import answers
from .corpora.corpus import expanded, normalized
from .corpora.pairs import PairCorpus, Pairs
from .corpora.several_pairs import SeveralPairs
from .progress import console, progress_bar, say, time_left
from .ragged import TextsWriter, joined, select
from .run_files import CARD_FILE, METRICS_FILE, RECIPE_FILE, Digest, hash_of_file
from .schema.recipe import RecipeError, recipe_names
from .storage import Storage, key_of

if TYPE_CHECKING:  # they import TensorFlow
    from zoo.distribution import Workers
    from zoo.tasks.text_to_text import TextToText

_FORM = 2  # of the files; those of another form are written again
_KIND = "taught"  # the name of the folder in a cache, before the hash
_HEADER = "teacher.json"
_PIECE = 1024  # texts of a file; at the pace of two cores, some seconds of work
_BATCH = 64  # texts that are translated at once
_SILENCE = 60  # seconds between two lines in a log, which has no progress bar


def check_teachers(corpus: PairCorpus | SeveralPairs) -> None:
    """Finds a teacher that is missing, or that is the run itself, before TensorFlow starts.

    Raises:
        RecipeError: there is such a one.
    """
    for _, key, part, path in _with_teachers(corpus):
        teacher, run = expanded(path), part.storage.near
        if run is not None and teacher.resolve().is_relative_to(run.resolve()):
            raise RecipeError(
                f"{key}: {path} is the run itself, which cannot be its own teacher; name another run, or "
                "another folder with --out"
            )
        if not teacher.exists() and not any(_kept_of(teacher, part.storage)):
            raise _missing(key, path)


def taught(corpus: PairCorpus | SeveralPairs, pairs: Pairs, workers: Workers) -> Pairs:
    """The pairs to train on, with the teacher's translations as targets where a corpus has a teacher.

    A pair whose translation is empty is left out, and so is one whose source is longer than the teacher reads: it would
    translate the beginning only. A line says how many there are.

    Args:
        corpus: the recipe's corpus.
        pairs: what it gave to train on.
        workers: who translate; all call this.

    Raises:
        ClusterError: the workers have different teachers or sources.
        RecipeError: a teacher cannot be loaded or is no translator, or no pair is left.
    """
    teachers = {number: (key, part.storage, path) for number, key, part, path in _with_teachers(corpus)}
    if not teachers:
        return pairs
    if pairs.parts is None:
        (only,) = teachers.values()
        return _taught(*only, pairs, workers)
    found, begin = [], 0
    for number, part in enumerate(pairs.parts):
        own = dataclasses.replace(pairs.select(np.arange(begin, begin + part.pairs)), key=pairs.key)
        found.append(_taught(*teachers[number], own, workers) if number in teachers else own)
        begin += part.pairs
    return Pairs(
        joined([each.sources for each in found]),
        joined([each.targets for each in found]),
        key=pairs.key and key_of([each.key for each in found]),
        parts=[part._replace(pairs=len(each)) for each, part in zip(found, pairs.parts, strict=True)],
    )


def _with_teachers(corpus: PairCorpus | SeveralPairs) -> Iterator[tuple[int, str, PairCorpus, Path]]:
    """The corpora that have a teacher: number, name of the key in the recipe, corpus, path of the teacher."""
    for number, part in enumerate(corpus.parts):
        if isinstance(part, PairCorpus) and part.teacher is not None:
            key = f"corpus.{number}.teacher" if len(corpus.parts) > 1 else "corpus.teacher"
            yield number, key, part, part.teacher


def _taught(key: str, storage: Storage, path: Path, pairs: Pairs, workers: Workers) -> Pairs:
    """The pairs of one corpus with its teacher's translations."""
    firsts, places = _distinct(pairs.sources)
    sources = select(pairs.sources, firsts)
    folder = _folder(key, storage, path, sources)
    workers.agree("teacher or its sources", folder.name)
    _translate(key, expanded(path), folder, sources, workers)
    storage.remove_others(_KIND, folder)
    with storage.writing("texts", None) as entry, storage.writing("texts", None) as whole:
        once, cut = TextsWriter(entry, "translations"), set()
        for number, text in enumerate(itertools.chain.from_iterable(map(_texts_of, _pieces(folder, len(sources))))):
            once.append(text or "")
            if text is None:
                cut.add(number)
        (translations,) = once.finish()
        texts = TextsWriter(whole, "sources", "targets")
        kept = np.ones(len(pairs), bool)
        for row, (source, place) in enumerate(zip(pairs.sources, places, strict=True)):
            target = translations[place]
            kept[row] = bool(target)
            if target:
                texts.append(source, target)
        kept_sources, targets = texts.finish()
    too_long = sum(place in cut for place in places.tolist()) if cut else 0
    empty = len(pairs) - int(kept.sum()) - too_long
    for number, why in ((too_long, "the teacher would cut off their sources"), (empty, "its translation is empty")):
        if number:
            say(f"{key}: {number:,} of {len(pairs):,} pairs are left out, since {why}")
    if not kept.any():
        what = "cuts off" if not empty else "gives an empty text for"
        raise RecipeError(f"{key}: {path} {what} each source; is it the right translator?")
    groups = pairs.groups and [*itertools.compress(pairs.groups, kept)]
    return Pairs(kept_sources, targets, groups, pairs.dropped, key=pairs.key and key_of(pairs.key, folder.name))


def _folder(key: str, storage: Storage, path: Path, sources: Sequence[str]) -> Path:
    """The folder of a teacher's translations of some texts; where the teacher is gone, one that has them all."""
    teacher = expanded(path)
    header = {"form": _FORM, "piece": _PIECE, "sources": str(Digest(sources)), "texts": len(sources)}
    if not teacher.exists():
        for folder in _kept_of(teacher, storage):
            told = _header(folder)
            if all(told.get(name) == value for name, value in header.items()) and all(_hashes(folder, len(sources))):
                return folder
        raise _missing(key, path)
    header["teacher"] = _hash_of(teacher)
    folder = storage.folder(_KIND, key_of(header))
    write_whole(folder / _HEADER, json.dumps({**header, "path": str(teacher)}).encode())
    return folder


def _translate(key: str, teacher: Path, folder: Path, sources: Sequence[str], workers: Workers) -> None:
    """Completes the folder of each worker: with the pieces that the chief has, and with new ones by all workers."""
    hashes = _hashes(folder, len(sources))
    of_chief, *of_others = map(json.loads, workers.gather_bytes(json.dumps(hashes).encode()))
    for number, each in enumerate(of_chief):
        if each and any(other[number] != each for other in of_others):
            content = workers.broadcast_bytes(_piece(folder, number).read_bytes() if workers.is_chief else b"")
            write_whole(_piece(folder, number), content)
    absent = [number for number, each in enumerate(of_chief) if not each]
    if not absent:
        whose = f"the translations of {teacher}" if teacher.exists() else f"{teacher} is not there; its translations"
        say(f"{key}: {whose} are read from {folder}")
        return
    sizes = {number: min(_PIECE, len(sources) - _PIECE * number) for number in absent}
    left = sum(sizes.values())
    done = len(sources) - left
    shares = [absent[index :: workers.count] for index in range(workers.count)]
    own = shares[workers.index]
    given = itertools.chain.from_iterable(sources[_PIECE * n : _PIECE * (n + 1)] for n in own)
    found = answers(_load(key, teacher), given, _PIECE, _BATCH, _threads()) if own else iter(())
    say(
        f"{key}: {teacher} translates {left:,} texts"
        + (f", shared out among {workers.count} workers" if workers.count > 1 else "")
        + (f"; {done:,} are translated" if done else "")
    )
    with _told(key, len(sources), done) as advance:
        for turn in itertools.zip_longest(*shares):  # a piece of each worker; in the last turn, None of some
            mine = b"" if turn[workers.index] is None else _content_of(next(found))
            for number, content in zip(turn, workers.gather_bytes(mine), strict=True):
                if number is not None:
                    write_whole(_piece(folder, number), content)
                    advance(sizes[number])


# The teacher.


def _load(key: str, teacher: Path) -> Callable[[list[str]], list[str | None]]:
    """A function from texts to their translations; None of a text that is longer than the teacher reads."""
    from zoo.loading import load
    from zoo.tasks.text_to_text import TextToText

    try:
        task = load(teacher)
    except (FileNotFoundError, ValueError) as error:
        raise RecipeError(
            f"{key}: {str(error).rstrip('.')}; name a run whose training has ended, or an export"
        ) from None
    if not isinstance(task, TextToText):
        raise RecipeError(f"{key}: {teacher} does not translate: it holds a `{type(task).__name__}`")
    fits = _fits(key, task)

    def translations(texts: list[str]) -> list[str | None]:
        whole = fits(texts)
        found = iter(task([*itertools.compress(texts, whole)], batch_size=_BATCH))
        return [next(found) if each else None for each in whole]

    return translations


def _fits(key: str, task: TextToText) -> Callable[[list[str]], list[bool]]:
    """A function that says of each text whether the teacher reads all of it; see `fills_source` for an export."""
    from zoo.tasks.task import strings
    from zoo.tasks.translator import Translator
    from zoo.text.tokenizer import compiled_encoder

    if isinstance(task, Translator):
        encode, limit = compiled_encoder(task.source_tokenizer, add_end=True), task.max_source_length
        return lambda texts: (encode(texts)[1] <= limit).tolist()
    try:
        task.fills_source(strings([]))
    except ValueError as error:
        say(f"{key}: {error} Of a source that is too long, only the beginning is translated")
        return lambda texts: [True] * len(texts)
    return lambda texts: (~task.fills_source(strings(texts)).numpy()).tolist()


def _hash_of(teacher: Path) -> str:
    """The hash of a model's files: what it answers follows from them. Cards and scores do not count."""
    saved = teacher / TRANSLATOR_FOLDER
    folder = saved if saved.is_dir() else newest_version(teacher) or teacher
    files = [file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file()]
    described = [
        (str(file), hash_of_file(folder / file))
        for file in files
        if file.name not in (CARD_FILE, METRICS_FILE, RECIPE_FILE)
        and not any(part.startswith(".") for part in file.parts)  # such as .git, and .cache with the date of a download
    ]
    return key_of(described)


def _missing(key: str, path: Path) -> RecipeError:
    name = path.name
    command = f"`zoo train {name}` trains it" if name in recipe_names() else "train it first"
    return RecipeError(f"{key}: {path} does not exist; {command}, or name another translator")


def _threads() -> int:
    import tensorflow as tf

    return 1 if tf.config.list_physical_devices("GPU") else cores()


# The files.


def _distinct(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which of equal texts is the first, and where each text is among these.

    Returns:
        The ascending row numbers of all first texts, int64 `(U,)`, and for each text its place there, int64 `(N,)`.
    """
    # 64 bits of each text: the chance that one of ten million gets the translation of another is 1 in 370,000.
    digests = (hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts)
    hashes = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(texts))
    _, firsts, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return firsts[order], places[numbers]


def _kept_of(teacher: Path, storage: Storage) -> list[Path]:
    """The folders of a teacher's translations in a cache; those of a teacher with another path do not count."""
    folders = storage.cache.glob(f"{_KIND}-*") if storage.cache is not None else ()
    return [each for each in folders if Path(_header(each).get("path", "")).absolute() == teacher.absolute()]


def _header(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / _HEADER).read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _piece(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.json"


def _pieces(folder: Path, texts: int) -> Iterator[Path]:
    return (_piece(folder, number) for number in range(-(-texts // _PIECE)))


def _hashes(folder: Path, texts: int) -> list[str | None]:
    """The hash of the content of each piece; None of one that is not there, or damaged."""
    return [_hash(file) for file in _pieces(folder, texts)]


def _hash(file: Path) -> str | None:
    try:
        given, _, content = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    found = hashlib.sha256(content).hexdigest()
    return found if given == found.encode() else None


def _content_of(texts: Sequence[str | None]) -> bytes:
    """What is written of the translations of a piece."""
    normal = [text and normalized(text) for text in texts]
    content = json.dumps(normal, ensure_ascii=False).encode("utf-8", "replace")
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _texts_of(file: Path) -> list[str | None]:
    return json.loads(file.read_bytes().partition(b"\n")[2])


@contextlib.contextmanager
def _told(label: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """A progress bar for translations; in a log, which has none, a line each minute.

    Args:
        label: what the lines begin with.
        total: how many texts there are.
        done: how many of them are translated already.

    Yields:
        A function to call with the number of texts just translated.
    """
    first = done
    begin = last = time.monotonic()
    with progress_bar("Translating", total) as advance:
        advance(done)

        def tell(number: int) -> None:
            nonlocal done, last
            done += number
            advance(number)
            now = time.monotonic()
            if not console.is_terminal and now - last >= _SILENCE:
                last = now
                left = time_left((now - begin) / (done - first) * (total - done))
                say(f"{label}: {done:,} of {total:,} texts  {left}")

        yield tell
