"""How fast does an exported sentence embedder of MiniLM's size answer, against CTranslate2, `transformers`, KerasHub?

The folder is what Hugging Face would hold: 22 million random weights (6 layers, width 384, 12 heads, feed-forward 1536,
a vocabulary of 30,522 pieces). The vectors of a text's tokens are averaged and normalised. All four take strings and
return vectors, which must agree:

- Ours is imported, exported and run in a session, as a server does.
- `transformers` writes the folder and runs it.
- CTranslate2 converts it, and runs it in float32. It gets its ids from the `tokenizers` library.
- KerasHub reads the same folder and runs in a graph. It pads to a fixed length, which is set to that of the longest
  text.

    python benchmarks/embedding.py                           # sentences of Python's manual; needs the 'peers' extra
    python benchmarks/embedding.py --file train.en.gz        # one sentence on each line, gzip or not
"""

from __future__ import annotations

import functools
import json
import pathlib
import tempfile

import numpy as np
from harness import Contestant, race, threads
from results import Recording, Table, options, ratio, spread
from serving import at_once, best, session_call
from tokenizing import file_sentences, help_sentences, learnt
from zoo_training.start_tensorflow import import_tensorflow

VOCABULARY, WORDS = 30_522, range(16, 41)
SIZES = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)


def write_checkpoint(folder: pathlib.Path, sentences: list[str]) -> None:
    """The folder of `transformers`, with the file that makes it a model of `sentence-transformers`."""
    import torch
    import transformers

    tokenizer = json.loads(learnt("BERT", sentences, 8000, lowercase=True))
    pieces = tokenizer["model"]["vocab"]
    pieces |= {f"[unused{i}]": i for i in range(len(pieces), VOCABULARY)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    special = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    of_tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 256, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(of_tokenizer))
    kinds = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": SIZES["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    torch.manual_seed(0)
    # CTranslate2 asks for the kind of positions, which `transformers` no longer writes.
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, initializer_range=0.05, position_embedding_type="absolute", **SIZES
    )
    model = transformers.BertModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # as after a training: what is all zeros or ones need not be computed with
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)


def zoo_step(path: str, texts: list[str], threads: int, requests: int = 1):
    """Ours."""
    call = session_call(path, threads, True, "embedding")
    return at_once(lambda: call(texts)[0], requests)


def ctranslate2_step(folder: str, checkpoint: str, texts: list[str], threads: int, requests: int = 1):
    """CTranslate2, with the ids of `tokenizers`."""
    import ctranslate2
    import tokenizers

    encoder = ctranslate2.Encoder(folder, "cpu", compute_type="float32", inter_threads=requests, intra_threads=threads)
    tokenizer = tokenizers.Tokenizer.from_file(f"{checkpoint}/tokenizer.json")

    def step() -> np.ndarray:
        ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        vectors = np.asarray(encoder.forward_batch(ids).last_hidden_state)  # (B, T, D)
        lengths = np.array([[len(row)] for row in ids])  # (B, 1)
        shown = np.arange(vectors.shape[1]) < lengths  # (B, T)
        means = np.einsum("btd,bt->bd", vectors, shown.astype("float32")) / lengths
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    return at_once(step, requests)


def transformers_step(checkpoint: str, texts: list[str], threads: int, requests: int = 1):
    """`transformers` on PyTorch, with its own fast tokenizer."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.BertModel.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)

    def step() -> np.ndarray:
        with torch.inference_mode():
            inputs = tokenizer(texts, return_tensors="pt", padding=True)
            shown = inputs["attention_mask"][..., None]  # (B, T, 1)
            means = (model(**inputs).last_hidden_state * shown).sum(1) / shown.sum(1)
            return torch.nn.functional.normalize(means).numpy()

    return at_once(step, requests)


def keras_hub_step(checkpoint: str, texts: list[str], threads: int | None, requests: int = 1):
    """KerasHub, with its own tokenizer in the graph; None leaves TensorFlow's threads as they are."""
    import tensorflow as tf

    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    embed = keras_hub_embedder(checkpoint, tuple(texts))
    return at_once(lambda: embed(texts), requests)


@functools.lru_cache(maxsize=1)  # a process often runs the next race, too; see `harness.py`
def keras_hub_embedder(checkpoint: str, texts: tuple[str, ...]):
    """A function from texts that are not longer than these ones to vectors."""
    import keras_hub
    import tensorflow as tf
    import tokenizers

    backbone = keras_hub.models.BertBackbone.from_preset(checkpoint)
    theirs = tokenizers.Tokenizer.from_file(f"{checkpoint}/tokenizer.json")
    pieces = sorted(theirs.get_vocab().items(), key=lambda item: item[1])
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=[piece for piece, _ in pieces], lowercase=True)
    longest = max(len(encoding.ids) for encoding in theirs.encode_batch(texts))
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=longest)

    @tf.function
    def vectors(inputs):
        shown = tf.cast(inputs["padding_mask"], tf.float32)[..., None]  # (B, T, 1)
        hidden = backbone(inputs, training=False)["sequence_output"]  # (B, T, D)
        return tf.math.l2_normalize(tf.reduce_sum(hidden * shown, 1) / tf.reduce_sum(shown, 1), axis=-1)

    return lambda texts: vectors(preprocessor(texts)).numpy()


ENGINES = "CTranslate2", "`transformers`", "KerasHub"


def contestants(path: str, converted: str, checkpoint: str, texts: list[str], requests: int) -> list[Contestant]:
    """All engines, with one thread for each request and, where cores are left, with two."""
    numbers = (1, 2) if requests == 1 else (1,)
    of_engines = {
        "zoo": (zoo_step, (path, texts)),
        "CTranslate2": (ctranslate2_step, (converted, checkpoint, texts)),
        "`transformers`": (transformers_step, (checkpoint, texts)),
        "KerasHub": (keras_hub_step, (checkpoint, texts)),
    }
    return [
        Contestant(f"{engine}, {threads(number)}", step, (*arguments, number, requests))
        for engine, (step, arguments) in of_engines.items()
        for number in numbers
    ]


def least_cosines(path: str, converted: str, checkpoint: str, texts: list[str]) -> dict[str, float]:
    """For each engine the least cosine of its vector and ours, over the texts."""
    of_hub = keras_hub_step(checkpoint, texts, None)()  # first, since ours switches eager tensors off
    ours = zoo_step(path, texts, 1)()
    others = ctranslate2_step(converted, checkpoint, texts, 1)(), transformers_step(checkpoint, texts, 1)(), of_hub
    return {engine: float((ours * theirs).sum(-1).min()) for engine, theirs in zip(ENGINES, others, strict=True)}


def main() -> None:
    """Runs the races; a row of the table is one of them."""
    parser = options(__doc__, rounds=6)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 1], help="texts per request (default %(default)s)")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2], help="at once (default %(default)s)")
    parser.add_argument("--file", type=pathlib.Path, help="sentences, one on each line (default: Python's help)")
    arguments = parser.parse_args()
    packages = "tensorflow", "keras", "ctranslate2", "torch", "transformers", "tokenizers", "keras-hub"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as scratch:
        sentences = file_sentences(arguments.file) if arguments.file else help_sentences()
        checkpoint, converted = pathlib.Path(scratch, "minilm"), str(pathlib.Path(scratch, "ctranslate2"))
        checkpoint.mkdir()
        write_checkpoint(checkpoint, sentences)
        import_tensorflow()
        import ctranslate2.converters

        import zoo

        ctranslate2.converters.TransformersConverter(str(checkpoint)).convert(converted)
        path = str(zoo.serving.export(zoo.load(checkpoint), pathlib.Path(scratch, "exported")))
        texts = [text for text in sentences if len(text.split()) in WORDS]
        texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
        table = []
        for rows in arguments.rows:
            what = f"{rows} {'sentence' if rows == 1 else 'sentences'}"
            ratios: dict[str, list[float]] = {}
            for requests in arguments.requests:
                them = contestants(path, converted, str(checkpoint), texts[:rows], requests)
                timings = race(them, arguments.rounds, steps=5 if rows > 1 else 40)
                print("; ".join(f"{each.name}: {each.median * 1e3:.1f} ms" for each in timings), flush=True)
                ours = best(timings, "zoo")
                row = [what, "one" if requests == 1 else f"{requests} at once", f"{ours.median * 1e3:.1f}"]
                for engine in ENGINES:
                    theirs = best(timings, engine)
                    row.append(f"{ratio(theirs, ours):.2f}x ({spread(theirs, ours)})")
                    ratios.setdefault(engine, []).append(ratio(theirs, ours))
                table.append(row)
            for engine, found in ratios.items():
                recording.headline(f"{what} to vectors, by an encoder of MiniLM's size", engine, *found)
        header = ["", "requests", "ours, ms", *(f"{engine} / ours" for engine in ENGINES)]
        recording.table(Table("", header, table))
        cosines = least_cosines(path, converted, str(checkpoint), texts[:32])
        # KerasHub's BERT always approximates GELU; the others compute it as the checkpoint asks.
        assert min(cosines[engine] for engine in ENGINES if engine != "KerasHub") > 0.99999, cosines
        told = ", ".join(f"{engine} {cosine:.6f}" for engine, cosine in cosines.items())
        recording.note(
            f"The least cosine between ours and another's vector of a text: {told}. KerasHub approximates GELU."
        )


if __name__ == "__main__":
    main()
