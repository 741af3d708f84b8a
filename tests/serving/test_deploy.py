"""What `deploy/` and its page say: files that the server can parse and that fit together, requests with answers."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.request

import pytest
import yaml
from fake_models import GENERATOR, TEXT, model_from, model_of, score
from fake_serving import FakeGrpc, FakeRest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config import model_server_config_pb2

ROOT = pathlib.Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGES = [ROOT / "docs" / "serving.md", ROOT / "docs" / "operations.md"]
TEXT_OF_PAGES = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
NUMBER, FLAG, WORDS = ".google.protobuf.Int64Value", ".google.protobuf.BoolValue", ".google.protobuf.StringValue"


def parse(name, message):
    return text_format.Parse((DEPLOY / name).read_text(), message)


def message_of(fields):
    """A protobuf message by the names and types of its fields, where no package carries the server's own."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="fields.proto", package="fields", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="Message")
    for number, (name, kind) in enumerate(fields.items(), 1):
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        if isinstance(kind, str):
            field.type, field.type_name = kinds.TYPE_MESSAGE, kind
        else:
            field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fields.Message"))


def batching():
    """`BatchingParameters` of session_bundle_config.proto."""
    names = ["max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"]
    fields = {**dict.fromkeys(names, NUMBER), "enable_large_batch_splitting": FLAG, "thread_pool_name": WORDS}
    return parse("batching.config", message_of(fields)())


def models(path=DEPLOY / "models.config"):
    config = parse(path, model_server_config_pb2.ModelServerConfig())
    return {each.name: each for each in config.model_config_list.config}


def compose():
    text = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", (DEPLOY / "compose.yaml").read_text())
    assert "$" not in text
    return yaml.safe_load(text)["services"]["serving"]


def kubernetes():
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


def container():
    (one,) = kubernetes()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return one


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def flags(arguments):
    return dict(each.removeprefix("--").split("=", 1) for each in arguments)


class TestConfigurations:
    def test_models(self):
        assert list(models()) == ["dates", "gpt-pydoc"]
        for name, model in models().items():
            assert (model.base_path, model.model_platform) == (f"/models/{name}", "tensorflow")
            versions = list(model.model_version_policy.specific.versions)
            assert model.version_labels.keys() == {"stable", "canary"}
            assert set(model.version_labels.values()) <= set(versions)
            for version in versions:
                assert (ROOT / "saved_models" / name / str(version) / "saved_model.pb").is_file()

    def test_batching(self):
        """The sizes are those that exports bring, and the threads those of the server."""
        found = batching()
        assert found.max_batch_size.value == 32
        assert found.batch_timeout_micros.value == 0
        assert found.max_enqueued_batches.value >= found.num_batch_threads.value
        for arguments in (compose()["command"], container()["args"]):
            assert found.num_batch_threads.value == int(flags(arguments)["tensorflow_inter_op_parallelism"])

    def test_monitoring(self):
        text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
        flag = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
        body = re.fullmatch(
            r"(?:#.*\n|\n)*prometheus_config \{(.*)\}\n", (DEPLOY / "monitoring.config").read_text(), re.S
        )
        found = text_format.Parse(body[1], message_of({"enable": flag, "path": text})())
        assert found.enable
        annotations = kubernetes()["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/path"] == found.path
        assert f"localhost:8501{found.path}`" in TEXT_OF_PAGES


class TestCompose:
    def test_files_are_where_the_flags_say(self):
        mounts = dict(each.removesuffix(":ro").split(":") for each in compose()["volumes"])
        assert all(each.endswith(":ro") for each in compose()["volumes"])
        assert {(DEPLOY / place).resolve(): at for place, at in mounts.items()} == {
            ROOT / "saved_models": "/models",
            DEPLOY: "/config",
        }
        for name, value in flags(compose()["command"]).items():
            if name.endswith("_file"):
                assert (DEPLOY / pathlib.PurePath(value).relative_to("/config")).is_file()

    def test_it_is_pinned_restarted_and_open_to_this_machine_alone(self):
        assert re.fullmatch(r"tensorflow/serving:2\.\d+\.\d+", compose()["image"])
        assert compose()["restart"] == "unless-stopped"
        assert compose()["ports"] == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]

    @pytest.mark.skipif(not shutil.which("bash"), reason="the image has a bash")
    def test_it_is_healthy_while_the_port_of_grpc_is_open(self, listener):
        """Also if the server is busy (here nothing accepts the connection), and for any names of models."""
        command, port = compose()["healthcheck"]["test"], listener.getsockname()[1]
        assert command[0] == "CMD"
        assert flags(compose()["command"])["port"] in command[-1]

        def healthy():
            real = [part.replace("/8500", f"/{port}") for part in command[1:]]
            assert real != command[1:]
            return subprocess.run(real, capture_output=True, timeout=20, check=False).returncode == 0

        assert healthy()
        listener.close()
        assert not healthy()


class TestKubernetes:
    def test_the_parts_name_each_other(self):
        parts = kubernetes()
        deployment, labels = parts["Deployment"]["spec"], {"app": "zoo-serving"}
        assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == labels
        assert parts["Service"]["spec"]["selector"] == labels
        assert parts["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
        assert parts["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "zoo-serving"
        assert "replicas" not in deployment, "or every apply would undo what the autoscaler did"
        ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
        assert ports == {"grpc": 8500, "rest": 8501}
        assert {each["targetPort"]: each["port"] for each in parts["Service"]["spec"]["ports"]} == ports

    def test_volumes_are_read_only(self):
        pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
        claim = kubernetes()["PersistentVolumeClaim"]
        assert claim["spec"]["accessModes"] == ["ReadOnlyMany"]
        assert claim["spec"]["storageClassName"] == "", "not the cluster's default class, which makes an empty volume"
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert volumes["models"]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"], "readOnly": True}
        mounts = {each["mountPath"]: each for each in container()["volumeMounts"]}
        assert mounts.keys() == {"/models", "/config"}
        assert all(each["readOnly"] and each["name"] in volumes for each in mounts.values())

    def test_probes_ask_the_health_service_of_grpc_for_no_model(self):
        """REST's threads may all be at work on requests; and the service is off unless a flag is set."""
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container()[name]["grpc"] == {"port": int(flags(container()["args"])["port"])}
            assert not {"httpGet", "exec"} & container()[name].keys()
        assert flags(container()["args"])["enable_grpc_healthcheck_service"] == "true"

    def test_requests_under_way_end_before_the_server_does(self):
        pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
        pause = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])
        longest = int(flags(container()["args"])["rest_api_timeout_in_ms"]) / 1000
        assert longest < pause < pod["terminationGracePeriodSeconds"]

    def test_the_server_is_that_of_compose(self):
        assert container()["image"] == compose()["image"]
        assert container()["command"] == compose()["entrypoint"]
        ours, theirs = flags(container()["args"]), flags(compose()["command"])
        assert ours.pop("grpc_channel_arguments")
        assert ours == theirs


class TestPage:
    @pytest.fixture(scope="class")
    def models(self):
        """The committed export, and fakes for those that are not committed: one that scores pairs, and a generator."""
        dates = model_from(ROOT / "saved_models" / "dates" / "1")
        if "score" not in dates.signatures.signature_def:  # it is older than the signature
            pairs = model_of(
                {"score": ({**TEXT, "target": TEXT["text"]}, GENERATOR["score"][1], lambda text, target: score(target))}
            )
            dates.signatures.signature_def["score"].CopyFrom(pairs.signatures.signature_def["score"])
            export = dates.call
            dates.call = lambda name, /, **inputs: (pairs.call if name == "score" else export)(name, **inputs)
        return {"dates": {1: dates}, "gpt-pydoc": {1: model_of(GENERATOR)}}

    @pytest.fixture(scope="class")
    def rest(self, models):
        with FakeRest(models, {"stable": 1}) as fake:
            yield fake.address

    @pytest.fixture(scope="class")
    def grpc(self, models):
        with FakeGrpc(models, {"stable": 1}) as fake:
            yield fake.address

    @pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", TEXT_OF_PAGES, re.DOTALL))
    def test_python_block_runs(self, block, rest, grpc, capsys):
        block = block.replace("localhost:8501", rest).replace("localhost:8500", grpc)
        exec(compile(block, PAGES[0].name, "exec"), {})
        assert capsys.readouterr().out.startswith("2026-11-21")

    @pytest.mark.parametrize("number", range(5))
    def test_request_is_answered(self, number, rest):
        blocks = re.findall(r"^curl (localhost:8501\S+) -d '([^']*)'\n(?:# (.*)\n)?", TEXT_OF_PAGES, re.MULTILINE)
        assert len(blocks) == 5
        url, body, shown = blocks[number]
        request = urllib.request.Request(f"http://{url.replace('localhost:8501', rest)}", body.encode())
        answer = json.load(urllib.request.urlopen(request, timeout=20))
        assert not shown or nearly(answer) == nearly(json.loads(shown))

    @pytest.mark.skipif(not shutil.which("bash"), reason="the commands are a shell's")
    def test_a_server_on_this_machine_finds_all_models(self, tmp_path):
        """By a stand-in that writes down what it was called with."""
        (block,) = (
            each for each in re.findall(r"```sh\n(.*?)```", TEXT_OF_PAGES, re.S) if "--model_config_file=" in each
        )
        for folder in ("deploy", "saved_models"):
            (tmp_path / folder).symlink_to(ROOT / folder)
        stand_in = "tensorflow_model_server() { printf '%s\\n' \"$@\" > called; }\n"
        subprocess.run(["bash", "-c", stand_in + block], cwd=tmp_path, timeout=20, check=True)
        called = flags((tmp_path / "called").read_text().splitlines())
        found = models(tmp_path / called["model_config_file"])
        assert found.keys() == models().keys()
        for name, model in found.items():
            assert model.base_path == f"{tmp_path}/saved_models/{name}", "absolute, or the server refuses it"
            assert all((pathlib.Path(model.base_path) / str(n)).is_dir() for n in model.version_labels.values())
        own = {"model_config_file", "tensorflow_inter_op_parallelism"}
        assert {name: called[name] for name in called.keys() - own}.items() <= flags(compose()["command"]).items()

    def test_every_flag_that_is_set_is_explained(self):
        explained = set(re.findall(r"--(\w+)", TEXT_OF_PAGES))
        plain = {"port", "rest_api_port"}
        assert {*flags(compose()["command"]), *flags(container()["args"])} - plain <= explained


def nearly(value):
    """With numbers rounded, of which none is -0."""
    if isinstance(value, float):
        return round(value, 2) + 0.0
    if isinstance(value, dict):
        return {key: nearly(each) for key, each in value.items()}
    return [nearly(each) for each in value] if isinstance(value, list) else value
