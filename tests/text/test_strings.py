"""White space around texts, as Python knows it."""

import tensorflow as tf

from zoo.text.tokenizer import strip

WHITE = [chr(number) for number in range(0x110000) if chr(number).isspace()]


def test_as_str_strip():
    inner = "a \u00a0b"
    texts = ["", "a", inner, *WHITE, *(each + inner + each + "\n" for each in WHITE), "\u200b a \ufeff", " \u3000\n"]
    found = strip(tf.constant([each.encode() for each in texts]))
    assert len(WHITE) > 20
    assert [each.decode() for each in found.numpy()] == [each.strip() for each in texts]


def test_broken_bytes_stay():
    assert strip(tf.constant([b" \xff\xfe a\xe2\x80 ", b"\xff"])).numpy().tolist() == [b"\xff\xfe a\xe2\x80", b"\xff"]
