"""Language models: from a recipe and its text to a model and batches to fit it on, and from a model to its scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from zoo.models import GPT
from zoo.tasks import GENERATOR_FOLDER as SAVED_IN
from zoo.tasks.text_continuation import TextContinuation
from zoo.tasks.text_generator import TextGenerator
from zoo.text import START, UNKNOWN, Tokenizer
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config

from .batches.text_windows import Windows, encode, windows_once
from .cards import generator_card as card
from .corpora.corpus import CorpusError
from .corpora.texts import Document, TextCorpus
from .fine_tuning import clone_pretrained, load_pretrained, say_unknown
from .fitting.fit import Prepared
from .fitting.loss import TokenPrediction
from .learn_tokenizer import learn_tokenizer
from .preparing import digests, new_model
from .progress import progress_bar, say
from .run_files import Digest
from .schema.generator_tables import GeneratorRecipe
from .schema.recipe import blamed_on
from .schema.recipe_tables import Recipe
from .storage import key_of

__all__ = ["SAVED_IN", "card", "prepare", "score"]

BATCH_TOKENS = 8192  # in scoring


def prepare(recipe: GeneratorRecipe) -> Prepared:
    """Learns the tokenizer, reads the texts, builds the model and makes batches.

    Raises:
        CorpusError: the corpus cannot be read, or lacks a training or validation split.
        RecipeError: the recipe does not fit the text, as where that is shorter than a batch.
    """
    corpus = recipe.corpus
    settings: dict[str, Any] = {}
    if recipe.model.start is None:
        model, tokenizer = new_model(
            lambda: learnt_tokenizer(recipe),
            lambda tokenizer: build_model(recipe, tokenizer),
        )
        length = recipe.model.context_length
    else:
        task, model, length = pretrained_model(recipe)
        tokenizer = task.tokenizer
        settings = {name: getattr(task, name) for name in TextGenerator.SETTINGS}
    starts = settings.get("add_start", True)
    (train, validation), split_digests = encoded_splits(corpus, tokenizer, starts)
    with blamed_on("training"):
        windows = Windows(train, length, recipe.training.batch_size, recipe.seed, starts)
    if recipe.model.start is not None:
        say_unknown(train, "texts")
    return Prepared(
        model=model,
        objective=TokenPrediction(model, recipe.training.label_smoothing, recipe.training.r_drop),
        steps=windows.steps,
        tokens=windows.tokens,
        fewest_rows=windows.batch_size,
        training_from=windows.training,
        validation=_once(validation, length, "validation", recipe.training.batch_size),
        task=TextGenerator(model, tokenizer, **settings),
        sizes={"training_tokens": len(train)},
        digests=digests(recipe, model, [tokenizer], **split_digests),
    )


def build_model(recipe: GeneratorRecipe, tokenizer: Tokenizer) -> keras.Model:
    """The recipe's model, with the initial values of its seed."""
    keras.utils.set_random_seed(recipe.seed)
    arguments = recipe.model.model_dump(exclude={"family", "start"})
    return GPT(tokenizer.size, **arguments, dtype=recipe.training.precision, name=recipe.model.family)


def pretrained_model(recipe: GeneratorRecipe) -> tuple[TextGenerator, Any, int]:
    """The task that the recipe starts from, a copy of its model to train, and the length of the windows.

    A shorter `model.context_length` than the model's trains on shorter windows, and leaves the model its context.
    """
    keras.utils.set_random_seed(recipe.seed)
    task = load_pretrained(recipe)
    table, length = recipe.model, getattr(task.model, "context_length", 0)
    if "context_length" in table.model_fields_set and table.context_length <= length:
        length = table.context_length
        table = table.model_copy()
        table.model_fields_set.discard("context_length")
    return task, clone_pretrained(table, task.model, GPT, recipe.training.precision), length


def score(generator: TextGenerator, corpus: TextCorpus, split: str) -> dict[str, Any]:
    """How well a model predicts a split; every token is predicted once.

    A text is cut into windows of the model's context, and a token is predicted from those before it in its window.

    Returns:
        `loss`, the mean negative log-likelihood of a token in nats; `perplexity`, its exponential; `bits_per_byte`,
        which does not depend on the vocabulary, if that lacks nothing; `token_accuracy`, the share of tokens that have
        the highest probability; `unknown`, how many tokens the vocabulary lacks; `total`, the number of all tokens; and
        in `digests` a hash of the split's texts.

    Raises:
        CorpusError: the split cannot be read.
        ValueError: the model is a translator, or an exported language model, which has signatures only.
    """
    if not isinstance(generator, TextContinuation):
        raise ValueError("only a language model can be scored on running text")
    if not isinstance(generator, TextGenerator):
        raise ValueError("an exported language model cannot be scored on a corpus; score its run, such as runs/NAME")
    ids, digest, size = encoded_split(corpus, split, generator.tokenizer, generator.add_start)
    scored = TokenPrediction(generator.model)
    scored.compile(jit_compile=False)
    windows = _once(ids, generator.context_length, split)
    with progress_bar(f"Scoring {split}", int(windows.cardinality())) as advance:
        watch = keras.callbacks.LambdaCallback(on_test_batch_end=lambda batch, logs: advance(1))
        scores = scored.evaluate(windows, verbose=0, callbacks=[watch], return_dict=True)
    total, unknown = int(np.count_nonzero(ids[1:] != START)), int(np.count_nonzero(ids == UNKNOWN))
    if unknown:
        say(
            f"{unknown:,} of the {total:,} {split} tokens are not in the vocabulary. They count as one token, so the "
            "scores are too good to compare with those of another vocabulary"
        )
    return {
        "metric": "loss",
        "loss": round(scores["loss"], 6),
        "perplexity": round(math.exp(scores["loss"]), 6),
        "bits_per_byte": round(scores["loss"] * total / math.log(2) / size, 6),
        "token_accuracy": round(scores["token_accuracy"], 6),
        "unknown": unknown,
        "total": total,
        "digests": {split: digest},
    }


class EncodedText(NamedTuple):
    """A split as ids.

    Attributes:
        ids: its ids, int `(N,)`; mapped from a file if the text is more than memory should hold.
        digest: a hash of its texts.
        size: the bytes of its texts, in UTF-8.
    """

    ids: np.ndarray
    digest: str
    size: int


def learnt_tokenizer(recipe: Recipe) -> Tokenizer:
    """The recipe's tokenizer, learnt from all training text, or as the cache has it from an earlier run."""

    def learn() -> Tokenizer:
        pieces = (piece for document in recipe.corpus.documents("train") for piece in document)
        return learn_tokenizer(recipe.tokenizer, pieces)

    key = recipe.corpus.key("train")
    if key is None:
        return learn()
    key = key_of(key, recipe.tokenizer.model_dump(mode="json"))
    return tokenizer_from_config(recipe.corpus.storage.fact("vocabulary", key, lambda: tokenizer_to_config(learn())))


def digest(task: TextGenerator, corpus: TextCorpus, split: str) -> str:
    """A hash of a split's texts, as in `Prepared.digests`.

    Raises:
        CorpusError: the split cannot be read.
    """
    return encoded_split(corpus, split, task.tokenizer, task.add_start).digest


def encoded_splits(
    corpus: TextCorpus, tokenizer: Tokenizer, starts: bool = True
) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, str]]:
    """The ids of the training and of the validation split, and the hash of both by name; says how many ids there are.

    Args:
        corpus: the corpus.
        tokenizer: the tokenizer.
        starts: see `encoded_split`.
    """
    train, validation = (encoded_split(corpus, split, tokenizer, starts) for split in ("train", "validation"))
    say(
        f"{len(train.ids):,} tokens to train on, {len(validation.ids):,} to validate with; {tokenizer.size:,} in the "
        "vocabulary"
    )
    return (train.ids, validation.ids), {"train": train.digest, "validation": validation.digest}


def encoded_split(corpus: TextCorpus, split: str, tokenizer: Tokenizer, starts: bool = True) -> EncodedText:
    """The ids of a split, with a progress bar in characters; or as the cache has them from an earlier run.

    Without `starts`, only the end token stands between documents, as in the training texts of GPT-2.
    """
    kind, key, digest = "ids" if split == "train" else split, corpus.key(split), Digest()
    key = key and key_of(key, tokenizer_to_config(tokenizer), starts)
    if entry := corpus.storage.find(kind, key):
        return EncodedText(entry.array("ids"), entry.info["digest"], entry.info["size"])
    with corpus.storage.writing(kind, key) as entry, progress_bar(f"Encoding {split}", None) as advance:

        def watched(document: Document) -> Iterator[str]:
            for piece in document:
                advance(len(piece))
                yield digest.add(piece, end="")  # a document's pieces follow one another, wherever it is cut
            digest.add("")

        ids = encode(map(watched, corpus.documents(split)), tokenizer, entry, starts)
        entry.info |= {"digest": str(digest), "size": digest.size}
    return EncodedText(ids, str(digest), digest.size)


def _once(ids: np.ndarray, length: int, split: str, least: int = 1) -> tf.data.Dataset:
    """Every token of a split once, in batches of a size for scoring, but at least so many windows."""
    if len(ids) < 2:
        raise CorpusError(f"Split {split!r} has {len(ids)} tokens; it takes 2 or more, as the first is not predicted.")
    return windows_once(ids, length, BATCH_TOKENS // length, least)
