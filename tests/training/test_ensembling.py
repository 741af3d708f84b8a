"""Runs that are joined by `zoo ensemble`."""

import json
import shutil

import numpy as np
import pytest
from command_line import refuses, run, succeeds
from zoo_training.run import Run

import zoo
from zoo.models import Ensemble
from zoo.testing.tasks import eagerly


@pytest.fixture
def other(trained):
    """A run like `runs/backwards`, with other weights."""
    folder = shutil.copytree(trained / "runs" / "backwards", trained / "runs" / "other")
    task = zoo.load(folder)
    for weight in task.model.weights:
        weight.assign(weight * 1.1)
    task.save(folder / "translator")
    yield folder
    for each in (folder, trained / "runs" / "both", trained / "saved_models" / "both"):
        shutil.rmtree(each, ignore_errors=True)


def test_the_result_is_a_run_of_its_own(trained, other, without_export, monkeypatch):
    arguments = ["ensemble", "runs/backwards", "runs/other", "--out", "runs/both"]
    monkeypatch.setattr("sys.argv", ["zoo", *arguments])
    folder = trained / "runs" / "both"
    folder.mkdir()
    shutil.copy(other / "recipe.json", folder)  # as where the disk was full, and the same command is given again
    told = run(*arguments).stderr.splitlines()
    assert told[-1] == "run: runs/both   exported: saved_models/both/1"
    both = Run.load(folder)
    assert both.name == "both" and isinstance(both.task.model, Ensemble)
    first, second = (zoo.load(folder) for folder in (trained / "runs" / "backwards", other))
    assert both.task._settings() == first._settings()
    # Of an empty target, which has one token, the mean of the probabilities is that of the texts.
    with eagerly():
        found, *ends = (task.score(["b0"], [""])[0].log_probability for task in (both.task, first, second))
    assert ends[0] != ends[1]
    assert found == pytest.approx(np.logaddexp(*ends) - np.log(2), rel=1e-4)
    metrics = both.metrics
    assert metrics["ensemble"] == ["runs/backwards", "runs/other"]
    assert metrics["command"] == "zoo ensemble runs/backwards runs/other --out runs/both"
    assert metrics["parameters"] == 2 * first.model.count_params()
    assert metrics["total"] == 110 and "unfinished" not in metrics
    assert "training_seconds" not in metrics, "the time of a model that was replaced is not known"
    assert told[-2] == f"exact match on 110 test pairs: {metrics['exact_match']:.2%}"
    card = (trained / "saved_models" / "both" / "1" / "README.md").read_text(encoding="utf-8")
    number = f"`RNNSeq2Seq` of {first.model.count_params():,} parameters"
    assert f"\n| the mean of | {number}, {number} |\n" in card
    scores = json.loads(succeeds("evaluate", "runs/both", "--json"))
    assert scores["exact_match"] == metrics["exact_match"]
    # The same command replaces it; what is no ensemble stays.
    shutil.rmtree(trained / "saved_models" / "both")
    monkeypatch.setattr("zoo_training.run.score", lambda *_: {**metrics, "digests": {}})  # of four models, for seconds
    assert run(*arguments[:3], "runs/both", "--out", "runs/both").exit_code == 0
    assert len(Run.load(trained / "runs" / "both").task.model.models) == 4
    told = "runs/other holds a run that is no ensemble; choose another folder with --out"
    assert refuses(*arguments[:3], "--out", "runs/other") == told
    for file in ("recipe.json", "metrics.json", "history.csv"):
        (other / file).unlink()
    (other / "checkpoint.npz").touch()  # of a training that has not ended
    assert refuses("ensemble", "runs/backwards", "runs/both", "--out", "runs/other") == told


def test_other_vocabularies_are_refused(trained, other):
    task = zoo.load(other)
    letters = task.target_tokenizer.tokens([range(4, task.target_tokenizer.size)]).numpy()[0].tolist()
    turned = zoo.text.CharacterTokenizer(b"".join(letters[::-1]).decode())
    zoo.Translator(task.model, task.source_tokenizer, turned, **task._settings()).save(other / "translator")
    told = (
        "zoo: runs/other has another target vocabulary than runs/backwards; train both with the same `[tokenizer]` and "
        "the same texts"
    )
    refused = run("ensemble", "runs/backwards", "runs/other", "--out", "runs/both")
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (2, told)
    assert not (trained / "runs" / "both").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere", "runs/backwards"], "nowhere does not exist; give the folders of runs"),
        (["other", "runs/backwards"], "other does not exist; did you mean runs/other?; give the folders of runs"),
        (
            ["runs/backwards", "runs/other", "--out", "saved_models/both"],
            "saved_models/both is the folder of the run; the export needs another one: give --models or --out",
        ),
        (["runs/backwards"], "an ensemble is of two or more different runs. Received: runs/backwards"),
        (
            ["runs/backwards", "./runs/backwards"],
            "an ensemble is of two or more different runs. Received: runs/backwards runs/backwards",
        ),
        (
            ["runs/backwards", "saved_models/backwards"],
            "saved_models/backwards is an export; give the run that it was made from, such as runs/NAME",
        ),
    ],
)
def test_what_is_no_run_is_refused(arguments, told, trained, other):
    assert refuses("ensemble", *arguments) == told
