"""What `make demo` shows: the released model's answers and its attention, then the same model trained anew.

    python training/demo.py                     all phases, each with its time
    python training/demo.py saved_models/dates  only the answers of the newest version in a folder

The answers are computed with TensorFlow alone, without the zoo, as any program could do it. The new model is exported
to `runs/demo_models`; `saved_models/dates` stays as it was released.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
RELEASED, TEXTS = "saved_models/dates/1", "training/demo.txt"
# Not `saved_models`: commands take the newest version, and this one has not the signatures of `--explore`.
MODELS = "runs/demo_models"
ZOO = str(pathlib.Path(sys.executable).with_name("zoo"))
ANSWERS = [sys.executable, str(HERE)]
SHADES = " ░▒▓█"

# What a phase does, about how long it takes on two cores, and its command.
PHASES = (
    ("The released model reads dates in 16 scripts, with TensorFlow alone", "10 s", [*ANSWERS, RELEASED]),
    (
        "The same attention as a page: open pictures/dates.html in a browser",
        "10 s",
        [ZOO, "attend", RELEASED, "--file", TEXTS, "--out", "pictures/dates.html"],
    ),
    (
        "Training the same model anew, from dates that are made up here; then its export",
        "3 to 5 minutes on two idle cores; Ctrl-C stops it, and the same command goes on",
        [ZOO, "train", "dates", "--models", MODELS],
    ),
    ("The new model in a new process, with TensorFlow alone", "10 s", [*ANSWERS, f"{MODELS}/dates"]),
)


def main() -> None:
    """Runs the phases one after another."""
    # Ctrl-C reaches the command of the phase too. That says how to go on, so this process waits for its end.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    for number, (what, duration, command) in enumerate(PHASES, 1):
        print(f"\n--- {number} of {len(PHASES)}: {what} (about {duration})\n", flush=True)
        begin = time.perf_counter()
        finished = subprocess.run(command, cwd=HERE.parents[1], check=False)
        if finished.returncode:
            sys.exit(finished.returncode)
        print(f"\n--- took {time.perf_counter() - begin:.0f} s", flush=True)


def answer(folder: str) -> None:
    """Prints what a model makes of the lines of demo.txt, and what it attends to in the second one."""
    tf = import_tensorflow()
    path = pathlib.Path(folder)
    if not (path / "saved_model.pb").exists():
        path /= str(max(int(child.name) for child in path.iterdir() if child.name.isdecimal()))
    texts = HERE.with_suffix(".txt").read_text(encoding="utf-8").splitlines()

    begin = time.perf_counter()
    model = tf.saved_model.load(str(path))
    loaded = time.perf_counter()
    result = model.signatures["serving_default"](text=tf.constant(texts))
    done = time.perf_counter()
    attention = model.signatures["attention"](text=tf.constant(texts[1:2]))

    for text, output, score in zip(texts, result["text"].numpy(), result["score"].numpy(), strict=True):
        print(f"{output.decode()}   log-probability {score:7.3f}   {text}")
    source, target, weights = (attention[name][0].numpy() for name in ("source_tokens", "target_tokens", "weights"))
    print("\nWhat each character of a result attends to (the fuller the block, the more):\n")
    print("    " + "".join(token.decode() for token in source[:-1]))
    for token, row in zip(target[:-1], weights, strict=False):
        print(f"  {token.decode()} " + "".join(SHADES[round(min(weight, 1) * 4)] for weight in row[: len(source) - 1]))
    print(f"\n{path}: loaded in {loaded - begin:.1f} s, {len(texts)} texts in {done - loaded:.1f} s")
    ours = sorted(name for name in sys.modules if name.partition(".")[0] in ("zoo", "zoo_training"))
    print(f"modules of the zoo in this process: {', '.join(ours) or 'none'}")


def import_tensorflow():
    """TensorFlow without its start-up notes, which go to stderr at every log level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import tensorflow as tf

        tf.config.list_logical_devices()
    finally:
        os.dup2(stderr, 2)
    return tf


if __name__ == "__main__":
    answer(sys.argv[1]) if len(sys.argv) > 1 else main()
