"""How many words does `zoo train pronounce` pronounce wrongly, and how many does Phonetisaurus?

Both learn from the same 107,750 words of CMUdict, and both are asked for the same 12,855 test words, which the recipe's
corpus holds out. A word is right if the answer is any of its pronunciations. The released model answers through
TensorFlow alone. Phonetisaurus (Novak et al. [2016](https://doi.org/10.1017/S1351324915000315)) joins letters and
sounds to n-grams in a finite-state transducer; it runs as its wheel does by default. It is also trained without stress
marks, because the figures that are published for this task are without them.

Published figures are of other words, see `published_pronunciation.py` below.

    pip install '.[pronouncers]' && python benchmarks/pronunciation.py
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence

from results import Recording, Table, options
from zoo_training.corpora.cmudict import CMUdict
from zoo_training.corpora.pairs import Pairs
from zoo_training.scoring.evaluation import by_source
from zoo_training.scoring.pronunciation import scores, without_stress

MODELS_FOLDER = pathlib.Path(__file__).parents[1] / "saved_models"
BATCH = 256


def released_model(version: pathlib.Path, words: Sequence[str]) -> list[str]:
    """The answers of an export, through TensorFlow alone; words of one length are asked for together."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    order = sorted(range(len(words)), key=lambda row: len(words[row]))
    answers = [""] * len(words)
    for begin in range(0, len(words), BATCH):
        rows = order[begin : begin + BATCH]
        for row, text in zip(rows, serve(text=tf.constant([words[row] for row in rows]))["text"].numpy(), strict=True):
            answers[row] = text.decode()
    return answers


def phonetisaurus_answers(train: Pairs, words: Sequence[str], stress: bool) -> list[str]:
    """The answers of Phonetisaurus, trained on the pairs; an empty one where it has none."""
    import phonetisaurus

    lexicon: dict[str, list[list[str]]] = {}
    for word, sounds in zip(train.sources, train.targets, strict=True):
        told = (sounds if stress else without_stress(sounds)).split()
        if told not in lexicon.setdefault(word, []):
            lexicon[word].append(told)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.fst"
        phonetisaurus.train(lexicon, model)
        found = {word: " ".join(sounds) for word, sounds in phonetisaurus.predict(words, model)}
    return [found.get(word, "") for word in words]


def row(name: str, answers: Sequence[str], references: Sequence[Sequence[str]], stress: bool = True) -> list[str]:
    """A contestant's error rates; without those with stress if it knows none."""
    found = scores(answers, references)
    low, high = (f"{100 * found[f'word_error_rate_{end}']:.1f}" for end in ("low", "high"))
    with_stress = [f"{found[f'{unit}_error_rate_with_stress']:.2%}" if stress else "" for unit in ("word", "phoneme")]
    error = f"{found['word_error_rate']:.2%} [{low}, {high}]"
    return [name, error, f"{found['phoneme_error_rate']:.2%}", *with_stress]


def main() -> None:
    """Scores both on the test words."""
    parser = options(__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=MODELS_FOLDER / "pronounce" / "1", help="an export")
    parser.add_argument("--folder", type=pathlib.Path, help="the folder of cmudict.dict; default: the user's cache")
    parser.add_argument("--validation", action="store_true", help="ask for the validation words instead of the test's")
    parser.add_argument("--train-words", type=int, help="let Phonetisaurus learn from so many pairs, to try the script")
    arguments = parser.parse_args()
    with Recording(__file__, arguments.record, "tensorflow", "phonetisaurus") as recording:
        corpus = CMUdict(folder=arguments.folder)
        train = corpus.read("train")
        train = Pairs(train.sources[: arguments.train_words], train.targets[: arguments.train_words])
        words, references, _ = by_source(corpus.read("validation" if arguments.validation else "test"))
        rows = [row("`saved_models/pronounce`", released_model(arguments.model, words), references)]
        for name, stress in (("Phonetisaurus", True), ("Phonetisaurus, trained without stress marks", False)):
            rows.append(row(name, phonetisaurus_answers(train, words, stress), references, stress))
        columns = ["", "words wrong", "phonemes wrong", "words, with stress", "phonemes, with stress"]
        recording.table(Table(f"Error rates on {len(words):,} words, with the 95% interval", columns, rows))


if __name__ == "__main__":
    main()
