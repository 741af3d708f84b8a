"""A whole run, by the command itself: it learns, leaves behind what it should, and goes on after a stop."""

import csv
import json
import re
import shutil
import sys

import keras
import loopback
import numpy as np
import pytest
import tensorflow as tf
from command_line import run, succeeds
from zoo_training import run as runs
from zoo_training import translation
from zoo_training.fitting.checkpoint import CheckpointError
from zoo_training.run import Run, read_back
from zoo_training.run_files import checked_metrics, saved_digest
from zoo_training.schema.recipe import read_recipe
from zoo_training.storage import Storage, set_storage

import zoo
from zoo.cluster import ClusterError
from zoo.extras import MissingExtraError

WORDS = ["fade7", "abcdef1", "b0", "ccc3", ""]


def names(folder):
    return {path.name for path in folder.iterdir()}


class TestTraining:
    def test_it_learns_and_attends_from_the_end_to_the_beginning(self, trained):
        """On 110 words of which training has seen none."""
        metrics = json.loads((trained / "runs" / "backwards" / "metrics.json").read_text(encoding="utf-8"))
        assert metrics["total"] == 110
        assert metrics["exact_match"] >= 0.9
        exported = zoo.load("saved_models/backwards")
        assert exported(["fade7", "b0", "ccc3"]) == ["7EDAF", "0B", "3CCC"]
        (alignment,) = exported.attend(["fade7"])
        assert alignment.weights[:5, :5].argmax(axis=1).tolist() == [4, 3, 2, 1, 0]

    def test_what_the_command_tells(self, training):
        told = [line for line in training.splitlines() if "  step " not in line]
        assert told[:2] == ["Reading the corpus 'text' ...", "1,980 pairs to train on, 110 to validate with"]
        assert re.fullmatch(r"exact match on 110 test pairs: \d+\.\d\d%", told[-2])
        assert told[-1] == "run: runs/backwards   exported: saved_models/backwards/1"
        number, share = r"\d+\.\d{3}", r"\d+\.\d%"
        scores = rf"loss {number} / {number}  accuracy {share} / {share}"
        assert told[2:4] == [
            "Making the graph of the training step: some seconds, or a minute and more for a deep model ...",
            "two numbers mean: training / validation; accuracy: the share of right tokens",
        ]
        for epoch, line in enumerate(told[4:8], start=1):
            assert re.fullmatch(rf"epoch {epoch}/4  {scores}  [\d,]+k? tok/s  \d+ s left", line)
            assert len(line) <= 80
        assert told[-4] == "Scoring the model on the test split ..."
        assert told[-3] == "Exporting the model ..."


class TestFolders:
    def test_of_the_run(self, trained):
        run = trained / "runs" / "backwards"
        assert names(run) == {"recipe.json", "history.csv", "best.weights.h5", "translator", "metrics.json"}
        assert names(run / "translator") == {"translator.json", "model.keras"}
        with (run / "history.csv").open() as file:
            history = list(csv.DictReader(file))
        assert [row["epoch"] for row in history] == [str(epoch) for epoch in range(4)]
        assert set(history[0]) == {"epoch", "loss", "token_accuracy", "val_loss", "val_token_accuracy"}

    def test_of_the_exported_version(self, trained):
        run, version = trained / "runs" / "backwards", trained / "saved_models" / "backwards" / "1"
        assert names(version) >= {"saved_model.pb", "variables", "README.md", "metrics.json", "recipe.json"}
        assert (version / "recipe.json").read_bytes() == (run / "recipe.json").read_bytes()
        metrics = json.loads((version / "metrics.json").read_text(encoding="utf-8"))
        start_up = metrics.pop("start_up")
        assert metrics.pop("unpacked") == "RNNSeq2Seq has no packed form"
        assert metrics | {"models": "../../saved_models"} == json.loads(
            (run / "metrics.json").read_text(encoding="utf-8")
        )
        assert "models" not in metrics, "a place on this machine"
        size, load, first, later, cores = start_up.values()
        assert size > (version / "saved_model.pb").stat().st_size
        assert 0 < later < first and load > 0 and cores >= 1
        assert f"| to serve | {size / 1e6:.1f} MB; loaded in {load:.1f} s, " in (version / "README.md").read_text()

    def test_metrics(self, trained):
        metrics = json.loads((trained / "runs" / "backwards" / "metrics.json").read_text(encoding="utf-8"))
        run = Run.load(trained / "runs" / "backwards")
        assert metrics == run.metrics
        assert (run.task.max_source_length, run.task.max_target_length) == (12, 12)  # as the recipe says
        lengths, mistakes = metrics.pop("by_source_length"), metrics.pop("mistakes")
        assert sum(tally["total"] for tally in lengths.values()) == metrics["total"]
        assert len(mistakes) == metrics["total"] - metrics.pop("right")
        assert metrics.pop("training_seconds") > 0
        assert metrics.pop("exact_match") == pytest.approx(1 - len(mistakes) / 110, abs=1e-6)
        digests = metrics.pop("digests")
        assert digests.keys() == {"train", "validation", "test", "vocabulary", "model"}
        assert all(re.fullmatch("[0-9a-f]{32}", digest) for digest in digests.values())
        assert metrics == {
            "name": "backwards",
            "metric": "exact_match",
            "split": "test",
            "total": 110,
            "by_group": {},
            "parameters": run.task.model.count_params(),
            "training_pairs": 1980,
            "command": "zoo train backwards.toml",
            "models": "../../saved_models",
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "of_model": [
                *("training_seconds", "command", "tensorflow", "keras"),
                *("metric", "exact_match", "right", "total", "by_group", "by_source_length", "mistakes"),
            ],
        }

    def test_the_recipe_is_the_one_that_was_run_in_full(self, trained):
        assert read_back(trained / "runs" / "backwards") == read_recipe("backwards.toml")
        assert read_back(trained / "saved_models" / "backwards" / "1", ["seed=3"]).seed == 3

    def test_the_program_on_the_card_runs(self, trained):
        version = trained / "saved_models" / "backwards" / "1"
        card = (version / "README.md").read_text(encoding="utf-8")
        program = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
        program = program.replace("PATH/OF/THIS/FOLDER", str(version)).replace('"..."', '"fade7"')
        *statements, call = program.strip().splitlines()
        scope = {}
        exec("\n".join(statements), scope)
        result = eval(call, scope)
        assert result["text"].numpy().tolist() == [b"7EDAF"]
        assert set(result) == {"text", "score"}


class TestLoadingARun:
    @pytest.mark.long
    def test_can_be_exported_once_more(self, trained, tmp_path):
        run = Run.load(trained / "runs" / "backwards")
        assert run.name == "backwards"
        version = tmp_path / "again" / "1"
        assert succeeds("export", "runs/backwards", "--to", version.parent, "--explore") == f"{version}\n"
        before = trained / "saved_models/backwards/1"
        assert (version / "recipe.json").read_bytes() == (before / "recipe.json").read_bytes()
        cards = ((each / "README.md").read_text().splitlines() for each in (version, before))
        one, other = ([line for line in card if "| to serve |" not in line] for card in cards)
        assert [line for line in one if line in other] == other  # between them are lines on the signatures to explore
        assert any(line.startswith("| `complete` | `text` and the others of `next` ->") for line in one)
        assert "| weights | as in training, not packed for a server: RNNSeq2Seq has no packed form |" in one
        assert zoo.load(version)(WORDS) == run.task(WORDS)

    def test_that_has_not_finished(self, trained, tmp_path):
        unfinished = "is not the folder of a finished training run: it has no "
        with pytest.raises(FileNotFoundError, match=unfinished + r"recipe\.json; nor is it"):
            Run.load(tmp_path)
        with pytest.raises(FileNotFoundError, match=r"holds no recipe\.json, so what it was trained on is not known$"):
            read_back(tmp_path)
        shutil.copy(trained / "runs" / "backwards" / "recipe.json", tmp_path)
        with pytest.raises(FileNotFoundError, match=unfinished + r"metrics\.json; nor is it"):
            Run.load(tmp_path)


class TestAnotherModelInTheRun:
    """Scores stay with the model that they were measured on."""

    @pytest.fixture
    def folder(self, trained, tmp_path):
        folder = shutil.copytree(trained / "runs" / "backwards", tmp_path / "run")
        task = zoo.load(folder)
        task.model.weights[0].assign(task.model.weights[0] + 1)
        task.save(folder / "translator")
        return folder

    def test_has_no_scores_on_its_card(self, folder, trained, tmp_path, without_export, capfd):
        run = Run.load(folder)
        assert capfd.readouterr().err == (
            f"the model in {folder} has changed since it was trained, so the scores in metrics.json are not its own; "
            f"`zoo evaluate {folder}` prints its scores\n"
        )
        version = run.export(tmp_path / "models")
        card = (version / "README.md").read_text(encoding="utf-8")
        assert "\n| scores | none: the saved model has changed since it was trained |\n" in card
        assert not [row for row in ("exact match", "| training |", "| command |", "| made with |") if row in card]
        before = Run.load(trained / "runs" / "backwards").metrics
        assert capfd.readouterr().err == ""
        scores = {"metric", "exact_match", "right", "total", "by_group", "by_source_length", "mistakes"}
        former = {*scores, "training_seconds", "command", "tensorflow", "keras", "of_model", "models"}
        exported = json.loads((version / "metrics.json").read_text(encoding="utf-8"))
        assert exported == {name: value for name, value in before.items() if name not in former} | {
            "not_scored": "model_changed"
        }

    @pytest.mark.parametrize("family", runs._PROCEDURES.values(), ids=lambda family: family.SAVED_IN)
    def test_is_seen_in_a_run_of_every_family(self, family, tmp_path):
        saved = tmp_path / family.SAVED_IN
        saved.mkdir()
        (saved / f"{saved.name}.json").write_text("{}")
        (saved / "model.keras").write_text("one")
        metrics = {"classes": 3, "of_model": ["right"], "right": 7, "digests": {"model": saved_digest(tmp_path)}}
        (tmp_path / "metrics.json").write_text(json.dumps(metrics))
        assert checked_metrics(tmp_path) == metrics
        (saved / "model.keras").write_text("other")
        kept = {"classes": 3, "digests": metrics["digests"], "not_scored": "model_changed"}
        assert checked_metrics(tmp_path) == kept

    def test_is_not_seen_in_a_run_of_an_earlier_version(self, folder, capfd):
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        del metrics["digests"]
        (folder / "metrics.json").write_text(json.dumps(metrics))
        assert Run.load(folder).metrics == metrics
        assert capfd.readouterr().err == ""

    def test_is_scored_if_the_run_writes_its_metrics_anew(self, folder):
        run = Run.load(folder)
        run.metrics = {**run.metrics, "exact_match": 0.5}
        del run.metrics["not_scored"]
        run.save(folder)
        assert Run.load(folder).metrics["exact_match"] == 0.5


class TestStages:
    """A run that was stopped after its training goes on with its scoring or its export; nothing is trained again."""

    @pytest.fixture(scope="class")
    def translator(self, training, workplace):
        return zoo.load(workplace / "runs" / "backwards" / "translator")

    @pytest.fixture
    def folder(self, trained, translator, tmp_path, monkeypatch):
        def fail(recipe, workers):
            raise AssertionError("it is trained anew")

        monkeypatch.setattr(translation, "prepare", fail)
        monkeypatch.setattr(runs, "load", lambda path: translator)  # the same for all copies: it is traced once
        return shutil.copytree(trained / "runs" / "backwards", tmp_path / "run")

    @pytest.fixture
    def exported(self, monkeypatch):
        """What is exported, without the time that an export takes."""
        exported = []

        def export(run, path):
            exported.append(dict(run.metrics))
            return path / "1"

        monkeypatch.setattr(Run, "export", export)
        return exported

    def metrics(self, folder):
        return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))

    def stopped(self, folder, stage):
        """Makes of a finished run one that was stopped; returns its metrics as they were."""
        metrics = self.metrics(folder)
        kept = metrics | {"unfinished": stage}
        if stage == "scoring":
            scores = {"metric", "exact_match", "right", "total", "by_group", "by_source_length", "mistakes"}
            kept = {key: value for key, value in kept.items() if key not in scores} | {"not_scored": "not yet"}
            kept["of_model"] = [key for key in kept["of_model"] if key not in scores]
        (folder / "metrics.json").write_text(json.dumps(kept), encoding="utf-8")
        return metrics | {"models": str(folder.parent / "models")}  # that of `go_on`

    def go_on(self, folder, *overrides, **options):
        recipe = read_back(folder, overrides)
        set_storage(recipe.corpus, folder / "cache", folder)
        return runs.train("backwards", recipe, folder, "zoo train", folder.parent / "models", **options)

    @pytest.mark.parametrize("stage", ["scoring", "export"])
    def test_stopped_in(self, folder, exported, capfd, stage):
        for name in (".translator.tmp-ab12", ".best.tmp.weights.h5", "checkpoint.npz.tmp-ab12"):
            (folder / name).touch()
        (folder / "others.txt.tmp-ab12").touch()  # of another process, where a run is in a folder with more
        wanted = self.stopped(folder, stage)
        finished, version = self.go_on(folder)
        assert version == folder.parent / "models" / "backwards" / "1"
        assert self.metrics(folder) == wanted
        assert finished.recipe.corpus.storage.cache == folder / "cache", "not in /tmp"
        assert finished.metrics["digests"] == wanted["digests"]
        assert [metrics["exact_match"] for metrics in exported] == [wanted["exact_match"]]
        own = {"recipe.json", "history.csv", "best.weights.h5", "translator", "metrics.json"}
        assert names(folder) == own | {"others.txt.tmp-ab12"}
        assert f"{folder} holds a trained model; going on with its {stage}\n" in capfd.readouterr().err

    def test_the_chief_goes_on_alone(self, folder, exported, monkeypatch, capfd):
        """The other workers have ended, and a scheduler may start only the chief again."""
        wanted = self.stopped(folder, "export")
        hosts = loopback.addresses(2)
        monkeypatch.setenv("TF_CONFIG", loopback.config(hosts, 0))
        self.go_on(folder, wait=0.5)
        assert self.metrics(folder) == wanted
        told = f"worker 1 ({hosts[1]}) did not come within 0.5 seconds; the chief goes on alone\n"
        assert told in capfd.readouterr().err
        with pytest.raises(ClusterError, match="did not come"):
            self.go_on(folder, wait=0.5)

    @pytest.mark.parametrize(
        ("error", "told"),
        [
            (OSError(28, "No space left on device", "/a"), "cannot be written: No space left on device; once"),
            (tf.errors.InternalError(None, None, "a fault\nand more"), r"failed \(a fault\); the same command goes on"),
        ],
    )
    def test_scores_are_not_lost_in_a_stop_during_the_export(self, folder, monkeypatch, error, told):
        wanted = self.stopped(folder, "scoring")

        def fail(run, path):
            raise error

        monkeypatch.setattr(Run, "export", fail)
        with pytest.raises(OSError, match=rf"models/backwards {told}"):
            self.go_on(folder)
        assert self.metrics(folder) == wanted | {"unfinished": "export"}
        assert runs.how_to_go_on(folder) == "stopped; the model is saved, and the same command goes on with its export"

    def test_a_scoring_that_fails_costs_the_scores_only(self, folder, exported, monkeypatch):
        """The model is exported all the same, and can be scored later."""
        wanted = self.stopped(folder, "scoring")
        with monkeypatch.context() as patch:
            patch.setattr(translation, "evaluate", lambda *arguments, **options: 1 + "a")
            finished, _ = self.go_on(folder)
        reason = "TypeError: unsupported operand type(s) for +: 'int' and 'str'"
        assert exported[0]["not_scored"] == self.metrics(folder)["not_scored"] == reason
        assert "unfinished" not in self.metrics(folder)
        card = translation.card("backwards", finished.recipe, finished.task, finished.metrics)
        assert "| scores | none: the scoring failed, see `metrics.json` |" in card
        scores = json.loads(succeeds("evaluate", folder, "--json"))
        assert {key: wanted[key] for key in scores} == scores

    @pytest.mark.parametrize("stage", ["scoring", "export"])
    @pytest.mark.parametrize("split", ["train", "validation"])
    def test_other_texts_are_refused(self, folder, exported, stage, split):
        self.stopped(folder, stage)
        kept = self.metrics(folder)
        kept["digests"][split] = "that of other texts"
        (folder / "metrics.json").write_text(json.dumps(kept), encoding="utf-8")
        fault = rf"stopped before its {stage}, and its texts \({split}\) have changed since; `zoo export "
        with pytest.raises(CheckpointError, match=fault):
            self.go_on(folder)
        assert self.metrics(folder) == kept and exported == []

    def test_another_recipe_is_refused_and_so_is_a_second_training_at_once(self, folder, exported):
        self.stopped(folder, "export")
        fault = rf"holds a run of another recipe that was stopped before its export; `zoo export {folder}` exports it, "
        with pytest.raises(CheckpointError, match=re.escape(fault)):
            self.go_on(folder, "decoding.beam_size=2")
        fault = r"run is in use: process \d+ on .* trains there;"
        with runs.locked(folder), pytest.raises(BlockingIOError, match=fault):
            self.go_on(folder)
        assert exported == []
        self.go_on(folder)

    @pytest.mark.parametrize(("stage", "options"), [("export", {"restart": True}), (None, {})])
    def test_begins_anew_where_it_is_told_to_or_all_is_done(self, folder, stage, options):
        before = self.metrics(folder)
        if stage:
            self.stopped(folder, stage)
        with pytest.raises(AssertionError, match="it is trained anew"):
            self.go_on(folder, **options)
        assert stage or self.metrics(folder) == before, "they stay until there are new ones"

    def test_damaged_metrics_are_an_error_and_with_restart_it_begins_anew(self, folder):
        (folder / "metrics.json").write_text("")
        with pytest.raises(CheckpointError, match=r"metrics\.json cannot be read: .*; --restart begins anew there,"):
            self.go_on(folder)
        with pytest.raises(AssertionError, match="it is trained anew"):
            self.go_on(folder, restart=True)

    def test_what_another_worker_is_writing_stays(self, folder, exported):
        self.stopped(folder, "export")
        storage = Storage(None, folder)
        with storage.writing("texts", None) as entry:
            entry.save("numbers", np.arange(3))
        (folder / "cache.tmp-ab12").mkdir()  # of a killed process
        self.go_on(folder)
        assert [path.name for path in folder.glob("cache.tmp-*")] == [storage._temporary.name]

    def test_the_model_of_an_earlier_recipe_with_another_family_is_removed(self, folder, trained):
        (folder / "generator").mkdir()
        (folder / "generator" / "generator.json").touch()
        Run.load(folder).save(folder)
        assert names(folder) == names(trained / "runs" / "backwards")

    def test_stopped_by_hand(self, folder, trained, monkeypatch, exported):
        def stop(*arguments, **options):
            raise KeyboardInterrupt

        self.stopped(folder, "scoring")
        monkeypatch.setattr(translation, "evaluate", stop)
        result = run("train", "backwards.toml", "--out", folder)
        assert result.exit_code == 130
        told = "stopped; the model is saved, and the same command goes on with its scoring"
        assert result.stderr.splitlines()[-1] == told
        (folder / "metrics.json").unlink()  # as if it had been stopped earlier
        assert runs.how_to_go_on(folder) == "stopped before the first epoch ended; the same command begins anew"
        (folder / "checkpoint.npz").touch()
        assert runs.how_to_go_on(folder) == "stopped; the same command goes on after the last finished epoch"


def test_tensorboard_that_is_not_installed_is_named_before_all_else(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    recipe = read_recipe("dates", ["training.tensorboard=true"])
    with pytest.raises(MissingExtraError, match=r"^tensorboard is not installed: this needs `pip install"):
        runs.train("dates", recipe, tmp_path / "run", "zoo train", tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("metrics", "changed"),
    [
        ({"digests": {"train": "a", "test": "b"}}, ["test"]),
        ({"digests": {"train": "c", "test": "c"}}, []),
        ({"total": 3}, []),  # of version 0.1
        (None, []),
    ],
)
def test_splits_whose_texts_have_changed(tmp_path, metrics, changed):
    if metrics:
        (tmp_path / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    assert runs.changed_since(tmp_path, {"test": "c"}) == changed


def test_lists_of_numbers_are_lines_of_the_metrics_and_strings_stay_as_they_are():
    metrics = {
        "command": "zoo train a.toml x=[ 1, 2 ]",
        "counts": [[1, 2], [3, -4]],
        "shares": [1e-05, 0.5],
        "none": [],
    }
    text = runs.to_json(metrics)
    assert json.loads(text) == metrics
    assert all(line in text for line in ("[1, 2]", "[3, -4]", "[1e-05, 0.5]"))
