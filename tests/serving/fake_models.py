"""Models for the fake servers: of Python functions, or of an export."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2


@dataclasses.dataclass
class Model:
    """One version of a model."""

    signatures: get_model_metadata_pb2.SignatureDefMap
    call: Callable[..., dict[str, np.ndarray]]  # of the signature's name, and the inputs as keywords


def model_of(functions):
    """A model of Python functions: `{name: (inputs, outputs, function)}`, tensors as `{name: (dtype, shape)}`."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, (inputs, outputs, _) in functions.items():
        signature = signatures.signature_def[name]
        for tensors, found in ((signature.inputs, inputs), (signature.outputs, outputs)):
            for key, (dtype, shape) in found.items():
                tensors[key].dtype = tf.as_dtype(dtype).as_datatype_enum
                tensors[key].tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return Model(signatures, lambda name, /, **inputs: functions[name][2](**inputs))


def model_from(version, loaded=None):
    """A model of an exported version's folder, which may be loaded already."""
    saved = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=saved.meta_graphs[0].signature_def)
    loaded = loaded or tf.saved_model.load(str(version))

    def call(name, /, **inputs):
        dtypes = {key: tf.as_dtype(tensor.dtype) for key, tensor in signatures.signature_def[name].inputs.items()}
        tensors = {key: tf.constant(array, dtypes[key], array.shape) for key, array in inputs.items()}
        return {key: tensor.numpy() for key, tensor in loaded.signatures[name](**tensors).items()}

    model = Model(signatures, call)
    model.loaded = loaded  # or its variables are gone
    return model


TEXT = {"text": (tf.string, [None])}
NUMBERS = {"log_probability": (tf.float32, [None]), "tokens": (tf.int32, [None])}
SETTINGS = {
    "max_new_tokens": (tf.int32, [None]),
    "temperature": (tf.float32, [None]),
    "top_k": (tf.int32, [None]),
    "top_p": (tf.float32, [None]),
    "repetition_penalty": (tf.float32, [None]),
    "seed": (tf.int64, [None]),
    "stop": (tf.string, [None]),
}


def strings(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def upper(text):
    """In the place of a translation the text in capitals, and -its length, halved, as the score."""
    return {
        "text": strings([each.decode("utf-8", "replace").upper().encode() for each in text]),
        "score": np.array([-len(each) / 2 for each in text], "float32"),
    }


def tell(text, seed, stop, **numbers):
    """In the place of a continuation all that was asked for, row by row."""
    shown = zip(text, seed, stop, *(numbers[key] for key in sorted(numbers)), strict=True)
    texts = [f"{s} {t!r} {[round(float(n), 3) for n in rest]}".encode() for _, s, t, *rest in shown]
    return {"text": strings(texts), **score(text)}


def score(text):
    return {
        "log_probability": np.array([-len(each) / 2 for each in text], "float32"),
        "tokens": np.array([len(each) for each in text], "int32"),
    }


KINDS = {
    "flags": (tf.bool, [None]),
    "small": (tf.uint8, [None]),
    "whole": (tf.int64, [None]),
    "double": (tf.float64, [None, 2]),
}

TRANSLATOR = {
    "serving_default": (TEXT, {**TEXT, "score": (tf.float32, [None])}, upper),
    "generate": (
        {**TEXT, "max_target_length": (tf.int32, [None]), "length_penalty": (tf.float32, [None])},
        {**TEXT, "score": (tf.float32, [None])},
        lambda text, max_target_length, length_penalty: {
            **upper(strings([each[:most] for each, most in zip(text, max_target_length, strict=True)])),
            "score": length_penalty,
        },
    ),
    "score": ({**TEXT, "target": (tf.string, [None])}, NUMBERS, lambda text, target: score(target)),
    "complete": (
        {name: (tf.string, [None]) for name in ("text", "prefix", "hidden", "heads")}
        | {"temperature": (tf.float32, [None])},
        {"given": (tf.string, [None])},
        lambda temperature, **inputs: {
            "given": strings(
                [
                    b"|".join([*row, b"%.1f" % number])
                    for *row, number in zip(*(inputs[name] for name in sorted(inputs)), temperature, strict=True)
                ]
            )
        },
    ),
    "doubled": (
        {"x": (tf.int32, [None, 2])},
        {"y": (tf.float32, [None, 2])},
        lambda x: {"y": (2.5 * x).astype("float32")},
    ),
    "binary": (
        {"data": (tf.string, [None])},
        {"data_bytes": (tf.string, [None]), "length": (tf.int32, [None])},
        lambda data: {"data_bytes": data, "length": np.array([len(each) for each in data], "int32")},
    ),
    "broken": (TEXT, TEXT, lambda text: {"text": strings([b"\xff"] * len(text))}),
    "kinds": (KINDS, KINDS, lambda **inputs: inputs),
    "limits": (TEXT, {"x": (tf.float32, [None])}, lambda text: {"x": np.float32([np.nan, np.inf, -np.inf, 1e-30])}),
    "grid": (
        TEXT,
        {"pieces": (tf.string, [None, None]), "weights": (tf.float32, [None, None, None])},
        lambda text: {
            "pieces": np.full([len(text), 2], b"a", object),
            "weights": np.ones([len(text), 2, 3], "float32"),
        },
    ),
}
GENERATOR = {
    "serving_default": (TEXT, {**TEXT, **NUMBERS}, lambda text: {"text": text, **score(text)}),
    "generate": ({**TEXT, **SETTINGS}, {**TEXT, **NUMBERS}, tell),
    "score": (TEXT, NUMBERS, score),
}


def classify(text, text_pair=None):
    """Whether a text is long, or longer than the other one, by letters."""
    others = [b"ab"] * len(text) if text_pair is None else text_pair
    shares = [(1 + len(a)) / (2 + len(a) + len(b)) for a, b in zip(text, others, strict=True)]
    labels = [[b"long", b"short"] if share > 0.5 else [b"short", b"long"] for share in shares]
    probabilities = [[max(share, 1 - share), min(share, 1 - share)] for share in shares]
    return {"labels": np.array(labels, object), "probabilities": np.array(probabilities, "float32")}


def tag(text):
    """Labels that do not exclude each other."""
    probabilities = [[0.9, 0.5625] if len(each) < 3 else [0.25, 0.125] for each in text]
    labels = [[b"short", b"word"] if len(each) < 3 else [b"word", b"short"] for each in text]
    return {"labels": np.array(labels, object), "probabilities": np.array(probabilities, "float32")}


def embed(text):
    return {"embedding": np.array([[len(each), -0.1] for each in text], "float32")}


def fill(text):
    """`?` is the mask, and `!` or `;` stands behind it; the others have as many masks as the text that has most."""
    most = max(each.count(b"?") for each in text)
    filled = [[position < each.count(b"?") for position in range(most)] for each in text]
    tokens = [[[b"!", b";"] if each else [b"", b""] for each in row] for row in filled]
    numbers = [[[0.7, 0.2] if each else [0, 0] for each in row] for row in filled]
    return {
        "text": strings([each.replace(b"?", b"!") for each in text]),
        "tokens": np.array(tokens, object).reshape(len(text), most, 2 if most else 0),
        "probabilities": np.array(numbers, "float32").reshape(len(text), most, 2 if most else 0),
    }


CLASSES = {"labels": (tf.string, [None, 2]), "probabilities": (tf.float32, [None, 2])}
PAIR = {**TEXT, "text_pair": (tf.string, [None])}
CANDIDATES = {"tokens": (tf.string, [None, None, None]), "probabilities": (tf.float32, [None, None, None])}


def models():
    """A translator in two versions, of which the second says so; a generator; and some that are unlike the zoo's."""
    second = {
        **TRANSLATOR,
        "serving_default": (TEXT, TRANSLATOR["serving_default"][1], lambda text: upper(text + b"2")),
    }
    sized = {**TEXT, "beam": (tf.int32, [None]), "size": (tf.int32, [None])}
    return {
        "upper": {1: model_of(TRANSLATOR), 2: model_of(second)},
        "teller": {7: model_of(GENERATOR)},
        "ümlaut & co": {1: model_of(TRANSLATOR)},
        "plain": {1: model_of({"serving_default": TRANSLATOR["serving_default"]})},
        "total": {1: model_of({"total": (TEXT, {"size": (tf.int32, [])}, None)})},
        "sorter": {1: model_of({"classify": (TEXT, CLASSES, classify)})},
        "tagger": {1: model_of({"classify": (TEXT, CLASSES, tag)})},
        "pairs": {1: model_of({"classify": (PAIR, CLASSES, classify)})},
        "vectors": {1: model_of({"embed": (TEXT, {"embedding": (tf.float32, [None, 2])}, embed)})},
        "masks": {1: model_of({"fill": (TEXT, {**TEXT, **CANDIDATES}, fill)})},
        "other": {1: model_of({"generate": (sized, *TRANSLATOR["generate"][1:])})},
    }


LABELS = {"stable": 1, "canary": 2}
