"""White space and UTF-8 in batches of strings."""

import itertools

import numpy as np
import tensorflow as tf

from zoo.text.strings import is_utf8, strip, valid_utf8

WHITE = [chr(number) for number in range(0x110000) if chr(number).isspace()]
# The first and the last byte of each kind, and those beside them.
BYTES = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 ed ef f0 f4 f5 ff")


def test_as_str_strip():
    inner = "a \u00a0b"
    texts = ["", "a", inner, *WHITE, *(each + inner + each + "\n" for each in WHITE), "\u200b a \ufeff", " \u3000\n"]
    found = strip(tf.constant([each.encode() for each in texts]))
    assert len(WHITE) > 20
    assert [each.decode() for each in found.numpy()] == [each.strip() for each in texts]


def test_broken_bytes_stay():
    assert strip(tf.constant([b" \xff\xfe a\xe2\x80 ", b"\xff"])).numpy().tolist() == [b"\xff\xfe a\xe2\x80", b"\xff"]


def decodable(text):
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_valid_utf8_is_told_from_other_bytes():
    short = [bytes(each) for size in range(4) for each in itertools.product(BYTES, repeat=size)]
    four = [bytes([first, *rest]) for first in (0xF0, 0xF1, 0xF4, 0xF5) for rest in itertools.product(BYTES, repeat=3)]
    texts = [*short, *four, *(chr(code).encode("utf-8", "surrogatepass") for code in range(0, 0x110000, 7))]
    np.testing.assert_array_equal(is_utf8(tf.constant(texts)), [decodable(text) for text in texts])
    expected = [text.decode("utf-8", "replace").encode() for text in texts]
    assert valid_utf8(tf.constant(texts)).numpy().tolist() == expected
    whole = [text for text in texts if decodable(text)]
    assert valid_utf8(tf.constant(whole)).numpy().tolist() == whole
