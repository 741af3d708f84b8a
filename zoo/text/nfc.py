"""Unicode's NFC in the graph, for texts of any characters."""

import tensorflow as tf

from zoo.text.canonical import canonical_characters
from zoo.text.normalization import Composition

# All of these are their own NFC, whatever stands beside them among their kind.
_PLAIN = r"[\x00-\x{2ff}]*"


class Nfc(tf.Module):
    """Brings texts into NFC, the form of Unicode with the fewest code points (Unicode Standard Annex #15).

    The same letter can be written with one code point or several: `é` is U+00E9, or `e` and U+0301. TensorFlow has no
    operation for it; `Composition` is one, here over all characters that have another form. Texts of plain Latin
    letters pass after one regular expression, others without marks after one table lookup.
    """

    def __init__(self):
        super().__init__()
        self._composition = Composition(canonical_characters())

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Turns valid UTF-8 `(B,)` into its NFC, `(B,)`."""
        return tf.cond(
            tf.reduce_all(tf.strings.regex_full_match(texts, _PLAIN)), lambda: texts, lambda: self._composed(texts)
        )

    def _composed(self, texts):
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        return tf.strings.unicode_encode(self._composition(code_points), "UTF-8", errors="replace")
