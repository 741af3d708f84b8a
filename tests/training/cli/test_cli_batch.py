"""`zoo batch`: the same answers as `zoo translate` from several processes, also when one of them is killed."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import zoo_training
from command_line import refuses, run, succeeds
from zoo_training.corpora.dates import Dates

import zoo

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

from zoo_training.batch_inference import driver, infer

MODELS = pathlib.Path(__file__).parents[3] / "saved_models"
HOSTILE = [
    b"",
    b" ",
    b"a\0b",
    b"\xff\xfe",
    "日本語 २१ नवंबर".encode(),
    b"tab\tand \"quotes'",
    b"\r",
    b"x" * 1_000_000,
    b"\x1b[0m",
]
DATES = MODELS / "dates"
PYTHON = pathlib.Path(sys.executable).relative_to(sys.prefix)


def dates(number):
    rows = Dates(train_examples=number).read("train").sources
    random.Random(0).shuffle(rows)
    return [row.encode() for row in rows]


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["none", "in.txt", "out.txt"],
                "none does not exist; `zoo list` shows the exported models",
            ),
            (["in.txt", "in.txt", "out.txt"], "in.txt is a file; give the folder of a model"),
            ([DATES, "in.txt", "out.txt", "--set", "x"], "--set takes NAME=VALUE. Received: 'x'"),
            (
                [DATES, "in.txt", "out.txt", "--set", "x=1", "--set", "x=2"],
                "--set gives x twice, '1' and '2'; give it once",
            ),
            (
                [DATES, "in.txt", "out.csv"],
                "from a .txt input come .txt, .tsv or .jsonl; the output's name must end so. Received: out.csv",
            ),
            ([DATES, "in.txt", "out.txt", "--", "--x=1"], "Apache Beam has no option --x=1"),
            (
                [DATES, "in.txt", "in.txt"],
                "in.txt exists; choose another OUTPUT, or replace it by --overwrite",
            ),
        ],
    )
    def test_one_line_and_exit_code_2(self, tmp_path, monkeypatch, arguments, message):
        monkeypatch.chdir(tmp_path)
        pathlib.Path("in.txt").write_text("a\n")
        assert refuses("batch", *arguments) == message
        assert os.listdir() == ["in.txt"]

    def test_are_told_before_what_takes_seconds_to_import(self, tmp_path):
        """Beam's inference imports PyTorch, where it is installed."""
        program = (
            "import sys; from zoo_training.cli import app\n"
            "try: app(['batch', 'none', 'in.txt', 'out.txt'])\n"
            "except SystemExit: print(*sys.modules)"
        )
        finished = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
        assert finished.stderr.startswith("zoo: none does not exist; `zoo list` shows the exported models")
        assert not {"apache_beam.ml.inference", "tensorflow"} & set(finished.stdout.split())

    def test_without_beam_the_extra_is_named(self, monkeypatch):
        # The command imports the package anew, and its parent would keep the new one.
        monkeypatch.setattr(zoo_training, "batch_inference", zoo_training.batch_inference)
        for name in [
            name for name in sys.modules if name.startswith(("apache_beam", "zoo.beam", "zoo_training.batch_inference"))
        ]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "apache_beam", None)
        assert "needs `pip install 'attention-zoo[beam]'`" in refuses("batch", DATES, "in.txt", "out.txt")


@pytest.mark.long
def test_settings_of_each_row(tmp_path, monkeypatch):
    """The driver runs in this process, its workers as threads."""
    rows = [
        {"text": "The yield", "seed": 1, "max_new_tokens": 8},
        {"text": "import", "max_new_tokens": 3, "stop": "\n", "temperature": 2.0},
        {"txt": "none"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--signature", "generate", "--set", "temperature=0.5", "--workers", "1")

    def drive_once(scratch, flags, advance, seen):
        return {"counters": driver.drive(scratch, flags), "new": infer._advance(scratch, advance, seen)}

    monkeypatch.setattr(infer, "_drive_once", drive_once)
    monkeypatch.chdir(tmp_path)
    finished = run("batch", MODELS / "gpt-pydoc", "in.jsonl", "out.jsonl", *options)
    assert finished.exit_code == 0, finished.stderr
    assert finished.stderr.startswith("3 rows in ")
    assert finished.stderr.endswith(", 1 batch; 1 failed, see out.failed.jsonl\n")
    assert json.loads((tmp_path / "out.failed.jsonl").read_text())["reason"] == "a row must have 'text'; it has 'txt'"
    generate = zoo.load(MODELS / "gpt-pydoc").generate
    wanted = [
        generate(["The yield"], 8, 0.5, seed=1)[0].text,
        generate(["import"], 3, 0.5, seed=0, stop="\n")[0].text,
    ]
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["output_text"] for each in found] == wanted
    assert found[0].keys() == {"text", "seed", "max_new_tokens", "output_text", "tokens", "log_probability"}


@pytest.mark.long
def test_a_killed_worker_and_a_killed_command_lose_nothing(tmp_path, monkeypatch):
    """New workers take the place of a killed one. A killed command leaves no process; called again, it goes on, and
    each row has the answer of `zoo translate`.

    Also with spaces in the path of Python, which starts Beam's workers by a line for a shell, and with files named as
    modules of Python in the folder, where Python would look for those of the workers.
    """
    rows = [*dates(8_000), *HOSTILE]
    random.Random(1).shuffle(rows)
    (tmp_path / "in.txt").write_bytes(b"\n".join(rows) + b"\n")
    (tmp_path / "two words").symlink_to(sys.prefix)
    (tmp_path / "random.py").write_text("raise SystemExit('not the one of Python')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "two words" / PYTHON))
    arguments = ["batch", DATES, "in.txt", "out.txt", "--workers", "2"]
    program = [sys.executable, "-P", "-c", "from zoo_training.cli import main; main()"]

    def done():
        return len(list(tmp_path.glob("out.txt.parts/*-last")))

    with (tmp_path / "said").open("w+") as said, subprocess.Popen([*program, *arguments], stderr=said) as process:
        _wait_for(done, process)
        os.kill(_workers_below(process.pid)[0], signal.SIGKILL)
        _wait_for(lambda: "a worker process ended; going on: " in (tmp_path / "said").read_text(), process)
        _wait_for(lambda: len(_workers_below(process.pid)) > 1, process)
        workers = _workers_below(process.pid)
        process.kill()
    _wait_for(lambda: not any(map(_lives, workers)), seconds=10)
    before = done()
    time.sleep(2)
    assert done() == before
    assert not (tmp_path / "out.txt").exists()
    finished = run(*arguments)
    assert (finished.exit_code, finished.stdout) == (0, "out.txt\n"), finished.stderr
    going_on, warning, told = finished.stderr.splitlines()
    assert going_on.startswith("going on: ")
    assert warning == "zoo: warning: 1 row is not UTF-8; broken bytes were read as U+FFFD"
    assert told.startswith("8,009 rows in ") and told.endswith("; none failed")
    assert (tmp_path / "out.txt").read_bytes() == succeeds("translate", DATES, "--file", "in.txt").encode()


def _wait_for(condition, process=None, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end and (process is None or process.poll() is None)
        time.sleep(0.05)


def _lives(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _workers_below(process):
    """The processes of Beam's workers among the descendants of a process."""
    parents = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    found, below = [], [process]
    while below:
        below = [child for child, parent in parents.items() if parent in below]
        found += [child for child in below if b"sdk_worker_main" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()]
    return sorted(found, reverse=True)
