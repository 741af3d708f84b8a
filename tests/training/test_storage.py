"""The cache of a run: whole or not there. Corpora in files: the same rows, splits and batches as from memory."""

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from zoo_training import language_modelling, masked_language_modelling, ragged, storage, translation
from zoo_training.corpora.file_labels import FileLabels
from zoo_training.corpora.file_pairs import FilePairs
from zoo_training.ragged import StoredTexts
from zoo_training.schema.recipe import read_recipe
from zoo_training.storage import Storage

pytestmark = pytest.mark.usefixtures("eager_unless_long")

WORDS = ["ab", "cde", "fé", "日本", "g", "hij"]


@pytest.fixture
def table(tmp_path):
    """Ninety lines of pairs with a class. Many share a text; three have no usable text."""
    random = np.random.default_rng(0)
    lines = [
        f"{' '.join(random.choice(WORDS, random.integers(1, 6)))} {n % 60}\tx {n % 70}\tclass {n % 3}"
        for n in range(87)
    ]
    lines[5:5] = ["\tx\ta", " \t \ta", f"{'y' * 1001}\tz\ta"]
    file = tmp_path / "table.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def columns(rows):
    found = (rows.sources, rows.targets) if hasattr(rows, "sources") else (rows.texts, rows.labels, rows.seconds)
    return [None if column is None else list(column) for column in found], rows.dropped


class TestCache:
    def written(self, folder, key="a" * 64, kind="ids", values=(1, 2, 3)):
        kept = Storage(folder)
        with kept.writing(kind, key) as entry:
            entry.save("numbers", np.array(values))
            entry.info["n"] = len(values)
        return kept

    def test_an_entry_is_there_for_the_next_run_under_its_key_only(self, tmp_path):
        kept = self.written(tmp_path)
        entry = kept.find("ids", "a" * 64)
        assert (entry.array("numbers").tolist(), entry.info) == ([1, 2, 3], {"n": 3})
        assert kept.find("ids", "b" * 64) is None
        assert kept.find("texts", "a" * 64) is None
        assert kept.find("ids", "a" * 16 + "b" * 48) is None, "the name has 16 digits of the key, the header all"

    @pytest.mark.parametrize("damage", ["a byte", "shorter", "a file more", "header", "no header"])
    def test_a_damaged_entry_is_not_used(self, tmp_path, damage, capsys):
        kept = self.written(tmp_path)
        (folder,) = tmp_path.iterdir()
        (file,) = folder.glob("numbers.*")
        content = bytearray(file.read_bytes())
        if damage == "a byte":
            content[9] ^= 1
            file.write_bytes(content)
        elif damage == "shorter":
            file.write_bytes(content[:-8])
        elif damage == "a file more":
            (folder / "x.int8").touch()
        elif damage == "header":
            (folder / "header.json").write_text("[")
        else:
            (folder / "header.json").unlink()
        assert kept.find("ids", "a" * 64) is None
        assert not folder.exists()
        assert "is damaged or of another version, and is written again" in " ".join(capsys.readouterr().err.split())

    def test_an_entry_of_another_form_is_not_used(self, tmp_path, monkeypatch):
        kept = self.written(tmp_path)
        monkeypatch.setattr(storage, "_FORM", 2)
        assert kept.find("ids", "a" * 64) is None

    def test_a_new_entry_takes_the_place_of_others_of_its_kind(self, tmp_path):
        self.written(tmp_path)
        self.written(tmp_path, kind="texts")
        self.written(tmp_path, "b" * 64)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ids-" + "b" * 16, "texts-" + "a" * 16]

    def test_an_entry_that_another_worker_has_just_written_stays(self, tmp_path):
        """That worker may be reading it: on a network disk it could not go on if its files were replaced."""
        with Storage(tmp_path).writing("ids", "a" * 64) as slower:
            slower.save("numbers", np.array([1, 2, 3]))
            self.written(tmp_path)
            (file,) = tmp_path.glob("ids-*/numbers.*")
            before = file.stat()
        assert os.path.samestat(file.stat(), before)
        assert [path.name for path in tmp_path.iterdir()] == ["ids-" + "a" * 16]

    def test_an_error_leaves_nothing(self, tmp_path):
        with pytest.raises(ZeroDivisionError), Storage(tmp_path).writing("ids", "key") as entry:
            entry.save("numbers", np.arange(3))
            raise ZeroDivisionError
        assert not list(tmp_path.iterdir())

    def test_a_full_disk_is_one_sentence(self, tmp_path):
        with (
            pytest.raises(OSError, match=r"^\S+ cannot be written: No space left on device\. A corpus that is larger"),
            Storage(tmp_path).writing("ids", "key") as entry,
        ):
            entry.save("numbers", np.arange(3))
            raise OSError(errno.ENOSPC, "No space left on device")
        assert not list(tmp_path.iterdir())

    def test_what_a_killed_process_left_is_removed(self, tmp_path):
        (tmp_path / ".ids.tmp-abc").mkdir(parents=True)
        self.written(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["ids-" + "a" * 16]

    def test_entries_of_other_texts_are_removed_and_nothing_else(self, tmp_path):
        """Such as what a user keeps in a folder `cache`, where `--out` is a project."""
        for name in ("ids-" + "b" * 16, "ids-of-mine", "texts-" + "b" * 16):
            (tmp_path / name).mkdir()
        self.written(tmp_path)
        assert sorted(path.name[:7] for path in tmp_path.iterdir()) == ["ids-aaa", "ids-of-", "texts-b"]

    def test_without_a_key_or_a_cache_nothing_is_left_at_the_end(self, tmp_path):
        code = (
            "import sys, pathlib, numpy as np\n"
            "from zoo_training.storage import Storage\n"
            "folder = pathlib.Path(sys.argv[1])\n"
            "storages = Storage(None, folder), Storage(folder / 'cache', folder)\n"
            "for storage, key in zip(storages, ('a', None)):\n"
            "    with storage.writing('ids', key) as entry: entry.save('x', np.arange(9))\n"
            "assert len(list(folder.glob('cache.tmp-*'))) == 2\n"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
        assert not list(tmp_path.iterdir())

    def test_a_cache_that_is_only_read_stays_as_it_is(self, tmp_path):
        self.written(tmp_path / "cache")
        (folder,) = (tmp_path / "cache").iterdir()
        kept = Storage(tmp_path / "cache", tmp_path, keeps=False)
        assert kept.find("ids", "a" * 64).array("numbers").tolist() == [1, 2, 3]
        with kept.writing("ids", "b" * 64) as entry:
            entry.save("numbers", np.array([4]))
            assert entry.folder.parent.parent == tmp_path
        assert kept.fact("digest", "c", lambda: "d") == "d"
        (folder / "header.json").write_text("[")
        assert kept.find("ids", "a" * 64) is None
        assert [*(tmp_path / "cache").iterdir()] == [folder]

    def test_a_fact_is_computed_once(self, tmp_path):
        calls = []
        for key in ("a", "a", "b", None, None):
            assert Storage(tmp_path).fact("digest", key, lambda: calls.append(1) or ["é"]) == ["é"]
        assert len(calls) == 4


def corpora(table, **options):
    return [
        FilePairs(train=table, **options),
        FilePairs(train=table, validation_pairs=9, test_pairs=0, seed=4, **options),
        FileLabels(train=table, second_column=2, label_column=3, validation_texts=7),
        FileLabels(train=table, label_column=3, validation_texts=0, test_texts=11),
    ]


def test_a_corpus_in_files_has_the_same_rows_in_each_split(table, small, tmp_path, monkeypatch):
    for number in range(4):
        stored = corpora(table)[number]
        cache = tmp_path / f"cache{number}"
        stored.storage.cache = cache
        of_files = {split: columns(stored.read(split)) for split in stored.splits}
        texts = stored.read("train")
        assert isinstance(texts.sources if number < 2 else texts.texts, StoredTexts)
        again = corpora(table)[number]
        again.storage.cache = cache
        monkeypatch.setattr(type(again), "_rows", lambda *_: pytest.fail("the cache was not used"))
        assert {split: columns(again.read(split)) for split in again.splits} == of_files
        monkeypatch.undo()
        plain = corpora(table)[number]
        assert {split: columns(plain.read(split)) for split in plain.splits} == of_files
        assert isinstance(plain.read("train").labels if number > 1 else plain.read("train").sources, list)
        monkeypatch.setattr(ragged, "IN_MEMORY", 300)


def test_what_is_warned_of_a_table_is_repeated_from_the_cache(tmp_path, small, caplog, monkeypatch):
    file = tmp_path / "t.tsv"
    file.write_text("text\tlabel\n" + "".join(f"a text {n}\t{'Yes' if n % 2 else 'yes'}\n" for n in range(40)))
    told = []
    for _ in range(2):
        corpus = FileLabels(train=file)
        corpus.storage.cache = tmp_path / "cache"
        corpus.read("train")
        told.append([*caplog.messages])
        caplog.clear()
        monkeypatch.setattr(FileLabels, "_rows", lambda *_: pytest.fail("the cache was not used"))
    assert [" look like the names of columns" in each for each in told[0]] == [True, False]
    assert told[0] == told[1]


def test_another_content_or_option_is_another_key(table, small):
    keys = [corpus.read("train").key for corpus in corpora(table)]
    other = table.with_name("other.tsv")
    other.write_bytes(table.read_bytes())
    assert FilePairs(train=other).read("train").key == keys[0], "the name of the file does not count"
    other.write_bytes(table.read_bytes().replace(b"ab", b"ac"))
    keys.append(FilePairs(train=other).read("train").key)
    keys.append(FilePairs(train=table, max_characters=99).read("train").key)
    assert len(set(keys)) == len(keys)
    assert None not in keys


RECIPE = """
[corpus]
kind = "text"
train = "{table}"
[tokenizer.joint]
kind = "byte_pair"
size = 300
dropout = {dropout}
[training]
batch_size = 4
jit_compile = false
[model]
units = 4
embedding_dim = 4
[lengths]
max_source = 30
"""


@pytest.mark.parametrize("dropout", [0.0, pytest.param(0.2, marks=pytest.mark.long)])
def test_batches_digests_and_vocabulary_are_the_same_from_memory_files_and_cache(
    table, tmp_path, monkeypatch, dropout, capsys, eager
):
    file = tmp_path / "mine.toml"
    file.write_text(RECIPE.format(table=table, dropout=dropout))

    def prepared(in_memory, cache):
        monkeypatch.setattr(ragged, "IN_MEMORY", in_memory)
        recipe = read_recipe(str(file))
        recipe.corpus.storage.cache = cache
        return translation.prepare(recipe)

    found = [prepared(limit, tmp_path / "cache") for limit in (10**9, 300, 300)]
    assert len({json.dumps(dict(each.digests)) for each in found}) == 1
    steps = found[0].steps
    assert steps == found[1].steps > 5
    for one, *others in zip(*(each.training_from(steps - 2).take(5) for each in found), strict=True):
        for other in others:
            for ours, theirs in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
                assert np.array_equal(ours, theirs)
    said = capsys.readouterr().err
    assert [said.count(f"{kind}: read from") for kind in ("texts", "ids")] == [1, 1]
    assert len(list((tmp_path / "cache").glob("vocabulary-*"))) == 1


GENERATOR = (
    "training.batch_size=3",
    "training.jit_compile=false",
    "tokenizer.size=270",
    "model={family='gpt',units=4,num_heads=2,num_layers=1,context_length=7}",
)
FILLER = (
    "training={batch_size=3,window=9,jit_compile=false}",
    "tokenizer.size=90",
    "model={family='masked_language_model',encoder={units=4,num_heads=2,num_layers=1,max_length=9,"
    "feed_forward_units=4}}",
)


@pytest.mark.parametrize(
    ("name", "module", "overrides"),
    [("gpt-pydoc", language_modelling, GENERATOR), ("bert-pydoc", masked_language_modelling, FILLER)],
)
def test_running_text_is_tokenised_once(table, tmp_path, monkeypatch, capsys, name, module, overrides):
    def prepared(in_memory, *more):
        monkeypatch.setattr(ragged, "IN_MEMORY", in_memory)
        text = f'corpus={{kind="text",train="{table}",validation_share=0.3}}'
        recipe = read_recipe(name, [text, *overrides, *more])
        storage.set_storage(recipe.corpus, tmp_path / "run" / "cache", tmp_path / "run")
        return module.prepare(recipe)

    found = [prepared(limit) for limit in (10**9, 300, 300)]
    said = capsys.readouterr().err
    assert [said.count(f"{kind}: read from") for kind in ("ids", "validation")] == [1, 1]
    kept = sorted(path.name.split("-")[0] for path in (tmp_path / "run" / "cache").iterdir())
    assert kept == ["ids", "validation", "vocabulary"]
    assert len({json.dumps([*each.digests.items(), *each.sizes.items(), each.steps]) for each in found}) == 1
    for batches in (
        [each.training_from(found[0].steps - 2).take(5) for each in found],
        [each.validation for each in found],
    ):
        for one, *others in zip(*batches, strict=True):
            for other in others:
                for ours, theirs in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
                    assert np.array_equal(ours, theirs)
    prepared(300, "corpus.validation_share=0.2")
    assert "read from" not in capsys.readouterr().err, "another share is another text"


def test_the_vocabulary_is_learnt_from_a_stated_sample(table, tmp_path, capsys):
    file = tmp_path / "mine.toml"
    file.write_text(RECIPE.format(table=table, dropout=0.0))
    vocabularies = []
    for sample in (40, 40, 41, 1000):
        recipe = read_recipe(str(file), [f"tokenizer.sample={sample}"])
        tokenizer, _ = translation.learn_tokenizers(recipe, recipe.corpus.read("train"))
        vocabularies.append(json.dumps(tokenizer.get_config()))
    assert vocabularies[0] == vocabularies[1] != vocabularies[3]
    assert "learnt from 40 of 79 pairs (tokenizer.sample)" in " ".join(capsys.readouterr().err.split())


_PEAK = """
import re, sys
from zoo_training.corpora.file_pairs import FilePairs
corpus = FilePairs(train=sys.argv[1])
number = sum(len(corpus.read(split)) for split in corpus.splits)
# Not ru_maxrss, which begins with the peak of the process that started this one.
print(number, 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_memory_of_reading_and_holding_out_hardly_grows_with_the_corpus(tmp_path):
    """In bytes a pair. As strings in memory, these would take 500."""
    random = np.random.default_rng(0)
    words = np.array([f"{word}{index}" for word in WORDS for index in range(50)])
    texts = [" ".join(row) for row in random.choice(words, (10_000, 12))]
    peaks = []
    for number in (200_000, 600_000):
        table = tmp_path / f"{number}.tsv"
        with table.open("w", encoding="utf-8") as file:
            for index in range(number):
                file.write(f"{texts[index % 10_000]} {index}\t{texts[-index % 10_000]} {index}\n")
        done = subprocess.run([sys.executable, "-c", _PEAK, table], stdout=subprocess.PIPE, check=True)
        read, peak = map(int, done.stdout.split())
        assert read == number
        peaks.append(peak)
    assert (peaks[1] - peaks[0]) / 400_000 < 150, peaks
