"""How fast are the lines of a file answered, by `zoo translate --file` and `zoo batch`, against CTranslate2?

Three commands, each with all cores: `zoo translate --file`, `zoo batch` with one process a core, and a program that
calls CTranslate2's `Translator.translate_file` in float32 with one worker a core. All take a file of text and write
one. The model is the transformer of `serving.py`: 4 + 4 layers, width 128, random weights, 32 steps for every line, and
lines of 2 to 30 characters. The released model `dates`, which CTranslate2 cannot hold, shows our two commands with real
texts.

A command's seconds for a short file of 64 lines are its start-up. The lines a second are those of the long file without
these seconds. Commands take turns, so that all meet the same machine.

    python benchmarks/batch.py                              # needs the 'peers' extra; 8 minutes
    python benchmarks/batch.py --lines 100000 --rounds 1    # longer files
"""

from __future__ import annotations

import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from results import Recording, Table, options
from serving import STEPS, VOCABULARY, build, text

from zoo.local_workers import cores

MODELS = pathlib.Path(__file__).parent.parent / "saved_models"
SHORT, CORES = 64, cores()
PROGRAM = """
import sys
import ctranslate2
folder, given, out, beams, cores = sys.argv[1:]
translator = ctranslate2.Translator(folder, "cpu", compute_type="float32", inter_threads=int(cores), intra_threads=1)
translator.translate_file(
    given, out, max_batch_size=64, beam_size=int(beams), length_penalty=0, max_decoding_length={steps},
    source_tokenize_fn=lambda line: [str(ord(each) - {first}) for each in line] + ["</s>"],
    target_detokenize_fn=lambda tokens: "".join(chr(int(each) + {first}) for each in tokens),
)
"""
Command = Callable[[pathlib.Path, pathlib.Path], Sequence[str]]


def zoo_translate(model: str) -> Command:
    """Ours, in one process."""
    return lambda given, out: ["sh", "-c", f"{_zoo()} translate {model} --file {given} > {out}"]


def zoo_batch(model: str) -> Command:
    """Ours, by Beam."""
    return lambda given, out: [_zoo(), "batch", model, str(given), str(out), "--overwrite", f"--workers={CORES}"]


def ctranslate2_file(folder: str, beams: int) -> Command:
    """CTranslate2; the characters of `serving.py` begin at token 4."""
    program = PROGRAM.format(steps=STEPS, first=ord(text([4])) - 4)
    return lambda given, out: [sys.executable, "-c", program, folder, str(given), str(out), str(beams), str(CORES)]


def _zoo() -> str:
    return str(pathlib.Path(sys.executable).with_name("zoo"))


def seconds(command: Sequence[str]) -> float:
    """How long a command takes."""
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def compare(what: str, commands: dict[str, Command], lines: list[str], rounds: int, scratch: pathlib.Path):
    """Rows of the table, the ratio of each command to the first, and its lines."""
    files = {size: scratch / f"lines{size}.txt" for size in (SHORT, len(lines))}
    for size, file in files.items():
        file.write_text("".join(f"{line}\n" for line in lines[:size]), encoding="utf-8")
    outs = {name: scratch / f"out{number}.txt" for number, name in enumerate(commands)}
    took: dict[str, list[list[float]]] = {name: [] for name in commands}  # by round: the short file, the long one
    for number in range(rounds):
        order = list(commands) if number % 2 == 0 else list(reversed(commands))
        for name in order:
            took[name].append([seconds(commands[name](file, outs[name])) for file in files.values()])
            print(f"{what}, {name}: {' and '.join(f'{each:.1f} s' for each in took[name][-1])}", flush=True)
    speeds = {name: [(len(lines) - SHORT) / (long - short) for short, long in pairs] for name, pairs in took.items()}
    ratios, rows = {}, []
    first = next(iter(commands))
    for name, found in speeds.items():
        ratios[name] = [ours / theirs for ours, theirs in zip(speeds[first], found, strict=True)]
        start, whole = (statistics.median(each) for each in zip(*took[name], strict=True))
        spread = f"{min(ratios[name]):.2f}x - {max(ratios[name]):.2f}x" if name != first else ""
        shown = f"{statistics.median(ratios[name]):.2f}x" if name != first else ""
        rows.append([what, name, f"{start:.1f}", f"{whole:.1f}", f"{statistics.median(found):,.0f}", shown, spread])
    answers = {name: out.read_text(encoding="utf-8").splitlines() for name, out in outs.items()}
    return rows, ratios, answers


def main() -> None:
    """Runs the commands; writes one table."""
    parser = options(__doc__, rounds=3)
    parser.add_argument("--lines", type=int, help="of each file (default 16,000 and 60,000 of `dates`)")
    parser.add_argument("--beams", type=int, default=1, help="of the transformer (default %(default)s)")
    arguments = parser.parse_args()
    import ctranslate2_model
    from zoo_training.corpora.dates import Dates

    import zoo

    packages = "tensorflow", "apache-beam", "ctranslate2"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        translator = build()
        translator.beam_size = arguments.beams
        ctranslate2_model.write(translator.model, f"{scratch}/ctranslate2")
        path = str(zoo.serving.export(translator, scratch / "transformer"))
        chance = random.Random(0)
        lines = [
            text([chance.randrange(4, VOCABULARY) for _ in range(chance.randint(2, 30))])
            for _ in range(arguments.lines or 16_000)
        ]
        commands = {"`zoo translate --file`": zoo_translate(path), "`zoo batch`": zoo_batch(path)}
        commands["CTranslate2"] = ctranslate2_file(f"{scratch}/ctranslate2", arguments.beams)
        search = "greedy" if arguments.beams == 1 else f"{arguments.beams} beams"
        found = compare(f"transformer, {search}", commands, lines, arguments.rounds, scratch)
        released = str(MODELS / "dates")
        commands = {"`zoo translate --file`": zoo_translate(released), "`zoo batch`": zoo_batch(released)}
        texts = Dates(train_examples=arguments.lines or 60_000).read("train").sources
        dates = compare("`dates`", commands, list(texts), arguments.rounds, scratch)
        columns = [
            "",
            "",
            "start-up, s",
            "in all, s",
            "lines a second",
            "`zoo translate` / it",
            "range over the rounds",
        ]
        recording.table(Table("", columns, [*found[0], *dates[0]]))
        recording.headline("a file of texts, with all cores", "CTranslate2", *found[1]["CTranslate2"])
        for what, (_, _, answers) in (("Transformer", found), ("`dates`", dates)):
            first, *others = answers
            same = [f"{sum(map(str.__eq__, answers[first], answers[name])):,} of {name}" for name in others]
            recording.note(f"{what}: of {len(answers[first]):,} answers, {' and '.join(same)} equal those of {first}.")


if __name__ == "__main__":
    main()
