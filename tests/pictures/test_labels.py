import pytest

from zoo.pictures.labels import describe, is_right_to_left, label, readable, rise, turns, width


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("a", "a"),
        (" ", "␣"),
        ("▁the", "▁the"),
        (" the", "␣the"),
        ("\u00a0", "⍽"),
        ("\u202f", "⍽"),
        ("\n", "↵"),
        ("\t", "⇥"),
        ("", "∅"),
        ("\u0902", "◌\u0902"),  # Devanagari anusvara
        ("\u0bbe", "◌\u0bbe"),  # Tamil vowel sign aa, a spacing mark
        ("\u0e31น", "◌\u0e31น"),  # a subword that begins inside a cluster
        ("न\u0902", "न\u0902"),
        ("\0", "U+0000"),
        ("\x1b[0m", "U+001B[0m"),
        ("\u2028", "U+2028"),
        ("\u202e", "U+202E"),
        ("a\u2066b", "aU+2066b"),
        ("\u200f", "U+200F"),
        ("\u200c", "U+200C"),
        ("ක\u0dca\u200dර", "ක\u0dca\u200dර"),  # the joiner makes this a conjunct: a part of the spelling
        ("\ufeff", "U+FEFF"),
        ("\ufffd", "\ufffd"),
        ("\ud800", "U+D800"),
        ("\U0010ffff", "U+10FFFF"),
    ],
)
def test_label_is_visible_and_harmless(token, shown):
    assert label(token) == shown


def test_describe_names_single_characters():
    assert describe("\u0902") == "U+0902 DEVANAGARI SIGN ANUSVARA"
    assert describe(" ") == "U+0020 SPACE"
    assert describe("\0") == "U+0000"
    assert describe("</s>") == "</s>"


def test_running_text_keeps_spelling_and_loses_controls():
    assert readable("نامه\u200cها 21\u200f/11") == "نامه\u200cها 21\u200f/11"
    assert readable("a\u00a0b\nc\td") == "a\u00a0b c d"
    assert readable("a\u202eb\0\ud800\u2069") == "aU+202EbU+0000U+D800U+2069"


def test_right_to_left():
    assert is_right_to_left("21 נוב")
    assert is_right_to_left("٢١ نوفمبر")
    assert not is_right_to_left("٢١")  # digits alone are written from left to right
    assert not is_right_to_left("2026年")


def test_marks_take_no_width_and_wide_letters_a_whole_one():
    assert width("年") == 1.0
    assert width("न\u0902") == width("न")


def test_labels_stand_on_end_where_long_ones_are_rare_and_slant_where_common():
    characters = [*"2026年", "</s>"]
    assert turns(characters, room=1.5) == [0, 0, 0, 0, 0, 90]
    words = ["▁on", "▁the", "▁Area", "s", "</s>"]
    assert turns(words, room=1.5) == [45] * 5
    assert turns(["◌\u0bbe", "◌\u17c5"] * 5, room=1.0) == [0] * 10  # one letter each, however wide


def test_rise():
    assert rise(["a", "b"], [0, 0]) == 0.9
    assert rise(["a", "</s>"], [0, 90]) == pytest.approx(2.4)
    assert rise(["abcde", "a"], [45, 45]) == pytest.approx(3.0 / 2**0.5)
