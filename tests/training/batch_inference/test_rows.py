"""Every format that is read and written: rows keep their order and what they hold."""

import codecs
import datetime
import gzip
import io
import json
import os
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

import pyarrow as pa
import pyarrow.parquet as pq
from nine_rows import expected, json_lines, write_input
from zoo_training.batch_inference.infer import infer_files
from zoo_training.batch_inference.plan import Request
from zoo_training.batch_inference.rows import Chunk, Layout, _records, lines_between, windows

MODELS = pathlib.Path(__file__).parents[3] / "saved_models"


class TestFormats:
    @pytest.mark.parametrize(
        ("reads", "writes"),
        [  # each format, and each pair whose columns are like no other's
            *(("txt", "txt"), ("txt", "tsv"), ("tsv", "tsv"), ("tsv", "jsonl"), ("jsonl", "jsonl")),
            *(("jsonl", "txt"), ("parquet", "parquet"), ("parquet", "jsonl")),
        ],
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

    def test_a_line_of_text_is_the_only_input_without_a_setting_or_a_default(self, upper, place):
        (place / "in.txt").write_text("5 mai 2001\n")
        infer_files(Request(upper, "in.txt", "other.jsonl", "other", settings={"hidden": "1.5"}))
        infer_files(Request(str(MODELS / "dates"), "in.txt", "next.jsonl", "next"))
        assert json_lines("other.jsonl")[0]["twice"] == 3
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


class TestReading:
    @settings(max_examples=200, deadline=None)
    @given(
        content=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"bc\n", b"\n\n", b"long line", codecs.BOM_UTF8])),
        step=st.integers(1, 9),
    )
    def test_every_line_is_in_one_chunk(self, tmp_path_factory, content, step):
        path = tmp_path_factory.getbasetemp() / "lines"
        path.write_bytes(b"".join(content))
        size = path.stat().st_size
        found = [
            line for begin in range(0, size, step) for line in lines_between(str(path), begin, min(begin + step, size))
        ]
        assert found == [line.removeprefix(codecs.BOM_UTF8) for line in io.BytesIO(b"".join(content))]

    def test_tables_of_several_types_may_be_written_as_json(self, upper, place):
        for name, numbers in {"one": [1], "two": [0.5]}.items():
            pq.write_table(pa.table({"text": ["a"], "n": numbers}), f"{name}.parquet")
        infer_files(Request(upper, "*.parquet", "out.jsonl", outputs=["length"]))
        assert json_lines("out.jsonl") == [{"text": "a", "n": 1, "length": 1}, {"text": "a", "n": 0.5, "length": 1}]

    def test_a_byte_order_mark_is_no_letter(self, upper, place):
        (place / "in.txt").write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
        infer_files(Request(upper, "in.txt", "out.txt", outputs=["length"]))
        assert (place / "out.txt").read_text() == "1\n1\n"

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

    def test_times_keep_their_nanoseconds(self, upper, place):
        kinds = pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")
        times = {str(kind): pa.array([1234567891, None], kind) for kind in kinds}
        table = pa.table({"text": ["a", "b"], **times})
        pq.write_table(table, "in.parquet")
        for out in ("out.parquet", "out.jsonl"):
            infer_files(Request(upper, "in.parquet", out, outputs=["length"]))
        assert pq.read_table("out.parquet").select(table.column_names) == table
        first, second = json_lines("out.jsonl")
        assert all("234567891" in first[name] and second[name] is None for name in times)

    def test_times_that_python_does_not_have_harm_no_row(self, upper, place):
        times = [
            (pa.timestamp("us"), 1 << 62, "<value out of range: 4611686018427387904>"),
            (pa.timestamp("ms", "Asia/Kolkata"), 0, "1970-01-01 05:30:00.000+05:30"),
            (pa.timestamp("ms", "UTC"), 253_402_300_800_000, "10000-01-01 00:00:00.000Z"),
            (pa.date32(), -719_163, "0000-12-31"),
            (pa.duration("s"), 1 << 60, str(1 << 60)),
            (pa.time32("ms"), 1500, "00:00:01.500"),
        ]
        columns = {str(kind): pa.array([number, None], kind) for kind, number, _ in times}
        table = pa.table({"text": ["a", "b"], **columns})
        pq.write_table(table, "in.parquet")
        for out in ("out.parquet", "out.jsonl"):
            infer_files(Request(upper, "in.parquet", out, outputs=["length"]))
        assert pq.read_table("out.parquet").select(table.column_names) == pq.read_table("in.parquet")
        first, second = json_lines("out.jsonl")
        assert {name: first[name] for name in columns} == {str(kind): shown for kind, _, shown in times}
        assert not any(second[name] for name in columns)

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
        layout = Layout("parquet", "txt", ("text",), {"text": "text"}, ("text",), {}, {"text": "string"}, {})
        rows = _records(Chunk(0, "in.parquet", 0, 4, "in.parquet"), layout)
        assert [next(rows)[1].row["text"] for _ in range(2)] == ["a", "b"]
        with pytest.raises(
            ValueError, match=r"^in.parquet: row group 1, counted from 0, column 'pair' of type fixed_s"
        ):
            next(rows)

    def test_a_worker_holds_few_large_rows_of_a_table_at_once(self, place, monkeypatch):
        monkeypatch.setattr("zoo_training.batch_inference.rows._WINDOW_BYTES", 2500)
        table = pa.table({"text": ["a" * 1000] * 9 + ["b"] * 9})
        pq.write_table(table, "in.parquet", row_group_size=9, use_dictionary=False)
        layout = Layout("parquet", "txt", ("text",), {"text": "text"}, ("text",), {}, {"text": "string"}, {})
        found = list(windows(Chunk(0, "in.parquet", 1, 17, "in.parquet"), layout))
        assert [row.raw["text"] for window in found for row in window.records] == table["text"].to_pylist()[1:17]
        assert [len(window.records) for window in found] == [2, 2, 2, 10]
