"""A classifier from its recipe to its export: trained, scored, exported and read back."""

import types

import numpy as np
import pytest
import tensorflow as tf
from zoo_training import classification, masked_language_modelling
from zoo_training.corpora.corpus import CorpusError
from zoo_training.fitting.loss import VotesPrediction
from zoo_training.run import Run, train
from zoo_training.schema.recipe import RecipeError, read_recipe

import zoo
from zoo.text import END, UNKNOWN

pytestmark = pytest.mark.usefixtures("eager_unless_long")

COLOURS, TONES = ["red", "green", "blue", "grey"], ["loud", "soft", "high", "low"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """TSV files in which a word of colour or of tone decides; of pairs, whether both are of one kind."""
    folder = tmp_path_factory.mktemp("labels")
    random = np.random.default_rng(0)

    def word():
        kind = int(random.integers(2))
        return kind, str(random.choice([COLOURS, TONES][kind]))

    lines, pairs = [], []
    for number in range(400):
        (one, first), (other, second) = word(), word()
        lines.append(f"number {number} is {first} here\t{['colour', 'tone'][one]}")
        pairs.append(f"{number} {first}\t{'same' if one == other else 'other'}\tso {second}")
    (folder / "labels.tsv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "pairs.tsv").write_text("\n".join(pairs), encoding="utf-8")
    (folder / "text.txt").write_text("\n".join(lines).replace("\t", " "), encoding="utf-8")
    return folder


SEVERAL = {"corpus.label_separator": '","'}
SMALL = """
[model.encoder]
units = 16
num_heads = 2
max_length = 24
[training]
learning_rate = 0.01
batch_size = 16
buckets = 1
jit_compile = false
"""


@pytest.fixture
def recipe_of(folder, tmp_path):
    def read(corpus='train = "labels.tsv"', text=SMALL, **overrides):
        head = f'[corpus]\nkind = "labels"\n{corpus}\n[tokenizer]\nkind = "wordpiece"\nsize = 200\n'
        (folder / "mine.toml").write_text(f'{head}[model]\nfamily = "classifier"\n{text}')
        return read_recipe(str(folder / "mine.toml"), [f"{key}={value}" for key, value in overrides.items()])

    return read


@pytest.mark.long
def test_a_run_learns_is_scored_and_exported_and_its_export_gives_the_same_classes(recipe_of, tmp_path):
    run, version = train("kinds", recipe_of(**{"training.epochs": 3}), tmp_path / "run", "zoo train", tmp_path / "m")
    assert run.metrics["accuracy"] == 1.0
    assert (run.metrics["training_texts"], run.metrics["classes"], run.metrics["total"]) == (360, 2, 20)
    texts = ["number 7 is soft here", "so blue", "nothing", ""]
    trained, exported = zoo.load(tmp_path / "run").classify(texts), zoo.load(version).classify(texts)
    assert [each.label for each in trained] == [each.label for each in exported]
    assert [each.label for each in trained[:2]] == ["tone", "colour"]
    np.testing.assert_allclose([e.probability for e in trained], [e.probability for e in exported], atol=1e-5)
    assert Run.load(tmp_path / "run").metrics == run.metrics
    card = (version / "README.md").read_text(encoding="utf-8")
    assert "**100.00%**" in card and "colour" in card


@pytest.mark.long
def test_several_labels_of_a_text_are_learnt_and_scored(recipe_of, folder, tmp_path, without_export):
    random = np.random.default_rng(1)
    lines = []
    for number in range(400):
        words = [str(random.choice(words)) for words in (COLOURS, TONES) if random.random() < 0.5]
        labels = ",".join(name for name, kind in (("tone", TONES), ("colour", COLOURS)) if set(kind) & set(words))
        lines.append(f"number {number} is {' '.join(words)} here\t{labels}")
    (folder / "several.tsv").write_text("\n".join(lines), encoding="utf-8")
    corpus = 'train = "several.tsv"\nlabel_separator = ","'
    run, version = train(
        "s", recipe_of(corpus, **{"training.epochs": 4}), tmp_path / "run", "zoo train", tmp_path / "m"
    )
    assert (run.metrics["metric"], run.metrics["subset_accuracy"], run.metrics["micro_f1"]) == ("subset_accuracy", 1, 1)
    texts = ["number 7 is soft here", "number 8 is blue loud here", "number 9 is here"]
    classes = zoo.load(tmp_path / "run").classify(texts)
    given = [{label for label, each in found.probabilities.items() if each > 0.5} for found in classes]
    assert given == [{"tone"}, {"colour", "tone"}, set()]
    card = (version / "README.md").read_text(encoding="utf-8")
    assert "| all labels right | **100.00%** of 20 test texts |" in card
    assert "It puts any text into one of its classes" not in card


@pytest.mark.long
def test_pairs_are_told_apart_by_their_segments(recipe_of, tmp_path):
    corpus = 'train = "pairs.tsv"\nsecond_column = 3'
    prepared = classification.prepare(recipe_of(corpus))
    assert prepared.model.encoder.num_segments == 2
    inputs, labels, weights = next(iter(prepared.training_from(0)))
    ids, segments = inputs["ids"].numpy(), inputs["segments"].numpy()
    assert labels.shape == weights.shape == (16,)
    assert set(np.unique(segments)) == {0, 1}
    assert (segments[ids == 0] == 0).all()
    assert prepared.task.pairs


def test_batches_from_any_step_on_are_those_of_the_whole_training(recipe_of):
    """So a stopped training goes on as in `test_resume.py`; across the end of an epoch, with tokens dropped anew."""
    prepared = classification.prepare(recipe_of(**{"training.token_dropout": 0.3}))
    begin = prepared.steps - 2
    whole = prepared.training_from(0).skip(begin).take(4)
    for one, other in zip(whole, prepared.training_from(begin).take(4), strict=True):
        for ours, theirs in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.long
def test_a_classifier_starts_from_a_masked_language_model_with_its_lower_layers_frozen(
    recipe_of, folder, tmp_path, without_export, eager
):
    (folder / "gaps.toml").write_text(
        f'[corpus]\nkind = "text"\ntrain = "text.txt"\n[tokenizer]\nsize = 200\n'
        f'[model]\nfamily = "masked_language_model"\n{SMALL.replace("buckets = 1", "epochs = 2")}'
    )
    run, _ = train("gaps", read_recipe(str(folder / "gaps.toml")), tmp_path / "gaps", "zoo train", tmp_path / "models")
    assert run.metrics["metric"] == "masked_loss" and run.metrics["loss"] < np.log(200)
    assert zoo.load(tmp_path / "gaps").fill(["number 7 is [MASK] here"])[0].candidates
    start = f'start = "{tmp_path / "gaps"}"\n'
    text = start + "[training]\nepochs = 3\nlearning_rate = 0.01\nfrozen_layers = 1\njit_compile = false\nbuckets = 1\n"
    (folder / "mine.toml").write_text(
        f'[corpus]\nkind = "labels"\ntrain = "labels.tsv"\n[model]\nfamily = "classifier"\n{text}'
    )
    run, version = train(
        "mine", read_recipe(str(folder / "mine.toml")), tmp_path / "mine", "zoo train", tmp_path / "models"
    )
    card = version / "README.md"
    old, new = zoo.load(tmp_path / "gaps").encoder, run.task.encoder
    for layer, same in (("token_embedding", True), ("layer_1", True), ("layer_2", False)):
        of_both = zip(old.get_layer(layer).get_weights(), new.get_layer(layer).get_weights(), strict=True)
        assert all(np.array_equal(one, other) for one, other in of_both) is same
    assert all(layer.trainable for layer in zoo.load(tmp_path / "mine").encoder.layers)
    assert "| fine-tuned from | `gaps` |" in card.read_text(encoding="utf-8")


def test_class_weights_count_in_the_loss(recipe_of):
    recipe = recipe_of(**{"training.class_weights": "{tone = 3.0}"})
    prepared = classification.prepare(recipe)
    for _, labels, weights in prepared.training_from(0).take(3):
        assert weights.numpy().tolist() == [[1.0, 3.0][label] for label in labels.numpy()]
    for _, _, weights in prepared.validation.take(1):
        assert set(weights.numpy()) <= {0.0, 1.0}


@pytest.mark.parametrize(("kind", "dropped"), [("wordpiece", "mask"), ("byte_pair", "unknown")])
def test_dropped_tokens_are_masks_if_the_tokenizer_has_one(recipe_of, kind, dropped):
    prepared = classification.prepare(
        recipe_of(**{"training.token_dropout": 0.5, "tokenizer.kind": f'"{kind}"', "tokenizer.size": 300})
    )
    expected = UNKNOWN if dropped == "unknown" else prepared.task.tokenizer.mask_id
    ids = next(iter(prepared.training_from(0)))[0]["ids"].numpy()
    words = ids[ids > END] if dropped == "mask" else ids[(ids > END) | (ids == UNKNOWN)]
    assert (words == expected).mean() == pytest.approx(0.5, abs=0.15)


def test_tokens_that_vote_are_trained_by_their_own_losses(recipe_of):
    text = 'pooling = "votes"\n[model.encoder]\nkind = "ngrams"\nunits = 3\nlongest = 2\nbuckets = 64\n'
    prepared = classification.prepare(recipe_of(text=text))
    assert type(prepared.objective) is VotesPrediction
    assert (prepared.model.encoder.longest, prepared.model.encoder.buckets) == (2, 64)


def test_votes_of_a_model_to_start_from_do_not_fit_several_labels(recipe_of, folder, tmp_path):
    text = 'pooling = "votes"\n[model.encoder]\nkind = "ngrams"\nunits = 3\nbuckets = 64\n'
    classification.prepare(recipe_of(text=text)).task.save(tmp_path / "old" / "classifier")
    (folder / "several.tsv").write_text("a\tx,y\nb\ty\nc\tx\n")
    corpus = '[corpus]\nkind = "labels"\ntrain = "several.tsv"\nvalidation = "several.tsv"\ntest_texts = 0\n'
    start = f'label_separator = ","\n[model]\nfamily = "classifier"\nstart = "{tmp_path / "old"}"\n'
    (folder / "mine.toml").write_text(corpus + start)
    with pytest.raises(RecipeError, match=r"^model.pooling: 'votes' is for texts with one label, and"):
        classification.prepare(read_recipe(str(folder / "mine.toml")))
    model = classification.prepare(read_recipe(str(folder / "mine.toml"), ["model.pooling=mean"])).model
    assert (model.pooling, model.multi_label) == ("mean", True)


def test_balanced_weights_make_all_classes_count_alike(recipe_of, folder):
    (folder / "uneven.tsv").write_text(
        "".join(f"text {n}\t{'a' if n < 90 else 'b' if n < 96 else 'c'}\n" for n in range(99))
    )
    corpus = 'train = "uneven.tsv"\nvalidation = "uneven.tsv"\ntest_texts = 0'
    prepared = classification.prepare(
        recipe_of(corpus, **{"training.class_weights": "balanced", "training.batch_size": 99})
    )
    _, labels, weights = next(iter(prepared.training_from(0)))
    sums = [weights.numpy()[labels.numpy() == label].sum() for label in range(3)]
    np.testing.assert_allclose(sums, [33, 33, 33], rtol=1e-5)


@pytest.mark.parametrize(
    ("train_text", "validation_text", "overrides", "error", "message"),
    [
        ("a\tx\nb\ty\n", "c\tz\n", {}, CorpusError, "Split 'validation': text 1 has the label 'z', which no training"),
        (
            "a\tx\nb\ty\n",
            "c\tx\n",
            {"corpus.test": '"w.tsv"'},
            CorpusError,
            "Split 'test': .* 'w', .* has; the nearest label is '[xy]'. Leave such",
        ),
        ("a\t,\nb\t\n", "c\tx\n", SEVERAL, CorpusError, "No training text has a label; a classifier needs two"),
        ("a\tx,y\nb\t\n", "c\t\nd\ty,z\n", SEVERAL, CorpusError, "Split 'validation': text 2 has the label 'z'"),
        (
            *("a\tx,y\nb\ty\n", "c\tx\n", {**SEVERAL, "training.class_weights": "balanced"}, RecipeError),
            "^training: class_weights is for texts with one label; the corpus has a label_separator$",
        ),
        (
            *("a\tx,y\nb\ty\n", "c\tx\n", {**SEVERAL, "model.pooling": "votes"}, RecipeError),
            "^model.pooling: 'votes' is for texts with one label, and the corpus has a label_separator$",
        ),
        ("a\tx\nb\tx\n", "c\tx\n", {}, CorpusError, "The training texts have one label, 'x'; a classifier needs two"),
        ("a\tx\nb\ty\n", "c\tX\n", {}, CorpusError, "label 'X', which no training text has; the nearest label is 'x'"),
        (
            *("a\tred\nb\tyellow\n", "c\tred\n", {"training.class_weights": "{yelow = 2.0}"}, RecipeError),
            "^training: class_weights names 'yelow', which no training text has as its label; the nearest .* 'yellow'$",
        ),
        (
            *("a\tx\nb\ty\n", "c\tx\n", {"training.class_weights": '{"" = 2.0}'}, RecipeError),
            "^training: class_weights names '', which no training text has",
        ),
        (
            *("a\tx\nb\ty\n", "c\tx\n", {"training.class_weights": '{x = 2.0, " x" = 3.0}'}, RecipeError),
            "^training: class_weights names 'x' more than once",
        ),
        (
            *("a\tx\nb\ty\n", "c\tx\n", {"training.class_weights": "{x = 0.0}"}, RecipeError),
            "'training.class_weights': the weight of 'x' must be a number above 0, received 0.0$",
        ),
        (
            *("a\tx\nb\ty\n", "c\tx\n", {"training.class_weights": "balance"}, RecipeError),
            """'training.class_weights': must be "balanced" or a table of labels and .* [(]received 'balance'[)]$""",
        ),
        (
            *("a\tx\nb\ty\n", "c\tx\n", {"lengths.max_text": 99}, RecipeError),
            "^lengths.max_text must be from 5 to 24, the tokens that the encoder has .*; received 99$",
        ),
        (
            *("a\tx\nb\ty\n", "c\tx\n", {"model.encoder.max_length": 4}, RecipeError),
            "^the encoder has learned positions for 4 tokens, and a text needs room for 5; set model",
        ),
    ],
)
def test_texts_and_recipes_that_do_not_fit(recipe_of, folder, train_text, validation_text, overrides, error, message):
    (folder / "t.tsv").write_text(train_text)
    (folder / "v.tsv").write_text(validation_text)
    (folder / "w.tsv").write_text("e\tx\nf\tw\n")
    corpus = 'train = "t.tsv"\nvalidation = "v.tsv"' + ("" if "corpus.test" in overrides else "\ntest_texts = 0")
    with pytest.raises(error, match=message):
        classification.prepare(recipe_of(corpus, **overrides))


def test_pairs_are_not_split_into_other_pieces_each_time(recipe_of):
    changes = {"tokenizer.kind": "byte_pair", "tokenizer.size": 300, "tokenizer.dropout": 0.1}
    with pytest.raises(RecipeError, match=r"^tokenizer: dropout is for single texts, not for pairs$"):
        classification.prepare(recipe_of('train = "pairs.tsv"\nsecond_column = 3', **changes))


@pytest.mark.parametrize(
    ("validation", "overrides", "error", "message"),
    [
        # Windows of 12 tokens have 10 of the text; two of them and a token are needed.
        ("w " * 20, {}, CorpusError, r"^Split 'validation' has 20 tokens, too few for windows of 12 .* it takes 21 or"),
        ("w " * 21, {"training.window": 13}, CorpusError, r"has 21 tokens, too few for windows of 13 .* takes 23 or"),
        (
            "w " * 21,
            {"model.encoder.max_length": 7},
            RecipeError,
            "^the encoder has .* for 7 tokens, .* room for 8;",
        ),
        ("w " * 21, {"training.window": 25}, RecipeError, "^training.window must be from 8 to 24, .*; received 25$"),
    ],
)
def test_texts_and_windows_that_do_not_fit_a_masked_language_model(folder, validation, overrides, error, message):
    (folder / "short.txt").write_text(validation)
    (folder / "gaps.toml").write_text(
        '[corpus]\nkind = "text"\ntrain = "text.txt"\nvalidation = "short.txt"\n[tokenizer]\nsize = 200\n'
        '[model]\nfamily = "masked_language_model"\n'
        + SMALL.replace("buckets = 1", "" if "training.window" in overrides else "window = 12")
    )
    recipe = read_recipe(str(folder / "gaps.toml"), [f"{key}={value}" for key, value in overrides.items()])
    with pytest.raises(error, match=message):
        masked_language_modelling.prepare(recipe)


def test_r_drop_reaches_the_objectives_and_digests_are_of_the_splits(recipe_of, folder):
    recipe = recipe_of(**{"training.r_drop": 0.5})
    prepared = classification.prepare(recipe)
    assert prepared.objective.r_drop == 0.5
    for split in ("train", "validation"):
        assert classification.digest(prepared.task, recipe.corpus, split) == prepared.digests[split]
    (folder / "gaps.toml").write_text(
        '[corpus]\nkind = "text"\ntrain = "text.txt"\nvalidation = "text.txt"\n[tokenizer]\nsize = 200\n'
        '[model]\nfamily = "masked_language_model"\n' + SMALL.replace("buckets = 1", "window = 12")
    )
    recipe = read_recipe(str(folder / "gaps.toml"), ["training.r_drop=0.5"])
    prepared = masked_language_modelling.prepare(recipe)
    assert prepared.objective.r_drop == 0.5
    for split in ("train", "validation"):
        assert masked_language_modelling.digest(prepared.task, recipe.corpus, split) == prepared.digests[split]


@pytest.mark.parametrize(("budget", "least", "size"), [(40, 5, 5), (40, 2, 4), (40, 1, 4), (1000, 5, 28), (1, 99, 28)])
def test_a_batch_of_validation_has_windows_for_each_of_several_workers(monkeypatch, budget, least, size):
    """The text has room for 28 windows of 10 tokens; a few may be left out."""
    monkeypatch.setattr(masked_language_modelling, "BATCH_TOKENS", budget)
    model = types.SimpleNamespace(input={})
    filler = types.SimpleNamespace(max_length=10, tokenizer=None, model=model)
    windows = masked_language_modelling._scoring_windows(np.full(8 * 29 + 1, 9), filler, 0.15, "validation", least)
    assert (windows.batch_size, windows.steps) == (size, 28 // size)


def test_other_models_are_not_scored_as_classifiers(recipe_of):
    with pytest.raises(ValueError, match="only a classifier can be scored on labelled texts"):
        classification.score(object(), recipe_of().corpus, "train")
    pairs = recipe_of('train = "pairs.tsv"\nsecond_column = 3').corpus
    with pytest.raises(ValueError, match="reads single texts, and the corpus gives pairs of texts; set or leave out"):
        classification.score(classification.prepare(recipe_of()).task, pairs, "train")
    with pytest.raises(ValueError, match="only the run of a masked language model can be scored"):
        masked_language_modelling.score(object(), None, "train")
