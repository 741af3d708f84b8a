"""The command line: what it prints, where, and what it says of a mistake."""

import gzip
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import types
import warnings

import loopback
import pytest
from command_line import refuses, run, succeeds
from zoo_training.answering import answers, chunks
from zoo_training.cli import lines as lines_in
from zoo_training.cli.lines import read_lines
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


class TestTranslate:
    @pytest.mark.parametrize("model", [MODEL, f"{MODEL}/1", "runs/backwards"])
    def test_a_model_a_version_or_a_run(self, trained, model):
        assert succeeds("translate", model, "fade7", "b0") == "7EDAF\n0B\n"

    @pytest.mark.parametrize(
        ("way", "end", "last"),
        [("stdin", "\n", ""), ("--file", "\r\n", "\r\n")],
    )
    def test_one_line_out_for_one_line_in(self, trained, tmp_path, end, last, way):
        lines = ["fade7", "", "b0", "   ", "abcdef1", "b0", ""]
        content = (end.join([*lines, "ccc3"]) + last).encode()
        (tmp_path / "lines").write_bytes(content)
        arguments, stdin = ([], content) if way == "stdin" else (["--file", tmp_path / "lines"], None)
        out = succeeds("translate", MODEL, *arguments, "--batch-size", 2, stdin=stdin)
        translated = out.removesuffix("\n").split("\n")
        assert translated == zoo.load(MODEL)([*lines, "ccc3"])
        assert translated[0] == "7EDAF"

    def test_more_lines_than_are_read_at_once(self, trained):
        words = [f"{'abc'[n % 3]}{n % 10}" for n in range(40)]
        out = succeeds("translate", MODEL, "--batch-size", 1, stdin="\n".join(words))
        assert out.splitlines() == [word[::-1].upper() for word in words]

    def test_what_is_a_line(self, trained):
        lines = succeeds("translate", MODEL, stdin=b"fade7\n\xff\xfe\na\xe2\x80\xa8b\x0bc\nb0\n").splitlines()
        assert (len(lines), lines[0], lines[3]) == (4, "7EDAF", "0B")

    @pytest.mark.parametrize(("stdin", "lines"), [("", 0), ("\n\n", 2)])
    def test_empty_input(self, trained, stdin, lines):
        assert succeeds("translate", MODEL, stdin=stdin) == "\n" * lines

    def test_scores(self, trained):
        lines = succeeds("translate", MODEL, "--scores", "fade7", "").split("\n")
        wanted = zoo.load(MODEL).translate(["fade7"])[0]
        assert lines == [f"{wanted.score:.4f}\t7EDAF", "0.0000\t", ""]
        assert re.fullmatch(r"-0\.\d{4}\t7EDAF", lines[0])


class TestAnswers:
    """How the commands call a model: batches of similar lengths, in threads, in the order of the lines."""

    def call(self, texts, *sizes, wait=lambda batch: None):
        batches = []

        def model(batch):
            wait(batch)
            batches.append(batch)
            return [text.upper() for text in batch]

        found = list(answers(model, iter(texts), *sizes))
        return found, batches

    @pytest.mark.parametrize("threads", [1, 3])
    def test_come_in_the_order_of_the_lines(self, threads):
        texts = ["dddd", "a", "ccc", "bb", "eeeee", "f", "gg"]
        found, batches = self.call(texts, 5, 2, threads)
        assert found == [["DDDD", "A", "CCC", "BB", "EEEEE"], ["F", "GG"]]
        wanted = [["a", "bb"], ["ccc", "dddd"], ["eeeee"], *([["f", "gg"]] if threads == 1 else [["f"], ["gg"]])]
        assert sorted(batches) == sorted(wanted)

    def test_of_slow_batches_come_in_order(self):
        texts = [f"{n:03}" for n in range(40)]
        found, _ = self.call(texts, 10, 3, 4, wait=lambda batch: time.sleep(0.02 if "000" in batch else 0))
        assert [each for chunk in found for each in chunk] == texts

    def test_batches_run_at_once(self):
        both = threading.Barrier(2, timeout=30)  # breaks unless two calls wait at the same time
        found, _ = self.call(["a", "b"], 4, 1, 2, wait=lambda batch: both.wait())
        assert found == [["A", "B"]]

    def test_what_has_come_is_answered_before_more_is_waited_for(self):
        """As of `tail --follow`; but texts that come soon are answered together."""
        read = []

        def lines():
            for text in "abcdefg":
                read.append(text)
                yield text

        def more(seconds):
            assert 0 <= seconds <= 0.05
            return read[-1] not in "be"

        found = [("".join(each), len(read)) for each in answers(list, lines(), 2, 64, 1, more)]
        assert found == [("ab", 2), ("cd", 5), ("e", 5), ("fg", 7)]

    def test_an_error_ends_it(self):
        def refuse(batch):
            raise ValueError("not this")

        with pytest.raises(ValueError, match=r"^not this$"):
            list(answers(refuse, iter("abcdef"), 2, 1, 2))


class TestAttend:
    def test_a_page_of_all_texts(self, trained, tmp_path):
        path = tmp_path / "new" / "page.html"
        assert succeeds("attend", MODEL, "--out", path, "fade7", "ccc3") == f"{path}\n"
        page = path.read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>")
        assert "Attention of backwards" in page
        assert page.count('"spoken"') == 2

    def test_lines_and_the_usual_place(self, trained):
        assert succeeds("attend", "runs/backwards", stdin="fade7\n\n  \nb0\n") == "pictures/backwards.html\n"
        assert pathlib.Path("pictures/backwards.html").read_text(encoding="utf-8").count('"spoken"') == 2


class TestThreads:
    @pytest.mark.parametrize(("texts", "file", "threads"), [(None, None, 1), (None, "a.txt", 3), (["a"], None, 1)])
    def test_a_file_is_answered_on_all_cores_also_from_a_terminal(self, monkeypatch, texts, file, threads):
        monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr(lines_in, "cores", lambda: 3)
        monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda kind: [])
        assert lines_in.threads_for(texts, file and pathlib.Path(file)) == threads


def test_a_training_from_a_versions_recipe_has_its_models_name(trained, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("zoo_training.run.train", lambda name, recipe, folder, *_: called.append((name, str(folder))))
    succeeds("train", f"{MODEL}/1/recipe.json")
    succeeds("train", "runs/backwards/recipe.json")
    shutil.copytree("runs/backwards", tmp_path / "translator")  # a run may be called so
    succeeds("train", tmp_path / "translator" / "recipe.json")
    assert called == [("backwards", "runs/backwards")] * 2 + [("translator", "runs/translator")]


def test_more_devices_than_gpus(monkeypatch):
    monkeypatch.setattr("zoo.local_workers.gpus", lambda: ["0"])
    monkeypatch.setattr("sys.argv", ["zoo", "train", "dates", "--devices=2"])
    assert refuses("train", "dates", "--devices=2").endswith("Received: 2 processes, and GPU 0")


def test_devices_that_cannot_be(monkeypatch):
    assert refuses("train", "dates", "--devices=0") == "--devices must be `all` or a number from 1. Received: 0"
    monkeypatch.setenv("TF_CONFIG", loopback.config(["a:1", "b:2"], 0))
    assert refuses("train", "dates", "--devices=2").startswith("--devices is for one machine, and TF_CONFIG is set")


def test_a_wrong_tf_config_is_told(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    assert refuses("train", "dates").startswith("TF_CONFIG is not valid JSON")


def test_how_long_workers_may_take_to_start(workplace, tmp_path, monkeypatch):
    """`deploy/training` gives one wait, and a user perhaps another behind it."""
    waits = []
    monkeypatch.chdir(workplace)
    monkeypatch.setattr("zoo_training.run.train", lambda *arguments: waits.append(arguments[-1]))
    succeeds("train", "backwards.toml", "--out", tmp_path / "run", "--wait", 600, "--wait", 15)
    assert waits == [15]


def test_a_mistake_is_told_before_a_process_is_started_for_each_device(monkeypatch):
    monkeypatch.setattr("zoo.local_workers.start", None)
    assert "unknown key 'model.unit'" in refuses("train", "dates", "--devices=2", "--set", "model.unit=3")


@pytest.mark.long
def test_training_once_more_from_what_a_run_left_behind(trained, tmp_path, recipe, without_export):
    """Its recipe.json is a recipe; the model has the run's name; without test pairs it is scored on validation."""
    changes = [
        "model.units=4",
        "training.epochs=1",
        "training.batch_size=512",
        "corpus.test_pairs=0",
        "model.attention=none",
    ]
    sets = [argument for change in changes for argument in ("--set", change)]
    result = run(
        "train", "runs/backwards/recipe.json", *sets, "--out", tmp_path / "run", "--models", tmp_path / "models"
    )
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["name"], metrics["split"], metrics["total"]) == ("backwards", "validation", 110)
    assert [path.name for path in (tmp_path / "models" / "backwards").iterdir()] == ["1"]
    assert "110 validation pairs" in (tmp_path / "models" / "backwards" / "1" / "README.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_sentences_are_scored_by_bleu(tmp_path, monkeypatch):
    """From the training to the picture; nothing is learnt in an epoch of 60 pairs, and that is what it says."""
    monkeypatch.chdir(tmp_path)
    pairs = "".join(f"{n} men stand near a red car number {n}\t{n} Männer stehen am Auto {n}\n" for n in range(60))
    pathlib.Path("cars.tsv").write_text(pairs, encoding="utf-8")
    pathlib.Path("cars.toml").write_text(
        '[corpus]\nkind = "text"\ntrain = "cars.tsv"\ntarget_language = "de"\n[model]\nunits = 4\n'
        "[training]\nepochs = 1\nbuckets = 1\nbatch_size = 10\njit_compile = false\n"
        "[lengths]\nmax_source = 40\nmax_target = 30\n",
        encoding="utf-8",
    )
    result = run("train", "cars.toml")
    assert result.exit_code == 0, result.output
    score = r"\d+\.\d\d \[\d+\.\d, \d+\.\d\]"
    told = [f"BLEU on 3 test pairs: {score}", f"BLEU, published style on 3 test pairs: {score}"]
    told += [
        f"chrF on 3 test pairs: {score}",
        r"exact match on 3 test pairs: \d+\.\d\d%",
        "run: runs/cars   exported: .*",
    ]
    for wanted, line in zip(told, result.stderr.splitlines()[-5:], strict=True):
        assert re.fullmatch(wanted, line)
    metrics = json.loads(pathlib.Path("saved_models/cars/1/metrics.json").read_text(encoding="utf-8"))
    assert json.loads(succeeds("evaluate", "saved_models/cars", "--json")).items() <= metrics.items()
    *differing, bleu, style, chrf, exact = succeeds("evaluate", "saved_models/cars").splitlines()
    assert len(differing) == 3
    assert all(re.fullmatch(r"differs: '\d+ men .*' -> '.*', not '\d+ Männer .*'", line) for line in differing)
    for name, line in (("BLEU", bleu), ("BLEU, published style", style), ("chrF", chrf)):
        assert re.fullmatch(f"test +{name} {score}", line)
    assert exact.split() == ["test", "0.00%", "0", "of", "3"]
    assert re.search(f" 1 +{score} BLEU on 3 test pairs", succeeds("list"))
    assert "| BLEU | **" in pathlib.Path("saved_models/cars/1/README.md").read_text(encoding="utf-8")
    assert (
        refuses("compare-lengths", "runs/cars") == "Some length must have at least 10 pairs. Received: 3 pairs in all"
    )


def test_a_start_that_is_not_there_is_told_before_the_texts_are_read(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    told = refuses("train", "backwards.toml", "--set", "model.start=runs/nope", "--set", "corpus.train=nope.tsv")
    assert told == (
        "model.start: runs/nope does not exist; give the folder of a run, or of a Hugging Face model: docs/import.md "
        "says how to get one"
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("without_export")
class TestStoppedTraining:
    """A run that was interrupted in its second epoch, while it printed the results of the first."""

    @pytest.fixture
    def stopped(self, workplace, tmp_path, monkeypatch):
        monkeypatch.chdir(workplace)
        folder = tmp_path / "run"

        def interrupt(line):
            if "  step " not in line:  # the line of a whole epoch
                raise KeyboardInterrupt

        import zoo_training.fitting.callbacks

        with monkeypatch.context() as patch:
            patch.setattr(zoo_training.fitting.callbacks, "say", interrupt)
            assert self.train(folder).exit_code != 0
        assert (folder / "checkpoint.npz").is_file()
        assert not (folder / "metrics.json").exists()
        return folder

    def train(self, folder, *more):
        small = ("model.units=4", "training.epochs=2", "training.batch_size=512", "training.buckets=1")
        sets = [argument for change in small for argument in ("--set", change)]
        return run("train", "backwards.toml", *sets, *more, "--out", folder, "--models", folder.parent / "models")

    def told(self, result):
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        lines = [line for line in result.stderr.splitlines() if "  step " not in line]
        return [line for line in lines if line.startswith(("epoch", "going on"))]

    def test_the_same_command_goes_on_and_another_recipe_is_refused(self, stopped):
        before = {path.name: path.read_bytes() for path in stopped.iterdir()}
        result = self.train(stopped, "--set", "seed=1")
        assert result.exit_code == 2
        assert result.stderr == (  # before the corpus is read
            f"zoo: {stopped} holds an unfinished training whose recipe differs in seed; "
            "--restart begins anew there, and --out names another folder\n"
        )
        assert {path.name: path.read_bytes() for path in stopped.iterdir()} == before
        message, *epochs = self.told(self.train(stopped))
        assert message == "going on after epoch 1 of 2"
        assert [line[:9] for line in epochs] == ["epoch 2/2"]
        assert len((stopped / "history.csv").read_text().splitlines()) == 3
        assert not (stopped / "checkpoint.npz").exists(), "what is finished begins anew"

    def test_a_broken_checkpoint_and_a_restart(self, stopped):
        (stopped / "checkpoint.npz").write_bytes(b"PK")
        result = self.train(stopped)
        assert result.exit_code == 2
        last = result.stderr.splitlines()[-1]
        assert last.startswith(f"zoo: {stopped}/checkpoint.npz cannot be read (")
        assert last.endswith("); --restart begins anew")
        assert [line[:9] for line in self.told(self.train(stopped, "--restart"))] == ["epoch 1/2", "epoch 2/2"]


class TestWhatAFolderHolds:
    """A training replaces the files of an earlier run of its recipe, and no others."""

    @pytest.fixture
    def folder(self, workplace, tmp_path, monkeypatch):
        monkeypatch.chdir(workplace)
        monkeypatch.setattr("zoo_training.run.train", lambda *_: None)
        return tmp_path / "run"

    def fill(self, folder, **contents):
        folder.mkdir()
        for name, content in contents.items():
            (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")

    def train(self, folder, *options, recipe="backwards.toml"):
        return ("train", recipe, "--out", folder, *options)

    @pytest.mark.parametrize("name", ["recipe.json", "metrics.json"])
    @pytest.mark.parametrize("options", [(), ("--restart",)])
    def test_a_file_that_no_run_wrote(self, folder, name, options):
        self.fill(folder, **{name: "{}"})
        assert refuses(*self.train(folder, *options)) == (
            f"{folder / name} would be replaced, and is not of a run, which has history.csv; move it away, or choose "
            "another folder with --out"
        )
        assert (folder / name).read_text() == "{}"

    @pytest.mark.parametrize("name", ["translator", "classifier"])
    def test_a_folder_that_no_run_wrote(self, folder, name):
        """Such as that of a program, where `--out` is its project: a translator's run removes a former `classifier`."""
        (folder / name).mkdir(parents=True)
        told = f"{folder / name} is no model of a run, and would be in the way of one; move it away, or choose another"
        assert refuses(*self.train(folder, "--restart")) == f"{told} folder with --out"
        (folder / name / f"{name}.json").touch()
        succeeds(*self.train(folder))

    def test_a_run_of_another_recipe(self, folder):
        self.fill(folder, recipe_json="{}", history_csv="", metrics_json='{"name": "dates"}')
        assert refuses(*self.train(folder)) == (
            f"{folder} holds a run of another recipe, 'dates'; --restart begins anew there, and --out names another "
            "folder"
        )
        succeeds(*self.train(folder, "--restart"))

    @pytest.mark.parametrize("files", [{"metrics_json": '{"name": "backwards"}'}, {}, {"checkpoint_npz": ""}])
    def test_a_run_of_this_recipe(self, folder, files):
        self.fill(folder, recipe_json="{}", history_csv="", **files)
        succeeds(*self.train(folder))

    def test_the_recipe_itself(self, folder):
        self.fill(folder, recipe_json='{"corpus": {"kind": "text", "train": "words.tsv"}}')
        succeeds(*self.train(folder, recipe=folder / "recipe.json"))
        self.fill(folder.parent / "again", history_csv="", metrics_json='{"name": "backwards"}', recipe_json="{}")
        again = shutil.copy(folder / "recipe.json", folder.parent / "again")
        succeeds(*self.train(folder.parent / "again", recipe=again))

    def test_of_a_worker_that_writes_no_files(self, folder, monkeypatch):
        self.fill(folder, recipe_json="{}")
        monkeypatch.setenv("TF_CONFIG", loopback.config(["a:1", "b:2"], 1))
        succeeds(*self.train(folder))


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

    def test_a_corpus_that_is_not_there_is_told_before_the_training(self, workplace, tmp_path):
        words = workplace / "words.tsv"
        lines = [f"train = '{words}'", f"validation = '{words}'", "test = 'missing.tsv'"]
        (tmp_path / "mine.toml").write_text("\n".join(['[corpus]\nkind = "text"', *lines]))
        told = refuses("train", tmp_path / "mine.toml", "--out", tmp_path / "run", "--models", tmp_path / "models")
        assert told.startswith("missing.tsv: there is no such file in the working directory")

    @pytest.mark.parametrize(
        ("kind", "share", "lines"),
        [
            ("text", "validation_pairs = 0", []),
            ("text", "validation_share = 0.0", ['[model]\nfamily = "gpt"']),
            ("labels", "validation_texts = 0", ['[model]\nfamily = "classifier"']),
        ],
    )
    def test_a_training_without_a_validation_split(self, tmp_path, monkeypatch, kind, share, lines):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "words.tsv").write_text("".join(f"text {number}\tto {number % 3}\n" for number in range(30)))
        (tmp_path / "mine.toml").write_text(
            "\n".join(["[corpus]", f'kind = "{kind}"', 'train = "words.tsv"', share, *lines])
        )
        told = refuses("train", "mine.toml")
        assert told.startswith(f"Corpus '{kind}' has no split 'validation'; it has train")
        assert told.endswith(f"; to have one, give `validation` or remove {share.removesuffix('.0')}.")

    def test_labels_that_teach_nothing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "same.tsv").write_text("".join(f"text {number}\tsame\n" for number in range(9)))
        lines = ["[corpus]", 'kind = "labels"', *(f'{split} = "same.tsv"' for split in ("train", "validation"))]
        (tmp_path / "mine.toml").write_text("\n".join([*lines, "[model]", 'family = "classifier"']))
        result = run("train", "mine.toml")
        assert result.exit_code == 2 and "Traceback" not in result.output
        told = "zoo: The training texts have one label, 'same'; a classifier needs two classes or more."
        assert result.stderr.splitlines()[-1] == told

    def test_a_key_of_a_recipe_as_an_option(self):
        told = " ".join(run("train", "dates", "--epochs", "3").stderr.replace("│", " ").split())
        assert "No such option: --epochs. Keys of a recipe are set by --set, such as --set training.epochs=5" in told

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

    def test_a_recipe_that_does_not_fit_its_corpus(self, workplace, tmp_path, monkeypatch):
        monkeypatch.chdir(workplace)
        result = run("train", "backwards.toml", "--set", "lengths.max_source=2", "--out", tmp_path / "run")
        assert result.exit_code == 2
        told = "All 1980 pairs are longer than max_source=2 or max_target=12; raise these, or give shorter texts."
        assert result.stderr.splitlines()[-1] == f"zoo: lengths, train: {told}"
        assert "Traceback" not in result.output

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

    def test_a_place_of_the_export_is_checked_before_the_training(self, workplace, tmp_path, monkeypatch):
        (tmp_path / "words.tsv").symlink_to(workplace / "words.tsv")
        (tmp_path / "mine.toml").write_text((workplace / "backwards.toml").read_text())
        monkeypatch.chdir(tmp_path)
        (tmp_path / "file").touch()
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "mine").touch()
        for option, place, part in (
            ("--models", "file", "file"),
            ("--models", "file/deep/er", "file"),
            ("--models", "models", "models/mine"),
            ("--out", "file", "file"),
            ("--out", "file/run", "file"),
        ):
            told = refuses("train", "mine.toml", option, place)
            assert told == f"{option}: {part} is a file, and must be a folder"
        for options in (["--models", "runs"], ["--out", "elsewhere/../saved_models/mine"]):
            told = refuses("train", "mine.toml", *options)
            assert told.endswith("/mine is the folder of the run; the export needs another one: give --models or --out")
        assert not (tmp_path / "runs").exists()

    @pytest.mark.parametrize(
        "options", [["--out", "r\udce9"], ["--models", "m\udce9"], ["--set", "corpus.train=p\udce9.tsv"]]
    )
    def test_a_name_that_is_not_utf_8_is_refused_before_the_training(self, tmp_path, monkeypatch, options):
        """The scores of the run, which hold its command, could not be written at its end."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.toml").write_text('[corpus]\nkind = "text"\ntrain = "pairs.tsv"\n')
        told = refuses("train", "mine.toml", *options)
        assert re.fullmatch(r"'.*\\udce9.*' is not UTF-8, which the files of a run are in; rename it", told)

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


def test_lines_are_without_their_ends_and_the_first_without_a_byte_order_mark(tmp_path, capsys):
    (tmp_path / "lines").write_bytes("\ufeffa\r\n\ufeffb\n\r\n c \r\nd".encode())
    assert list(read_lines(None, tmp_path / "lines")) == ["a", "\ufeffb", "", " c ", "d"]
    (tmp_path / "lines").write_bytes(b"a\nb\xff\n\xe9t\xe9\n")
    assert list(read_lines(None, tmp_path / "lines")) == ["a", "b\ufffd", "\ufffdt\ufffd"]
    told = f"zoo: warning: {tmp_path / 'lines'}:2: not UTF-8; broken bytes are read as U+FFFD\n"
    assert capsys.readouterr().err == told
    assert list(read_lines(["a\n", "b\udcff"], None)) == ["a\n", "b\ufffd"]
    long = ["x" * 200_000, "", "y" * 65_535, "z" * 65_536, "end"]
    (tmp_path / "lines").write_text("\n".join(long))
    assert list(read_lines(None, tmp_path / "lines")) == long
    (tmp_path / "lines").write_text("a\nb\n", "utf-16")
    with pytest.raises(ValueError, match=r"lines: UTF-16, and not UTF-8; .* iconv -f UTF-16 -t UTF-8"):
        list(read_lines(None, tmp_path / "lines"))
    (tmp_path / "lines").write_bytes(gzip.compress(b"a\nb\n"))
    with pytest.raises(ValueError, match=r"lines: packed by gzip; unpack it first$"):
        list(read_lines(None, tmp_path / "lines"))


def test_a_pipe_tells_whether_more_lines_have_come():
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as stream, open(write_end, "wb", buffering=0) as writer:
        lines = lines_in._lines(stream)
        assert not lines.more(0)
        writer.write(b"a\nb\xc3")
        assert (next(lines), lines.more(0)) == ("a", False)
        writer.write(b"\xa9\r\n\nc")
        assert lines.more(0)
        assert (next(lines), lines.more(0)) == ("bé", True)
        assert (next(lines), lines.more(0)) == ("", False)
        writer.close()
        assert lines.more(0)  # the end
        assert list(lines) == ["c"]


def test_chunks_hold_every_line_once_in_order():
    for number in (0, 3, 7):
        parts = list(chunks(iter(map(str, range(number))), 3))
        assert [*itertools.chain(*parts)] == [str(line) for line in range(number)]
        assert all(len(chunk) == 3 for chunk in parts[:-1])
