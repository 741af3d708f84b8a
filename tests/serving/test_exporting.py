"""Exporting: versions count up, appear whole or not at all, and leave nothing else behind."""

import errno
import os
import pathlib
import threading
import time

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from zoo.atomic import temporary_folder
from zoo.serving import export, newest_version, versions

SAVED_MODEL = {"saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra", "batching_params.pbtxt"}
VARIABLES = {"variables.index", "variables.data-00000-of-00001"}


def names(folder):
    return {child.name for child in folder.iterdir()}


@pytest.fixture
def quick_save(monkeypatch):
    """Instead of a SavedModel empty files of its names, one after the other, where only the folders matter."""

    def save(_, folder, signatures, options):
        for file in ("variables/variables.index", "variables/variables.data-00000-of-00001", "saved_model.pb"):
            pathlib.Path(folder, file).parent.mkdir(parents=True, exist_ok=True)
            time.sleep(0.002)
            pathlib.Path(folder, file).touch()

    monkeypatch.setattr(tf.saved_model, "save", save)


def test_the_layout_of_a_server_and_nothing_else(exported):
    assert names(exported) == {"1"}
    assert names(exported.parent) == {"tiny"}
    assert names(exported / "1") == SAVED_MODEL
    assert names(exported / "1" / "variables") == VARIABLES


def test_a_text_beside_the_graph(translator, tmp_path, quick_save):
    version = export(translator, str(tmp_path / "new" / "folders" / "tiny"), {"README.md": "# é"})
    assert version == tmp_path / "new" / "folders" / "tiny" / "1"
    assert (version / "README.md").read_bytes() == "# é".encode()


def test_a_version_is_on_the_disk_before_its_name(translator, tmp_path, quick_save, monkeypatch):
    """A server that comes back after a power cut finds all of it or nothing."""
    on_disk = set()
    monkeypatch.setattr(os, "fsync", lambda file: names(tmp_path) & {"1"} or on_disk.add(os.fstat(file).st_ino))
    version = export(translator, tmp_path, {"README.md": "a card"})
    assert on_disk == {path.stat().st_ino for path in (version, *version.rglob("*"))}


def test_what_is_no_task(translator, tmp_path):
    with pytest.raises(ValueError, match=r"`model` must be a task.* Received: model of type \w+"):
        export(translator.model, tmp_path / "tiny")
    assert not names(tmp_path)


def test_weights_of_the_model_alone_are_exported(exported, translator):
    """No optimizer, and no weight twice."""
    listed = tf.train.list_variables(str(exported / "1" / "variables" / "variables"))
    sizes = sorted(tuple(shape) for name, shape in listed if "OBJECT_GRAPH" not in name)
    assert sizes == sorted(tuple(weight.shape) for weight in translator.model.weights)


def test_decoding_runs_its_steps_as_functions(exported):
    saved = saved_model_pb2.SavedModel.FromString((exported / "1" / "saved_model.pb").read_bytes())
    nodes = [node for function in saved.meta_graphs[0].graph_def.library.function for node in function.node_def]
    whole = [each for each in nodes if each.op.endswith("While") and not each.attr["_lower_using_switch_merge"].b]
    assert whole and {each.attr["body"].func.attr["_executor"].s for each in whole} == {b"SINGLE_THREADED_EXECUTOR"}


def test_a_version_can_be_read_by_another_user(exported):
    version = exported / "1"
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in version.rglob("*"))
    assert all(path.stat().st_mode & 0o055 == 0o055 for path in (version, version / "variables"))


def test_the_next_version_follows_the_highest(translator, tmp_path, quick_save):
    for name in ("3", "7", "9.old", ".hidden"):
        (tmp_path / name).mkdir()
    assert export(translator, tmp_path) == tmp_path / "8"


def test_a_file_in_the_way_is_passed_over_and_kept(translator, tmp_path, quick_save):
    (tmp_path / "1").write_text("mine")
    assert export(translator, tmp_path) == tmp_path / "2"
    assert (tmp_path / "1").read_text() == "mine"


def test_a_link_to_nothing_in_the_way_is_passed_over_and_kept(translator, tmp_path, quick_save):
    (tmp_path / "1").symlink_to("nowhere")
    assert export(translator, tmp_path) == tmp_path / "2"
    assert names(tmp_path) == {"1", "2"}


def test_a_path_that_is_a_file(translator, tmp_path):
    (tmp_path / "tiny").write_text("mine")
    with pytest.raises(FileExistsError, match=r"tiny is a file; a model is exported into a folder\.$"):
        export(translator, tmp_path / "tiny")
    assert (tmp_path / "tiny").read_text() == "mine"


def test_files_that_depend_on_what_was_exported(translator, tmp_path, quick_save):
    def files(folder):
        seen.update(path.name for path in folder.iterdir())
        return {"README.md": "of " + str(len(seen))}

    seen = set()
    version = export(translator, tmp_path / "tiny", files)
    assert {"assets.extra", "batching_params.pbtxt"} <= seen
    assert "README.md" not in seen
    assert (version / "README.md").read_text() == f"of {len(seen)}"

    def fails(folder):
        raise RuntimeError("no card")

    with pytest.raises(RuntimeError, match="no card"):
        export(translator, tmp_path / "tiny", fails)
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == ["1"]


def test_a_folder_that_is_a_link_to_another_file_system(translator, tmp_path, quick_save, monkeypatch):
    """Files may only be renamed below the target, as where it is a mount."""
    target = tmp_path / "mounted"
    target.mkdir()
    (tmp_path / "tiny").symlink_to(target)
    rename = os.rename

    def across(source, to):
        if pathlib.Path(source).resolve().is_relative_to(target) != pathlib.Path(to).resolve().is_relative_to(target):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, to)

    monkeypatch.setattr(os, "rename", across)
    assert export(translator, tmp_path / "tiny") == tmp_path / "tiny" / "1"
    assert names(target) == {"1"}
    assert names(tmp_path) == {"mounted", "tiny"}


def test_what_killed_exports_have_left_is_removed(translator, tmp_path, quick_save):
    model = tmp_path / "t?ny"
    for folder in (model / ".export.tmp-a", tmp_path / ".t?ny.tmp-b"):
        (folder / "version" / "variables").mkdir(parents=True)
    kept = [tmp_path / ".t?ny.tmp-c" / "t?ny", tmp_path / ".tiny.tmp-d" / "version", model / ".other"]
    for folder in kept:
        folder.mkdir(parents=True)
    with temporary_folder(model, ".export.tmp-") as of_another:
        assert export(translator, model) == model / "1"
        assert of_another.exists()
    assert names(model) == {"1", ".other"}
    assert names(tmp_path) == {"t?ny", ".t?ny.tmp-c", ".tiny.tmp-d"}
    assert all(folder.exists() for folder in kept)


def test_there_is_no_version_after_the_largest(translator, tmp_path, quick_save):
    (tmp_path / str(2**63 - 2)).mkdir()
    assert export(translator, tmp_path) == tmp_path / str(2**63 - 1)
    with pytest.raises(ValueError, match="holds version 9223372036854775807, the largest number that a server knows"):
        export(translator, tmp_path)
    assert len(names(tmp_path)) == 2


def test_a_crash_in_the_middle_leaves_no_version_and_nothing_temporary(translator, tmp_path, monkeypatch):
    def crash(_, folder, signatures, options):
        os.makedirs(os.path.join(folder, "variables"))
        pathlib.Path(folder, "saved_model.pb").write_bytes(b"half")
        raise OSError("no space left on device")

    model = tmp_path / "tiny"
    (model / "1").mkdir(parents=True)
    (model / "1" / "saved_model.pb").write_bytes(b"whole")
    monkeypatch.setattr(tf.saved_model, "save", crash)
    with pytest.raises(OSError, match="no space left"):
        export(translator, model)
    assert names(tmp_path) == {"tiny"}
    assert names(model) == {"1"}
    assert (model / "1" / "saved_model.pb").read_bytes() == b"whole"


def test_a_file_that_cannot_be_written_leaves_no_version(translator, tmp_path, quick_save):
    with pytest.raises(OSError, match="no/such/folder"):
        export(translator, tmp_path / "tiny", {"no/such/folder": ""})
    assert names(tmp_path) == {"tiny"}
    assert names(tmp_path / "tiny") == set()


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "{{node SaveV2}} /a/file; No space left on device [Op:SaveV2]"),
        OSError(errno.ENOSPC, "No space left on device"),  # of a file that is open, so without its name
    ],
)
def test_a_full_disk_is_an_error_that_names_the_folder(translator, tmp_path, quick_save, error):
    def fail(folder):
        raise error

    with pytest.raises(OSError, match="No space left on device") as raised:
        export(translator, tmp_path / "tiny", fail)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "tiny"))
    assert names(tmp_path / "tiny") == set()


def test_a_version_that_another_export_has_just_taken_is_kept(translator, tmp_path, quick_save, monkeypatch):
    rename = os.rename

    def taken_meanwhile(source, target):
        if not versions(tmp_path):
            (tmp_path / "1").mkdir()
            (tmp_path / "1" / "saved_model.pb").write_bytes(b"the other's")
        rename(source, target)

    monkeypatch.setattr(os, "rename", taken_meanwhile)
    assert export(translator, tmp_path) == tmp_path / "2"
    assert (tmp_path / "1" / "saved_model.pb").read_bytes() == b"the other's"
    assert names(tmp_path) == {"1", "2"}


def test_exports_at_the_same_time_all_land(translator, tmp_path, quick_save, monkeypatch):
    """All compute their number before any of them takes it."""
    exporters = 6
    barrier, rename, first = threading.Barrier(exporters), os.rename, threading.local()

    def together(source, target):
        if not getattr(first, "over", False):
            first.over = True
            barrier.wait(timeout=20)
        rename(source, target)

    monkeypatch.setattr(os, "rename", together)
    threads = [
        threading.Thread(target=export, args=(translator, tmp_path, {"which": str(which)}))
        for which in range(exporters)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(versions(tmp_path)) == list(range(1, exporters + 1))
    found = {(tmp_path / str(version) / "which").read_text() for version in versions(tmp_path)}
    assert found == {str(which) for which in range(exporters)}


def test_an_error_of_the_file_system_is_not_taken_for_a_race(translator, tmp_path, quick_save, monkeypatch):
    def denied(*_):
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "rename", denied)
    with pytest.raises(PermissionError, match="not yours"):
        export(translator, tmp_path / "tiny")


def test_a_reader_never_sees_half_a_version(translator, tmp_path, quick_save):
    """A server polls the folder for the newest version, and loads it at once."""
    files = {*SAVED_MODEL - {"fingerprint.pb", "assets"}, "README.md"}
    halves, seen, over = [], set(), threading.Event()

    def poll():
        while not over.is_set():
            time.sleep(0.0005)  # or the export would hardly get on
            for version in versions(tmp_path):
                folder = tmp_path / str(version)
                seen.add(version)
                if names(folder) != files or names(folder / "variables") != VARIABLES:
                    halves.append(sorted(path.name for path in folder.rglob("*")))

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for _ in range(8):
            export(translator, tmp_path, {"README.md": "a card"})
    finally:
        over.set()
        reader.join()
    assert newest_version(tmp_path) == tmp_path / "8"
    assert halves == []
    assert len(seen) > 1
