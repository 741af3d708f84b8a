"""Races of contestants, each in a separate process."""

import os
import time

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


def test_who_ends_early_is_named():
    with pytest.raises(RuntimeError, match="quitter ended with exit code 3"):
        race([Contestant("quick", sleeper, (0.01,)), Contestant("quitter", quitter)], rounds=1)
