"""The pages beside the README: their links lead somewhere, and what they name is there."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
NAMES = ("CONTRIBUTING.md", "docs/adding_a_family.md", "benchmarks/notes.md", "CHANGELOG.md")
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGES[name]) if "://" not in link}
    assert len(links) > 1 or name not in NAMES[:2]
    for link in links:
        assert ((ROOT / name).parent / link).exists(), link


@pytest.mark.parametrize("name", PAGES)
def test_files_and_names_are_there(name):
    for path in re.findall(r"`((?:zoo|training|tests|docs)/[\w/]+\.(?:py|md))`", PAGES[name]):
        assert (ROOT / path).exists(), path
    for module, attribute in re.findall(r"`(zoo(?:\.\w+)*)\.(\w+)[`(]", PAGES[name]):
        assert hasattr(importlib.import_module(module), attribute), f"{module}.{attribute}"


def test_make_targets_are_there():
    targets = re.findall(r"`make ([\w-]+)`", PAGES["CONTRIBUTING.md"])
    assert len(targets) > 4
    for target in targets:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
