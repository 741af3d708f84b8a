"""How many sentences a second does the byte-pair tokenizer encode and decode, against the `tokenizers` library?

Both have one vocabulary, learnt from the same sentences, and the same batches. Ours runs in a TensorFlow graph and
returns padded tensors. The Rust library is called from Python: `encode_batch`, which returns objects that hold unpadded
ids, and `decode_batch` on lists of ids. Both may use all cores.

    python benchmarks/tokenizing.py                          # the sentences of Python's own help
    python benchmarks/tokenizing.py --file train.en.gz       # a sentence a line, gzip or not
"""

from __future__ import annotations

import gzip
import pathlib
import re

from harness import Contestant, Timing, race
from results import Recording, Table, options, ratio, spread
from zoo_training.quiet import import_tensorflow

SPECIAL_IDS = 4  # ours stand before the library's


def help_sentences() -> list[str]:
    """English that every Python has at hand."""
    from pydoc_data.topics import topics

    return re.split(r"(?<=[.!?]) ", " ".join(" ".join(topics.values()).split()))


def file_sentences(path: pathlib.Path) -> list[str]:
    """The lines of a file in UTF-8."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return content.decode("utf-8").removesuffix("\n").split("\n")


def in_batches(rows: list, size: int) -> list[list]:
    """The rows in lists of that size, without what is left."""
    return [rows[begin : begin + size] for begin in range(0, len(rows) - size + 1, size)]


def library(config: dict):
    """The tokenizer of the library for a tokenizer's configuration."""
    import tokenizers

    ids = {piece: i for i, piece in enumerate(config["vocabulary"])}
    merges = [tuple(merge.split(" ")) for merge in config["merges"]]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if config["lowercase"]:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    return tokenizer


def zoo_step(config: dict, batches: list[list[str]], decode: bool):
    """A call that tokenizes all batches in a graph, or turns their ids into texts."""
    import tensorflow as tf

    from zoo.text import BytePairTokenizer

    tokenizer = BytePairTokenizer.from_config(config)
    tokenize = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    detokenize = tf.function(tokenizer.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)])
    texts = [tf.constant(batch) for batch in batches]
    ids = [tokenize(batch) for batch in texts]
    peer = library(config)
    for batch, rows in zip(batches, ids, strict=True):
        theirs = [[i + SPECIAL_IDS for i in encoding.ids] for encoding in peer.encode_batch(batch)]
        if [[i for i in row if i] for row in rows.numpy().tolist()] != theirs:
            raise RuntimeError(f"the ids are not the library's for a batch that begins with {batch[0]!r}")
    run, inputs = (detokenize, ids) if decode else (tokenize, texts)

    def step():
        for batch in inputs:
            run(batch)

    return step


def library_step(config: dict, batches: list[list[str]], decode: bool):
    """The same by the library."""
    tokenizer = library(config)
    ids = [[encoding.ids for encoding in tokenizer.encode_batch(batch)] for batch in batches]
    run, inputs = (tokenizer.decode_batch, ids) if decode else (tokenizer.encode_batch, batches)

    def step():
        for batch in inputs:
            run(batch)

    return step


def row(name: str, timings: list[Timing], sentences: int) -> list[str]:
    """A row of the table: sentences a second, and the library's time divided by ours."""
    ours, theirs = timings
    speeds = [f"{sentences / timing.median:,.0f}" for timing in timings]
    return [name, *speeds, f"{ratio(theirs, ours):.2f}x", spread(theirs, ours)]


def main() -> None:
    """Runs the races, to read and to write."""
    parser = options(__doc__, rounds=12)
    parser.add_argument("--file", type=pathlib.Path, help="a sentence a line, UTF-8, may be gzip")
    parser.add_argument("--size", type=int, default=10_000, help="the tokenizer's size (default %(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="sentences in a batch (default %(default)s)")
    parser.add_argument("--most", type=int, default=50, help="batches in a turn (default %(default)s)")
    parser.add_argument("--lowercase", action="store_true")
    arguments = parser.parse_args()
    import_tensorflow()
    from zoo.text import BytePairTokenizer

    sentences = file_sentences(arguments.file) if arguments.file else help_sentences()
    tokenizer = BytePairTokenizer.learn(sentences, arguments.size, lowercase=arguments.lowercase)
    batches = in_batches(sentences, arguments.batch)[: arguments.most]
    if not batches:
        parser.error(f"--batch {arguments.batch}: there are only {len(sentences)} sentences")
    number = len(batches) * arguments.batch
    words = sum(len(sentence.split()) for batch in batches for sentence in batch) / number
    with Recording(__file__, arguments.record, "tensorflow", "tokenizers") as recording:
        rows = []
        for name, decode in (("encode", False), ("decode", True)):
            task = (tokenizer.get_config(), batches, decode)
            contestants = [Contestant("zoo", zoo_step, task), Contestant("library", library_step, task)]
            timings = race(contestants, arguments.rounds, steps=3)
            rows.append(row(name, timings, number))
            what = f"byte pairs in the graph, {name[:-1]}ing"
            recording.headline(what, "the Rust library, on all cores", ratio(timings[1], timings[0]))
        caption = f"{number:,} sentences of {words:.1f} words in batches of {arguments.batch}, {tokenizer.size:,} ids"
        columns = ["sentences a second", "zoo", "library", "its time / ours", "range over the rounds"]
        recording.table(Table(caption, columns, rows))


if __name__ == "__main__":
    main()
