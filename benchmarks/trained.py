"""What scores do the recipes reach, and in how much time?

The scores are read from the exported models in `saved_models/`, the newest version of each. Nothing is trained here; a
model that is missing keeps its last figures. BLEU is measured on Multi30k's `test_2016_flickr`, English to German,
1,000 pairs, with its 95% interval from 1,000 bootstrap samples. *Published style* is how published figures are
computed: both sides lowercased, punctuation normalised and tokenised by Moses' rules, sacrebleu without its own
tokenizer. *Raw* is sacrebleu's default on the texts as they are. A language model's loss is measured on all held-out
text: each token is predicted once, from the tokens before it in a window of the model's context.

Settings, epochs and length penalties were chosen on the validation sets. The times are of two cores that also did other
work. `zoo compare-lengths` drew the picture.

    zoo train multi30k-transformer                # any of the recipes
    python benchmarks/trained.py --record

A second table has the same recipes with other seeds, their mean and their standard deviation. A model that was
trained with a seed does not replace that of the recipe:

    zoo train multi30k-transformer --set seed=1 --models seed1
    python benchmarks/trained.py --seeds seed1 --record

Published figures:

- a transformer of this size: 41.02 (Transformer-Tiny of [Wu et al. 2021](https://arxiv.org/abs/2105.14462));
- a GRU with attention and a conditional decoder: 39.0, the best of five, and 38.1, their mean
  ([Caglayan et al. 2017](https://arxiv.org/abs/1707.04481));
- characters of Shakespeare: 1.88 with 0.8M parameters on a CPU and 1.4697 with 10.7M on a GPU, an average over random
  windows ([nanoGPT](https://github.com/karpathy/nanoGPT)).
"""

from __future__ import annotations

import json
import pathlib
import re
import statistics
from collections.abc import Sequence
from typing import Any

from results import FOLDER, Recording, Table, options
from zoo_training.run_files import RECIPE_FILE, read_metrics

from zoo.serving.layout import newest_version

MODELS_FOLDER = FOLDER.parents[1] / "saved_models"
# What the README says of each: the model with its paper, and what was published of its kind.
MODELS = {
    "dates": (
        "GRU encoder-decoder with additive attention (Bahdanau et al. [2014](https://arxiv.org/abs/1409.0473))",
        "",
    ),
    "multi30k-rnn": ("GRU encoder-decoder without attention (Cho et al. [2014](https://arxiv.org/abs/1406.1078))", ""),
    "multi30k-rnn-attention": (
        "GRU encoder-decoder with attention and a conditional decoder ([Nematus](https://arxiv.org/abs/1703.04357))",
        "published for this kind of model: 39.0",
    ),
    "multi30k-transformer": (
        "transformer (Vaswani et al. [2017](https://arxiv.org/abs/1706.03762))",
        "published for a model of this size: 41.02",
    ),
    "multi30k-fast": (
        "transformer of 6 + 1 layers, which learns from the one above; train that first",
        "its teacher, the model above trained again, 41.75",
    ),
    "pronounce": (
        "GRUs with attention and a conditional decoder, from letters to sounds",
        "Phonetisaurus, same words: 26.2%",
    ),
    "spell": ("the same, from sounds to letters", ""),
    "gpt-pydoc": ("GPT with rotary positions and SwiGLU, on Python's manual", ""),
    "shakespeare-tiny": ("GPT-2 (Radford et al. 2019) in nanoGPT's laptop size", "nanoGPT 1.88"),
    "shakespeare": ("GPT of width 256, with rotary positions and SwiGLU", "nanoGPT, 10.7M on an A100, 1.470"),
    "languages": ("n-grams of characters that vote: the language, of 64, of a sentence, word, name or date", ""),
    "bert-pydoc": ("small BERT (Devlin et al. [2019](https://arxiv.org/abs/1810.04805)), on Python's manual", ""),
}


def main() -> None:
    """Collects the scores and prints them."""
    parser = options(__doc__)
    parser.add_argument("--models", type=pathlib.Path, default=MODELS_FOLDER, help="where the models are")
    parser.add_argument(
        "--seeds",
        type=pathlib.Path,
        nargs="+",
        default=[],
        help="where models of other seeds are",
    )
    arguments = parser.parse_args()
    kept = FOLDER / "trained.json"
    found = json.loads(kept.read_text(encoding="utf-8"))["tables"] if kept.is_file() else 3 * [{"rows": []}]
    before = [{row[0]: row for row in table["rows"]} for table in found[:3]]
    with Recording(__file__, arguments.record, "sacrebleu", timed=False) as recording:
        overview, sentences, texts = [], [], []
        for name in MODELS:
            version = newest_version(arguments.models / name)
            if version is None:
                for rows, old in zip((overview, sentences, texts), before, strict=True):
                    rows += [row for key, row in old.items() if key.strip("`") in (name, f"zoo train {name}")]
                continue
            metrics = read_metrics(version)
            overview.append(overview_row(name, metrics))
            if "bleu" in metrics:
                sentences.append(sentences_row(name, metrics))
            elif metrics.get("metric") == "loss":
                texts.append(texts_row(name, metrics))
        before_seeds = found[3]["rows"] if len(found) > 3 else []
        seeds = seed_rows(sentences, before_seeds, arguments.seeds)
        overview = [[*row[:3], with_mean(row[3], row[0], seeds), row[4]] for row in overview]
        recording.table(Table("", ["command", "model", "parameters", "score", "training"], overview))
        columns = ["", "parameters", "BLEU, published style", "BLEU, raw", "chrF", "exact match", "minutes"]
        recording.table(Table("Sentences", columns, sentences))
        columns = ["", "parameters", "tokens scored", "loss, nats", "perplexity", "bits a byte", "minutes"]
        recording.table(Table("Running text", columns, texts))
        columns = ["", "seed", "BLEU, published style", "BLEU, raw", "chrF", "exact match", "minutes"]
        recording.table(Table("Other seeds", columns, seeds))


def seed_rows(
    sentences: Sequence[Sequence[str]], before: Sequence[Sequence[str]], folders: Sequence[pathlib.Path]
) -> list[list[str]]:
    """A row for each seed of the translators that have several, and one with their mean and standard deviation.

    Args:
        sentences: the rows of the table *Sentences*, which are of seed 0.
        before: the rows that were recorded last.
        folders: where further models are.
    """
    rows = {(row[0], row[1]): list(row) for row in before if row[1].isdecimal()}
    for folder in folders:
        for name in MODELS:
            version = newest_version(folder / name)
            if version is not None and "bleu" in (metrics := read_metrics(version)):
                recipe = json.loads((version / RECIPE_FILE).read_text(encoding="utf-8"))
                row = sentences_row(name, metrics)
                rows[row[0], str(recipe["seed"])] = [row[0], str(recipe["seed"]), *row[2:]]
    table = []
    for first in sentences:
        own = {0: [first[0], "0", *first[2:]]}
        own |= {int(seed): row for (name, seed), row in rows.items() if name == first[0]}
        if len(own) > 1:
            table += [own[seed] for seed in sorted(own)]
            scores = [mean([row[column] for row in own.values()]) for column in range(2, 6)]
            table.append([first[0], "mean and standard deviation", *scores, ""])
    return table


def with_mean(score: str, command: str, seeds: Sequence[Sequence[str]]) -> str:
    """A score of the README's table with the mean of all seeds behind it, if there are several."""
    rows = [row for row in seeds if row[0].strip("`") == command.strip("`").removeprefix("zoo train ")]
    parts = [part for part in score.split("; ") if not part.startswith("mean of ")]
    if rows:
        parts.insert(1, f"mean of {len(rows) - 1} seeds {rows[-1][2]}")
    return "; ".join(parts)


def mean(cells: Sequence[str]) -> str:
    """The mean of the scores that cells such as `40.19 [38.6, 41.8]` or `7.2%` begin with, and their deviation."""
    values = [float(re.findall(r"[\d.]+", cell)[0]) for cell in cells]
    places, percent = (1, "%") if cells[0].endswith("%") else (2, "")
    return f"{statistics.mean(values):.{places}f}{percent} ± {statistics.stdev(values):.{places}f}"


def overview_row(name: str, metrics: dict[str, Any]) -> list[str]:
    """A row of the README's table."""
    model, published = MODELS[name]
    if "bleu_published_style" in metrics:
        score = f"{interval(metrics['bleu_published_style'], '**')} BLEU"
    elif metrics.get("metric") == "accuracy":
        score = f"{metrics['accuracy']:.1%} accuracy"
    elif metrics.get("metric") == "masked_loss":
        score = f"{metrics['token_accuracy']:.1%} of masked subwords"
    elif metrics.get("metric") == "word_error_rate":
        score = f"**{metrics['word_error_rate']:.1%}** of words wrong"
    elif metrics.get("metric") == "spelling":
        score = f"{metrics['exact_match']:.1%} of words right"
    elif metrics.get("metric") != "loss":
        score = f"{metrics['exact_match']:.2%} exact match"
    elif published:
        score = f"**{metrics['loss']:.3f}** nats per character"
    else:
        score = f"perplexity {metrics['perplexity']:.1f} per subword"
    million = f"{metrics['parameters'] / 1e6:.1f}M"
    return [
        f"`zoo train {name}`",
        model,
        million,
        "; ".join(filter(None, [score, published])),
        f"{minutes(metrics)} min",
    ]


def sentences_row(name: str, metrics: dict[str, Any]) -> list[str]:
    """A translator's scores."""
    scores = [interval(metrics[key]) for key in ("bleu_published_style", "bleu", "chrf")]
    return [f"`{name}`", f"{metrics['parameters']:,}", *scores, f"{metrics['exact_match']:.1%}", minutes(metrics)]


def texts_row(name: str, metrics: dict[str, Any]) -> list[str]:
    """A language model's scores."""
    scores = f"{metrics['loss']:.4f}", f"{metrics['perplexity']:.2f}", f"{metrics['bits_per_byte']:.3f}"
    return [f"`{name}`", f"{metrics['parameters']:,}", f"{metrics['total']:,}", *scores, minutes(metrics)]


def interval(score: dict[str, Any], mark: str = "") -> str:
    """As `40.19 [38.6, 41.8]`."""
    return f"{mark}{score['score']:.2f}{mark} [{score['low']:.1f}, {score['high']:.1f}]"


def minutes(metrics: dict[str, Any]) -> str:
    """How long the training took."""
    return f"{metrics['training_seconds'] / 60:.0f}"


if __name__ == "__main__":
    main()
