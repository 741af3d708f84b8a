"""How many sentences a second do tokenizers encode and decode, against the libraries that learn their vocabularies?

There is a row for each kind of `tokenizer.json`. GPT-2 and Qwen2 merge bytes, and cut texts by different expressions.
Llama 2 merges characters, and BERT takes the longest pieces. Two more rows are the unigram and the BPE model of
SentencePiece.

Both sides have one vocabulary, learnt from the same sentences, and the same batches. All may use all cores.

- Ours runs in a TensorFlow graph and returns padded tensors.
- The libraries are called from Python with whole batches. `encode_batch_fast` of `tokenizers` returns objects that hold
  unpadded ids, and `sentencepiece` returns lists of ids.

Batches are small, as in a server, or large, as when a corpus is encoded. Large ones help ours: Python's call of a graph
alone takes 0.1 to 0.3 ms, and each different word of a batch is cut once.

    python benchmarks/tokenizing.py                          # the sentences of Python's manual
    python benchmarks/tokenizing.py --file train.en.gz       # one sentence on each line, gzip or not
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import pathlib
import re
import tempfile

from harness import Contestant, Timing, race
from results import Recording, Table, options, ratio, spread
from zoo_training.start_tensorflow import import_tensorflow

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


KINDS = ("GPT-2", "Qwen2", "Llama 2", "BERT", "unigram", "bpe")


def learnt(kind: str, sentences: list[str], size: int, lowercase: bool) -> str:
    """A `tokenizer.json`, learnt by the library with the components that models of this kind have.

    For SentencePiece, the file in Base64.
    """
    if kind in ("unigram", "bpe"):
        from zoo.text import SentencePieceTokenizer

        return SentencePieceTokenizer.learn(sentences, size, kind).get_config()["model"]
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    from zoo.text.words import QWEN_2

    if kind == "BERT":
        from zoo.text.word_piece import BERT_PIECES, WordPieceTokenizer

        vocabulary = WordPieceTokenizer.learn(sentences, size, lowercase=lowercase).get_config()["vocabulary"]
        ids = {piece: i for i, piece in enumerate([*BERT_PIECES, *vocabulary])}
        tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
        tokenizer.decoder = decoders.WordPiece()
        return tokenizer.to_str()
    alphabet, special, steps = pre_tokenizers.ByteLevel.alphabet(), [], [normalizers.Lowercase()] * lowercase
    if kind == "Llama 2":
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(parts)
        alphabet, special = [], ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        steps = []
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    if kind == "Qwen2":
        steps = [normalizers.NFC(), *steps]
        cut = pre_tokenizers.Split(Regex(QWEN_2), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, level])
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    trainer = trainers.BpeTrainer(
        vocab_size=size - SPECIAL_IDS,
        min_frequency=2,
        initial_alphabet=alphabet,
        special_tokens=special,
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    if kind == "Llama 2":  # the words were for learning; its own file has a whole text as one
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    return json.dumps(content)


def library(content: str):
    """The library's functions, from a batch of texts to its ids and back, and our ids in the order of its own."""
    if not content.startswith("{"):
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(content))
        return (
            pieces.encode,
            pieces.decode,
            [1, *range(SPECIAL_IDS, SPECIAL_IDS + len(pieces))],
        )  # the unknown one first
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(content)
    tokenizer.encode_special_tokens = True  # which is to read them as text, as ours does
    first = 0 if isinstance(tokenizer.model, tokenizers.models.WordPiece) else SPECIAL_IDS  # they have ours already
    ours = range(first, first + tokenizer.get_vocab_size())

    def encode(batch: list[str]) -> list[list[int]]:
        # It leaves out where each token stands in its text, as ours does.
        return [each.ids for each in tokenizer.encode_batch_fast(batch, add_special_tokens=False)]

    return encode, tokenizer.decode_batch, ours


def tokenizer_of(content: str):
    """Our tokenizer."""
    from zoo.checkpoints.tokenizer_json import read_tokenizer
    from zoo.checkpoints.word_piece_json import read_word_pieces
    from zoo.text import SentencePieceTokenizer

    if not content.startswith("{"):
        return SentencePieceTokenizer(content)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.json").write_text(content, encoding="utf-8")
        return read_word_pieces(folder).tokenizer if '"WordPiece"' in content else read_tokenizer(folder)


@functools.lru_cache(maxsize=1)  # a process also runs the next race; see `harness.py`
def graphs(content: str):
    """Our tokenizer's two directions as graphs."""
    import tensorflow as tf

    tokenizer = tokenizer_of(content)
    return (
        tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)]),
        tf.function(tokenizer.detokenize, input_signature=[tf.TensorSpec([None, None], tf.int32)]),
    )


def zoo_step(content: str, batches: list[list[str]], decode: bool):
    """A call that tokenizes all batches in a graph, or turns their ids into texts."""
    import tensorflow as tf

    tokenize, detokenize = graphs(content)
    texts = [tf.constant(batch) for batch in batches]
    ids = [tokenize(batch) for batch in texts]
    encode, _, ours = library(content)
    for batch, rows in zip(batches, ids, strict=True):
        theirs = [[ours[i] for i in row] for row in encode(batch)]
        if [[i for i in row if i] for row in rows.numpy().tolist()] != theirs:
            raise RuntimeError(f"the ids are not the library's for a batch that begins with {batch[0]!r}")
    run, inputs = (detokenize, ids) if decode else (tokenize, texts)

    def step():
        for batch in inputs:
            run(batch)

    return step


def library_step(content: str, batches: list[list[str]], decode: bool):
    """The same by the library."""
    to_ids, to_texts, _ = library(content)
    run, inputs = (to_texts, [to_ids(batch) for batch in batches]) if decode else (to_ids, batches)

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
    parser = options(__doc__, rounds=6)
    parser.add_argument("--file", type=pathlib.Path, help="one sentence on each line, UTF-8, may be gzip")
    parser.add_argument("--size", type=int, default=10_000, help="the tokenizer's size (default %(default)s)")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[64, 640], help="sentences in a batch (default: 64 640)"
    )
    parser.add_argument("--most", type=int, default=3200, help="sentences in a turn (default %(default)s)")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="default: all")
    arguments = parser.parse_args()
    import_tensorflow()
    sentences = file_sentences(arguments.file) if arguments.file else help_sentences()
    if max(arguments.batch) > min(len(sentences), arguments.most):
        parser.error(f"--batch {max(arguments.batch)}: there are only {min(len(sentences), arguments.most)} sentences")
    with Recording(__file__, arguments.record, "tensorflow", "tokenizers", "sentencepiece") as recording:
        learnt_of = {kind: learnt(kind, sentences, arguments.size, arguments.lowercase) for kind in arguments.kinds}
        for size in arguments.batch:
            batches = in_batches(sentences[: arguments.most], size)
            number = len(batches) * size
            words = sum(len(sentence.split()) for batch in batches for sentence in batch) / number
            rows = []
            for kind in arguments.kinds:
                for name, decode in (("encode", False), ("decode", True)):
                    task = (learnt_of[kind], batches, decode)
                    contestants = [Contestant("zoo", zoo_step, task), Contestant("library", library_step, task)]
                    timings = race(contestants, arguments.rounds, steps=3)
                    rows.append(row(f"{kind}, {name}", timings, number))
                    if kind == "GPT-2":
                        what = f"byte-pair tokenizer, all cores, {size} texts at once"
                        recording.headline(what, f"`tokenizers` (Rust), {name[:-1]}ing", ratio(timings[1], timings[0]))
            caption = f"{number:,} sentences of {words:.1f} words in batches of {size}, {arguments.size:,} ids"
            columns = ["sentences a second", "zoo", "library", "its time / ours", "range over the rounds"]
            recording.table(Table(caption, columns, rows))


if __name__ == "__main__":
    main()
