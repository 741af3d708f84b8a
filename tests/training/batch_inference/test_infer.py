"""Runs that are stopped, killed or disturbed: nothing is lost or repeated."""

import gzip
import os
import pathlib
import threading
from unittest import mock

import pytest

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from bucket import Bucket
from nine_rows import expected, write_input
from zoo_training.batch_inference import driver, infer
from zoo_training.batch_inference.infer import beam_options, infer_files
from zoo_training.batch_inference.parts import parts_in
from zoo_training.batch_inference.plan import Request

from zoo.tasks.results import Failure

MODELS = pathlib.Path(__file__).parents[3] / "saved_models"
FULL = pathlib.Path("/dev/full")  # takes nothing


class TestUnfinishedRuns:
    def test_only_what_is_missing_is_computed(self, upper, place, small_chunks, monkeypatch):
        write_input("txt", place / "in.txt")
        asked = Request(upper, "in.txt", "out.txt")
        with monkeypatch.context() as patch:
            patch.setattr(infer, "join", mock.Mock(side_effect=OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                infer_files(asked)
        parts = parts_in("out.txt.parts")
        assert [(part.chunk, part.lines) for part in parts] == [(0, 2), (0, 2), (0, 1), (1, 2), (1, 1), (2, 1)]
        for part in parts:
            if (part.chunk == 1 and part.last) or part.chunk == 2:
                os.remove(part.path)
        told = []
        summary = infer_files(asked, say=told.append)
        assert told == ["going on: 1 of 3 parts are done"]
        assert summary.counters["rows"] < 9
        assert (place / "out.txt").read_text(encoding="utf-8") == expected("txt", "txt")
        assert sorted(os.listdir()) == ["in.txt", "out.failed.jsonl", "out.txt"]

    def test_rows_that_are_not_utf_8_are_counted_in_what_was_done_before(self, upper, place, small_chunks, monkeypatch):
        (place / "in.txt").write_bytes(b"caf\xe9\n" * 9)
        asked = Request(upper, "in.txt", "out.txt")
        with monkeypatch.context() as patch:
            patch.setattr(infer, "join", mock.Mock(side_effect=OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                infer_files(asked)
        os.remove(parts_in("out.txt.parts")[-1].path)
        assert infer_files(asked).broken == 9

    def test_a_window_that_two_workers_have_written_counts_once(self, upper, place, small_chunks, monkeypatch):
        """The second try of a worker may have another number of failures, for example when memory is short."""
        write_input("txt", place / "in.txt")
        write = driver.write_part

        def write_twice(folder, window, answers, layout):
            write(folder, window, [Failure("no memory"), *answers[1:]], layout)
            write(folder, window, answers, layout)

        monkeypatch.setattr(driver, "write_part", write_twice)
        told = []
        summary = infer_files(Request(upper, "in.txt", "out.txt", outputs=["length"]), advance=told.append)
        assert summary.done + summary.failed == sum(told) == 9
        assert len((place / "out.txt").read_text().splitlines()) == 9

    @pytest.mark.parametrize("folder", ["", "new/deep/"])
    @pytest.mark.parametrize("other", ["out.txt", "out.jsonl"])
    def test_two_commands_do_not_write_the_same_files(self, upper, place, folder, other):
        """Neither the same output nor the same file of failed rows."""
        (place / "in.txt").write_text("a\n")
        asked, out = Request(upper, "in.txt", f"{folder}out.txt"), f"{folder}out.txt"
        wait = "wait until it has ended, or choose another OUTPUT$"
        fault = f"^process {os.getpid()} on .* writes {out} or {folder}out.failed.jsonl; {wait}"
        with (
            infer._alone(Request(upper, "in.txt", f"{folder}{other}")),
            pytest.raises(BlockingIOError, match=fault),
        ):
            infer_files(asked)
        assert os.listdir() == ["in.txt"]
        infer_files(asked)
        assert sorted(path.name for path in place.rglob("*.*")) == ["in.txt", "out.txt"]

    def test_an_output_that_another_command_has_just_written_is_kept(self, upper, place, monkeypatch):
        (place / "in.txt").write_text("a\n")
        alone = infer._alone

        def after_another(asked):
            (place / "new").mkdir()
            (place / "new" / "out.txt").write_text("old")
            return alone(asked)

        monkeypatch.setattr(infer, "_alone", after_another)
        with pytest.raises(FileExistsError, match=r"^new/out\.txt exists; choose another OUTPUT, or replace it by"):
            infer_files(Request(upper, "in.txt", "new/out.txt"))
        assert (place / "new" / "out.txt").read_text() == "old"

    def test_what_a_kill_leaves_is_in_the_folder_of_the_parts(self, upper, place, monkeypatch):
        """Elsewhere a pattern would take half an output for an input."""
        (place / "in.txt").write_text("a\nbad\n")
        create, created = FileSystems.create, []
        monkeypatch.setattr(FileSystems, "create", lambda path, **given: created.append(path) or create(path, **given))
        infer_files(Request(upper, "*.txt", "out.txt", outputs=["text"]))
        assert sum("/out.txt.tmp-" in path or "/out.failed.jsonl.tmp-" in path for path in created) == 2
        assert not [path for path in created if not path.startswith(("out.txt.parts/", f"{place}/out.txt.parts/"))]

    @pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
    @pytest.mark.parametrize("name", ["out.txt", "out.failed.jsonl"])
    def test_a_full_disk_is_told_with_the_name_of_the_file(self, upper, place, monkeypatch, name):
        (place / "in.txt").write_text("a\nbad\n")
        create = FileSystems.create
        with monkeypatch.context() as patch:
            patch.setattr(
                FileSystems,
                "create",
                lambda path, **given: FULL.open("wb") if f"/{name}.tmp-" in path else create(path, **given),
            )
            with pytest.raises(OSError, match=rf"^{name} cannot be written: No space left on device; once it can"):
                infer_files(Request(upper, "in.txt", "out.txt"))
        assert not list(place.rglob("*.tmp-*"))
        infer_files(Request(upper, "in.txt", "out.txt"))
        assert (place / "out.txt").read_text() == ">A\n\n"

    @pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
    def test_processes_can_print_although_their_log_cannot_grow(self):
        errors, printing = os.pipe()
        with FULL.open("ab", buffering=0) as log:
            copying = threading.Thread(target=infer._copy, args=(os.fdopen(errors, "rb"), log))
            copying.start()
            with os.fdopen(printing, "wb") as file:
                file.write(bytes(1 << 20))  # more than a pipe holds
            copying.join(60)
        assert not copying.is_alive()

    def test_parts_of_another_run_are_kept_unless_they_are_to_be_dropped(self, upper, place):
        (place / "in.txt").write_text("a\n")
        (place / "out.txt.parts").mkdir()
        (place / "out.txt.parts" / "plan.json").write_text("{}")
        with pytest.raises(
            FileExistsError, match=r"^out\.txt\.parts holds an unfinished run with another model, input"
        ):
            infer_files(Request(upper, "in.txt", "out.txt"))
        assert os.listdir("out.txt.parts") == ["plan.json"]
        assert infer_files(Request(upper, "in.txt", "out.txt"), overwrite=True).done == 1


class TestBuckets:
    @pytest.fixture
    def files(self, monkeypatch):
        files = {"bucket://b/in/1.txt": b"one\nbad\n", "bucket://b/in/2.txt.gz": gzip.compress(b"two\n")}
        monkeypatch.setattr(Bucket, "files", files)
        return files

    @pytest.fixture
    def stopped(self, upper, files, monkeypatch):
        """A request that had answered all rows when the network failed."""
        asked = Request(upper, "bucket://b/in/*", "bucket://b/out.txt", outputs=["text"])
        with monkeypatch.context() as patch:
            patch.setattr(infer, "join", mock.Mock(side_effect=OSError("no network")))
            with pytest.raises(OSError, match="no network"):
                infer_files(asked)
        return asked

    def test_no_part_stays(self, upper, files):
        inputs = list(files)
        infer_files(Request(upper, "bucket://b/in/*", "bucket://b/out.txt", outputs=["text"]))
        assert sorted(files.keys() - inputs) == ["bucket://b/out.failed.jsonl", "bucket://b/out.txt"]
        assert files["bucket://b/out.txt"] == b">ONE\n\n>TWO\n"

    def test_parts_of_another_run_are_not_taken(self, files, stopped):
        files |= {"bucket://b/in/1.txt": b"changed\n", "bucket://b/in/2.txt.gz": gzip.compress(b"changed, too\n")}
        infer_files(stopped, overwrite=True)
        assert files["bucket://b/out.txt"] == b">CHANGED\n>CHANGED, TOO\n"

    def test_an_unfinished_run_goes_on_though_its_failed_rows_are_written(self, files, stopped):
        assert "bucket://b/out.failed.jsonl" in files
        told = []
        infer_files(stopped, say=told.append)
        assert told == ["going on: 2 of 2 parts are done"]

    def test_an_error_names_no_log_since_there_is_none(self, upper, files, monkeypatch):
        monkeypatch.setattr(infer, "_drive_once", lambda *given: {"error": "it broke", "new": 0})
        with pytest.raises(OSError, match=r"^the pipeline failed: it broke; the same command goes on$"):
            infer_files(Request(upper, "bucket://b/in/1.txt", "bucket://b/out.txt"))


class TestDrivers:
    @pytest.fixture
    def run_with(self, upper, place, monkeypatch):
        """Runs with drivers that do the next of some things, and gives what is said."""

        def run(*things):
            write_input("txt", place / "in.txt")
            left, told = iter(things), []

            def drive_once(scratch, flags, advance, seen):
                thing = next(left)
                if thing == "works":
                    driver.drive(scratch, flags)
                return {
                    **(thing if isinstance(thing, dict) else {}),
                    "new": infer._advance(scratch, advance, seen),
                }

            monkeypatch.setattr(infer, "_drive_once", drive_once)
            infer_files(Request(upper, "in.txt", "out.txt"), say=told.append)
            return told

        return run

    def test_are_started_again_when_workers_end(self, run_with, place):
        told = run_with("ends", "ends", "works")
        assert told == ["a worker process ended; going on: 0 of 1 parts are done"] * 2
        assert (place / "out.txt").read_text(encoding="utf-8") == expected("txt", "txt")

    def test_are_given_up_when_nothing_comes(self, run_with, place):
        with pytest.raises(
            OSError, match=r"^worker processes ended 3 times \(is memory too small\? give fewer --workers\)"
        ):
            run_with("ends", "ends", "ends")
        assert sorted(os.listdir()) == ["in.txt", "out.txt.parts"]

    def test_that_fail_say_why(self, run_with):
        with pytest.raises(
            OSError, match=r"^the pipeline failed: it broke; the log is out\.txt\.parts/log\.txt; the same"
        ):
            run_with({"error": "it broke"})

    def test_the_innermost_error_of_a_report_of_beam(self):
        report = "bundle failed: Traceback\n  File x\nValueError: deep [while running 'Infer']\n\nmore\n"
        assert driver._cause(RuntimeError(report)) == "ValueError: deep"
        middle = RuntimeError("UnicodeEncodeError: 'utf-8 [while running 'Read-ptransform-4']' codec can't encode")
        assert driver._cause(middle) == "UnicodeEncodeError: 'utf-8' codec can't encode"
        assert driver._cause(KeyError("x")) == "KeyError: 'x'"

    def test_ctrl_c_says_that_the_command_goes_on(self, monkeypatch, upper, place):
        (place / "in.txt").write_text("a\n")
        monkeypatch.setattr(infer, "_drive_once", mock.Mock(side_effect=KeyboardInterrupt))
        said = []
        with pytest.raises(KeyboardInterrupt):
            infer_files(Request(upper, "in.txt", "out.txt"), say=said.append)
        assert said == ["stopped; 0 of 1 parts are done, and the same command goes on"]


class TestBeamOptions:
    @pytest.mark.parametrize(
        ("flags", "workers", "wanted"),
        [
            ([], 1, ["--runner=FnApiRunner", "--direct_num_workers=1", "--direct_running_mode=in_memory"]),
            ([], 8, ["--runner=FnApiRunner", "--direct_num_workers=8", "--direct_running_mode=multi_processing"]),
            (["--runner=FlinkRunner", "--flink_master=h:1"], 8, ["--runner=FlinkRunner", "--flink_master=h:1"]),
        ],
    )
    def test_a_runner_that_needs_no_network(self, flags, workers, wanted):
        assert beam_options(flags, workers) == wanted

    @pytest.mark.parametrize(
        "flags", [["--runner=DirectRunner"], ["--runner=directrunner"], ["--runner", "direct"], ["--runner=fnapi"]]
    )
    def test_beams_own_runner_takes_the_place_of_one_that_needs_it(self, flags):
        found = PipelineOptions(beam_options([*flags, "--direct_num_workers=3"], 8)).get_all_options()
        wanted = {"runner": "FnApiRunner", "direct_num_workers": 3, "direct_running_mode": "multi_processing"}
        assert found | wanted == found

    def test_the_flags_of_the_page_are_known(self):
        page = (MODELS.parent / "docs" / "batch.md").read_text(encoding="utf-8").replace("\\\n", "")
        commands = [line.partition(" -- ")[2].split() for line in page.splitlines() if line.startswith("zoo batch")]
        on_clusters = [flags for flags in commands if flags]
        assert len(on_clusters) == 3
        assert [beam_options(flags, 1) for flags in on_clusters] == on_clusters

    @pytest.mark.parametrize(
        ("flag", "message"),
        [
            ("--runer=DirectRunner", "Apache Beam has no option --runer=DirectRunner"),
            ("--runner=Foo", "Apache Beam: Unexpected pipeline runner: Foo"),
            ("--runner=foo.Bar", "Apache Beam: No module named 'foo'"),
            ("--runner=json.Bar", "Apache Beam: module 'json' has no attribute 'Bar'"),
            ("--direct_num_workers=many", "argument --direct_num_workers: invalid int value: 'many'"),
        ],
    )
    def test_a_flag_that_beam_does_not_know(self, flag, message):
        with pytest.raises(ValueError, match=message):
            beam_options([flag], 1)
