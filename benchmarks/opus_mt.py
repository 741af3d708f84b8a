"""How fast does an imported translator of OPUS-MT's size answer, against CTranslate2 and `transformers`?

The folder is what Hugging Face would hold: 75 million random weights (6 + 6 layers, width 512, feed-forward 2048, a
shared vocabulary of 58,101 pieces), two SentencePiece models, 4 beams. All three take strings and return strings, and
write 32 tokens for every text:

- Ours is imported, exported and run in a session, as a server does.
- `transformers` writes the folder and runs it.
- CTranslate2 converts it, and runs it in float32.

    python benchmarks/opus_mt.py                             # sentences of Python's manual; needs the 'peers' extra
    python benchmarks/opus_mt.py --file train.en.gz          # one sentence on each line, gzip or not
"""

from __future__ import annotations

import io
import json
import pathlib
import tempfile

from harness import Contestant, race, threads
from results import Recording, Table, options, ratio, spread
from serving import at_once, best, session_call
from tokenizing import file_sentences, help_sentences
from zoo_training.start_tensorflow import import_tensorflow

VOCABULARY, BEAMS, STEPS = 58_101, 4, 32
SIZES = dict(d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8)
SIZES |= dict(encoder_ffn_dim=2048, decoder_ffn_dim=2048)


def write_checkpoint(folder: pathlib.Path, sentences: list[str]) -> None:
    """The folder of `transformers`."""
    import sentencepiece
    import torch
    import transformers

    pieces: dict[str, None] = {}
    for name, texts in (("source.spm", sentences), ("target.spm", sentences[::2])):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=32_000, hard_vocab_limit=False, minloglevel=2
        )
        (folder / name).write_bytes(model.getvalue())
        library = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces |= dict.fromkeys(library.id_to_piece(i) for i in range(3, library.get_piece_size()))
    fill = [f"▁{number}" for number in range(VOCABULARY)]
    vocabulary = [*dict.fromkeys(["</s>", "<unk>", *pieces, *fill])][: VOCABULARY - 1]
    ids = {piece: id_ for id_, piece in enumerate([*vocabulary, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    padding = VOCABULARY - 1
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        pad_token_id=padding,
        decoder_start_token_id=padding,
        eos_token_id=0,
        forced_eos_token_id=None,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        init_std=0.05,
        **SIZES,
    )
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # as after a training: what is all zeros or ones need not be computed with
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.final_logits_bias[0, 0] = -1e4  # no text ends early
    model.generation_config.update(
        max_length=STEPS + 1, num_beams=BEAMS, bad_words_ids=[[padding]], length_penalty=0.0, early_stopping=True
    )
    model.save_pretrained(folder)
    transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    ).save_pretrained(folder)


def zoo_step(path: str, texts: list[str], threads: int, onednn: bool, requests: int = 1):
    """Ours."""
    call = session_call(path, threads, onednn, "text")

    def step() -> list[str]:
        return [text.decode() for text in call(texts)[0]]

    return at_once(step, requests)


def ctranslate2_step(folder: str, checkpoint: str, texts: list[str], threads: int, requests: int = 1):
    """CTranslate2, with the pieces of `sentencepiece`."""
    import ctranslate2
    import sentencepiece

    settings = dict(compute_type="float32", inter_threads=requests, intra_threads=threads)
    translator = ctranslate2.Translator(folder, "cpu", **settings)
    source = sentencepiece.SentencePieceProcessor(model_file=f"{checkpoint}/source.spm")

    def step() -> list[str]:
        pieces = [[*row, "</s>"] for row in source.encode(texts, out_type=str)]
        results = translator.translate_batch(
            pieces, max_batch_size=0, beam_size=BEAMS, length_penalty=0, max_decoding_length=STEPS
        )
        # Not by `target.spm`, which lacks the pieces that fill up the vocabulary.
        return ["".join(result.hypotheses[0]).replace("▁", " ").strip() for result in results]

    return at_once(step, requests)


def transformers_step(checkpoint: str, texts: list[str], threads: int, requests: int = 1):
    """`transformers` on PyTorch."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.MarianMTModel.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(checkpoint)

    def step() -> list[str]:
        with torch.inference_mode():
            ids = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    return at_once(step, requests)


ENGINES = "CTranslate2", "`transformers`"


def contestants(
    path: str, converted: str, checkpoint: str, texts: list[str], requests: int, more: bool
) -> list[Contestant]:
    """All engines, with one thread a request and, where cores are left, with two."""
    numbers = (1, 2) if requests == 1 else (1,)
    found = [
        Contestant(f"zoo, {threads(n)}{'' if on else ', oneDNN off'}", zoo_step, (path, texts, n, on, requests))
        for n in numbers
        for on in (True, False)[: 1 + more]
    ]
    task = checkpoint, texts
    found += [
        Contestant(f"CTranslate2, {threads(n)}", ctranslate2_step, (converted, *task, n, requests)) for n in numbers
    ]
    return [*found, Contestant("`transformers`", transformers_step, (*task, numbers[-1], requests))]


def same_texts(path: str, converted: str, checkpoint: str, texts: list[str]) -> str:
    """A sentence that says how many texts the engines have in common."""
    ours = zoo_step(path, texts, 1, True)()
    others = {
        "CTranslate2": ctranslate2_step(converted, checkpoint, texts, 1)(),
        "`transformers`": transformers_step(checkpoint, texts, 1)(),
    }
    same = {name: sum(map(str.__eq__, ours, theirs)) for name, theirs in others.items()}
    counts = " and ".join(f"those of {name} for {number}" for name, number in same.items())
    return f"Ours are {counts} of {len(texts)} texts."


def main() -> None:
    """Runs the races; a row of the table is one of them."""
    parser = options(__doc__, rounds=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 1], help="texts per request (default %(default)s)")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2], help="at once (default %(default)s)")
    parser.add_argument("--file", type=pathlib.Path, help="sentences, one on each line (default: Python's help)")
    parser.add_argument("--more", action="store_true", help="ours also without oneDNN")
    arguments = parser.parse_args()
    packages = "tensorflow", "keras", "ctranslate2", "torch", "transformers", "sentencepiece"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as scratch:
        sentences = file_sentences(arguments.file) if arguments.file else help_sentences()
        checkpoint, converted = pathlib.Path(scratch, "opus-mt"), str(pathlib.Path(scratch, "ctranslate2"))
        checkpoint.mkdir()
        write_checkpoint(checkpoint, sentences)
        import_tensorflow()
        import ctranslate2.converters

        import zoo

        ctranslate2.converters.TransformersConverter(str(checkpoint)).convert(converted)
        path = str(zoo.serving.export(zoo.load(checkpoint), pathlib.Path(scratch, "exported")))
        texts = [text for text in sentences if 50 <= len(text) <= 80]
        table = []
        for rows in arguments.rows:
            what = f"{rows} {'text' if rows == 1 else 'texts'}, {BEAMS} beams"
            ratios: dict[str, list[float]] = {}
            for requests in arguments.requests:
                them = contestants(path, converted, str(checkpoint), texts[:rows], requests, arguments.more)
                timings = race(them, arguments.rounds, steps=2, warm_up=2)
                print("; ".join(f"{each.name}: {each.median * 1e3:.1f} ms" for each in timings), flush=True)
                ours = best(timings, "zoo")
                row = [what, "one" if requests == 1 else f"{requests} at once", f"{ours.median * 1e3:.0f}"]
                for engine in ENGINES:
                    theirs = best(timings, engine)
                    row.append(f"{ratio(theirs, ours):.2f}x ({spread(theirs, ours)})")
                    ratios.setdefault(engine, []).append(ratio(theirs, ours))
                table.append(row)
            for engine, found in ratios.items():
                recording.headline(f"{what}, by a model of OPUS-MT's size", engine, *found)
        header = ["", "requests", "ours, ms", *(f"{engine} / ours" for engine in ENGINES)]
        recording.table(Table("", header, table))
        recording.note(same_texts(path, converted, str(checkpoint), texts[:32]))


if __name__ == "__main__":
    main()
