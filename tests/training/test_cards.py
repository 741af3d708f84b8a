"""The model card of an exported model."""

import re
import types

import keras
import pytest
from zoo_training.cards import classifier_card, generator_card, scores_of_classifier, translator_card
from zoo_training.schema.recipe import read_recipe
from zoo_training.schema.translator_tables import TranslatorRecipe

import zoo
from zoo import TextClassifier, TextGenerator, Translator
from zoo.models import GPT, Classifier, Encoder, RNNEncoder, RNNSeq2Seq, Transformer
from zoo.text import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer

pytestmark = pytest.mark.usefixtures("eager_unless_long")

METRICS = {
    "exact_match": 0.98765,
    "total": 12345,
    "split": "test",
    "parameters": 1234567,
    "training_pairs": 130000,
    "training_seconds": 98.6,
    "command": "zoo train dates",
    "tensorflow": "2.21.0",
    "keras": "3.15.0",
    "by_group": {},
}
BLEU = {
    "metric": "bleu",
    "bleu": {"score": 38.904, "low": 37.54, "high": 40.26, "signature": "nrefs:1|tok:13a"},
    "chrf": {"score": 63.2, "low": 62.0, "high": 64.0, "signature": "nrefs:1|nc:6"},
    "exact_match": 0.0821,
}
STYLE = {"score": 41.0249, "low": 39.61, "high": 42.4, "signature": "nrefs:1|tok:none"}


@pytest.fixture(scope="module")
def translators():
    characters, letters = CharacterTokenizer("abcdefg"), CharacterTokenizer("xyz")
    small = dict(encoder_layers=1, decoder_layers=1)
    return {
        "additive": Translator(RNNSeq2Seq(11, 7, units=4), characters, letters, 90, 13),
        "none": Translator(RNNSeq2Seq(11, 7, attention=None, units=4), characters, letters),
        "heads": Translator(Transformer(11, 11, 4, 2, 4, **small), characters, characters, beam_size=3),
    }


@pytest.fixture(scope="module")
def write(translators):
    def write(kind="additive", name="dates", metrics=(), recipe=None, **changes):
        recipe = recipe or read_recipe("dates", [f"{key}={value}" for key, value in changes.items()])
        return translator_card(name, recipe, translators[kind], {**METRICS, **dict(metrics)})

    return write


def signatures_of(text):
    return re.findall(r"^\| `(\w+)` \| `", text, re.MULTILINE)


def test_says_what_it_is_what_it_learnt_from_and_how_good_it_is(write):
    text = write()
    assert text.startswith("# dates\n\nDates in 60 locales, in words or in digits with the day first, to ISO 8601: ")
    for row in (
        "| model | `RNNSeq2Seq`, 1,234,567 parameters |",
        "| attention | additive |",
        "| decoding | greedy |",
        "| corpus | `dates`, 130,000 training pairs |",
        "| exact match | **98.77%** of 12,345 test pairs |",
        "| training | 99 s |",
        "| command | `zoo train dates` |",
        "| made with | TensorFlow 2.21.0, Keras 3.15.0 |",
        "- A source longer than 90 tokens is cut off there. A result has at most 13 tokens. An empty text gives an"
        " empty text.",
    ):
        assert f"\n{row}\n" in text
    assert "It knows the 7 characters of its training sources" in text
    assert " groups" not in text and "research" not in text and "| to serve |" not in text


def test_a_bar_makes_no_further_column(write):
    text = write(metrics={"command": "zoo train dates --set 'description=a|b'"})
    assert "\n| command | `zoo train dates --set 'description=a\\|b'` |\n" in text


def test_what_a_server_needs_if_it_was_measured_and_why_the_weights_are_not_packed(write):
    start_up = dict(size=3_040_000, load_seconds=0.31, first_seconds=0.62, later_seconds=0.0024, cores=2)
    text = write(metrics={"start_up": start_up, "unpacked": "RNNSeq2Seq has no packed form"})
    loaded = "| to serve | 3.0 MB; loaded in 0.3 s, the first text, of at most 16 tokens, in 0.6 s, later ones in 2.4 "
    assert loaded + "ms, on 2 cores |\n" in text
    assert "\n| weights | as in training, not packed for a server: RNNSeq2Seq has no packed form |\n" in text
    assert "| weights |" not in write()


def test_sentences_have_bleu_in_bold_and_how_it_was_computed(write):
    text = write(metrics={**BLEU, "bleu_published_style": STYLE})
    rows = (
        "| BLEU | **38.90 [37.5, 40.3]** of 12,345 test pairs |",
        "| BLEU, published style | 41.02 [39.6, 42.4] |",
        "| chrF | 63.20 [62.0, 64.0] |",
        "| exact match | 8.21% |",
    )
    assert "\n".join(["", *rows, ""]) in text
    assert "BLEU: `nrefs:1|tok:13a`; chrF: `nrefs:1|nc:6`. Published style: " in text
    assert "as for many published figures: `nrefs:1|tok:none`.\n\n## Use" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.count("|") == 3 for line in table), "a signature's bars would be columns"
    unknown_language = write(metrics=BLEU)
    assert "test pairs |\n| chrF |" in unknown_language and "ublished style" not in unknown_language


def test_a_failed_scoring_and_a_restricted_corpus_are_said(write):
    recipe = TranslatorRecipe.model_validate({"corpus": {"kind": "multi30k"}})
    text = write(recipe=recipe, metrics={"not_scored": "OSError: disk full"})
    assert "\n| scores | none: the scoring failed, see `metrics.json` |\n" in text and "exact match" not in text
    assert "\n- The texts of Multi30k are for research and education only.\n" in text


def test_pieces_of_words():
    pieces = BytePairTokenizer.learn(["low lower lowest"] * 2, size=268)
    translator = Translator(RNNSeq2Seq(pieces.size, 7, units=4), pieces, CharacterTokenizer("xyz"))
    text = translator_card("dates", read_recipe("dates"), translator, METRICS)
    assert f"- It reads texts as {pieces.size - 4:,} subwords, which can spell any text. It answers" in text
    assert "characters of its training" not in text


@pytest.mark.parametrize(
    ("description", "begins"),
    [("words.", "# dates\n\nWords.\n\n| | |"), ("", "# dates\n\n| | |"), ("É a", "# dates\n\nÉ a.\n\n| | |")],
)
def test_the_description_is_a_sentence_if_there_is_one(write, description, begins):
    assert write(description=description).startswith(begins)


@pytest.mark.parametrize(
    ("kind", "attention", "signatures"),
    [
        ("additive", "additive", {"attention"}),
        ("none", "none", set()),
        ("heads", "2 heads", {"attention", "attention_by_head"}),
    ],
)
def test_attention_and_exactly_the_signatures_that_are_exported(write, translators, kind, attention, signatures):
    text = write(kind)
    assert f"\n| attention | {attention} |\n" in text
    assert set(signatures_of(write(kind, metrics={"explore": True}))) == set(translators[kind].signatures())
    assert set(signatures_of(text)) == {"serving_default", "generate", "score"} | signatures
    assert ("| decoding | beam of 3, length penalty" in text) == (kind == "heads")


def test_says_how_it_is_served(write):
    server, request = re.search(r"```sh\n(.*)\n(.*)\n```", write(name="my d\u00e4tes")).groups()
    assert server.startswith("tensorflow_model_server ") and " --model_name='my d\u00e4tes' " in server
    assert request == """curl localhost:8501/v1/models/my%20d%C3%A4tes:predict -d '{"instances": ["..."]}'"""


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        (
            dict(a=0.5, b=1.0, c=0.25, d=0.999, e=0.6, f=0.7, g=0.8),
            "7 groups; `metrics.json` has the score of each. Weakest: c 25.0%, a 50.0%, e 60.0%, f 70.0%, g 80.0%.",
        ),
        (dict(a=1.0, b=1.0), "2 groups; `metrics.json` has the score of each. None has a mistake."),
    ],
)
def test_the_weakest_groups_first_and_no_perfect_ones(write, rates, told):
    groups = {group: {"exact_match": rate} for group, rate in rates.items()}
    assert f"\n- {told}\n" in write(metrics={"by_group": groups})


def test_a_language_model():
    tokenizer = CharacterTokenizer("abc")
    model = GPT(tokenizer.size, units=4, num_heads=2, num_layers=3, context_length=8, positions="rotary")
    generator = TextGenerator(model, tokenizer)
    loss = {"metric": "loss", "loss": 1.5, "perplexity": 4.48169, "bits_per_byte": 2.164, "training_tokens": 9876}
    metrics = {**METRICS, **loss, "split": "validation", "unknown": 0}
    text = generator_card("tiny", read_recipe("gpt-pydoc"), generator, metrics)
    rows = (
        "| attention | 3 layers of 2 heads, width 4, rotary positions |",
        "| context | 8 tokens |",
        "| corpus | `pydoc`, 9,876 training tokens |",
        "| loss | **1.5000** of 12,345 validation tokens |",
        "| perplexity | 4.4817 |",
        "| bits per byte | 2.1640 |",
    )
    assert "\n".join(["", *rows, ""]) in text
    assert "## Sample\n\nFrom an empty prompt, at temperature 0.8, seed 0:\n\n    " in text
    assert set(signatures_of(text)) == set(generator.signatures()) - set(generator.EXPLORE)
    assert "It knows the 3 characters of its training text" in text and "reads at most 8 tokens at once" in text
    assert "vocabulary lacks" not in text
    lacking = generator_card("tiny", read_recipe("gpt-pydoc"), generator, {**metrics, "unknown": 2345})
    assert " in nats. The vocabulary lacks 2,345 of these tokens. They count as one token, so the scores are" in lacking


class Mine(zoo.models.Family):
    """The model of `docs/adding_a_family.md`: it has no attention, and predicts from the last token only."""

    def __init__(self, vocabulary_size, context_length):
        self.embedding = keras.layers.Embedding(vocabulary_size, 4)
        self.output_layer = keras.layers.Dense(vocabulary_size, dtype="float32")
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        hidden = self.embedding(tokens)
        super().__init__(tokens, self.output_layer(hidden), hidden)
        self.vocabulary_size, self.context_length = vocabulary_size, context_length

    def begin(self, source):
        return (), ()

    def step(self, tokens, position, memory, cache):
        return self.output_layer(self.embedding(tokens)), cache, None

    def output_weights(self):
        return keras.ops.transpose(self.output_layer.kernel), self.output_layer.bias


def test_a_family_of_ones_own():
    tokenizer = CharacterTokenizer("abc")
    generator = TextGenerator(Mine(tokenizer.size, context_length=8), tokenizer)
    loss = {"metric": "loss", "loss": 1.5, "perplexity": 4.48169, "bits_per_byte": 2.164, "training_tokens": 9876}
    text = generator_card("mine", read_recipe("gpt-pydoc"), generator, {**METRICS, **loss, "split": "validation"})
    assert "| model | `Mine`, " in text and "| attention |" not in text


ACCURACY = {
    "metric": "accuracy",
    "accuracy": 0.875,
    "accuracy_low": 0.80161,
    "accuracy_high": 0.92391,
    "macro_f1": 0.6,
    "calibration_error": 0.0321,
    "training_texts": 54321,
    "by_class": {
        "nb": {"precision": 0.9, "recall": 0.7, "f1": 0.7875, "total": 40},
        "sv": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "total": 70},
        "da": {"precision": 0.5, "recall": 0.6, "f1": 0.5455, "total": 10},
        "is": {"precision": 0.0, "recall": None, "f1": 0.0, "total": 0},
    },
    "by_group": {"short": {"accuracy": 0.75, "right": 30, "total": 40}, "long": {"accuracy": 1.0}},
    "confusion": {
        "labels": ["nb", "sv", "da", "is"],
        "counts": [[28, 0, 9, 3], [0, 70, 0, 0], [3, 1, 6, 0], [0, 0, 0, 0]],
    },
}


def test_a_classifier():
    tokenizer = CharacterTokenizer("abc")
    labels = ["nb", "sv", "da", "is", "fo"]
    classifier = TextClassifier(Classifier(RNNEncoder(tokenizer.size, units=4), 5), tokenizer, labels, max_length=33)
    recipe = types.SimpleNamespace(corpus=types.SimpleNamespace(kind="files", licence="For research only."))
    recipe.description, recipe.model = "which language a text is in", types.SimpleNamespace(start=None)
    text = classifier_card("languages", recipe, classifier, {**METRICS, **ACCURACY})
    assert text.startswith("# languages\n\nWhich language a text is in.\n")
    rows = (
        "| encoder | `RNNEncoder` |",
        "| classes | 5: `nb`, `sv`, `da`, `is`, `fo` |",
        "| corpus | `files`, 54,321 training texts |",
        "| accuracy | **87.50%** of 12,345 test texts |",
        "| macro F1 | 60.00% |",
        "| calibration error | 3.21% |",
    )
    assert "\n".join(["", *rows, ""]) in text
    for line in (
        "Weakest classes by F1: `da` 54.5% of 10 texts, `nb` 78.8% of 40 texts.",
        "Most frequent mistakes: `nb` given as `da`: 9 of 40; `da` given as `nb`: 3 of 10; `nb` given as `is`: 3 of 40;"
        " `da` given as `sv`: 1 of 10.",
        "- A text of more than 33 tokens is cut off there.",
        "- For research only.",
        "- 2 groups; `metrics.json` has the score of each. Weakest: short 75.0%.",
    ):
        assert f"\n{line}\n" in text
    assert "is 80.16% to 92.39%. Macro F1 is the mean over the 4 classes that occur" in text
    assert set(signatures_of(text)) == set(classifier.signatures())


def test_a_classifier_of_pairs_shows_requests_with_both_texts():
    tokenizer = WordPieceTokenizer.learn(["abc"] * 2, 20)
    model = Classifier(Encoder(tokenizer.size, units=4, num_heads=2, num_layers=1, num_segments=2), 2)
    classifier = TextClassifier(model, tokenizer, ["yes", "no"], pairs=True)
    recipe = types.SimpleNamespace(corpus=types.SimpleNamespace(kind="labels", licence=None), description="")
    recipe.model = types.SimpleNamespace(start=None)
    text = classifier_card("pairs", recipe, classifier, {**METRICS, **ACCURACY})
    assert """(text=tf.constant(["..."]), text_pair=tf.constant(["..."]))""" in text
    assert """-d '{"instances": [{"text": "...", "text_pair": "..."}]}'""" in text
    assert "| `classify` | `text`, `text_pair` -> `labels`" in text
    assert "which can spell any text" not in text


def test_a_classifier_that_was_not_scored_or_makes_no_mistake():
    assert scores_of_classifier({"not_scored": "OSError: disk full"}) == []
    perfect = {"by_class": {"sv": ACCURACY["by_class"]["sv"]}, "confusion": {"labels": ["sv"], "counts": [[70]]}}
    assert len(scores_of_classifier({**ACCURACY, **perfect})) == 1


@pytest.mark.parametrize(("key", "told"), [("", ""), (",epochs=3", "; corpus.1 in the first 3 epochs")])
def test_several_corpora_have_their_weights_and_epochs(write, key, told):
    corpora = f'corpus=[{{kind="dates",weight=2.5}},{{kind="text",train="a.tsv"{key}}}]'
    assert f"| corpus | `dates + text`, 130,000 training pairs; weights 2.5, 1{told} |" in write(
        recipe=read_recipe("dates", [corpora])
    )


def test_a_student_names_its_teachers(write):
    corpora = 'corpus=[{kind="dates"},{kind="text",train="a.tsv",teacher="runs/large"}]'
    told = "the targets to train on are its translations, not those of people |"
    assert f"| teacher | `runs/big`: {told}" in write(recipe=read_recipe("dates", ["corpus.teacher=runs/big"]))
    assert f"| teacher | `runs/large` for corpus.1: {told}" in write(recipe=read_recipe("dates", [corpora]))
    assert "| teacher |" not in write()
