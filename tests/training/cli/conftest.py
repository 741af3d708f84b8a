"""The commands of these tests load each model once, and so trace its functions once."""

import functools
import pathlib

import pytest

import zoo

_load = zoo.load


@functools.cache
def _loaded(folder, path):
    return _load(path)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch):
    monkeypatch.setattr(zoo, "load", lambda path: _loaded(pathlib.Path.cwd(), path))
