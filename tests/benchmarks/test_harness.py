"""Races of contestants, each in a separate process."""

import os
import time

import harness
import pytest
from harness import Contestant, race


def sleeper(seconds):
    return lambda: time.sleep(seconds)


def quitter():
    os._exit(3)


def test_each_has_its_turns():
    quick, slow = race([Contestant("quick", sleeper, (0.01,)), Contestant("slow", sleeper, (0.1,))], rounds=3, steps=2)
    assert (quick.name, len(quick.rounds), len(slow.rounds)) == ("quick", 3, 3)
    assert 0.01 <= quick.median < 0.1 <= slow.median


def noted(path, value):
    """A step that writes which process ran it, and with what."""

    def step():
        with path.open("a") as file:
            file.write(f"{os.getpid()} {value}\n")

    return step


def test_a_process_stays_for_the_next_race(tmp_path):
    """For the contestant of the same name; two of one name in one race have two processes."""
    path = tmp_path / "steps.txt"
    for value in (1, 2):
        them = [Contestant(name, noted, (path, value)) for name in ("same", "same", f"only in {value}")]
        race(them, rounds=2, steps=1, warm_up=0)
    steps = [line.split() for line in path.read_text().splitlines()]
    first, second = ({pid for pid, value in steps if value == which} for which in "12")
    assert len(first) == len(second) == 3
    assert len(first & second) == 2
    assert len(steps) == 2 * 2 * 3


def slow_and_noted(path):
    step = noted(path, "slow")
    return lambda: (step(), time.sleep(harness.TURN + 0.01))


def test_a_turn_of_long_steps_has_fewer_of_them(tmp_path):
    """But one at least; and before the first turn one that may compile, and one more."""
    path = tmp_path / "steps.txt"
    (timing,) = race([Contestant("slow", slow_and_noted, (path,))], rounds=2, steps=5, warm_up=3)
    assert len(path.read_text().splitlines()) == 2 + 2
    assert timing.median > harness.TURN


def test_who_ends_early_is_named():
    with pytest.raises(RuntimeError, match="quitter ended with exit code 3"):
        race([Contestant("quick", sleeper, (0.01,)), Contestant("quitter", quitter)], rounds=1)
