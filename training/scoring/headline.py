"""The scores in `metrics.json`, ready to be printed; the most important one first."""

from __future__ import annotations

from typing import Any

_NAMES = {"bleu": "BLEU", "bleu_published_style": "BLEU, published style", "chrf": "chrF"}
# By the metric; what is scored otherwise consists of pairs.
_UNITS = {
    "loss": "tokens",
    "masked_loss": "hidden tokens",
    "accuracy": "texts",
    "subset_accuracy": "texts",
    "word_error_rate": "words",
    "spelling": "pronunciations",
}


def headlines(metrics: dict[str, Any]) -> dict[str, str]:
    """The scores by their names, the most important first.

    Translators have exact match, and before it BLEU with its 95% interval, such as `41.02 [39.6, 42.4]`, if the texts
    are sentences. Pronunciations have the error rates of words, with its 95% interval, and of phonemes, without stress
    and with it. Language models have the mean loss of a token in nats, masked ones of a hidden token. Classifiers
    have accuracy, macro F1 and the expected calibration error; if a text may have several labels, the share of texts
    with all labels right, micro and macro F1. If the scoring failed, there are no scores.
    """
    if "not_scored" in metrics:
        return {}
    if "metric" in metrics and metrics["metric"] == "loss":
        names = {"loss": "loss", "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
        return {name: f"{metrics[key]:.4f}" for key, name in names.items()}
    if metrics.get("metric") == "masked_loss":
        of_loss = {"loss": f"{metrics['loss']:.4f}", "perplexity": f"{metrics['perplexity']:.4f}"}
        return {**of_loss, "token accuracy": f"{metrics['token_accuracy']:.2%}"}
    if metrics.get("metric") == "accuracy":
        names = {"accuracy": "accuracy", "macro_f1": "macro F1", "calibration_error": "calibration error"}
        return {name: f"{metrics[key]:.2%}" for key, name in names.items()}
    if metrics.get("metric") == "subset_accuracy":
        names = {"subset_accuracy": "all labels right", "micro_f1": "micro F1", "macro_f1": "macro F1"}
        return {name: f"{metrics[key]:.2%}" for key, name in names.items()}
    if metrics.get("metric") == "word_error_rate":
        low, high = (100 * metrics[f"word_error_rate_{end}"] for end in ("low", "high"))
        return {
            "word error rate": f"{metrics['word_error_rate']:.2%} [{low:.1f}, {high:.1f}]",
            "phoneme error rate": f"{metrics['phoneme_error_rate']:.2%}",
            "word error rate with stress": f"{metrics['word_error_rate_with_stress']:.2%}",
            "phoneme error rate with stress": f"{metrics['phoneme_error_rate_with_stress']:.2%}",
        }
    by_name = {name: _interval(metrics[key]) for key, name in _NAMES.items() if key in metrics}
    return by_name | {"exact match": f"{metrics['exact_match']:.2%}"}


def headline(metrics: dict[str, Any]) -> str:
    """The most important score and its test set, such as `99.99% exact match on 10,000 test pairs`."""
    if "not_scored" in metrics:
        return "not scored"
    name, value = next(iter(headlines(metrics).items()))
    return f"{value} {name} on {scored_on(metrics)}"


def scored_on(metrics: dict[str, Any]) -> str:
    """The size and name of the split, such as `10,000 test pairs`."""
    unit = _UNITS.get(metrics.get("metric", ""), "pairs")
    return f"{metrics['total']:,} {metrics['split']} {unit if metrics['total'] != 1 else unit[:-1]}"


def _interval(score: dict[str, Any]) -> str:
    return f"{score['score']:.2f} [{score['low']:.1f}, {score['high']:.1f}]"
