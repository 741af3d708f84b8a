"""Sequence distillation: the targets of training are exactly what the teacher answers, whatever happens on the way."""

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
from command_line import refuses
from worker_threads import in_threads
from zoo_training import distillation, ragged, translation
from zoo_training.distillation import check_teachers, taught
from zoo_training.ragged import is_stored
from zoo_training.schema.recipe import RecipeError, read_recipe
from zoo_training.storage import set_storage

import zoo
from zoo import loading
from zoo.distribution import ClusterError, Workers
from zoo.models import GPT, RNNSeq2Seq
from zoo.serving import export
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator
from zoo.text import CharacterTokenizer

SOURCES = [f"{'ab' * (n % 4)}c{n % 40}" for n in range(60)]  # 60 pairs with different targets, 40 different sources
RECIPE = """
[corpus]
kind = "text"
train = "pairs.tsv"
validation_pairs = 5
test_pairs = 0
teacher = "teacher"

[model]
units = 4
embedding_dim = 4
[training]
batch_size = 8
jit_compile = false
[lengths]
max_target = 12
"""


class Teacher:
    """Turns texts round, and counts those that it has seen. It has no answer to some."""

    def __init__(self, silent=()):
        self.seen, self.silent, self._lock = [], silent, threading.Lock()

    def __call__(self, texts):
        with self._lock:
            self.seen += texts
        return ["" if text in self.silent else f"{text[::-1]} " for text in texts]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a recipe, its pairs and a teacher's files; pieces of seven texts."""
    lines = [f"{source}\thuman {number}" for number, source in enumerate(SOURCES)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "mine.toml").write_text(RECIPE)
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "weights").write_text("1")
    monkeypatch.setattr(distillation, "_PIECE", 7)
    monkeypatch.setattr(distillation, "_threads", lambda: 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def given(folder, monkeypatch):
    """Reads the recipe as `zoo train` does, and gives the pairs with a teacher's translations."""

    def given(teacher, *overrides, cache="cache", workers=None):
        monkeypatch.setattr(distillation, "_load", lambda key, path: teacher)
        corpus = read_recipe("mine.toml", overrides).corpus
        set_storage(corpus, cache and folder / cache, folder / "run")
        check_teachers(corpus)
        return taught(corpus, corpus.read("train"), workers or Workers())

    return given


def files(folder, cache="cache"):
    (found,) = (folder / cache).glob("taught-*")
    return {file.name: file.read_bytes() for file in found.iterdir()}


@pytest.mark.long
def test_training_targets_are_what_a_real_teacher_answers_and_validation_stays(folder, capsys):
    letters = CharacterTokenizer("abc0123456789")
    keras.utils.set_random_seed(3)
    teacher = Translator(RNNSeq2Seq(letters.size, letters.size, units=8), letters, letters, 20, 6, beam_size=2)
    shutil.rmtree(folder / "teacher")
    teacher.save(folder / "teacher" / "translator")
    recipe = read_recipe("mine.toml")
    set_storage(recipe.corpus, folder / "cache", folder / "run")
    read = recipe.corpus.read("train")
    found = taught(recipe.corpus, read, Workers())
    assert (found.sources, found.targets) == (read.sources, teacher(read.sources))
    assert len(set(found.targets)) > 3
    assert all(re.fullmatch(r"human \d+", target) for target in recipe.corpus.read("validation").targets)
    first = translation.prepare(recipe)
    assert first.digests["translations"] != first.digests["train"] == read.digest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distillation, "_load", None)  # it is in the cache
        second = translation.prepare(recipe)
    assert first.digests == second.digests
    for one, other in zip(first.model.get_weights(), second.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "corpus.teacher: the translations of teacher are read from" in " ".join(capsys.readouterr().err.split())


def test_equal_sources_are_translated_once(folder, given):
    teacher = Teacher()
    found = given(teacher)
    assert found.targets == [source[::-1] for source in found.sources], "without white space at the ends"
    assert sorted(teacher.seen) == sorted(set(found.sources))
    assert len(teacher.seen) < len(found) == 55


def test_a_pair_without_a_translation_is_left_out_and_counted(given, capsys):
    sources, silent = read_recipe("mine.toml").corpus.read("train").sources, SOURCES[:7]
    kept = [source for source in sources if source not in silent]
    found = given(Teacher(silent))
    assert (found.sources, found.targets) == (kept, [source[::-1] for source in kept])
    left_out = len(sources) - len(kept)
    assert 7 < left_out <= 14
    assert f"corpus.teacher: {left_out} of 55 pairs are left out" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(RecipeError, match=r"corpus.teacher: teacher gives an empty text for each source"):
        given(Teacher(silent=SOURCES), cache="another")


def test_a_source_that_the_teacher_would_cut_off_is_left_out_and_counted(folder, monkeypatch, capsys):
    """A letter is a token, and an end token follows: of `ababc12`, a teacher that reads 7 would not see the 2."""
    letters = CharacterTokenizer("abc0123456789")
    teacher = Translator(RNNSeq2Seq(letters.size, letters.size, units=4), letters, letters, 7, 6)
    shutil.rmtree(folder / "teacher")
    teacher.save(folder / "teacher" / "translator")
    monkeypatch.setattr(Translator, "__call__", lambda self, texts, batch_size: [text[::-1] for text in texts])
    corpus = read_recipe("mine.toml").corpus
    set_storage(corpus, folder / "cache", folder / "run")
    read = corpus.read("train")
    kept = [source for source in read.sources if len(source) <= 6]
    for _ in range(2):  # the second time from the cache
        found = taught(corpus, read, Workers())
        assert (found.sources, found.targets) == (kept, [source[::-1] for source in kept])
        told = f"{55 - len(kept)} of 55 pairs are left out, since the teacher would cut off their sources"
        assert told in " ".join(capsys.readouterr().err.split())
    long = read_recipe("mine.toml", ["corpus.validation_pairs=0"]).corpus
    (folder / "pairs.tsv").write_text("ababababab\tx\n")
    with pytest.raises(RecipeError, match=r"corpus.teacher: teacher cuts off each source; is it the right translator"):
        taught(long, long.read("train"), Workers())


@pytest.mark.long
def test_an_export_tells_which_sources_it_may_cut_off(folder, capsys, monkeypatch):
    """It does not tell one of 6 letters and an end token, which just fits, from a longer one."""
    letters = CharacterTokenizer("abc0123456789")
    teacher = Translator(RNNSeq2Seq(letters.size, letters.size, units=4, attention=None), letters, letters, 7, 3)
    shutil.rmtree(folder / "teacher")
    export(teacher, folder / "teacher")
    texts = [" 123456 ", "12345", "", "1234567", "abc"]
    found = distillation._load("corpus.teacher", folder / "teacher")(texts)
    assert found == [None, *teacher(["12345", ""]), None, *teacher(["abc"])]
    assert not capsys.readouterr().err
    of_version_0_1 = zoo.load(folder / "teacher")
    del of_version_0_1._saved_model.fills_source
    monkeypatch.setattr(loading, "load", lambda path: of_version_0_1)
    assert distillation._load("corpus.teacher", folder / "teacher")(texts) == teacher(texts)
    told = " ".join(capsys.readouterr().err.split())
    assert "teacher/1 does not tell which texts it cuts off; export it again. Of a source that is too long" in told


KILLED = """
import os, pathlib, signal, sys
from zoo.distribution import Workers
from zoo_training import distillation
from zoo_training.schema.recipe import read_recipe
from zoo_training.storage import set_storage

def write(path, content, write=distillation.write_whole):
    if path.name == "000003.json":
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, content)

distillation._PIECE, distillation._threads, distillation.write_whole = 7, lambda: 2, write
distillation._load = lambda key, path: lambda texts: [text[::-1] for text in texts]
corpus = read_recipe("mine.toml").corpus
set_storage(corpus, pathlib.Path("cache"), pathlib.Path("run"))
distillation.taught(corpus, corpus.read("train"), Workers())
"""


def test_a_killed_process_leaves_whole_pieces_and_the_next_one_goes_on(folder, given):
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, env=os.environ, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = files(folder)
    assert sorted(left) == ["000000.json", "000001.json", "000002.json", "teacher.json"]
    teacher, undisturbed = Teacher(), Teacher()
    found = given(teacher)
    assert found.targets == given(undisturbed, cache="other").targets
    assert files(folder) == files(folder, "other")
    assert files(folder).items() >= left.items()
    assert len(teacher.seen) == len(undisturbed.seen) - 3 * 7


def test_another_teacher_or_other_sources_begin_anew(folder, given):
    given(Teacher())
    before = files(folder)
    for name in ("metrics.json", ".cache/date"):  # no part of the model
        (folder / "teacher" / name).parent.mkdir(exist_ok=True)
        (folder / "teacher" / name).write_text("{}")
    again = Teacher()
    given(again)
    assert not again.seen
    (folder / "teacher" / "weights").write_text("2")
    other = Teacher()
    found = given(other)
    assert sorted(other.seen) == sorted(set(found.sources))
    assert files(folder).keys() == before.keys()
    more = Teacher()
    found = given(more, "corpus.validation_pairs=3")
    assert sorted(more.seen) == sorted(set(found.sources))
    assert len([*(folder / "cache").glob("taught-*")]) == 1, "former ones are removed"


def test_a_teacher_that_fails_takes_no_translations_away(folder, given):
    def failing(texts):
        raise RuntimeError("no teacher")

    given(Teacher())
    before = files(folder)
    (folder / "other").mkdir()
    with pytest.raises(RuntimeError, match="no teacher"):
        given(failing, "corpus.teacher='other'")
    again = Teacher()
    given(again)
    assert not again.seen
    assert files(folder) == before


def test_a_damaged_piece_is_translated_again_and_no_other(folder, given):
    expected = given(Teacher()).targets
    (piece,) = (folder / "cache").glob("taught-*/000002.json")
    piece.write_bytes(piece.read_bytes()[:-3])
    teacher = Teacher()
    assert given(teacher).targets == expected
    assert len(teacher.seen) == 7


def test_the_teacher_is_not_needed_once_all_its_translations_are_there(folder, given, capsys):
    expected = given(Teacher()).targets
    shutil.rmtree(folder / "teacher")
    assert given(None).targets == expected
    assert "corpus.teacher: teacher is not there; its translations are read" in " ".join(
        capsys.readouterr().err.split()
    )
    assert given(None, f"corpus.teacher='{folder / 'teacher'}'").targets == expected
    with pytest.raises(RecipeError, match=r"^corpus.teacher: taecher does not exist"):  # whose they are not
        given(None, "corpus.teacher='taecher'")
    next((folder / "cache").glob("taught-*/000002.json")).unlink()
    with pytest.raises(RecipeError, match=r"^corpus.teacher: teacher does not exist; train it first, or name another"):
        given(None)


def test_without_a_cache_nothing_is_left(folder, given):
    first, second = Teacher(), Teacher()
    assert given(first, cache=None).targets == given(second, cache=None).targets
    assert sorted(first.seen) == sorted(second.seen)
    gc.collect()
    assert not [*folder.rglob("taught-*")]


def test_a_corpus_larger_than_memory(folder, given, monkeypatch):
    silent = SOURCES[3:4]
    expected = given(Teacher(silent), "corpus.validation_pairs=0")
    monkeypatch.setattr(ragged, "IN_MEMORY", 200)
    teacher = Teacher(silent)
    found = given(teacher, "corpus.validation_pairs=0", cache="other")
    assert is_stored(found.sources)
    assert is_stored(found.targets)
    assert ([*found.sources], [*found.targets]) == (expected.sources, expected.targets)
    assert len(teacher.seen) == len(set(SOURCES))
    read = read_recipe("mine.toml", ["corpus.validation_pairs=0"]).corpus.read("train")
    assert found.key not in (None, read.key), "ids of the translations must not be taken for those of the targets"


def test_one_of_several_corpora_has_a_teacher(folder, given):
    (folder / "more.tsv").write_text("".join(f"x{n}\ty{n}\n" for n in range(9)))
    several = """corpus=[{kind="text",train="more.tsv",validation_pairs=2,test_pairs=0,weight=3},
        {kind="text",train="pairs.tsv",teacher="teacher",weight=0.5}]""".replace("\n", "")
    found = given(Teacher(silent=SOURCES[:1]), several)
    gone = SOURCES.count(SOURCES[0])
    assert found.parts == [(7, 3, None), (60 - gone, 0.5, None)]
    assert all(
        target == source.replace("x", "y") for source, target in zip(found.sources[:7], found.targets[:7], strict=True)
    )
    assert found.sources[7:] == [source for source in SOURCES if source != SOURCES[0]]
    assert found.targets[7:] == [source[::-1] for source in found.sources[7:]]
    assert len([*(folder / "cache" / "corpus-1").glob("taught-*")]) == 1


def test_the_only_one_of_a_list_of_corpora_has_a_teacher(folder, given):
    (folder / "mine.toml").write_text(RECIPE.replace("[corpus]", "[[corpus]]"))
    found = given(Teacher())
    assert len(found) == 55
    assert found.targets == [source[::-1] for source in found.sources]


class TestWorkers:
    @pytest.mark.parametrize("caches", [("0", "1", None, "3"), ("shared",) * 4])
    def test_each_text_is_translated_by_one_of_them(self, folder, given, capsys, caches):
        """Six pieces by four workers. They have caches of their own, and one of them has none; or they share one."""
        teacher = Teacher()
        found = in_threads(4, lambda workers: given(teacher, cache=caches[workers.index], workers=workers))
        assert "teacher translates 37 texts, shared out among 4 workers" in " ".join(capsys.readouterr().err.split())
        assert sorted(teacher.seen) == sorted(set(found[0].sources))
        assert [each.targets for each in found] == [given(Teacher(), cache="alone").targets] * 4
        assert all(files(folder, cache) == files(folder, "alone") for cache in caches if cache)

    def test_the_chief_gives_the_others_what_it_has(self, folder, given):
        """Also in place of what they have, if it differs."""
        for cache, silent in (("0", SOURCES[:30:3]), ("1", SOURCES[:30:4])):
            given(Teacher(silent), cache=cache)
            for number in (2, 3) if cache == "0" else (3, 4):
                next((folder / cache).glob(f"taught-*/{number:06}.json")).unlink()
        before, teacher = files(folder, "0"), Teacher()
        one, other = in_threads(2, lambda workers: given(teacher, cache=str(workers.index), workers=workers))
        assert (one.sources, one.targets) == (other.sources, other.targets)
        assert len(teacher.seen) == 2 * 7
        assert files(folder, "0") == files(folder, "1")
        assert files(folder, "0").items() > before.items()

    def test_other_teachers_are_refused(self, folder, given, monkeypatch):
        monkeypatch.setattr(distillation, "_hash_of", lambda teacher: threading.get_ident())
        with pytest.raises(ClusterError, match="differ in their teacher or its sources: worker 1"):
            in_threads(2, lambda workers: given(Teacher(), cache=None, workers=workers))


class TestErrors:
    def test_a_teacher_that_is_not_there(self, folder):
        for override, said in (
            ("corpus.teacher='nobody'", "corpus.teacher: nobody does not exist; train it first, or name another"),
            (
                "corpus.teacher='runs/multi30k-rnn'",
                "corpus.teacher: runs/multi30k-rnn does not exist; `zoo train multi30k-rnn` trains it, or name another",
            ),
            (
                "corpus=[{kind='dates'},{kind='text',train='pairs.tsv',teacher='nobody'}]",
                "corpus.1.teacher: nobody does not exist",
            ),
            ("corpus.teacher='runs/mine'", "corpus.teacher: runs/mine is the run itself"),
            ("corpus.teacher='runs/mine/translator'", "corpus.teacher: runs/mine/translator is the run itself"),
        ):
            assert refuses("train", "mine.toml", "--set", override).startswith(said)

    def test_a_teacher_that_is_no_translator_or_nothing(self, folder):
        corpus = read_recipe("mine.toml").corpus
        with pytest.raises(RecipeError, match=r"corpus.teacher: teacher holds no saved model of the zoo.*; name a run"):
            taught(corpus, corpus.read("train"), Workers())
        letters = CharacterTokenizer("abc")
        model = GPT(letters.size, units=4, num_heads=2, num_layers=1, context_length=8)
        TextGenerator(model, letters).save(folder / "teacher" / "generator")
        with pytest.raises(RecipeError, match=r"teacher does not translate: it holds a `TextGenerator`"):
            taught(corpus, corpus.read("train"), Workers())

    def test_a_corpus_that_is_not_of_pairs(self, folder):
        (folder / "mine.toml").write_text('[corpus]\nkind = "pydoc"\nteacher = "teacher"\n[model]\nfamily = "gpt"\n')
        assert "unknown key 'corpus.teacher'" in refuses("train", "mine.toml")
