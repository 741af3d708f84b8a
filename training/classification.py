"""Classifiers: from a recipe and its texts to a model and batches to fit it on, and from a model to its scores."""

from __future__ import annotations

import collections
import difflib
import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.models import Classifier, Encoder, NgramEncoder, RNNEncoder
from zoo.tasks import CLASSIFIER_FOLDER as SAVED_IN
from zoo.tasks.encoder_tasks import TextClassifier
from zoo.tasks.protocol import Classifies
from zoo.text import UNKNOWN, Tokenizer

from .batches.labelled_batches import LabelledBatches, encode
from .batches.pair_batches import Sampler
from .cards import classifier_card as card
from .corpora.corpus import CorpusError, normalized
from .corpora.labelled import LabelledCorpus, LabelledTexts
from .fine_tuning import clone_pretrained, copy_weights, load_pretrained, position_limit, say_unknown
from .fitting.fit import Prepared
from .fitting.loss import ClassesPrediction, ClassPrediction, VotesPrediction
from .learn_tokenizer import learn_tokenizer
from .preparing import digests, new_model
from .progress import progress_bar, say
from .schema.classifier_tables import ClassifierRecipe
from .schema.recipe import RecipeError, blamed_on
from .scoring.classification import evaluate
from .scoring.label_sets import evaluate as evaluate_sets

__all__ = ["SAVED_IN", "card", "prepare", "score"]

_ENCODERS: dict[str, Any] = {"transformer": Encoder, "rnn": RNNEncoder, "ngrams": NgramEncoder}
_SHORTEST = 5  # tokens: the start, and two texts of one token with an end each


def prepare(recipe: ClassifierRecipe) -> Prepared:
    """Reads the corpus, learns the tokenizer, builds the model and makes batches.

    The classes are the labels of the training texts, in the order of their names. If the corpus gives a text several
    labels, the model learns a probability for each class on its own.

    Raises:
        CorpusError: the corpus cannot be read, lacks a training or validation split, or has a label in another split
            that no training text has.
        RecipeError: the recipe does not fit the texts, for example if it weighs a class that does not exist.
    """
    train, validation = recipe.corpus.read("train"), recipe.corpus.read("validation")
    labels = _labels(train)
    for split in recipe.corpus.splits:  # also the test: its labels would otherwise be found wrong after the training
        _expect_known(recipe.corpus.read(split).label_sets, labels, split)
    say(f"{len(train):,} texts in {len(labels)} classes to train on, {len(validation):,} to validate with")
    pairs, several, config = train.seconds is not None, train.separator is not None, recipe.training
    _check_pooling(recipe.model.pooling, several)
    if recipe.model.start is None:
        model, tokenizer = new_model(
            lambda: learn_tokenizer(recipe.tokenizer, itertools.chain(train.texts, train.seconds or ()), nfc=True),
            lambda tokenizer: build_model(recipe, tokenizer, len(labels), pairs, several),
        )
    else:
        model, tokenizer, labels = pretrained_model(recipe, labels, several)
    _check_length(recipe.lengths.max_text, model.encoder)
    task = TextClassifier(model, tokenizer, labels, recipe.lengths.max_text, pairs)
    class_numbers = {label: number for number, label in enumerate(labels)}

    def batches(texts: LabelledTexts, split: str, weights: np.ndarray, sampler: Sampler | None) -> LabelledBatches:
        if several:
            targets = np.array([[label in given for label in labels] for given in texts.label_sets], "int32")  # (N, C)
        else:
            targets = np.array([class_numbers[label] for label in texts.labels])  # (N,)
        segments = "segments" in model.input
        encoded = encode(task, texts, recipe.corpus.storage)
        if long := int(np.count_nonzero(encoded.lengths == task.max_length)):
            say(f"{split}: {long:,} texts have {task.max_length} tokens or more, and are cut off there")
        if recipe.model.start is not None and split == "train":
            say_unknown(encoded.ids, "texts")
        arguments = targets, weights, segments, config.batch_size, config.buckets, recipe.seed, sampler
        dropped_id = UNKNOWN if tokenizer.mask_id is None else tokenizer.mask_id
        return LabelledBatches(encoded, *arguments, config.token_dropout, dropped_id)

    with blamed_on("tokenizer"):
        sampler = _sampler(recipe, train, task)
    with blamed_on("training"):
        if several and config.class_weights is not None:
            raise ValueError("class_weights is for texts with one label; the corpus has a label_separator")
        weights = _weights(config.class_weights, train.labels, labels)
        training = batches(train, "train", weights, sampler)
    objective = ClassesPrediction if several else VotesPrediction if model.pooling == "votes" else ClassPrediction
    train_digest = recipe.corpus.storage.fact("digest", train.key, train.digest)
    return Prepared(
        model=model,
        objective=objective(model, config.label_smoothing, config.r_drop),
        steps=training.steps,
        tokens=training.tokens,
        fewest_rows=training.fewest_rows,
        training_from=training.training,
        validation=batches(validation, "validation", np.ones(len(validation)), None).once(),
        task=task,
        sizes={"training_texts": len(train), "classes": len(labels)},
        digests=digests(recipe, model, [tokenizer], train=train_digest, validation=validation.digest()),
    )


def build_model(
    recipe: ClassifierRecipe, tokenizer: Tokenizer, classes: int, pairs: bool, several: bool = False
) -> Classifier:
    """The recipe's model, with the initial values of its seed.

    Args:
        recipe: the recipe.
        tokenizer: the tokenizer, whose size the embeddings have.
        classes: how many classes there are.
        pairs: whether each example is a pair of texts. If so, a transformer gets embeddings of two segments.
        several: whether a text may belong to several classes.
    """
    keras.utils.set_random_seed(recipe.seed)
    table, precision = recipe.model.encoder, recipe.training.precision
    arguments = table.model_dump(exclude={"kind"})
    if pairs and table.kind == "transformer":
        arguments["num_segments"] = 2
    encoder = _ENCODERS[table.kind](tokenizer.size, **arguments, dtype=precision, name="encoder")
    head = recipe.model.model_dump(exclude={"family", "start", "encoder"})
    return Classifier(encoder, classes, **head, multi_label=several)


def pretrained_model(
    recipe: ClassifierRecipe, labels: list[str], several: bool = False
) -> tuple[Classifier, Tokenizer, list[str]]:
    """The model that the recipe starts from, its tokenizer, and the labels in the order of its logits.

    From a classifier with the same labels, all weights are kept, and the order of its labels. From any other model with
    an encoder, such as a `MaskFiller`, a `TextEmbedder`, or a classifier with other labels, only the encoder is kept;
    the head is new. It is new, too, if one of both gives a text several labels and the other does not.

    Raises:
        RecipeError: the model has no encoder, or the recipe asks for another one.
    """
    keras.utils.set_random_seed(recipe.seed)
    task = load_pretrained(recipe)
    own = getattr(task, "encoder", None)
    if own is None:
        raise RecipeError(f"model.start: {recipe.model.start} is a {type(task).__name__}, which has no text encoder")
    table = recipe.model.encoder
    given = "encoder" in recipe.model.model_fields_set
    wanted = _ENCODERS[table.kind] if given and "kind" in table.model_fields_set else type(own)
    encoder = clone_pretrained(table, own, wanted, recipe.training.precision, "model.encoder")
    arguments = recipe.model.model_dump(exclude={"family", "start", "encoder"}, exclude_unset=True)
    arguments["multi_label"] = several
    if isinstance(task, TextClassifier) and set(task.labels) == set(labels) and task.model.multi_label == several:
        kept = {name: getattr(task.model, name) for name in ("pooling", "hidden_units", "activation", "dropout")}
        if all(arguments.get(name, kept[name]) == kept[name] for name in ("pooling", "hidden_units", "activation")):
            model = Classifier(encoder, len(labels), **{**kept, **arguments})
            copy_weights(model, task.model)
            return model, task.tokenizer, task.labels
    say("the encoder is that of model.start; the head is new")
    # An embedder, or a classifier whose head is replaced: its pooling is kept unless the recipe sets one.
    if hasattr(task.model, "pooling"):
        arguments = {"pooling": task.model.pooling, **arguments}
        _check_pooling(arguments["pooling"], several)
    return Classifier(encoder, len(labels), **arguments), task.tokenizer, labels


def score(classifier: Classifies, corpus: LabelledCorpus, split: str) -> dict[str, Any]:
    """Classifies a split, with a progress bar, and compares the classes with the labels.

    Returns:
        The result of `ClassificationScores.as_dict`, or of `LabelSetScores.as_dict` if the corpus gives a text several
        labels; and in `digests` a hash of the split's texts.

    Raises:
        CorpusError: the split cannot be read.
        ValueError: the model does not classify, reads pairs and the corpus has none or the other way round, or does not
            know a label.
    """
    if not isinstance(classifier, Classifies):
        raise ValueError("only a classifier can be scored on labelled texts")
    texts = corpus.read(split)
    pairs = texts.seconds is not None
    if getattr(classifier, "pairs", pairs) != pairs:
        reads, given = ("single texts", "pairs of texts")[:: 1 if pairs else -1]
        raise ValueError(
            f"the classifier reads {reads}, and the corpus gives {given}; set or leave out its key for second texts"
        )
    with progress_bar(f"Scoring {split}", len(texts)) as advance:
        scores = (evaluate if texts.separator is None else evaluate_sets)(classifier, texts, advance=advance)
    return {**scores.as_dict(), "digests": {split: texts.digest()}}


def digest(task: TextClassifier, corpus: LabelledCorpus, split: str) -> str:
    """A hash of a split's texts, as in `Prepared.digests`.

    Raises:
        CorpusError: the split cannot be read.
    """
    return corpus.read(split).digest()


def _labels(train: LabelledTexts) -> list[str]:
    labels = sorted({label for given in train.label_sets for label in given})
    if len(labels) < 2:
        have = f"The training texts have one label, {labels[0]!r}" if labels else "No training text has a label"
        raise CorpusError(f"{have}; a classifier needs two classes or more.")
    return labels


def _expect_known(given: Sequence[tuple[str, ...]], labels: list[str], split: str) -> None:
    """An error if a text has a label that no training text has."""
    known = set(labels)
    for row, names in enumerate(given, 1):
        if unknown := [name for name in names if name not in known]:
            raise CorpusError(
                f"Split {split!r}: text {row} has the label {unknown[0]!r}, which no training text has; the nearest "
                f"label is {_nearest(unknown[0], labels)!r}. Leave such texts out, or give others with that label to "
                "train on."
            )


def _nearest(label: str, labels: list[str]) -> str:
    """The label that is most like another one, whatever the case of their letters."""
    folded = {each.casefold(): each for each in labels}
    return folded[difflib.get_close_matches(label.casefold(), folded, n=1, cutoff=0.0)[0]]


def _check_pooling(pooling: str, several: bool) -> None:
    """An error if tokens would vote, and a text may have several labels."""
    if several and pooling == "votes":
        raise RecipeError("model.pooling: 'votes' is for texts with one label, and the corpus has a label_separator")


def _check_length(max_text: int | None, encoder: keras.Model) -> None:
    """An error if the encoder cannot read texts as long as the recipe wants them."""
    limit = position_limit(encoder, _SHORTEST)
    if limit and max_text and max_text > limit:
        raise RecipeError(
            f"lengths.max_text must be from {_SHORTEST} to {limit}, the tokens that the encoder has learned positions "
            f"for; received {max_text}"
        )


def _weights(config: Any, given: Sequence[str], labels: list[str]) -> np.ndarray:
    """The weight of each training text in the loss. With "balanced", the mean weight is 1."""
    if config is None:
        return np.ones(len(given))
    if config == "balanced":
        counts = collections.Counter(given)
        return np.array([len(given) / len(labels) / counts[label] for label in given])
    named = [normalized(label) for label in config]
    if unknown := sorted(set(named) - set(labels)):
        raise ValueError(
            f"class_weights names {unknown[0]!r}, which no training text has as its label; the nearest label is "
            f"{_nearest(unknown[0], labels)!r}"
        )
    if repeated := [label for label, count in collections.Counter(named).items() if count > 1]:
        raise ValueError(f"class_weights names {repeated[0]!r} more than once, with other white space or accents")
    weights = dict(zip(named, config.values(), strict=True))
    return np.array([weights.get(label, 1.0) for label in given])


def _sampler(recipe: ClassifierRecipe, texts: LabelledTexts, task: TextClassifier) -> Sampler | None:
    """The sampler for BPE-dropout; None if the recipe's tokenizer has no dropout."""
    dropout = 0.0 if recipe.model.start else getattr(recipe.tokenizer, "dropout", 0.0)
    if not dropout:
        return None
    if texts.seconds is not None:
        raise ValueError("dropout is for single texts, not for pairs")
    room = task.max_length - 1  # without the start token
    return Sampler(texts.texts, np.arange(len(texts)), task.tokenizer, dropout, room)
