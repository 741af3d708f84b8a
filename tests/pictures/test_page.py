import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps, to_html

MARKUP = ["<script>alert(1)</script>", "</svg>", "</style>", "</title>", "-->", "]]>", "&", "&lt;", '"', "'"]
CONTROLS = ["\0", "\x1b", "\x85", "\ufffd", "\ufffe", "\u202e", "\u2066", "\u2069", "\u200d", "\ud800", "\u2028", "\n"]
HOSTILE = [*MARKUP, *CONTROLS, "", "javascript:"]
OURS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "main", "figure", "figcaption"}
OURS |= {"dl", "dt", "dd", "div", "svg", "g", "rect", "path", "text"}


class Page(HTMLParser):
    """Reads a page and insists that every element that opens also closes, in order."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":  # never closed in HTML
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.stack[-1], data))

    def texts_in(self, tag):
        return [text for where, text in self.texts if where == tag]

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def some(title=None, source=("न", "\u0902", " "), **options):
    weights = np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])
    return Alignment(list(source), ["1", "</s>"], weights, title=title, **options)


def maps(text):
    found = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
    return [ElementTree.fromstring(svg) for svg in found if 'class="cells"' in svg]


def test_one_figure_for_each_alignment_with_its_running_texts():
    text = to_html([some("Hindi", caption="score −0.1"), some("French", "nov")], title="Dates")
    page = Page(text)
    assert page.texts_in("h1") == ["Dates"]
    assert page.texts_in("h2") == ["Hindi", "French"]
    assert page.texts_in("dd") == ["नं", "1", "nov", "1"]
    assert "score −0.1" in page.texts_in("p")
    assert len(page.named("figure")) == 2
    assert [svg.get("role") for svg in maps(text)] == ["img", "img"]  # each well-formed XML with a name
    assert maps(text)[0].get("aria-label").startswith("Hindi: attention weights of 2 output tokens")
    assert all(attributes == {"dir": "auto", "lang": ""} for attributes in page.named("dd"))


def test_is_a_utf8_page_for_light_and_dark_mode():
    text = to_html(some())
    assert text.startswith("<!DOCTYPE html>")
    assert Page(text).named("meta")[0] == {"charset": "utf-8"}
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text
    text.encode()


def test_heads_that_share_their_texts_show_them_once_in_columns():
    text = to_html([some(f"head {head}") for head in range(4)], columns=2)
    page = Page(text)
    assert page.texts_in("dd") == ["नं", "1"]
    assert page.texts_in("h2") == ["head 0", "head 1", "head 2", "head 3"]
    assert "repeat(2, minmax(0, 1fr))" in text and "max-width: 100%" in text


def test_nothing_is_loaded_from_elsewhere():
    text = to_html([some("Dates")], title="t")
    for _, attributes in Page(text).elements:
        assert not attributes.keys() & {"src", "href", "xlink:href", "srcset", "data", "onclick", "onload"}
    assert not re.search(r"url\(|@import|<script|<link|<iframe", text)
    addresses = set(re.findall(r'https?://[^\s"<]+', text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a namespace, which nothing fetches


def test_hostile_tokens_and_texts_stay_text():
    joined = "".join(HOSTILE)
    alignment = Alignment(
        HOSTILE,
        HOSTILE[:3],
        np.full((3, len(HOSTILE)), 0.03),
        source_text=joined,
        target_text=joined,
        title=joined,
        caption=joined,
    )
    text = to_html([alignment, some()], title=joined)
    page = Page(text)
    assert {tag for tag, _ in page.elements} == OURS
    assert len(maps(text)) == 2
    assert page.texts_in("h2")[0].startswith("<script>alert(1)</script></svg></style></title>-->]]>&&lt;")
    # Only our own isolates turn text around, always in pairs, and nothing is there that UTF-8 or HTML forbid.
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\u2066\u2067\ud800-\udfff\ufffe\uffff]", text)
    assert text.count("\u2068") == text.count("\u2069")
    text.encode()


def test_a_text_that_attends_to_itself_stands_there_once():
    def page(target_text):
        return Page(to_html(Alignment(["a", "b"], ["a", "b"], [[1, 0], [0.5, 0.5]], target_text=target_text)))

    assert (page("ab").texts_in("dt"), page("ab").texts_in("dd")) == (["text"], ["ab"])
    assert page("ab").texts_in("p")[0].startswith("A row is a token, a column a token that it attends to;")
    assert page("AB").texts_in("dt") == ["source →", "output ↓"]
    assert page("AB").texts_in("p")[0].startswith("A row is an output token, a column a source token;")


def test_a_source_cut_at_its_limit_says_so_below_the_map():
    page = Page(to_html(Alignment(["a"], ["b"], [[1.0]], source_text="a <b>", caption="C")))
    assert page.texts_in("p")[1:] == ["C", "The source was cut after 1 tokens. The model did not read “<b>”."]


def test_a_grid_is_a_picture_of_its_full_size_for_each_text():
    def grid(text):
        return AttentionGrid(AttentionMaps("t", ["a", "b"], ["x"], np.full((1, 2, 1, 2), 0.5)), source_text=text)

    text = to_html([grid("Ab <cd>"), grid("z")], title="T")
    assert text.count("<figure") == text.count("<svg") - 1 == 2
    assert "Ab &lt;cd&gt;" in text and "Each map is one head of one layer." in text
    assert "max-width: 100%" not in text  # nothing shrinks them


def test_right_to_left_sources_say_how_their_columns_run():
    assert any(
        "the first character is the leftmost column" in text for text in Page(to_html(some(source="نوف"))).texts_in("p")
    )
    assert "leftmost column" not in to_html(some())
