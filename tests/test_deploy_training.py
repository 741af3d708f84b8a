"""`deploy/training/`: every worker gets a TF_CONFIG that `zoo.distribution` reads, and the same command and image."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from zoo.distribution import read_cluster

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "training"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


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


class TestImage:
    TEXT = (FOLDER / "Dockerfile").read_text(encoding="utf-8")

    def given(self, instruction):
        """What follows a name of an instruction, of each time that it occurs."""
        lines = self.TEXT.replace("\\\n", "").splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{instruction} ")]

    def test_the_package_is_copied_whole(self):
        copied = {source for each in self.given("COPY") for source in each.split()[:-1]}
        assert all((ROOT / each).exists() for each in copied)
        needed = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
        assert copied == needed | {*PROJECT["tool"]["setuptools"]["package-dir"].values()}

    def test_what_it_needs_is_installed_before_the_sources_are_copied(self, tmp_path):
        first, *_ = (each for each in self.given("RUN") if "requirements.txt" in each)
        assert self.TEXT.index("requirements.txt") < self.TEXT.index("COPY training")
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        pip = 'pip() { test "$*" = "install --no-cache-dir --requirement requirements.txt tensorflow"; }\n'
        python = f'python() {{ "{sys.executable}" "$@"; }}\nTENSORFLOW=tensorflow\n'
        subprocess.run(["sh", "-c", pip + python + first], cwd=tmp_path, check=True)
        lines = (tmp_path / "requirements.txt").read_text().splitlines()
        extra = PROJECT["project"]["optional-dependencies"]["train"]
        assert [re.match(r"[\w-]+", line)[0] for line in lines if line.startswith("tensorflow")] == [
            "tensorflow",
            "tensorflow-serving-api",
            "tensorflow-datasets",
        ]
        assert len(lines) == len({*lines}) == len(PROJECT["project"]["dependencies"]) + len(extra)

    def test_its_python_is_one_that_the_package_takes(self):
        (name,) = self.given("FROM")
        least = PROJECT["project"]["requires-python"].removeprefix(">=")
        found = re.fullmatch(r"python:(3\.\d+)-slim", name)[1]
        assert [*map(int, found.split("."))] >= [*map(int, least.split("."))]

    @pytest.mark.parametrize("name", ["jobset.yaml", "tfjob.yaml", "trainjob.yaml"])
    def test_the_manifests_start_it_as_its_user_who_writes_to_the_volumes(self, name):
        def found(part):
            if isinstance(part, dict) and "containers" in part:
                return part
            inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
            return next(filter(None, map(found, inner)), None)

        text = (FOLDER / name).read_text(encoding="utf-8")
        pod = found(list(yaml.safe_load_all(text)))
        (container,) = pod["containers"]
        (user,) = self.given("USER")
        (made,) = (each for each in self.given("RUN") if each.startswith("useradd"))
        folders = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert f"--uid {user} zoo && mkdir {' '.join(sorted(folders, reverse=True))} && chown zoo:zoo" in made
        assert pod["securityContext"] == {"runAsNonRoot": True, "fsGroup": int(user)}
        assert pod["shareProcessNamespace"] is True, "process 1 ignores the SIGTERM that ends a pod"
        assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
        options = re.findall(r"--(?:out|models)[ ,]+(/\w+)", text)
        assert {*options} == folders
        (entry,) = self.given("ENTRYPOINT")
        assert entry == f'["{next(iter(PROJECT["project"]["scripts"]))}"]' == '["zoo"]'
        build = f"docker build --file deploy/training/Dockerfile --tag {container['image']} ."
        assert build in self.TEXT
        assert build in (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")


def test_slurm_starts_a_worker_for_each_task(tmp_path):
    """By stand-ins for Slurm's commands: three nodes with two tasks each, numbered node by node."""
    stand_ins = {
        "scontrol": 'test "$*" = "show hostnames" && printf "node%d\\n" 7 8 12',
        "srun": 'test "$1" = --distribution=block; shift\n'
        'for each in 0 1 2 3 4 5; do SLURM_PROCID=$each "$@" || exit; done',
        "zoo": 'IFS="|"; printf "%s\\n" "$TF_CONFIG" "$*"',
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    of_slurm = {"SLURM_JOB_ID": "1234567", "SLURM_NTASKS_PER_NODE": "2"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **of_slurm}
    command = ["bash", FOLDER / "slurm.sh", "my recipe.toml", "--out", "/shared/runs/mine"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[1::2] == ["train|my recipe.toml|--out|/shared/runs/mine"] * 6
    for index, line in enumerate(lines[::2]):
        cluster = read_cluster(line)
        assert cluster.index == index
        addresses = [f"node{node}:{port}" for node in (7, 8, 12) for port in (24567, 24568)]
        assert [address for _, _, address in cluster.tasks] == addresses
    assert len(lines) == 12
