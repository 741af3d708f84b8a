"""How fast does an exported language model write, against CTranslate2, `transformers` and KerasHub?

A GPT-2 with random weights continues prompts of 16 tokens, greedily. All libraries read the tokens of a prompt once and
keep a cache.

- Ours is the plain SavedModel without XLA, called by its signature `generate`, strings in and strings out. The others
  take ids or tokens and return ids.
- CTranslate2 (in float32) and `transformers` have the same weights. CTranslate2 may also divide many rows between two
  threads, each with its own operations ("2 halves").
- KerasHub has other weights of the same shapes, which changes nothing.

`--length` measures only ours, for several lengths: the time for each token.

    python benchmarks/generation.py                      # needs the 'peers' extra
    python benchmarks/generation.py --sizes gpt2         # width 768, 12 layers, 50,257 pieces; 64 tokens
    python benchmarks/generation.py --length 128 256 512 1000
"""

from __future__ import annotations

import json
import pathlib
import tempfile

from harness import Contestant, race, threads
from results import Recording, Table, compared, options, ratio
from zoo_training.start_tensorflow import import_tensorflow

PROMPT = 16
SIZES = {
    "small": dict(n_embd=128, n_layer=4, n_head=4),
    "medium": dict(n_embd=384, n_layer=6, n_head=6),
    "gpt2": dict(n_embd=768, n_layer=12, n_head=12),
}
PIECES = {"small": 1000, "medium": 1000, "gpt2": 50_257}  # of the vocabulary
NEW = {"small": 256, "medium": 256, "gpt2": 64}  # tokens to write


def write_checkpoint(folder: str, size: str) -> None:
    """A GPT-2 with random weights, as `transformers` writes it, and its vocabulary of bytes and pairs."""
    import random

    import tokenizers
    import torch
    import transformers

    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(2, 9))) for _ in range(3 * PIECES[size])]
    trained = tokenizers.ByteLevelBPETokenizer()
    special = "<|endoftext|>"
    options = dict(min_frequency=1, special_tokens=[special], show_progress=False)
    trained.train_from_iterator([" ".join(words)], PIECES[size], **options)
    trained.save_model(folder)
    torch.manual_seed(0)
    end = trained.token_to_id(special)
    config = transformers.GPT2Config(
        vocab_size=trained.get_vocab_size(), n_positions=1024, bos_token_id=end, eos_token_id=end, **SIZES[size]
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


def write_prompts(folder: str, rows: int) -> None:
    """Prompts with the same number of tokens for every contestant: pieces that begin with a space are never merged."""
    import random

    import tokenizers

    tokenizer = tokenizers.ByteLevelBPETokenizer(f"{folder}/vocab.json", f"{folder}/merges.txt")
    pieces = sorted(
        (piece, i) for piece, i in tokenizer.get_vocab().items() if piece.startswith("Ġ") and len(piece) > 2
    )
    chance = random.Random(0)
    ids = [[i for _, i in chance.choices(pieces, k=PROMPT)] for _ in range(rows)]
    texts = [tokenizer.decode(row) for row in ids]
    assert [tokenizer.encode(text).ids for text in texts] == ids
    pathlib.Path(folder, "prompts.json").write_text(json.dumps({"ids": ids, "texts": texts}), encoding="utf-8")


def prompts(folder: str, what: str, rows: int) -> list:
    """The `ids` or the `texts` of the first prompts."""
    return json.loads(pathlib.Path(folder, "prompts.json").read_text(encoding="utf-8"))[what][:rows]


def zoo_step(path: str, folder: str, rows: int, new: int, threads: int):
    """Ours: the SavedModel."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    model = tf.saved_model.load(path)
    generate = model.signatures["generate"]
    text = prompts(folder, "texts", rows)

    def column(value, dtype):
        return tf.fill([rows], tf.constant(value, dtype))

    settings = dict(
        max_new_tokens=column(new, tf.int32),
        temperature=column(0.0, tf.float32),
        top_k=column(0, tf.int32),
        top_p=column(1.0, tf.float32),
        repetition_penalty=column(1.0, tf.float32),
        seed=column(0, tf.int64),
        stop=tf.fill([rows], ""),
    )

    def step():
        written = generate(text=tf.constant(text), **settings)["tokens"].numpy()
        assert (written == new).all(), "a text ended early"

    return step


def ctranslate2_step(folder: str, rows: int, new: int, threads: int, halves: bool):
    """CTranslate2."""
    import ctranslate2
    import tokenizers

    tokenizer = tokenizers.ByteLevelBPETokenizer(f"{folder}/vocab.json", f"{folder}/merges.txt")
    tokens = [[tokenizer.id_to_token(i) for i in row] for row in prompts(folder, "ids", rows)]
    divided = dict(inter_threads=2, intra_threads=1) if halves else dict(inter_threads=1, intra_threads=threads)
    generator = ctranslate2.Generator(f"{folder}/ctranslate2", "cpu", compute_type="float32", **divided)
    settings = dict(min_length=new, max_length=new, sampling_topk=1, include_prompt_in_result=False)

    def step():
        found = generator.generate_batch(tokens, max_batch_size=rows // 2 if halves else 0, **settings)
        assert all(len(each.sequences_ids[0]) == new for each in found)

    return step


def transformers_step(folder: str, rows: int, new: int, threads: int):
    """`transformers` on PyTorch."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    ids = torch.tensor(prompts(folder, "ids", rows))
    settings = dict(min_new_tokens=new, max_new_tokens=new, do_sample=False, pad_token_id=0)

    def step():
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        assert found.shape[1] == PROMPT + new

    return step


def keras_hub_step(size: str, folder: str, rows: int, jit_compile: bool):
    """KerasHub on TensorFlow."""
    import keras_hub
    import numpy as np

    sizes = SIZES[size]
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=PIECES[size],
        num_layers=sizes["n_layer"],
        num_heads=sizes["n_head"],
        hidden_dim=sizes["n_embd"],
        intermediate_dim=4 * sizes["n_embd"],
        max_sequence_length=1024,
    )
    model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler="greedy", jit_compile=jit_compile)
    ids = np.zeros((rows, PROMPT + NEW[size]), "int32")
    ids[:, :PROMPT] = prompts(folder, "ids", rows)
    inputs = {"token_ids": ids, "padding_mask": (ids > 0).astype("int32")}

    def step():
        model.generate(inputs, stop_token_ids=None)

    return step


def export(folder: str, to: pathlib.Path) -> str:
    """Our SavedModel of the checkpoint."""
    import_tensorflow()
    import zoo

    return str(zoo.serving.export(zoo.load(folder), to))


def contest(path: str, checkpoint: str, size: str, rows: int) -> list[Contestant]:
    """All of them; those whose threads can be set, with one and with two an operation."""
    what = checkpoint, rows, NEW[size]
    halves = [Contestant("CTranslate2, 2 halves", ctranslate2_step, (*what, 1, True))] if rows > 1 else []
    return [
        *(Contestant(f"zoo, {threads(n)}", zoo_step, (path, *what, n)) for n in (1, 2)),
        *(Contestant(f"CTranslate2, {threads(n)}", ctranslate2_step, (*what, n, False)) for n in (1, 2)),
        *halves,
        *(Contestant(f"`transformers`, {threads(n)}", transformers_step, (*what, n)) for n in (1, 2)),
        Contestant("KerasHub, XLA", keras_hub_step, (size, checkpoint, rows, True)),
        Contestant("KerasHub, graph", keras_hub_step, (size, checkpoint, rows, False)),
    ]


def main() -> None:
    """Runs the races, or those of ours alone."""
    parser = options(__doc__, rounds=4)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["small"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32], help="prompts at once (default %(default)s)")
    parser.add_argument("--length", type=int, nargs="+", help="new tokens: ours alone, for the time a token")
    arguments = parser.parse_args()
    import ctranslate2.converters

    packages = "tensorflow", "keras", "ctranslate2", "torch", "transformers", "keras-hub"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            checkpoint = pathlib.Path(folder, size)
            checkpoint.mkdir()
            write_checkpoint(str(checkpoint), size)
            write_prompts(str(checkpoint), max(arguments.rows))
            ctranslate2.converters.TransformersConverter(str(checkpoint)).convert(f"{checkpoint}/ctranslate2")
            path = export(str(checkpoint), pathlib.Path(folder, "exported", size))
            for rows in arguments.rows:
                what = f"{size}, {rows} {'row' if rows == 1 else 'rows'}"
                if arguments.length:
                    recording.table(by_length(path, str(checkpoint), rows, arguments.length, arguments.rounds, what))
                    continue
                contestants = contest(path, str(checkpoint), size, rows)
                timings = race(contestants, arguments.rounds, steps=1, warm_up=1)
                recording.table(compared(timings, f"{what} of {NEW[size]} new tokens", "ms"))
                if (size, rows) == ("small", 1):
                    for peer in ("CTranslate2", "`transformers`", "KerasHub, graph", "KerasHub, XLA"):
                        best = min(
                            (each for each in timings if each.name.startswith(peer)), key=lambda each: each.median
                        )
                        recording.headline(
                            f"{NEW[size]} tokens of a small GPT, from the SavedModel", peer, ratio(best, timings[0])
                        )


def by_length(path: str, checkpoint: str, rows: int, lengths: list[int], rounds: int, what: str) -> Table:
    """Our time per token, the more there are."""
    contestants = [Contestant(f"{n:,} tokens", zoo_step, (path, checkpoint, rows, n, 1)) for n in lengths]
    timings = race(contestants, rounds, steps=1, warm_up=1)
    rows_of_it = [[each.name, f"{each.median * 1e3 / n:.3f}"] for n, each in zip(lengths, timings, strict=True)]
    return Table(what, ["", "ms a token of a row"], rows_of_it)


if __name__ == "__main__":
    main()
