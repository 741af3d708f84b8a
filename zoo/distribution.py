"""`model.fit` of any Keras 3 model on many machines: a process for each worker, gradients averaged by collectives.

    with multi_worker() as workers:
        model = keras.Sequential([...])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        workers.distribute(model)
        model.fit(workers.shard(dataset), epochs=5)

The cluster is read from the environment variable `TF_CONFIG`; without it there is one worker, and nothing changes.
docs/distributed.md says what happens in failures, what it costs, and why it is not `MultiWorkerMirroredStrategy`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import faulthandler
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong with this worker; start all again
FEW_ROWS = "a batch has fewer rows than there are workers"  # begins the message of an InvalidArgumentError
_GROUP = 1907  # a key of our own, since TensorFlow numbers its groups from 1
_POLL_SECONDS = 2.0  # between two looks at the other workers
_CONNECT_SECONDS = 5.0  # how long a worker may take to accept a connection
_MEET_SECONDS = 0.2  # between two looks, until all are there
_CONFIRMED, _LONGEST_LINE = b"confirmed\n", 100  # of what workers say when they meet
_STRIKES = 3  # a worker is lost after so many refused connections in a row
_GOODBYE_SECONDS = 10.0  # the wait for the others at the end
_JOBS = ("chief", "worker")  # in the order of their numbers
_OF_LOST_WORKERS = (  # what a collective operation raises after a peer's death
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


class ClusterError(ValueError):
    """Workers that cannot train together: a wrong `TF_CONFIG`, a port in use, or different models or data."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What `TF_CONFIG` says.

    Attributes:
        tasks: (job, number within the job, address) of each worker; the first is the chief.
        index: the place of this worker among them.
    """

    tasks: tuple[tuple[str, int, str], ...]
    index: int

    def name(self, index: int) -> str:
        """A worker in messages."""
        job, number, address = self.tasks[index]
        return f"{job} {number} ({address})"


def read_cluster(text: str | None) -> Cluster | None:
    """Reads the value of `TF_CONFIG`; None where it is not set, or names one worker only.

    Raises:
        ClusterError: it cannot be read, or describes no cluster of workers.
    """
    if not text or not text.strip():
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ClusterError(f"TF_CONFIG is not valid JSON ({error}). Received: {text}") from None
    jobs = config.get("cluster") if isinstance(config, dict) else None
    task = config.get("task") if isinstance(config, dict) else None
    if not isinstance(jobs, dict) or not isinstance(task, dict):
        raise ClusterError(
            'TF_CONFIG must be like {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
            f". Received: {text}"
        )
    others = sorted(set(jobs) - set(_JOBS))
    if others:
        raise ClusterError(f"TF_CONFIG may only have the jobs chief and worker. Received: {', '.join(others)}")
    tasks = []
    for job in _JOBS:
        addresses = jobs.get(job, [])
        if not isinstance(addresses, list) or not all(_is_address(address) for address in addresses):
            raise ClusterError(f'TF_CONFIG: {job} must be a list of "host:port". Received: {addresses!r}')
        if job == "chief" and len(addresses) > 1:
            raise ClusterError(f"TF_CONFIG: there can be only one chief. Received: {addresses!r}")
        tasks += [(job, number, address) for number, address in enumerate(addresses)]
    addresses = [address for _, _, address in tasks]
    if len(set(addresses)) < len(addresses):
        raise ClusterError(f"TF_CONFIG names an address twice. Received: {', '.join(addresses)}")
    for key in ("type", "index"):
        if task.get(key) is None:
            raise ClusterError(f'TF_CONFIG: "task" has no "{key}". Received: {text}')
    kind, place = task["type"], task["index"]
    for index, (job, number, _) in enumerate(tasks):
        if job == kind and str(number) == str(place):  # some schedulers write the index as a string
            return Cluster(tuple(tasks), index) if len(tasks) > 1 else None
    sizes = " and ".join(f"{len(jobs[job])} of type {job}" for job in _JOBS if job in jobs) or "none"
    raise ClusterError(f"TF_CONFIG has no task {kind} {place}: its workers are {sizes}. Received: {text}")


def is_chief() -> bool:
    """Whether `TF_CONFIG` makes this process the first of its workers, or the only one."""
    cluster = read_cluster(os.environ.get("TF_CONFIG"))
    return cluster is None or cluster.index == 0


def _is_address(value: Any) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and port.isdigit() and 0 < int(port) < 2**16


@contextlib.contextmanager
def multi_worker(wait: float = 60.0) -> Iterator[Workers]:
    """Connects this process with the other workers of `TF_CONFIG`, and waits for them again at the end.

    Enter it before TensorFlow computes anything: it starts TensorFlow's server. Every worker runs the same program; all
    call `fit`, `evaluate` and the methods of `Workers` in the same order.

    If a worker is lost, the others end within a minute with one sentence on stderr and the exit code 75; then start all
    again. They end by `os._exit`, because TensorFlow's collectives cannot be interrupted from Python.

    Args:
        wait: how many seconds the workers may take to start.

    Yields:
        The workers; one worker without `TF_CONFIG`.

    Raises:
        ClusterError: `TF_CONFIG` is wrong or differs between the workers, the port of this worker is in use, or a
            worker did not come.
    """
    cluster = read_cluster(os.environ.get("TF_CONFIG"))
    if cluster is None:
        yield Workers()
        return
    if not wait > 0:
        raise ClusterError(f"the wait for other workers must be more than 0 seconds. Received: wait={wait:g}")
    _Meeting(cluster).wait(wait)
    watch = _Watch(cluster)
    watch.start()
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        # A worker may be lost in the moment before all have joined. Only a thread of C could end this one then.
        faulthandler.dump_traceback_later(wait, exit=True)
        try:
            workers = Workers(cluster)
        finally:
            faulthandler.cancel_dump_traceback_later()
        workers.agree("versions of TensorFlow and Keras", f"{tf.__version__} {keras.__version__}")
        # TensorFlow's server catches SIGTERM and goes on; `kill`, `docker stop` and schedulers mean an end.
        if terminate is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)
        yield workers
        workers.barrier()
    except _OF_LOST_WORKERS as error:
        # A collective fails at once where a peer's connection is closed. The watch then names the lost worker, and ends
        # the process. If all workers answer, one may have been started again; otherwise it is another error.
        time.sleep(_STRIKES * (_POLL_SECONDS + _CONNECT_SECONDS) + 1)
        if "Collective" in str(error):
            said = str(error).strip().splitlines()[0]
            watch.end(f"a worker was lost, or started again by itself; start all workers again. TensorFlow: {said}")
        raise
    finally:
        watch.stopped.set()
    # Whoever leaves now may close connections that another still needs for the end of the barrier above. This second
    # one is passed only after all have passed the first; whether it ends well does not matter.
    last = threading.Thread(target=_quietly(workers.barrier), daemon=True)
    last.start()
    last.join(_GOODBYE_SECONDS)


def _quietly(function: Callable[[], Any]) -> Callable[[], None]:
    def call():
        with contextlib.suppress(tf.errors.OpError):
            function()

    return call


class _Meeting:
    """Waits until all workers are there, and checks that all have the same list of workers.

    TensorFlow's start waits for them up to an hour, and holds Python's lock all the time, so no thread could end it. So
    before it each worker listens at its port itself, and connects to all others. Who connects says its line, gets the
    other one's, and confirms it. A line is a hash of the list of workers, and the worker's number. A worker leaves when
    it has the confirmed line of all others at their addresses, and all others have the confirmed line of it. Each
    connection has a thread, so that nobody who is slow or silent holds up the others.

    Attributes:
        refusing: the workers that no connection has reached yet.
        read: those whose line was read at their address.
        came: those that have connected.
        error: the first mistake, None if there is none.
    """

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.others = {index for index in range(len(cluster.tasks)) if index != cluster.index}
        self.refusing, self.read, self.came = set(self.others), set[int](), set[int]()
        self.error: ClusterError | None = None
        self._ended = threading.Event()

    def wait(self, seconds: float) -> None:
        """Meets the others.

        Raises:
            ClusterError: see `multi_worker`.
        """
        port = int(self.cluster.tasks[self.cluster.index][2].rpartition(":")[2])
        deadline = time.monotonic() + seconds
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        try:
            # TensorFlow's server would share a port with any other program that allows it; this does not.
            listener = socket.create_server(("", port), family=family, backlog=1024, dualstack_ipv6=both)
        except OSError as error:
            what = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise ClusterError(
                f"port {port} {what}: TF_CONFIG gives it to {self._name()}, which is this process"
            ) from None
        listener.settimeout(_MEET_SECONDS)
        listening = threading.Thread(target=self._listen, args=(listener,), daemon=True)
        listening.start()
        for index in self.others:
            threading.Thread(target=self._ask, args=(index,), daemon=True).start()
        try:
            while self.error is None and not (self.others <= self.read and self.others <= self.came):
                if time.monotonic() > deadline:
                    self.error = ClusterError(self._who_is_missing(seconds))
                time.sleep(_MEET_SECONDS / 4)
        finally:
            self._ended.set()
            listening.join()
        if self.error is not None:
            raise self.error

    def _listen(self, listener: socket.socket) -> None:
        with listener:
            while not self._ended.is_set():
                with contextlib.suppress(OSError):
                    threading.Thread(target=self._greet, args=(listener.accept()[0],), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        """Somebody has connected."""
        with self._talking(connection) as stream:
            found = self._worker_of(stream.readline(_LONGEST_LINE))
            connection.sendall(self._line())
            if found is not None and stream.readline(_LONGEST_LINE) == _CONFIRMED:
                self.came.add(found)

    def _ask(self, index: int) -> None:
        """Connects to a worker until its line has come."""
        while not self._ended.is_set() and index not in self.read:
            with contextlib.suppress(OSError, UnicodeError):  # a host's name may be no name
                connection = _connected(self.cluster, index)
                if connection.getsockname() == connection.getpeername():  # where nobody listens, at a port of its own
                    connection.close()
                    continue
                self.refusing.discard(index)
                with self._talking(connection) as stream:
                    connection.sendall(self._line())
                    found = self._worker_of(stream.readline(_LONGEST_LINE))
                    if found not in (index, None):
                        raise ClusterError(
                            f"{self._name()}: at the address of {self._name(index)} is {self._name(found)}; is "
                            '"index" the same on two machines?'
                        )
                    if found is not None:
                        connection.sendall(_CONFIRMED)
                        self.read.add(index)
            self._ended.wait(_MEET_SECONDS)

    @contextlib.contextmanager
    def _talking(self, connection: socket.socket) -> Iterator[Any]:
        """The connection's stream. Keeps a mistake for `wait`; a connection that breaks is none."""
        try:
            connection.settimeout(_CONNECT_SECONDS)
            with connection, connection.makefile("rb") as stream:
                yield stream
        except ClusterError as error:
            self.error = self.error or error
        except OSError:
            pass

    def _line(self) -> bytes:
        listed = hashlib.sha256(repr(self.cluster.tasks).encode()).hexdigest()[:16]
        return f"attention-zoo {listed} {self.cluster.index}\n".encode()

    def _worker_of(self, line: bytes) -> int | None:
        """The number of the worker that says a line; None if another program does."""
        found = line.decode(errors="replace").split()
        word, listed, _ = self._line().decode().split()
        if len(found) != 3 or found[0] != word or not found[2].isdigit():
            return None
        if found[1] != listed:
            here = ", ".join(address for _, _, address in self.cluster.tasks)
            raise ClusterError(
                f"{self._name()}: another worker has another list of workers in its TF_CONFIG. Received here: {here}"
            )
        return int(found[2])

    def _name(self, index: int | None = None) -> str:
        return self.cluster.name(self.cluster.index if index is None else index)

    def _who_is_missing(self, seconds: float) -> str:
        """One sentence."""

        def reason(index: int) -> str:
            if index in self.refusing:
                return f"did not come within {seconds:g} seconds"
            if index in self.read:
                return "cannot connect to this one"
            return "does not answer as a worker that starts: another program has its port, or it trains already"

        # Workers that only wait for a missing one have no part in it.
        wrong = self.refusing or self.others - self.read or self.others - self.came
        return f"{self._name()}: {'; '.join(f'{self._name(index)} {reason(index)}' for index in sorted(wrong))}"


def _connected(cluster: Cluster, index: int) -> socket.socket:
    host, _, port = cluster.tasks[index][2].rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS)


def _answers(cluster: Cluster, index: int) -> bool:
    """Whether a worker's port accepts connections."""
    try:
        _connected(cluster, index).close()
    except OSError:
        return False
    return True


class _Watch(threading.Thread):
    """Ends this process when another worker is lost, because a collective operation then may wait for ever.

    A worker is there as long as the port of its TensorFlow server accepts connections: the kernel closes it in the
    moment that the process dies. TensorFlow's own health check covers workers that hang.
    """

    def __init__(self, cluster: Cluster):
        super().__init__(name="workers", daemon=True)
        self.cluster = cluster
        self.stopped = threading.Event()

    def run(self):
        """Looks at the others until it is stopped."""
        others = [index for index in range(len(self.cluster.tasks)) if index != self.cluster.index]
        strikes = dict.fromkeys(others, 0)
        seen: set[int] = set()
        while not self.stopped.wait(_POLL_SECONDS):
            for index in others:
                if _answers(self.cluster, index):
                    seen.add(index)
                    strikes[index] = 0
                else:
                    strikes[index] += 1
                if index in seen and strikes[index] >= _STRIKES:
                    self.end(f"{self.cluster.name(index)} is lost; start all workers again")

    def end(self, reason: str) -> None:
        """Prints the reason and ends the process, unless the watch was stopped."""
        if not self.stopped.is_set():
            with contextlib.suppress(OSError, ValueError):  # whoever reads the output may be gone
                sys.stdout.flush()
                print(f"{self.cluster.name(self.cluster.index)}: {reason}", file=sys.stderr, flush=True)
            os._exit(EXIT_CODE)


class Workers:
    """The workers of a cluster, each a process; made by `multi_worker`.

    Attributes:
        count: how many there are.
        index: the number of this one.
        is_chief: whether this is the first, which alone should write files.
    """

    def __init__(self, cluster: Cluster | None = None):
        self.count = len(cluster.tasks) if cluster else 1
        self.index = cluster.index if cluster else 0
        self.is_chief = self.index == 0
        self._cluster = cluster
        if cluster:
            # It starts TensorFlow's server and joins the others. Of the strategy itself nothing else is used.
            try:
                self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
            except RuntimeError as error:
                if "at program startup" not in str(error):
                    raise
                raise ClusterError(
                    "enter `multi_worker()` at the beginning of the program: TensorFlow has computed something "
                    "already. Models, tensors and a tf.data.Dataset of tensors are made inside the block"
                ) from None
            with tf.device("CPU:0"):
                self._calls = tf.Variable(0, trainable=False, dtype=tf.int32)
                self._order = tf.Variable(0.0, trainable=False)

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum of one tensor over all workers, which all must give in one shape and dtype.

        It may be called in a `tf.function`, but not in one that XLA compiles.
        """
        if self.count == 1:
            return tf.convert_to_tensor(tensor)
        # A key for each execution, not for each graph: workers may trace their graphs in different orders. It is
        # counted when the tensor is there, since a step that finds no more data must count nothing.
        with tf.control_dependencies([tensor]), tf.device("CPU:0"):
            key = self._calls.assign_add(1)
        return tf.raw_ops.CollectiveReduceV2(
            input=tensor,
            group_size=self.count,
            group_key=_GROUP,
            instance_key=key,
            ordering_token=[self._order.handle],
            merge_op="Add",
            final_op="Id",
            communication_hint="auto",  # NCCL among GPUs, otherwise TensorFlow's ring
        )

    def sums(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The sums of tensors over all workers, with one message a dtype: a message for each would cost its latency."""
        results: list[Any] = [None] * len(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
            buffer = tf.concat([tf.reshape(tensors[place], [-1]) for place in places], axis=0)
            sizes = [tf.size(tensors[place]) for place in places]
            for place, part in zip(places, tf.split(self.sum(buffer), sizes), strict=True):
                results[place] = tf.ensure_shape(tf.reshape(part, tf.shape(tensors[place])), tensors[place].shape)
        return results

    def barrier(self) -> None:
        """Waits for all workers."""
        self.sum(tf.zeros([1])).numpy()

    def agree(self, what: str, value: str) -> None:
        """Checks that all workers have the same value.

        Args:
            what: the name of the value in the message.
            value: the value, of any length; a hash of it is compared.

        Raises:
            ClusterError: they differ; every worker raises it.
        """
        own = np.frombuffer(hashlib.sha256(value.encode()).digest()[:16], np.uint16).astype(np.int32)  # (8,)
        table = np.zeros([self.count, len(own)], np.int32)
        table[self.index] = own
        table = self.sum(tf.constant(table)).numpy()
        others = [index for index in range(self.count) if (table[index] != table[0]).any()]
        if others and self._cluster:
            names = ", ".join(map(self._cluster.name, others))
            raise ClusterError(f"the workers differ in their {what}: {names} not as {self._cluster.name(0)}")

    def broadcast(self, variables: Sequence[Any]) -> None:
        """Gives all workers the values that the chief's variables have."""
        if self.count == 1:
            return
        values = [tf.convert_to_tensor(variable) for variable in variables]
        # Few types have a collective operation; the bits of all others travel as integers.
        content = b"".join(np.ascontiguousarray(value.numpy()).tobytes() for value in values)
        received = self.broadcast_bytes(content)
        begin = 0
        for variable, value in zip(variables, values, strict=True):
            array = value.numpy()
            variable.assign(np.frombuffer(received, array.dtype, array.size, begin).reshape(array.shape))
            begin += array.nbytes

    def broadcast_bytes(self, content: bytes) -> bytes:
        """The bytes that the chief gives; those of the others are not used."""
        if self.count == 1:
            return content
        size = int(self.sum(tf.constant([len(content) if self.is_chief else 0], tf.int64)).numpy()[0])
        buffer = np.zeros(-(-size // 4), np.int32)
        if self.is_chief:
            buffer.view(np.uint8)[:size] = np.frombuffer(content, np.uint8)
        return self.sum(tf.constant(buffer)).numpy().tobytes()[:size] if size else b""

    def shard(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """This worker's rows of each batch: with two workers, the even rows and the odd ones.

        The dataset must give the same batches on every worker, so shuffle it with a seed. Each worker reads all of it;
        where reading is what takes the time, give each worker files of its own instead, as many rows on each.

        Args:
            dataset: batches for all workers together, in any structure of arrays that begin with the batch. The parts
                of a batch may differ by one row; a step weighs them by their rows.

        Raises:
            tf.errors.InvalidArgumentError: while it is read: a batch has fewer rows than there are workers.
        """
        if self.count == 1:
            return dataset

        def rows(*batch: Any) -> Any:
            number = tf.shape(tf.nest.flatten(batch)[0])[0]
            message = f"{FEW_ROWS} ({self.count}); use drop_remainder=True"
            with tf.control_dependencies([tf.debugging.assert_greater_equal(number, self.count, message)]):
                parts = tf.nest.map_structure(lambda array: array[self.index :: self.count], batch)
            return parts if len(parts) > 1 else parts[0]

        return dataset.map(rows, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def distribute(self, model: keras.Model) -> keras.Model:
        """Lets `fit` and `evaluate` of a model work on all workers together. Call it after `compile`.

        All begin with the chief's weights and optimizer, so it is enough to load them on the chief. A step has one
        gradient, that of the mean loss over the rows of all workers. Dropout differs from worker to worker. Logs and
        metrics are those of all workers, so callbacks decide the same everywhere. XLA compiles the computation of the
        gradients; they travel outside of it. The moving averages of batch normalisation are averaged over the workers
        where the metrics are read: at the end of an epoch and of an evaluation.

        The training step, Keras' or one of the model's own, must call `apply` or `apply_gradients` of the model's
        optimizer once. The gradient of an embedding is summed by row, also with one worker: otherwise the result would
        depend on the number of workers.

        A model may have a method `loss_weight(data)`, if its loss is a mean over something else than rows: it gives
        what a batch counts, such as the sum of its weights.

        Args:
            model: compiled, and with its weights: `keras.Input` is there, or `model.build` was called.

        Returns:
            The same model.

        Raises:
            ValueError: the model has no weights or no optimizer yet.
            ClusterError: the workers have different models.
        """
        if not model.built or getattr(model, "optimizer", None) is None:
            raise ValueError(
                "a model must have its weights and be compiled before `distribute`: begin it with `keras.Input` or "
                f"call `model.build(shape)`, then `model.compile`. Received: {model.name}, built={model.built}, "
                f"optimizer={getattr(model, 'optimizer', None)}"
            )
        if self.count == 1:
            apply = model.optimizer.apply
            model.optimizer.apply = lambda grads, trainable_variables=None: apply(_dense(grads), trainable_variables)
            return model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        variables = [*model.variables, *model.optimizer.variables]
        shapes = [(str(each.dtype), tuple(each.shape)) for each in variables]
        rate = model.optimizer.get_config().get("learning_rate")
        self.agree("model", f"{shapes} {type(model.optimizer).__name__} {rate}")
        self.broadcast(variables)
        for variable in variables:
            if variable.name == "seed_generator_state":  # (seed, how often it was used), so that dropout differs
                variable.assign_add([_SEEDS * self.index, 0])
        model.train_step = _AveragedStep(self, model)
        model.get_metrics_result = _SharedMetrics(self, model)
        model.make_train_function = _train_function_without_xla(model)
        return model


_SEEDS = 1_000_003  # from the seed of one worker to that of the next; a prime


class _AveragedStep:
    """A training step whose gradients are averaged over the workers before the optimizer sees them.

    The model's own step runs with an optimizer that only hands out its gradients; so whatever a step computes, its
    gradients can leave a graph that XLA compiled, which a collective operation cannot be part of.
    """

    def __init__(self, workers: Workers, model: keras.Model):
        self.workers, self.model = workers, model
        self.own_step = model.train_step
        self.optimizer = model.optimizer
        self.apply = model.optimizer.apply
        self.weight: Callable[[Any], tf.Tensor] = getattr(model, "loss_weight", _rows)
        self.compute = self.gradients
        if not model.run_eagerly:
            self.compute = tf.function(self.gradients, jit_compile=model.jit_compile, reduce_retracing=True)
        self.variables: list[Any] = []

    def gradients(self, data: Any) -> tuple[list[tf.Tensor], tf.Tensor, Any]:
        """(gradients of the variables that have one, what the batch counts, the model's own logs)."""
        calls: list[list[tuple[Any, Any]]] = []

        def hand_out(grads, trainable_variables=None):
            calls.append(list(zip(grads, trainable_variables or self.model.trainable_variables, strict=True)))

        self.optimizer.apply = hand_out
        try:
            logs = self.own_step(data)
        finally:
            self.optimizer.apply = self.apply
        if len(calls) != 1:
            raise ValueError(
                "`train_step` must call `apply` or `apply_gradients` of `model.optimizer` once, so that its gradients "
                f"can be averaged over the workers. Received: {len(calls)} calls"
            )
        pairs = [(grad, variable) for grad, variable in calls[0] if grad is not None]
        self.variables = [variable for _, variable in pairs]
        return _dense([grad for grad, _ in pairs]), tf.cast(self.weight(data), tf.float32), logs

    def __call__(self, data: Any) -> Any:
        """The step."""
        gradients, weight, logs = self.compute(data)
        scalars = [tf.cast(log, tf.float32) for log in tf.nest.flatten(logs)]
        weighted = [each * tf.cast(weight, each.dtype) for each in (*gradients, *scalars)]
        *sums, total = self.workers.sums([*weighted, weight])
        total = tf.maximum(total, 1e-7)  # 0 where no row of any worker counts
        means = [each / tf.cast(total, each.dtype) for each in sums]
        self.apply(means[: len(gradients)], self.variables)
        return tf.nest.pack_sequence_as(logs, means[len(gradients) :])


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Gradients with those of embeddings summed by row.

    An embedding's gradient comes as slices, one for each look-up. Keras' Adam squares each slice, so its second moment
    depends on how a row's look-ups are spread over slices, and then over workers.
    """
    return [None if grad is None else tf.convert_to_tensor(grad) for grad in gradients]


def _rows(data: Any) -> tf.Tensor:
    """What a batch counts in the mean of Keras' losses: its rows."""
    return tf.shape(tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(data)[0])[0])[0]


class _SharedMetrics:
    """`get_metrics_result` of all workers together, where Keras asks for it between the steps."""

    def __init__(self, workers: Workers, model: keras.Model):
        self.workers, self.model = workers, model
        self.own = model.get_metrics_result

    def __call__(self) -> Mapping[str, Any]:
        """The results."""
        if not tf.executing_eagerly() or self.model.run_eagerly:
            return self.own()
        # A metric of Keras has sums as its state, such as (total, count) of a mean.
        states = [variable for metric in self.model.metrics for variable in metric.variables]
        of_metrics = {id(state) for state in states}
        averages = [
            variable
            for variable in self.model.non_trainable_variables
            if id(variable) not in of_metrics and keras.backend.is_float_dtype(variable.dtype)
        ]
        before = [tf.convert_to_tensor(state) for state in states]
        sums = self.workers.sums([*before, *map(tf.convert_to_tensor, averages)])
        for variable, value in zip([*states, *averages], sums, strict=True):
            variable.assign(value if id(variable) in of_metrics else value / self.workers.count)
        results = {name: float(value) for name, value in self.own().items()}
        for state, value in zip(states, before, strict=True):
            state.assign(value)
        return results


def _train_function_without_xla(model: keras.Model) -> Callable[..., Any]:
    own = model.make_train_function

    def make_train_function(force=False):
        compiled, model.jit_compile = model.jit_compile, False
        try:
            return own(force)
        finally:
            model.jit_compile = compiled

    return make_train_function
