"""A SavedModel with tokenizers, moved and loaded where there is only TensorFlow."""

import json
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from zoo.text import CharacterTokenizer

SOURCE = CharacterTokenizer("abc ếậ각Å\0ب\u0651\u064e😀")
TARGET = CharacterTokenizer("cba")
BATCHES = [
    [
        b"abc",
        "a\u0302\u0323 \u1100\u1161\u11a8".encode(),
        b"",
        b"\xff\0\xed\xa0\x80",
        "ب\u0651\u064e\u212b😀x".encode(),
    ],
    [b"", b""],
    [],
]
LOADERS = """
import json, sys
import tensorflow as tf

path = sys.argv[1]
batches = [[bytes.fromhex(text) for text in batch] for batch in json.loads(sys.argv[2])]

def listed(outputs):
    readable = lambda value: value.decode() if isinstance(value, bytes) else value
    return {key: [[readable(v) for v in row] if isinstance(row, list) else readable(row) for row in value.tolist()]
            for key, value in outputs.items()}

loaded = tf.saved_model.load(path)
serve = loaded.signatures["serving_default"]
eager = [{k: v.numpy() for k, v in serve(texts=tf.constant(batch, tf.string, [len(batch)])).items()}
         for batch in batches]

session_outputs = []
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    signature = tf.compat.v1.saved_model.load(session, ["serve"], path).signature_def["serving_default"]
    fetches = {name: info.name for name, info in signature.outputs.items()}
    for batch in batches:
        session_outputs.append(session.run(fetches, {signature.inputs["texts"].name: batch}))

strangers = [name for name in sys.modules if name.split(".")[0] in ("zoo", "tensorflow_text")]
print(json.dumps([list(map(listed, eager)), list(map(listed, session_outputs)), strangers]))
"""


class Servable(tf.Module):
    """Two tokenizers, so that tables would be seen to be mixed up."""

    def __init__(self):
        super().__init__()
        self.source = SOURCE
        self.target = TARGET

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def serve(self, texts):
        ids = self.source.tokenize(texts, add_end=True)
        return {
            "ids": ids,
            "tokens": self.source.tokens(ids),
            "texts": self.source.detokenize(ids),
            "target_ids": self.target.tokenize(texts, add_start=True),
        }


def expected(batch):
    ids = SOURCE.tokenize(batch, add_end=True)
    return {
        "ids": ids.numpy().tolist(),
        "tokens": [[piece.decode() for piece in row] for row in SOURCE.tokens(ids).numpy().tolist()],
        "texts": [text.decode() for text in SOURCE.detokenize(ids).numpy()],
        "target_ids": TARGET.tokenize(batch, add_start=True).numpy().tolist(),
    }


@pytest.mark.slow
def test_moved_and_loaded_by_tensorflow_alone(tmp_path):
    servable = Servable()
    tf.saved_model.save(servable, tmp_path / "here" / "1", signatures={"serving_default": servable.serve})
    shutil.move(tmp_path / "here", tmp_path / "there")
    batches = json.dumps([[text.hex() for text in batch] for batch in BATCHES])
    # -I: neither this folder nor PYTHONPATH is on the path.
    command = [sys.executable, "-I", "-c", LOADERS, str(tmp_path / "there" / "1"), batches]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    eager, session, strangers = json.loads(run.stdout.splitlines()[-1])
    wanted = [expected(batch) for batch in BATCHES]
    assert eager == wanted
    assert session == wanted
    assert strangers == []
    # A sample by hand, so that the two sides cannot be wrong together.
    assert wanted[0]["ids"][1] == [9, 7, 10, 3, 0, 0, 0]
    assert wanted[1]["texts"] == ["", ""]
