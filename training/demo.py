"""Loads an exported model as any program may: with TensorFlow alone, and nothing of the zoo.

python training/demo.py saved_models/dates
"""

import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow's notes on starting go to stderr whatever its log level; this keeps them, and only them, away.
stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
os.dup2(nowhere, 2)
try:
    import tensorflow as tf

    tf.config.list_logical_devices()
finally:
    os.dup2(stderr, 2)


def main(folder: str) -> None:
    """Translates the lines of demo.txt with the newest version in the folder, and prints both."""
    versions = [int(child.name) for child in pathlib.Path(folder).iterdir() if child.name.isdecimal()]
    path = pathlib.Path(folder) / str(max(versions))
    texts = (pathlib.Path(__file__).parent / "demo.txt").read_text(encoding="utf-8").split("\n")[:-1]

    begin = time.perf_counter()
    model = tf.saved_model.load(str(path))
    loaded = time.perf_counter()
    result = model.signatures["serving_default"](text=tf.constant(texts))
    done = time.perf_counter()

    for text, output, score in zip(texts, result["text"].numpy(), result["score"].numpy(), strict=True):
        print(f"{output.decode()}   log-probability {score:7.3f}   {text}")
    print(f"\n{path}: loaded in {loaded - begin:.1f} s, {len(texts)} texts in {done - loaded:.1f} s")
    ours = sorted(name for name in sys.modules if name.partition(".")[0] in ("zoo", "training"))
    print(f"modules of the zoo in this process: {', '.join(ours) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1])
