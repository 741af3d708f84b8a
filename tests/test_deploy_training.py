"""`deploy/training/`: every worker gets a TF_CONFIG that `zoo.distribution` reads, and the same command."""

import importlib.util
import os
import pathlib
import subprocess

import pytest
import yaml

from zoo.distribution import read_cluster

FOLDER = pathlib.Path(__file__).parents[1] / "deploy" / "training"


def documents(name):
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))}


def tf_config(container, index):
    """What the shell of a container sets; in place of training it prints TF_CONFIG."""
    (script,) = container["args"]
    before, command, _ = script.partition("exec zoo train")
    assert command
    variables = {each["name"]: each["value"] for each in container["env"]}
    environment = {"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(index), **variables}
    script = before + 'printf "%s" "$TF_CONFIG"'
    return subprocess.run([*container["command"], script], env=environment, capture_output=True, text=True, check=True)


def jobset():
    job = documents("jobset.yaml")["JobSet"]
    (worker,) = job["spec"]["replicatedJobs"]
    spec = worker["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert job["spec"]["network"]["enableDNSHostnames"] is True
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    return container, spec["completions"], f"{job['metadata']['name']}-{worker['name']}-0-%d.{job['metadata']['name']}"


def trainjob():
    both = documents("trainjob.yaml")
    runtime, job = both["TrainingRuntime"], both["TrainJob"]
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    reference = job["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == (runtime["kind"], runtime["metadata"]["name"])
    number = job["spec"]["trainer"]["numNodes"]
    return job["spec"]["trainer"], number, f"{job['metadata']['name']}-{node['name']}-0-%d.{job['metadata']['name']}"


@pytest.mark.parametrize("manifest", [jobset, trainjob])
def test_each_pod_finds_all_others_by_their_host_names(manifest):
    container, number, host = manifest()
    for index in range(number):
        cluster = read_cluster(tf_config(container, index).stdout)
        assert cluster.index == index
        assert [address for _, _, address in cluster.tasks] == [f"{host % each}:2222" for each in range(number)]


def test_the_operator_of_a_tfjob_sets_tf_config_itself():
    spec = documents("tfjob.yaml")["TFJob"]["spec"]["tfReplicaSpecs"]
    assert list(spec) == ["Worker"]  # no parameter servers, and no evaluator
    (container,) = spec["Worker"]["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow"
    assert container["command"][:2] == ["zoo", "train"]
    assert "env" not in container


def test_ray_starts_the_same_command_on_each_worker(monkeypatch):
    spec = importlib.util.spec_from_file_location("ray_train", FOLDER / "ray_train.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    calls = []
    monkeypatch.setattr(script.subprocess, "run", lambda command, **options: calls.append((command, options)))
    script.train_on_worker({"arguments": ["dates", "--out", "/runs/dates"]})
    ((command, options),) = calls
    assert command == ["zoo", "train", "dates", "--out", "/runs/dates"]
    assert options == {"check": True}, "the environment, with Ray's TF_CONFIG, is inherited"
