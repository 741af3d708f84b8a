"""How answers are written."""

import os

import numpy as np
import pytest

pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

import pyarrow.parquet as pq
from nine_rows import expected, write_input
from zoo_training.batch_inference.filesystem import whole
from zoo_training.batch_inference.infer import infer_files
from zoo_training.batch_inference.parts import _cell, _in_table
from zoo_training.batch_inference.plan import Request


def test_an_answer_stays_on_its_line():
    values = [np.float32(0.1), "a\nb", b"\xff", np.array([[0.1, np.inf]], "float32"), np.int64(7)]
    assert [_cell(value) for value in values] == [
        "0.1",
        "a b",
        "\N{REPLACEMENT CHARACTER}",
        "[[0.1, null]]",
        "7",
    ]


def test_a_parquet_output_has_few_groups_of_rows(upper, place, small_chunks):
    write_input("parquet", place / "in.parquet")
    infer_files(Request(upper, "in.parquet", "out.parquet"))
    assert pq.ParquetFile("out.parquet").num_row_groups == 1


def test_several_groups_of_rows_hold_every_row_once(upper, place, small_chunks, monkeypatch):
    monkeypatch.setattr("zoo_training.batch_inference.parts._GROUP_BYTES", 100)
    write_input("parquet", place / "in.parquet")
    infer_files(Request(upper, "in.parquet", "out.parquet"))
    assert pq.ParquetFile("out.parquet").num_row_groups > 1
    assert pq.read_table("out.parquet").to_pylist() == expected("parquet", "parquet")


def test_strings_in_lists_that_are_not_utf_8():
    answer = np.array([b"\xff", "a"], object)
    assert _in_table(answer) == ["\N{REPLACEMENT CHARACTER}", "a"]


def test_outputs_with_any_number_of_axes(upper, place):
    (place / "in.txt").write_text("a\nb\n")
    infer_files(Request(upper, "in.txt", "out.txt", signature="any"))
    assert (place / "out.txt").read_text() == "a\nb\n"


def test_a_part_is_on_the_disk_before_it_has_its_name(place, monkeypatch):
    """After a power cut, an empty part would say that its rows are done."""
    on_disk = []
    monkeypatch.setattr(os, "fsync", lambda file: on_disk.append((os.fstat(file).st_size, os.path.exists("part"))))
    with whole("part") as file:
        file.write(b"whole")
    assert on_disk == [(5, False)]
