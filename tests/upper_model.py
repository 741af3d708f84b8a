"""A SavedModel of a few operations with several signatures, of which one fails for the text "bad"."""

import tensorflow as tf


class Upper(tf.Module):
    """Signatures of a few operations each; `mark` says which model answers."""

    def __init__(self, mark):
        self.mark = tf.Variable(mark)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def upper(self, text):
        with tf.control_dependencies([tf.debugging.assert_none_equal(text, "bad", message="a bad text")]):
            return {"text": self.mark + tf.strings.upper(text), "length": tf.strings.length(text)}

    @tf.function(
        input_signature=[tf.TensorSpec([None, 2], tf.string, "pair"), tf.TensorSpec([None], tf.int64, "times")]
    )
    def pairs(self, pair, times):
        raw = tf.tile(tf.constant([b"\xff"]), tf.shape(times))
        return {"swapped": pair[:, ::-1], "powers": times[:, None] ** tf.constant([1, 2, 3], tf.int64), "raw": raw}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def most(self, text):
        return {"count": tf.size(text)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([None], tf.float32, "hidden")]
    )
    def other(self, text, hidden):
        return {"text": text, "twice": 2 * hidden}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string, "text")])
    def any(self, text):
        return {"same": text}

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, "text")])
    def one(self, text):
        return {"text": text}


def save_upper(folder, mark):
    model = Upper(mark)
    signatures = {name: getattr(model, name) for name in ("pairs", "most", "other", "any", "one")}
    tf.saved_model.save(model, str(folder), {"serving_default": model.upper, **signatures})
    return folder
