"""`zoo evaluate`: what it prints, and which changes it takes."""

import json
import re
import shutil

import pytest
from command_line import refuses, run, succeeds

from zoo import Translator
from zoo.tasks.results import Translation

MODEL = "saved_models/backwards"


class TestEvaluate:
    def test_the_models_own_test(self, trained):
        metrics = json.loads((trained / MODEL / "1" / "metrics.json").read_text(encoding="utf-8"))
        lines = succeeds("evaluate", MODEL).splitlines()
        assert lines[-1].split() == ["test", f"{metrics['exact_match']:.2%}", str(metrics["right"]), "of", "110"]
        assert len(lines) == 1 + len(metrics["mistakes"])
        result = json.loads(succeeds("evaluate", MODEL, "--json"))
        assert result == {key: metrics[key] for key in result}
        assert set(result) == {"metric", "exact_match", "right", "total", "by_group", "by_source_length", "mistakes"}

    def test_a_saved_translator_on_another_split(self, trained):
        result = json.loads(succeeds("evaluate", "runs/backwards/translator", "--split", "validation", "--json"))
        assert result["total"] == 110
        assert result["exact_match"] >= 0.9

    def test_another_recipe_with_groups_and_mistakes(self, trained):
        changes = ['corpus.locales=["fr", "de"]', "corpus.test_days=9", "corpus.validation_days=1"]
        sets = [argument for change in changes for argument in ("--set", change)]
        *groups, _ = lines = succeeds("evaluate", MODEL, "--recipe", "dates", *sets).splitlines()
        assert [line.split() for line in groups[:2]] == [
            ["de", "0.00%", "0", "of", "4"],
            ["fr", "0.00%", "0", "of", "5"],
        ]
        assert len([line for line in lines if re.fullmatch(r"wrong: '.+' -> '.*', not '\d{4}-\d\d-\d\d'", line)]) == 9
        assert lines[-1].split() == ["test", "0.00%", "0", "of", "9"]

    def test_another_beam_of_a_run(self, trained):
        """The run's own is 1, 0.6."""
        taken = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("zoo_training.run.score", lambda task, *_: taken.append(task) or {"digests": {}})
            patch.setattr("zoo_training.cli.evaluate._print_scores", lambda *_: None)
            succeeds("evaluate", "runs/backwards", "--set", "decoding.beam_size=3")
            changes = ("--set", "decoding.length_penalty=0.1", "--set", "corpus.seed=1", "--recipe", "backwards.toml")
            succeeds("evaluate", "runs/backwards", *changes)
        assert [(task.beam_size, task.length_penalty) for task in taken] == [(3, 0.6), (1, 0.1)]
        told = refuses("evaluate", MODEL, "--set", "decoding.beam_size=3")
        assert told == f"{MODEL} decodes as it was exported; give decoding.* for a saved translator, such as runs/NAME"

    @pytest.mark.parametrize("change", ["model.units=4", "training.epochs=1", "decoding={beam_size=3}", "beam_size=3"])
    def test_a_change_that_would_change_nothing_is_refused(self, tmp_path, change):
        told = refuses("evaluate", tmp_path, "--set", "corpus.seed=1", "--set", change)
        assert told == f"--set takes corpus.KEY=VALUE or decoding.KEY=VALUE here. Received: --set {change}"

    def test_texts_that_have_changed_since_the_training_are_told(self, trained, tmp_path, monkeypatch):
        echo = [Translation("", "", 0.0)]
        monkeypatch.setattr(Translator, "translate", lambda self, texts, batch_size: echo * len(texts))
        folder = shutil.copytree(trained / "runs" / "backwards", tmp_path / "run")
        lines = (trained / "words.tsv").read_text(encoding="utf-8").splitlines()
        (tmp_path / "words.tsv").write_text("\n".join(lines[1:]), encoding="utf-8")
        recipe = (folder / "recipe.json").read_text(encoding="utf-8")
        (folder / "recipe.json").write_text(recipe.replace('"words.tsv"', json.dumps(str(tmp_path / "words.tsv"))))
        result = run("evaluate", folder)
        assert (result.exit_code, result.stderr) == (
            0,
            "zoo: the test texts have changed since the model was trained\n",
        )
        assert run("evaluate", folder, "--set", "decoding.beam_size=2").stderr == result.stderr
        assert run("evaluate", folder, "--set", "corpus.test_pairs=5").stderr == "", "they are meant to be others"
        (tmp_path / "all.tsv").write_text("\n".join(lines[:30]), encoding="utf-8")
        told = run("evaluate", folder, "--set", f"corpus.test={tmp_path / 'all.tsv'}").stderr
        assert re.match(r"zoo: warning: the model was trained on 2\d of the 30 texts of 'test', such as '\w+'; ", told)
