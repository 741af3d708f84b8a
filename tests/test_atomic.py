"""Files and folders that appear whole or not at all."""

import errno
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

import pytest

from zoo.atomic import remove_abandoned, remove_partial, replaced_folder, temporary_folder, whole_file, write_whole


def tree(folder):
    """Every file below a folder with its text."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def replace(path, text="new"):
    with replaced_folder(path, marker="marker") as folder:
        (folder / "marker").write_text(text)


def test_what_a_kill_left_of_a_file_is_removed(tmp_path, monkeypatch):
    write_whole(tmp_path / "file.npz", b"whole")
    with monkeypatch.context() as killed:  # before the file is in its place, and before it is cleared away
        killed.setattr(os, "replace", lambda *_: None)
        killed.setattr(pathlib.Path, "unlink", lambda *_, **__: None)
        write_whole(tmp_path / "file.npz", b"newer")
    assert len(tree(tmp_path)) == 2
    (tmp_path / "file.tmp-1").write_text("of another")
    remove_partial(tmp_path / "file.npz")
    assert tree(tmp_path) == {"file.npz": "whole", "file.tmp-1": "of another"}


@pytest.fixture
def events(monkeypatch):
    """In their order: what goes to the disk, as its path and size, and the names that are given."""
    events = []

    def noted(move):
        return lambda source, target: (events.append(os.path.basename(target)), move(source, target))

    monkeypatch.setattr(os, "rename", noted(os.rename))
    monkeypatch.setattr(os, "replace", noted(os.replace))
    shown = "/proc/self/fd/{}"
    monkeypatch.setattr(os, "fsync", lambda f: events.append((os.readlink(shown.format(f)), os.fstat(f).st_size)))
    return events


class TestPowerCut:
    """What a name stands for is what was written, whatever happens to the machine."""

    def test_a_file(self, tmp_path, events):
        write_whole(tmp_path / "file", b"whole")
        (_, size), name, (folder, _) = events
        assert (size, name, folder) == (5, "file", str(tmp_path))

    def test_the_names_of_new_folders(self, tmp_path, events):
        write_whole(tmp_path / "runs" / "mine" / "file", b"whole")
        assert [path for path, _ in events[: events.index("file") - 1]] == [str(tmp_path / "runs"), str(tmp_path)]
        events.clear()
        with temporary_folder(tmp_path / "saved_models" / "mine", "prefix"):
            assert [path for path, _ in events] == [str(tmp_path / "saved_models"), str(tmp_path)]

    @pytest.mark.parametrize("before", [False, True])
    def test_a_folder_with_all_it_holds(self, tmp_path, events, before):
        if before:
            replace(tmp_path / "model")
            events.clear()
        with replaced_folder(tmp_path / "model", marker="marker") as folder:
            (folder / "variables").mkdir()
            for name in ("marker", "variables/0"):
                (folder / name).write_text("new")
        on_disk = {str(pathlib.Path(path).relative_to(folder)) for path, _ in events[: events.index("model")]}
        assert on_disk == {".", "marker", "variables", "variables/0"}
        assert events[-1][0] == str(tmp_path)

    def test_a_file_system_that_cannot_do_this_to_folders(self, tmp_path, monkeypatch):
        fsync = os.fsync

        def of_files(file):
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "Invalid argument")
            fsync(file)

        monkeypatch.setattr(os, "fsync", of_files)
        replace(tmp_path / "model")
        assert tree(tmp_path) == {"model/marker": "new"}


def test_an_error_names_no_temporary_file(tmp_path, monkeypatch):
    with pytest.raises(IsADirectoryError) as raised, whole_file(tmp_path):
        pass
    assert (raised.value.filename, raised.value.filename2) == (str(tmp_path), None)
    with pytest.raises(FileNotFoundError) as raised, whole_file(tmp_path / "file"):
        (tmp_path / "other").read_text()
    assert str(raised.value.filename) == str(tmp_path / "other")
    (tmp_path / "text").touch()
    with pytest.raises(NotADirectoryError, match=f": '{tmp_path / 'text'}'$"), whole_file(tmp_path / "text" / "file"):
        pass

    with pytest.raises(OSError, match="No space left") as raised, whole_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == str(tmp_path / "file")
    with pytest.raises(ConnectionResetError) as raised, whole_file(tmp_path / "file"):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    assert raised.value.filename is None

    def refuse(prefix, dir):
        raise PermissionError(13, "Permission denied", f"{dir}/{prefix}1")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path}'$"), temporary_folder(tmp_path, ".x"):
        pass


def test_a_file_that_is_written_in_pieces_appears_at_the_end_and_only_without_an_error(tmp_path):
    path = tmp_path / "new" / "file"
    with whole_file(path) as file:
        file.write(b"a piece")
        assert not path.exists()
        file.write(b" and another")
    assert tree(tmp_path) == {"new/file": "a piece and another"}
    with pytest.raises(OSError, match="full"), whole_file(path) as file:
        file.write(b"newer")
        raise OSError("full")
    assert tree(tmp_path) == {"new/file": "a piece and another"}


class TestReplacedFolder:
    def test_a_new_folder_with_its_parents_and_an_empty_one(self, tmp_path):
        (tmp_path / "model").mkdir()
        for name in ("a/b/model", "model"):
            replace(tmp_path / name)
        assert tree(tmp_path) == {"a/b/model/marker": "new", "model/marker": "new"}
        assert (tmp_path / "model").stat().st_mode & 0o777 == 0o755, "others may not read it"

    def test_a_folder_with_the_marker_is_replaced_as_a_whole(self, tmp_path):
        replace(tmp_path / "model", "old")
        (tmp_path / "model" / "of the old one").touch()
        replace(tmp_path / "model")
        assert tree(tmp_path) == {"model/marker": "new"}
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    @pytest.mark.parametrize("file", ["model/other", "model/marker/other", "model"])
    def test_a_foreign_folder_or_file_is_kept(self, tmp_path, file):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("mine")
        with pytest.raises(FileExistsError, match=r"model exists and holds something else \(no marker\); choose"):
            replace(tmp_path / "model")
        assert tree(tmp_path) == {file: "mine"}

    @pytest.mark.parametrize("before", [{}, {"model/marker": "old"}], ids=["new", "old"])
    def test_after_an_error_all_is_as_before(self, tmp_path, before):
        if before:
            replace(tmp_path / "model", "old")
        with pytest.raises(KeyboardInterrupt), replaced_folder(tmp_path / "model", marker="marker") as folder:
            (folder / "marker").write_text("half")
            assert all(tree(tmp_path)[name] == content for name, content in before.items())
            raise KeyboardInterrupt
        assert tree(tmp_path) == before
        assert len(list(tmp_path.iterdir())) == len(before)

    def test_an_error_between_the_two_renames_brings_the_old_one_back(self, tmp_path, monkeypatch):
        replace(tmp_path / "model", "old")
        rename, calls = os.rename, []

        def fails_the_second_time(source, target):
            calls.append(target)
            if len(calls) == 2:
                raise OSError("the disk is gone")
            rename(source, target)

        monkeypatch.setattr(os, "rename", fails_the_second_time)
        with pytest.raises(OSError, match="the disk is gone"):
            replace(tmp_path / "model")
        assert tree(tmp_path) == {"model/marker": "old"}
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


class TestTemporaryFolder:
    def test_is_removed_with_all_it_holds(self, tmp_path):
        with temporary_folder(tmp_path / "new", ".7.tmp-") as folder, temporary_folder(tmp_path, ".7.tmp-") as other:
            assert folder.parent == tmp_path / "new"
            assert folder.name.startswith(".7.tmp-") and folder.name != other.name
            (folder / "variables").mkdir()
            (folder / "variables" / "0").touch()
        assert [path.name for path in tmp_path.rglob("*")] == ["new"]

    def test_may_be_renamed_away(self, tmp_path):
        with temporary_folder(tmp_path, ".model.tmp-") as folder:
            folder.rename(tmp_path / "model")
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_only_that_of_a_dead_process_is_abandoned(self, tmp_path):
        program = "import pathlib, sys\nfrom zoo.atomic import temporary_folder\n"
        program += "with temporary_folder(pathlib.Path(sys.argv[1]), '.tmp-') as folder:\n"
        program += "    (folder / 'half').touch(); print(flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", program, tmp_path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
            owner.stdout.readline()
            (folder,) = tmp_path.iterdir()
            remove_abandoned(folder)
            assert (folder / "half").exists(), "its owner lives"
            owner.kill()
        assert (folder / "half").exists()
        remove_abandoned(folder)
        assert not folder.exists()

    def test_one_that_is_removed_before_it_is_locked_is_made_again(self, tmp_path, monkeypatch):
        mkdtemp, made = tempfile.mkdtemp, []

        def removed_meanwhile(**arguments):
            made.append(mkdtemp(**arguments))
            if len(made) == 1:
                remove_abandoned(pathlib.Path(made[0]))
            return made[-1]

        monkeypatch.setattr(tempfile, "mkdtemp", removed_meanwhile)
        with temporary_folder(tmp_path, ".tmp-") as folder:
            assert made[1:] == [str(folder)]
            assert [*tmp_path.iterdir()] == [folder]
