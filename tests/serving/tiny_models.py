"""SavedModels of a few operations each, as anybody may export them, for tests of servers."""

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from zoo.serving.layout import WARM_UP_FILE
from zoo.tasks.settings import SETTINGS

WRITTEN = "żółć, щи, 🙂🙂🙂🙂 and so on"


def signature(*specs):
    return tf.function(input_signature=[tf.TensorSpec(shape, dtype, name) for name, shape, dtype in specs])


def counted_to(end):
    return tf.while_loop(lambda n: n < end, lambda n: n + 1, [0], parallel_iterations=1)[0]


class Tiny(tf.Module):
    """Signatures of several kinds; `factor` says which version answers."""

    def __init__(self, factor):
        self.factor = tf.Variable(factor, dtype=tf.float32)

    @signature(("x", [None, 3], tf.float32))
    def scale(self, x):
        return {"scaled": self.factor * x, "total": tf.reduce_sum(x, -1)}

    @signature(("number", [None], tf.int64))
    def twice(self, number):
        return {"number": 2 * number}

    @signature(("text", [None], tf.string))
    def echo(self, text):
        return {"text": text, "raw_bytes": text}

    @signature(("a", [None], tf.int32), ("b", [None, None], tf.int32))
    def add(self, a, b):
        return {"sum": a[:, None] + b}

    @signature(("x", [None, 3], tf.float32))
    def mean(self, x):
        return {"mean": tf.reduce_mean(x)}

    @signature(("number", [None], tf.int32))
    def positive(self, number):
        with tf.control_dependencies([tf.debugging.assert_positive(number, "not positive")]):
            return {"number": tf.identity(number)}

    @signature(("number", [None], tf.int32))
    def different(self, number):
        """Its output has an axis of any size, but not a row for each of the input."""
        return {"number": tf.unique(number).y}

    @signature(("steps", [None], tf.int32))
    def count(self, steps):
        """Takes as long as it is told to."""
        return {"steps": tf.fill(tf.shape(steps), counted_to(tf.reduce_max(steps)))}

    @signature(
        ("text", [None], tf.string),
        *((name, [None], setting.dtype) for name, setting in SETTINGS.items()),
        ("stop", [None], tf.string),
    )
    def generate(self, text, max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop):
        """Counts to `top_k`, writes a byte of `WRITTEN` as each token, whatever the other settings, and then ends."""
        with tf.control_dependencies([counted_to(tf.reduce_max(top_k))]):
            max_new_tokens = tf.identity(max_new_tokens)
        written = tf.strings.substr(tf.fill(tf.shape(text), WRITTEN), tf.zeros_like(seed, tf.int32), max_new_tokens)
        written = tf.strings.unicode_transcode(written, "UTF-8", "UTF-8", "replace")
        tokens = tf.minimum(max_new_tokens, 1 + len(WRITTEN.encode()))
        return {"text": written, "tokens": tokens, "log_probability": temperature}

    @signature(("half", [None], tf.float16))
    def half(self, half):
        return {"half": half}


SIGNATURES = ("twice", "echo", "add", "mean", "positive", "different", "count", "generate", "half")


def save_tiny(folder, factor):
    """Exports it; its `serving_default` is `scale`."""
    module = Tiny(factor)
    signatures = {"serving_default": module.scale} | {name: getattr(module, name) for name in SIGNATURES}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def save_half_plus_three(folder):
    """A SavedModel of TensorFlow 1 like that in TensorFlow Serving's documentation, with a method `regress`."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        half = v1.get_variable("half", initializer=0.5, use_resource=False)
        y = half * x + 3.0
        session.run(v1.global_variables_initializer())
        tensors = {"x": v1.saved_model.utils.build_tensor_info(x)}, {"y": v1.saved_model.utils.build_tensor_info(y)}
        build = v1.saved_model.signature_def_utils.build_signature_def
        signatures = {
            "serving_default": build(*tensors, "tensorflow/serving/predict"),
            "regress_x": build(*tensors, "tensorflow/serving/regress"),
        }
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return folder


def write_warm_up(folder, *requests):
    """Requests, each the name of a signature and its inputs, into a version's folder."""
    path = folder / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = name
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
