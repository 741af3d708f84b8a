"""Text pairs from files: what is read, what is held out, and what is said of files that cannot be read."""

import bz2
import gzip
import itertools
import lzma
import os
import re
import threading
from pathlib import Path

import pydantic
import pytest
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.file_pairs import FilePairs

DATA = Path(__file__).parents[4] / "shared" / "data"
NO_HOLD_OUT = {"validation_pairs": 0, "test_pairs": 0}


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    return write


def read(train, split="train", **fields):
    """The (source, target) pairs of a split; nothing is held out unless told."""
    held_out = {} if any(name.endswith("_pairs") for name in fields) else NO_HOLD_OUT
    return pairs_of(FilePairs(train=train, **(held_out | fields)).read(split))


def pairs_of(pairs):
    return list(zip(pairs.sources, pairs.targets, strict=True))


def numbered(count: int) -> str:
    return "".join(f"source {n}\ttarget {n}\n" for n in range(count))


def test_the_targets_of_a_split_say_what_it_is_judged_by(write):
    path, test = write("p.tsv", "a\tone two three four\n"), write("t.tsv", "a\t我今天去学校\n")
    corpus = FilePairs(train=path, test=test, validation_pairs=0)
    assert (corpus.metric("train"), corpus.metric("test")) == ("bleu", "exact_match")
    assert (corpus.language, corpus.licence) == (None, None)
    chinese = FilePairs(train=path, test=test, validation_pairs=0, target_language="zh-Hant-TW")
    assert (chinese.language, chinese.metric("test")) == ("zh-Hant-TW", "bleu")


class TestTable:
    def test_more_columns_than_two_are_ignored(self, write, caplog):
        assert read(write("p.tsv", "a\tb\tCC-BY\nc\td\n")) == [("a", "b"), ("c", "d")]
        assert not caplog.messages

    def test_a_tab_inside_a_text_is_told(self, write, caplog):
        path = write("p.tsv", "a\tb\nc\tc\td\ne\tf\n\ng\tg\tg\th\n")
        assert read(path) == [("a", "b"), ("c", "c"), ("e", "f"), ("g", "g")]
        assert f"{path}:2: 3 columns, where most lines have 2 (lines with more: 2); a tab" in caplog.messages[0]

    def test_quotes_of_a_spreadsheet_are_told(self, write, caplog):
        path = write("p.tsv", 'a\t"b"\n"c ""d"" e"\tf\n"g\th"\ni\t"""j"""\n')
        assert read(path) == [("a", '"b"'), ('"c ""d"" e"', "f"), ('"g', 'h"'), ("i", '"""j"""')]
        (told,) = caplog.messages
        assert told.startswith(
            f'{path}:2: a cell in quotes with "" inside, as spreadsheets write (lines with such a cell: 2); quotes'
        )

    def test_a_file_with_its_cells_in_quotes_is_told(self, write, caplog):
        path = write("p.tsv", '"a"\tb\nc\td\n"e"\t"f"\n')
        assert read(path) == [('"a"', "b"), ("c", "d"), ('"e"', '"f"')]
        assert caplog.messages[0].startswith(f"{path}: most lines have a cell in quotes (2 of 3); quotes are read as")
        caplog.clear()
        read(write("p.tsv", '"a"\tb\nc\td\n"e" and "f"\tg\n'))
        assert not caplog.messages

    def test_a_column_that_numbers_the_rows_is_told(self, write, caplog):
        """As pandas writes it, so that the default columns are a number and the source."""
        path = write("p.tsv", "\tenglish\tgerman\n" + "".join(f"{n}\te{n}\td{n}\n" for n in range(30)))
        read(path)
        told = f"{path}: source_column = 1 has the numbers 0, 1, 2 and so on; if they number the rows, choose another"
        assert [each for each in caplog.messages if "has the numbers" in each] == [f"{told} column"]
        caplog.clear()
        read(path, source_column=2, target_column=3)
        read(write("p.tsv", "".join(f"{n}\tnumber {n}\n" for n in range(30))))  # may well be the texts
        read(write("p.tsv", "1\ta\tb\n2\tc\td\n"))
        read(write("p.tsv", "only\tone\tline\n"))
        assert not any("has the numbers" in each for each in caplog.messages)

    def test_a_line_break_in_quotes_is_told(self, write):
        with pytest.raises(
            CorpusError, match=r"p\.tsv:3: .* this one has 1; if a text in quotes has a line break, docs/"
        ):
            read(write("p.tsv", 'a\tb\nc\t"d\ne"\n'))

    def test_a_quote_in_a_file_of_commas_is_no_line_break(self, write):
        with pytest.raises(CorpusError, match=r"this one has 1; docs/own_data\.md says how to make a TSV from CSV"):
            read(write("p.tsv", '5" disk,Diskette\n'))

    def test_columns_by_number(self, write):
        path = write("p.tsv", "1\tone\tun\n2\ttwo\tdeux\n")
        assert read(path, source_column=3, target_column=2) == [("un", "one"), ("deux", "two")]

    def test_columns_by_name(self, write):
        path = write("p.tsv", "\ufeffEng\tHin\tOth\nWow!\tवाह!\tx\n")
        assert read(path, header=True, source_column="Hin", target_column="Eng") == [("वाह!", "Wow!")]

    def test_header_is_skipped_also_with_columns_by_number(self, write, caplog):
        assert read(write("p.tsv", 'Eng\tHin\n"a\t"b\n'), header=True) == [('"a', '"b')]  # quotes are text
        assert not caplog.messages

    @pytest.mark.parametrize("first", ["Eng\tHin", "English\tHindi", "source_text\tTarget Text", " src\tTGT "])
    def test_what_looks_like_a_header_and_is_read_as_a_pair_is_told_once(self, write, first, caplog):
        path = write("p.tsv", f"{first}\n{numbered(40)}")
        corpus = FilePairs(train=path)
        assert sum(len(corpus.read(split)) for split in corpus.splits) == 41
        (told,) = caplog.messages
        source, target = first.split("\t")
        assert told.startswith(f"{path}:1: {source!r} and {target!r} look like the names of columns, and are read as a")
        assert told.endswith("if they are names, set header = true in [corpus]")

    @pytest.mark.parametrize(("first", "fields"), [("ee\tEE", {}), ("it\tes", {"header": False})])
    def test_no_warning_where_it_would_be_wrong(self, write, first, fields, caplog):
        corpus = FilePairs(train=write("p.tsv", f"{first}\n{numbered(40)}"), **fields)
        assert sum(len(corpus.read(split)) for split in corpus.splits) == 41
        assert not caplog.messages

    def test_in_the_columns_that_are_read_and_in_every_file(self, write, caplog):
        path, test = write("p.tsv", f"id\tde\ten\n{numbered(2)}"), write("t.tsv", "1\tde\ten\n")
        with pytest.raises(CorpusError, match="must have 3 columns or more"):
            read(path, target_column=3)
        assert "'id' and 'en' look like" in caplog.text
        caplog.clear()
        assert read("p", "test", test=test, source_column=2, target_column=3, validation_pairs=0) == [("de", "en")]
        assert "t.tsv:1: 'de' and 'en' look like" in caplog.text

    @pytest.mark.parametrize("first", ["English\tdas Englische", "go!\tgeh!", "\t"])
    def test_a_pair_is_no_header(self, write, first, caplog):
        read(write("p.tsv", f"{first}\n{numbered(2)}"))
        assert "names of columns" not in caplog.text

    def test_empty_and_too_long_pairs_are_dropped_and_counted(self, write):
        path = write("p.tsv", f"a\tb\n\n \nc\t\n\td\ne\tf\ng\t{'h' * 6}\n{'i' * 5}\tj\n")
        pairs = FilePairs(train=path, max_characters=5, **NO_HOLD_OUT).read("train")
        assert (pairs.sources, pairs.targets) == (["a", "e", "iiiii"], ["b", "f", "j"])
        assert pairs.dropped == {"empty": 4, "too long": 1}

    @pytest.mark.parametrize(
        ("lines", "fields", "told"),
        [
            (
                "a\tb\nc d\n",
                {},
                "2: a line must have 2 columns or more, separated by tabs (source_column = 1, target_column = 2); "
                "this one has 1. Received: 'c d'",
            ),
            ("x\ty\tz\na\tb\tc\nd\te\n", {"target_column": "z"}, "3: a line must have 3 columns or more, "),
            (
                "Eng\tHin\tOth\n",
                {"source_column": "Hindi"},
                "1: no column 'Hindi' in the header; it has 'Eng', ",
            ),
            ("Eng\tHin\n", {"source_column": "Hin"}, " source_column and target_column are both column 2"),
        ],
    )
    def test_columns_that_are_not_there(self, write, lines, fields, told):
        path = write("p.tsv", lines)
        with pytest.raises(CorpusError, match=f"^{re.escape(f'{path}:{told}')}"):
            read(path, header=bool(fields), **fields)

    def test_the_nearest_column_is_named(self, write):
        with pytest.raises(CorpusError, match=r"did you mean 'Hin'\?$"):
            read(write("p.tsv", "Eng\tHin\n"), header=True, target_column="Hindi")


class TestParallel:
    def test_lines_correspond(self, write):
        files = [write("p.en", "a\nb\n"), write("p.de.gz", "A\nB")]
        assert read(files) == [("a", "A"), ("b", "B")]
        assert read(files[::-1]) == [("A", "a"), ("B", "b")]

    def test_tabs_are_text(self, write):
        assert read([write("p.en", "a\tx\n"), write("p.de", "A\n")]) == [("a\tx", "A")]

    @pytest.mark.parametrize("lengths", [(3, 5), (5, 3)])
    def test_unequal_length(self, write, lengths):
        files = [write(f"p.{i}", "line\n" * length) for i, length in enumerate(lengths)]
        with pytest.raises(CorpusError, match=rf"p\.0 has {lengths[0]} lines and \S*p\.1 has {lengths[1]}:"):
            read(files)


class TestLines:
    @pytest.mark.parametrize(
        ("name", "end", "last"), [("p.tsv", "\n", ""), ("p.tsv", "\r\n", "\r\n"), ("p.gz", "\n", "\n")]
    )
    def test_line_ends_and_a_byte_order_mark(self, write, name, end, last):
        found = read(write(name, f"\ufeffa\tb{end}\ufeffc\td{last}"))
        assert found == [("a", "b"), ("c", "d")]

    def test_nothing_else_ends_a_line(self, write):
        inner = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\rb"
        assert read(write("p.tsv", f"{inner}\tc{inner}d\ne\tf\n")) == [(inner, f"c{inner}d"), ("e", "f")]
        assert read([write("p.en", f"{inner}\nc\n"), write("p.de", f"A\nB{inner}C\n")])[1] == ("c", f"B{inner}C")

    @pytest.mark.parametrize(
        ("name", "content", "told"),
        [
            ("p.tsv.gz", "é\tb\n".encode() + b"caf\xe9\tx\n", "2: not UTF-8: byte 0xe9 at offset 8 of the text"),
            ("p.tsv", b"\xef\xbb\xbfa\xff\tb\n", "1: not UTF-8: byte 0xff at offset 4 of the text"),
        ],
    )
    def test_not_utf8(self, write, name, content, told):
        with pytest.raises(CorpusError, match=f"{re.escape(name)}:{told}"):
            read(write(name, content))

    @pytest.mark.parametrize(
        ("name", "content", "told"),
        [
            ("p.tsv", "a\tb\n".encode("utf-16-le"), "zero bytes in the first line, so it is UTF-16 without a mark"),
            ("p.tsv", "a\tb\n".encode("utf-16-be"), "zero bytes in the first line, so it is UTF-16 without a mark"),
            ("p.tsv", "a\tb\n".encode("utf-32"), "UTF-32, and not UTF-8; convert it, for example with iconv -f UTF-32"),
            ("p.tsv", "a\tb\n".encode("utf-16"), "UTF-16, and not UTF-8; convert it, for example with iconv -f UTF-16"),
            ("p.tsv", gzip.compress(b"a\tb\n", mtime=0), "a gzipped file; give it a name that ends in .gz"),
            ("p.tsv.gz", gzip.compress(b"a\tb\n", mtime=0), "a gzipped file; give it"),  # twice
            ("p.xlsx", b"PK\x03\x04\x14\x00", "a spreadsheet or a ZIP archive; save the sheet as tab-separated text"),
            ("p.tsv", b"PAR1\x15\x04\n", "a Parquet file; write its columns into a TSV first"),
            ("p.tsv", bz2.compress(b"a\tb\n"), "packed by bzip2; unpack it first"),
            ("p.tsv", lzma.compress(b"a\tb\n"), "packed by xz; unpack it first"),
            ("p.tsv", bytes.fromhex("28b52ffd0404 0000"), "packed by zstd; unpack it first"),
        ],
    )
    def test_a_file_that_is_no_plain_text(self, write, name, content, told):
        with pytest.raises(CorpusError, match=rf"/{re.escape(name)}: {re.escape(told)}"):
            read(write(name, content))

    def test_a_text_may_begin_as_the_mark_of_parquet_does(self, write):
        assert read(write("p.tsv", "PAR1\ta receptor\n")) == [("PAR1", "a receptor")]

    def test_lines_that_end_in_carriage_returns_alone_are_told(self, write, caplog):
        read(write("p.tsv", "a\tb\rc\td\r"))
        assert r"p.tsv: one line with carriage returns in it; if it should be several, tr '\r' '\n'" in caplog.text
        caplog.clear()
        read(write("p.tsv", "a\tb\r\n"))
        read(write("p.tsv", "a\tb\rc\nd\te\n"))
        assert not caplog.text

    @pytest.mark.parametrize("damage", ["half", "zeros", "plain text"])
    def test_a_broken_gzip_file(self, write, damage):
        path = write("p.tsv.gz", numbered(5000))
        content = path.read_bytes()
        broken = {"half": content[:-2000], "zeros": content[:100] + bytes(100) + content[200:], "plain text": b"a\tb\n"}
        path.write_bytes(broken[damage])
        with pytest.raises(CorpusError, match=r"p\.tsv\.gz:\d+: broken gzip file .* drop the \.gz"):
            read(path)

    @pytest.mark.parametrize(("name", "header"), [("p.tsv", True), ("p.tsv.gz", False)])
    def test_empty_file(self, write, name, header):
        with pytest.raises(CorpusError, match=rf"{re.escape(name)}: the file is empty"):
            read(write(name, ""), header=header)

    def test_header_alone(self, write):
        with pytest.raises(CorpusError, match="no usable pair"):
            read(write("p.tsv", "Eng\tHin\n"), header=True)

    def test_what_is_no_file_of_lines(self, write, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(CorpusError, match=r"hin-eng\.zip: only plain text and \.gz are read; unpack it"):
            read(write("hin-eng.zip", b"PK\x03\x04"))
        with pytest.raises(CorpusError, match=r"nowhere\.tsv: there is no such file\.$"):
            read(tmp_path / "nowhere.tsv")
        with pytest.raises(CorpusError, match=rf"^p\.tsv: there is no such file in .*{tmp_path}, nor in the recipe"):
            read("p.tsv")
        with pytest.raises(CorpusError, match="expected a file, found a folder"):
            read(tmp_path)

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("*.tsv", "; wildcards such as * and variables such as $HOME are not replaced in a name; ~ is."),
            ("$HOME/p.tsv", "; wildcards such as * and variables"),
            ("https://example.org/p.tsv", "; nothing is downloaded from an address, so give the path of a file."),
            (
                "C:\temp\new.tsv",
                r"; a \ in double quotes of TOML, as in \t, stands for a special character, so write /",
            ),
            ("c:/p.tsv", " nor in the recipe's folder."),
        ],
    )
    def test_a_missing_file_whose_name_means_something_elsewhere(self, name, told):
        with pytest.raises(CorpusError, match=f"{re.escape(told)}"):
            read(name)

    def test_home_and_working_directory(self, write, monkeypatch):
        home = write("p.tsv", "a\tb\n").parent
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(home)
        assert read("~/p.tsv") == read("p.tsv") == [("a", "b")]
        with pytest.raises(CorpusError, match=r"^~nobody-of-that-name/p\.tsv: there is no such file"):
            read("~nobody-of-that-name/p.tsv")

    def test_a_file_beside_the_recipe(self, write, tmp_path, monkeypatch):
        write("beside/p.tsv", "a\tb\n")
        context = {"recipe_folder": tmp_path / "beside"}
        monkeypatch.chdir(tmp_path)
        fields = {"train": "p.tsv", **NO_HOLD_OUT}
        assert pairs_of(FilePairs.model_validate(fields, context=context).read("train")) == [("a", "b")]
        write("p.tsv", "c\td\n")  # the working directory comes first
        assert pairs_of(FilePairs.model_validate(fields, context=context).read("train")) == [("c", "d")]

    def test_each_file_is_opened_once(self, tmp_path, write):
        """A pipe can be read only once."""
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(numbered(60),), daemon=True)
        writer.start()
        corpus = FilePairs(train=pipe, test=write("t.tsv", "a\tb\n"), validation_pairs=20)
        assert [len(corpus.read(split)) for split in corpus.splits] == [40, 20, 1]
        writer.join()


class TestHeldOut:
    def splits(self, path, **fields):
        corpus = FilePairs(train=path, **fields)
        return {split: pairs_of(corpus.read(split)) for split in corpus.splits}

    def test_by_default_one_in_twenty(self, write):
        splits = self.splits(write("p.tsv", numbered(200)))
        assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 180, "validation": 10, "test": 10}
        assert sorted(itertools.chain(*splits.values())) == sorted((f"source {n}", f"target {n}") for n in range(200))

    def test_by_default_at_most_a_thousand(self, write):
        splits = self.splits(write("p.tsv", numbered(21_000)), test_pairs=0)
        assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 20_000, "validation": 1_000}

    def test_as_many_as_asked_and_in_the_order_of_the_file(self, write):
        path = write("p.tsv", numbered(50))
        splits = self.splits(path, validation_pairs=7, test_pairs=4)
        assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 39, "validation": 7, "test": 4}
        for pairs in splits.values():
            assert pairs == sorted(pairs, key=lambda pair: int(pair[0].split()[1]))
        for number in (0, 40):  # of validation pairs; the test does not depend on them
            assert self.splits(path, validation_pairs=number, test_pairs=4)["test"] == splits["test"]
        other = self.splits(path, validation_pairs=7, test_pairs=4, seed=1)
        assert other["test"] != splits["test"] and other["validation"] != splits["validation"]

    def test_no_text_is_in_two_splits(self, write):
        # Sources with several translations, targets with several sources, chains of both, and a large family.
        lines = [f"s{n % 60}\tt{n % 75}" for n in range(0, 300, 7)] + [f"x{n}\ty{n // 3}" for n in range(90)]
        lines += [f"big {n}\tone translation" for n in range(40)]
        for seed in range(10):
            splits = self.splits(write("p.tsv", "\n".join(lines)), validation_pairs=20, test_pairs=20, seed=seed)
            assert [len(splits[split]) for split in ("validation", "test")] == [20, 20]
            for side in (0, 1):
                texts = [{pair[side] for pair in pairs} for pairs in splits.values()]
                assert sum(map(len, texts)) == len(set.union(*texts))

    def test_texts_are_compared_as_they_are_read(self, write):
        # The same source four times: composed, decomposed, in white space, and behind \r.
        lines = ["caf\u00e9\tone", "cafe\u0301\ttwo", " caf\u00e9 \tthree", "caf\u00e9\r\tfour"]
        lines += [f"s{n}\tt{n}" for n in range(4)]
        for seed in range(10):
            splits = self.splits(write("p.tsv", "\n".join(lines)), validation_pairs=2, test_pairs=2, seed=seed)
            assert [pair[1] for pair in splits["train"] if pair[0] == "café"] == ["one", "two", "three", "four"]

    def test_the_order_of_the_lines_does_not_matter(self, write):
        lines = numbered(60).splitlines()
        forwards = self.splits(write("p.tsv", "\n".join(lines)))
        backwards = self.splits(write("q.tsv", "\n".join(lines[::-1])))
        assert {split: pairs[::-1] for split, pairs in backwards.items()} == forwards

    def test_the_same_pairs_on_every_machine(self, write):
        """Guards against the choice changing with Python's hash seed or with a rewrite."""
        splits = self.splits(write("p.tsv", numbered(40)), validation_pairs=2, test_pairs=2)
        held = {split: [int(source.split()[1]) for source, _ in pairs] for split, pairs in splits.items()}
        assert (held["validation"], held["test"]) == ([17, 21], [24, 29])

    def test_large_clusters_are_as_likely_as_small_ones(self, write):
        lines = [f"pair {n}\tp{n}{i}" for n in range(100) for i in "ab"] + [f"alone {n}\tq{n}" for n in range(100)]
        path, share = write("p.tsv", "\n".join(lines)), 0
        for seed in range(20):
            held = self.splits(path, validation_pairs=60, test_pairs=0, seed=seed)["validation"]
            share += sum(source.startswith("alone") for source, _ in held) / len(held) / 20
        assert share == pytest.approx(1 / 3, abs=0.05)

    def test_unusable_pairs_do_not_count(self, write):
        path = write("p.tsv", numbered(20) + "\tempty\n" * 10 + f"long\t{'x' * 99}\n")
        corpus = FilePairs(train=path, validation_pairs=6, test_pairs=6, max_characters=50)
        counts = [(len(p), p.dropped) for p in map(corpus.read, corpus.splits)]
        assert counts == [(8, {"empty": 10, "too long": 1}), (6, {}), (6, {})]

    def test_only_the_split_without_a_file_is_held_out(self, write, caplog):
        path, given = write("p.tsv", numbered(40)), write("v.tsv", "a\tb\n")
        splits = self.splits(path, validation=given, validation_pairs=0, test_pairs=3)  # 0 takes no file away
        assert (splits["validation"], len(splits["test"]), len(splits["train"])) == ([("a", "b")], 3, 37)
        assert not caplog.messages

    def test_pairs_of_two_files_that_are_given_are_told(self, write, caplog):
        given = write("v.tsv", "source 1\ttarget 1\nsource 2\tanother\nnew\tnew\n")
        self.splits(write("p.tsv", numbered(40)), validation=given, test_pairs=0)
        (message,) = caplog.messages
        assert "of the 3 pairs of 'validation', 1 are also in 'train', and 2 share their source" in message

    @pytest.mark.parametrize("order", [("train", "validation", "test"), ("test", "validation", "train")])
    def test_the_very_same_file_is_told(self, write, caplog, order):
        path, other = write("p.tsv", numbered(50)), write("q.tsv", "a\tb\nc\td\n")
        corpus = FilePairs(train=other, validation=path, test=path)
        for split in order * 2:
            corpus.read(split)
        (message,) = caplog.messages
        assert "of the 50 pairs of 'test', 50 are also in 'validation'" in message

    @pytest.mark.parametrize(
        ("fields", "advice"),
        [
            (
                {"validation_pairs": 5, "test_pairs": 5},
                "ask for fewer by test_pairs and validation_pairs, or give a file, or have no test, by test_pairs = 0.",
            ),
            ({"validation_pairs": 99, "test_pairs": 0}, "ask for fewer by validation_pairs, or give a file."),
        ],
    )
    def test_too_few_pairs(self, write, fields, advice):
        """To hold out none for validation is no way out: a training needs it."""
        told = re.escape(f"of 10 usable pairs; {advice}")
        with pytest.raises(CorpusError, match=rf"p\.tsv: cannot hold out .*{told}$"):
            self.splits(write("p.tsv", numbered(10)), **fields)

    def test_why_no_pair_is_left(self, write):
        path = write("p.tsv", numbered(10) + "\tempty\n")
        with pytest.raises(
            CorpusError, match="holds no usable pair; dropped 1 empty, 10 with a target in another script"
        ):
            self.splits(path, clean={"target_script": "Devanagari"})

    def test_all_pairs_hang_together(self, write):
        path = write("p.tsv", "".join(f"the same\ttarget {n}\n" for n in range(10)))
        message = r"p\.tsv: cannot hold out .* the 10 usable pairs the smallest such group left has 10; give a file for"
        for fields in ({}, {"test_pairs": 0}):  # without a test, there would be no validation either
            with pytest.raises(CorpusError, match=f"{message} the split\\.$"):
                self.splits(path, **fields)
        with pytest.raises(CorpusError, match=f"{message} the split, or have no test, by test_pairs = 0\\.$"):
            self.splits(path, validation=write("v.tsv", "a\tb\n"))
        path = write("q.tsv", "".join(f"text {n % 3}\ttarget {n}\n" for n in range(30)))
        message = r"of the 30 usable pairs the smallest such group left has 10; ask for 10 or more, or give a file for"
        with pytest.raises(CorpusError, match=message):
            self.splits(path, validation_pairs=9)
        assert len(self.splits(path, validation_pairs=10, test_pairs=0)["validation"]) == 10

    def test_classes_and_duplicates_are_told(self, write):
        path = write("p.tsv", "".join(f"text {n}\t{('yes', 'no')[n % 2]}\n" for n in range(100)))
        told = (
            "The number of different targets is only 2; if they are classes, train a classifier: see docs/encoders.md"
        )
        with pytest.raises(CorpusError, match=rf"give a file for the split\. {told}\.$"):
            self.splits(path, test_pairs=0)
        path = write("q.tsv", "".join(f"text {n % 5}\ttarget {n % 5}\n" for n in range(100)))
        told = r"Of the 100 pairs, 5 are different; corpus\.clean\.duplicates = true drops the repeated ones"
        with pytest.raises(CorpusError, match=rf" {told}\.$"):
            self.splits(path)
        assert len(self.splits(path, clean={"duplicates": True})["train"]) == 3

    def test_one_usable_pair(self, write):
        with pytest.raises(CorpusError, match="of 1 usable pair; ask for fewer"):
            self.splits(write("p.tsv", "a\tb\n"))

    def test_fewer_than_asked_are_told(self, write, caplog):
        path = write("p.tsv", "".join(f"source {n // 3}\ttarget {n}\n" for n in range(30)))
        assert len(self.splits(path, validation_pairs=7, test_pairs=0)["validation"]) == 6
        assert "held out 6 pairs for validation; 7 were wanted" in caplog.text


class TestFields:
    def test_splits(self):
        assert FilePairs(train="p").splits == ("train", "validation", "test")
        assert FilePairs(train="p", **NO_HOLD_OUT).splits == ("train",)
        assert FilePairs(train="p", test="q", validation_pairs=0).splits == ("train", "test")

    def test_split_that_does_not_exist(self):
        with pytest.raises(CorpusError, match="no split 'test'; it has train, validation"):
            FilePairs(train="p", test_pairs=0).read("test")

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"train": ["a", "b", "c"]},
                r"`train` must be one path \(a TSV file\) or a list of two.*Received: train=\['a', 'b', 'c'\]",
            ),
            ({"train": "a", "validation": ["b", 3]}, "`validation` must be one path"),
            (
                {"train": "a", "source_column": 0},
                "`source_column` must be a column's number, .*Received: source_column=0",
            ),
            ({"train": "a", "target_column": True}, "Received: target_column=True"),
            ({"train": "a", "target_column": ""}, "Received: target_column=''"),
            (
                {"train": "a", "source_column": "Eng"},
                "`source_column` is a name, which needs `header = true`.*='Eng'",
            ),
            ({"train": "a", "target_language": "german"}, "Expected the code of a language, such as de, hi or pt-BR"),
            (
                {"train": "a", "source_column": 2},
                "`source_column` and `target_column` must differ. Received: 2 for both",
            ),
            (
                {"train": ["a", "b"], "header": True, "source_column": 3},
                "`source_column`, `header` must be left out: .* so there is no TSV",
            ),
            (
                {"train": "a", "test": "b", "test_pairs": 3},
                "Give `test` .a file. or `test_pairs` .* not both. Received: test=b, test_pairs=3",
            ),
        ],
    )
    def test_mistakes(self, fields, message):
        with pytest.raises(pydantic.ValidationError, match=message):
            FilePairs(**fields)


class TestRealCorpora:
    @pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the corpora in {DATA}, which are not part of the project")
    def test_tatoeba(self):
        path = DATA / "tatoeba-hin-eng" / "hin.txt"
        corpus = FilePairs(train=path, header=True, source_column="Eng", target_column="Hin")
        splits = {split: corpus.read(split) for split in corpus.splits}
        assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 2655, "validation": 147, "test": 147}
        for side in ("sources", "targets"):
            texts = [set(getattr(pairs, side)) for pairs in splits.values()]
            assert sum(map(len, texts)) == len(set.union(*texts))
        assert all(any("\u0900" <= char <= "\u097f" for char in target) for target in splits["test"].targets)
