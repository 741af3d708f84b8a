"""The command `zoo train`: what it refuses before anything takes long, how it goes on, what it replaces."""

import json
import os
import pathlib
import re
import shutil

import loopback
import pytest
from command_line import refuses, run, succeeds

MODEL = "saved_models/backwards"


def test_a_training_from_a_versions_recipe_has_its_models_name(trained, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("zoo_training.run.train", lambda name, recipe, folder, *_: called.append((name, str(folder))))
    succeeds("train", f"{MODEL}/1/recipe.json")
    succeeds("train", "runs/backwards/recipe.json")
    shutil.copytree("runs/backwards", tmp_path / "translator")  # a run may be called so
    succeeds("train", tmp_path / "translator" / "recipe.json")
    assert called == [("backwards", "runs/backwards")] * 2 + [("translator", "runs/translator")]


def test_how_long_workers_may_take_to_start(workplace, tmp_path, monkeypatch):
    """`deploy/training` gives one wait, and a user perhaps another behind it."""
    waits = []
    monkeypatch.chdir(workplace)
    monkeypatch.setattr("zoo_training.run.train", lambda *arguments: waits.append(arguments[-1]))
    succeeds("train", "backwards.toml", "--out", tmp_path / "run", "--wait", 600, "--wait", 15)
    assert waits == [15]


@pytest.mark.long
def test_training_once_more_from_what_a_run_left_behind(trained, tmp_path, without_export, eager):
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
def test_sentences_are_scored_by_bleu(tmp_path, monkeypatch, without_export, eager):
    """From the training to the picture; nothing is learnt in an epoch of 60 pairs, and that is what it says."""
    monkeypatch.chdir(tmp_path)
    pairs = "".join(f"{n} men at car {n}\t{n} Männer am Auto {n}\n" for n in range(60))
    pathlib.Path("cars.tsv").write_text(pairs, encoding="utf-8")
    pathlib.Path("cars.toml").write_text(
        '[corpus]\nkind = "text"\ntrain = "cars.tsv"\ntarget_language = "de"\n[model]\nunits = 4\n'
        "[training]\nepochs = 1\nbuckets = 1\nbatch_size = 60\njit_compile = false\n"
        "[lengths]\nmax_source = 24\nmax_target = 24\n",
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
    assert json.loads(succeeds("evaluate", "runs/cars", "--json")).items() <= metrics.items()
    *differing, bleu, style, chrf, exact = succeeds("evaluate", "runs/cars").splitlines()
    assert len(differing) == 3
    assert all(re.fullmatch(r"differs: '\d+ men .*' -> '.*', not '\d+ Männer .*'", line) for line in differing)
    for name, line in (("BLEU", bleu), ("BLEU, published style", style), ("chrF", chrf)):
        assert re.fullmatch(f"test +{name} {score}", line)
    assert exact.split() == ["test", "0.00%", "0", "of", "3"]
    pathlib.Path("saved_models/cars/1/saved_model.pb").touch()  # there is no export, for which `zoo list` looks
    assert re.search(f" 1 +{score} BLEU on 3 test pairs", succeeds("list"))
    assert "| BLEU | **" in pathlib.Path("saved_models/cars/1/README.md").read_text(encoding="utf-8")
    assert (
        refuses("compare-lengths", "runs/cars") == "Some length must have at least 10 pairs. Received: 3 pairs in all"
    )


def test_more_devices_than_gpus(monkeypatch):
    monkeypatch.setattr("zoo.local_workers.gpus", lambda: ["0"])
    monkeypatch.setattr("sys.argv", ["zoo", "train", "dates", "--devices=2"])
    assert refuses("train", "dates", "--devices=2").endswith("Received: 2 processes, and GPU 0")


def test_devices_that_cannot_be(monkeypatch):
    assert refuses("train", "dates", "--devices=0") == "--devices must be `all` or a number from 1. Received: 0"
    monkeypatch.setenv("TF_CONFIG", loopback.config(["a:1", "b:2"], 0))
    assert refuses("train", "dates", "--devices=2").startswith("--devices is for one machine, and TF_CONFIG is set")


def test_a_mistake_is_told_before_a_process_is_started_for_each_device(monkeypatch):
    monkeypatch.setattr("zoo.local_workers.start", None)
    assert "unknown key 'model.unit'" in refuses("train", "dates", "--devices=2", "--set", "model.unit=3")


def test_a_wrong_tf_config_is_told(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    assert refuses("train", "dates").startswith("TF_CONFIG is not valid JSON")


class TestMistakes:
    def test_a_start_that_is_not_there_is_told_before_the_texts_are_read(self, workplace, monkeypatch):
        monkeypatch.chdir(workplace)
        told = refuses("train", "backwards.toml", "--set", "model.start=runs/nope", "--set", "corpus.train=nope.tsv")
        assert told == (
            "model.start: runs/nope does not exist; give the folder of a run, or of a Hugging Face model: "
            "docs/import.md says how to get one"
        )

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

    def test_a_recipe_that_does_not_fit_its_corpus(self, workplace, tmp_path, monkeypatch):
        monkeypatch.chdir(workplace)
        result = run("train", "backwards.toml", "--set", "lengths.max_source=2", "--out", tmp_path / "run")
        assert result.exit_code == 2
        told = "All 1980 pairs are longer than max_source=2 or max_target=12; raise these, or give shorter texts."
        assert result.stderr.splitlines()[-1] == f"zoo: lengths, train: {told}"
        assert "Traceback" not in result.output

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
        for name, target in (("link", "nothing"), ("loop", "loop")):
            (tmp_path / name).symlink_to(target)
            told = refuses("train", "mine.toml", "--out", f"{name}/run")
            assert told == f"--out: {name} is a link to nothing, and must be a folder"
        for options in (["--models", "runs"], ["--out", "elsewhere/../saved_models/mine"]):
            told = refuses("train", "mine.toml", *options)
            assert told.endswith("/mine is the folder of the run; the export needs another one: give --models or --out")
        (tmp_path / "public").mkdir()
        # The modes of files do not bind root.
        monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK or path != pathlib.Path("public"))
        for option, place in (("--models", "public"), ("--models", "public/new"), ("--out", "public/run")):
            told = refuses("train", "mine.toml", option, place)
            assert told == f"{option}: you may not write to public; choose another folder"
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


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("without_export", "eager")
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

    def test_a_name_that_could_not_be_served_is_refused_before_the_training(self, workplace, tmp_path, monkeypatch):
        monkeypatch.chdir(workplace)
        recipe = tmp_path / "mine[1].toml"
        recipe.write_bytes((workplace / "backwards.toml").read_bytes())
        assert refuses("train", recipe, "--models", "models", "--out", tmp_path / "run") == (
            "models/mine[1]: TensorFlow loads no model from a path with brackets, [ ], or a backslash; choose another "
            "name"
        )
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        "name", ["recipe.json", "metrics.json", "checkpoint.npz", "best.weights.h5", "tensorboard"]
    )
    @pytest.mark.parametrize("options", [(), ("--restart",)])
    def test_a_file_that_no_run_wrote(self, folder, name, options):
        self.fill(folder, **{name: "{}"})
        assert refuses(*self.train(folder, *options)) == (
            f"{folder / name} would be replaced, and is not of a training, which has history.csv; move it away, or "
            "choose another folder with --out"
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
