"""Fine-tuning: a training begins with the weights of another model, whatever the family, or says why it cannot."""

import re

import keras
import numpy as np
import pytest
from zoo_training import classification, language_modelling, masked_language_modelling, translation
from zoo_training.fitting.fit import fit
from zoo_training.schema.recipe import RecipeError, read_recipe

import zoo
from zoo.models import (
    GPT,
    Classifier,
    Encoder,
    MaskedLanguageModel,
    RNNEncoder,
    RNNSeq2Seq,
    SentenceEmbedder,
    Transformer,
)
from zoo.text import START, CharacterTokenizer, WordPieceTokenizer

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("eager")]

LETTERS = CharacterTokenizer("abcdefgh 0123456789-")
PIECES = WordPieceTokenizer.learn(["the quick brown fox jumps over the lazy dog"] * 3, 80)


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    """A folder with a saved task of each kind."""
    folder = tmp_path_factory.mktemp("starts")
    keras.utils.set_random_seed(3)
    size = LETTERS.size

    def encoder(**arguments):
        return Encoder(PIECES.size, units=8, num_heads=2, num_layers=2, max_length=16, **arguments)

    transformer = Transformer(size, size, units=8, num_heads=2, encoder_layers=2, decoder_layers=1, dropout=0.3)
    learned = Transformer(
        size, size, units=8, num_heads=2, encoder_layers=1, decoder_layers=1, positions="learned", max_length=20
    )
    tasks = {
        "learned": zoo.Translator(learned, LETTERS, LETTERS),
        "long": zoo.Translator(transformer, LETTERS, LETTERS, 300, 300),
        "transformer": zoo.Translator(transformer, LETTERS, LETTERS, 60, 23, 4, 1.0, length_normalization="mean"),
        "rnn": zoo.Translator(RNNSeq2Seq(size, size, units=8, attention=None), LETTERS, LETTERS),
        "gpt": zoo.TextGenerator(
            GPT(size, units=8, num_heads=2, num_layers=2, context_length=12), LETTERS, add_start=False, stride=5
        ),
        "gpt_with_start": zoo.TextGenerator(GPT(size, units=8, num_heads=2, num_layers=1, context_length=12), LETTERS),
        "classifier": zoo.TextClassifier(
            Classifier(encoder(), 2, pooling="first", hidden_units=6), PIECES, ["neg", "pos"], 14
        ),
        "rnn_classifier": zoo.TextClassifier(Classifier(RNNEncoder(PIECES.size, units=8), 2), PIECES, ["a", "b"], 14),
        "filler": zoo.MaskFiller(MaskedLanguageModel(encoder(dropout=0.2)), PIECES),
        "embedder": zoo.TextEmbedder(SentenceEmbedder(encoder(), pooling="max"), PIECES),
        "bert": zoo.MaskFiller(MaskedLanguageModel(encoder(num_segments=2)), PIECES),
        "several": zoo.TextClassifier(Classifier(encoder(), 2, multi_label=True), PIECES, ["neg", "pos"], 14),
        "reversed": zoo.TextClassifier(Classifier(encoder(), 2), PIECES, ["pos", "neg"], 14),
    }
    for name, task in tasks.items():
        task.save(folder / name)
    return folder


@pytest.fixture
def recipe_of(tmp_path, starts):
    (tmp_path / "labels.tsv").write_text("".join(f"dog {n}\tpos\nfox {n}\tneg\n" for n in range(40)))
    (tmp_path / "text.txt").write_text("abc 12-34\n" * 400)
    (tmp_path / "pairs.tsv").write_text("".join(f"abc {n}\tbad {n}\n" for n in range(100, 160)))
    files = {"classifier": ("labels", "labels.tsv")}
    files |= dict.fromkeys(["gpt", "masked_language_model"], ("text", "text.txt"))

    def read(family, start, **overrides):
        kind, file = files.get(
            family, ("text", "pairs.tsv" if family in ("transformer", "rnn_seq2seq") else "text.txt")
        )
        (tmp_path / "mine.toml").write_text(
            f'[corpus]\nkind = "{kind}"\ntrain = "{file}"\n'
            f'[model]\nfamily = "{family}"\nstart = "{starts / start}"\n[training]\nbatch_size = 8\n'
        )
        return read_recipe(str(tmp_path / "mine.toml"), [f"{key}={value}" for key, value in overrides.items()])

    return read


def weights(model):
    return [np.array(array) for array in model.get_weights()]


def assert_same(ours, theirs):
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("family", "start", "prepare"),
    [
        ("transformer", "transformer", translation.prepare),
        ("rnn_seq2seq", "rnn", translation.prepare),
        ("gpt", "gpt", language_modelling.prepare),
        ("masked_language_model", "filler", masked_language_modelling.prepare),
        ("classifier", "classifier", classification.prepare),
    ],
)
def test_the_same_kind_of_model_goes_on_with_all_its_weights_and_its_tokenizer(
    recipe_of, starts, family, start, prepare
):
    old = zoo.load(starts / start)
    prepared = prepare(recipe_of(family, start))
    assert_same(prepared.model, old.model)
    task = prepared.task
    assert type(task) is type(old)
    assert [each.get_config() for each in task.tokenizers] == [each.get_config() for each in old.tokenizers]
    assert prepared.digests["start"] == prepare(recipe_of(family, start)).digests["start"]


def test_a_generator_keeps_its_settings_and_may_be_trained_on_shorter_windows(recipe_of):
    prepared = language_modelling.prepare(recipe_of("gpt", "gpt", **{"model.context_length": 6}))
    task = prepared.task
    assert (task.add_start, task.stride, task.model.context_length) == (False, 5, 12)
    ((tokens, _, _),) = prepared.training_from(0).take(1)
    assert tokens.shape == (8, 6)


def test_no_start_token_is_trained_where_the_model_reads_none(recipe_of):
    def tokens_of(start):
        recipe = recipe_of("gpt", start)
        return [tokens.numpy() for tokens, _, _ in language_modelling.prepare(recipe).training_from(0).take(30)]

    assert not any((tokens == START).any() for tokens in tokens_of("gpt"))
    assert any((tokens == START).any() for tokens in tokens_of("gpt_with_start"))


@pytest.mark.parametrize(("start", "pooling"), [("filler", "mean"), ("embedder", "max"), ("rnn_classifier", "mean")])
def test_a_classifier_takes_the_encoder_of_any_model_and_a_new_head(recipe_of, starts, start, pooling):
    prepared = classification.prepare(recipe_of("classifier", start))
    assert_same(prepared.model.encoder, zoo.load(starts / start).encoder)
    assert (prepared.model.pooling, prepared.model.num_classes) == (pooling, 2)
    assert prepared.task.labels == ["neg", "pos"]


def test_the_same_labels_in_another_order_keep_the_head_and_its_order(recipe_of, starts):
    prepared = classification.prepare(recipe_of("classifier", "reversed"))
    assert_same(prepared.model, zoo.load(starts / "reversed").model)
    assert prepared.task.labels == ["pos", "neg"]
    inputs, labels, _ = next(iter(prepared.training_from(0)))
    texts = PIECES.detokenize(inputs["ids"]).numpy().tolist()
    assert [label == 0 for label in labels.numpy()] == [b"dog" in text for text in texts]


def test_a_bert_with_segments_goes_on_filling_masks(recipe_of, tmp_path):
    recipe = recipe_of("masked_language_model", "bert", **{"training.epochs": 1, "training.jit_compile": "false"})
    prepared = masked_language_modelling.prepare(recipe)
    inputs, _, _ = next(iter(prepared.training_from(0)))
    assert not inputs["segments"].numpy().any()
    fitted = fit(
        recipe.model_copy(update={"training": recipe.training.model_copy(update={"steps_per_epoch": 1})}),
        prepared,
        tmp_path,
    )
    scores = masked_language_modelling.score(fitted.task, recipe.corpus, "validation")
    assert scores["total"] > 0 and 0 < scores["loss"] < 10


def test_another_head_is_new(recipe_of, starts):
    prepared = classification.prepare(recipe_of("classifier", "classifier", **{"model.pooling": "mean"}))
    old = zoo.load(starts / "classifier").model
    assert_same(prepared.model.encoder, old.encoder)
    assert (prepared.model.pooling, prepared.model.hidden_layer) == ("mean", None)


def test_a_classifier_of_several_labels_goes_on_with_its_head(recipe_of, starts):
    prepared = classification.prepare(recipe_of("classifier", "several", **{"corpus.label_separator": '","'}))
    assert_same(prepared.model, zoo.load(starts / "several").model)
    assert prepared.model.multi_label


def test_the_head_is_new_if_the_start_gives_a_text_several_labels(recipe_of, starts):
    """Its logits are of independent classes, those of a recipe's classifier of one class out of all."""
    model, old = classification.prepare(recipe_of("classifier", "several")).model, zoo.load(starts / "several").model
    assert_same(model.encoder, old.encoder)
    assert not model.multi_label
    assert any((one != other).any() for one, other in zip(weights(model), weights(old), strict=True))


def test_a_masked_language_model_takes_the_encoder_of_an_embedder(recipe_of, starts):
    prepared = masked_language_modelling.prepare(recipe_of("masked_language_model", "embedder"))
    assert_same(prepared.model.encoder, zoo.load(starts / "embedder").encoder)


def test_a_translator_keeps_the_lengths_and_the_decoding_that_the_recipe_does_not_set(recipe_of, starts):
    old = zoo.load(starts / "transformer")

    def settings(**overrides):
        task = translation.prepare(recipe_of("transformer", "transformer", **overrides)).task
        return {name: getattr(task, name) for name in task.SETTINGS}

    kept = {name: getattr(old, name) for name in old.SETTINGS}
    assert (kept["max_target_length"], kept["beam_size"], kept["length_normalization"]) == (23, 4, "mean")
    assert settings() == kept
    changed = settings(**{"decoding.beam_size": 2, "lengths.max_source": 30})
    assert changed == {**kept, "beam_size": 2, "max_source_length": 30}


def test_pairs_are_trained_on_up_to_the_lengths_of_the_start(recipe_of, tmp_path, capsys):
    """And not up to 200 tokens, as without a start: the table of learned positions may end before, or after."""
    lines = [f"abc {n}\tbad {n}\n" for n in range(30)]
    (tmp_path / "long.tsv").write_text("".join([*lines, f"{'a' * 250}\tb\n", f"b\t{'a' * 21}\n"]))
    too_long = "train: 2 of 32 pairs have more than lengths.max_source=20 or lengths.max_target=20"
    for start, longest, told in (("learned", 20, [too_long]), ("long", 300, [])):
        files = {"corpus.train": "long.tsv", "corpus.validation": "pairs.tsv", "corpus.test_pairs": 0}
        prepared = translation.prepare(recipe_of("transformer", start, **files))
        lines = " ".join(capsys.readouterr().err.split())
        assert re.findall(r"train: [^:]*=\d+(?= tokens and are left out)", lines) == told
        assert prepared.task.max_source_length == longest


@pytest.mark.parametrize(("target", "told"), [("bad", []), ("бад", ["43% of the tokens of the targets"])])
def test_tokens_that_the_start_does_not_know_are_told(recipe_of, tmp_path, capsys, target, told):
    """Of the seven of a target with its end, three; the sources are known."""
    (tmp_path / "other.tsv").write_text("".join(f"abc {n}\t{target} {n}\n" for n in range(10, 99)))
    translation.prepare(recipe_of("transformer", "transformer", **{"corpus.train": "other.tsv"}))
    assert re.findall(r"warning: ([^:]*) are unknown to the tokenizer of model\.start", capsys.readouterr().err) == told


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("family", "start", "prepare", "known"),
    [
        ("classifier", "classifier", classification.prepare, "fox"),
        ("gpt", "gpt", language_modelling.prepare, "bad"),
        ("masked_language_model", "filler", masked_language_modelling.prepare, "fox"),
    ],
)
def test_texts_that_the_start_does_not_know_are_told(
    recipe_of, tmp_path, capsys, family, start, prepare, known, is_known
):
    word = f"{known if is_known else 'лиса'} "
    (tmp_path / "labels.tsv").write_text("".join(f"{word * n}\t{('neg', 'pos')[n % 2]}\n" for n in range(1, 41)))
    (tmp_path / "text.txt").write_text(word * 400)
    prepare(recipe_of(family, start))
    told = "of the tokens of the texts are unknown to the tokenizer of model.start" in capsys.readouterr().err
    assert told != is_known


def test_a_recipe_with_a_start_is_read_back_with_the_starts_lengths_and_decoding(recipe_of, tmp_path):
    recipe = recipe_of("transformer", "transformer", **{"decoding.beam_size": 2})
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    again = read_recipe(str(tmp_path / "recipe.json"))
    task = translation.prepare(again).task
    assert (task.max_source_length, task.max_target_length, task.beam_size, task.length_penalty) == (60, 23, 2, 1.0)


def test_rates_of_dropout_and_the_precision_may_differ(recipe_of, starts):
    changes = {"model.dropout": 0.45, "training.precision": "mixed_bfloat16", "training.jit_compile": "false"}
    prepared = translation.prepare(recipe_of("transformer", "transformer", **changes))
    assert prepared.model.dropout == 0.45
    assert prepared.model.compute_dtype == "bfloat16"
    assert_same(prepared.model, zoo.load(starts / "transformer").model)
    prepared = classification.prepare(recipe_of("classifier", "filler", **{"model.encoder.dropout": 0.35}))
    assert (prepared.model.encoder.dropout, prepared.model.dropout) == (0.35, 0.1)


def test_what_lora_has_learnt_is_in_the_kernels_of_the_copy(recipe_of, starts, tmp_path, randomize):
    old = zoo.load(starts / "gpt")
    old.model.get_layer("layer_1").feed_forward.output_projection.enable_lora(2, lora_alpha=16)
    randomize(old.model)
    old.save(tmp_path / "lora")
    model = language_modelling.prepare(recipe_of("gpt", tmp_path / "lora")).model
    assert not any("lora" in weight.path for weight in model.weights)
    tokens = np.array([[4, 5, 6, 7]])
    np.testing.assert_allclose(model(tokens), old.model(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "start", "prepare"),
    [
        ("masked_language_model", "filler", masked_language_modelling.prepare),
        ("classifier", "classifier", classification.prepare),
    ],
)
def test_what_lora_has_learnt_in_an_encoder_is_in_the_kernels_of_the_copy(
    recipe_of, starts, tmp_path, randomize, family, start, prepare
):
    old = zoo.load(starts / start)
    old.model.encoder.encoder[0].feed_forward.output_projection.enable_lora(2)
    randomize(old.model)
    old.save(tmp_path / "lora")
    model = prepare(recipe_of(family, tmp_path / "lora")).model
    assert not any("lora" in weight.path for weight in model.weights)
    inputs = {"ids": np.array([[4, 5, 6, 7]])}
    np.testing.assert_allclose(model(inputs), old.model(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("no_collection")
def test_a_quantised_start_is_refused(recipe_of, starts, tmp_path):
    old = zoo.load(starts / "gpt")
    old.model.quantize("int8")
    old.save(tmp_path / "quantised")
    with pytest.raises(RecipeError, match=r"model.start has quantised layers, which cannot be trained"):
        language_modelling.prepare(recipe_of("gpt", tmp_path / "quantised"))


def test_frozen_layers_of_the_start_are_trainable_in_the_copy(recipe_of, starts, tmp_path):
    old = zoo.load(starts / "gpt")
    old.model.decoder[0].trainable = False
    old.save(tmp_path / "frozen")
    prepared = language_modelling.prepare(recipe_of("gpt", tmp_path / "frozen"))
    assert len(prepared.model.trainable_variables) > len(zoo.load(tmp_path / "frozen").model.trainable_variables)


@pytest.mark.parametrize(
    ("family", "start", "overrides", "message"),
    [
        ("transformer", "transformer", {"model.units": 16}, "model.*units is 16, and the model of model.start has 8"),
        ("classifier", "filler", {"model.encoder.units": 16}, "model.encoder.units is 16, and .* has 8; leave the key"),
        (
            "classifier",
            "filler",
            {"model.encoder.kind": "rnn"},
            "model.start has a `Encoder`, and model.encoder.kind asks for a `RNNEncoder`",
        ),
        (
            "rnn_seq2seq",
            "transformer",
            {},
            "model.start has a `Transformer`, and model.family asks for a `RNNSeq2Seq`; its family is 'transformer'$",
        ),
        (
            "classifier",
            "rnn_classifier",
            {"model.encoder.num_heads": 2},
            "num_heads is no argument of the",
        ),
        (
            "transformer",
            "learned",
            {"lengths.max_source": 30},
            "^lengths: `max_source_length` must be at most 20, .* learned positions. Received: 30$",
        ),
        ("gpt", "transformer", {}, "model.start has a `Transformer`, and model.family asks for a `GPT`"),
        ("classifier", "gpt", {}, "is a TextGenerator, which has no text encoder"),
        ("masked_language_model", "rnn_classifier", {}, "is a TextClassifier without a text encoder or without a mask"),
        ("classifier", "none", {}, "model.start: .*none"),
        (
            "masked_language_model",
            "filler",
            {"training.window": 17},
            "training.window must be from 8 to 16, the tokens that .*; received 17$",
        ),
    ],
)
def test_a_start_that_does_not_fit_is_one_line(recipe_of, family, start, overrides, message):
    modules = {"classifier": classification, "masked_language_model": masked_language_modelling}
    modules |= {"gpt": language_modelling}
    with pytest.raises(RecipeError, match=message) as raised:
        modules.get(family, translation).prepare(recipe_of(family, start, **overrides))
    assert "\n" not in str(raised.value)


def test_a_tokenizer_beside_a_start_is_refused(recipe_of):
    with pytest.raises(RecipeError, match=r"model\.start brings its tokenizer with it; leave \[tokenizer\] out"):
        recipe_of("gpt", "gpt", **{"tokenizer.kind": "byte_pair"})


def test_what_is_kept_of_a_recipe_with_a_start_is_read_back_as_it_was(recipe_of, tmp_path):
    recipe = recipe_of("classifier", "filler", **{"model.encoder.dropout": 0.3, "model.pooling": "max"})
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    again = read_recipe(str(tmp_path / "recipe.json"))
    assert again == recipe
    assert again.model.model_fields_set == recipe.model.model_fields_set
    assert again.model.encoder.model_fields_set == {"kind", "dropout"}
    assert "units" not in recipe.model_dump()["model"]["encoder"]
