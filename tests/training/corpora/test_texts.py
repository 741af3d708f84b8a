"""Running text: every character of it once, in documents and pieces, and splits that share none."""

import contextlib
import gzip
import itertools
import os
import re
from pathlib import Path

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from zoo_training.corpora import texts as texts_module
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.texts import FileTexts, PydocTopics, TinyShakespeare, in_pieces

DATA = Path(__file__).parents[4] / "shared" / "data" / "tinyshakespeare"


def texts(read, split):
    """The documents of a split as strings."""
    return ["".join(document) for document in read.documents(split)]


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def words_of(text):
    """What GPT-2's pattern makes of a text: merges of byte pairs happen inside."""
    return [word for word, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]


class TestPieces:
    @pytest.mark.parametrize(
        ("texts", "pieces"),
        [
            (["ab\n", "cd\n", " e\n", "\n", "f\n", "g\n", "h"], ["ab\ncd", "\n e\n\nf", "\ng\nh"]),
            (["ab cd ef gh ij kl"], ["ab cd", " ef gh", " ij kl"]),
            (["abcdefghij"], ["abcdefghij"]),
            (["a" * 9 + " b", " c"], ["a" * 9, " b c"]),
            ([], []),
        ],
    )
    def test_they_end_before_white_space(self, monkeypatch, texts, pieces):
        monkeypatch.setattr(texts_module, "PIECE", 4)
        assert list(in_pieces(texts)) == pieces

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.text("a \n", min_size=1)), st.integers(1, 9))
    def test_nothing_is_lost_and_no_piece_grows(self, lines, size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(texts_module, "PIECE", size)
            pieces = list(in_pieces(lines))
        assert "".join(pieces) == "".join(lines)
        for piece, following in itertools.pairwise(pieces):
            assert following[0].isspace() and not piece[-1].isspace()
            assert not re.search(r"\S\s", piece[size:])

    @settings(max_examples=100, deadline=None)
    @given(st.text("ab1'. \n\t", max_size=60), st.integers(1, 9))
    def test_words_are_those_of_the_whole_and_so_are_tokens(self, text, size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(texts_module, "PIECE", size)
            pieces = list(in_pieces([text]))
        assert [word for piece in pieces for word in words_of(piece)] == words_of(text)


class TestSplits:
    def test_the_last_tenth_is_held_out(self, write):
        read = FileTexts(train=write("a.txt", "0123456789" * 4 + "x"))
        assert read.splits == ("train", "validation")
        assert (texts(read, "train"), texts(read, "validation")) == ([("0123456789" * 4)[:36]], ["6789x"])

    def test_a_cut_may_fall_into_any_document(self, write):
        files = [write("a.txt", "aaaaa"), write("b.txt", "bbbbbbbbbb"), write("c.txt", "ccccc")]
        read = FileTexts(train=files, validation_share=0.3, test_share=0.2)
        assert read.splits == ("train", "validation", "test")
        assert texts(read, "train") == ["aaaaa", "bbbbb"]
        assert texts(read, "validation") == ["bbbbb", "c"]
        assert texts(read, "test") == ["cccc"]

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.integers(0, 30), min_size=1), st.floats(0, 0.49), st.floats(0, 0.49), st.integers(1, 7))
    def test_together_they_are_the_text(self, sizes, validation, test, piece):
        class Made(FileTexts):
            def _read(self, split):
                letters = itertools.cycle("abcdefg")
                for size in sizes:
                    text = "".join(itertools.islice(letters, size))
                    yield (text[begin : begin + piece] for begin in range(0, size, piece))

        read = Made(train="any", validation_share=validation, test_share=test)
        found = []
        for split in read.splits:
            with contextlib.suppress(CorpusError):  # of a short text a split may be empty
                found += texts(read, split)
        assert "".join(found) == ("abcdefg" * sum(sizes))[: sum(sizes)]

    @pytest.mark.parametrize("share", ["validation_share", "test_share"])
    def test_a_split_is_given_or_held_out(self, write, share):
        file = write("a.txt", "text")
        read = FileTexts(train=file, validation=file, test=file, **{share: 0.1})
        with pytest.raises(CorpusError, match=rf"already has a split '{share[:-6]}'; remove {share}"):
            read.check("train")

    def test_shares_that_leave_nothing(self, write):
        with pytest.raises(pydantic.ValidationError, match="together leave nothing to train on"):
            FileTexts(train=write("a.txt", "text"), validation_share=0.5, test_share=0.5)
        with pytest.raises(pydantic.ValidationError, match=r"validation_share \(0\.1\) and test_share together leave"):
            FileTexts(train=write("a.txt", "text"), test_share=0.9)
        given = FileTexts(train=write("a.txt", "text" * 9), validation=write("b.txt", "text"), test_share=0.9)
        assert given.splits == ("train", "validation", "test")

    def test_what_does_not_exist(self, write):
        read = FileTexts(train=write("a.txt", "text" * 9), validation_share=0)
        with pytest.raises(CorpusError, match="has no split 'validation'; it has train"):
            read.check("validation")
        with pytest.raises(CorpusError, match="Split 'train' of corpus 'text' is empty: there are 1 characters"):
            FileTexts(train=write("b.txt", "x"), validation_share=0.01).check("train")


class TestFiles:
    def test_a_folder_is_read_by_name_but_for_what_is_hidden(self, write, tmp_path):
        write("books/b.txt", "second")
        write("books/a/z.txt.gz", "first")
        write("books/.git/x.txt", "hidden")
        write("books/notes.md", "other")
        write("books/empty.txt", "")
        every = FileTexts(train=tmp_path / "books", validation_share=0)
        assert texts(every, "train") == ["first", "second", "other"]
        some = FileTexts(train=tmp_path / "books", pattern="*.txt*", validation_share=0)
        assert texts(some, "train") == ["first", "second"]
        with pytest.raises(CorpusError, match=r"books holds no file with text whose name fits pattern = '\*\.csv'"):
            FileTexts(train=tmp_path / "books", pattern="*.csv").check("train")
        with pytest.raises(CorpusError, match=r"corpus\.pattern = '/\*\.txt' is no pattern of names"):
            FileTexts(train=tmp_path / "books", pattern="/*.txt").check("train")
        write("books/z.png", b"\x89PNG\r\n")
        with pytest.raises(
            CorpusError, match=r'z\.png:1: not UTF-8: .* Or leave it out, by corpus\.pattern = "\*\.txt"'
        ):
            FileTexts(train=tmp_path / "books").check("train")
        with pytest.raises(CorpusError, match=r"-f ITS-ENCODING, such as CP1252 .*\.$"):
            FileTexts(train=tmp_path / "books" / "z.png").check("train")

    def test_line_ends_and_byte_order_marks(self, write):
        read = FileTexts(train=write("a.txt", "\ufeffone\r\ntwo\n\nthree\u2028four\rfive".encode()), validation_share=0)
        assert texts(read, "train") == ["one\ntwo\n\nthree\u2028four\rfive"]


class TestPydoc:
    def test_it_is_pythons_own(self):
        from pydoc_data.topics import topics

        train, validation = (texts(PydocTopics(), split) for split in ("train", "validation"))
        assert "".join(train + validation) == "".join(topics[name] for name in sorted(topics))
        assert len(train) + len(validation) == len(topics) + 1  # the cut is within one
        assert 0.0999 < sum(map(len, validation)) / sum(map(len, train + validation)) < 0.1001


class TestTinyShakespeare:
    @pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the corpora in {DATA}, which are not part of the project")
    def test_the_usual_split(self):
        read = TinyShakespeare(folder=DATA)
        (train,), (validation,) = (texts(read, split) for split in ("train", "validation"))
        assert (len(train), len(validation)) == (1_003_854, 111_540)
        assert train.startswith("First Citizen:\nBefore we proceed")

    def test_another_file_of_that_name(self, tmp_path):
        (tmp_path / "input.txt").write_text("To be")
        with pytest.raises(CorpusError, match=r"input\.txt is not the public file: its SHA-256 is"):
            TinyShakespeare(folder=tmp_path).check("train")


def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match=r"pipe is not a regular file; running text is read several times"):
        FileTexts(train=tmp_path / "pipe").check("train")


class TestWarnings:
    """Of text that a model is trained on and scored with."""

    @pytest.mark.parametrize(
        ("train", "validation", "files"),
        [
            (["a.txt", "books/b.txt"], "books/b.txt", "books/b.txt"),
            ("books", "books/b.txt", "books/b.txt"),
            ("books/b.txt", ["a.txt", "books"], "books/b.txt"),
            (["books", "a.txt"], [".", "a.txt"], "a.txt and 2 more files"),
        ],
    )
    def test_the_same_file_in_two_splits(self, write, tmp_path, monkeypatch, caplog, train, validation, files):
        monkeypatch.chdir(tmp_path)
        for name in ("a.txt", "books/b.txt", "books/c.txt"):
            write(name, "aaa")
        FileTexts(train=train, validation=validation)
        message = next(message for message in caplog.messages if "and validation" in message)
        assert message.startswith(f"corpus: train and validation both have {tmp_path}/{files};")

    def test_a_file_that_counts_twice(self, write, tmp_path, caplog):
        two = write("books/b.txt", "bbb")
        FileTexts(train=[tmp_path / "books", two])
        (message,) = caplog.messages
        assert message.startswith(f"corpus: train names {two} more than once;")

    def test_no_file_twice(self, write, tmp_path, caplog):
        write("books/a.txt", "aaa")
        FileTexts(train=tmp_path / "books", validation=write("b.txt", "bbb"), test=tmp_path / "empty")
        FileTexts(train=tmp_path / "books", validation=write("books/a.md", "aaa"), pattern="*.txt")
        assert not caplog.messages
