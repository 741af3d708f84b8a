"""`model.fit` of any Keras 3 model on many machines: a process for each worker, gradients averaged by collectives.

    with multi_worker() as workers:
        model = keras.Sequential([...])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        workers.distribute(model)
        model.fit(workers.shard(dataset), epochs=5)

The cluster is read from the environment variable `TF_CONFIG`; without it there is one worker, and nothing changes.
docs/distributed.md says what happens in failures; benchmarks/notes.md what it costs, and why it is not
`MultiWorkerMirroredStrategy`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.cluster import CONNECT_SECONDS, Cluster, ClusterError, Meeting, answers, read_cluster

__all__ = ["Cluster", "ClusterError", "Workers", "multi_worker", "read_cluster"]

EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong with this worker; start all again
_GROUP = 1907  # a key of our own, since TensorFlow numbers its groups from 1
_POLL_SECONDS = 2.0  # between two looks at the other workers
_STRIKES = 3  # a worker is lost after so many refused connections in a row
_GOODBYE_SECONDS = 10.0  # the wait for the others at the end
_SEEDS = 1_000_003  # from the seed of one worker to that of the next; a prime
_OF_LOST_WORKERS = (  # what a collective operation raises after a peer's death
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


@contextlib.contextmanager
def multi_worker(wait: float = 60.0) -> Iterator[Workers]:
    """Connects this process with the other workers of `TF_CONFIG`, and waits for them again at the end.

    Enter it before TensorFlow computes anything: it starts TensorFlow's server. Every worker runs the same program; all
    call `fit`, `evaluate` and the methods of `Workers` in the same order.

    If a worker is lost, the others end after 5 to 25 seconds, with one sentence on stderr and the exit code 75; then
    start all again. They end by `os._exit`, because TensorFlow's collectives cannot be interrupted from Python.

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
    meeting = Meeting(cluster)
    meeting.wait(wait)
    watch = _Watch(cluster, meeting.places)
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
        # the process. If all workers answer, one may have been started again, or stood still for more than the 10
        # seconds that TensorFlow waits for a sign of life; otherwise it is another error.
        time.sleep(_STRIKES * (_POLL_SECONDS + CONNECT_SECONDS) + 1)
        if "Collective" in str(error):
            said = str(error).strip().splitlines()[0]
            watch.end(
                "a worker was lost, stood still for 10 seconds, or was started again by itself; start all workers "
                f"again. TensorFlow: {said}"
            )
        raise
    finally:
        watch.stopped.set()

    # Whoever leaves now may close connections that another still needs for the end of the barrier above. This second
    # one is passed only after all have passed the first; whether it ends well does not matter.
    def last_barrier():
        with contextlib.suppress(tf.errors.OpError):
            workers.barrier()

    last = threading.Thread(target=last_barrier, daemon=True)
    last.start()
    last.join(_GOODBYE_SECONDS)


class _Watch(threading.Thread):
    """Ends this process when another worker is lost, because a collective operation then may wait for ever.

    A worker is there as long as the port of its TensorFlow server accepts connections: the kernel closes it in the
    moment that the process dies. A worker that hangs keeps its port open, so the others wait for it.

    Args:
        cluster: the workers.
        places: the IP address and port of each other worker, by its number.
    """

    def __init__(self, cluster: Cluster, places: Mapping[int, tuple[str, int]]):
        super().__init__(name="workers", daemon=True)
        self.cluster, self.places = cluster, places
        self.stopped = threading.Event()

    def run(self):
        """Looks at the others until it is stopped."""
        strikes = dict.fromkeys(self.places, 0)
        seen: set[int] = set()
        while not self.stopped.wait(_POLL_SECONDS):
            for index, place in self.places.items():
                if answers(place):
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

    def agree(self, what: str, value: str, changes: Callable[[str, str], Sequence[str]] | None = None) -> None:
        """Checks that all workers have the same value.

        Args:
            what: the name of the value in the message.
            value: the value, of any length; a hash of it is compared.
            changes: gives the names of what differs in two values, for the message of a worker that has another value
                than the chief; None for no names.

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
            told = f"the workers differ in their {what}: {names} not as {self._cluster.name(0)}"
            if changes is not None:
                of_chief = self.broadcast_bytes(value.encode()).decode()
                if differing := changes(of_chief, value):
                    told += f"; this one in {', '.join(differing)}"
            raise ClusterError(told)

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
        return self.gather_bytes(content if self.is_chief else b"")[0]

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """The bytes that each worker gives, in the order of the workers; every worker gets all of them."""
        if self.count == 1:
            return [content]
        sizes = np.zeros(self.count, np.int64)
        sizes[self.index] = len(content)
        ends = np.cumsum(self.sum(tf.constant(sizes)).numpy())
        if not ends[-1]:
            return [b""] * self.count
        buffer = np.zeros(-(-ends[-1] // 4), np.int32)
        end = ends[self.index]
        buffer.view(np.uint8)[end - len(content) : end] = np.frombuffer(content, np.uint8)
        # Each byte is of one worker and 0 at all others, so the sum of the integers that four bytes make has no carry.
        received = self.sum(tf.constant(buffer)).numpy().tobytes()
        return [received[begin:end] for begin, end in itertools.pairwise([0, *ends])]

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
            message = f"a batch has fewer rows than there are workers ({self.count}); use drop_remainder=True"
            with tf.control_dependencies([tf.debugging.assert_greater_equal(number, self.count, message)]):
                parts = tf.nest.map_structure(lambda array: array[self.index :: self.count], batch)
            return parts if len(parts) > 1 else parts[0]

        return dataset.map(rows, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def distribute(self, model: keras.Model) -> keras.Model:
        """Lets `fit` and `evaluate` of a model work on all workers together. Call it after each `compile`.

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
        model.train_step = step = _AveragedStep(self, model)
        model.get_metrics_result = _SharedMetrics(self, model, step)
        model.make_train_function = _train_function_without_xla(model)
        model.train_function = None  # an earlier `fit` has made one, which trains without the other workers
        return model


class _AveragedStep:
    """A training step whose gradients are averaged over the workers before the optimizer sees them.

    The model's own step runs with an optimizer that only hands out its gradients; so whatever a step computes, its
    gradients can leave a graph that XLA compiled, which a collective operation cannot be part of.
    """

    def __init__(self, workers: Workers, model: keras.Model):
        self.workers, self.model = workers, model
        # A model that was compiled and distributed before, such as to train with frozen layers first, has one already.
        self.own_step = getattr(model.train_step, "own_step", model.train_step)
        self.is_computing = False  # the model's own step runs
        self.optimizer = model.optimizer
        self.apply = model.optimizer.apply
        self.weight: Callable[[Any], tf.Tensor] = getattr(model, "loss_weight", _rows)
        self.compute = self.gradients
        if not model.run_eagerly:
            # Without AutoGraph, as Keras runs a step of one worker; to convert the code of the step takes longer.
            compiled = model.jit_compile
            self.compute = tf.function(self.gradients, jit_compile=compiled, reduce_retracing=True, autograph=False)
        self.variables: list[Any] = []

    def gradients(self, data: Any) -> tuple[list[tf.Tensor], tf.Tensor, Any]:
        """(gradients of the variables that have one, what the batch counts, the model's own logs)."""
        calls: list[list[tuple[Any, Any]]] = []

        def hand_out(grads, trainable_variables=None):
            calls.append(list(zip(grads, trainable_variables or self.model.trainable_variables, strict=True)))

        self.optimizer.apply, self.is_computing = hand_out, True
        try:
            logs = self.own_step(data)
        finally:
            self.optimizer.apply, self.is_computing = self.apply, False
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
        if self.model.optimizer is not self.optimizer:
            raise ValueError("after `compile`, call `workers.distribute(model)` again: the model has another optimizer")
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

    def __init__(self, workers: Workers, model: keras.Model, step: _AveragedStep):
        self.workers, self.model, self.step = workers, model, step
        self.own = getattr(model.get_metrics_result, "own", model.get_metrics_result)

    def __call__(self) -> Mapping[str, Any]:
        """The results."""
        if not tf.executing_eagerly() or self.step.is_computing:  # asked for within a step
            return self.own()
        # A metric of Keras has sums as its state, such as (total, count) of a mean.
        states = [variable for metric in self.model.metrics for variable in metric.variables]
        of_metrics = {id(state) for state in states}
        # Frozen weights are equal everywhere, and the mean of three equal numbers may differ from them in its last bit.
        weights = {id(each) for layer in self.model._flatten_layers() for each in layer._trainable_variables}
        averages = [
            variable
            for variable in self.model.non_trainable_variables
            if id(variable) not in of_metrics | weights and keras.backend.is_float_dtype(variable.dtype)
        ]
        before = [tf.convert_to_tensor(state) for state in states]
        sums = self.workers.sums([*before, *map(tf.convert_to_tensor, averages)])
        for variable, value in zip([*states, *averages], sums, strict=True):
            variable.assign(value if id(variable) in of_metrics else value / self.workers.count)
        # A number, or one for each class.
        results = {name: np.array(value) if np.ndim(value) else float(value) for name, value in self.own().items()}
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
