"""Exact match counted by hand, by group and by length; BLEU of what came out in the order of the pairs."""

import random

import pytest
from zoo_training.corpora.pairs import Pairs
from zoo_training.scoring.bleu import scores
from zoo_training.scoring.evaluation import SHOWN_MISTAKES, Accuracy, evaluate
from zoo_training.scoring.headline import headline

from zoo.tasks.results import Translation


class Upper:
    """Turns text into capitals, but for those beyond ASCII, and counts how often it was called."""

    calls = 0

    def translate(self, texts, batch_size):
        assert 0 < len(texts) <= batch_size
        self.calls += 1
        return [Translation(text, text.encode().upper().decode(), 0.0) for text in texts]


PAIRS = Pairs(
    sources=["ab", "cd", "e", "fgh", "ij", "k"],
    targets=["AB", "Cd", "E", "FGH", "IJ ", "k"],
    groups=["x", "y", "x", "y", "x", "y"],
)


class TestTallies:
    def test_by_hand(self):
        assert evaluate(Upper(), PAIRS).as_dict() == {
            "metric": "exact_match",
            "exact_match": 0.5,
            "right": 3,
            "total": 6,
            "by_group": {
                "x": {"exact_match": 0.666667, "right": 2, "total": 3},
                "y": {"exact_match": 0.333333, "right": 1, "total": 3},
            },
            "by_source_length": {
                1: {"exact_match": 0.5, "right": 1, "total": 2},
                2: {"exact_match": 0.333333, "right": 1, "total": 3},
                3: {"exact_match": 1.0, "right": 1, "total": 1},
            },
            "mistakes": [
                {"source": "k", "target": "k", "output": "K"},
                {"source": "cd", "target": "Cd", "output": "CD"},
                {"source": "ij", "target": "IJ ", "output": "IJ"},
            ],
        }

    def test_without_groups(self):
        result = evaluate(Upper(), Pairs(PAIRS.sources, PAIRS.targets)).as_dict()
        assert result["by_group"] == {}
        assert (result["right"], result["total"]) == (3, 6)

    @pytest.mark.parametrize("batch_size", [1, 4])
    def test_neither_order_nor_batches_matter(self, batch_size):
        rows = list(zip(PAIRS.sources, PAIRS.targets, PAIRS.groups, strict=True))
        random.Random(batch_size).shuffle(rows)
        shuffled = Pairs(*(list(column) for column in zip(*rows, strict=True)))
        found, wanted = (evaluate(Upper(), pairs, batch_size).as_dict() for pairs in (shuffled, PAIRS))
        for result in (found, wanted):
            result["mistakes"].sort(key=lambda mistake: mistake["source"])
        assert found == wanted

    def test_any_of_the_words_with_the_sounds_is_right(self):
        pairs = Pairs(["hi", "b", "hi", "c"], ["HIGH", "BEE", "HI", "SEA"])
        found = evaluate(Upper(), pairs, metric="spelling").as_dict()
        assert (found["exact_match"], found["right"], found["total"]) == (round(1 / 3, 6), 1, 3)
        assert found["mistakes"][0] == {"source": "b", "target": "BEE", "output": "B"}
        assert headline({**found, "split": "test"}) == "33.33% exact match on 3 test pronunciations"

    def test_groups_and_lengths_are_in_order(self):
        result = evaluate(Upper(), Pairs(["ccc", "bb", "a"], ["", "", ""], ["z", "y", "x"])).as_dict()
        assert list(result["by_group"]) == ["x", "y", "z"]
        assert list(result["by_source_length"]) == [1, 2, 3]

    def test_not_more_mistakes_are_kept_than_anyone_reads(self):
        number = SHOWN_MISTAKES + 10
        result = evaluate(Upper(), Pairs(["a"] * number, ["b"] * number))
        assert len(result.mistakes) == SHOWN_MISTAKES
        assert (result.overall.correct, result.overall.total) == (0, number)
        assert Accuracy().rate == 0.0  # of nothing


class TestSentences:
    """Each target is its source in capitals, but for the third, of which half is."""

    SOURCES = ("one two three four five six", "seven eight nine ten", "eins zwei drei vier fünf sechs sieben acht")
    TARGETS = ("ONE TWO THREE FOUR FIVE SIX", "SEVEN EIGHT NINE TEN", "EINS ZWEI DREI VIER Five Six Seven Eight")

    def evaluate(self, **options):
        pairs = Pairs(list(self.SOURCES), list(self.TARGETS))
        return evaluate(Upper(), pairs, batch_size=2, **options).as_dict()

    def test_bleu_beside_the_exact_matches(self):
        result = self.evaluate(metric="bleu", language="en")
        assert result["metric"] == "bleu"
        outputs = [text.upper().replace("Ü", "ü") for text in self.SOURCES]
        wanted = scores(self.SOURCES, outputs, self.TARGETS, "en")
        assert {key: result[key] for key in wanted} == wanted
        assert (result["exact_match"], result["right"], result["total"]) == (0.666667, 2, 3)
        # 14 of 18 words, 11 of 15 pairs, 8 of 12 triples, 5 of 9 quadruples
        assert wanted["bleu"]["score"] == pytest.approx(
            100 * (14 / 18 * 11 / 15 * 8 / 12 * 5 / 9) ** (1 / 4), abs=0.005
        )

    def test_only_where_asked_for(self):
        exact, both = self.evaluate(language="en"), self.evaluate(metric="bleu", language="en")
        assert exact["metric"] == "exact_match"
        assert set(both) - set(exact) == {"bleu", "bleu_published_style", "chrf", "bleu_by_source_words"}
        assert {key: both[key] for key in exact if key != "metric"} == {k: exact[k] for k in exact if k != "metric"}


def test_a_batch_is_one_call_of_the_model_and_told_as_progress():
    told, model = [], Upper()
    evaluate(model, PAIRS, batch_size=4, advance=told.append)
    assert (told, model.calls) == ([4, 2], 2)
