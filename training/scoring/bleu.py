"""BLEU (Papineni et al. 2002) and chrF by sacrebleu, on plain texts and on texts prepared as for published figures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from zoo.extras import needs

from ..corpora.pairs import UNSPACED, base_language

_BUCKET = 5  # words
# An interval is estimated from 1,000 resamples; from fewer if these would hold too many pairs, since sacrebleu has all
# of them in memory at once.
_RESAMPLES, _FEWEST_RESAMPLES, _MOST_RESAMPLED = 1000, 100, 5_000_000


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str | None = None) -> float:
    """BLEU of plain texts, from 0 to 100: a number to compare epochs by.

    Args:
        hypotheses: the model's outputs.
        references: the correct texts, one for each output.
        language: the language of both, such as `de`; None if unknown.
    """
    return _metric("BLEU", tokenize=_tokenizer(language), force=True).corpus_score(hypotheses, [references]).score


def scores(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str | None = None
) -> dict[str, Any]:
    """The scores of the translations of a test set, as `metrics.json` holds them.

    A score is `{"score", "low", "high", "signature"}`: a number from 0 to 100, its 95% interval by the bootstrap, and
    sacrebleu's signature, which says how it was computed.

    Args:
        sources: the source texts.
        hypotheses: the model's outputs.
        references: the correct texts.
        language: the language of the references, such as `de`; None if unknown.

    Returns:
        `bleu` and `chrf` of the plain texts; `bleu_published_style`, BLEU of `published_style`, if Moses has rules for
        the language; and `bleu_by_source_words`: for each range of source lengths, such as `6-10` words, the number of
        `pairs` and both kinds of BLEU.
    """
    styles = {"bleu": (_metric("BLEU", tokenize=_tokenizer(language), force=True), [*hypotheses], [*references])}
    if language is not None and has_published_style(language):
        prepared = (published_style(texts, language) for texts in (hypotheses, references))
        # As multi-bleu.perl, which published figures are computed by.
        styles["bleu_published_style"] = (_metric("BLEU", tokenize="none", smooth_method="none", force=True), *prepared)
    result = {name: _score(*style) for name, style in styles.items()}
    result["chrf"] = _score(_chrf(), [*hypotheses], [*references])
    buckets: dict[int, list[int]] = {}
    for row, source in enumerate(sources):
        buckets.setdefault(max(0, len(source.split()) - 1) // _BUCKET, []).append(row)
    result["bleu_by_source_words"] = {
        f"{number * _BUCKET + 1}-{(number + 1) * _BUCKET}": {"pairs": len(rows)}
        | {name: _part(style, rows) for name, style in styles.items()}
        for number, rows in sorted(buckets.items())
    }
    return result


def published_style(texts: Sequence[str], language: str) -> list[str]:
    """Texts in lower case, with normalised punctuation, cut into tokens by the rules of Moses.

    It does what lowercase.perl, normalize-punctuation.perl and tokenizer.perl do one after another. The public files
    `*.lc.norm.tok.*` of Multi30k, on which published figures are computed, were made in this way.

    Args:
        texts: plain texts.
        language: their language, such as `de`.

    Returns:
        The tokens of each text, with spaces between them. Some characters are escaped, such as `'` as `&apos;`.

    Raises:
        ValueError: Moses has no rules for the language.

    Example:
        >>> published_style(["Don't “walk”, run (fast)!"], "en")
        ['don &apos;t &quot; walk , &quot; run ( fast ) !']
    """
    if not has_published_style(language):
        raise ValueError(
            f"`language` must be one that Moses has rules for, such as de. Received: language={language!r}"
        )
    normalize, tokenize = _moses(base_language(language))
    # With a line feed, as the scripts read a line: one of their rules for quotes looks at the next character.
    return [tokenize(normalize(f"{text.lower()}\n"), return_str=True) for text in texts]


def has_published_style(language: str | None) -> bool:
    """Whether Moses has rules for a language; False if it is unknown."""
    with needs("train"):
        from sacremoses.corpus import NonbreakingPrefixes

    if language is None or base_language(language) in UNSPACED:
        return False
    return base_language(language) in NonbreakingPrefixes().available_langs.values()


def _metric(kind: str, **options: Any) -> Any:
    with needs("train"):
        import sacrebleu

    return getattr(sacrebleu, kind)(**options)


def _tokenizer(language: str | None) -> str:
    """How sacrebleu cuts texts of a language into words: Chinese has rules, other unspaced scripts go by character."""
    base = base_language(language or "")
    return "zh" if base == "zh" else "char" if base in UNSPACED else "13a"


def _chrf() -> Any:
    with needs("train"):
        import sacrebleu

    class Chrf(sacrebleu.CHRF):
        """chrF whose score is always a Python float.

        sacrebleu gives `float32` for a resample, but the float 0.0 if nothing in it matches; then its mean of both
        kinds raises a `TypeError`. That happens if nearly all outputs are empty.
        """

        def _compute_f_score(self, statistics: Any) -> float:
            return float(super()._compute_f_score(statistics))

    return Chrf()


@functools.cache
def _moses(language: str) -> tuple[Callable[[str], str], Callable[..., str]]:
    """The punctuation normaliser and the tokenizer of a language."""
    with needs("train"):
        import sacremoses

    return (
        sacremoses.MosesPunctNormalizer(language, perl_parity=True).normalize,
        sacremoses.MosesTokenizer(language).tokenize,
    )


def _score(metric: Any, hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """A score with its interval."""
    resamples = min(_RESAMPLES, max(_FEWEST_RESAMPLES, _MOST_RESAMPLED // len(hypotheses)))
    score = metric.corpus_score(hypotheses, [references], n_bootstrap=resamples)
    low, high = max(0.0, score._mean - score._ci), min(100.0, score._mean + score._ci)
    return {
        **{name: round(float(value), 2) for name, value in (("score", score.score), ("low", low), ("high", high))},
        "signature": str(metric.get_signature()),
    }


def _part(style: tuple[Any, list[str], list[str]], rows: list[int]) -> dict[str, float]:
    """The score of some of the pairs, without its signature, which is the same as that of all pairs."""
    metric, *texts = style
    part = _score(metric, *([side[row] for row in rows] for side in texts))
    del part["signature"]
    return part
