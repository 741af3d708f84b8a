"""Multi30k: the public files and no others, from a folder or from the public repository."""

import dataclasses
import gzip
import hashlib
import http.server
import logging
import re
import threading
from pathlib import Path

import pydantic
import pytest
from zoo_training.corpora import files as public_files
from zoo_training.corpora import multi30k
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.multi30k import Multi30k

DATA = Path(__file__).parents[4] / "shared" / "data" / "multi30k"
NAMES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
SAID = {"en": ["One.", "Two\u2028too."], "de": ["Eins.", "Zwei."]}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def public(monkeypatch):
    """The content of small files by name, which take the place of the public ones."""
    files = {
        f"{name}.{language}.gz": gzip.compress("".join(f"{name} {line}\n" for line in lines).encode())
        for name in NAMES.values()
        for language, lines in SAID.items()
    }
    checksums = {name: sha256(content) for name, content in files.items()}
    monkeypatch.setattr(multi30k, "_PUBLIC", dataclasses.replace(multi30k._PUBLIC, checksums=checksums))
    return files


@pytest.fixture
def server(public, monkeypatch):
    """A server in the public repository's place; it has `files` to change, and keeps what it was `asked` for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            content = server.files.get(self.path.removeprefix("/raw/"))
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"") + server.lost))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.lost = dict(public), [], 0
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/raw"
    monkeypatch.setattr(multi30k, "_PUBLIC", dataclasses.replace(multi30k._PUBLIC, address=address))
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def no_network(monkeypatch):
    """Whoever opens an address fails, as without a network."""

    def fail(url, timeout):
        asked.append(url)
        raise public_files.urllib.error.URLError(OSError(-2, "Name or service not known"))

    asked = []
    monkeypatch.setattr(public_files.urllib.request, "urlopen", fail)
    return asked


def fill(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestFolder:
    def test_a_full_one_is_read_and_left_as_it_is(self, public, no_network, tmp_path, caplog):
        folder = fill(tmp_path / "data", public)
        folder.chmod(0o555)
        for split, name in NAMES.items():
            pairs = Multi30k(folder=folder).read(split)
            assert pairs.sources == [f"{name} {line}" for line in SAID["en"]]
            assert pairs.targets == [f"{name} {line}" for line in SAID["de"]]
        folder.chmod(0o755)
        assert contents(folder) == public
        assert (no_network, caplog.text) == ([], "")

    def test_the_other_way(self, public, no_network, tmp_path):
        pairs = Multi30k(source="de", target="en", folder=fill(tmp_path, public)).read("test")
        assert (pairs.sources[0], pairs.targets[0]) == ("test_2016_flickr Eins.", "test_2016_flickr One.")

    @pytest.mark.parametrize(
        ("fields", "cache", "where"),
        [
            ({"folder": "~/captions"}, "{}/cache", "captions"),
            ({}, "{}/cache", "cache/attention-zoo/multi30k"),
            ({}, "relative/cache", ".cache/attention-zoo/multi30k"),
            ({}, "", ".cache/attention-zoo/multi30k"),
        ],
    )
    def test_below_the_home_and_by_default_in_the_users_cache(
        self, public, no_network, tmp_path, monkeypatch, fields, cache, where
    ):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", cache.format(tmp_path))
        fill(tmp_path / where, public)
        assert len(Multi30k(**fields).read("train")) == 2

    def test_without_a_home_nothing_is_put_into_a_folder_called_tilde(self, server, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user whom the system does not know
        with pytest.raises(CorpusError, match=r"^multi30k: this user has no home folder .*; set corpus\.folder"):
            Multi30k().read("train")
        assert (contents(tmp_path), server.asked) == ({}, [])

    def test_another_file_of_that_name_is_told_and_kept(self, public, server, tmp_path):
        other = gzip.compress(b"Something else.\n")
        fill(tmp_path, public | {"val.de.gz": other})
        told = (
            f"{tmp_path / 'val.de.gz'} is not the public file: its SHA-256 is {sha256(other)}, and should be "
            f"{sha256(public['val.de.gz'])}. It was left as it is; move it away"
        )
        with pytest.raises(CorpusError, match=f"^{re.escape(told)}"):
            Multi30k(folder=tmp_path).read("validation")
        assert contents(tmp_path) == public | {"val.de.gz": other}
        assert server.asked == []

    def test_a_folder_in_a_files_place(self, public, server, tmp_path):
        (tmp_path / "val.en.gz").mkdir()
        with pytest.raises(CorpusError, match=r"val\.en\.gz: cannot be read: Is a directory\.$"):
            Multi30k(folder=tmp_path).read("validation")


class TestDownload:
    def test_missing_files_are_put_into_the_folder_and_it_is_said(self, public, server, tmp_path, caplog):
        folder = fill(tmp_path / "deep" / "er", {"train.en.gz": public["train.en.gz"]})
        corpus = Multi30k(folder=folder)
        with caplog.at_level(logging.WARNING):
            for split in corpus.splits:
                assert len(corpus.read(split)) == 2
        assert contents(folder) == public
        assert sorted(server.asked) == sorted(f"/raw/{name}" for name in public if name != "train.en.gz")
        assert len(caplog.messages) == 5
        for message in caplog.messages:
            assert message.startswith("multi30k: downloading http://")
            assert message.endswith(f" into {folder}; for research and education only")

    def test_what_was_downloaded_is_not_downloaded_again(self, server, tmp_path):
        for _ in range(2):
            Multi30k(folder=tmp_path / "new").read("test")
        assert len(server.asked) == 2

    def test_without_a_network(self, public, no_network, tmp_path):
        fill(tmp_path, {"val.en.gz": public["val.en.gz"]})
        url = f"{multi30k._PUBLIC.address}/val.de.gz"
        told = (
            f"{tmp_path / 'val.de.gz'} is missing, and {url} cannot be downloaded: [Errno -2] Name or service not "
            f"known. Download it where there is a network, and put it into {tmp_path}; or set corpus.folder to"
        )
        with pytest.raises(CorpusError, match=f"^{re.escape(told)}"):
            Multi30k(folder=tmp_path).read("validation")
        assert no_network == [url]
        assert [path.name for path in tmp_path.iterdir()] == ["val.en.gz"]

    @pytest.mark.parametrize(
        ("content", "lost", "told"),
        [
            (None, 0, r"val\.en\.gz cannot be downloaded: HTTP Error 404: Not Found\. Download"),
            (b"half", 10, "cannot be downloaded: IncompleteRead"),
            (b"<html>", 0, f"its SHA-256 is {sha256(b'<html>')}, and should be .* Nothing was written to"),
        ],
    )
    def test_a_download_that_fails_leaves_nothing(self, server, tmp_path, content, lost, told):
        server.files["val.en.gz"], server.lost = content, lost
        with pytest.raises(CorpusError, match=told):
            Multi30k(folder=tmp_path).read("validation")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_cannot_be_written(self, server, tmp_path, monkeypatch):
        def full(path, content):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(public_files, "write_whole", full)
        with pytest.raises(CorpusError, match=r"val\.en\.gz: cannot be written: No space left on device; set corpus"):
            Multi30k(folder=tmp_path).read("validation")


def test_scored_as_sentences_of_the_target_language(public, no_network):
    assert (Multi30k().language, Multi30k(source="de", target="en").language) == ("de", "en")
    assert Multi30k().metric("test") == "bleu"  # of what kind the texts are is known without reading them
    assert Multi30k().licence == "The texts of Multi30k are for research and education only."


def test_every_file_has_a_checksum_and_an_address_that_never_changes_what_it_leads_to():
    assert set(multi30k._PUBLIC.checksums) == {f"{name}.{language}.gz" for name in NAMES.values() for language in SAID}
    assert len(set(multi30k._PUBLIC.checksums.values())) == 6
    commit = r"https://raw\.githubusercontent\.com/multi30k/dataset/[0-9a-f]{40}/data/task1/raw"
    assert re.fullmatch(commit, multi30k._PUBLIC.address)


def test_one_language_is_not_two():
    with pytest.raises(pydantic.ValidationError, match=r"must be different languages. Received: 'de' for both"):
        Multi30k(source="de")


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the corpora in {DATA}, which are not part of the project")
def test_the_public_files(no_network):
    corpus = Multi30k(folder=DATA)
    splits = {split: corpus.read(split) for split in corpus.splits}
    assert {split: len(pairs) for split, pairs in splits.items()} == {
        "train": 29_000,
        "validation": 1_014,
        "test": 1_000,
    }
    assert not any(pairs.dropped for pairs in splits.values())
    test = splits["test"]
    assert (test.sources[0], test.targets[0]) == (
        "A man in an orange hat starring at something.",
        "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    )
