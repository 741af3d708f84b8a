"""The model card of an exported model, its `README.md`: what it is, what it learnt from, how good it is, its limits.

`imported.py` writes the cards of imported models.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
import urllib.parse
from typing import Any

from zoo.models import GPT, Ensemble, RNNSeq2Seq, Transformer
from zoo.serving import measure_start_up
from zoo.serving.packed import unsupported
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier, TextEmbedder
from zoo.tasks.task import SavedTask
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator
from zoo.text import BytePairTokenizer, CharacterTokenizer, Tokenizer, WhitespaceTokenizer

from .run_files import MODEL_CHANGED
from .schema.classifier_tables import ClassifierRecipe, MaskedLanguageModelRecipe
from .schema.generator_tables import GeneratorRecipe
from .schema.recipe_tables import Recipe
from .schema.translator_tables import TranslatorRecipe
from .scoring.classification import confusions, weakest_classes
from .scoring.headline import headlines, scored_on

_SAMPLE = dict(max_new_tokens=300, temperature=0.8, seed=0)
_WEAKEST_GROUPS = 5
_WEAKEST_CLASSES, _WORST_PAIRS, _SHOWN_CLASSES = 5, 5, 100

# Each signature: its inputs and outputs.
_OF_TRANSLATORS = {
    "serving_default": "`text` -> `text`, `score` (natural logarithm of its probability)",
    "generate": "`text`, and for each text `max_target_length` and `length_penalty` -> `text`, `score`",
    "score": "`text`, `target` -> `log_probability` and number of `tokens` of the target",
    "next": "`text`, `prefix`, `hidden` and, with heads, `heads` -> the most likely `ids`, `tokens` and their"
    " `probabilities` after the prefix, without the hidden tokens and the heads that are off",
    "complete": "`text` and the others of `next` -> the `text` that begins so, its `ids`, `tokens` and"
    " `log_probabilities`; all that the beam found as `best`, with `best_scores`",
    "complete_attention": "`text` and the others of `next` -> as `attention_by_head`, or else `attention`,"
    " of the text that begins so",
    "attention": "`text` -> `source_tokens`, `target_tokens`, `weights`",
    "attention_by_head": "`text` -> `source_tokens`, `target_tokens`, `weights` of each layer and head, and"
    " `source_weights` of the encoder, `target_weights` of the decoder",
}
_OF_GENERATORS = {
    "serving_default": "`text` -> the continuation as `text`, its `log_probability` and number of `tokens`",
    "generate": "`text`, and for each text `max_new_tokens`, `temperature`, `top_k`, `top_p`, `repetition_penalty`,"
    " `seed` and `stop` -> as `serving_default`",
    "score": "`text` -> `log_probability`, `tokens`",
    "next": "`text`, `temperature`, `hidden`, `heads` -> the most likely next `tokens`, the `text` of each, and their"
    " `probabilities`, without the hidden tokens and the heads that are off",
    "score_tokens": "`text`, `hidden`, `heads` -> `tokens`, `log_probabilities`",
    "masked_attention": "`text`, `hidden`, `heads` -> as `attention_by_head`",
    "attention": "`text` -> `tokens`, and the `weights` with which they attend to the tokens before them",
    "attention_by_head": "`text` -> `tokens`, and the `weights` of each layer and head",
}
_ATTENTION = {
    "attention": "`text` -> `tokens`, and the `weights` with which they attend to each other or count for the text",
    "attention_by_head": "`text` -> `tokens`, and the `weights` of each layer and head",
}
_OF_CLASSIFIERS = {
    "serving_default": "`text` -> `label`, `probability`",
    "classify": "`text` -> `labels`, `probabilities` of all classes, the most probable first",
    **_ATTENTION,
}
_OF_EMBEDDERS = {"serving_default": "`text` -> `embedding`", "embed": "as `serving_default`", **_ATTENTION}
_OF_FILLERS = {
    "serving_default": "`text` with masks -> `text` without them, `probability` of what fills them",
    "fill": "`text` -> `text`, and for each mask the most likely `tokens` and their `probabilities`",
    **_ATTENTION,
}
# Of each task: its signatures, and the outputs of the default one.
_SIGNATURES: dict[type[SavedTask], tuple[dict[str, str], str]] = {
    Translator: (_OF_TRANSLATORS, "text, score"),
    TextGenerator: (_OF_GENERATORS, "text, log_probability, tokens"),
    TextClassifier: (_OF_CLASSIFIERS, "label, probability"),
    TextEmbedder: (_OF_EMBEDDERS, "embedding"),
    MaskFiller: (_OF_FILLERS, "text, probability"),
}


def translator_card(name: str, recipe: TranslatorRecipe, translator: Translator, metrics: dict[str, Any]) -> str:
    """The card of a translator, as Markdown."""
    model = translator.model
    decoding = f"beam of {translator.beam_size}, length penalty {translator.length_penalty:g}"
    attention = {}  # a family of a user's own need not say what it has
    if isinstance(model, RNNSeq2Seq):
        attention = {"attention": model.attention or "none"}
    if isinstance(model, Transformer):
        attention = {"attention": f"{model.num_heads} heads"}
    if isinstance(model, Ensemble):
        parts = ", ".join(f"`{type(each).__name__}` of {each.count_params():,} parameters" for each in model.models)
        attention = {"the mean of": parts}
    facts = {
        **attention,
        "decoding": "greedy" if translator.beam_size == 1 else decoding,
        "corpus": f"`{recipe.corpus.kind}`, {metrics['training_pairs']:,} training pairs{_weights(recipe)}",
        **_teachers(recipe),
    }
    limits = [
        f"A source longer than {translator.max_source_length} tokens is cut off there. A result has at most"
        f" {translator.max_target_length} tokens. An empty text gives an empty text.",
        f"{_vocabulary(translator.source_tokenizer, 'training sources')} It answers any input, also input outside its"
        " task: look at the score.",
    ]
    return _trained_card(
        name,
        recipe,
        translator,
        metrics,
        facts,
        about=_how_scored(metrics),
        limits=[*limits, *_licence(recipe), *_weakest(metrics)],
    )


def generator_card(name: str, recipe: GeneratorRecipe, generator: TextGenerator, metrics: dict[str, Any]) -> str:
    """The card of a language model, as Markdown."""
    model = generator.model
    attention = {}  # a family of a user's own need not say what it has
    if isinstance(model, GPT):
        heads = f"{model.num_layers} layers of {model.num_heads} heads, width {model.units}"
        attention = {"attention": f"{heads}, {model.positions} positions"}
    facts = {
        **attention,
        "context": f"{generator.context_length:,} tokens",
        "corpus": f"`{recipe.corpus.kind}`, {metrics['training_tokens']:,} training tokens",
    }
    about = [
        "Each token of the split was predicted once, from the tokens before it in a window of the model's context. The"
        f" loss is the mean negative log-likelihood in nats.{_not_known(metrics)}",
        "",
        "## Sample",
        "",
        f"From an empty prompt, at temperature {_SAMPLE['temperature']:g}, seed {_SAMPLE['seed']}:",
        "",
        *(f"    {line}".rstrip() for line in generator([""], **_SAMPLE)[0].split("\n")),
    ]
    limits = [
        f"The model reads at most {generator.context_length:,} tokens at once, a start token included. A longer"
        " text is continued from the last half of them, and only that much of a longer prompt is read. `score` reads a"
        f" longer text in windows that begin {generator.stride:,} tokens apart.",
        f"{_vocabulary(generator.tokenizer, 'training text')} Its texts read like its training text; they need not be"
        " true.",
    ]
    return _trained_card(
        name,
        recipe,
        generator,
        metrics,
        facts,
        about=about,
        limits=[*limits, *_licence(recipe)],
    )


def classifier_card(name: str, recipe: ClassifierRecipe, classifier: TextClassifier, metrics: dict[str, Any]) -> str:
    """The card of a trained classifier, as Markdown. `metrics` must also have `training_texts`."""
    labels = classifier.labels
    listed = ", ".join(f"`{label}`" for label in labels[:_SHOWN_CLASSES])
    facts = {
        "encoder": f"`{type(classifier.encoder).__name__}`",
        "classes": f"{len(labels):,}: {listed}{', …' if len(labels) > _SHOWN_CLASSES else ''}",
        "corpus": f"`{recipe.corpus.kind}`, {metrics['training_texts']:,} training texts",
    }
    read = "A pair of texts of more than" if classifier.pairs else "A text of more than"
    limits = [
        f"{read} {classifier.max_length:,} tokens is cut off there.",
        _vocabulary(classifier.tokenizer, "training texts"),
    ]
    if not classifier.model.multi_label:
        limits[-1] += (
            " It puts any text into one of its classes, also a text that belongs to none: look at the probability."
        )
    return _trained_card(
        name,
        recipe,
        classifier,
        metrics,
        facts,
        about=scores_of_classifier(metrics),
        limits=[*limits, *_licence(recipe), *_weakest(metrics, "accuracy")],
    )


def filler_card(name: str, recipe: MaskedLanguageModelRecipe, filler: MaskFiller, metrics: dict[str, Any]) -> str:
    """The card of a trained masked language model, as Markdown."""
    encoder = filler.encoder
    facts = {
        "attention": f"{encoder.num_layers} layers of {encoder.num_heads} heads, width {encoder.units},"
        f" {encoder.positions} positions",
        "corpus": f"`{recipe.corpus.kind}`, {metrics['training_tokens']:,} training tokens",
    }
    about = [
        "For the score, 15% of the tokens of the split were hidden and predicted from the others. The"
        " loss is the mean negative log-likelihood in nats. A classifier can start from the run: see `model.start` of"
        " a recipe.",
    ]
    (mask,) = filler.tokenizer.tokens([[filler.tokenizer.mask_id]]).numpy()[0].tolist()
    limits = [
        f"A text of more than {filler.max_length:,} tokens is cut off there. A mask is written `{mask.decode()}`.",
        f"{_vocabulary(filler.tokenizer, 'training text')} Each mask of a text is filled independently of the others,"
        " with one token.",
    ]
    return _trained_card(name, recipe, filler, metrics, facts, about, [*limits, *_licence(recipe)])


def scores_of_classifier(metrics: dict[str, Any]) -> list[str]:
    """Lines on the scores of a classifier: their interval, the weakest classes, and the most confused ones."""
    weak = ""
    if "by_class" in metrics and (weakest := weakest_classes(metrics)[:_WEAKEST_CLASSES]):
        listed = (f"`{label}` {scores['f1']:.1%} of {scores['total']:,} texts" for label, scores in weakest)
        weak = f"Weakest classes by F1: {', '.join(listed)}."
    if metrics.get("metric") == "subset_accuracy":
        lines = [
            "A text may have several labels, or none: those with a probability above 0.5. The score is the share of"
            f" texts of which all are right; its 95% interval, by Wilson's formula, is"
            f" {metrics['subset_accuracy_low']:.2%} to {metrics['subset_accuracy_high']:.2%}. Micro F1 counts every"
            " decision alike, macro F1 every class."
        ]
        return [*lines, "", weak] if weak else lines
    if metrics.get("metric") != "accuracy":
        return []
    lines = [
        f"The 95% interval of the accuracy, by Wilson's formula, is {metrics['accuracy_low']:.2%} to"
        f" {metrics['accuracy_high']:.2%}. Macro F1 is the mean over the {len(metrics['by_class']):,} classes that"
        " occur in the split or as an answer. The calibration error is the mean difference between the probability of"
        " an answer and how often such answers are right, in 15 ranges of the probability."
    ]
    if weak:
        lines += ["", weak]
    if pairs := confusions(metrics)[:_WORST_PAIRS]:
        listed = (f"`{label}` given as `{given}`: {count:,} of {total:,}" for label, given, count, total in pairs)
        lines += ["", f"Most frequent mistakes: {'; '.join(listed)}."]
    return lines


def _trained_card(
    name: str,
    recipe: Recipe,
    task: SavedTask,
    metrics: dict[str, Any],
    facts: dict[str, str],
    about: list[str],
    limits: list[str],
) -> str:
    """The card of a model that a recipe made."""
    scores = headlines(metrics)
    if scores:
        first = next(iter(scores))
        scores[first] = f"**{scores[first]}** of {scored_on(metrics)}"
    changed = metrics.get("not_scored") == MODEL_CHANGED
    why = "the saved model has changed since it was trained" if changed else "the scoring failed, see `metrics.json`"
    of_training = {}
    if "training_seconds" in metrics:  # not of a model that replaced the trained one
        of_training = {
            "training": f"{metrics['training_seconds']:.0f} s",
            "command": f"`{metrics['command']}`",
            "made with": f"TensorFlow {metrics['tensorflow']}, Keras {metrics['keras']}",
        }
    rows = {
        "model": f"`{type(task.model).__name__}`, {metrics['parameters']:,} parameters",
        **facts,
        **({"fine-tuned from": f"`{recipe.model.start.name}`"} if recipe.model.start else {}),
        **(scores or {"scores": f"none: {why}"}),
        **of_training,
        **serving_rows(metrics),
    }
    description = recipe.description
    sentence = f"{description[:1].upper()}{description[1:].removesuffix('.')}." if description else ""
    return card(name, sentence, rows, about, task, limits, metrics.get("explore", False))


def card(
    name: str,
    description: str,
    rows: dict[str, str],
    about: list[str],
    task: SavedTask,
    limits: list[str],
    explore: bool = False,
) -> str:
    """The parts that all cards share, as Markdown.

    Args:
        name: the model's name on a server.
        description: a sentence; empty for none.
        rows: the table of facts; bars in them are escaped here.
        about: lines behind the table; none if empty.
        task: the model.
        limits: the items of the last list.
        explore: whether people can choose tokens, see `zoo.serving.export`.
    """
    signatures, outputs = _SIGNATURES[type(task)]
    inputs, instance = 'text=tf.constant(["..."])', '"..."'
    if getattr(task, "pairs", False):
        signatures = {each: told.replace("`text` ->", "`text`, `text_pair` ->") for each, told in signatures.items()}
        inputs += ', text_pair=tf.constant(["..."])'
        instance = '{"text": "...", "text_pair": "..."}'
    cells = ((key, fact.replace("|", "\\|")) for key, fact in rows.items())
    lines = [
        f"# {name}",
        "",
        *([description, ""] if description else []),
        "| | |",
        "|---|---|",
        *(f"| {key} | {fact} |" for key, fact in cells),
        "",
        *([*about, ""] if about else []),
        "## Use",
        "",
        "Any program that loads SavedModels runs it; no package other than TensorFlow is needed.",
        "",
        "```python",
        "import tensorflow as tf",
        "",
        'model = tf.saved_model.load("PATH/OF/THIS/FOLDER")',
        f'model.signatures["serving_default"]({inputs})  # {outputs}',
        "```",
        "",
        "TensorFlow Serving takes the folder above this one, which holds the versions. Its path must be absolute:",
        "",
        "```sh",
        f"tensorflow_model_server --rest_api_port=8501 --model_name={shlex.quote(name)}"
        " --model_base_path=/PATH/OF/THE/FOLDER/ABOVE",
        f"curl localhost:8501/v1/models/{urllib.parse.quote(name, safe='')}:predict"
        f""" -d '{{"instances": [{instance}]}}'""",
        "```",
        "",
        "| signature | inputs -> outputs, one of each for every text |",
        "|---|---|",
        *(f"| `{each}` | {signatures[each]} |" for each in task.signatures() if explore or each not in task.EXPLORE),
        "",
        "## Limits",
        "",
        *(f"- {limit}" for limit in limits),
        "",
    ]
    return "\n".join(lines)


def serving_metrics(version: pathlib.Path, task: SavedTask, weights: str, explore: bool = False) -> dict[str, Any]:
    """What `serving_rows` shows of an exported version.

    Args:
        version: its folder.
        task: what was exported.
        weights: how its files store the weights, see `zoo.serving.export`.
        explore: whether people can choose tokens, see there.
    """
    metrics: dict[str, Any] = {"start_up": dataclasses.asdict(measure_start_up(version, task))}
    if weights != "float32":
        metrics["stored_as"] = weights
    if explore:
        metrics["explore"] = True
    if shortlist := getattr(task, "shortlist", None):
        metrics["shortlist"] = {"size": shortlist.size, "vocabulary": shortlist.ranks.shape[0]}
        if shortlist.unchanged is not None:
            same, held_out = shortlist.unchanged
            metrics["shortlist"] |= {"same": same, "held_out": held_out}
    if reason := unsupported(task.model):
        metrics["unpacked"] = reason
    return metrics


def serving_rows(metrics: dict[str, Any]) -> dict[str, str]:
    """What a server needs, if it was measured; how the weights are stored; why they are not packed, if they are not."""
    rows = {}
    if measured := metrics.get("start_up"):
        rows["to serve"] = (
            f"{measured['size'] / 1e6:.1f} MB; loaded in {measured['load_seconds']:.1f} s, the first text, of at most"
            f" 16 tokens, in {measured['first_seconds']:.1f} s, later ones in {measured['later_seconds'] * 1e3:.1f} ms,"
            f" on {measured['cores']} cores"
        )
    if stored_as := metrics.get("stored_as"):
        rows["precision"] = f"weights rounded to {stored_as} in the files; a server computes in float32"
    if shortlist := metrics.get("shortlist"):
        rows["shortlist"] = (
            f"a translation may use {shortlist['size']:,} of the {shortlist['vocabulary']:,} target tokens, chosen for"
            " each text; scores on this card are without it"
        )
        if "held_out" in shortlist:
            rows["shortlist"] += (
                f"; {shortlist['same']:,} of {shortlist['held_out']:,} held-out texts have the same translation with it"
            )
    if reason := metrics.get("unpacked"):
        rows["weights"] = f"as in training, not packed for a server: {reason}"
    return rows


def _how_scored(metrics: dict[str, Any]) -> list[str]:
    """A paragraph on how BLEU or error rates were computed, if they were."""
    if metrics.get("metric") == "word_error_rate":
        return [
            "A word is wrong if the output is none of its pronunciations. The phoneme error rate is the edit distance"
            " to the nearest pronunciation, divided by its length, of all words together. Both leave out stress marks"
            " unless it says otherwise. The 95% interval, by Wilson's formula, is in brackets."
        ]
    if metrics.get("metric") == "spelling":
        return ["An answer is right if it is any of the dictionary's words with these sounds."]
    if "bleu" not in metrics:
        return []
    told = (
        "BLEU and chrF are computed by sacrebleu on the plain texts; 95% intervals by the bootstrap are in brackets."
        f" BLEU: `{metrics['bleu']['signature']}`; chrF: `{metrics['chrf']['signature']}`."
    )
    if style := metrics.get("bleu_published_style"):
        told += (
            " Published style: both sides in lower case, with normalised punctuation, cut into tokens by the rules of"
            f" Moses, as for many published figures: `{style['signature']}`."
        )
    return [told]


def _not_known(metrics: dict[str, Any]) -> str:
    """A sentence on the tokens of the split that the vocabulary lacks, if it lacks some."""
    if not metrics.get("unknown"):
        return ""
    return (
        f" The vocabulary lacks {metrics['unknown']:,} of these tokens. They count as one token, so the scores are too"
        " good to compare with those of another vocabulary."
    )


def _vocabulary(tokenizer: Tokenizer, learnt_from: str) -> str:
    """A sentence on the texts that a tokenizer can read."""
    if isinstance(tokenizer, CharacterTokenizer):
        return f"It knows the {tokenizer.size - 4:,} characters of its {learnt_from}; it reads others as unknown."
    if isinstance(tokenizer, WhitespaceTokenizer):
        return f"It knows the {tokenizer.size - 4:,} words of its {learnt_from}; it reads others as unknown."
    spelt = ", which can spell any text" if isinstance(tokenizer, BytePairTokenizer) else ""
    return f"It reads texts as {tokenizer.size - 4:,} subwords{spelt}."


def _weights(recipe: Recipe) -> str:
    """How many times an epoch sees the texts of each of several corpora, and which of them late epochs leave out."""
    if len(recipe.corpus.parts) == 1:
        return ""
    weights = ", ".join(f"{corpus.weight:g}" for corpus in recipe.corpus.parts)
    ending = [
        f"; corpus.{number} in the first {corpus.epochs} epochs"
        for number, corpus in enumerate(recipe.corpus.parts)
        if corpus.epochs
    ]
    return f"; weights {weights}{''.join(ending)}"


def _teachers(recipe: TranslatorRecipe) -> dict[str, str]:
    """The translators whose answers were trained on, if the recipe names some."""
    several = len(recipe.corpus.parts) > 1
    named = [
        f"`{corpus.teacher}`{f' for corpus.{number}' if several else ''}"
        for number, corpus in enumerate(recipe.corpus.parts)
        if corpus.teacher is not None
    ]
    if not named:
        return {}
    return {"teacher": f"{', '.join(named)}: the targets to train on are its translations, not those of people"}


def _licence(recipe: Recipe) -> list[str]:
    return [recipe.corpus.licence] if recipe.corpus.licence else []


def _weakest(metrics: dict[str, Any], rate: str = "exact_match") -> list[str]:
    """A line on the groups with most mistakes, if there are groups; `rate` is what their scores are called."""
    groups = metrics.get("by_group")
    if not groups:
        return []
    weak = sorted((score[rate], group) for group, score in groups.items() if score[rate] < 1)
    listed = ", ".join(f"{group} {share:.1%}" for share, group in weak[:_WEAKEST_GROUPS])
    judged = f"Weakest: {listed}." if weak else "None has a mistake."
    return [f"{len(groups)} groups; `metrics.json` has the score of each. {judged}"]
