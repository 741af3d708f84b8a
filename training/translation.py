"""Translators: from a recipe and its pairs to a model and batches to fit it on, and from a model to its scores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.distribution import Workers
from zoo.models import RNNSeq2Seq, Transformer
from zoo.tasks import TRANSLATOR_FOLDER as SAVED_IN
from zoo.tasks.text_to_text import TextToText
from zoo.tasks.translator import Translator
from zoo.text import Tokenizer
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config

from .batches.pair_batches import Batches, BatchesInStages, EncodedPairs, Sampler, encode
from .cards import translator_card as card
from .corpora.pairs import PairCorpus, Pairs, Part
from .distillation import taught
from .fine_tuning import clone_pretrained, load_pretrained, say_unknown
from .fitting.fit import Prepared
from .fitting.loss import TokenPrediction
from .learn_tokenizer import learn_tokenizer
from .preparing import digests, new_model
from .progress import progress_bar, say
from .schema.recipe import RecipeError, blamed_on
from .schema.translator_tables import TranslatorRecipe
from .scoring.bleu import corpus_bleu
from .scoring.evaluation import evaluate
from .storage import key_of

__all__ = ["SAVED_IN", "card", "prepare", "score"]

_FAMILIES: dict[str, Any] = {"rnn_seq2seq": RNNSeq2Seq, "transformer": Transformer}


def prepare(
    recipe: TranslatorRecipe, pairs: tuple[Pairs, Pairs] | None = None, workers: Workers | None = None
) -> Prepared:
    """Reads the corpus, learns the tokenizers, builds the model and makes batches.

    Where the corpus has a teacher, it first translates the sources, see `distillation`.

    Args:
        recipe: what to train.
        pairs: pairs to train on and pairs to choose the best epoch by, in place of those of the recipe's corpus.
        workers: who train it together; they share the work of a teacher.

    Raises:
        CorpusError: the corpus cannot be read, or lacks a training or validation split.
        RecipeError: the recipe does not fit the pairs, for example if all are longer than its lengths.
    """
    if pairs is None:
        read, validation = recipe.corpus.read("train"), recipe.corpus.read("validation")
        train = taught(recipe.corpus, read, workers or Workers())
    else:
        (train, validation), read = pairs, pairs[0]
    say(f"{len(train):,} {'pair' if len(train) == 1 else 'pairs'} to train on, {len(validation):,} to validate with")
    is_default = recipe.model_fields_set.isdisjoint({"model", "tokenizer"})
    if is_default and pairs is None and recipe.corpus.metric("validation") == "bleu":
        say(
            "the default model reads characters and suits words, names and dates; for sentences see 'Sentences' in "
            "docs/own_data.md"
        )
    if recipe.model.start is None:
        model, tokenizers = new_model(lambda: learn_tokenizers(recipe, train), lambda both: build_model(recipe, *both))
        settings = _settings(recipe)
    else:
        start, model = pretrained_model(recipe)
        tokenizers = start.source_tokenizer, start.target_tokenizer
        settings = {name: getattr(start, name) for name in Translator.SETTINGS} | _settings(recipe, exclude_unset=True)
    with blamed_on("lengths"):
        task = Translator(model, *tokenizers, **settings)
    with blamed_on("lengths, train"):
        encoded = _encoded(recipe, task, train, "train")
    with blamed_on("lengths, validation"):
        encoded_validation = _encoded(recipe, task, validation, "validation")
    batches = _in_stages(recipe, encoded, _samplers(recipe, task, train, encoded.kept), train.parts)
    fact = recipe.corpus.storage.fact
    hashes = {"train": fact("digest", read.key, read.digest), "validation": validation.digest()}
    if train is not read:
        hashes["translations"] = fact("translations_digest", train.key, train.digest)
    measure_bleu = None
    if recipe.training.monitor == "bleu":
        greedy = Translator(model, *tokenizers, task.max_source_length, task.max_target_length)

        def measure_bleu() -> float:
            return corpus_bleu(greedy(validation.sources, batch_size=128), validation.targets, recipe.corpus.language)

    return Prepared(
        model=model,
        objective=TokenPrediction(model, recipe.training.label_smoothing, recipe.training.r_drop),
        steps=batches.steps,
        tokens=batches.tokens,
        fewest_rows=batches.fewest_rows,
        training_from=batches.training,
        validation=_batches(recipe, encoded_validation).once(),
        task=task,
        sizes={"training_pairs": len(train)},
        digests=digests(recipe, model, tokenizers, **hashes),
        measure_bleu=measure_bleu,
    )


def score(translator: TextToText, corpus: PairCorpus, split: str) -> dict[str, Any]:
    """Translates a split, with a progress bar, and scores it by the corpus' metric.

    Returns:
        The result of `Evaluation.as_dict`, and in `digests` a hash of the split's texts.

    Raises:
        CorpusError: the split cannot be read.
        ValueError: the model does not translate.
    """
    if not isinstance(translator, TextToText):
        raise ValueError("only a translator can be scored on pairs of texts")
    pairs, language = corpus.read(split), corpus.language
    with progress_bar(f"Scoring {split}", len(pairs)) as advance:
        metric = corpus.metric(split)
        scores = evaluate(translator, pairs, advance=advance, metric=metric, language=language).as_dict()
    return {**scores, "digests": {split: pairs.digest()}}


def digest(task: Translator, corpus: PairCorpus, split: str) -> str:
    """A hash of a split's texts, as in `Prepared.digests`.

    Raises:
        CorpusError: the split cannot be read.
    """
    return corpus.read(split).digest()


def learn_tokenizers(recipe: TranslatorRecipe, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides, learnt from the training pairs; the same object twice where they are joint.

    Of more pairs than `tokenizer.sample`, so many are drawn.
    """
    config = recipe.tokenizer
    key = pairs.key and key_of(pairs.key, config.model_dump(mode="json"), recipe.seed)
    if len(pairs) > config.sample:
        say(f"the vocabulary is learnt from {config.sample:,} of {len(pairs):,} pairs (tokenizer.sample)")
        random = np.random.Generator(np.random.Philox(key=[recipe.seed, 0]))
        pairs = pairs.select(np.sort(random.choice(len(pairs), config.sample, replace=False, shuffle=False)))

    def learn() -> list[Tokenizer]:
        # `learn_tokenizer` calls `learn` of the class of the recipe's `kind`, such as `BytePairTokenizer.learn`.
        if config.joint:
            return [learn_tokenizer(config.joint, itertools.chain(pairs.sources, pairs.targets), nfc=True)]
        source = learn_tokenizer(config.source, pairs.sources, nfc=True)
        return [source, learn_tokenizer(config.target, pairs.targets, nfc=True)]

    if key is None:
        learnt = learn()
    else:
        configs = recipe.corpus.storage.fact("vocabulary", key, lambda: [*map(tokenizer_to_config, learn())])
        learnt = [*map(tokenizer_from_config, configs)]
    return learnt[0], learnt[-1]


def build_model(recipe: TranslatorRecipe, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> keras.Model:
    """The recipe's model, with the initial values of its seed."""
    keras.utils.set_random_seed(recipe.seed)
    arguments = recipe.model.model_dump(exclude={"family", "start"})
    if arguments.get("attention") == "none":  # TOML has no null
        arguments["attention"] = None
    sizes = source_tokenizer.size, target_tokenizer.size
    family = _FAMILIES[recipe.model.family]
    return family(*sizes, **arguments, dtype=recipe.training.precision, name=recipe.model.family)


def _settings(recipe: TranslatorRecipe, exclude_unset: bool = False) -> dict[str, Any]:
    """The translator's arguments; those alone that the recipe sets, if `exclude_unset`."""
    lengths = recipe.lengths.model_dump(include={"max_source", "max_target"}, exclude_unset=exclude_unset)
    decoding = recipe.decoding.model_dump(exclude_unset=exclude_unset)
    return {f"{name}_length": length for name, length in lengths.items()} | decoding


def pretrained_model(recipe: TranslatorRecipe) -> tuple[Translator, Any]:
    """The translator that the recipe starts from, and a copy of its model to train."""
    keras.utils.set_random_seed(recipe.seed)
    task = load_pretrained(recipe)
    wanted = _FAMILIES[recipe.model.family]
    model = clone_pretrained(recipe.model, task.model, wanted, recipe.training.precision)
    return task, model


def _encoded(recipe: TranslatorRecipe, task: Translator, pairs: Pairs, split: str) -> EncodedPairs:
    """The pairs as ids, without those that are too long; says how many these are."""
    lengths = task.max_source_length, task.max_target_length
    encoded = encode(pairs, task.source_tokenizer, task.target_tokenizer, *lengths, recipe.corpus.storage)
    if encoded.too_long:
        say(
            f"{split}: {encoded.too_long:,} of {len(pairs):,} pairs have more than lengths.max_source={lengths[0]} or "
            f"lengths.max_target={lengths[1]} tokens and are left out"
        )
    if recipe.model.start is not None and split == "train":
        for side, rows in (("sources", encoded.sources), ("targets", encoded.targets)):
            say_unknown(rows, side)
    return encoded


def _batches(
    recipe: TranslatorRecipe,
    encoded: EncodedPairs,
    samplers: tuple[Sampler | None, Sampler | None] = (None, None),
    parts: list[tuple[int, float]] | None = None,
) -> Batches:
    config = recipe.training
    return Batches(encoded, config.batch_size, config.buckets, recipe.seed, config.batch_tokens, samplers, parts)


def _in_stages(
    recipe: TranslatorRecipe,
    encoded: EncodedPairs,
    samplers: tuple[Sampler | None, Sampler | None],
    parts: list[Part] | None,
) -> Batches | BatchesInStages:
    """Batches to train on; in stages, if a corpus has `epochs`.

    Raises:
        RecipeError: the corpora of a stage have no pairs, for example since all are too long.
    """
    if parts is None:
        return _batches(recipe, encoded, samplers)
    # Of each corpus the pairs that are not too long.
    ends = np.searchsorted(encoded.kept, np.cumsum([part.pairs for part in parts]))
    counts = np.diff(ends, prepend=0).tolist()
    stages = []
    for begin in sorted({0, *(part.epochs for part in parts if part.epochs)}):
        if begin >= recipe.training.epochs:  # the training ends before
            break
        weights = [part.weight if part.epochs is None or begin < part.epochs else 0.0 for part in parts]
        if not any(count and weight for count, weight in zip(counts, weights, strict=True)):
            raise RecipeError(f"corpus: after epoch {begin} no pairs are left to train on; raise `epochs` of a corpus")
        stages.append((begin, _batches(recipe, encoded, samplers, list(zip(counts, weights, strict=True)))))
    return BatchesInStages(stages, recipe.training.steps_per_epoch) if len(stages) > 1 else stages[0][1]


def _samplers(
    recipe: TranslatorRecipe, task: Translator, pairs: Pairs, kept: np.ndarray
) -> tuple[Sampler | None, Sampler | None]:
    """The samplers of source and target ids; None for a tokenizer without dropout."""

    def sampler(texts: Sequence[str], tokenizer: Any, config: Any, max_length: int) -> Sampler | None:
        dropout = getattr(config, "dropout", 0.0)
        return Sampler(texts, kept, tokenizer, dropout, max_length) if dropout else None

    source, target = recipe.tokenizer.sides
    return (
        sampler(pairs.sources, task.source_tokenizer, source, task.max_source_length),
        sampler(pairs.targets, task.target_tokenizer, target, task.max_target_length),
    )
