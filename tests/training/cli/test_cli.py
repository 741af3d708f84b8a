"""The command line: its help, what it says of a mistake, and what a process prints and where."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import warnings

import pytest
from command_line import refuses, run, succeeds
from zoo_training.cli.shared import model_name, user_errors

import zoo
from zoo import TextGenerator
from zoo.models import GPT
from zoo.text import CharacterTokenizer

MODEL = "saved_models/backwards"
MODELS = pathlib.Path(__file__).parents[3] / "saved_models"
COMMANDS = (
    "train",
    "evaluate",
    "translate",
    "attend",
    "generate",
    "score",
    "compare-lengths",
    "confusion",
    "export",
    "list",
    "batch",
)


def test_a_warning_is_one_line_without_its_place(capsys):
    with user_errors():
        warnings.warn("one thing\n  and another", stacklevel=1)
        warnings.warn("for developers", RuntimeWarning, stacklevel=1)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "zoo: warning: one thing and another"
    assert second.startswith(__file__) and second.endswith("RuntimeWarning: for developers")


class TestHelp:
    def test_lists_every_command(self):
        assert set(re.findall(r"^│ ([\w-]+) ", succeeds("--help"), re.MULTILINE)) >= set(COMMANDS)
        assert all(f"Usage: root {command} " in succeeds(command, "--help") for command in COMMANDS)

    def test_the_version(self):
        project = tomllib.loads((MODELS.parent / "pyproject.toml").read_text())["project"]
        assert succeeds("--version") == f"{project['version']}\n"

    def test_without_a_command_help_is_shown(self):
        result = run()
        assert result.exit_code == 2
        assert "Usage: root" in result.output


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["train", "dtes"], "no recipe 'dtes' (did you mean 'dates'?); there are bert-pydoc, dates"),
            (["train", "dates", "--set", "modl.units=3"], "recipe 'dates': unknown key 'modl' (did you mean 'model'?)"),
            (["train", "dates", "--set", "model.units"], "--set 'model.units': expected KEY=VALUE"),
            (["translate", "nowhere", "a"], "nowhere does not exist; `zoo list` shows the exported models"),
            (["export", "nowhere"], "nowhere does not exist"),
            (
                ["export", "org/model"],
                "org/model does not exist; a model of the Hugging Face Hub must be",
            ),
            (
                ["embed", "org/model", "a"],
                "org/model does not exist; a model of the Hugging Face Hub must be",
            ),
            (["export", __file__], f"{__file__} is a file; name its folder"),
            (["translate", __file__, "a"], f"{__file__} is a file; give the folder of a model"),
            (["export", ".", "--shortlist", "nowhere.txt"], "nowhere.txt: No such file or directory"),
            (["export", ".", "--shortlist", "."], ".: Is a directory"),
            (["export", ".", "--shortlist", os.devnull], f"{os.devnull} has no texts"),
            (["export", ".", "--shortlist-size", "0"], "--shortlist-size is for a --shortlist"),
            (["export", ".", "--shortlist", "x", "--to-huggingface", "y"], "--shortlist is for a SavedModel"),
            (["translate", ".", "a"], ". holds no saved model of the zoo, no SavedModel and no checkpoint."),
            (["train", "dates", "--out", ""], "--out must be a path that is not empty; . is the working directory"),
            (["list", "--models="], "--models must be a path that is not empty"),
            (["export", "nowhere", "--to", ""], "--to must be a path that is not empty"),
            (["evaluate", "nowhere", "--recipe", ""], "--recipe must be a path that is not empty"),
            (["translate", "nowhere", "-f", ""], "--file must be a path that is not empty"),
            (["serve", "nowhere", ""], "MODEL must be a path that is not empty"),
            (["batch", "nowhere", "", "out"], "INPUT must be a path that is not empty"),
        ],
    )
    def test_of_names(self, tmp_path, monkeypatch, arguments, told):
        monkeypatch.chdir(tmp_path)
        assert refuses(*arguments).startswith(told)
        assert list(tmp_path.iterdir()) == []

    def test_a_name_without_its_folder_is_told_where_it_is(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for folder in ("saved_models/cc", "runs/cc"):
            (tmp_path / folder).mkdir(parents=True)
        for command in (
            ("translate", "cc", "a"),
            ("check", "cc"),
            ("serve", "cc"),
            ("batch", "cc", "in.txt", "out.txt"),
        ):
            assert refuses(*command) == "cc does not exist; did you mean saved_models/cc or runs/cc?"
        assert refuses("export", "cc") == "cc does not exist; did you mean runs/cc?"
        (tmp_path / "runs" / "cc" / "checkpoint.npz").touch()
        told = "runs/cc holds a training that has not ended; the command that began it goes on with it"
        assert refuses("export", "runs/cc").startswith(told)

    @pytest.mark.parametrize(
        "arguments",
        [
            *(("translate", "x", "-5"), ("attend", "x", "-5"), ("generate", "x", "-5"), ("score", "x", "-5")),
            *(("classify", "x", "-5"), ("embed", "x", "-5"), ("search", "x", "-5"), ("fill", "x", "-5")),
            ("serve-client", "localhost", "x", "-5"),
        ],
    )
    def test_a_text_that_begins_with_a_dash(self, arguments):
        result = run(*arguments)
        told = " ".join(result.stderr.replace("│", " ").split())
        assert result.exit_code == 2
        assert "No such option: -5. If it begins a text, put all options first, then `--`, then the texts" in told
        assert "texts" not in run(arguments[0], "--fil").stderr, "it is a misspelt option"

    @pytest.mark.parametrize("option", ["--timeout", "--poll", "--batch-wait", "--max-body"])
    def test_a_limit_of_the_server_without_end(self, option):
        result = run("serve", "nowhere", option, "inf")
        assert result.exit_code == 2 and f"Invalid value for '{option}'" in result.output

    def test_of_texts_and_files(self, trained, tmp_path):
        both = refuses("translate", MODEL, "fade7", "--file", "words.tsv")
        assert both.startswith("texts and --file were both given")
        assert refuses("translate", MODEL, "--file", "missing.txt") == "missing.txt: No such file or directory"
        assert refuses("translate", MODEL, "--file", tmp_path) == f"{tmp_path}: Is a directory"
        nothing = "no text to draw the attention of, or only empty ones; give one as an arg"
        assert all(refuses("attend", MODEL, stdin=stdin).startswith(nothing) for stdin in ("", "\n \n"))
        result = run("translate", MODEL, "fade7", "--batch-size", "0")
        assert result.exit_code == 2 and "Traceback" not in result.output

    def test_pictures_of_another_kind(self, trained, tmp_path):
        page, plot = tmp_path / "heads=8.gif", tmp_path / "path=plot.gif"
        told = refuses("attend", "nowhere", "fade7", "--out", page)  # before a model is looked for
        assert told == f"--out must end in .html, .svg, .png. Received: --out '{page}'"
        for command in ("compare-lengths", "confusion"):
            told = refuses(command, MODEL, "--out", plot)
            assert told == f"--out must end in .png, .svg, .pdf. Received: --out '{plot}'"
        assert list(tmp_path.iterdir()) == []

    def test_of_an_evaluation(self, trained, tmp_path, monkeypatch):
        """A split or key that does not exist; a model that does not say what it was trained on; texts elsewhere."""
        told = refuses("evaluate", MODEL, "--split", "tset")
        assert told.endswith("no split 'tset'; it has train, validation, test.")
        assert refuses("evaluate", MODEL, "--set", "corpus.tain=x").endswith("test_pairs, seed")
        zoo.load("runs/backwards/translator").save(tmp_path / "mine")
        told = refuses("evaluate", tmp_path / "mine")
        assert told == f"{tmp_path}/mine holds no recipe.json, so what it was trained on is not known"
        monkeypatch.chdir(tmp_path)
        told = refuses("evaluate", trained / MODEL)
        assert told.startswith("words.tsv: there is no such file in the working directory")

    def test_an_export_into_its_own_run(self, trained):
        told = refuses("export", "runs/backwards", "--to", "saved_models/../runs/backwards")
        assert told == "runs/backwards would be exported into itself; give another folder by --to"

    def test_an_export_into_its_own_run_learns_no_shortlist(self, trained, monkeypatch):
        monkeypatch.setattr("zoo_training.shortlisting.with_learnt_shortlist", None)
        told = refuses("export", "runs/backwards", "--to", "runs/backwards", "--shortlist", "words.tsv")
        assert told == "runs/backwards would be exported into itself; give another folder by --to"

    @pytest.mark.long
    def test_places_that_cannot_be_written(self, trained, tmp_path):
        (tmp_path / "file").touch()
        assert refuses("export", "runs/backwards", "--to", tmp_path / "file").endswith(
            "a model is exported into a folder."
        )
        told = refuses("train", "backwards.toml", "--out", tmp_path / "file")
        assert told == f"--out: {tmp_path / 'file'} is a file, and must be a folder"
        assert "file" in refuses("attend", MODEL, "fade7", "--out", tmp_path / "file" / "page.html")


class TestDamagedModels:
    def test_truncated_variables(self, trained, tmp_path):
        """An export cut off on its way, as by a full disk."""
        version = shutil.copytree(f"{MODEL}/1", tmp_path / "backwards" / "1")
        (variables,) = (version / "variables").glob("*.data-*")
        os.truncate(variables, 1000)
        told = refuses("translate", tmp_path / "backwards", "fade7")
        assert told.startswith(f"{version} cannot be loaded; its files may be damaged (")
        assert told.endswith(f"). `zoo check --run {version}` looks for what is wrong")

    def test_a_language_model_translates_nothing_and_may_be_truncated_too(self, tmp_path):
        tokenizer = CharacterTokenizer("abc")
        model = GPT(tokenizer.size, units=4, num_heads=2, num_layers=1, context_length=8)
        folder = TextGenerator(model, tokenizer).save(tmp_path / "generator")
        told = refuses("translate", folder, "a")
        assert told.startswith(f"{folder} is a language model, which does not turn one text into another")
        truncated = shutil.copytree(folder, tmp_path / "truncated")
        os.truncate(truncated / "model.keras", 1000)
        assert str(truncated) in refuses("generate", truncated, "a")


class TestProcess:
    """What only a separate process shows: that TensorFlow is quiet, and how bytes are read and written."""

    def test_a_line_of_a_pipe_is_answered_before_the_pipe_ends_and_stderr_holds_nothing(self, trained):
        """As of `tail --follow`; the last line has no end."""
        command = [pathlib.Path(sys.executable).with_name("zoo"), "translate", MODEL]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        with subprocess.Popen(command, cwd=trained, **pipes) as process:
            late = threading.Timer(300, process.kill)
            late.start()
            for text, answer in (("fade7", "7EDAF"), ("", ""), ("b0", "0B")):
                process.stdin.write(f"{text}\n")
                assert process.stdout.readline() == f"{answer}\n"
            assert (*process.communicate("c1"), process.returncode) == ("1C\n", "", 0)
            late.cancel()

    def test_a_closed_stdin_is_a_mistake_of_one_line(self, tmp_path, zoo_command):
        finished = zoo_command("attend", MODELS / "dates", cwd=tmp_path, preexec_fn=lambda: os.close(0))
        assert (finished.returncode, finished.stdout) == (2, "")
        assert finished.stderr == "zoo: there are no texts, and stdin is closed; give texts as arguments or by --file\n"

    def test_help_does_not_start_tensorflow(self, tmp_path, zoo_command):
        finished = zoo_command("--help", cwd=tmp_path, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
        assert finished.returncode == 0
        assert not re.search(r"\| +tensorflow$", finished.stderr, re.MULTILINE)
        assert "zoo_training.cli" in finished.stderr


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("saved_models/dates/12", "dates"),
        ("runs/dates", "dates"),
        ("runs/dates/translator", "dates"),
        ("runs/dates/generator", "dates"),
        ("saved_models/translator", "translator"),
        ("saved_models/2026", "2026"),
        ("saved_models/2026/12", "2026"),
    ],
)
def test_a_model_is_called_after_its_folder(tmp_path, path, name):
    for model in ("dates", "translator", "2026"):
        (tmp_path / "saved_models" / model / "12").mkdir(parents=True)
    assert model_name(tmp_path / path) == name
