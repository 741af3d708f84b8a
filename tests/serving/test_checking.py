"""`zoo.serving.check`: planted problems are found, and nothing else; hostile files do no harm."""

import contextlib
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from zoo.serving import check, checking
from zoo.serving.checking import report
from zoo.serving.checking.rules import RULES

FLOATS = tf.TensorSpec([None, 2], tf.float32, name="x")
IDS = tf.TensorSpec([None, None], tf.int64, name="ids")
WHOLE_LINE, LINE_NUMBER = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
WARM_UP = "assets.extra/tf_serving_warmup_requests"


def save(folder, function, *specs, jit_compile=None, variable=None):
    """Saves a SavedModel with one signature."""
    module = tf.Module()
    module.variable = variable
    module.serve = tf.function(function, input_signature=specs, jit_compile=jit_compile)
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A model's folder, whose version 1 has two variables, one asset and one signature."""
    folder = tmp_path_factory.mktemp("clean")
    (folder / "words.txt").write_text("a\nb\n")
    module = tf.Module()
    module.weights = [tf.Variable(tf.ones([2])), tf.Variable(tf.ones([3, 1000]))]
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(str(folder / "words.txt"), tf.string, WHOLE_LINE, tf.int64, LINE_NUMBER), -1
    )

    @tf.function(input_signature=[FLOATS, tf.TensorSpec([None], tf.string, name="word")])
    def serve(x, word):
        return {"y": x * module.weights[0] + tf.reduce_sum(module.weights[1]), "id": module.table.lookup(word)}

    tf.saved_model.save(module, str(folder / "model" / "1"), signatures=serve)
    return folder / "model"


@pytest.fixture
def version(clean, tmp_path):
    """A version to break."""
    return shutil.copytree(clean, tmp_path / "model") / "1"


@contextlib.contextmanager
def edited(version):
    """The only graph of a version, written back at the end."""
    path = version / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    yield model.meta_graphs[0]
    path.write_bytes(model.SerializeToString())


def rules(path):
    return [finding.rule for finding in check(path)]


def served_function(graph):
    """The function that the signature calls, by way of another."""
    functions = {function.signature.name: function for function in graph.graph_def.library.function}
    (name,) = (name for name in functions if name.startswith("__inference_serve"))
    return functions[name]


def add_node(version, op, function=True):
    with edited(version) as graph:
        nodes = served_function(graph).node_def if function else graph.graph_def.node
        nodes.add(name="planted", op=op)


def predict_log(x=((1.0, 2.0),), word=("a",), signature="", **others):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for key, value in {"x": x, "word": word, **others}.items():
        if value is not None:
            proto = value if isinstance(value, tensor_pb2.TensorProto) else tf.make_tensor_proto(value)
            request.inputs[key].CopyFrom(proto)
    return log


def write_warm_up(version, *records):
    (version / WARM_UP).parent.mkdir()
    with tf.io.TFRecordWriter(str(version / WARM_UP)) as writer:
        for record in records:
            writer.write(record if isinstance(record, bytes) else record.SerializeToString())


def resave(version, function, **options):
    shutil.rmtree(version)
    save(version, function, FLOATS, **options)


def save_v1(version, session, inputs, outputs, **options):
    builder = tf.compat.v1.saved_model.Builder(str(version))
    signature = tf.compat.v1.saved_model.predict_signature_def(inputs, outputs)
    builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature}, **options)
    builder.save()


class Plants:
    """A method a rule, of its name: breaks a clean version so that this is all that is found."""

    def xla_must_compile(version):
        resave(version, lambda x: {"y": 2 * x}, jit_compile=True)

    def gpu_only_op(version):
        add_node(version, "CudnnRNNV3")

    def python_function(version):
        resave(version, lambda x: {"y": tf.reshape(tf.py_function(np.sin, [x], tf.float32), [-1, 2])})

    def unknown_op(version):
        add_node(version, "TFText>WhitespaceTokenizeWithOffsetsV2")

    def no_batch_dimension(version):
        with edited(version) as graph:
            graph.signature_def["serving_default"].inputs["x"].tensor_shape.dim[0].size = 8

    def not_in_json(version):
        with edited(version) as graph:
            graph.signature_def["serving_default"].inputs["x"].dtype = tf.float16.as_datatype_enum

    def composite_tensor(version):
        resave(version, lambda x: {"y": tf.sparse.from_dense(x)})

    def outside_file(version):
        resave(version, lambda x: {"y": x, "f": tf.fill([tf.shape(x)[0]], tf.io.read_file("/nowhere/words.txt"))})

    def uninitialised_table(version):
        """As a builder of TensorFlow 1 saves it without `main_op`."""
        shutil.rmtree(version)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            word = tf.compat.v1.placeholder(tf.string, [None])
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
            save_v1(version, session, {"word": word}, {"id": table.lookup(word)})

    def unnamed_output(version):
        with edited(version) as graph:
            outputs = graph.signature_def["serving_default"].outputs
            outputs["output_1"].CopyFrom(outputs.pop("y"))

    def ids_without_length(version):
        with edited(version) as graph:
            tensor = graph.signature_def["serving_default"].inputs["x"]
            tensor.dtype, tensor.tensor_shape.dim[1].size = tf.int32.as_datatype_enum, -1

    def missing_tensor(version):
        with edited(version) as graph:
            graph.signature_def["serving_default"].outputs["y"].name = "nowhere:0"

    def git_lfs_pointer(version):
        """As a clone of a repository whose large files were not fetched has it."""
        for file in ("variables/variables.data-00000-of-00001", "assets/words.txt", "saved_model.pb"):
            (version / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 8\n")

    def missing_variables(version):
        (version / "variables" / "variables.index").unlink()

    def unreadable_variables(version):
        (version / "variables" / "variables.index").write_bytes(os.urandom(500))

    def truncated_variables(version):
        os.truncate(version / "variables" / "variables.data-00000-of-00001", 9000)

    def missing_asset(version):
        (version / "assets" / "words.txt").unlink()

    def version_name(version):
        version.rename(version.parent / "v1")

    def lenient_version_name(version):
        shutil.copytree(version, version.parent / "+7")

    def ignored_folder(version):
        shutil.copytree(version, version.parent / "2.bad")

    def no_version_folder(version):
        for child in version.iterdir():
            child.rename(version.parent / child.name)
        version.rmdir()

    def empty_version(version):
        (version.parent / "2").mkdir()

    def unreadable_saved_model(version):
        (version / "saved_model.pb").write_bytes(os.urandom(500))

    def no_serve_tag(version):
        with edited(version) as graph:
            graph.meta_info_def.tags.append("gpu")

    def no_signatures(version):
        with edited(version) as graph:
            del graph.signature_def["serving_default"]

    def unreadable_warm_up(version):
        (version / WARM_UP).parent.mkdir()
        (version / WARM_UP).write_bytes(os.urandom(500))

    def unfit_warm_up(version):
        write_warm_up(version, predict_log(signature="generate"))

    def empty_warm_up(version):
        write_warm_up(version, prediction_log_pb2.PredictionLog())

    def too_many_warm_ups(version):
        write_warm_up(version, *[predict_log()] * 1001)


PLANTS = {name.replace("_", "-"): plant for name, plant in vars(Plants).items() if not name.startswith("__")}


WARNINGS = {"ids-without-length", "lenient-version-name", "no-batch-dimension", "not-in-json"}
NOTES = {"empty-warm-up", "ignored-folder", "unnamed-output"}
ONLY_RUN = {"load-failed", "request-failed", "batch-differs", "not-run"}


class TestPlanted:
    def test_every_rule_is(self):
        assert PLANTS.keys() | ONLY_RUN == RULES.keys()

    @pytest.mark.parametrize("rule", PLANTS)
    def test_is_found_alone(self, version, rule):
        PLANTS[rule](version)
        (finding,) = check(version.parent)
        assert finding.rule == rule
        assert finding.severity == ("warning" if rule in WARNINGS else "note" if rule in NOTES else "fatal")
        assert all([finding.where, finding.what, finding.why, finding.fix])
        assert check(version.parent, ignore=[rule]) == []

    def test_only_rules_can_be_ignored(self, version):
        with pytest.raises(ValueError, match=r"There is no rule 'unnamed_output'; did you mean 'unnamed-output'\?"):
            check(version, ignore=["unnamed_output"])

    def test_several_are_found_in_each_version(self, version):
        shutil.copytree(version, version.parent / "12")
        Plants.missing_asset(version)
        add_node(version, "PyFunc")
        add_node(version.parent / "12", "CudnnRNN")
        (version.parent / "3").mkdir()
        found = [(os.path.basename(finding.folder), finding.rule) for finding in check(str(version.parent))]
        assert found == [
            ("model", "empty-version"),
            ("1", "python-function"),
            ("1", "missing-asset"),
            ("12", "gpu-only-op"),
        ]
        assert rules(version) == ["python-function", "missing-asset"]
        Plants.unnamed_output(version)
        assert rules(version)[-1] == "unnamed-output", "the mildest comes last"


class TestClean:
    def test_nothing_is_found(self, clean):
        assert check(clean) == check(clean / "1") == []
        (checked,) = report(clean).folders
        wanted = {"signatures": 1, "variables": 2, "assets": 1, "warm-up records": 0}
        assert {kind: checked.seen[kind] for kind in wanted} == wanted

    def test_on_the_committed_model(self):
        assert check(pathlib.Path(__file__).parents[2] / "saved_models" / "dates") == []

    def test_on_our_translators(self, exported_transformer):
        assert check(exported_transformer) == []
        (checked,) = report(exported_transformer).folders
        listed = tf.train.list_variables(str(exported_transformer / "variables" / "variables"))
        assert checked.seen["variables"] == len(listed) - 1  # and the graph of objects
        assert checked.seen["signatures"] >= 3

    def test_on_our_generators(self, exported_generator):
        assert check(exported_generator) == []

    def test_graphs_of_tensorflow_1(self, tmp_path):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.string, [None])
            save_v1(tmp_path / "1", session, {"x": x}, {"y": tf.strings.upper(x)})
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
            fill = tf.compat.v1.tables_initializer()
            save_v1(tmp_path / "2", session, {"x": x}, {"y": table.lookup(x)}, main_op=fill)
        assert not list((tmp_path / "1" / "variables").glob("*"))
        assert check(tmp_path) == []

    def test_what_keras_exports_has_notes_only(self, tmp_path):
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        model.export(tmp_path / "1", verbose=False)
        assert {finding.severity for finding in check(tmp_path)} == {"note"}

    def test_a_graph_as_text(self, version):
        model = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
        (version / "saved_model.pbtxt").write_text(text_format.MessageToString(model))
        (version / "saved_model.pb").unlink()
        assert check(version.parent) == []
        (version / "saved_model.pbtxt").write_text("meta_graphs { what }")
        assert rules(version) == ["unreadable-saved-model"]


class TestGraph:
    def test_what_must_be_compiled_within_and_what_only_says_so(self, version, tmp_path):
        inner = tf.function(lambda x: 2 * x, jit_compile=True)
        (finding,) = check(save(tmp_path / "1", lambda x: {"y": inner(x)}, FLOATS))
        assert (finding.rule, finding.what) == ("xla-must-compile", "It is marked `_XlaMustCompile`")
        assert finding.where.startswith("function `__inference_")
        with edited(version) as graph:
            served_function(graph).node_def.add(name="planted", op="Add").attr["_XlaMustCompile"].b = True
            served_function(graph).node_def.add(name="not", op="Add").attr["_XlaMustCompile"].b = False
        (finding,) = check(version)
        assert (finding.rule, finding.where[-14:]) == ("xla-must-compile", "node `planted`")

    def test_in_the_graph_itself_where_no_signature_leads(self, version):
        add_node(version, "PyFunc", function=False)
        add_node(version, "NoSuchOp", function=False)
        unknown, finding = check(version)
        assert (finding.rule, finding.where, finding.severity) == ("python-function", "node `planted`", "note")
        assert finding.what.endswith("; no signature leads there")
        assert (unknown.rule, unknown.severity) == ("unknown-op", "fatal"), "a server looks all of them up"
        assert "load-failed" in [each.rule for each in check(version, run=True)], "as it does here"

    def test_an_unknown_op_in_a_function_that_nothing_calls(self, version):
        with edited(version) as graph:
            unused = graph.graph_def.library.function.add()
            unused.signature.name = "unused"
            unused.node_def.add(name="planted", op="NoSuchOp")
        (finding,) = (each for each in check(version, run=True) if each.rule != "not-run")
        assert (finding.rule, finding.severity) == ("unknown-op", "note")

    def test_a_file_outside_the_version(self, version, tmp_path):
        (tmp_path / "words.txt").write_text("a\n")
        read = tf.io.read_file
        resave(version, lambda x: {"y": x, "f": tf.fill([tf.shape(x)[0]], read(str(tmp_path / "words.txt")))})
        (finding,) = check(version)
        assert (finding.rule, finding.severity) == ("outside-file", "warning")
        assert "words.txt`, outside the version" in finding.what
        (tmp_path / "words.txt").unlink()
        (finding,) = check(version)
        assert finding.severity == "fatal"
        assert finding.what.endswith(", which does not exist here")

    def test_many_of_a_kind_are_one_finding_and_many_kinds_are_few(self, version):
        with edited(version) as graph:
            for number in range(1234):
                graph.graph_def.node.add(name=f"planted_{number}", op="PyFunc")
                graph.graph_def.node.add(name="planted", op=f"Unknown{number}")
        *unknown, more, finding = check(version)
        assert finding.where == "node `planted_0`; node `planted_1`; node `planted_2`; and 1,231 more"
        assert (len(unknown), more.what) == (20, "1,214 more findings of this kind")

    def test_functions_for_a_gpu_beside_those_for_a_cpu(self, version):
        """As Keras 2 saves an LSTM: a graph optimizer chooses the function by the device."""
        with edited(version) as graph:
            served = served_function(graph)
            library = graph.graph_def.library
            for device in (b"CPU", b"GPU"):
                function = library.function.add()
                function.signature.name = f"lstm_{device.decode()}"
                function.attr["api_implements"].s = b"lstm_1"
                function.attr["api_preferred_device"].s = device
            function.node_def.add(name="call", op="PartitionedCall").attr["f"].func.name = "within"
            served.node_def.add(name="lstm", op="PartitionedCall").attr["f"].func.name = "lstm_CPU"
            within = library.function.add()
            within.signature.name = "within"
            within.node_def.add(name="rnn", op="CudnnRNNV3")
        assert check(version) == []
        with edited(version) as graph:
            graph.graph_def.library.function[-2].attr["api_implements"].s = b"lstm_2"
        assert rules(version) == ["gpu-only-op"]

    def test_a_call_of_a_function_is_no_unknown_op(self, version):
        with edited(version) as graph:
            graph.graph_def.node.add(name="planted", op=served_function(graph).signature.name)
        assert check(version) == []


class TestSignatures:
    def found(self, folder, function, *specs):
        return [(f.rule, f.where, f.what) for f in check(save(folder / "1", function, *specs))]

    def test_scalars_known_sizes_and_unknown_ranks(self, tmp_path):
        specs = [
            tf.TensorSpec([], tf.float32, name="scale"),
            tf.TensorSpec([7, None], tf.float32, name="fixed"),
            tf.TensorSpec(None, tf.float32, name="any"),
        ]
        found = self.found(tmp_path, lambda a, b, c: {"mean": tf.reduce_mean(b) * a, "c": c}, *specs)
        assert found == [
            ("no-batch-dimension", f"signature `serving_default`, {where}", what)
            for where, what in [
                ("input `fixed`", "Its first dimension is 7, in the shape [7, None]"),
                ("input `scale`; signature `serving_default`, output `mean`", "It is a scalar"),
                ("input `any`; signature `serving_default`, output `c`", "Its rank is unknown"),
            ]
        ]
        assert [each.severity for each in check(tmp_path)] == ["warning", "warning", "note"]

    def test_ragged_and_sparse_outputs(self, tmp_path):
        def serve(x):
            pieces = tf.strings.split(x)
            return {"ragged": pieces, "sparse": pieces.to_sparse(), "dense": pieces.to_tensor()}

        found = self.found(tmp_path, serve, tf.TensorSpec([None], tf.string, name="x"))
        assert found == [
            ("composite-tensor", f"signature `serving_default`, output `{name}`", what)
            for name, what in [
                ("ragged", "It is a ragged or other composite tensor"),
                ("sparse", "It is a sparse tensor"),
            ]
        ]

    def test_outputs_by_position_and_ids_alone(self, tmp_path):
        where = "signature `serving_default`, output `output_0`; signature `serving_default`, output `output_1`"
        found = self.found(tmp_path / "a", lambda x: (x, 2 * x), FLOATS)
        assert found == [("unnamed-output", where, "It has no name of its own")]
        ((rule, where, what),) = self.found(tmp_path / "b", lambda ids: {"y": ids + 1}, IDS)
        assert (rule, where) == ("ids-without-length", "signature `serving_default`, input `ids`")
        assert what == "It is int64 [None, None], with no length or mask"
        known = tf.TensorSpec([None, 9], tf.int32, name="x")
        assert self.found(tmp_path / "c", lambda x: {"y": x}, known) == []

    @pytest.mark.parametrize(
        ("name", "shape", "dtype", "is_enough"),
        [
            ("length", [None], tf.int32, True),
            ("seq_len", [None], tf.int64, True),
            ("sequenceLength", [None], tf.int64, True),
            ("attention_mask", [None, None], tf.int32, True),
            ("real", [None, None], tf.bool, True),
            ("calendar", [None], tf.int32, False),
            ("seed", [None], tf.int64, False),
            ("masked_positions", [None, 4], tf.int32, False),
        ],
    )
    def test_ids_beside(self, version, name, shape, dtype, is_enough):
        with edited(version) as graph:
            inputs = graph.signature_def["serving_default"].inputs
            tensor = inputs["x"].name
            inputs.clear()
            for key, (size, kind) in {"ids": ([None, None], tf.int64), name: (shape, dtype)}.items():
                inputs[key].name, inputs[key].dtype = tensor, kind.as_datatype_enum
                inputs[key].tensor_shape.CopyFrom(tf.TensorShape(size).as_proto())
        assert rules(version) == [] if is_enough else ["ids-without-length"]


class TestFiles:
    def test_the_last_byte_of_the_variables(self, version):
        data = version / "variables" / "variables.data-00000-of-00001"
        content = data.read_bytes()
        data.write_bytes(content[:-1])
        (finding,) = check(version)
        assert (finding.rule, finding.what) == ("truncated-variables", "The file that holds it is cut off")
        data.write_bytes(content[:-99] + b"?" + content[-98:])
        (finding,) = check(version)
        assert (finding.rule, finding.where[:10]) == ("unreadable-variables", "variable `")
        assert "Checksum does not match" in finding.what

    def test_variables_in_several_shards(self, version):
        """The index of another checkpoint, whose 40 variables are spread over two files."""
        with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device("/cpu:0"):
            prefixes = [str(version / f"part-{part}") for part in range(2)]
            for part, prefix in enumerate(prefixes):
                names = [f"{part}/{number}" for number in range(20)]
                session.run(tf.raw_ops.SaveV2(
                    prefix=prefix, tensor_names=names, shape_and_slices=[""] * 20, tensors=[tf.ones([300])] * 20
                ))  # fmt: skip
            whole = str(version / "variables" / "variables")
            session.run(tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=whole))
        (checked,) = report(version).folders
        assert (checked.findings, checked.seen["variables"]) == ([], 40)
        (version / "variables" / "variables.data-00001-of-00002").unlink()
        (finding,) = check(version)
        assert (finding.rule, finding.where) == ("missing-variables", "file variables/variables.data-00001-of-00002")

    def test_a_folder_in_the_place_of_an_asset(self, version):
        (version / "assets" / "words.txt").unlink()
        (version / "assets" / "words.txt").mkdir()
        assert rules(version) == ["missing-asset"]


class TestFolders:
    def test_names_that_are_no_versions_and_names_that_are(self, version):
        folder = version.parent
        for name in ("-1", "1e3", "1.0", "latest", "99999999999999999999", "١", "+", "8 9"):
            version = version.rename(folder / name)
            (finding,) = check(folder)
            assert (finding.rule, finding.where, finding.folder) == ("version-name", f"folder `{name}`", str(folder))
        for name in ("0", "007", "9223372036854775807"):
            version = version.rename(folder / name)
            assert check(folder) == check(version) == []

    @pytest.mark.parametrize("name", ["2.bad", "v2"])
    def test_names_beside_a_version_are_ignored_and_may_stay(self, version, name):
        aside = shutil.copytree(version, version.parent / name)
        Plants.missing_variables(aside)
        (finding,) = check(version.parent)
        assert (finding.rule, finding.where) == ("ignored-folder", f"folder `{name}`")
        assert "A server ignores it because of its name" in finding.why
        assert finding.fix.startswith("If it is kept aside on purpose, do nothing.")
        assert len(report(version.parent).folders) == 2, "the model's and version 1"

    @pytest.mark.parametrize("name", ["01", "+1", " 1"])
    def test_two_folders_of_one_version(self, version, name):
        shutil.copytree(version, version.parent / name)
        (finding,) = check(version.parent)
        assert (finding.rule, finding.severity) == ("version-name", "warning")
        assert finding.what == "It means version 1, which `1` means too"

    @pytest.mark.parametrize("name", ["+7", "9 "])
    def test_names_that_a_server_reads_leniently(self, version, name):
        Plants.missing_asset(pathlib.Path(shutil.copytree(version, version.parent / name)))
        lenient, missing = check(version.parent)
        assert (lenient.rule, lenient.where) == ("lenient-version-name", f"folder `{name}`")
        assert lenient.what == f"It means version {int(name)}"
        assert (missing.rule, missing.folder) == ("missing-asset", str(version.parent / name)), "it is checked as well"

    def test_links_for_people_and_what_is_being_written_aside(self, version):
        (version.parent / "latest").symlink_to("1")
        shutil.copytree(version, version.parent / ".2.tmp-1")
        (version.parent / "notes").mkdir()
        assert check(version.parent) == check(version.parent / "latest") == []

    @pytest.mark.parametrize("content", ["nothing", "variables alone", "a file", "a loop"])
    def test_versions_without_a_graph(self, version, content):
        shutil.rmtree(version)
        if content == "a file":
            version.touch()
        elif content == "a loop":
            version.symlink_to("1")
        else:
            version.mkdir()
            if content == "variables alone":
                (version / "variables").mkdir()
        (finding,) = check(version.parent)
        what = {"nothing": "It is empty", "variables alone": "It holds no saved_model.pb"}.get(
            content, "It is not a folder"
        )
        assert (finding.rule, finding.where, finding.what) == ("empty-version", "version `1`", what)

    def test_a_bare_saved_model_is_looked_into_unless_there_are_versions_beside_it(self, version):
        shutil.copy(version / "saved_model.pb", version.parent)
        assert rules(version.parent) == ["no-version-folder"]
        assert len(report(version.parent).folders) == 2
        (version.parent / "saved_model.pb").unlink()
        add_node(version, "PyFunc")
        Plants.no_version_folder(version)
        assert rules(version.parent) == ["no-version-folder", "python-function"]

    def test_the_working_directory(self, version, monkeypatch):
        monkeypatch.chdir(version)
        assert check(".") == []
        monkeypatch.chdir(version.parent)
        assert check(".") == check("1") == []

    def test_the_graph_with_the_tag_is_checked_among_others(self, version):
        path = version / "saved_model.pb"
        model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        model.meta_graphs.insert(0, saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs[0])
        model.meta_graphs[0].meta_info_def.tags[:] = ["train"]
        model.meta_graphs[0].graph_def.node.add(name="planted", op="PyFunc")
        path.write_bytes(model.SerializeToString())
        assert check(version) == []

    def test_no_such_path(self, tmp_path):
        (tmp_path / "file").touch()
        (tmp_path / "loop").symlink_to("loop")
        (tmp_path / "5").mkdir()
        assert rules(tmp_path / "5") == ["empty-version"]
        (tmp_path / "5").rmdir()
        for name, error, message in (
            ("nowhere", FileNotFoundError, r"nowhere does not exist\.$"),
            ("file", ValueError, r"file is no folder; expected a model's folder, or one version of it\.$"),
            ("loop", ValueError, "loop is no folder"),
            ("", ValueError, "holds no SavedModel, nor versions of one"),
        ):
            with pytest.raises(error, match=message):
                check(tmp_path / name)


class TestWarmUp:
    def found(self, version, *records):
        write_warm_up(version, *records)
        return [(finding.rule, finding.where, finding.what) for finding in check(version)]

    def test_records_that_fit(self, version):
        records = [predict_log(), predict_log([[1.0, 2.0]] * 3, ["a"] * 3, "serving_default"), predict_log()]
        records[2].predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros([0, 2], "float32")))
        records[2].predict_log.request.inputs["word"].CopyFrom(tf.make_tensor_proto([], tf.string))
        records[0].predict_log.request.output_filter.append("id")
        assert self.found(version, *records) == []
        assert report(version).folders[0].seen["warm-up records"] == 3

    @pytest.mark.parametrize(
        ("log", "what"),
        [
            (predict_log(signature="score"), "There is no signature `score`, but `serving_default`"),
            (predict_log(z=[1]), "Signature `serving_default` has no input `z`"),
            (predict_log(word=None), "Input `word` of signature `serving_default` is missing"),
            (predict_log(word=[1]), "Input `word` of signature `serving_default` is int32, not string"),
            (predict_log(x=[1.0]), "Input `x` of signature `serving_default` is of the shape [1], not [None, 2]"),
            (predict_log(x=[[1.0]]), "Input `x` of signature `serving_default` is of the shape [1, 1], not [None, 2]"),
        ],
    )
    def test_records_that_do_not(self, version, log, what):
        ((rule, where, found),) = self.found(version, predict_log(), log)
        assert (rule, where) == ("unfit-warm-up", "record 2")
        assert found.startswith(what)

    def test_content_of_another_length_and_outputs_that_are_not(self, version):
        tensor = tf.make_tensor_proto(np.ones([2, 2], "float32"))
        tensor.tensor_content = tensor.tensor_content[:-1]
        log = predict_log()
        log.predict_log.request.output_filter.append("z")
        assert [(where, what) for _, where, what in self.found(version, predict_log(x=tensor), log)] == [
            (
                "record 1",
                "Input `x` of signature `serving_default` has 15 bytes, which are not those of the shape [2, 2]",
            ),
            ("record 2", "Signature `serving_default` has no output `z`"),
        ]

    def test_an_input_with_a_default_may_be_missing(self, version):
        with edited(version) as graph:
            graph.signature_def["serving_default"].defaults["word"].CopyFrom(tf.make_tensor_proto(["a"]))
        assert self.found(version, predict_log(word=None)) == []

    def test_requests_of_examples(self, version):
        logs = [prediction_log_pb2.PredictionLog() for _ in range(4)]
        logs[0].classify_log.request.model_spec.name = "any"
        logs[1].regress_log.request.model_spec.signature_name = "regress"
        logs[2].multi_inference_log.request.tasks.add()
        logs[3].session_run_log.request.feed.add()
        assert [(where, what.split(",")[0]) for _, where, what in self.found(version, *logs)] == [
            ("record 1; record 3", "Signature `serving_default` takes no examples"),
            ("record 2", "There is no signature `regress`"),
            ("record 4", "A `session_run_log` cannot be used to warm up"),
        ]
        with edited(version) as graph:
            inputs = graph.signature_def["serving_default"].inputs
            inputs["inputs"].CopyFrom(inputs.pop("word"))
            del inputs["x"]
        assert [finding.where for finding in check(version)] == ["record 2", "record 4"]

    def test_records_of_something_else_and_none(self, version):
        ((rule, _, what),) = self.found(version, b"\xff\xff no message")
        assert (rule, what) == ("unreadable-warm-up", "Record 1 does not parse as a PredictionLog")
        (version / WARM_UP).write_bytes(b"")
        assert check(version) == []

    def test_a_record_cut_off_ends_the_reading(self, version):
        write_warm_up(version, predict_log(), predict_log())
        content = (version / WARM_UP).read_bytes()
        (version / WARM_UP).write_bytes(content[:-1])
        (finding,) = check(version)
        assert finding.rule == "unreadable-warm-up"
        assert finding.what.startswith("Record 2 cannot be read: TensorFlow says `truncated record")
        assert report(version).folders[0].seen["warm-up records"] == 1


class TestRun:
    def found(self, version, *records):
        """What is only found by running."""
        if records:
            write_warm_up(version, *records)
        found = check(version, run=True)
        return [(each.rule, each.where, each.what) for each in found if each.rule in ONLY_RUN]

    def test_what_answers(self, version):
        assert self.found(version, predict_log(), predict_log([[3.0, 4.0]] * 3, ["b"] * 3)) == []
        assert report(version, run=True).folders[0].seen["test requests"] == 2

    @pytest.mark.long
    def test_on_our_translators(self, exported_transformer):
        assert check(exported_transformer, run=True) == []

    def test_what_cannot_be_loaded(self, version):
        Plants.missing_asset(version)
        assert [rule for rule, *_ in self.found(version)] == ["load-failed"]

    def test_a_row_that_fails_alone(self, version):
        resave(version, lambda x: {"y": tf.reshape(x, [2, 2])})
        ((rule, where, what),) = self.found(version, predict_log([[1.0, 2.0], [3.0, 4.0]], None))
        assert (rule, where) == ("batch-differs", "signature `serving_default`")
        assert what.startswith("One row of a request fails alone: TensorFlow says `Input to reshape is a tensor with 2")

    def test_rows_of_many_numbers_that_differ_in_one(self, version):
        shutil.rmtree(version)
        wide = tf.TensorSpec([None, 2000], tf.float32, name="x")
        save(version, lambda x: {"y": x - tf.reduce_mean(x[:, 1000])}, wide)
        first = np.zeros([1, 2000], "float32")
        second = first.copy()
        second[0, 1000] = 8
        ((rule, _, what),) = self.found(version, predict_log(first, None), predict_log(second, None))
        assert (rule, what) == ("batch-differs", "2 of 2 rows have another answer in a batch of all of them")

    def test_a_request_that_fails(self, version):
        resave(version, lambda x: {"y": tf.reshape(x, [2, 2])})
        ((rule, where, what),) = self.found(version, predict_log(word=None))
        assert (rule, where) == ("request-failed", "record 1, signature `serving_default`")
        assert "Input to reshape is a tensor with 2 values" in what

    def test_xla_is_off_as_in_a_server(self, version):
        resave(version, tf.function(lambda x: {"y": x + 1}, jit_compile=True))
        assert [rule for rule, *_ in self.found(version, predict_log(word=None))] == ["request-failed"]

    @pytest.mark.parametrize(
        ("function", "what"),
        [
            (lambda x: {"y": x - tf.reduce_mean(x)}, "2 of 2 rows have another answer in a batch of all of them"),
            (lambda x: {"y": tf.reduce_sum(x, keepdims=True)}, "Of 2 rows the output `y` has the shape [1, 1]"),
            (lambda x: {"y": tf.reshape(x, [1, 2])}, "2 rows together fail: TensorFlow says `Input to reshape"),
        ],
    )
    def test_rows_that_depend_on_each_other(self, version, function, what):
        resave(version, function)
        logs = [predict_log(word=None), predict_log([[3.0, 5.0]], None)]
        ((rule, where, found),) = self.found(version, *logs)
        assert (rule, where) == ("batch-differs", "signature `serving_default`")
        assert found.startswith(what)

    def test_padding_of_a_batch_is_no_difference(self, version):
        def serve(x):
            width = tf.cast(tf.reduce_max(x), tf.int32)
            return {"y": tf.cast(tf.sequence_mask(x[:, 0], width), tf.float32)}

        resave(version, serve)
        assert self.found(version, predict_log([[1.0, 2.0]], None), predict_log([[1.0, 3.0]], None)) == []

    def test_what_is_never_asked_or_answers_at_random(self, version):
        ((rule, where, _),) = self.found(version)
        assert (rule, where) == ("not-run", "signature `serving_default`")
        resave(version, lambda x: {"y": x + tf.random.normal([2])})
        ((rule, _, what),) = self.found(version, predict_log(word=None))
        assert (rule, what[:35]) == ("not-run", "One request twice has different ans")

    def test_signatures_that_are_never_asked_are_one_finding(self, version):
        module = tf.Module()
        names = "a", "b", "serving_default"
        module.serve = [tf.function(lambda x, k=k: {"y": k * x}, input_signature=[FLOATS]) for k in range(len(names))]
        shutil.rmtree(version)
        tf.saved_model.save(module, str(version), signatures=dict(zip(names, module.serve, strict=True)))
        assert self.found(version, predict_log(word=None)) == [
            ("not-run", "signature `a`; signature `b`", "No request was sent to it")
        ]


def flips(content, number, seed=0):
    """`number` copies of the content, each with one byte changed."""
    random = np.random.default_rng(seed)
    for at in random.integers(len(content), size=number):
        yield content[:at] + bytes([content[at] ^ random.integers(1, 256)]) + content[at + 1 :]


def varint(value):
    return bytes([value & 127 | 128, *varint(value >> 7)]) if value > 127 else bytes([value])


class TestWorker:
    """The process that reads versions serves one check after another."""

    def test_an_error_of_the_check_itself_does_not_shift_later_answers(self, version, monkeypatch):
        bad = pathlib.Path(shutil.copytree(version.parent, version.parent.parent / "bad"), "1")
        Plants.missing_asset(bad)
        with monkeypatch.context() as patch:
            patch.setattr(checking, "_SECONDS", 1 << 40)  # more than an alarm takes
            with pytest.raises(RuntimeError, match="The check itself failed at graph"):
                check(version)
        assert (rules(version), rules(bad), rules(version)) == ([], ["missing-asset"], [])

    def test_another_one_takes_the_place_of_an_interrupted_or_killed_one(self, version, monkeypatch):
        """As Ctrl-C in a Python prompt kills it. The rest of an answer would be taken for that to the next check."""

        def interrupted(line):
            raise KeyboardInterrupt

        first = checking._worker()
        with monkeypatch.context() as patch:
            patch.setattr(checking.json, "loads", interrupted)
            with pytest.raises(KeyboardInterrupt):
                check(version)
        second = checking._worker()
        assert first.has_ended and second is not first
        second._process.kill()
        second._process.wait()
        Plants.missing_asset(version)
        assert rules(version) == ["missing-asset"]


class TestHostile:
    """Whatever a file holds there is an answer, soon, and this process goes on."""

    def found(self, version, file, contents):
        """The rules that versions break that differ in one file."""
        numbers = range(10, 10 + len(contents))
        for number, content in zip(numbers, contents, strict=True):
            (shutil.copytree(version, version.parent / str(number)) / file).write_bytes(content)
        folders = report(version.parent).folders
        assert [pathlib.Path(each.folder).name for each in folders] == ["1", *map(str, numbers)]
        return [[finding.rule for finding in checked.findings] for checked in folders[1:]]

    @pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.index", WARM_UP])
    def test_files_that_are_none(self, version, file):
        path = version / file
        path.parent.mkdir(exist_ok=True)
        for make in (
            lambda: path.mkdir(),
            lambda: os.mkfifo(path),
            lambda: path.symlink_to("/dev/zero"),
            lambda: path.symlink_to(path.name),
            lambda: path.symlink_to("nowhere"),
            lambda: path.write_bytes(b"") and None,
            lambda: path.write_bytes(os.urandom(1 << 16)) and None,
            lambda: path.write_bytes(bytes(1 << 16)) and None,
        ):
            if path.is_symlink() or path.is_file() or path.is_fifo():
                path.unlink()
            elif path.is_dir():
                path.rmdir()
            make()
            for finding in check(version.parent):
                assert finding.rule.startswith("unreadable-"), path.stat()

    def test_a_pipe_in_the_place_of_the_values(self, version):
        data = version / "variables" / "variables.data-00000-of-00001"
        data.unlink()
        os.mkfifo(data)
        assert rules(version) == ["unreadable-variables"]

    def test_a_graph_cut_off_anywhere(self, version):
        content = (version / "saved_model.pb").read_bytes()
        cut = [content[:length] for length in np.linspace(0, len(content) - 1, 8, dtype=int)]
        for found in self.found(version, "saved_model.pb", cut):
            assert "unreadable-saved-model" in found

    def test_a_graph_with_a_wrong_byte(self, version):
        self.found(version, "saved_model.pb", list(flips((version / "saved_model.pb").read_bytes(), 25)))

    def test_an_index_cut_off_or_with_a_wrong_byte(self, version):
        content = (version / "variables" / "variables.index").read_bytes()
        wrong = [content[:length] for length in np.linspace(0, len(content) - 1, 8, dtype=int)]
        # All but the last 48 bytes have a checksum; nobody reads the block that the first two numbers there name.
        first, at = 0, len(content) - 48
        for shift in (0, 7, 14):
            first |= (content[at] & 127) << shift
            at += 1
            if content[at - 1] < 128:
                break
        wrong += [each + content[first:] for each in flips(content[:first], 10)]
        assert self.found(version, "variables/variables.index", wrong) == [["unreadable-variables"]] * 18

    def test_a_warm_up_with_a_wrong_byte(self, version):
        write_warm_up(version, predict_log(), predict_log())
        wrong = list(flips((version / WARM_UP).read_bytes(), 12))
        assert self.found(version, WARM_UP, wrong) == [["unreadable-warm-up"]] * 12

    def test_a_record_longer_than_memory(self, version):
        """Its length with the checksum that belongs to it."""
        write_warm_up(version)
        (version / WARM_UP).write_bytes((1 << 60).to_bytes(8, "little") + bytes.fromhex("c4234e8e"))
        (finding,) = check(version)
        assert "Record 1 cannot be read: TensorFlow says `truncated record" in finding.what

    @pytest.mark.parametrize("handle", [(0, 1 << 60), (1 << 60, 5), (1 << 63, 1 << 63), (0, 1 << 34)])
    def test_a_table_that_points_outside(self, version, handle):
        """Sizes that TensorFlow's reader believes: it runs out of memory there."""
        footer = b"".join(map(varint, (0, 0, *handle)))
        content = footer.ljust(40, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")
        (version / "variables" / "variables.index").write_bytes(content)
        assert rules(version) == ["unreadable-variables"]

    def test_a_file_of_a_terabyte(self, version):
        for name in ("saved_model.pb", "variables/variables.index"):
            os.truncate(version / name, 1 << 40)
        (finding,) = check(version)
        assert finding.what == "It is larger than 2,147,483,647 bytes, which is not read"

    def test_limits_of_memory_and_time(self, version, monkeypatch):
        """A message takes up to 50 times its size in memory if all of it is small messages."""
        (version / "saved_model.pb").write_bytes(b"\x12\x00" * (3 << 20))
        monkeypatch.setattr(checking, "_MEMORY", 64 << 20)
        monkeypatch.setattr(checking, "_MEMORY_PER_BYTE", 0)
        (finding,) = check(version)
        assert (finding.rule, finding.where) == ("unreadable-saved-model", "the graph")
        assert finding.what.startswith(("Reading it takes more than 64 MiB of memory", "TensorFlow crashed"))
        monkeypatch.setattr(checking, "_MEMORY", 64 << 30)
        monkeypatch.setattr(checking, "_SECONDS", 1)
        monkeypatch.setattr(checking, "_BYTES_PER_SECOND", 1 << 40)
        (version / "saved_model.pb").write_bytes(b"\x12\x00" * (30 << 20))
        (finding,) = check(version)
        assert finding.what == "Reading it took more than 1 s, and was ended"

    def test_names_that_would_change_the_terminal(self, version):
        with edited(version) as graph:
            graph.graph_def.node.add(name="\x1b[2J\n\u202e" + "a" * 5000, op="PyFunc")
        (finding,) = check(version)
        assert finding.where.isprintable()
        assert finding.where.startswith("node `\\x1b[2J\\n\\u202eaaa")
        assert len(finding.where) < 200

    def test_names_of_files_that_cannot_be(self, version):
        with edited(version) as graph:
            for name in ("\0", "../" * 9 + "etc/nothing", "a" * 5000):
                graph.asset_file_def.add().filename = name
        (finding,) = check(version)
        assert finding.rule == "missing-asset"
