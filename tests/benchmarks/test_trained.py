"""The tables of `trained.py`: what is kept without a model, and the mean of several seeds."""

import json
import sys

import results
import trained

FIRST = ["`a`", "1,000", "40.00 [39.0, 41.0]", "39.00 [38.0, 40.0]", "60.00 [59.0, 61.0]", "7.0%", "66"]
SECOND = ["`a`", "1", "42.00 [41.0, 43.0]", "40.00 [39.0, 41.0]", "61.00 [60.0, 62.0]", "8.0%", "157"]


def test_a_mean_of_two_seeds():
    other = ["`b`", *FIRST[1:]]
    rows = trained.seed_rows([FIRST, other], [SECOND], [])
    assert rows[:2] == [["`a`", "0", *FIRST[2:]], SECOND]
    scores = ["41.00 ± 1.41", "39.50 ± 0.71", "60.50 ± 0.71", "7.5% ± 0.7"]
    assert rows[2:] == [["`a`", "mean and standard deviation", *scores, ""]]
    score = trained.with_mean("**40.00** BLEU; published: 39.0", "`zoo train a`", rows)
    assert score == "**40.00** BLEU; mean of 2 seeds 41.00 ± 1.41; published: 39.0"
    assert trained.with_mean(score, "`zoo train a`", rows) == score
    assert trained.with_mean("**40.00** BLEU", "`zoo train b`", rows) == "**40.00** BLEU"


def test_what_was_recorded_is_kept_without_the_models(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trained.py", "--models", str(tmp_path)])
    trained.main()
    printed = capsys.readouterr().out
    tables = json.loads((results.FOLDER / "trained.json").read_text())["tables"]
    assert len(tables) == 4
    for row in (row for table in tables for row in table["rows"]):
        assert f"| {' | '.join(row)} |" in printed
