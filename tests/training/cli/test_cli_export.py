"""`zoo export`: where to, and what it refuses."""

import json
import pathlib
import shutil

from command_line import refuses, succeeds
from zoo_training.run import Run

MODEL = "saved_models/backwards"


class TestExport:
    def test_of_an_export_is_refused(self, trained):
        for folder in (trained / MODEL, trained / MODEL / "1"):
            assert refuses("export", folder).startswith(f"{folder} is an export already: copy its folder")

    def test_of_a_saved_model(self, trained):
        told = refuses("export", "runs/backwards/translator")
        assert told.endswith("; it is a saved model, so give the run that has it, or call zoo.serving.export in Python")

    def test_of_a_family_that_hugging_face_does_not_have(self, trained, tmp_path):
        assert refuses("export", "runs/backwards", "--to-huggingface", tmp_path / "folder") == (
            "runs/backwards must be a TextGenerator of GPT or a Translator of Transformer. Received: Translator of "
            "RNNSeq2Seq"
        )

    def test_a_run_once_more_here_or_elsewhere(self, trained, tmp_path, monkeypatch):
        """Where to, and with which options; a real one is in `test_run.py`."""
        given = []
        monkeypatch.setattr(Run, "export", lambda run, *options: given.append((run.name, *options)) or "THERE/1")
        options = ("--explore", "--weights", "float16")
        assert succeeds("export", "runs/backwards", "--to", tmp_path / "again", *options) == "THERE/1\n"
        assert succeeds("export", trained / "runs" / "backwards") == "THERE/1\n"
        experiment = shutil.copytree("runs/backwards", tmp_path / "run") / "metrics.json"
        metrics = json.loads(experiment.read_text(encoding="utf-8"))
        for models in ("../../small", str(tmp_path / "large")):  # of `zoo train --models`
            experiment.write_text(json.dumps(metrics | {"models": models}), encoding="utf-8")
            assert succeeds("export", experiment.parent) == "THERE/1\n"
        assert given == [
            ("backwards", tmp_path / "again", "float16", True),
            ("backwards", pathlib.Path("saved_models/backwards"), "float32", False),
            ("backwards", pathlib.Path("small/backwards"), "float32", False),
            ("backwards", tmp_path / "large" / "backwards", "float32", False),
        ]

    def test_a_run_is_exported_to_its_models_from_any_folder_and_if_both_are_moved(
        self, trained, tmp_path, monkeypatch
    ):
        given = []
        monkeypatch.setattr(Run, "export", lambda run, path, *_: given.append(path) or "THERE/1")
        moved = tmp_path / "moved"
        shutil.copytree(trained / "runs", moved / "runs")
        (moved / "saved_models").mkdir()
        monkeypatch.chdir(tmp_path)
        (tmp_path / "linked").symlink_to(moved / "runs" / "backwards")
        for folder in (trained / "runs" / "backwards", "moved/runs/backwards", "linked"):
            succeeds("export", folder)
        assert given == [
            trained / "saved_models" / "backwards",
            *[pathlib.Path("moved/saved_models/backwards")] * 2,
        ]
