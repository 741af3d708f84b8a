"""TensorFlow Datasets: prepared files without their code, preparing them, and never a network; running text last."""

import shutil
import socket
import sys
import time
import urllib.request
from pathlib import Path

import pydantic
import pytest
import tensorflow_datasets as tfds
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.tfds import TfdsLabels, TfdsPairs, TfdsTexts


@pytest.fixture(scope="module")
def builders():
    """The test corpus's module, whose own builder 'pairs' is never registered: TFDS does not know its code."""
    from tensorflow_datasets.core import registered

    tfds.disable_progress_bar()
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        with registered.skip_registration():
            from pairs_builder import pairs_dataset_builder as module
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture(scope="module")
def prepared(builders, tmp_path_factory):
    """A data_dir with every config of 'pairs' written by TFDS."""
    data_dir = tmp_path_factory.mktemp("prepared")
    for config in builders.Builder.builder_configs:
        builders.Builder(data_dir=data_dir, config=config).download_and_prepare()
    assert "pairs" not in tfds.list_builders(with_community_datasets=False)
    return data_dir


@pytest.fixture(scope="module")
def registered(builders):
    """Corpora whose code TFDS knows: one that can be prepared, one that fails, one behind a host that is not there."""

    class ZooMadePairs(builders.Builder):
        pass

    class ZooFailingPairs(builders.Builder):
        def _split_generators(self, dl_manager):
            raise ConnectionError("the server hung up\nand more lines")

    class ZooFarPairs(ZooFailingPairs):
        url_infos = {"https://pairs.invalid/all.tgz": None, "gs://bucket/more": None}  # noqa: RUF012

    return ZooMadePairs, ZooFailingPairs, ZooFarPairs


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Without a network, whatever the machine has: no name resolves, and a connection fails the test."""

    def unknown(host, *_, **__):
        raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host}")

    def refuse(*_):
        pytest.fail("a test tried to reach the network")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(urllib.request, "getproxies", dict)


def corpus(data_dir, config="supervised", **fields):
    return TfdsPairs(name=f"pairs/{config}", data_dir=str(data_dir), **fields)


def running_text(data_dir, config="plain", **fields):
    return TfdsTexts(name=f"pairs/{config}", data_dir=str(data_dir), **fields)


def expected(builders, config, split, source, target):
    examples = [builders.example(config, split, n) for n in range(builders.SIZES[split])]
    return {(example[source], example[target]) for example in examples}


def pairs_of(pairs):
    return list(zip(pairs.sources, pairs.targets, strict=True))


class TestPrepared:
    def test_all_splits_of_a_corpus_whose_code_is_not_at_hand(self, builders, prepared):
        pairs = corpus(prepared)
        assert pairs.splits == ("train", "validation", "test")
        for split, size in builders.SIZES.items():
            found = pairs_of(pairs.read(split))
            assert len(found) == size
            assert set(found) == expected(builders, "supervised", split, "en", "de")

    def test_data_dir_in_the_home_or_working_directory(self, prepared, monkeypatch):
        monkeypatch.setenv("HOME", str(prepared.parent))
        monkeypatch.chdir(prepared.parent)
        for data_dir in (f"~/{prepared.name}", prepared.name):
            assert len(corpus(data_dir).read("test")) == 3
        monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(prepared))  # where none is given
        assert len(TfdsPairs(name="pairs/supervised").read("test")) == 3

    def test_text_that_is_not_utf8(self, prepared):
        with pytest.raises(CorpusError, match=r"pairs/latin: example 1 of 'train' is not UTF-8: .*0xf6 in position 2"):
            corpus(prepared, "latin").read("train")


class TestFeatures:
    @pytest.mark.parametrize(
        ("config", "fields", "source", "target"),
        [
            ("supervised", {}, "en", "de"),
            ("supervised", {"source": "de"}, "de", "en"),
            ("supervised", {"target": "en"}, "de", "en"),
            ("supervised", {"source": "en", "target": "de"}, "en", "de"),
            ("unsupervised", {}, "de", "en"),
            ("three", {"source": "fr", "target": "de"}, "fr", "de"),
            ("plain", {"source": "question"}, "question", "answer"),
        ],
    )
    def test_which_is_source_and_which_target(self, builders, prepared, config, fields, source, target):
        found = corpus(prepared, config, **fields).read("test")
        assert set(pairs_of(found)) == expected(builders, config, "test", source, target)

    def test_the_language_of_the_targets_where_features_are_called_by_it(self, prepared):
        assert corpus(prepared).language == "de"
        assert corpus(prepared, "nested", source="both/de", target="both/en").language is None
        assert corpus(prepared, "plain", source="question", target="answer").language is None

    def test_nested(self, prepared):
        found = corpus(prepared, "nested", source="both/en", target="id").read("test")
        assert set(pairs_of(found)) == {(f"en ü test {n}", f"id ü test {n}") for n in range(3)}

    @pytest.mark.parametrize(
        ("config", "fields", "message"),
        [
            ("supervised", {"source": "fr"}, r"source = 'fr' is not one of its text features: de, en\."),
            ("plain", {"target": "year"}, r"target = 'year' is not one of its text features: answer, question\."),
            ("plain", {}, r"does not say which .*; set source and target to two of its .*: answer, question\."),
            ("three", {"source": "en"}, r"set source and target to two of its text features: de, en, fr\."),
            ("numbers", {}, r"pairs/numbers: not a corpus of pairs; its text features: none\."),
        ],
    )
    def test_mistakes(self, prepared, config, fields, message):
        with pytest.raises(CorpusError, match=message):
            corpus(prepared, config, **fields).read("train")

    def test_same_feature_twice(self):
        with pytest.raises(pydantic.ValidationError, match=r"must be different features\. Received: 'en' for both"):
            TfdsPairs(name="pairs", source="en", target="en")


class TestSplits:
    def test_only_those_that_exist(self, prepared):
        assert corpus(prepared, "plain").splits == ("train", "test")
        assert corpus(prepared, "plain", validation_split="dev").splits == ("train", "validation", "test")

    def test_expressions(self, prepared):
        fields = {"train_split": "train[:70%]", "validation_split": "train[70%:]", "test_split": "validation+test"}
        pairs = corpus(prepared, **fields)
        read = {split: pairs_of(pairs.read(split)) for split in pairs.splits}
        assert {split: len(found) for split, found in read.items()} == {"train": 7, "validation": 3, "test": 7}
        assert sorted(read["train"] + read["validation"]) == sorted(pairs_of(corpus(prepared).read("train")))

    @pytest.mark.parametrize(
        ("fields", "warning"),
        [
            ({"validation_split": "train[90%:]"}, "splits 'train' and 'validation' have 1 examples in common"),
            ({"train_split": "train+test[:2]"}, "splits 'train' and 'test' have 2 examples in common"),
            ({"train_split": "train[:8]", "validation_split": "train[8:]"}, None),
        ],
    )
    def test_common_examples_are_told(self, prepared, caplog, fields, warning):
        assert len(corpus(prepared, **fields).splits) == 3
        assert (warning in caplog.text) if warning else not caplog.records

    def test_expressions_that_mean_nothing(self, prepared):
        for expression in ("trian", "train[x"):
            with pytest.raises(CorpusError, match=r"train_split = '.*' is not one of its splits test, train"):
                corpus(prepared, train_split=expression).read("train")
        with pytest.raises(CorpusError, match=r"test_split = 'test\[3:\]' holds no example"):
            corpus(prepared, test_split="test[3:]").read("train")


class TestUnknown:
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "pairs/superv",
                r"no corpus 'pairs/superv'; prepared in data_dir .*: .*did you mean pairs/supervised:1\.2\.3",
            ),
            (
                "ted_hrlr_translate/pt_to_xx",
                r"no corpus 'ted_hrlr_translate/pt_to_xx'; prepared .*did you mean ted_hrlr_translate/pt_to_en ",
            ),
            ("ted_hrlr_translate/pt_to_en:9.9.9", r"cannot be loaded at version 9\.9\.9, only: 1\.0\.0"),
            ("two words", r"cannot load 'two words': Parsing builder name string two words failed"),
        ],
    )
    def test_name(self, prepared, name, message):
        with pytest.raises(CorpusError, match=message) as caught:
            TfdsPairs(name=name, data_dir=str(prepared)).read("train")
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__

    def test_nothing_prepared(self, tmp_path):
        with pytest.raises(CorpusError, match=rf"no corpus 'pairs'; prepared in data_dir {tmp_path}/none: none"):
            TfdsPairs(name="pairs", data_dir=str(tmp_path / "none")).read("train")
        assert not any(tmp_path.iterdir())


class TestPreparing:
    def test_is_done_once_and_off_a_terminal_without_a_bar(self, registered, tmp_path, monkeypatch, capfd):
        tfds.enable_progress_bar()
        pairs = TfdsPairs(name="zoo_made_pairs/supervised", data_dir=str(tmp_path))
        assert len(pairs.read("train")) == 10
        assert "\r" not in "".join(capfd.readouterr())
        monkeypatch.setattr(registered[0], "download_and_prepare", None)
        assert pairs_of(TfdsPairs(**pairs.model_dump()).read("train")) == pairs_of(pairs.read("train"))

    def test_failure_leaves_nothing(self, registered, tmp_path):
        message = (
            r"^zoo_failing_pairs/three is not prepared in .*preparing it failed: ConnectionError: the server hung up"
        )
        for _ in range(2):
            with pytest.raises(CorpusError, match=message) as caught:
                TfdsPairs(name="zoo_failing_pairs/three", data_dir=str(tmp_path)).read("train")
            assert caught.value.__suppress_context__
        assert not list(tmp_path.rglob("*1.2.3*"))

    @pytest.mark.parametrize(
        ("name", "host"),
        [("zoo_far_pairs/three", "pairs.invalid"), ("ted_hrlr_translate/pt_to_en", "www.phontron.com")],
    )
    def test_without_a_network_it_fails_at_once(self, registered, tmp_path, name, host):
        start = time.monotonic()
        with pytest.raises(
            CorpusError, match=rf"^{name} is not prepared in {tmp_path}/{name}/.*or no host {host}\."
        ) as caught:
            TfdsPairs(name=name, data_dir=str(tmp_path)).read("train")
        assert time.monotonic() - start < 10
        assert f"tfds build {name}" in str(caught.value)
        assert not any(tmp_path.iterdir())

    @pytest.mark.parametrize("way", ["a proxy", "a host that resolves"])
    def test_with_a_network_it_is_tried(self, registered, tmp_path, monkeypatch, way):
        if way == "a proxy":
            monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": "http://proxy.invalid"})
        else:
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_: ["an address"])
        with pytest.raises(CorpusError, match="preparing it failed: ConnectionError: the server hung up"):
            TfdsPairs(name="zoo_far_pairs/three", data_dir=str(tmp_path)).read("train")


class TestDamage:
    @pytest.fixture
    def copy(self, prepared, tmp_path):
        shutil.copytree(prepared / "pairs", tmp_path / "pairs")
        return tmp_path / "pairs" / "supervised" / "1.2.3"

    def test_truncated_file(self, copy, tmp_path):
        (file,) = copy.glob("*train.tfrecord*")
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(CorpusError, match=rf"the files in {copy} are damaged or incomplete .*prepare it again"):
            corpus(tmp_path).read("train")
        assert len(corpus(tmp_path).read("test")) == 3

    def test_damaged_description(self, copy, tmp_path):
        (copy / "features.json").write_text("{")
        with pytest.raises(CorpusError, match=r"cannot load 'pairs/supervised': .*; prepared in data_dir"):
            corpus(tmp_path).read("test")

    def test_folder_that_is_no_corpus(self, registered, tmp_path):
        (tmp_path / "zoo_made_pairs" / "three" / "1.2.3").mkdir(parents=True)
        with pytest.raises(CorpusError, match=r"three/1\.2\.3 is not a prepared corpus; move that folder away"):
            TfdsPairs(name="zoo_made_pairs/three", data_dir=str(tmp_path)).read("train")


class TestRunningText:
    """Each example is a document."""

    def texts(self, read, split):
        return ["".join(document) for document in read.documents(split)]

    def test_a_feature_of_each_example(self, prepared):
        read = running_text(prepared, feature="question")
        assert read.splits == ("train", "validation", "test")
        # The plain config calls its validation split 'dev', so validation is held out of train.
        found = "".join("".join(self.texts(read, split)) for split in ("train", "validation"))
        size = len("question ü train 0")
        examples = [found[begin : begin + size] for begin in range(0, len(found), size)]
        assert sorted(examples) == [f"question ü train {n}" for n in range(10)]
        assert sorted(self.texts(read, "test")) == [f"question ü test {n}" for n in range(3)]

    def test_splits_of_its_own_and_nested_features(self, prepared):
        read = running_text(prepared, "nested", feature="both/de")
        assert sorted(self.texts(read, "validation")) == [f"de ü validation {n}" for n in range(4)]
        named = running_text(prepared, feature="answer", train_split="train[:4]", validation_split="dev")
        assert len(self.texts(named, "train")) == 4
        assert sorted(self.texts(named, "validation")) == [f"answer ü validation {n}" for n in range(4)]

    def test_what_is_not_told_or_not_there(self, prepared):
        with pytest.raises(CorpusError, match=r"^pairs/plain: set feature to one of its text features: answer, questi"):
            running_text(prepared).check("train")
        with pytest.raises(CorpusError, match=r"feature = 'text' is not one of its text features: answer, question\."):
            running_text(prepared, feature="text").check("train")
        with pytest.raises(CorpusError, match=r"has no corpus 'pairs/other'|cannot load 'pairs/other'"):
            running_text(prepared, "other").check("train")


class TestLabels:
    def test_texts_with_the_names_of_their_classes(self, prepared):
        texts = TfdsLabels(name="pairs/classes:1.2.3", data_dir=str(prepared), feature="text").read("train")
        assert dict(zip(texts.texts, texts.labels, strict=True)) == {
            f"text train {n}": ["no", "yes"][n % 2] for n in range(10)
        }
        assert texts.seconds is None

    def test_pairs_and_labels_that_are_texts(self, prepared):
        texts = TfdsLabels(
            name="pairs/classes:1.2.3", data_dir=str(prepared), label="genre", second_feature="hypothesis"
        ).read("validation")
        rows = zip(texts.texts, texts.labels, texts.seconds, strict=True)
        assert set(rows) == {(f"text validation {n}", "abc"[n % 3], f"so {n}") for n in range(4)}

    @pytest.mark.parametrize(
        ("config", "fields", "message"),
        [
            ("classes", {}, r"has the label -1, which is no class: that split has no labels; set test_split to a part"),
            ("classes", {"label": "genre"}, r"^pairs/classes:1.2.3: example 1 of 'test' has no label\.$"),
            ("classes", {"label": "gold"}, r"set label to one of its class labels: label\."),
            (
                "classes",
                {"feature": "label"},
                r"feature = 'label' is not one of its text features: genre, ",
            ),
            ("plain", {"feature": "question"}, r"set label to one of its class labels: none\."),
        ],
    )
    def test_mistakes(self, prepared, config, fields, message):
        with pytest.raises(CorpusError, match=message):
            TfdsLabels(name=f"pairs/{config}:1.2.3", data_dir=str(prepared), **fields).read("test")
