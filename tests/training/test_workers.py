"""`zoo train` by several workers on loopback: as by one, whoever is killed, and with one sentence for each mistake."""

import contextlib
import csv
import json
import os
import pathlib
import random
import signal
import threading
import time
import types

import keras
import loopback
import numpy as np
import pytest
from worker_threads import in_threads
from zoo_training import masked_language_modelling, translation
from zoo_training import run as runs
from zoo_training.corpora.pairs import Pairs
from zoo_training.fitting.checkpoint import CheckpointError
from zoo_training.fitting.fit import fit
from zoo_training.schema.recipe import read_recipe

from zoo import distribution
from zoo.cluster import Cluster, ClusterError

ZOO = ["-c", "from zoo_training.cli import main; main()"]
# Neither scores, which a failed scoring leaves out, nor exports: each would make graphs.
TRAINING_ALONE = (
    f"from zoo_training import run; run.score = None; run.Run.export = lambda run, path: path / '1'; {ZOO[1]}"
)
# After the loss of a worker, less time until the others look for it, and until they end: 4 seconds in place of 22.
SOON = "from zoo import distribution; distribution._POLL_SECONDS = distribution.CONNECT_SECONDS = 0.5"
# It is traced in little time.
MODEL = 'model={units=8,dropout=0,annotation_dropout=0,attention="none"}'
SHORT = (
    *("training.batch_size=16", "training.epochs=4", "training.buckets=2", "training.jit_compile=false"),
    *("lengths.max_source=10", "lengths.max_target=10", "training.learning_rate=0.01"),
    "training.epsilon=1e-4",  # of gradients that are rounding alone, Adam would make steps
)


@pytest.fixture
def texts(tmp_path):
    """A recipe's overrides for a corpus of numbers, and the same backwards."""

    def write(folder, rows):
        chance = random.Random(0)
        folder.mkdir()
        for split, number in (("train", rows), ("validation", 24)):
            numbers = ["".join(chance.choices("0123456789", k=chance.randint(1, 7))) for _ in range(number)]
            (folder / f"{split}.tsv").write_text("".join(f"{each}\t{each[::-1]}\n" for each in numbers))
        splits = ",".join(f'{split}="{folder / split}.tsv"' for split in ("train", "validation"))
        return f'corpus={{kind="text",{splits}}}'

    return lambda name="texts", rows=200: write(tmp_path / name, rows)


def command(folder, corpus, *overrides, options=(), program=ZOO):
    sets = [corpus, MODEL, *SHORT, *overrides]
    where = ["--out", folder / "run", "--models", folder / "models"]
    return [*program, "train", "dates", *where, *options, *(part for each in sets for part in ("--set", each))]


def arrays(folder):
    """The best weights that a run ended with, by name."""
    import h5py

    found = {}
    with h5py.File(folder / "run" / "best.weights.h5") as file:
        file.visititems(lambda name, each: found.update({name: each[()]} if isinstance(each, h5py.Dataset) else {}))
    return found


def history(folder):
    return list(csv.DictReader((folder / "run" / "history.csv").open()))


def all_ended(workers, seconds=200):
    results = [loopback.ended(each, seconds) for each in workers]
    assert [code for code, _, _ in results] == [0] * len(results), results
    return results


@pytest.mark.long
def test_after_the_loss_of_a_worker_all_start_again_and_end_with_the_same_weights(texts, tmp_path):
    """Bit for bit, with dropout, accumulated gradients and a moving average; a model that is traced in little time.

    The worker stands still, as on a machine that swaps or is suspended; TensorFlow waits 10 seconds for a sign of life.
    Then it is told to end by SIGTERM, as `docker stop` and schedulers do; TensorFlow's server would go on.
    """
    model = 'model={units=8,dropout=0.2,attention="none"}'
    more = ("training.accumulate=2", "training.average_decay=0.9", "training.buckets=1", "training.epochs=6", model)
    corpus = texts(rows=320)
    options = dict(program=["-c", f"{SOON}; {TRAINING_ALONE}"])
    results = all_ended(loopback.start_all(command(tmp_path / "undisturbed", corpus, *more, **options), 2))
    lines = [" ".join(lines) for _, _, lines in results]
    assert ["epoch 6/6" in each for each in lines] == [True, False], "the chief alone shows the progress"
    again = command(tmp_path / "disturbed", corpus, *more, **options)
    workers = loopback.start_all(again, 2)
    wait_until((tmp_path / "disturbed" / "run" / "checkpoint.npz").is_file)
    time.sleep(random.Random(time.time()).uniform(0, 0.2))
    workers[1].send_signal(signal.SIGSTOP)
    code, _, lines = loopback.ended(workers[0], 100)
    workers[1].terminate()
    workers[1].send_signal(signal.SIGCONT)
    assert loopback.ended(workers[1], 10)[0] == -signal.SIGTERM
    assert code == 75, lines
    assert "a worker was lost, stood still for 10 seconds, or was started again by itself; start all" in lines[-1]
    assert not (tmp_path / "disturbed" / "run" / "metrics.json").exists(), "it must not have ended before"
    all_ended(loopback.start_all(again, 2))
    expected, found = arrays(tmp_path / "undisturbed"), arrays(tmp_path / "disturbed")
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)


@pytest.mark.parametrize(
    ("number", "sent", "ended"),
    [
        (1, signal.SIGTERM, 128 + signal.SIGTERM),
        (2, signal.SIGTERM, 128 + signal.SIGTERM),
        (2, signal.SIGINT, 128 + signal.SIGINT),
        (2, signal.SIGKILL, -signal.SIGKILL),
    ],
    ids=["one", "two", "Ctrl-C", "killed"],
)
def test_local_workers_end_with_the_command(tmp_path, number, sent, ended):
    """One device too; a worker that ignores SIGTERM is killed."""
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN) if sys.argv[1] == '2' else None\n"
        "pathlib.Path(sys.argv[2], str(time.time_ns())).touch()\ntime.sleep(100)\n"
    )
    (tmp_path / "begun").mkdir()
    # Of what a shell starts in the background, SIGINT is ignored, which the tests would inherit.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    short = f"{heard}; import zoo.local_workers as local; local._END_SECONDS = 0.3; local.main()"
    process = loopback.start(["-c", short, "--devices", number, script, number, tmp_path / "begun"])
    wait_until(lambda: len(list((tmp_path / "begun").iterdir())) == number)
    children = below(process)
    process.send_signal(sent)
    code, _, _ = loopback.ended(process, 20)
    assert code in (ended, -sent if sent == signal.SIGINT else ended)
    gone(children)


def test_a_hang_up_is_ignored_as_nohup_wants_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import pathlib, time\nfolder = pathlib.Path({str(tmp_path)!r})\n"
        "while not (folder / 'go').exists():\n time.sleep(0.05)\n(folder / 'end').touch()"
    )
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from zoo.local_workers import main; main()"
    process = loopback.start(["-c", ignoring, "--devices", 2, script])
    wait_until(lambda: len(below(process)) == 2)
    for each in (process.pid, *map(int, below(process))):
        os.kill(each, signal.SIGHUP)
    (tmp_path / "go").touch()
    assert loopback.ended(process, 20)[0] == 0
    assert (tmp_path / "end").exists()


def below(process):
    return pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def gone(processes):
    """Waits until they have ended."""

    def lives(process):
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    wait_until(lambda: not any(map(lives, processes)), 10)


def wait_until(condition, seconds=300):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds
        time.sleep(0.05)


TEACHER = """
import itertools, os, signal
from zoo_training import distillation

calls = itertools.count()

def translate(texts):
    if next(calls) == int(os.environ["LAST"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return [text.replace(" ", os.environ["BETWEEN"]) for text in texts]

distillation._PIECE, distillation._threads = 1, lambda: 1
distillation._load = lambda key, path: translate
"""


@pytest.mark.long
def test_what_a_lost_worker_has_translated_for_a_student_is_kept(tmp_path, monkeypatch):
    """Without a shared disk, and where the workers would not translate alike.

    The corpus is read by `tf.data`, which must not compute before the workers have met.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import registered

    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent / "corpora")
    tfds.disable_progress_bar()
    with registered.skip_registration():
        from pairs_builder.pairs_dataset_builder import Builder
    Builder(data_dir=tmp_path / "data", config="supervised").download_and_prepare()
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "weights").touch()
    keys = f'kind="tfds",name="pairs/supervised",data_dir="{tmp_path / "data"}",teacher="{tmp_path / "teacher"}"'
    hosts, started = loopback.addresses(2), []
    for index, (between, last) in enumerate((("-", 1000), ("+", 3))):
        (tmp_path / str(index)).mkdir()
        arguments = command(tmp_path / str(index), f"corpus={{{keys}}}", program=["-c", f"{SOON}\n{TEACHER}{ZOO[1]}"])
        about = {"BETWEEN": between, "LAST": str(last)}
        started.append(loopback.start(arguments, loopback.config(hosts, index), **about))
    chief, other = started
    assert loopback.ended(other)[0] == -signal.SIGKILL
    code, _, lines = loopback.ended(chief)
    assert code == 75, lines
    assert "lost" in lines[-1] and "start all workers again" in lines[-1]
    assert not any("Traceback" in line for line in lines)
    kept = sorted((tmp_path / "0" / "run").glob("cache/taught-*/0*.json"))
    first, second, *_ = (json.loads(piece.read_text().partition("\n")[2]) for piece in kept)
    assert first[0].startswith("en-ü-train-") and second[0].startswith("en+ü+train+")


def test_a_worker_that_no_longer_answers_is_named(monkeypatch, capsys):
    """It is a closed port that tells: TensorFlow itself might wait for ever."""
    codes, host = [], loopback.socket.create_server(("127.0.0.1", 0))
    watch = distribution._Watch(Cluster((("worker", 0, "a:1"), ("worker", 1, "b:2")), 0), {1: host.getsockname()})
    monkeypatch.setattr(distribution, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr("os._exit", lambda code: codes.append(code) or watch.stopped.set())
    watch.start()
    host.accept()[0].close()
    host.close()
    watch.join(60)
    assert codes == [75]
    assert capsys.readouterr().err == "worker 0 (a:1): worker 1 (b:2) is lost; start all workers again\n"


def in_both(call, error):
    """What is raised in each of two workers, which are threads."""

    def told(workers):
        with pytest.raises(error) as caught:
            call(workers)
        return str(caught.value)

    return in_threads(2, told)


class TestMistakes:
    """Both workers end with the chief's sentence: to wait would last for ever, and after exit code 75 a scheduler would
    start them again.
    """

    def test_different_texts(self, tmp_path):
        prepared = [types.SimpleNamespace(digests={"train": digest}) for digest in "ab"]
        for said in in_both(
            lambda workers: fit(None, prepared[workers.index], tmp_path, workers=workers), ClusterError
        ):
            assert said.startswith("the workers differ in their texts or vocabularies: worker 1 (")

    @pytest.fixture
    def train(self, tmp_path, monkeypatch):
        """`zoo train` of one of the workers, with its recipe."""
        here = threading.local()
        monkeypatch.setattr(runs, "read_cluster", lambda _: here.workers._cluster)
        monkeypatch.setattr(runs, "multi_worker", lambda _: contextlib.nullcontext(here.workers))
        monkeypatch.setattr(runs, "be_silent", lambda: None)

        def train(workers, recipe):
            here.workers = workers
            runs.train("dates", recipe, tmp_path, "zoo train", tmp_path / "models")

        return train

    def test_different_recipes(self, train):
        recipes = [read_recipe("dates", [f"training.learning_rate={rate}"]) for rate in (0.1, 0.2)]
        chief, other = in_both(lambda workers: train(workers, recipes[workers.index]), ClusterError)
        told = "the workers differ in their recipe: worker 1 (host1:2222) not as worker 0 (host0:2222)"
        assert (chief, other) == (told, told + "; this one in training.learning_rate")

    def test_a_folder_that_the_chief_refuses(self, train, tmp_path):
        for name, content in (("history.csv", ""), ("recipe.json", "{}"), ("metrics.json", "[")):
            (tmp_path / name).write_text(content)
        recipe = read_recipe("dates")
        chief, other = in_both(lambda workers: train(workers, recipe), CheckpointError)
        assert chief == other
        assert chief.startswith(str(tmp_path)) and "; --restart begins anew there, and --out names" in chief

    def test_lost_weights_that_the_chief_alone_misses(self, tmp_path, eager):
        short = ("training.buckets=1", "lengths.max_source=4", "lengths.max_target=4")
        recipe = read_recipe("dates", [*SHORT, *short, "model={units=4}", "training.epochs=2"])
        pairs = Pairs(["1", "23", "456"] * 6, ["1", "32", "654"] * 6)

        class Stop(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 1:
                    raise KeyboardInterrupt

        prepared = [translation.prepare(recipe, (pairs, pairs)) for _ in range(3)]
        with pytest.raises(KeyboardInterrupt):
            fit(recipe, prepared[2], tmp_path / "0", [Stop()])
        (tmp_path / "1").mkdir()
        (tmp_path / "0" / "best.weights.h5").rename(tmp_path / "1" / "best.weights.h5")

        def goes_on(workers):
            fit(recipe, prepared[workers.index], tmp_path / str(workers.index), workers=workers)

        for index, said in enumerate(in_both(goes_on, CheckpointError)):
            assert said.startswith(f"{tmp_path / str(index)}/best.weights.h5 is missing; --restart begins anew there")


def test_one_window_to_validate_with(tmp_path, eager):
    """Of a masked language model; the second worker has none."""
    words = random.Random(0).choices(["red", "green", "blue", "grey"], k=332)
    (tmp_path / "text.txt").write_text(" ".join(words[32:]))
    (tmp_path / "short.txt").write_text(" ".join(words[:32]))
    files = f'train="{tmp_path / "text.txt"}",validation="{tmp_path / "short.txt"}"'
    (tmp_path / "gaps.toml").write_text(
        f'corpus={{kind="text",{files}}}\ntokenizer={{size=70}}\n'
        "training={batch_size=4,epochs=1,steps_per_epoch=2,jit_compile=false,epsilon=1e-4}\n"
        'model={family="masked_language_model",encoder={units=4,num_heads=2,num_layers=1,max_length=16,dropout=0}}\n'
    )
    recipe = read_recipe(str(tmp_path / "gaps.toml"))
    prepared = [masked_language_modelling.prepare(recipe) for _ in range(3)]
    alone = fit(recipe, prepared[2], tmp_path / "alone").history
    together = in_threads(2, lambda workers: fit(recipe, prepared[workers.index], tmp_path / "two", workers=workers))
    for worker in together:
        assert worker.history[0]["val_loss"] == pytest.approx(alone[0]["val_loss"], abs=1e-4)


@pytest.mark.long
def test_devices_of_one_machine(texts, tmp_path):
    """The weights, and the scores of each epoch, are those of one device."""
    corpus, epochs = texts(), "training.epochs=2"
    # Python would look for its modules in the current folder.
    (tmp_path / "random.py").write_text("raise SystemExit('not the one of Python')\n")
    together = command(tmp_path / "two", corpus, epochs, options=("--devices", "2"))
    all_ended([loopback.start(["-P", *together], folder=tmp_path)])
    recipe = read_recipe("dates", [corpus, MODEL, *SHORT, epochs])
    fit(recipe, translation.prepare(recipe), tmp_path / "one" / "run")
    one, two = arrays(tmp_path / "one"), arrays(tmp_path / "two")
    for name, array in one.items():
        np.testing.assert_allclose(array, two[name], atol=2e-5, err_msg=name)
    for alone, together in zip(history(tmp_path / "one"), history(tmp_path / "two"), strict=True):
        assert {name: float(each) for name, each in alone.items()} == pytest.approx(
            {name: float(each) for name, each in together.items()}, abs=1e-4
        )
    metrics = json.loads((tmp_path / "two" / "run" / "metrics.json").read_text())
    assert "unfinished" not in metrics
    assert list((tmp_path / "two" / "models" / "dates").glob("*/saved_model.pb"))
