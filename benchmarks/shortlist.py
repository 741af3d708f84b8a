"""What does a shortlist cost in BLEU, and how much sooner does a translator answer with it?

Finished runs, such as `multi30k-transformer`, are exported with shortlists of several sizes, learnt from FILE, which
should have the sources of their training. BLEU is that of the validation split, in the style of published figures.
Times are those of a single text, one request at a time, in a graph-mode session with one thread for each operation.
CTranslate2 has the same weights in float32, no shortlist, and one or two threads.

The last table is of random weights of OPUS-MT's size (`opus_mt.py`), which write 32 tokens for every text.

    python benchmarks/shortlist.py train.en runs/multi30k-transformer     # needs the 'peers' extra
"""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np
from distilled import AT_A_TURN, ctranslate2_step, ctranslate2_task, zoo_step
from harness import Contestant, race, threads
from opus_mt import write_checkpoint
from opus_mt import zoo_step as whole_batch_step
from results import Recording, Table, options, ratio, spread
from serving import best
from tokenizing import help_sentences
from zoo_training.start_tensorflow import import_tensorflow


def of_a_run(arguments, run: pathlib.Path, folder: str, recording: Recording) -> None:
    """The table of a run."""
    from zoo_training.run import read_back, score

    import zoo
    from zoo.decoding import Shortlist, learn_shortlist
    from zoo.serving.exporting import with_packed_model

    recipe = read_back(run)
    texts = list(recipe.corpus.read("validation").sources[: arguments.texts])
    translator = zoo.load(run)
    sources = arguments.file.read_text(encoding="utf-8").splitlines()
    learnt = learn_shortlist(with_packed_model(translator), sources, min(arguments.sizes))
    vocabulary = translator.target_tokenizer.size
    rows = []
    for beams in arguments.beams:
        translator.beam_size = beams
        them, bleu = [], {}
        for size in (None, *arguments.sizes):
            shortlist = size and Shortlist(learnt.translations, learnt.ranks, size)
            name = f"{size or vocabulary:,} tokens"
            listed = translator.with_shortlist(shortlist)
            path = zoo.serving.export(listed, pathlib.Path(folder, run.name, f"{size}-{beams}"))
            bleu[name] = score(zoo.load(path), recipe, "validation")["bleu_published_style"]["score"]
            them.append(Contestant(name, zoo_step, (str(path), texts, 1)))
        theirs = ctranslate2_task(translator, str(pathlib.Path(folder, run.name, f"ctranslate2-{beams}")), texts)
        for number in (1, 2):
            them.append(Contestant(f"CTranslate2, {threads(number)}", ctranslate2_step, (*theirs, number)))
        timings = race(them, arguments.rounds, steps=3, warm_up=2)
        peer, whole = best(timings, "CTranslate2"), timings[0]
        for found in (*timings[: 1 + len(arguments.sizes)], peer):
            rows.append(
                [
                    f"{beams} beams" if beams > 1 else "greedy",
                    found.name,
                    f"{bleu[found.name]:.2f}" if found.name in bleu else "",
                    f"{found.median / AT_A_TURN * 1e3:.1f}",
                    "" if found is whole else f"{ratio(whole, found):.2f}x ({spread(whole, found)})",
                    "" if found is peer else f"{ratio(peer, found):.2f}x ({spread(peer, found)})",
                ]
            )
    header = ["", "", "BLEU", "ms a text", "times as fast as without", "CTranslate2's time / its"]
    recording.table(Table(run.name, header, rows))


def of_opus_mt_size(arguments, folder: str, recording: Recording) -> None:
    """The table of a large vocabulary. What the shortlists hold does not matter for the time."""
    import zoo
    from zoo.decoding import Shortlist

    checkpoint = pathlib.Path(folder, "opus-mt")
    checkpoint.mkdir()
    sentences = help_sentences()
    write_checkpoint(checkpoint, sentences)
    translator = zoo.load(checkpoint)
    texts = [text for text in sentences if 50 <= len(text) <= 80]
    sizes = [tokenizer.size for tokenizer in translator.tokenizers]
    random = np.random.default_rng(0)
    learnt = random.integers(4, sizes[1], (sizes[0], 32)), random.permutation(sizes[1])
    paths = {}
    for size in (None, *arguments.sizes):
        listed = translator.with_shortlist(size and Shortlist(*learnt, size))
        paths[f"{size or sizes[1]:,} tokens"] = str(zoo.serving.export(listed, pathlib.Path(folder, f"opus-{size}")))
    rows = []
    for number in (1, 32):
        them = [Contestant(name, whole_batch_step, (path, texts[:number], 1, True)) for name, path in paths.items()]
        whole, *short = race(them, arguments.rounds, steps=2, warm_up=2)
        for found in (whole, *short):
            faster = "" if found is whole else f"{ratio(whole, found):.2f}x ({spread(whole, found)})"
            rows.append(
                [f"{number} texts" if number > 1 else "1 text", found.name, f"{found.median * 1e3:.0f}", faster]
            )
    recording.table(Table("OPUS-MT's size, 4 beams", ["", "", "ms a request", "times as fast as without"], rows))


def main() -> None:
    """Makes a table of each run, and the last one."""
    parser = options(__doc__, rounds=6)
    parser.add_argument("file", type=pathlib.Path, help="source texts, a text per line")
    parser.add_argument("runs", type=pathlib.Path, nargs="+", help="their folders")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048, 1024, 512], help="(default %(default)s)")
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 1], help="(default %(default)s)")
    parser.add_argument("--texts", type=int, default=200, help="of the validation split, to time (default %(default)s)")
    arguments = parser.parse_args()
    import_tensorflow()
    packages = "tensorflow", "keras", "ctranslate2"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as folder:
        for run in arguments.runs:
            of_a_run(arguments, run, folder, recording)
        of_opus_mt_size(arguments, folder, recording)


if __name__ == "__main__":
    main()
