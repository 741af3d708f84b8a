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


def test_a_tfjob_starts_again_as_often_as_a_jobset():
    """Its operator adds up the restarts of all workers, and fails the job when they reach the limit."""
    most = documents("jobset.yaml")["JobSet"]["spec"]["failurePolicy"]["maxRestarts"]
    spec = documents("tfjob.yaml")["TFJob"]["spec"]
    assert spec["runPolicy"]["backoffLimit"] == most * spec["tfReplicaSpecs"]["Worker"]["replicas"] + 1


def test_ray_starts_the_same_command_on_each_worker(monkeypatch):
    spec = importlib.util.spec_from_file_location("ray_train", FOLDER / "ray_train.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    calls = []
    monkeypatch.setattr(script.subprocess, "run", lambda command, **options: calls.append((command, options)))
    script.train_on_worker({"arguments": ["dates", "--out", "/runs/dates"]})
    ((command, options),) = calls
    assert command == ["zoo", "train", "--wait", "600", "dates", "--out", "/runs/dates"]
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


# Stand-ins for Slurm's commands and for `zoo`: three nodes, six tasks that are numbered node by node.
OF_SLURM = {
    "scontrol": 'if [ "$1" = show ]; then printf "node%d\\n" 7 8 12; else echo "scontrol $*"; fi',
    # As srun does, it waits for all tasks and exits with the highest code.
    "srun": 'highest=0; while [ "$1" != bash ]; do echo "srun $1"; shift; done\n'
    'for each in 0 1 2 3 4 5; do SLURM_PROCID=$each "$@"; code=$?; (( code <= highest )) || highest=$code; done\n'
    "exit $highest",
    "zoo": 'codes=($CODES); IFS="|"; printf "%s\\n" "$TF_CONFIG" "$*"; exit "${codes[SLURM_PROCID]:-0}"',
}


class TestSlurm:
    @pytest.fixture
    def batch(self, tmp_path):
        """The script, as Slurm runs it with some variables; it returns the exit code and the lines of stdout."""
        for name, text in OF_SLURM.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"

        def run(**variables):
            environment = {"PATH": path, "SLURM_JOB_ID": "1234567", "SLURM_NTASKS_PER_NODE": "2", **variables}
            command = ["bash", FOLDER / "slurm.sh", "my recipe.toml", "--out", "/shared/runs/mine"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.stderr == ""
            return done.returncode, done.stdout.splitlines()

        return run

    @staticmethod
    def clusters(lines):
        return [read_cluster(line) for line in lines if line.startswith("{")]

    def test_each_task_is_a_worker(self, batch):
        code, lines = batch()
        assert code == 0
        assert "srun --wait=0" in lines, "or the WaitTime of a cluster ends the chief, which works after the others"
        assert [line for line in lines if line.startswith("train")] == [
            "train|--wait|600|my recipe.toml|--out|/shared/runs/mine"
        ] * 6
        found = self.clusters(lines)
        assert [cluster.index for cluster in found] == [0, 1, 2, 3, 4, 5]
        for cluster in found:
            hosts, ports = zip(*(address.split(":") for _, _, address in cluster.tasks), strict=True)
            assert hosts == ("node7", "node7", "node8", "node8", "node12", "node12")
            first = int(ports[0])
            assert [*map(int, ports)] == [first, first + 1] * 3

    @pytest.mark.parametrize("job", [1234567, 1249998])
    @pytest.mark.parametrize("tasks", [(1, 1, 1), (4, 4, 4), (16, 16, 16), (8, 1, 2), (1, 4, 1)])
    def test_jobs_that_follow_one_another_may_share_a_node(self, batch, job, tasks):
        taken = []
        for number, each in enumerate(tasks, job):
            _, lines = batch(SLURM_JOB_ID=str(number), SLURM_NTASKS_PER_NODE=str(each))
            ports = {int(address.partition(":")[2]) for _, _, address in self.clusters(lines[:3])[0].tasks}
            assert len(ports) == each
            assert min(ports) >= 20000
            assert max(ports) < 32768, "from there on, Linux gives ports to connections"
            taken += ports
        assert len({*taken}) == len(taken)

    def test_a_task_gets_the_processors_that_the_job_asked_for(self, batch):
        assert "srun --cpus-per-task=7" in batch(SLURM_CPUS_PER_TASK="7")[1]
        assert not any("cpus" in line for line in batch()[1])

    @pytest.mark.parametrize("codes", ["75 75 75 75 137 75", "75 75 75 75 0 75", "143 75 75 75 75 75"])
    def test_after_the_loss_of_a_worker_the_job_starts_again(self, batch, codes):
        """srun gives the code of the lost worker, or of the others, whichever is the higher."""
        for restarts in ({}, {"SLURM_RESTART_COUNT": "19"}):
            code, lines = batch(CODES=codes, **restarts)
            assert code == max(map(int, codes.split()))
            assert lines[-1] == "scontrol requeue 1234567"

    def test_it_starts_again_as_often_as_a_jobset(self, batch):
        most = documents("jobset.yaml")["JobSet"]["spec"]["failurePolicy"]["maxRestarts"]
        for count, again in ((most - 1, True), (most, False)):
            code, lines = batch(CODES="75 75 75 75 75 75", SLURM_RESTART_COUNT=str(count))
            assert code == 75
            assert ("scontrol requeue 1234567" in lines) == again

    @pytest.mark.parametrize("codes", ["0 0 0 0 0 0", "2 2 2 2 2 2", "1 0 0 0 0 0", "127 127 127 127 127 127"])
    def test_a_mistake_would_only_be_repeated(self, batch, codes):
        code, lines = batch(CODES=codes)
        assert code == max(map(int, codes.split()))
        assert not any(line.startswith("scontrol") for line in lines)
