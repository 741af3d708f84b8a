"""Error rates of pronunciations, counted by hand."""

import math
from typing import ClassVar

import pytest
from zoo_training.corpora.pairs import Pairs
from zoo_training.scoring.evaluation import evaluate
from zoo_training.scoring.headline import headline, headlines
from zoo_training.scoring.pronunciation import edit_distance, scores, without_stress

from zoo.tasks.results import Translation

# Word by word: right; right by its second pronunciation; wrong in stress alone; one sound replaced and one too many;
# nothing at all.
OUTPUTS = ["HH AH0 L OW1", "EY1", "R IH1 K AO0 R D", "K AE1 T S", ""]
REFERENCES = [
    ["HH AH0 L OW1", "HH EH0 L OW1"],
    ["AH0", "EY1"],
    ["R IH0 K AO1 R D", "R EH1 K ER0 D"],
    ["K AH1 T", "D AO1 G Z IY0"],
    ["B"],
]


class TestScores:
    def test_by_hand(self):
        found = scores(OUTPUTS, REFERENCES)
        # Without stress two words of five are wrong, with it three.
        assert found["word_error_rate"] == 0.4
        assert found["word_error_rate_with_stress"] == 0.6
        # The nearest pronunciations have 4 + 1 + 6 + 3 + 1 sounds: 2 edits in `K AE T S`, 1 in the empty output.
        assert found["phoneme_error_rate"] == pytest.approx(3 / 15, abs=1e-6)
        # With stress, `R IH1 K AO0 R D` is 2 from its first pronunciation, and 3 from its second.
        assert found["phoneme_error_rate_with_stress"] == pytest.approx(5 / 15, abs=1e-6)

    def test_of_equally_near_ones_the_first_counts(self):
        for references, length in ((["A B", "A C D"], 2), (["A C D", "A B"], 3)):
            assert scores(["A C"], [references])["phoneme_error_rate"] == pytest.approx(1 / length, abs=1e-6)

    def test_the_interval_is_that_of_the_formula(self):
        # (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n) with p = 2/5, n = 5
        z, n, p = 1.959964, 5, 0.4
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        found = scores(OUTPUTS, REFERENCES)
        assert found["word_error_rate_low"] == pytest.approx((p + z * z / (2 * n) - half) / (1 + z * z / n), abs=1e-5)
        assert found["word_error_rate_high"] == pytest.approx((p + z * z / (2 * n) + half) / (1 + z * z / n), abs=1e-5)

    def test_more_than_there_are_can_be_wrong(self):
        assert scores(["A B C"], [["D"]])["phoneme_error_rate"] == 3.0


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("", "ab", 2),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("ab", "ba", 2),
        ("abcd", "acbd", 2),
        (["AH0", "L"], ["AH0L"], 2),
    ],
)
def test_edit_distance(first, second, distance):
    assert edit_distance(first, second) == edit_distance(second, first) == distance


def test_only_marks_of_stress_are_left_out():
    assert without_stress("HH AH0 L OW1 ER2") == "HH AH L OW ER"
    assert without_stress("1 A1B AH3 AH00 UW1") == " A1B AH3 AH0 UW"


class TestEvaluation:
    """Each word is one, whatever number of pronunciations it has."""

    PAIRS = Pairs(["a", "record", "a", "cat", "record"], ["AH0", "R IH0 K", "EY1", "K AE1 T", "R EH1 K"])
    OUTPUTS: ClassVar[dict[str, str]] = {"a": "EY1", "record": "R IH1 K", "cat": "K AE1"}

    def evaluate(self, batch_size):
        advanced = []
        result = evaluate(self, self.PAIRS, batch_size, advanced.append, "word_error_rate").as_dict()
        assert sum(advanced) == len(self.PAIRS)
        return result

    def translate(self, texts, batch_size):
        assert len(texts) <= batch_size
        return [Translation(text, self.OUTPUTS[text], 0.0) for text in texts]

    @pytest.mark.parametrize("batch_size", [1, 2, 4])
    def test_by_hand(self, batch_size):
        found = self.evaluate(batch_size)
        assert found["metric"] == "word_error_rate"
        assert found["word_error_rate"] == round(1 / 3, 6)
        assert found["phoneme_error_rate"] == round(1 / 7, 6)
        assert found["word_error_rate_with_stress"] == round(2 / 3, 6)
        assert found["phoneme_error_rate_with_stress"] == round(2 / 7, 6)
        assert (found["exact_match"], found["right"], found["total"]) == (round(1 / 3, 6), 1, 3)
        assert found["by_source_length"][1] == {"exact_match": 1.0, "right": 1, "total": 1}
        assert sorted(found["mistakes"], key=lambda mistake: mistake["source"]) == [
            {"source": "cat", "target": "K AE1 T", "output": "K AE1"},
            {"source": "record", "target": "R IH0 K | R EH1 K", "output": "R IH1 K"},
        ]

    def test_headlines(self):
        metrics = {**self.evaluate(2), "split": "test"}
        assert headlines(metrics) == {
            "word error rate": "33.33% [6.1, 79.2]",
            "phoneme error rate": "14.29%",
            "word error rate with stress": "66.67%",
            "phoneme error rate with stress": "28.57%",
        }
        assert headline(metrics) == "33.33% [6.1, 79.2] word error rate on 3 test words"
