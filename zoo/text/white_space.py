"""What surrounds a text and is none of it."""

import tensorflow as tf

_SPACE = r"[\t-\r\x1c-\x20\x{85}\p{Z}]"  # what `str.isspace` calls so
_AROUND = rf"\A{_SPACE}+|{_SPACE}+\z"


def strip(texts: tf.Tensor) -> tf.Tensor:
    """Texts `(B,)` without the white space around them, as `str.strip`; `tf.strings.strip` knows ASCII's alone."""
    return tf.strings.regex_replace(texts, _AROUND, "")
