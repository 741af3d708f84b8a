"""Keywords of emoji: words as people type them, divided by emoji, none in two languages."""

import collections
import dataclasses
import hashlib
import io
import json
import tarfile

import pytest
from zoo_training.corpora import keywords as module
from zoo_training.corpora import language_texts
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.keywords import keywords
from zoo_training.corpora.language_texts import writers

ANNOTATIONS = {
    "de": {
        "👋": {"tts": ["winkende Hand"], "default": ["hallo", "Hand", "winkende Hand", "wie geht’s?", "g2g", "(Gruß)"]},
        "🌍": {"default": ["Afrika", "Globus\u00ad"]},
    },
    "nl": {"👋": {"tts": ["zwaaiende hand"], "default": ["hallo", "gedag"]}, "🌍": {"tts": ["Afrika"]}},
    "no": {"👋": {"default": ["hei"]}},
    "zh-Hant": {"👋": {"default": ["揮手", "手"]}},
}  # fmt: skip


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder with a small file in the public one's place."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, annotations in ANNOTATIONS.items():
            content = json.dumps({"annotations": {"annotations": annotations}}).encode()
            member = tarfile.TarInfo(f"package/annotations/{name}/annotations.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    (tmp_path / module._FILE).write_bytes(packed.getvalue())
    checksums = {module._FILE: hashlib.sha256(packed.getvalue()).hexdigest()}
    monkeypatch.setattr(module, "_PUBLIC", dataclasses.replace(module._PUBLIC, checksums=checksums))
    return tmp_path


def test_keywords_are_words_without_punctuation_each_once(folder):
    found = keywords(["zh_Hant", "nb", "de", "ku"], folder)
    assert found["de"] == {"👋": ["winkende Hand", "hallo", "Hand", "wie geht’s"], "🌍": ["Afrika", "Globus"]}
    assert found["nb"] == {"👋": ["hei"]} and found["ku"] == {}
    assert found["zh_Hant"] == {"👋": ["揮手"]}  # a single sign may be of many languages


@pytest.fixture
def without_declaration(monkeypatch):
    monkeypatch.setattr(language_texts, "running_texts", lambda *_: collections.defaultdict(dict))


def test_an_emoji_is_in_one_split_and_a_text_in_one_language(folder, without_declaration):
    by_split = writers(("de", "nl"), 0, True, folder)
    german, dutch = ({split: set(of_split[place].keywords) for split, of_split in by_split.items()} for place in (0, 1))
    waving = {"winkende Hand", "Hand", "wie geht’s"}  # 'hallo' is Dutch, too, as 'Afrika' is
    [split] = [split for split, words in german.items() if "Hand" in words]
    assert german[split] - {"Globus"} == waving and dutch[split] == {"zwaaiende hand", "gedag"}
    assert set().union(*german.values()) == waving | {"Globus"} and set().union(*dutch.values()) == dutch[split]


def test_a_name_in_training_is_no_keyword_that_is_held_out(folder, without_declaration):
    for seed in range(4):
        seen = set()
        for of_split in writers(("de", "fi"), seed, True, folder).values():
            words = {text.casefold() for _, text in of_split[0].names}
            words |= {text.casefold() for text in of_split[0].keywords}
            assert not words & seen
            seen |= words
        assert {"hallo", "afrika"} <= seen


def test_a_missing_file_that_cannot_be_downloaded_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_PUBLIC", dataclasses.replace(module._PUBLIC, address="file:///nowhere"))
    with pytest.raises(CorpusError, match=r"cldr-annotations-full-48\.2\.0\.tgz is missing, and .* be downloaded"):
        keywords(["de"], tmp_path)
