"""The command `zoo check`: what it prints, and its exit codes."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf
from command_line import refuses, run, succeeds


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    module = tf.Module()
    module.weight = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(x):
        return {"y": module.weight * x}

    folder = tmp_path_factory.mktemp("saved")
    tf.saved_model.save(module, str(folder / "1"), signatures=serve)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    """A model's folder, with a clean version 1."""
    return shutil.copytree(saved, tmp_path / "model")


@pytest.fixture
def broken(model):
    """With a version 2 without its variables, and an empty version 3."""
    shutil.copytree(model / "1", model / "2")
    shutil.rmtree(model / "2" / "variables")
    (model / "3").mkdir()
    return model


def test_a_clean_model_is_one_line(model):
    (line,) = succeeds("check", model).splitlines()
    assert line.startswith(f"{model}: no problem found in version 1: 1 signature, ")
    assert line.endswith(" nodes, 1 variable")
    shutil.copytree(model / "1", model / "2")
    (line,) = succeeds("check", model).splitlines()
    assert line.startswith(f"{model}: no problem found in 2 versions: 2 signatures, ")


def test_a_check_that_fails_itself_is_one_line(model, monkeypatch):
    from zoo.serving import checking

    def fail(*_):
        raise RuntimeError("The check itself failed at graph")

    monkeypatch.setattr(checking, "_worker", fail)  # a worker's own error would end it: see tests/serving
    assert refuses("check", model) == "The check itself failed at graph"


def test_pointers_of_git_lfs_are_no_saved_model(model):
    (model / "1" / "saved_model.pb").write_text("version https://git-lfs.github.com/spec/v1\n")
    result = run("check", model)
    assert (result.exit_code, result.stdout.count("fatal git-lfs-pointer: file `saved_model.pb`")) == (2, 1)


def test_findings_by_version(broken):
    result = run("check", broken)
    assert result.exit_code == 1
    assert [run("check", broken, "--fail-on", severity).exit_code for severity in ("never", "warning")] == [0, 1]
    heads = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]
    assert [head.partition(" in ")[0] for head in heads] == [
        f"{broken}: 1 fatal",
        f"{broken}/1: no problem found",
        f"{broken}/2: 1 fatal",
    ]
    assert "  fatal missing-variables: file variables/variables.index\n" in result.stdout
    assert "  fatal empty-version: version `3`\n      It is empty.\n" in result.stdout
    assert result.stdout.count("      Fix: ") == 2
    assert max(map(len, set(result.stdout.splitlines()) - set(heads))) <= 80


def test_a_bare_saved_model_has_two_names(model):
    """The folder, in which a server finds no version, and the SavedModel itself."""
    result = run("check", shutil.copytree(model / "1", model.parent / "bare"))
    heads = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]
    assert [head.partition(" in ")[0] for head in heads] == [
        f"{model.parent}/bare as a model's folder: 1 fatal",
        f"{model.parent}/bare: no problem found",
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--fail-on", "note"], 1),
        (["--fail-on", "note", "--ignore", "ignored-folder"], 0),
    ],
)
def test_a_note_fails_only_where_that_is_asked_for(model, options, code):
    shutil.copytree(model / "1", model / "2.bad")
    result = run("check", model, *options)
    assert result.exit_code == code
    assert ("ignored-folder" in result.stdout) == ("--ignore" not in options)


def test_options(model):
    assert "note not-run: signature `serving_default`" in succeeds("check", "--run", model)
    assert refuses("check", model, "--ignore", "missing-variable") == (
        "There is no rule 'missing-variable'; did you mean 'missing-variables'?"
    )
    text = succeeds("check", "--help")
    assert "Exit code: 0 if nothing of the severity --fail-on or worse was found, 1 if" in " ".join(text.split())


def test_one_version_of_them(broken):
    assert succeeds("check", broken / "1").count("\n") == 1
    assert run("check", broken / "2").exit_code == run("check", broken / "3").exit_code == 1


def test_as_json(broken):
    result = run("check", broken, "--json")
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert (content["path"], content["findings"]) == (str(broken), 2)
    layout, first, second = content["folders"]
    assert [folder["folder"] for folder in (layout, first, second)] == [str(broken), f"{broken}/1", f"{broken}/2"]
    assert (layout["seen"], first["findings"], first["seen"]["variables"]) == (None, [], 1)
    (finding,) = second["findings"]
    assert set(finding) == {"severity", "rule", "folder", "where", "what", "why", "fix"}
    assert finding["rule"] == "missing-variables"
    clean = json.loads(succeeds("check", broken / "1", "--json"))
    assert clean["findings"] == 0


def test_what_cannot_be_read(model, tmp_path):
    assert refuses("check", tmp_path / "nowhere") == f"{tmp_path}/nowhere does not exist"
    told = f"{tmp_path} holds no SavedModel, nor versions of one; the models in it are {tmp_path}/model."
    assert refuses("check", tmp_path, "--json") == told
    assert "is no folder" in refuses("check", model / "1" / "saved_model.pb")
    shutil.copytree(model / "1", tmp_path / "whole")
    (model / "1" / "saved_model.pb").write_bytes(b"")
    result = run("check", model)
    assert result.exit_code == 2  # as long as no version can be read
    shutil.copytree(tmp_path / "whole", model / "2")
    assert run("check", model).exit_code == 1
    assert (
        "  fatal unreadable-saved-model: file saved_model.pb\n      It holds no graph, in 0 bytes.\n" in result.stdout
    )


def test_a_name_that_is_no_text_in_a_folder_with_hostile_code(model, tmp_path):
    """By a process of its own, whose arguments are bytes."""
    (model / "1" / "assets.extra").mkdir()
    (model / "1" / "assets.extra" / "tf_serving_warmup_requests").touch()
    for name in ("tensorflow", "zoo", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    odd = os.path.join(os.fsencode(model.parent), b"\xff\x1b[2J")
    os.rename(model, odd)
    command = [os.path.join(os.path.dirname(sys.executable), "zoo"), "check", odd]
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    result = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, env=environment)
    assert (result.returncode, result.stdout.count(b"\n")) == (0, 1), result.stderr
    assert b"\x1b" not in result.stdout
    assert b"zoo.serving" in result.stderr and b" tensorflow\n" not in result.stderr, "left to another process"
