"""The examples in the docstrings of the library and of the corpora do what they say."""

import contextlib
import doctest
import importlib
import pkgutil

import zoo_training.corpora

import zoo
from zoo.extras import MissingExtraError


def test_examples_run():
    attempted = {}
    for package in (zoo, zoo_training.corpora):
        names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        for name in [package.__name__, *names]:
            with contextlib.suppress(MissingExtraError):  # zoo.beam without Beam
                failed, attempted[name] = doctest.testmod(importlib.import_module(name))
                assert failed == 0, f"{failed} of the examples in {name}"  # the report is in the captured output
    with_examples = {name for name, number in attempted.items() if number}
    expected = {"zoo.layers.additive_attention", "zoo.models.rnn_seq2seq", "zoo_training.corpora.date_formats"}
    assert expected <= with_examples
