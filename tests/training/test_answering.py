"""How the commands call a model: batches of similar lengths, in threads, in the order of the lines."""

import itertools
import threading
import time

import pytest
from zoo_training.answering import answers, chunks


class TestAnswers:
    def call(self, texts, *sizes, wait=lambda batch: None):
        batches = []

        def model(batch):
            wait(batch)
            batches.append(batch)
            return [text.upper() for text in batch]

        found = list(answers(model, iter(texts), *sizes))
        return found, batches

    @pytest.mark.parametrize("threads", [1, 3])
    def test_come_in_the_order_of_the_lines(self, threads):
        texts = ["dddd", "a", "ccc", "bb", "eeeee", "f", "gg"]
        found, batches = self.call(texts, 5, 2, threads)
        assert found == [["DDDD", "A", "CCC", "BB", "EEEEE"], ["F", "GG"]]
        wanted = [["a", "bb"], ["ccc", "dddd"], ["eeeee"], *([["f", "gg"]] if threads == 1 else [["f"], ["gg"]])]
        assert sorted(batches) == sorted(wanted)

    def test_of_slow_batches_come_in_order(self):
        texts = [f"{n:03}" for n in range(40)]
        found, _ = self.call(texts, 10, 3, 4, wait=lambda batch: time.sleep(0.02 if "000" in batch else 0))
        assert [each for chunk in found for each in chunk] == texts

    def test_batches_run_at_once(self):
        both = threading.Barrier(2, timeout=30)  # breaks unless two calls wait at the same time
        found, _ = self.call(["a", "b"], 4, 1, 2, wait=lambda batch: both.wait())
        assert found == [["A", "B"]]

    def test_what_has_come_is_answered_before_more_is_waited_for(self):
        """As of `tail --follow`; but texts that come soon are answered together."""
        read = []

        def lines():
            for text in "abcdefg":
                read.append(text)
                yield text

        def more(seconds):
            assert 0 <= seconds <= 0.05
            return read[-1] not in "be"

        found = [("".join(each), len(read)) for each in answers(list, lines(), 2, 64, 1, more)]
        assert found == [("ab", 2), ("cd", 5), ("e", 5), ("fg", 7)]

    def test_an_error_ends_it(self):
        def refuse(batch):
            raise ValueError("not this")

        with pytest.raises(ValueError, match=r"^not this$"):
            list(answers(refuse, iter("abcdef"), 2, 1, 2))


def test_chunks_hold_every_line_once_in_order():
    for number in (0, 3, 7):
        parts = list(chunks(iter(map(str, range(number))), 3))
        assert [*itertools.chain(*parts)] == [str(line) for line in range(number)]
        assert all(len(chunk) == 3 for chunk in parts[:-1])
