"""A SavedModel with tokenizers, moved and loaded where there is only TensorFlow."""

import json
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from zoo.text import (
    BytePairTokenizer,
    CharacterPairTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    WhitespaceTokenizer,
    WordPieceTokenizer,
)
from zoo.text.words import QWEN_2

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
CORPUS = ["abc abc abc ABC bcb x y   z'll 12", "bab cab\ta\n😀😀ب é"] * 2
BATCHES = [
    [
        b"abc",
        "a\u0302\u0323 \u1100\u1161\u11a8".encode(),
        b"",
        b"\xff\0\xed\xa0\x80",
        "ب\u0651\u064e\u212b😀x".encode(),
    ],
    [b"", b""],
    [b"abc ABC BAC", "\xad".encode(), "q'll   z😀".encode() + b"\xf0\x9f \xff"],
    [b"<|a|>12  3", b"abc <x>ab<unk>"],
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

strangers = [name for name in sys.modules if name.split(".")[0] in ("zoo", "tensorflow_text", "sentencepiece")]
print(json.dumps([list(map(listed, eager)), list(map(listed, session_outputs)), strangers]))
"""


def tokenizers():
    """Several of each kind, so that tables would be seen to be mixed up."""
    of_280 = BytePairTokenizer.learn(CORPUS, 280).get_config()
    return {
        "source": CharacterTokenizer("abc ếậ각Å\0ب\u0651\u064e😀"),
        "target": CharacterTokenizer("cba"),
        "pieces": BytePairTokenizer.learn(CORPUS, 300),
        "lowercase": BytePairTokenizer.learn(CORPUS, 290, lowercase=True, nfc=True),
        "bytes": BytePairTokenizer.learn([], 300),
        "sentence_pieces": SentencePieceTokenizer.learn(CORPUS, 300, byte_fallback=True),
        "word_pieces": WordPieceTokenizer.learn(CORPUS, 60),
        "white_space": WhitespaceTokenizer(["abc", "BAC", "각\0", "ộ"]),
        "qwen2": BytePairTokenizer(
            [*of_280["vocabulary"], "<|a|>", "  "],
            of_280["merges"],
            nfc=True,
            patterns=[QWEN_2],
            individual_digits=True,
            add_prefix_space=True,
            added_tokens=[{"content": "<|a|>", "special": True}, {"content": "  "}],
        ),
        "llama2": CharacterPairTokenizer(
            ["<unk>", *BYTE_PIECES, *"▁abc", "ab", "▁ab", "▁abc", "<x>"],
            ["a b", "▁ ab", "▁ab c"],
            prepend=True,
            byte_fallback=True,
            unk_token="<unk>",
            strip_space=True,
            added_tokens=[{"content": "<unk>", "special": True}, {"content": "<x>", "normalized": True}],
        ),
    }


class Servable(tf.Module):
    """All tokenizers behind one signature."""

    def __init__(self):
        super().__init__()
        self.tokenizers = tokenizers()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")], autograph=False)
    def serve(self, texts):
        outputs = {}
        for name, tokenizer in self.tokenizers.items():
            ids = tokenizer.tokenize(texts, add_start=True, add_end=True)
            outputs[f"{name}_ids"] = ids
            outputs[f"{name}_tokens"] = tokenizer.tokens(ids)
            outputs[f"{name}_texts"] = tokenizer.detokenize(ids)
        return outputs


def expected(servable, batch):
    outputs = {}
    for name, tokenizer in servable.tokenizers.items():
        ids = tokenizer.tokenize(batch, add_start=True, add_end=True)
        outputs[f"{name}_ids"] = ids.numpy().tolist()
        outputs[f"{name}_tokens"] = [
            [piece.decode() for piece in row] for row in tokenizer.tokens(ids).numpy().tolist()
        ]
        outputs[f"{name}_texts"] = [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    return outputs


@pytest.mark.long
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
    wanted = [expected(servable, batch) for batch in BATCHES]
    assert eager == wanted
    assert session == wanted
    assert strangers == []
    # Samples by hand, so that the two sides cannot be wrong together.
    assert wanted[0]["source_ids"][1] == [2, 9, 7, 10, 3, 0, 0, 0]
    assert wanted[1]["source_texts"] == ["", ""]
    pieces = wanted[2]
    assert pieces["pieces_tokens"][0][:8] == ["<s>", "abc", "▁ABC", "▁", "B", "A", "C", "</s>"]
    assert pieces["lowercase_tokens"][0][:3] == ["<s>", "abc", "▁abc"]
    assert pieces["bytes_ids"][1][:4] == [2, 126 + 4, 255 + 4, 3]  # of C2 AD, of which AD is the last
    assert pieces["sentence_pieces_texts"] == ["abc ABC BAC", "\xad", "q'll z😀\ufffd\ufffd \ufffd"]
    assert pieces["word_pieces_texts"] == ["abc abc bac", "", "\ufffd ' ll z😀"]
    assert wanted[3]["qwen2_tokens"][0][6:] == [">", "1", "2", "▁▁", "▁", "3", "</s>"]
    assert wanted[3]["llama2_tokens"][1][:4] == ["<s>", "▁abc", "<x>", "ab"]  # it takes the space, as in the library
    assert pieces["pieces_texts"] == ["abc ABC BAC", "\xad", "q'll   z😀\ufffd \ufffd"]
