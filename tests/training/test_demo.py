"""What `make demo` runs."""

import os
import pathlib
import signal
import subprocess
import sys

from typer.testing import CliRunner
from zoo_training import demo
from zoo_training.cli import app

ROOT = pathlib.Path(__file__).parents[2]


def test_the_answers_of_the_released_model_and_its_attention(capsys):
    demo.answer(str(ROOT / demo.RELEASED))
    answers, _, attention = capsys.readouterr().out.partition("\n\nWhat each character")
    assert [line.split()[0] for line in answers.splitlines()] == ["2026-11-21"] * 16
    source, *rows = attention.splitlines()[2:13]
    assert source.strip() == "samedi 21 novembre 2026"
    assert "".join(row[2] for row in rows) == "2026-11-21"
    # The second digit of the day comes from the 1 of 21, which the last row marks darkest.
    assert rows[-1][source.index("1")] in "▓█"


def test_each_phase_is_a_program_or_command_with_files_that_exist():
    for _, _, (program, first, *rest) in demo.PHASES:
        if program == demo.ZOO:
            assert CliRunner().invoke(app, [first, "--help"]).exit_code == 0
        else:
            assert pathlib.Path(first).is_file()
        assert all((ROOT / word).exists() for word in rest if word.startswith(("saved_models", "training")))


def test_the_new_model_takes_no_place_among_the_released_ones():
    (training,) = (command for _, _, command in demo.PHASES if "train" in command)
    assert training[-2:] == ["--models", demo.MODELS]
    *_, (_, _, answers) = demo.PHASES
    assert answers[-1] == f"{demo.MODELS}/dates"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert f"/{demo.MODELS.partition('/')[0]}/" in ignored


def test_ctrl_c_lets_the_command_of_a_phase_say_how_to_go_on():
    # Python's `subprocess.run` would kill the command a quarter of a second after Ctrl-C.
    phase = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.5), sys.exit("go on so")))
print("ready", flush=True)
time.sleep(60)
"""
    program = f"""
from zoo_training import demo
demo.PHASES = (("what", "1 s", [{sys.executable!r}, "-c", {phase!r}]),)
demo.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes in the foreground
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, "go on so\n")
