"""A whole run, by the command itself: it learns, and leaves behind what it should."""

import csv
import json
import re

import keras
import pytest
import tensorflow as tf
from zoo_training.run import Run, read_back
from zoo_training.schema.recipe import read_recipe

import zoo

WORDS = ["fade7", "abcdef1", "b0", "ccc3", ""]


def names(folder):
    return {path.name for path in folder.iterdir()}


class TestTraining:
    def test_it_learns(self, trained):
        """On 110 words of which training has seen none."""
        metrics = json.loads((trained / "runs" / "backwards" / "metrics.json").read_text(encoding="utf-8"))
        assert metrics["total"] == 110
        assert metrics["exact_match"] >= 0.9
        assert zoo.load("saved_models/backwards")(["fade7", "b0", "ccc3"]) == ["7EDAF", "0B", "3CCC"]

    def test_it_attends_from_the_end_to_the_beginning(self, trained):
        (alignment,) = zoo.load("saved_models/backwards").attend(["fade7"])
        assert alignment.weights[:5, :5].argmax(axis=1).tolist() == [4, 3, 2, 1, 0]

    def test_what_the_command_tells(self, training):
        told = training.stderr.splitlines()
        assert told[:2] == ["Reading the corpus 'text' ...", "1,980 pairs to train on, 110 to validate with"]
        assert re.fullmatch(r"exact match on 110 test pairs: \d+\.\d\d%", told[-2])
        assert told[-1] == "run: runs/backwards   exported: saved_models/backwards/1"
        number = r"\d+\.\d{3}"
        scores = rf"loss {number}  token_accuracy .*%  val_loss {number}  val_token_accuracy .*%"
        for epoch, line in enumerate(told[2:-2], start=1):
            assert re.fullmatch(rf"epoch {epoch}/4  {scores}  [\d,]+ tokens/s  \d:\d\d:\d\d left", line)
        assert len(told) == 8, "TensorFlow's notes are on the terminal"
        assert training.stdout == ""


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
        assert metrics == json.loads((run / "metrics.json").read_text(encoding="utf-8"))
        size, load, first, later, cores = start_up.values()
        assert size > (version / "saved_model.pb").stat().st_size
        assert 0 < later < first and load > 0 and cores >= 1
        assert f"| to serve | {size / 1e6:.1f} MB; loaded in {load:.1f} s, " in (version / "README.md").read_text()

    def test_metrics(self, trained):
        metrics = json.loads((trained / "runs" / "backwards" / "metrics.json").read_text(encoding="utf-8"))
        run = Run.load(trained / "runs" / "backwards")
        assert metrics == run.metrics
        lengths, mistakes = metrics.pop("by_source_length"), metrics.pop("mistakes")
        assert sum(tally["total"] for tally in lengths.values()) == metrics["total"]
        assert len(mistakes) == metrics["total"] - metrics.pop("right")
        assert metrics.pop("training_seconds") > 0
        assert metrics.pop("exact_match") == pytest.approx(1 - len(mistakes) / 110, abs=1e-6)
        assert metrics == {
            "name": "backwards",
            "metric": "exact_match",
            "split": "test",
            "total": 110,
            "by_group": {},
            "parameters": run.trained.model.count_params(),
            "training_pairs": 1980,
            "command": "zoo train backwards.toml",
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        }

    def test_the_recipe_is_the_one_that_was_run_in_full(self, trained):
        assert read_back(trained / "runs" / "backwards") == read_recipe("backwards.toml")
        assert read_back(trained / "saved_models" / "backwards" / "1", ["seed=3"]).seed == 3

    def test_limits_are_the_recipes(self, trained):
        translator = zoo.load(trained / "runs" / "backwards" / "translator")
        assert (translator.max_source_length, translator.max_target_length) == (12, 12)

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
    def test_answers_as_the_exported_model_does(self, trained):
        run = Run.load(trained / "runs" / "backwards")
        assert run.name == "backwards"
        ours, theirs = run.trained.translate(WORDS), zoo.load("saved_models/backwards").translate(WORDS)
        assert [translation.text for translation in ours] == [translation.text for translation in theirs]

    def test_can_be_exported_once_more(self, trained, tmp_path):
        run = Run.load(trained / "runs" / "backwards")
        version = run.export(tmp_path / "again")
        assert version == tmp_path / "again" / "1"
        before = trained / "saved_models/backwards/1"
        assert (version / "recipe.json").read_bytes() == (before / "recipe.json").read_bytes()
        cards = ((each / "README.md").read_text().splitlines() for each in (version, before))
        one, other = ([line for line in card if "| to serve |" not in line] for card in cards)
        assert one == other
        assert "| weights | as in training, not packed for a server: RNNSeq2Seq has no packed form |" in one
        assert zoo.load(version)(WORDS) == run.trained(WORDS)

    @pytest.mark.parametrize("file", ["recipe.json", "metrics.json"])
    def test_that_has_not_finished(self, trained, tmp_path, file):
        for name in {"recipe.json", "metrics.json"} - {file}:
            (tmp_path / name).write_bytes((trained / "runs" / "backwards" / name).read_bytes())
        with pytest.raises(
            FileNotFoundError, match=rf"is not the folder of a finished training run: it has no {file}$"
        ):
            Run.load(tmp_path)

    def test_a_folder_without_a_recipe(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"holds no recipe\.json, so what it was trained on is not known$"):
            read_back(tmp_path)
