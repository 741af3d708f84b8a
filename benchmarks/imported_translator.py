"""Does a trained translator write the same texts, imported, as with `transformers` and CTranslate2?

The model is built and saved as those of OPUS-MT are: `transformers.MarianMTModel` (3 + 3 layers of width 128, swish),
two SentencePiece models and one `vocab.json`. PyTorch trains it on Multi30k, English to German. The peers are
`transformers`' `generate` and CTranslate2 in float32, of the folder that its converter makes of the same files. All
translate the 1,000 sentences of `test_2016_flickr`; BLEU is sacrebleu's default on the texts as they are. In the row
*as the folder says*, 4 beams, a length penalty of 1 and the end of the search come from `generation_config.json`.

    python benchmarks/imported_translator.py --data multi30k --train    # 44 minutes; saved after each epoch
    python benchmarks/imported_translator.py --data multi30k            # the comparison, 4 minutes

CTranslate2 leaves the padding out of the vocabulary. So its log-probabilities lack the padding's small share of the
softmax. This may change the order of hypotheses with almost equal scores. [`notes.md`](notes.md) shows the result if
ours leaves it out, too.
"""

from __future__ import annotations

import functools
import io
import json
import math
import pathlib
import random
import tempfile
import time
from typing import NamedTuple

import numpy as np
from results import Recording, Table, options
from zoo_training.corpora.multi30k import Multi30k
from zoo_training.corpora.pairs import Pairs
from zoo_training.progress import progress_bar, say
from zoo_training.start_tensorflow import import_tensorflow

PIECES = 3000  # of each side
SIZES = dict(d_model=128, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4)
SIZES |= dict(encoder_ffn_dim=512, decoder_ffn_dim=512, max_position_embeddings=256)
TOKENS, WARM_UP, PEAK = 1000, 800, 1.5e-3  # of a batch; updates; learning rate
MODEL = pathlib.Path("runs/imported_translator")
BATCH, LONGEST = 50, 128  # texts; tokens, the start token counted
# The search, its beams, the settings that are not the folder's, and against whom. CTranslate2 ends a search as
# `early_stopping` does if there is a length penalty, and otherwise when no hypothesis can win.
SEARCHES = (
    ("greedy", 1, {}, ("`transformers`", "CTranslate2")),
    ("4 beams, as the folder says", 4, {}, ("`transformers`",)),
    ("4 beams, `early_stopping`", 4, {"early_stopping": True}, ("CTranslate2",)),
    ("4 beams, no length penalty", 4, {"length_penalty": 0.0}, ("CTranslate2",)),
    ("6 beams, no length penalty", 6, {"length_penalty": 0.0}, ("CTranslate2",)),
)


def learn_pieces(folder: pathlib.Path, pairs: Pairs) -> int:
    """Writes `source.spm`, `target.spm`, and the `vocab.json` of both, whose last id is the padding's.

    Returns:
        The number of ids.
    """
    import sentencepiece

    pieces: dict[str, None] = {}
    for name, texts in (("source.spm", pairs.sources), ("target.spm", pairs.targets)):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=PIECES, character_coverage=1.0, minloglevel=2
        )
        (folder / name).write_bytes(model.getvalue())
        library = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces |= dict.fromkeys(library.id_to_piece(i) for i in range(3, library.get_piece_size()))
    ids = {piece: id_ for id_, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    return len(ids)


def new_model(ids: int):
    """As a model of OPUS-MT is configured, but smaller."""
    import transformers

    config = transformers.MarianConfig(
        vocab_size=ids,
        pad_token_id=ids - 1,
        decoder_start_token_id=ids - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        activation_function="swish",
        scale_embedding=True,
        dropout=0.1,
        init_std=SIZES["d_model"] ** -0.5,  # scaled, an embedding begins with entries of variance 1
        **SIZES,
    )
    model = transformers.MarianMTModel(config)
    zero_padding(model)
    model.generation_config.update(
        max_length=LONGEST, num_beams=4, bad_words_ids=[[ids - 1]], length_penalty=1.0, early_stopping=False
    )
    return model


def zero_padding(model) -> None:
    """Sets the embedding of the padding, which starts a text, to zero: Marian starts from nothing, as CTranslate2 does.

    The output layer shares it, so training would change it.
    """
    import torch

    with torch.no_grad():
        model.model.shared.weight[model.config.pad_token_id] = 0


def batches(rows: list[tuple[list[int], list[int]]], shuffle: random.Random | None = None):
    """The rows in lists of similar lengths, of at most `TOKENS` on either side, padding counted."""

    def length(row):
        return len(row[1]) + (shuffle.random() if shuffle else 0), len(row[0])

    found, batch, longest = [], [], 0
    for row in sorted(rows, key=length):
        longest = max(longest, *map(len, row))
        if batch and longest * (len(batch) + 1) > TOKENS:
            found.append(batch)
            batch, longest = [], max(map(len, row))
        batch.append(row)
    found.append(batch)
    if shuffle:
        shuffle.shuffle(found)
    return found


def loss_of(model, batch, smoothing: float):
    """The cross-entropy of a batch's target ids, summed, and their number."""
    import torch
    from torch.nn import functional
    from torch.nn.utils.rnn import pad_sequence

    padding = model.config.pad_token_id
    source, target = (
        pad_sequence([torch.tensor(row) for row in side], batch_first=True, padding_value=padding)
        for side in zip(*batch, strict=True)
    )  # (B, S), (B, T)
    read = torch.cat([torch.full_like(target[:, :1], padding), target[:, :-1]], dim=1)  # (B, T); padding starts a text
    states = model.model(input_ids=source, attention_mask=source != padding, decoder_input_ids=read)[0]  # (B, T, D)
    kept = target != padding  # (B, T)
    logits = model.lm_head(states[kept])  # (N, V)
    loss = functional.cross_entropy(logits, target[kept], label_smoothing=smoothing, reduction="sum")
    return loss, int(kept.sum())


def train(folder: pathlib.Path, data: pathlib.Path, epochs: int) -> None:
    """Trains a translator, and writes its folder after each epoch."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.manual_seed(0)
    shuffle = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Multi30k(folder=data)
    splits = {split: corpus.read(split) for split in ("train", "validation")}
    model = new_model(learn_pieces(folder, splits["train"]))
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    )
    tokenizer.save_pretrained(folder)
    rows = {}
    for split, pairs in splits.items():
        ids = tokenizer(pairs.sources)["input_ids"], tokenizer(text_target=pairs.targets)["input_ids"]
        rows[split] = [*zip(*ids, strict=True)]
    parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
    say(f"{parameters:,} parameters, {model.config.vocab_size:,} ids, {len(rows['train']):,} pairs")
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    updates = 0
    begin = time.monotonic()
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_batches, summed, number = batches(rows["train"], shuffle), 0.0, 0
        with progress_bar(f"epoch {epoch}", len(epoch_batches)) as advance:
            for batch in epoch_batches:
                updates += 1
                rate = PEAK * min(updates / WARM_UP, math.sqrt(WARM_UP / updates))
                for group in optimizer.param_groups:
                    group["lr"] = rate
                loss, tokens = loss_of(model, batch, smoothing=0.1)
                optimizer.zero_grad()
                (loss / tokens).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                zero_padding(model)
                summed, number = summed + loss.item(), number + tokens
                advance(1)
        model.eval()
        with torch.inference_mode():
            found = [loss_of(model, batch, smoothing=0.0) for batch in batches(rows["validation"])]
        validation = sum(loss.item() for loss, _ in found) / sum(tokens for _, tokens in found)
        model.save_pretrained(folder)
        say(
            f"epoch {epoch}: loss {summed / number:.3f}, validation {validation:.3f} nats a token, "
            f"{(time.monotonic() - begin) / 60:.1f} min"
        )


class Found(NamedTuple):
    """Translations, and the log-probability that the search gives each of them, its end token included."""

    texts: list[str]
    log_probabilities: list[float]


def of_zoo(translator, texts: list[str], beams: int, **settings) -> Found:
    """Ours, with other settings than the folder's."""
    found = translator.with_settings(**settings, beam_size=beams).translate(texts)
    return Found([each.text for each in found], [each.score for each in found])


def of_transformers(model, tokenizer, texts: list[str], beams: int, **settings) -> Found:
    """What `generate` writes, in batches of similar lengths."""
    import torch

    found: dict[int, tuple[str, float]] = {}
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for begin in range(0, len(texts), BATCH):
        rows = order[begin : begin + BATCH]
        inputs = tokenizer([texts[row] for row in rows], return_tensors="pt", padding=True)
        with torch.inference_mode():
            result = model.generate(
                **inputs,
                num_beams=beams,
                return_dict_in_generate=True,
                output_scores=beams > 1,
                output_logits=beams == 1,
                **settings,
            )
            # The scores of a beam search are log-probabilities. Those of greedy decoding are logits, without padding.
            scores, beam_indices = (result.scores, result.beam_indices) if beams > 1 else (result.logits, None)
            each = model.compute_transition_scores(
                result.sequences, scores, beam_indices, normalize_logits=beams == 1
            )  # (B, T)
        written = result.sequences[:, 1 : 1 + each.shape[1]] != model.config.pad_token_id  # (B, T)
        sums = each.where(written, 0).sum(1).tolist()
        decoded = tokenizer.batch_decode(result.sequences, skip_special_tokens=True)
        found |= dict(zip(rows, zip(decoded, sums, strict=True), strict=True))
    return Found(*map(list, zip(*(found[row] for row in range(len(texts))), strict=True)))


def of_ctranslate2(
    converted: pathlib.Path, folder: pathlib.Path, texts: list[str], beams: int, length_penalty: float = 1.0, **_
) -> Found:
    """What CTranslate2 writes in float32, with the pieces of `sentencepiece`; it has no `early_stopping` to set."""
    import ctranslate2
    import sentencepiece

    translator = ctranslate2.Translator(str(converted), "cpu", compute_type="float32", intra_threads=1)
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")
    )
    results = translator.translate_batch(
        [[*row, "</s>"] for row in source.encode(texts, out_type=str)],
        beam_size=beams,
        length_penalty=length_penalty,
        max_batch_size=BATCH,
        max_decoding_length=LONGEST - 1,
        return_scores=True,
    )
    written = [each.hypotheses[0] for each in results]
    # A score is divided by the number of tokens, the end token counted where there is one.
    lengths = (min(len(pieces) + 1, LONGEST - 1) ** length_penalty for pieces in written)
    sums = [each.scores[0] * length for each, length in zip(results, lengths, strict=True)]
    return Found([target.decode_pieces(pieces).strip() for pieces in written], sums)


def compare(folder: pathlib.Path, data: pathlib.Path | None, recording: Recording) -> None:
    """Translates the test set with all of them, and tables what is equal and what is not."""
    import ctranslate2.converters
    import torch
    import transformers
    from zoo_training.scoring.bleu import corpus_bleu

    import zoo

    torch.set_num_threads(1)
    pairs = Multi30k(folder=data).read("test")
    ours = zoo.load(folder)
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    rows, differences = [], []
    with tempfile.TemporaryDirectory() as scratch:
        converted = pathlib.Path(scratch, "ctranslate2")
        ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
        exported = zoo.load(zoo.serving.export(ours, pathlib.Path(scratch, "exported")))
        peers = {
            "`transformers`": functools.partial(of_transformers, model, tokenizer),
            "CTranslate2": functools.partial(of_ctranslate2, converted, folder),
        }
        for search, beams, settings, names in SEARCHES:
            mine = of_zoo(ours, pairs.sources, beams, **settings)
            for name in names:
                theirs = peers[name](pairs.sources, beams, **settings)
                say(f"{search}: compared with {name}")
                same = [one == other for one, other in zip(mine.texts, theirs.texts, strict=True)]
                scores = [f"{corpus_bleu(each.texts, pairs.targets, 'de'):.2f}" for each in (mine, theirs)]
                apart = np.abs(np.subtract(mine.log_probabilities, theirs.log_probabilities))[same].max(initial=0)
                rows.append([search, name, *scores, f"{sum(same):,} of {len(pairs):,}", f"{apart:.1e}"])
                for row in np.flatnonzero(np.logical_not(same)):
                    shown = (f"{each.texts[row]} ({each.log_probabilities[row]:.4f})" for each in (mine, theirs))
                    differences.append([f"{search}, {name}", str(row + 1), *shown])
        again = zip(of_zoo(ours, pairs.sources, ours.beam_size).texts, exported(pairs.sources), strict=True)
        served = sum(one == other for one, other in again)
    columns = [
        "search",
        "against",
        "BLEU of ours",
        "BLEU of theirs",
        "equal texts",
        "log-probabilities differ by up to",
    ]
    recording.table(Table("", columns, rows))
    if differences:
        recording.table(
            Table("Texts that differ, with their log-probabilities", ["", "sentence", "ours", "theirs"], differences)
        )
    size, ids = model.num_parameters(), model.config.vocab_size
    recording.note(
        f"The model has {size:,} parameters and {ids:,} ids. Exported, it writes the same text as imported for "
        f"{served:,} of {len(pairs):,} sentences."
    )


def main() -> None:
    """Trains the translator, or compares what three programs make of it."""
    parser = options(__doc__)
    parser.add_argument("--data", type=pathlib.Path, help="folder of Multi30k's files; without it, they are downloaded")
    parser.add_argument("--model", type=pathlib.Path, default=MODEL, help="the checkpoint (default %(default)s)")
    parser.add_argument("--train", action="store_true", help="only train it anew, and save it after each epoch")
    parser.add_argument("--epochs", type=int, default=10, help="of the training (default %(default)s)")
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.model, arguments.data, arguments.epochs)
        return
    packages = "tensorflow", "keras", "torch", "transformers", "ctranslate2", "sentencepiece", "sacrebleu"
    import_tensorflow()
    with Recording(__file__, arguments.record, *packages) as recording:
        compare(arguments.model, arguments.data, recording)


if __name__ == "__main__":
    main()
