"""The handler of SavedModels for Apache Beam: alone, with a model that only notes what it gets, and in pipelines."""

import pathlib
import pickle
import re
import sys

import numpy as np
import pytest
from upper_model import save_upper

import zoo
from zoo.extras import MissingExtraError
from zoo.serving.clients.messages import TensorSpec
from zoo.tasks.settings import SETTINGS

beam = pytest.importorskip("apache_beam", reason="needs the extra 'beam'")

from apache_beam.metrics import MetricsFilter  # noqa: E402
from apache_beam.ml.inference.base import KeyedModelHandler, ModelMetadata, RunInference  # noqa: E402
from apache_beam.testing.util import assert_that, equal_to  # noqa: E402

from zoo.beam import Failure, LoadedSignature, SavedModelHandler, version_folder  # noqa: E402

MODELS = pathlib.Path(__file__).parent.parent / "saved_models"
HOSTILE = [
    "",
    " ",
    "a\0b",
    "\ud800",
    "日本語 २१ नवंबर",
    'tab\tand "quotes"',
    "\n\r\n",
    "x" * 1_000_000,
    b"\xff\xfe",
    b"",
]


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beam") / "upper"
    save_upper(folder / "1", "1:")
    save_upper(folder / "2", "2:")
    return folder


class Noted:
    """A generator that answers with its inputs and keeps the batches it gets; a batch with the text "bad" fails."""

    def __init__(self):
        self.batches = []

    def inputs(self):
        specs = {"text": "string", **{name: each.dtype for name, each in SETTINGS.items()}, "stop": "string"}
        return {name: TensorSpec(dtype, (None,)) for name, dtype in specs.items()}

    def run(self, columns):
        self.batches.append([text.decode() for text in columns["text"]])
        if "bad" in self.batches[-1]:
            raise ValueError("a bad\ntext")
        return dict(columns)


def answers(rows, settings=None, **options):
    model = Noted()
    results = list(SavedModelHandler("none", "generate", settings, **options).run_inference(rows, model))
    assert [result.example for result in results] == rows
    return [result.inference for result in results], model.batches


class TestBatches:
    def test_rows_of_similar_length_share_a_batch_and_keep_their_order(self):
        rows = [letter * length for letter, length in zip("abcdefg", (5, 1, 7, 2, 6, 1, 3), strict=True)]
        found, batches = answers(rows, batch_size=3)
        assert [each["text"] for each in found] == rows
        assert batches == [["b", "f", "dd"], ["ggg", "aaaaa", "eeeeee"], ["ccccccc"]]

    def test_few_long_rows_fill_a_batch(self):
        _, batches = answers(["a" * 700_000, "b" * 400_000, "c", "d" * 600_000], batch_size=9)
        assert [[len(text) for text in batch] for batch in batches] == [[1, 400_000, 600_000], [700_000]]

    def test_beam_gathers_as_many_rows_as_are_sorted(self):
        options = SavedModelHandler("none", batch_size=5).batch_elements_kwargs()
        assert (options["min_batch_size"], options["max_batch_size"]) == (80, 80)
        size = pickle.loads(pickle.dumps(options["element_size_fn"]))  # workers get it so
        assert [size(row) for row in ("ab", {"text": "a" * 3000}, ("key", b"a" * 1024), ("key", {"n": 3}))] == [
            1,
            3,
            2,
            1,
        ]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch_size": 0}, r"^`batch_size` must be at least 1\. Received: batch_size=0$"),
            ({"batch_size": 2.5}, r"^`batch_size` must be an integer\. Received: batch_size=2\.5$"),
            ({"failures": "no"}, r"^`failures` must be 'raise' or 'return'\. Received: failures='no'$"),
        ],
    )
    def test_arguments_are_checked(self, options, message):
        with pytest.raises(ValueError, match=message):
            SavedModelHandler("none", **options)


class TestFailures:
    def test_a_row_fails_only_for_itself(self):
        found, batches = answers(["one", "bad", "three"], failures="return", batch_size=4)
        assert [each if isinstance(each, Failure) else each["text"] for each in found] == [
            "one",
            Failure("a bad text"),
            "three",
        ]
        assert batches == [["one", "bad", "three"], ["one"], ["bad", "three"], ["bad"], ["three"]]

    def test_a_bad_row_costs_its_neighbours_few_calls(self):
        _, batches = answers([*map(str, range(40)), "bad", *map(str, range(23))], failures="return")
        assert len(batches) == 1 + 2 * 6  # 64 = 2^6

    def test_a_failure_raises_unless_it_is_to_be_returned(self):
        with pytest.raises(ValueError, match=r"^a bad text$"):
            answers(["one", "bad"])

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ({"txt": "a"}, "a row must have 'text'; it has 'txt'"),
            ({"text": None}, "a row must have 'text'; it has nothing"),
            ({"text": 7}, "`text` must hold strings, in lists of equal lengths. Received: 7"),
            ({"text": ["a", "b"]}, "`text` must have the shape [any]. Received: [1, 2]"),
            ({"text": "a", "temperature": -0.5}, "`temperature` must be from 0 to 1000000. Received: temperature=-0.5"),
            ({"text": "a", "temperature": "warm"}, "`temperature` must hold float32. Received: temperature='warm'"),
            ({"text": "a", "temperature": "nan"}, "`temperature` must be from 0 to 1000000. Received: temperature=nan"),
            ({"text": "a", "seed": 1.5}, "`seed` must hold int64. Received: seed=[1.5]"),
            ({"text": "a", "seed": "1.5"}, "`seed` must hold int64. Received: seed='1.5'"),
            (
                3.5,
                "a row must be a string or a dict of the inputs text, max_new_tokens, temperature, top_k, top_p, "
                "repetition_penalty, seed, stop. Received: 3.5",
            ),
        ],
    )
    def test_a_row_that_does_not_fit_is_not_computed(self, row, reason):
        found, batches = answers(["fits", row], failures="return")
        assert (found[1], batches) == (Failure(reason), [["fits"]])


class TestSettings:
    def test_a_row_has_its_own_or_those_of_the_handler_or_the_defaults(self):
        rows = ["a", {"text": "b", "temperature": 0.5, "other": object}, {"text": "c", "seed": "7", "temperature": "2"}]
        found, _ = answers(rows, {"temperature": 0.25})
        assert [(each["temperature"], each["seed"]) for each in found] == [(0.25, 0), (0.5, 0), (2.0, 7)]
        assert answers(["a"])[0][0]["temperature"] == 1.0

    def test_inference_args_are_settings(self):
        handler = SavedModelHandler("none", settings={"seed": 3, "temperature": 0.25})
        handler.validate_inference_args({"seed": 4})
        [result] = handler.run_inference(["a"], Noted(), {"seed": 4})
        assert (result.inference["seed"], result.inference["temperature"]) == (4, 0.25)
        with pytest.raises(ValueError, match=r"^`inference_args` must be a dict of settings\. Received: 7$"):
            handler.validate_inference_args(7)

    def test_a_misspelt_one_is_refused(self):
        handler = SavedModelHandler("none", "generate", {"max_new_token": 60}, failures="return")
        told = r"^the signature 'generate' has no input 'max_new_token'; did you mean 'max_new_tokens'\?$"
        with pytest.raises(ValueError, match=told):
            handler.run_inference(["a"], Noted())
        with pytest.raises(ValueError, match=r"has no input 'zzz'; it has text, max_new_tokens, .*, stop$"):
            SavedModelHandler("none").run_inference(["a"], Noted(), {"zzz": 1})

    def test_an_input_of_another_model_is_no_setting_though_it_has_its_name(self):
        class Weather(Noted):
            def inputs(self):
                return {"text": TensorSpec("string", (None,)), "temperature": TensorSpec("float32", (None,))}

        rows = [{"text": "a", "temperature": -5}, "a"]
        first, second = SavedModelHandler("none", failures="return").run_inference(rows, Weather())
        assert first.inference["temperature"] == -5
        assert second.inference == Failure("a row must have 'temperature'; it has 'text'")

    @pytest.mark.parametrize(
        "others",
        [
            {"hidden": "float32"},
            {"hidden": "string", "heads": "int32"},
            {"hidden": "string", "temperature": "string"},
            {name: "string" for name in [*SETTINGS, "stop"]},
            {"max_target_length": "float32", "length_penalty": "float32"},
        ],
    )
    def test_an_input_of_another_type_has_no_default(self, others):
        class Other(Noted):
            def inputs(self):
                return {name: TensorSpec(dtype, (None,)) for name, dtype in {"text": "string", **others}.items()}

        [found] = SavedModelHandler("none", failures="return").run_inference(["a"], Other())
        assert found.inference == Failure(f"a row must have {next(iter(others))!r}; it has 'text'")

    def test_a_signature_that_chooses_tokens_needs_only_a_text(self):
        """That of a translator, which has a `prefix` instead, is tested with files."""
        handler = SavedModelHandler(MODELS / "gpt-pydoc", "next")
        model = handler.load_model()
        whole = {"text": "The 5th", "hidden": "", "temperature": 1.0, "heads": ""}
        assert model.inputs().keys() == whole.keys()
        alone, full = (each.inference for each in handler.run_inference([whole["text"], whole], model))
        assert alone["tokens"].tolist() == full["tokens"].tolist()
        np.testing.assert_array_equal(alone["probabilities"], full["probabilities"])


class TestLoading:
    def test_any_signature(self, versions):
        handler = SavedModelHandler(versions / "1", "pairs")
        rows = [{"pair": ["a", "ä\0"], "times": 3}, {"pair": ["c", b"\xfe"], "times": 2}]
        first, second = (each.inference for each in handler.run_inference(rows, handler.load_model()))
        assert (first["swapped"].tolist(), second["swapped"].tolist()) == (["ä\0", "a"], [b"\xfe", "c"])
        assert (first["powers"].tolist(), second["powers"].tolist()) == ([3, 9, 27], [2, 4, 8])
        assert first["raw"] == b"\xff"

    def test_what_a_path_means(self, versions, tmp_path):
        newest = str(versions / "2")
        assert [version_folder(path) for path in (versions, newest, versions / "2" / "saved_model.pb")] == [newest] * 3
        assert version_folder("gs://models/upper/2/saved_model.pb") == "gs://models/upper/2"
        with pytest.raises(FileNotFoundError, match=r"holds no SavedModel: neither saved_model\.pb nor a version"):
            version_folder(tmp_path)

    def test_what_cannot_be_loaded(self, versions, tmp_path):
        with pytest.raises(ValueError, match=r"has no signature 'x'; it has any, most, one, other, pairs"):
            LoadedSignature(str(versions), "x")
        with pytest.raises(ValueError, match=r"signature 'most': 'count' does not have one entry for each row$"):
            LoadedSignature(str(versions), "most")
        with pytest.raises(ValueError, match=r"signature 'one': 'text' does not have one entry for each row$"):
            LoadedSignature(str(versions), "one")
        (tmp_path / "saved_model.pb").write_bytes(b"damaged")
        with pytest.raises(ValueError, match=r"^.+ cannot be loaded \(\w+: .+\)$"):
            LoadedSignature(str(tmp_path), "serving_default")

    def test_without_beam_the_extra_is_named(self, monkeypatch):
        for name in [name for name in sys.modules if name.split(".")[0] == "apache_beam" or name == "zoo.beam"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "apache_beam", None)
        monkeypatch.delattr(zoo, "beam")
        with pytest.raises(
            MissingExtraError, match=r"not installed: this needs `pip install 'attention-zoo\[beam\]'`$"
        ):
            _ = zoo.beam


def gives(rows, transform, expected):
    """Checks what a pipeline of one process gives; returns its counters."""
    pipeline = beam.Pipeline("FnApiRunner")
    assert_that(transform(pipeline | beam.Create(rows, reshuffle=False)), equal_to(expected))
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(MetricsFilter().with_namespace("zoo"))["counters"]
    return {each.key.metric.name: each.committed for each in counters}


class TestPipelines:
    def test_strings_by_a_released_model_as_zoo_load_gives_them(self):
        texts = [text for text in HOSTILE if isinstance(text, str) and text != "\ud800"]  # which Beam's coder refuses
        texts += ["21 नवंबर 2026", "samedi 21 novembre 2026"]
        expected = [(each.source, each.text) for each in zoo.load(MODELS / "dates").translate(texts)]

        def translated(rows):
            results = rows | RunInference(SavedModelHandler(MODELS / "dates", batch_size=3))
            return results | beam.Map(lambda result: (result.example, result.inference["text"]))

        counters = gives(texts, translated, expected)
        assert {name: counters[name] for name in ("rows", "failed", "batches", "num_inferences")} == {
            "rows": 9,
            "failed": 0,
            "batches": 4,  # Beam ends a window after the long row: 3 + 3 + 1 rows, then 2
            "num_inferences": 9,
        }

    def test_answers_do_not_depend_on_the_batch(self, versions):
        model = LoadedSignature(str(versions / "1"), "serving_default")
        found = SavedModelHandler(versions / "1").run_inference(HOSTILE, model)
        for row, result in zip(HOSTILE, found, strict=True):
            [alone] = SavedModelHandler(versions / "1").run_inference([row], model)
            assert alone.inference == result.inference

    def test_keys_and_failures(self, versions):
        def upper(rows):
            results = rows | RunInference(KeyedModelHandler(SavedModelHandler(versions / "1", failures="return")))
            return results | beam.MapTuple(
                lambda key, result: (
                    key,
                    result.inference.reason if isinstance(result.inference, Failure) else result.inference["text"],
                )
            )

        rows = [(1, "one"), (2, "bad"), (3, {"text": "three"}), (4, {})]
        expected = [(1, "1:ONE"), (3, "1:THREE"), (4, "a row must have 'text'; it has nothing")]

        def without_the_long_reason(rows):
            results = upper(rows)
            bad = results | "bad" >> beam.Filter(lambda pair: pair[0] == 2)
            assert_that(bad, _names_the_text, label="bad text")
            return results | "others" >> beam.Filter(lambda pair: pair[0] != 2)

        counters = gives(rows, without_the_long_reason, expected)
        assert {name: counters[name] for name in ("rows", "failed", "batches")} == {
            "rows": 4,
            "failed": 2,
            "batches": 5,  # three rows, then the first, the other two, and each of these
        }

    def test_dead_letters_of_beam(self, versions):
        def failed(rows):
            handler = SavedModelHandler(versions / "1")
            _, dead = rows | RunInference(handler).with_exception_handling()
            return dead.failed_inferences | beam.Map(lambda pair: sorted(pair[0]))

        gives(["one", "bad"], failed, [["bad", "one"]])

    @pytest.mark.parametrize("path", ["2", "2/saved_model.pb"])
    def test_a_side_input_brings_a_new_model(self, versions, path):
        def upper(rows):
            news = rows.pipeline | "news" >> beam.Create([ModelMetadata(str(versions / path), "second")])
            results = rows | RunInference(SavedModelHandler(versions / "1"), model_metadata_pcoll=news)
            return results | beam.Map(lambda result: (result.inference["text"], result.model_id))

        gives(["one"], upper, [("2:ONE", str(versions / path))])

    @pytest.mark.long
    def test_processes_of_a_machine_share_a_model(self, versions):
        def upper(rows):
            results = rows | RunInference(SavedModelHandler(versions / "1", shared=True))
            return results | beam.Map(lambda result: result.inference["text"])

        gives(["one", "two"], upper, ["1:ONE", "1:TWO"])


def _names_the_text(found):
    [(key, reason)] = found
    assert (key, "a bad text" in reason, "\n" in reason) == (2, True, False), found


def test_the_class_for_ray_data_adds_columns(versions):
    page = (MODELS.parent / "docs" / "batch.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(import numpy.*?^class Answers.*?)^answers = ", page, re.DOTALL | re.MULTILINE)
    names = {}
    exec(program, names)
    batch = {"id": np.array([7, 8, 9]), "text": np.array(["5 mai 2001", "", "21 नवंबर 2026"])}
    found = names["Answers"](versions / "1")(batch)
    assert {name: column.tolist() for name, column in found.items()} == {
        "id": [7, 8, 9],
        "text": batch["text"].tolist(),
        "output_text": ["1:5 MAI 2001", "1:", "1:21 नवंबर 2026"],
        "output_length": [10, 0, len("21 नवंबर 2026".encode())],
    }
