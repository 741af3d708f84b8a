"""Several corpora in one recipe: what is read of each, what is said of wrong ones, and the same batches from files."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from zoo_training import ragged, translation
from zoo_training.corpora import several_pairs
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.file_pairs import FilePairs
from zoo_training.corpora.several_pairs import SeveralPairs
from zoo_training.schema.recipe import RecipeError, read_recipe
from zoo_training.storage import set_storage

RECIPE = """
[[corpus]]
kind = "text"
train = "domain.tsv"
weight = 2.5
validation_pairs = 4
test_pairs = 3

[[corpus]]
kind = "text"
train = "general.tsv"
weight = 0.5
[corpus.clean]
max_ratio = 3

[training]
batch_size = 4
buckets = 2
jit_compile = false

[model]
units = 4
embedding_dim = 4

[lengths]
max_target = 12
"""


@pytest.fixture
def recipe(tmp_path):
    """A path. Thirty pairs in the domain; eighty others, of which six are too long in tokens, and five unequal."""
    write = {"domain": [f"wort {n}\tword {n}" for n in range(30)]}
    write["general"] = [f"{'ab' * (n % 5)} {n}\t{'xy' * (n % 5)} {n}" for n in range(69)]
    write["general"] += [f"much too long {n}\tmuch too long {n}" for n in range(6)]
    write["general"] += [f"a {n}\taaaaaaaaaa {n}" for n in range(5)]
    for name, lines in write.items():
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text(RECIPE)
    return str(tmp_path / "mine.toml")


class TestReading:
    def test_the_first_corpus_alone_validates_and_tests(self, recipe, capsys):
        corpus = read_recipe(recipe).corpus
        assert isinstance(corpus, SeveralPairs)
        assert (corpus.splits, corpus.kind, corpus.language) == (("train", "validation", "test"), "text + text", None)
        train, validation, test = (corpus.read(split) for split in corpus.splits)
        assert train.parts == [(23, 2.5, None), (75, 0.5, None)]
        assert (len(train), len(validation), len(test)) == (98, 4, 3)
        of_domain = [*train.sources[:23], *validation.sources, *test.sources]
        assert sorted(of_domain) == sorted(f"wort {n}" for n in range(30))
        assert train.targets[23:26] == ["0", "xy 1", "xyxy 2"], "nothing is held out of the second corpus"
        said = " ".join(capsys.readouterr().err.split())
        assert "corpus.0, text: 23 pairs to train on, weight 2.5 corpus.1, text: 75 pairs to train on" in said

    def test_a_held_out_pair_that_another_corpus_has_is_told_once(self, recipe, tmp_path, caplog):
        with (tmp_path / "general.tsv").open("a") as file:
            file.writelines(f"wort {n}\tword {n}\n" for n in range(30))
        corpus = read_recipe(recipe).corpus
        for split in ("train", "validation", "test", "validation"):
            corpus.read(split)
        told = [message for message in caplog.messages if "are also in" in message]
        assert [message[:74] for message in told] == [
            "corpus: of the 4 pairs of 'validation', 4 are also in 'train' of corpus.1,",
            "corpus: of the 3 pairs of 'test', 3 are also in 'train' of corpus.1, and 3",
        ]

    def test_a_held_out_pair_whose_sides_are_swapped_in_another_corpus_is_told(self, recipe, tmp_path, caplog):
        """As where both directions are trained, each from a file of its own."""
        with (tmp_path / "general.tsv").open("a") as file:
            file.writelines(f"word {n}\twort {n}\n" for n in range(30))
        corpus = read_recipe(recipe).corpus
        for split in ("train", "test"):
            corpus.read(split)
        (told,) = [message for message in caplog.messages if "are also in" in message]
        assert told.startswith(
            "corpus: of the 3 pairs of 'test', 0 are also in 'train' of corpus.1, 3 with their sides swapped, and 0 "
        )

    def test_a_split_to_score_is_read_without_the_training_texts(self, recipe, tmp_path):
        (tmp_path / "general.tsv").unlink()
        assert len(read_recipe(recipe).corpus.read("test")) == 3

    def test_weights_that_make_an_epoch_too_long(self, recipe, monkeypatch):
        monkeypatch.setattr(several_pairs, "_MOST_SEEN", 94)
        read_recipe(recipe, ["corpus.1.weight=0.48"]).corpus.read("train")
        with pytest.raises(CorpusError, match=r"an epoch sees 95 pairs, and 94 at most are possible; use lower ones"):
            read_recipe(recipe).corpus.read("train")

    def test_it_is_read_back(self, recipe, tmp_path):
        parsed = read_recipe(recipe)
        (tmp_path / "recipe.json").write_text(parsed.model_dump_json())
        again = read_recipe(str(tmp_path / "recipe.json"))
        assert again == parsed
        assert [corpus.weight for corpus in again.corpus.parts] == [2.5, 0.5]


class TestRecipes:
    def test_values_of_one_are_set_by_its_number(self, recipe):
        changes = ["corpus.1.weight=4", "corpus.0.clean.duplicates=true", "corpus.1.header=true"]
        first, second = read_recipe(recipe, changes).corpus.parts
        assert (first.weight, first.clean.duplicates, first.header) == (2.5, True, False)
        assert (second.weight, second.clean.max_ratio, second.header) == (4, 3, True)
        replaced = read_recipe(recipe, ['corpus.1={kind="dates"}']).corpus
        assert replaced.kind == "text + dates"
        assert read_recipe(recipe, ['corpus={kind="dates"}']).corpus.kind == "dates"

    def test_a_star_sets_a_value_of_all(self, recipe):
        parts = read_recipe(recipe, ["corpus.*.weight=4", "corpus.*.clean.max_ratio=2"]).corpus.parts
        assert [(part.weight, part.clean.max_ratio) for part in parts] == [(4, 2), (4, 2)]

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ("corpus.weight=2", "--set 'corpus.weight=2': there are 2 tables; give the number of one, from 0: corpus."),
            ("corpus.2.weight=2", "--set 'corpus.2.weight=2': there are 2 tables; give the number of one, from 0"),
            ("corpus.1.weight=0", "'corpus.1.weight': input should be greater than 0 (received 0)"),
            ("corpus.1.weight='a'", "'corpus.1.weight': input should be a number (received 'a')"),
            ("corpus.1.wait=1", "unknown key 'corpus.1.wait' (did you mean 'weight'?); valid here: kind, "),
            ("corpus.1.clean.max_ratio=0", "'corpus.1.clean.max_ratio': input should be greater than or equal to 1"),
            (
                "corpus.1.kind='txt'",
                "'corpus.1.kind' must be one of dates, cmudict, multi30k, text, tfds (did you mean 'text'?)",
            ),
            ("corpus.1.name='x'", "'corpus.1.name' is a key of corpus.1.kind = 'tfds'; here corpus.1.kind = 'text'"),
            ("corpus.1.test='x'", "'corpus': the first corpus alone validates and tests; remove test of corpus.1, or"),
            ("corpus.1.epochs=0", "'corpus.1.epochs': input should be greater than 0 (received 0)"),
            ('corpus=[{kind="dates",epochs=1}]', "'corpus': one corpus at least must be trained on in all epochs; "),
            ('corpus={kind="dates",epochs=2}', "corpus.epochs is for one of several corpora, [[corpus]]; there is"),
            ("corpus.1=2", "'corpus.1': input should be a table"),
            ("corpus=[]", "'corpus': there must be one corpus or more"),
            (
                'corpus={kind="dates",weight=2}',
                "corpus.weight is for one of several corpora, [[corpus]]; there is only",
            ),
            (
                "model.family='gpt'",
                "'corpus': only a translator trains on several corpora, [[corpus]]; give one, [corp",
            ),
            (
                "model.family='classifier'",
                "'corpus': only a translator trains on several corpora, [[corpus]]; give one",
            ),
        ],
    )
    def test_what_is_wrong_is_one_sentence(self, recipe, change, told):
        with pytest.raises(RecipeError, match=re.escape(told)):
            read_recipe(recipe, [change])


def targets(found, steps):
    """The target texts of each of so many batches."""
    labels = [batch.numpy() for _, batch, _ in found.training_from(0).take(steps)]
    width = max(rows.shape[1] for rows in labels)
    ids = np.stack([np.pad(rows, [(0, 0), (0, width - rows.shape[1])]) for rows in labels])  # (steps, B, T)
    texts = found.task.target_tokenizer.detokenize(ids.reshape(-1, width)).numpy()
    return np.reshape([text.decode() for text in texts], ids.shape[:2])


def prepared(recipe, cache=None):
    parsed = read_recipe(recipe)
    if cache is not None:
        set_storage(parsed.corpus, cache, cache.parent)
    return translation.prepare(parsed)


class TestBatches:
    def test_each_pair_that_is_short_enough_is_seen_as_its_weight_says(self, recipe):
        """In two epochs of 23 * 2.5 and 69 * 0.5 pairs, rounded in each bucket, of which up to three fill no batch."""
        found = prepared(recipe)
        assert 2 * 4 * found.steps == pytest.approx(2 * (23 * 2.5 + 69 * 0.5), abs=2 * 2 * 4)
        seen = targets(found, 2 * found.steps).ravel().tolist()
        of_domain = [text for text in seen if "word" in text]
        assert not any("long" in text or "aaa" in text for text in seen)
        assert len(of_domain) / len(seen) == pytest.approx(57.5 / 92, abs=0.08)
        assert {seen.count(text) for text in set(of_domain)} <= {3, 4, 5, 6}
        assert {seen.count(text) for text in set(seen) - set(of_domain)} <= {1, 2}

    def test_a_corpus_is_seen_in_its_epochs_alone(self, recipe, capsys):
        found = translation.prepare(read_recipe(recipe, ["corpus.1.epochs=2"]))
        assert "75 pairs to train on, weight 0.5, in the first 2 epochs" in " ".join(capsys.readouterr().err.split())
        assert found.steps == prepared(recipe).steps
        of_domain = [np.mean(["word" in text for text in batch]) for batch in targets(found, 4 * found.steps)]
        assert np.mean(of_domain[: 2 * found.steps]) < 0.8
        assert set(of_domain[2 * found.steps :]) == {1.0}

    def test_a_stage_without_pairs_is_an_error(self, recipe, tmp_path):
        (tmp_path / "domain.tsv").write_text("a\tword by word by word\n" * 3 + "b\tx\nc\ty\n")
        changes = ["corpus.0.validation_pairs=1", "corpus.0.test_pairs=1", "corpus.1.epochs=2", "lengths.max_target=9"]
        with pytest.raises(RecipeError, match=r"^corpus: after epoch 2 no pairs are left to train on; raise `epochs`"):
            translation.prepare(read_recipe(recipe, changes))

    def test_the_same_from_memory_files_and_cache(self, recipe, tmp_path, monkeypatch, capsys):
        cache = tmp_path / "run" / "cache"
        found = []
        for limit in (10**9, 600, 600):  # the first corpus has 300 characters, the second one 900
            monkeypatch.setattr(ragged, "IN_MEMORY", limit)
            found.append(prepared(recipe, cache))
        assert len({json.dumps(dict(each.digests)) for each in found}) == 1
        assert len({(each.steps, each.tokens) for each in found}) == 1
        for one, *others in zip(*(each.training_from(3).take(9) for each in found), strict=True):
            for other in others:
                for ours, theirs in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
                    assert np.array_equal(ours, theirs)
        said = capsys.readouterr().err
        assert [said.count(f"{kind}: read from") for kind in ("texts", "ids")] == [1, 1]
        names = {re.sub("-[0-9a-f]{16}$", "", str(path.relative_to(cache))) for path in cache.glob("**/*-*/")}
        assert names == {"corpus-1", "corpus-1/texts", "ids", "vocabulary", "digest"}

    def test_another_text_of_a_small_corpus_is_another_key_and_another_weight_is_not(
        self, recipe, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(ragged, "IN_MEMORY", 600)

        def key(*changes):
            return read_recipe(recipe, changes).corpus.read("train").key

        keys = [key(), key("corpus.0.seed=3"), key("corpus.1.clean.max_ratio=4")]
        assert key("corpus.1.weight=9", "corpus.0.weight=1", "corpus.0.epochs=3") == keys[0]
        domain = tmp_path / "domain.tsv"
        domain.write_text(domain.read_text().replace("word 7", "word seven"))
        keys.append(key())
        assert len(set(keys)) == 4
        assert None not in keys


def test_a_corpus_of_its_own_keeps_its_splits(recipe, tmp_path):
    """Reading it among others does not change it."""
    corpus = read_recipe(recipe).corpus
    corpus.read("train")
    assert corpus.parts[1].splits == ("train", "validation", "test")
    assert corpus.parts[1] == FilePairs(train=tmp_path / "general.tsv", weight=0.5, clean={"max_ratio": 3.0})
