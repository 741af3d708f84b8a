"""The page of a picture: what is inside, and that no text gets out of its place. What a browser makes of it is in
tests/browser/test_pictures_in_browser.py."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps, to_html

MARKUP = ["<script>alert(1)</script>", "</svg>", "</style>", "</title>", "-->", "<!--", "]]>", "&", "&lt;", '"', "'"]
CONTROLS = ["\0", "\x1b", "\x85", "\ufffd", "\ufffe", "\u202e", "\u2066", "\u2069", "\u200d", "\ud800", "\u2028", "\n"]
HOSTILE = [*MARKUP, *CONTROLS, "", "javascript:"]


class Page(HTMLParser):
    """Finds the elements and the scripts of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.inside = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def answer(text):
    page = Page(text)
    assert [attributes.get("id") for tag, attributes in page.elements if tag == "script"] == ["answer", None]
    return json.loads(page.scripts[0])


def weights_of(kind):
    return np.frombuffer(base64.b64decode(kind["weights"]), "<f4").reshape(kind["shape"])


def some(title=None, source=("न", "\u0902", " "), **options):
    weights = np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])
    return Alignment(list(source), ["1", "</s>"], weights, title=title, **options)


def grid(**options):
    random = np.random.default_rng(0).random((2, 3, 2, 4)) / 4
    source = [*"abc", "</s>"]
    within = AttentionMaps("Self-attention", source, source, np.full((1, 3, 4, 4), 0.25))
    return AttentionGrid(AttentionMaps("To the source", source, ["x", "</s>"], random), within, **options), random


def test_an_alignment_is_a_grid_of_one_map():
    pictures = [some("Hindi", caption="score −0.1"), some("French", "nov")]
    found = answer(to_html(pictures, "Dates", columns=np.int64(2), vmax=np.float32(0.5)))
    assert (found["title"], found["columns"], found["vmax"]) == ("Dates", 2, 0.5)
    hindi, french = found["pictures"]
    assert (hindi["title"], hindi["notes"], hindi["source_text"]) == ("Hindi", ["score −0.1"], "नं")
    assert french["spoken"].startswith("French: attention weights of 2 output tokens (rows) over 3 source tokens")
    (kind,) = hindi["kinds"]
    assert (kind["source_tokens"], kind["target_tokens"]) == (["न", "\u0902", " "], ["1", "</s>"])
    np.testing.assert_array_equal(weights_of(kind), np.float32([[[[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]]]]))


def test_every_head_of_every_layer_is_inside():
    picture, weights = grid(source_text="Ab <c>")
    (found,) = answer(to_html([picture]))["pictures"]
    first, within = found["kinds"]
    np.testing.assert_array_equal(weights_of(first), weights.astype("f4"))
    assert (first["layers"], first["heads"]) == (["layer 1", "layer 2"], ["head 1", "head 2", "head 3"])
    assert within["target_tokens"] is None, "a text that attends to itself stands there once"
    assert found["source_text"] == "Ab <c>"


def test_alignments_and_grids_may_stand_together():
    assert len(answer(to_html([some(), grid()[0]]))["pictures"]) == 2


def test_a_text_that_attends_to_itself():
    def target(target_text):
        picture = Alignment(["a", "b"], ["a", "b"], [[1, 0], [0.5, 0.5]], target_text=target_text)
        return answer(to_html(picture))["pictures"][0]["kinds"][0]["target_tokens"]

    assert target("ab") is None
    assert target("AB") == ["a", "b"]


def test_asks_nobody():
    text = to_html([some("Dates")], title="t")
    for _, attributes in Page(text).elements:
        assert not attributes.keys() & {"src", "href", "xlink:href", "srcset", "data", "onclick", "onload"}
    (policy,) = (each["content"] for tag, each in Page(text).elements if "http-equiv" in each)
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy
    assert not re.search(r"@import|<link|<iframe", text)


def test_hostile_tokens_and_texts_stay_in_the_answer():
    joined = "".join(HOSTILE)
    weights = np.full((3, len(HOSTILE)), 0.03)
    texts = dict(source_text=joined, target_text=joined, title=joined, caption=joined)
    text = to_html([Alignment(HOSTILE, HOSTILE[:3], weights, **texts), some()], title=joined)
    assert [tag for tag, _ in Page(text).elements] == [tag for tag, _ in Page(to_html(some())).elements]
    found = answer(text)
    assert found["title"] == found["pictures"][0]["title"] == joined
    assert found["pictures"][0]["kinds"][0]["source_tokens"] == HOSTILE
    inside = Page(text).scripts[0]
    assert inside.isascii() and not re.search("[<\x00-\x1f]", inside)
    text.encode()


def test_notes_say_that_a_source_was_cut_and_how_columns_run():
    def told(picture):
        return answer(to_html(picture))["pictures"][0]["notes"]

    assert told(Alignment(["a"], ["b"], [[1.0]], source_text="a <b>", caption="C")) == [
        "C",
        "The source was cut after 1 tokens. The model did not read “<b>”.",
    ]
    (note,) = told(some(source="نوف"))
    assert note.startswith("The source is written from right to left.")
    assert note.endswith(": the first token is the leftmost column.")
    (note,) = told(Alignment([*"نو"], [*"نو"], np.eye(2)))  # of a language model
    assert note.startswith("The text is written from right to left.")
    assert told(some()) == []


@pytest.mark.parametrize("wrong", [0, -1, 1.5])
def test_numbers_of_columns_that_there_are_not(wrong):
    with pytest.raises(ValueError, match=rf"^`columns` must be an integer of at least 1\. Received: columns={wrong}$"):
        to_html(some(), columns=wrong)
