"""Answers to whole files: how they are cut, read and written, what is refused, and that nothing is lost or repeated."""

import datetime
import gzip
import io
import json
import os
import pathlib
import threading
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from upper_model import save_upper

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from bucket import Bucket
from zoo_training import batch_driver, batch_files, batch_inference, batch_plan
from zoo_training.batch_inference import Request, beam_options, infer_files

MODELS = pathlib.Path(__file__).parents[2] / "saved_models"
FULL = pathlib.Path("/dev/full")  # takes nothing


@pytest.fixture(scope="module")
def upper(tmp_path_factory):
    """A model that answers with the text in capitals, and its length in bytes."""
    return str(save_upper(tmp_path_factory.mktemp("models") / "upper" / "1", ">"))


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """The driver runs here; its processes are tested with the command."""

    def drive_once(scratch, flags, advance, seen):
        counters = batch_driver.drive(scratch, flags)
        return {"counters": counters, "new": batch_inference._advance(scratch, advance, seen)}

    monkeypatch.setattr(batch_inference, "_drive_once", drive_once)


@pytest.fixture
def small_chunks(monkeypatch):
    """Several chunks, and several windows in each."""
    monkeypatch.setattr(batch_plan, "_CHUNK_BYTES", (20, 20))
    monkeypatch.setattr(batch_plan, "_CHUNK_ROWS", (3, 3))
    monkeypatch.setattr(batch_files, "_WINDOW", 2)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


TEXTS = ["one", "", "drei", "bad", "vier\u2028x", "ünf", "six", "seven is longer", "8"]
UPPER = [f">{text.upper()}".replace("Ü", "ü") for text in TEXTS]  # tf.strings.upper knows ASCII only
LENGTHS = [len(text.encode()) for text in TEXTS]
GOOD = [number for number, text in enumerate(TEXTS) if text != "bad"]


def write_input(kind, path):
    if kind == "txt":
        path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    elif kind == "tsv":
        rows = "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS))
        path.write_text(f"id\ttext\n{rows}", encoding="utf-8")
    elif kind == "jsonl":
        rows = [json.dumps({"id": n, "text": text}) for n, text in enumerate(TEXTS)]
        path.write_text("\n\n".join(rows), encoding="utf-8")  # blank lines are no rows
    else:
        table = pa.table({"id": pa.array(range(9), pa.int16()), "text": TEXTS})
        pq.write_table(table, path, row_group_size=4)


def expected(reads, writes):
    if writes == "txt":
        return "".join(f"{UPPER[n] if n in GOOD else ''}\n" for n in range(9))
    if writes == "tsv" and reads == "txt":
        return "text\tlength\toutput_text\n" + "".join(f"{TEXTS[n]}\t{LENGTHS[n]}\t{UPPER[n]}\n" for n in GOOD)
    if writes == "tsv":
        rows = "".join(f"{n}\t{TEXTS[n]}\t{LENGTHS[n]}\t{UPPER[n]}\n" for n in GOOD)
        return f"id\ttext\tlength\toutput_text\n{rows}"
    ids = [{} if reads == "txt" else {"id": str(n) if reads == "tsv" else n} for n in range(9)]
    return [{**ids[n], "text": TEXTS[n], "length": LENGTHS[n], "output_text": UPPER[n]} for n in GOOD]


def json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


class TestFormats:
    @pytest.mark.parametrize(
        ("reads", "writes"), [(reads, writes) for reads, kinds in batch_files.WRITES.items() for writes in kinds]
    )
    def test_rows_keep_their_order_and_get_columns(self, upper, place, small_chunks, reads, writes):
        write_input(reads, place / f"in.{reads}")
        told = []
        summary = infer_files(Request(upper, f"in.{reads}", f"out.{writes}"), advance=told.append)
        assert (summary.done, summary.failed, sum(told)) == (8, 1, 9)
        assert (summary.counters["rows"], summary.counters["failed"]) == (9, 1)
        if writes == "parquet":
            table = pq.read_table("out.parquet")
            assert table.to_pylist() == expected(reads, writes)
            assert [str(field.type) for field in table.schema] == ["int16", "string", "int32", "string"]
        else:
            found = (place / f"out.{writes}").read_text(encoding="utf-8")
            wanted = expected(reads, writes)
            found = [json.loads(line) for line in found.split("\n")[:-1]] if writes == "jsonl" else found
            assert found == wanted
        [letter] = [json.loads(line) for line in (place / "out.failed.jsonl").read_text().splitlines()]
        assert letter["line"] == {"txt": 4, "tsv": 5, "jsonl": 7, "parquet": 4}[reads]
        assert letter["file"] == str(place / f"in.{reads}")
        assert "a bad text" in letter["reason"]
        raw = {"txt": "bad", "tsv": "3\tbad", "jsonl": '{"id": 3, "text": "bad"}'}
        assert letter["row"] == raw.get(reads, {"id": 3, "text": "bad"})
        assert sorted(os.listdir()) == sorted([f"in.{reads}", f"out.{writes}", "out.failed.jsonl"])

    def test_several_files_and_gzip(self, upper, place, small_chunks):
        for number, rows in enumerate((["a", "bad"], [], ["c", "bad", "e"])):
            with gzip.open(f"in{number}.tsv.gz", "wt") as file:
                file.writelines(f"{row}\n" for row in ["text", *rows])
        summary = infer_files(Request(upper, "in*.gz", "out.tsv.gz", outputs=["text"]))
        assert (summary.done, summary.failed) == (3, 2)
        with gzip.open("out.tsv.gz", "rt") as file:
            assert file.read() == "text\toutput_text\na\t>A\nc\t>C\ne\t>E\n"
        letters = json_lines("out.failed.jsonl")
        assert [(each["line"], each["row"]) for each in letters] == [(3, "bad"), (3, "bad")]
        assert [each["file"] for each in letters] == [str(place / f"in{number}.tsv.gz") for number in (0, 2)]

    def test_an_empty_file_has_no_columns_and_no_rows(self, upper, place):
        for name, content in {"1": "", "2": "text\na\n", "3": "", "4": "text\nbad\n"}.items():
            (place / f"in{name}.tsv").write_text(content)
        infer_files(Request(upper, "in*.tsv", "out.tsv", outputs=["text"]))
        assert (place / "out.tsv").read_text() == "text\toutput_text\na\t>A\n"
        assert [each["file"] for each in json_lines("out.failed.jsonl")] == [str(place / "in4.tsv")]

    @pytest.mark.parametrize("damage", ["cut off", "a wrong byte", "a wrong checksum", "no gzip file"])
    def test_a_damaged_gzip_file_is_refused(self, upper, place, damage):
        packed = gzip.compress("".join(f"text {number}\n" for number in range(2000)).encode())
        middle = len(packed) // 2
        content = {
            "cut off": packed[:middle],
            "a wrong byte": packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :],
            "a wrong checksum": packed[:-8] + bytes(4) + packed[-4:],
            "no gzip file": b"a line\n",
        }[damage]
        (place / "in.txt.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"in\.txt\.gz is no gzip file, or it is damaged or cut off"):
            infer_files(Request(upper, "in.txt.gz", "out.txt", outputs=["text"]))
        assert os.listdir() == ["in.txt.gz"]

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_what_a_killed_run_unpacked_is_unpacked_again(self, upper, place, overwrite):
        (place / "out.txt.parts").mkdir()
        (place / "out.txt.parts" / "input-000000-in.txt").write_text("old\n")  # as left before there is a plan
        (place / "in.txt.gz").write_bytes(gzip.compress(b"new\n"))
        infer_files(Request(upper, "in.txt.gz", "out.txt", outputs=["text"]), overwrite=overwrite)
        assert (place / "out.txt").read_text() == ">NEW\n"
        assert sorted(os.listdir()) == ["in.txt.gz", "out.txt"]

    def test_json_keeps_what_it_was(self, upper, place):
        lines = ['{"text":"a", "big": 12345678901234567890123, "not": NaN, "half": "\\ud800", "text2": 1.10}  ', "{ }"]
        (place / "in.jsonl").write_text("\n".join(lines))
        infer_files(Request(upper, "in.jsonl", "out.jsonl", outputs=["length"], prefix="n_"))
        assert (place / "out.jsonl").read_text() == lines[0].rstrip()[:-1] + ', "n_length": 1}\n'
        [letter] = (place / "out.failed.jsonl").read_text().splitlines()
        assert json.loads(letter)["reason"] == "a row must have 'text'; it has nothing"

    def test_half_a_surrogate_pair_harms_no_other_row(self, upper, place):
        rows = ['{"text": "a"}', '{"text": "\\ud83d b"}', '{"text": null}', '{"text": "\\ud83d\\ude00"}']
        rows.append('{"text": {"\\ud83d": ["\\ud83d"]}}')
        (place / "in.jsonl").write_text("\n".join(rows))
        infer_files(Request(upper, "in.jsonl", "out.jsonl", outputs=["text"]))
        assert [each["output_text"] for each in json_lines("out.jsonl")] == [">A", ">? B", ">\U0001f600"]
        letters = json_lines("out.failed.jsonl")
        assert [each["line"] for each in letters] == [3, 5]
        assert letters[0]["reason"] == "a row must have 'text'; it is null"

    @pytest.mark.parametrize("first", ['{"text": null}', '{"id": 1}'])
    def test_the_first_row_may_be_one_that_fails(self, upper, place, first):
        (place / "in.jsonl").write_text(f'{first}\n{{"text": "a"}}\n')
        infer_files(Request(upper, "in.jsonl", "out.txt", outputs=["text"]))
        assert (place / "out.txt").read_text() == "\n>A\n"

    def test_a_value_that_is_nested_too_deep_harms_no_other_row(self, upper, place):
        deep = "[" * 900 + "]" * 900  # json reads it
        (place / "in.jsonl").write_text(f'{{"text": "a"}}\n{{"text": {deep}}}\n{{"text": "b", "other": {deep}}}\n')
        infer_files(Request(upper, "in.jsonl", "out.txt", outputs=["text"]))
        assert (place / "out.txt").read_text() == ">A\n\n>B\n"
        [letter] = json_lines("out.failed.jsonl")
        # Python 3.13 goes deeper than 3.11, and comes to the types of the row.
        assert letter["reason"].startswith(
            ("a row must be a JSON object; one of its values is nested too deep", "`text` must hold strings, in lists")
        )

    @pytest.mark.parametrize("kind", ["jsonl", "parquet"])
    def test_a_row_without_its_column_is_told_which_ones_it_has(self, upper, place, kind):
        rows = [{"said": "a", "id": 1, "note": None}, {"said": None, "id": 2, "note": None}]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), f"in.{kind}")
        else:
            (place / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        infer_files(Request(upper, f"in.{kind}", "out.jsonl", columns={"text": "said"}))
        (letter,) = json_lines("out.failed.jsonl")
        assert letter["reason"] == "a row must have 'said'; it is null"

    def test_reasons_of_lines_that_are_no_rows(self, upper, place):
        lines = ['{"text": "a"}', '{"text": "a"', '["a"]', '{"text": "a", "length": 1}', '{"text": ""}', '{"text": 1}']
        (place / "in.jsonl").write_text("\n".join(lines))
        infer_files(Request(upper, "in.jsonl", "out.jsonl"))
        assert [each["reason"] for each in json_lines("out.failed.jsonl")] == [
            "a row must be a JSON object; it is not JSON: Expecting ',' delimiter: line 1 column 13 (char 12)",
            'a row must be a JSON object; it is ["a"]',
            "a row must not have 'length', which is a new column; --prefix names that otherwise",
            "`text` must hold strings, in lists of equal lengths. Received: 1",
        ]

    def test_columns_settings_and_further_axes(self, upper, place):
        (place / "in.jsonl").write_text('{"both": ["a", "b"], "n": "x"}\n{"both": ["c", "d"]}\n')
        asked = Request(upper, "in.jsonl", "out.jsonl", "pairs", {"pair": "both"}, {"times": "2"})
        infer_files(asked)
        answers = {"powers": [2, 4, 8], "raw": "\N{REPLACEMENT CHARACTER}", "swapped": ["d", "c"]}
        assert json_lines("out.jsonl")[1] == {"both": ["c", "d"], **answers}

    @pytest.mark.parametrize(
        ("kind", "content"),
        [("jsonl", '{"pair": ["a", "b"], "times": 3}\n{"pair": ["c", "d"], "times": null}\n'), ("parquet", None)],
    )
    def test_a_setting_counts_for_all_rows_also_where_a_column_has_its_name(self, upper, place, kind, content):
        if content is None:
            pq.write_table(pa.table({"pair": [["a", "b"], ["c", "d"]], "times": [3, 3]}), "in.parquet")
        else:
            (place / "in.jsonl").write_text(content)
        infer_files(Request(upper, f"in.{kind}", "out.jsonl", "pairs", settings={"times": "2"}))
        assert [row["powers"] for row in json_lines("out.jsonl")] == [[2, 4, 8]] * 2

    def test_a_line_of_text_is_the_only_input_without_a_setting_or_a_default(self, place):
        (place / "in.txt").write_text("5 mai 2001\n")
        infer_files(Request(str(MODELS / "dates"), "in.txt", "score.jsonl", "score", settings={"target": "2001-05-05"}))
        infer_files(Request(str(MODELS / "dates"), "in.txt", "next.jsonl", "next"))
        assert json_lines("score.jsonl")[0]["tokens"] == 11  # ten letters and the end
        assert json_lines("next.jsonl")[0]["tokens"][0] == "2"

    def test_columns_without_names(self, upper, place):
        (place / "in.tsv").write_text("7\ta\n8\tb\n9\n")
        summary = infer_files(
            Request(upper, "in.tsv", "out.tsv", columns={"text": "2"}, header=False, outputs=["text"])
        )
        assert (place / "out.tsv").read_text() == "7\ta\t>A\n8\tb\t>B\n"
        [letter] = json_lines("out.failed.jsonl")
        assert letter["reason"] == "a row must have 2 cells, separated by tabs; it has 1"
        assert summary.dead_letters == "out.failed.jsonl"

    def test_an_answer_stays_on_its_line(self):
        values = [np.float32(0.1), "a\nb", b"\xff", np.array([[0.1, np.inf]], "float32"), np.int64(7)]
        assert [batch_files._cell(value) for value in values] == [
            "0.1",
            "a b",
            "\N{REPLACEMENT CHARACTER}",
            "[[0.1, null]]",
            "7",
        ]


class TestChunks:
    @settings(max_examples=200, deadline=None)
    @given(
        content=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"bc\n", b"\n\n", b"long line"])), step=st.integers(1, 9)
    )
    def test_every_line_is_in_one_chunk(self, tmp_path_factory, content, step):
        path = tmp_path_factory.getbasetemp() / "lines"
        path.write_bytes(b"".join(content))
        size = path.stat().st_size
        found = [
            line
            for begin in range(0, size, step)
            for line in batch_files.lines_between(str(path), begin, min(begin + step, size))
        ]
        assert found == io.BytesIO(b"".join(content)).readlines()

    @pytest.mark.parametrize("pattern", ["folder [1]/in[2].txt", "folder*/*.txt"])
    def test_names_may_have_brackets(self, upper, place, pattern):
        (place / "folder [1]").mkdir()
        (place / "folder [1]" / "in[2].txt").write_text("a\n")
        infer_files(Request(upper, pattern, "out.txt", outputs=["text"]))
        assert (place / "out.txt").read_text() == ">A\n"

    @pytest.mark.parametrize("file_format", [None, "txt"])
    def test_a_pattern_may_fit_the_folder_of_the_output(self, upper, place, file_format):
        (place / "in.txt").write_text("a\n")
        (place / ".other.lock").write_text("process 1\n")
        asked = Request(upper, "*", "out.txt", outputs=["text"], file_format=file_format)
        infer_files(asked)
        assert (place / "out.txt").read_text() == ">A\n"
        with pytest.raises(ValueError, match=r"^out\.txt is one of the inputs; choose another OUTPUT$"):
            infer_files(asked, overwrite=True)

    def test_a_pattern_may_fit_the_parts_of_the_run(self, upper, place, monkeypatch):
        (place / "in.txt").write_text("a\n")
        asked = Request(upper, "**", "out.txt", outputs=["text"], file_format="txt")
        with monkeypatch.context() as patch:
            patch.setattr(batch_inference, "join", mock.Mock(side_effect=OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                infer_files(asked)
        told = []
        infer_files(asked, say=told.append)
        assert told == ["going on: 1 of 1 parts are done"]
        assert (place / "out.txt").read_text() == ">A\n"

    def test_a_pattern_may_fit_the_file_of_failed_rows_of_an_unfinished_run(self, upper, place, monkeypatch):
        (place / "in.jsonl").write_text('{"text": "a"}\n{"text": "bad"}\n')
        asked = Request(upper, "*.jsonl", "out.jsonl", outputs=["text"])
        with monkeypatch.context() as patch:
            patch.setattr(batch_inference, "join", mock.Mock(side_effect=OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                infer_files(asked)
        assert (place / "out.failed.jsonl").exists()
        infer_files(asked)
        assert json_lines("out.jsonl") == [{"text": "a", "output_text": ">A"}]
        assert [each["row"] for each in json_lines("out.failed.jsonl")] == ['{"text": "bad"}']

    def test_a_pattern_looks_into_no_other_folder(self, upper, place, monkeypatch):
        (place / "in.txt").write_text("a\n")
        (place / "other").mkdir()
        monkeypatch.setattr(os, "walk", mock.Mock(side_effect=AssertionError))
        found = batch_plan.input_files(Request(upper, "*.txt", "out.txt"), "out.txt.parts")
        assert [each.path for each in found] == [str(place / "in.txt")]

    def test_a_file_that_fits_a_pattern_in_two_ways_is_read_once(self, upper, place):
        (place / "a" / "a").mkdir(parents=True)
        (place / "a" / "a" / "in.txt").write_text("one\n")
        infer_files(Request(upper, "**/a/**/in.txt", "out.txt", outputs=["text"]))
        assert (place / "out.txt").read_text() == ">ONE\n"

    def test_a_hidden_file_is_read_by_its_name(self, upper, place):
        (place / ".in.txt").write_text("a\n")
        infer_files(Request(upper, ".in.txt", "out.txt", outputs=["text"]))
        assert (place / "out.txt").read_text() == ">A\n"

    def test_tables_of_several_types_may_be_written_as_json(self, upper, place):
        for name, numbers in {"one": [1], "two": [0.5]}.items():
            pq.write_table(pa.table({"text": ["a"], "n": numbers}), f"{name}.parquet")
        infer_files(Request(upper, "*.parquet", "out.jsonl", outputs=["length"]))
        assert json_lines("out.jsonl") == [{"text": "a", "n": 1, "length": 1}, {"text": "a", "n": 0.5, "length": 1}]

    def test_a_byte_order_mark_is_no_letter(self, upper, place):
        (place / "in.txt").write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
        infer_files(Request(upper, "in.txt", "out.txt", outputs=["length"]))
        assert (place / "out.txt").read_text() == "1\n4\n"

    def test_rows_that_are_not_utf_8_are_counted(self, upper, place, small_chunks):
        (place / "in.txt").write_bytes(b"caf\xe9\nb\n\xef\xbf\xbd\nx\xff\xff\r\n")
        found = infer_files(Request(upper, "in.txt", "out.txt"))
        assert (found.done, found.broken) == (4, 2)
        assert (place / "out.txt").read_text(encoding="utf-8") == ">CAF\ufffd\n>B\n>\ufffd\n>X\ufffd\ufffd\n"

    def test_cells_that_json_has_no_form_for(self, upper, place):
        """A text without a mark that it is one is read as bytes."""
        pq.write_table(
            pa.table({"text": [b"a", b"\xff", b"bad"], "day": [datetime.date(2020, 1, 2)] * 3}), "in.parquet"
        )
        infer_files(Request(upper, "in.parquet", "out.jsonl", outputs=["length"]))
        assert json_lines("out.jsonl") == [{"text": text, "day": "2020-01-02", "length": 1} for text in ("a", "\ufffd")]
        assert json_lines("out.failed.jsonl")[0]["row"] == {"text": "bad", "day": "2020-01-02"}

    def test_json_has_no_nan(self, upper, place):
        numbers = [[{"n": float("inf")}], [{"n": 0.5}], [{"n": float("nan")}]]
        pq.write_table(
            pa.table({"text": ["a", "b", "bad"], "n": [float("nan"), 1.5, 2.5], "in": numbers}), "in.parquet"
        )
        infer_files(Request(upper, "in.parquet", "out.jsonl", outputs=["length"]))
        first, second = json_lines("out.jsonl")
        assert first == {"text": "a", "n": None, "in": [{"n": None}], "length": 1}
        assert second == {"text": "b", "n": 1.5, "in": [{"n": 0.5}], "length": 1}
        assert json_lines("out.failed.jsonl")[0]["row"] == {"text": "bad", "n": 2.5, "in": [{"n": None}]}

    @pytest.mark.parametrize(
        "kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")]
    )
    def test_times_keep_their_nanoseconds(self, upper, place, kind):
        table = pa.table({"text": ["a", "b"], "time": pa.array([1234567891, None], kind)})
        pq.write_table(table, "in.parquet")
        for out in ("out.parquet", "out.jsonl"):
            infer_files(Request(upper, "in.parquet", out, outputs=["length"]))
        assert pq.read_table("out.parquet").select(table.column_names) == table
        first, second = json_lines("out.jsonl")
        assert "234567891" in first["time"]
        assert second["time"] is None

    @pytest.mark.parametrize(
        ("kind", "number", "shown"),
        [
            (pa.timestamp("us"), 1 << 62, "<value out of range: 4611686018427387904>"),
            (pa.timestamp("ms", "Asia/Kolkata"), 0, "1970-01-01 05:30:00.000+05:30"),
            (pa.timestamp("ms", "UTC"), 253_402_300_800_000, "10000-01-01 00:00:00.000Z"),
            (pa.date32(), -719_163, "0000-12-31"),
            (pa.duration("s"), 1 << 60, str(1 << 60)),
            (pa.time32("ms"), 1500, "00:00:01.500"),
        ],
    )
    def test_times_that_python_does_not_have_harm_no_row(self, upper, place, kind, number, shown):
        table = pa.table({"text": ["a", "b"], "time": pa.array([number, None], kind)})
        pq.write_table(table, "in.parquet")
        for out in ("out.parquet", "out.jsonl"):
            infer_files(Request(upper, "in.parquet", out, outputs=["length"]))
        assert pq.read_table("out.parquet").select(table.column_names) == pq.read_table("in.parquet")
        assert [row["time"] for row in json_lines("out.jsonl")] == [shown, None]

    def test_times_inside_of_cells_keep_their_nanoseconds(self, upper, place):
        time = pa.timestamp("ns")
        columns = {
            "struct": (pa.struct([("t", time), ("n", pa.int8())]), {"t": 1234567891, "n": 1}),
            "list": (pa.list_(pa.struct([("t", pa.time64("ns"))])), [{"t": 1234567891}]),
            "large": (pa.large_list(time), [None, 1234567891]),
            "map": (pa.map_(pa.string(), time), [("a", 1234567891)]),
        }
        table = {name: pa.array([value, None], kind) for name, (kind, value) in columns.items()}
        table = pa.table({"text": ["a", "b"], **table})
        pq.write_table(table, "in.parquet")
        for out in ("out.parquet", "out.jsonl"):
            infer_files(Request(upper, "in.parquet", out, outputs=["length"]))
        assert pq.read_table("out.parquet").select(table.column_names) == table
        first, second = json_lines("out.jsonl")
        assert all("234567891" in json.dumps(first[name]) and second[name] is None for name in columns)

    def test_times_of_a_zone_inside_of_cells_have_a_colon(self, upper, place):
        time, shown = pa.timestamp("ms", "Asia/Kolkata"), "1970-01-01 05:30:00.000+05:30"
        columns = {
            "struct": (pa.struct([("t", time), ("n", pa.int8())]), {"t": 0, "n": 1}, {"t": shown, "n": 1}),
            "list": (pa.list_(pa.struct([("t", pa.list_(time))])), [{"t": [0, None]}], [{"t": [shown, None]}]),
            "pair": (pa.list_(time, 2), [0, None], [shown, None]),
            "map": (pa.map_(time, time), [(0, None)], [[shown, None]]),
            "text": (pa.struct([("tz=", pa.string())]), {"tz=": "+0530"}, {"tz=": "+0530"}),
        }
        table = pa.table({name: pa.array([value], kind) for name, (kind, value, _) in columns.items()} | {"in": ["a"]})
        pq.write_table(table, "in.parquet")
        infer_files(Request(upper, "in.parquet", "out.jsonl", columns={"text": "in"}, outputs=["length"]))
        (found,) = json_lines("out.jsonl")
        assert {name: found[name] for name in columns} == {name: wanted for name, (_, _, wanted) in columns.items()}

    def test_a_column_that_pyarrow_cannot_read_is_named(self, place):
        """A list of fixed size that is null. The group of rows before it is read."""
        pairs = pa.array([[1, 2], [3, 4], [5, 6], None], pa.list_(pa.int8(), 2))
        pq.write_table(pa.table({"text": list("abcd"), "pair": pairs}), "in.parquet", row_group_size=2)
        layout = batch_files.Layout(
            "parquet", "txt", ("text",), {"text": "text"}, ("text",), {}, {"text": "string"}, {}
        )
        rows = batch_files._records(batch_files.Chunk(0, "in.parquet", 0, 4, "in.parquet"), layout)
        assert [next(rows)[1].row["text"] for _ in range(2)] == ["a", "b"]
        with pytest.raises(
            ValueError, match=r"^in.parquet: row group 1, counted from 0, column 'pair' of type fixed_s"
        ):
            next(rows)

    def test_a_worker_holds_few_large_rows_of_a_table_at_once(self, place, monkeypatch):
        monkeypatch.setattr(batch_files, "_WINDOW_BYTES", 2500)
        table = pa.table({"text": ["a" * 1000] * 9 + ["b"] * 9})
        pq.write_table(table, "in.parquet", row_group_size=9, use_dictionary=False)
        layout = batch_files.Layout(
            "parquet", "txt", ("text",), {"text": "text"}, ("text",), {}, {"text": "string"}, {}
        )
        found = list(batch_files.windows(batch_files.Chunk(0, "in.parquet", 1, 17, "in.parquet"), layout))
        assert [row.raw["text"] for window in found for row in window.records] == table["text"].to_pylist()[1:17]
        assert [len(window.records) for window in found] == [2, 2, 2, 10]

    def test_a_parquet_output_has_few_groups_of_rows(self, upper, place, small_chunks):
        write_input("parquet", place / "in.parquet")
        infer_files(Request(upper, "in.parquet", "out.parquet"))
        assert pq.ParquetFile("out.parquet").num_row_groups == 1

    def test_several_groups_of_rows_hold_every_row_once(self, upper, place, small_chunks, monkeypatch):
        monkeypatch.setattr(batch_files, "_GROUP_BYTES", 100)
        write_input("parquet", place / "in.parquet")
        infer_files(Request(upper, "in.parquet", "out.parquet"))
        assert pq.ParquetFile("out.parquet").num_row_groups > 1
        assert pq.read_table("out.parquet").to_pylist() == expected("parquet", "parquet")

    def test_strings_in_lists_that_are_not_utf_8(self):
        answer = np.array([b"\xff", "a"], object)
        assert batch_files._in_table(answer) == ["\N{REPLACEMENT CHARACTER}", "a"]

    def test_outputs_with_any_number_of_axes(self, upper, place):
        (place / "in.txt").write_text("a\nb\n")
        infer_files(Request(upper, "in.txt", "out.txt", signature="any"))
        assert (place / "out.txt").read_text() == "a\nb\n"


class TestSignatures:
    @pytest.mark.parametrize("name", ["dates", "gpt-pydoc", "languages"])
    def test_are_read_as_tensorflow_reads_them(self, name):
        folder = MODELS / name / "1"
        for signature, function in tf.saved_model.load(str(folder)).signatures.items():
            found = batch_plan.signature_of(str(folder), signature)
            for specs, tensors in zip(
                found, (function.structured_input_signature[1], function.structured_outputs), strict=True
            ):
                wanted = {key: (each.dtype.name, tuple(each.shape.as_list())) for key, each in tensors.items()}
                assert {key: (spec.dtype, spec.shape) for key, spec in specs.items()} == wanted

    def test_a_damaged_file(self, tmp_path):
        (tmp_path / "saved_model.pb").write_bytes(b"damaged")
        with pytest.raises(ValueError, match=r"cannot be loaded; its files may be damaged \("):
            batch_plan.signature_of(str(tmp_path), "serving_default")
        (tmp_path / "saved_model.pb").write_text("version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(ValueError, match=r"/saved_model\.pb is a pointer of git-lfs, not the file itself; run"):
            batch_plan.signature_of(str(tmp_path), "serving_default")
        (tmp_path / "saved_model.pb").write_bytes(b"")
        with pytest.raises(ValueError, match=r" has no signature 'serving_default'; it has none$"):
            batch_plan.signature_of(str(tmp_path), "serving_default")


class TestMistakes:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model": "none"}, "none holds no SavedModel"),
            ({"signature": "x"}, "has no signature 'x'; it has any, most, one, other, pairs, serving_default$"),
            ({"signature": "most"}, "^the signature 'most' does not have one 'count' for each row$"),
            ({"signature": "one"}, "^the signature 'one' does not have one 'text' for each row$"),
            ({"pattern": "wide.tsv"}, "/wide.tsv: UTF-16, and not UTF-8; convert it, for example with iconv"),
            ({"pattern": "none.tsv"}, "none.tsv does not exist$"),
            ({"pattern": "*.none"}, r"\*.none does not exist$"),
            ({"pattern": "folder"}, r"folder is a folder; give its files, such as 'folder/\*.txt'$"),
            (
                {"pattern": "pipe", "file_format": "tsv"},
                "^pipe is a pipe or a device; write its content to a file first$",
            ),
            ({"pattern": "in.*"}, "the input must be of one kind"),
            ({"pattern": ".h*"}, r"\.h\* does not exist$"),
            ({"out": "in.tsv", "overwrite": True}, "in.tsv is one of the inputs; choose another OUTPUT$"),
            ({"pattern": "[it]*e*.tsv", "out": "there.tsv", "overwrite": True}, "there.tsv is one of the inputs"),
            (
                {"pattern": "again.failed.jsonl", "out": "again.jsonl", "overwrite": True},
                "^again.failed.jsonl is one of the inputs, and the rows that fail would be written there; choose",
            ),
            ({"pattern": "empty.txt", "out": "out.txt"}, "empty.txt has no rows$"),
            ({"pattern": "empty.tsv"}, "empty.tsv has no rows$"),
            ({"pattern": "blank.jsonl", "out": "out.jsonl"}, "blank.jsonl has no rows$"),
            (
                {"pattern": "damaged.table", "file_format": "parquet", "out": "out.parquet"},
                "damaged.table is no Parquet file",
            ),
            ({"out": "out.parquet"}, r"^from a .tsv input come .tsv, .txt or .jsonl; .* Received: out.parquet$"),
            ({"out": "there.tsv"}, "there.tsv exists; choose another OUTPUT, or replace it by --overwrite$"),
            ({"out": "folder.tsv"}, "folder.tsv is a folder; OUTPUT must be a file$"),
            ({"out": "new/deep/out.tsv", "outputs": ["x"]}, "gives length, text. Received: --outputs x$"),
            ({"out": "in.tsv/out.tsv"}, "^in.tsv/out.tsv cannot be written: Not a directory$"),
            ({"out": "in.tsv/new/out.tsv"}, "^in.tsv/new/out.tsv cannot be written: Not a directory$"),
            ({"columns": {"text": "txt"}}, "the input has no column 'txt'; it has id, text$"),
            ({"columns": {"txt": "text"}}, "the signature takes text. Received: txt$"),
            (
                {"columns": {"text": "id"}, "settings": {"text": "b"}},
                "^text was given by --column and by --set; give one of them$",
            ),
            ({"settings": {"temperature": "1"}}, "the signature takes text. Received: temperature$"),
            (
                {"signature": "pairs", "columns": {"pair": "text"}, "settings": {"times": "1.5"}},
                r"^`times` must hold int64. Received: times='1\.5'$",
            ),
            (
                {"model": MODELS / "gpt-pydoc", "signature": "generate", "settings": {"temperature": "-1"}},
                r"^`temperature` must be from 0 to .*\. Received: temperature=-1\.0$",
            ),
            (
                {"signature": "pairs"},
                "the input has no column 'pair', but id, text; choose by --column pair=COLUMN, or give all rows one "
                "value by --set pair=VALUE; if the first line is a row, and names no columns, give --no-header$",
            ),
            (
                {"signature": "pairs", "pattern": "line.txt", "out": "o.jsonl"},
                "^the signature needs pair, times, and a line of text is one string; give a .tsv or .jsonl file, or "
                "all rows one value by --set INPUT=VALUE$",
            ),
            (
                {"pattern": "line.txt", "out": "o.jsonl", "settings": {"text": "b"}},
                "^every input has a value by --set or by default, so the lines would not be read; leave out one --set$",
            ),
            (
                {"signature": "other"},
                "the input has no column 'hidden', but id, text; choose by --column hidden=COLUMN",
            ),
            (
                {"pattern": "in.jsonl", "out": "o.jsonl"},
                "the first rows have no 'text'; choose by --column text=KEY, or give all rows one value by --set "
                "text=VALUE. The first row has a, b$",
            ),
            ({"outputs": ["x"]}, "'serving_default' gives length, text. Received: --outputs x$"),
            ({"out": "out.txt", "outputs": ["text", "length"]}, "a .txt file has one answer on each line"),
            ({"pattern": "taken.tsv"}, "the input has a column 'length' already; give --prefix"),
            ({"pattern": "twice.tsv"}, "twice.tsv has several columns 'text'$"),
            (
                {"pattern": "[it][na]*.tsv"},
                "taken.tsv has other columns than .*in.tsv, or in another order: text, length$",
            ),
            ({"pattern": "zero*.tsv"}, "/zero.tsv has no rows$"),
            (
                {"pattern": "one.parquet", "out": "n.parquet", "columns": {"text": "n"}},
                "^'text' takes strings, and the column 'n' has int64; choose another one by --column text=COLUMN$",
            ),
            (
                {"pattern": "*.parquet", "out": "n.parquet"},
                "two.parquet has n: double, and .*one.parquet has n: int64; a .parquet output has one type in each "
                "column, so choose a .jsonl or .txt OUTPUT, or convert the file$",
            ),
            ({"out": "out[1].tsv"}, r"^out\[1\].tsv: OUTPUT and its folders must not have \*, \? or \[ in their"),
        ],
    )
    def test_is_refused_and_nothing_is_written(self, upper, place, changes, message):
        files = {"in.tsv": "id\ttext\n1\ta\n", "empty.txt": "", "empty.tsv": "text\n", "blank.jsonl": "\n \n"}
        files |= {"there.tsv": "mine", "in.jsonl": '{"a": 1, "b": 2}\n'}
        files |= {"taken.tsv": "text\tlength\na\t1\n", "twice.tsv": "text\ttext\na\tb\n"}
        files |= {"zero.tsv": "", "line.txt": "a\n", "damaged.table": "PAR1", ".hidden.tsv": "text\na\n"}
        files["again.failed.jsonl"] = '{"text": "a", "error": "too long"}\n'
        for name, content in files.items():
            (place / name).write_text(content)
        (place / "wide.tsv").write_text("text\na\n", encoding="utf-16")
        for name, numbers in {"one": [1], "two": [0.5]}.items():
            pq.write_table(pa.table({"text": ["a"], "n": numbers}), f"{name}.parquet")
        for name in ("folder", "folder.tsv"):
            (place / name).mkdir()
        os.mkfifo("pipe")
        before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
        asked = {"model": upper, "pattern": "in.tsv", "out": "out.tsv"} | changes
        overwrite = asked.pop("overwrite", False)
        with pytest.raises((ValueError, OSError), match=message):
            infer_files(Request(**asked), overwrite=overwrite)
        assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before

    def test_if_every_row_fails_only_the_reasons_are_written(self, upper, place):
        (place / "in.txt").write_text("bad\nbad\n")
        with pytest.raises(ValueError, match=r"^every row failed; out\.failed\.jsonl has the reasons$"):
            infer_files(Request(upper, "in.txt", "out.txt"))
        assert sorted(os.listdir()) == ["in.txt", "out.failed.jsonl"]

    def test_overwrite(self, upper, place):
        (place / "in.txt").write_text("a\n")
        (place / "out.txt").write_text("old")
        (place / "out.failed.jsonl").write_text("old")
        infer_files(Request(upper, "in.txt", "out.txt"), overwrite=True)
        assert sorted(os.listdir()) == ["in.txt", "out.txt"]
        assert (place / "out.txt").read_text() == ">A\n"


class TestUnfinishedRuns:
    def test_only_what_is_missing_is_computed(self, upper, place, small_chunks, monkeypatch):
        write_input("txt", place / "in.txt")
        asked = Request(upper, "in.txt", "out.txt")
        with monkeypatch.context() as patch:
            patch.setattr(batch_inference, "join", mock.Mock(side_effect=OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                infer_files(asked)
        parts = batch_inference.parts_in("out.txt.parts")
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
            patch.setattr(batch_inference, "join", mock.Mock(side_effect=OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                infer_files(asked)
        os.remove(batch_inference.parts_in("out.txt.parts")[-1].path)
        assert infer_files(asked).broken == 9

    def test_a_window_that_two_workers_have_written_counts_once(self, upper, place, small_chunks, monkeypatch):
        """The second try of a worker may have another number of failures, for example when memory is short."""
        write_input("txt", place / "in.txt")
        write = batch_driver.write_part

        def write_twice(folder, window, answers, layout):
            write(folder, window, [batch_files.Failure("no memory"), *answers[1:]], layout)
            write(folder, window, answers, layout)

        monkeypatch.setattr(batch_driver, "write_part", write_twice)
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
            batch_inference._alone(Request(upper, "in.txt", f"{folder}{other}")),
            pytest.raises(BlockingIOError, match=fault),
        ):
            infer_files(asked)
        assert os.listdir() == ["in.txt"]
        infer_files(asked)
        assert sorted(path.name for path in place.rglob("*.*")) == ["in.txt", "out.txt"]

    def test_an_output_that_another_command_has_just_written_is_kept(self, upper, place, monkeypatch):
        (place / "in.txt").write_text("a\n")
        alone = batch_inference._alone

        def after_another(asked):
            (place / "new").mkdir()
            (place / "new" / "out.txt").write_text("old")
            return alone(asked)

        monkeypatch.setattr(batch_inference, "_alone", after_another)
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

    def test_a_part_is_on_the_disk_before_it_has_its_name(self, place, monkeypatch):
        """After a power cut, an empty part would say that its rows are done."""
        on_disk = []
        monkeypatch.setattr(os, "fsync", lambda file: on_disk.append((os.fstat(file).st_size, os.path.exists("part"))))
        with batch_files.whole("part") as file:
            file.write(b"whole")
        assert on_disk == [(5, False)]

    @pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
    def test_processes_can_print_although_their_log_cannot_grow(self):
        errors, printing = os.pipe()
        with FULL.open("ab", buffering=0) as log:
            copying = threading.Thread(target=batch_inference._copy, args=(os.fdopen(errors, "rb"), log))
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

    def test_no_part_stays(self, upper, files):
        inputs = list(files)
        infer_files(Request(upper, "bucket://b/in/*", "bucket://b/out.txt", outputs=["text"]))
        assert sorted(files.keys() - inputs) == ["bucket://b/out.failed.jsonl", "bucket://b/out.txt"]
        assert files["bucket://b/out.txt"] == b">ONE\n\n>TWO\n"

    def test_parts_of_another_run_are_not_taken(self, upper, files, monkeypatch):
        asked = Request(upper, "bucket://b/in/*", "bucket://b/out.txt", outputs=["text"])
        with monkeypatch.context() as patch:
            patch.setattr(batch_inference, "join", mock.Mock(side_effect=OSError("no network")))
            with pytest.raises(OSError, match="no network"):
                infer_files(asked)
        files |= {"bucket://b/in/1.txt": b"changed\n", "bucket://b/in/2.txt.gz": gzip.compress(b"changed, too\n")}
        infer_files(asked, overwrite=True)
        assert files["bucket://b/out.txt"] == b">CHANGED\n>CHANGED, TOO\n"

    def test_an_unfinished_run_goes_on_though_its_failed_rows_are_written(self, upper, files, monkeypatch):
        asked = Request(upper, "bucket://b/in/*", "bucket://b/out.txt", outputs=["text"])
        with monkeypatch.context() as patch:
            patch.setattr(batch_inference, "join", mock.Mock(side_effect=OSError("no network")))
            with pytest.raises(OSError, match="no network"):
                infer_files(asked)
        assert "bucket://b/out.failed.jsonl" in files
        told = []
        infer_files(asked, say=told.append)
        assert told == ["going on: 2 of 2 parts are done"]

    def test_an_error_names_no_log_since_there_is_none(self, upper, files, monkeypatch):
        monkeypatch.setattr(batch_inference, "_drive_once", lambda *given: {"error": "it broke", "new": 0})
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
                    batch_driver.drive(scratch, flags)
                return {
                    **(thing if isinstance(thing, dict) else {}),
                    "new": batch_inference._advance(scratch, advance, seen),
                }

            monkeypatch.setattr(batch_inference, "_drive_once", drive_once)
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
        assert batch_driver._cause(RuntimeError(report)) == "ValueError: deep"
        middle = RuntimeError("UnicodeEncodeError: 'utf-8 [while running 'Read-ptransform-4']' codec can't encode")
        assert batch_driver._cause(middle) == "UnicodeEncodeError: 'utf-8' codec can't encode"
        assert batch_driver._cause(KeyError("x")) == "KeyError: 'x'"

    def test_ctrl_c_says_that_the_command_goes_on(self, monkeypatch, upper, place):
        (place / "in.txt").write_text("a\n")
        monkeypatch.setattr(batch_inference, "_drive_once", mock.Mock(side_effect=KeyboardInterrupt))
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
