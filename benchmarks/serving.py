"""How fast does an exported translator answer, as a server runs it, against CTranslate2, `transformers` and KerasHub?

A transformer of 4 + 4 layers, width 128, feed-forward 256, vocabulary 10,000, random weights; 16 source tokens, 32
steps.

- Ours is the plain SavedModel in a graph-mode session, strings in and strings out, no XLA.
- CTranslate2 has the same weights in float32 and must give the same texts; it takes tokens and returns tokens.
- `transformers` (Marian) and KerasHub (BART) have models of the same size with other weights, ids in and ids out.

There are two measures: how many requests a second are answered with two under way at any time, and how long a single
request takes, the only one of KerasHub by default. Every engine is measured with the thread settings worth trying; its
best counts.

    python benchmarks/serving.py                      # needs the 'peers' extra
    python benchmarks/serving.py --rows 1 --beams 5 --more      # KerasHub also greedy, and with two requests at once
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pathlib
import tempfile

from harness import Contestant, Timing, race, threads
from results import Recording, Table, options, ratio, spread
from zoo_training.start_tensorflow import import_tensorflow

SOURCE, STEPS, VOCABULARY = 16, 32, 10_000
SIZES = dict(units=128, num_heads=4, feed_forward_units=256, encoder_layers=4, decoder_layers=4)
FIRST_CHARACTER = 0x4E00  # a token is a character, of a script that has enough of them


def build():
    """The translator, whose texts never end before the limit."""
    import_tensorflow()
    import keras
    import numpy as np

    from zoo import Translator
    from zoo.models import Transformer
    from zoo.text import CharacterTokenizer

    keras.utils.set_random_seed(0)
    tokenizer = CharacterTokenizer("".join(map(chr, range(FIRST_CHARACTER, FIRST_CHARACTER + VOCABULARY - 4))))
    model = Transformer(
        VOCABULARY, VOCABULARY, **SIZES, dropout=0.0, norm_first=True, tied_embeddings="none", name="transformer"
    )
    # As after a training: what is all zeros or ones need not be computed with.
    random = np.random.default_rng(0)
    for weight in model.weights:
        if weight.path.endswith(("bias", "beta", "gamma")):
            weight.assign(weight + random.normal(0, 0.1, weight.shape))
    output = model.get_layer("logits")
    bias = output.bias.numpy()
    bias[:4] = -100.0
    output.bias.assign(bias)
    return Translator(model, tokenizer, tokenizer, max_target_length=STEPS, early_stopping=True)  # as in CTranslate2


def sources(rows: int) -> list[list[int]]:
    """Ids of the source texts."""
    import numpy as np

    return np.random.default_rng(0).integers(4, VOCABULARY, (rows, SOURCE - 1)).tolist()


def text(ids: list[int]) -> str:
    """What ids are written as."""
    return "".join(chr(FIRST_CHARACTER + each - 4) for each in ids)


def at_once(request, requests: int):
    """A step that makes `requests` requests at the same time."""
    if requests == 1:
        return request
    pool = concurrent.futures.ThreadPoolExecutor(requests)

    def step():
        for future in [pool.submit(request) for _ in range(requests)]:
            future.result()

    return step


@functools.lru_cache(maxsize=1)  # a process often runs the next race, too; see `harness.py`
def session_call(path: str, threads: int, onednn: bool, *outputs: str):
    """An export in a session, as a server has it: a function from texts to these outputs of `serving_default`."""
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = str(int(onednn))
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf.get_logger().setLevel("ERROR")  # it warns that `tf1.saved_model.load` is of TensorFlow 1, as a server is
    tf1.disable_eager_execution()
    config = tf1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)
    session = tf1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():
        graph = tf1.saved_model.load(session, ["serve"], path)
    signature = graph.signature_def["serving_default"]
    return session.make_callable([signature.outputs[name].name for name in outputs], [signature.inputs["text"].name])


def zoo_step(path: str, rows: int, requests: int, threads: int, onednn: bool):
    """Ours."""
    call = session_call(path, threads, onednn, "text", "score")
    texts = [text(ids) for ids in sources(rows)]

    def request():
        found, _ = call(texts)
        assert len(found) == rows
        assert all(len(each.decode()) == STEPS for each in found)

    return at_once(request, requests)


def ctranslate2_step(folder: str, rows: int, beams: int, requests: int, threads: int):
    """CTranslate2."""
    import ctranslate2_model

    translator = ctranslate2_model.translator(folder, requests, threads)
    tokens = [[*map(str, ids), "</s>"] for ids in sources(rows)]
    settings = dict(beam_size=beams, length_penalty=0.6, max_decoding_length=STEPS, return_scores=True)

    def request():
        found = translator.translate_batch(tokens, max_batch_size=0, **settings)
        assert all(len(each.hypotheses[0]) == STEPS for each in found)

    return at_once(request, requests)


def transformers_step(rows: int, beams: int, requests: int, threads: int):
    """`transformers` on PyTorch."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    width, heads, inner = SIZES["units"], SIZES["num_heads"], SIZES["feed_forward_units"]
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=width,
        encoder_layers=SIZES["encoder_layers"],
        decoder_layers=SIZES["decoder_layers"],
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        pad_token_id=0,
        decoder_start_token_id=0,
        eos_token_id=3,
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    ids = torch.tensor([[*row, 3] for row in sources(rows)])
    settings = dict(num_beams=beams, do_sample=False, min_new_tokens=STEPS, max_new_tokens=STEPS)

    def request():
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        assert found.shape == (rows, STEPS + 1)

    return at_once(request, requests)


def keras_hub_step(rows: int, beams: int, requests: int):
    """KerasHub on TensorFlow, XLA and all."""
    return at_once(keras_hub_request(rows, beams), requests)


@functools.lru_cache(maxsize=1)  # it compiles for long
def keras_hub_request(rows: int, beams: int):
    """A call of KerasHub's model."""
    import keras_hub
    import numpy as np

    backbone = keras_hub.models.BartBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=SIZES["encoder_layers"],
        num_heads=SIZES["num_heads"],
        hidden_dim=SIZES["units"],
        intermediate_dim=SIZES["feed_forward_units"],
        max_sequence_length=64,
    )
    model = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
    model.compile(sampler=keras_hub.samplers.BeamSampler(num_beams=beams) if beams > 1 else "greedy")
    ids = np.array([[*row, 3] for row in sources(rows)], "int32")
    target = np.zeros((rows, STEPS + 1), "int32")
    target[:, 0] = 2
    inputs = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": np.ones_like(ids),
        "decoder_token_ids": target,
        "decoder_padding_mask": (target > 0).astype("int32"),
    }

    return lambda: model.generate(inputs, stop_token_ids=None)


def check_same(path: str, folder: str, beams: int) -> None:
    """Both must find the same texts."""
    import ctranslate2_model
    import tensorflow as tf

    ids = sources(32)
    found = tf.saved_model.load(path).signatures["serving_default"](text=tf.constant([text(row) for row in ids]))
    ours = [each.decode() for each in found["text"].numpy()]
    settings = dict(beam_size=beams, length_penalty=0.6, max_decoding_length=STEPS)
    results = ctranslate2_model.translator(folder, 1, 2).translate_batch(
        [[*map(str, row), "</s>"] for row in ids], **settings
    )
    theirs = [text([int(each) for each in result.hypotheses[0]]) for result in results]
    if ours != theirs:
        raise SystemExit("the engines do not find the same texts; their times mean nothing")


ENGINES = "CTranslate2", "`transformers`", "KerasHub"


def contestants(path: str, folder: str, rows: int, beams: int, requests: int, more: bool) -> list[Contestant]:
    """All engines with the settings worth trying: one thread a request, and two; ours first, as it is advised."""
    settings = [(1, True)]
    if more:
        settings += [(1, False), (2, True), (2, False)]
    found = [
        Contestant(
            f"zoo, {threads(n)} an operation{'' if on else ', oneDNN off'}", zoo_step, (path, rows, requests, n, on)
        )
        for n, on in settings
    ]
    task = rows, beams, requests
    found += [Contestant(f"CTranslate2, {threads(n)}", ctranslate2_step, (folder, *task, n)) for n in (1, 2)]
    numbers = (1, 2) if requests == 1 else (1,)
    found += [Contestant(f"`transformers`, {threads(n)}", transformers_step, (*task, n)) for n in numbers]
    if (beams > 1 and requests == 1) or more:  # it takes long, and is not made to answer several requests at once
        found.append(Contestant("KerasHub, XLA", keras_hub_step, task))
    return found


def best(timings: list[Timing], engine: str) -> Timing | None:
    """An engine with the threads that suit it best, if it took part."""
    return min((each for each in timings if each.name.startswith(engine)), key=lambda each: each.median, default=None)


def main() -> None:
    """Runs the races; a row of the table is one of them."""
    parser = options(__doc__, rounds=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 1], help="texts per request (default %(default)s)")
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 1], help="(default %(default)s)")
    parser.add_argument("--more", action="store_true", help="ours with two threads and without oneDNN, all of KerasHub")
    arguments = parser.parse_args()
    import ctranslate2_model

    import zoo

    packages = "tensorflow", "keras", "ctranslate2", "torch", "transformers", "keras-hub"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as scratch:
        translator = build()
        folder = str(pathlib.Path(scratch, "ctranslate2"))
        ctranslate2_model.write(translator.model, folder)
        table = []
        for beams in arguments.beams:
            translator.beam_size = beams
            path = str(zoo.serving.export(translator, pathlib.Path(scratch, f"beam{beams}")))
            check_same(path, folder, beams)
            for rows in arguments.rows:
                timings = {}
                for requests, what in ((2, "two at once"), (1, "one")):
                    them = contestants(path, folder, rows, beams, requests, arguments.more)
                    timings[what] = race(them, arguments.rounds, steps=2, warm_up=2)
                    table.append(table_row(rows, beams, what, timings[what]))
                    print("; ".join(f"{each.name}: {each.median * 1e3:.1f} ms" for each in timings[what]), flush=True)
                if beams > 1:
                    task = f"{rows} {'text' if rows == 1 else 'texts'} translated with {beams} beams, as a server does"
                    for engine in ENGINES:
                        of_engine = [(best(each, engine), best(each, "zoo")) for each in timings.values()]
                        found = [ratio(theirs, ours) for theirs, ours in of_engine if theirs]
                        recording.headline(task, engine, *found)
        recording.table(Table("", ["", "requests", "ours, ms", *(f"{each} / ours" for each in ENGINES)], table))
        recording.note(
            f"Ours and CTranslate2 find the same texts, with a beam of {' and of '.join(map(str, arguments.beams))}."
        )


def table_row(rows: int, beams: int, what: str, timings: list[Timing]) -> list[str]:
    """The setting, our time, and each engine's time divided by ours, with its range."""
    ours = best(timings, "zoo")
    cells = [f"{rows} {'row' if rows == 1 else 'rows'}, {f'{beams} beams' if beams > 1 else 'greedy'}", what]
    cells.append(f"{ours.median * 1e3:.1f}")
    for engine in ENGINES:
        theirs = best(timings, engine)
        cells.append(f"{ratio(theirs, ours):.2f}x ({spread(theirs, ours)})" if theirs else "")
    return cells


if __name__ == "__main__":
    main()
