"""Which files are read, what a signature takes, and what is refused before the work begins."""

import gzip
import os
import pathlib
from unittest import mock

import pytest
import tensorflow as tf

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

import pyarrow as pa
import pyarrow.parquet as pq
from nine_rows import json_lines
from zoo_training.batch_inference import infer
from zoo_training.batch_inference.infer import infer_files
from zoo_training.batch_inference.plan import Request, input_files
from zoo_training.batch_inference.signatures import signature_of

MODELS = pathlib.Path(__file__).parents[3] / "saved_models"


class TestInputFiles:
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
            patch.setattr(infer, "join", mock.Mock(side_effect=OSError("disk full")))
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
            patch.setattr(infer, "join", mock.Mock(side_effect=OSError("disk full")))
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
        found = input_files(Request(upper, "*.txt", "out.txt"), "out.txt.parts")
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


class TestSignatures:
    @pytest.mark.parametrize("name", ["gpt-pydoc", "languages"])
    def test_are_read_as_tensorflow_reads_them(self, name):
        folder = MODELS / name / "1"
        for signature, function in tf.saved_model.load(str(folder)).signatures.items():
            found = signature_of(str(folder), signature)
            for specs, tensors in zip(
                found, (function.structured_input_signature[1], function.structured_outputs), strict=True
            ):
                wanted = {key: (each.dtype.name, tuple(each.shape.as_list())) for key, each in tensors.items()}
                assert {key: (spec.dtype, spec.shape) for key, spec in specs.items()} == wanted

    def test_a_damaged_file(self, tmp_path):
        (tmp_path / "saved_model.pb").write_bytes(b"damaged")
        with pytest.raises(ValueError, match=r"cannot be loaded; its files may be damaged \("):
            signature_of(str(tmp_path), "serving_default")
        (tmp_path / "saved_model.pb").write_text("version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(ValueError, match=r"/saved_model\.pb is a pointer of git-lfs, not the file itself; run"):
            signature_of(str(tmp_path), "serving_default")
        (tmp_path / "saved_model.pb").write_bytes(b"")
        with pytest.raises(ValueError, match=r" has no signature 'serving_default'; it has none$"):
            signature_of(str(tmp_path), "serving_default")


class TestMistakes:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model": "none"}, "none holds no SavedModel"),
            ({"signature": "x"}, "has no signature 'x'; it has any, most, one, other, pairs, serving_default$"),
            ({"signature": "most"}, "^the signature 'most' does not have one 'count' for each row$"),
            ({"signature": "one"}, "^the signature 'one' does not have one 'text' for each row$"),
            ({"pattern": "wide.tsv"}, "/wide.tsv: UTF-16, and not UTF-8; convert it, for example with iconv"),
            ({"pattern": "packed.tsv"}, "/packed.tsv: packed by gzip; unpack it first$"),
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
        (place / "packed.tsv").write_bytes(gzip.compress(b"text\na\n"))
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
