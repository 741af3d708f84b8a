"""A test suite for tasks: what calls, saved files, exports and servers rely on."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import zoo
import zoo.serving


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Calls of a task run without a graph: to trace one takes longer than to run it once."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


class TaskTests:
    """Tests of a task: a model with its tokenizers, such as `zoo.Translator` and `zoo.TextGenerator`.

    In a subclass, define how to make a small task and how to call it. Different texts should get different answers;
    otherwise little is tested.

        class TestMine(zoo.testing.TaskTests):
            def make_task(self):
                return zoo.Translator(model, source_tokenizer, target_tokenizer)

            def calls(self):
                return {"translate": lambda task, texts, **options: task.translate(texts, **options)}

    Attributes:
        texts: the texts of the calls. They have several lengths and different answers, and one is empty.
        precision: the largest allowed difference between two numbers of the same answer, divided by the largest number
            of the answer or by 1, whichever is larger.
    """

    _task: Any
    texts: Sequence[str] = ("cab", "", "a", "dab ba c", "b")
    precision = 1e-4

    def make_task(self) -> Any:
        """A new task, small, with random weights that are large enough to make texts differ."""
        raise NotImplementedError("Say how to make the task: override `make_task`.")

    def calls(self) -> dict[str, Any]:
        """Functions `(task, texts, **options) -> list of results`, by name. A test gives `batch_size` as an option."""
        raise NotImplementedError("Say how to call the task: override `calls`.")

    @property
    def task(self) -> Any:
        """The task under test, made once for a class; tests leave it as it is."""
        if "_task" not in vars(type(self)):
            type(self)._task = self.make_task()
        return type(self)._task

    def _check(self, found: Any, expected: Any, where: str) -> None:
        """Equal texts, and numbers that are equal up to rounding."""
        if hasattr(expected, "__dataclass_fields__"):
            for name in expected.__dataclass_fields__:
                self._check(getattr(found, name), getattr(expected, name), f"{where}, {name}")
        elif isinstance(expected, list | tuple):
            assert len(found) == len(expected), f"{where}: {len(found)} results, expected {len(expected)}"
            for number, pair in enumerate(zip(found, expected, strict=True)):
                self._check(*pair, f"{where}, {number}")
        elif isinstance(expected, dict):
            assert list(found) == list(expected), f"{where}: {list(found)}, expected {list(expected)}"
            self._check(list(found.values()), list(expected.values()), where)
        elif isinstance(expected, float | np.ndarray):
            scale = max(1, np.abs(expected).max(initial=0))
            assert np.shape(found) == np.shape(expected), f"{where}: shape {np.shape(found)}"
            error = np.abs(np.asarray(found) - expected).max(initial=0)
            assert error <= self.precision * scale, f"{where}: off by {error}"
        else:
            assert found == expected, f"{where}: {found!r}, expected {expected!r}"

    def _alone(self, call, task=None):
        task = self.task if task is None else task
        return [result for text in self.texts for result in call(task, [text])]

    # Lists of texts.

    def test_a_text_has_its_own_answer_whatever_stands_beside_it(self):
        """At its place in the list, in a batch of any size, next to longer texts."""
        for name, call in self.calls().items():
            alone = self._alone(call)
            assert len({repr(each) for each in alone}) > len(alone) // 2, f"{name} answers most texts alike"
            for size in (2, 64):
                self._check(call(self.task, list(self.texts), batch_size=size), alone, f"{name}, {size} at once")
            assert call(self.task, []) == []

    def test_any_iterable_of_strings(self):
        """Lists, tuples, arrays and iterators are alike."""
        for name, call in self.calls().items():
            expected = call(self.task, list(self.texts))
            for texts in (tuple(self.texts), np.array(self.texts), iter(self.texts)):
                self._check(call(self.task, texts), expected, name)

    def test_what_is_no_list_of_strings_is_refused(self):
        """One text that is not in a list, bytes, a dict, numbers: each with a message that says what is wrong."""
        for texts, message in (
            ("cab", "must be a list of strings"),
            (None, "must be a list of strings"),
            (b"cab", "must be a list of strings"),
            ({"cab": 1}, "must be a list of strings"),
            ({"cab"}, "must be a list of strings"),
            ([b"a"], "must hold strings. Received: b'a' at position 0"),
            (["a", 3], "must hold strings. Received: 3 at position 1"),
        ):
            for name, call in self.calls().items():
                self._refuses(lambda call=call, texts=texts: call(self.task, texts), message, name)
        for name, call in self.calls().items():
            self._refuses(lambda call=call: call(self.task, ["a"], batch_size=0), "must be at least 1", name)

    @staticmethod
    def _refuses(call, message, name):
        try:
            call()
        except ValueError as error:
            assert message in str(error), f"{name}: {error}"
        else:
            raise AssertionError(f"{name} raised no ValueError. Expected: {message}")

    def test_half_of_a_surrogate_pair_is_a_question_mark(self):
        """Python's strings may hold what UTF-8 cannot."""
        for name, call in self.calls().items():
            found, expected = call(self.task, ["a\ud800"]), call(self.task, ["a?"])
            assert repr(found).replace(r"\ud800", "?") == repr(expected), name
        for name, inputs in self.task.example_requests(["a\ud800"]).items():
            assert inputs["text"].numpy().tolist() == [b"a?"], f"warm-up requests of {name}"

    def test_broken_utf_8_is_answered_in_valid_utf_8(self):
        """Every signature answers bytes that are not valid UTF-8, which a client may send."""
        broken = [b"\xff", b"a\xe2\x82", b"\xed\xa0\x80", b"a\0b"]
        for name, inputs in self.task.example_requests(["a"] * len(broken)).items():
            found = self.task.signatures()[name](**{**inputs, "text": tf.constant(broken)})
            for output, tensor in found.items():
                assert tensor.shape[0] == len(broken), f"{name} gives {tensor.shape} as {output}"
                if tensor.dtype == tf.string:
                    for text in tensor.numpy().ravel():
                        text.decode()

    def test_several_threads_may_ask_at_once(self):
        """Each sees all signatures, also of a task that nobody has asked before."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for _ in range(20):
                    task, start = self.task.with_settings(), threading.Barrier(4)

                    def names(task=task, start=start):
                        start.wait()
                        return sorted(task.signatures())

                    asked = [pool.submit(names) for _ in range(4)]
                    assert [each.result() for each in asked] == 4 * [sorted(task.signatures())]
        finally:
            sys.setswitchinterval(interval)

    # Saved, loaded and exported.

    def test_what_is_loaded_answers_as_what_was_saved(self):
        """Weights, tokenizers and settings are the same, and the folder holds nothing else."""
        with tempfile.TemporaryDirectory() as folder:
            path = self.task.save(f"{folder}/runs/saved")
            assert sorted(each.name for each in path.iterdir()) == sorted([self.task.CONFIG_FILE, "model.keras"])
            assert [each.name for each in path.parent.iterdir()] == [path.name], "something was left beside it"
            loaded = zoo.load(path)
        assert type(loaded) is type(self.task)
        for name in self.task.SETTINGS:
            assert getattr(loaded, name) == getattr(self.task, name), name
        for name in self.task.TOKENIZERS:
            assert getattr(loaded, name).get_config() == getattr(self.task, name).get_config(), name
        for ours, theirs in zip(loaded.model.get_weights(), self.task.model.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        name, call = next(iter(self.calls().items()))
        with eagerly():
            found = call(loaded, list(self.texts))
        self._check(found, call(self.task, list(self.texts)), name)

    def test_a_folder_of_somebody_elses_is_left_alone(self):
        """Saving replaces only what it wrote."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "thesis.tex").write_text("ten years' work")
            try:
                self.task.save(folder)
            except FileExistsError as error:
                assert "holds something else" in str(error)
            else:
                raise AssertionError("a folder with other files was overwritten")
            assert [each.read_text() for each in pathlib.Path(folder).iterdir()] == ["ten years' work"]

    def test_what_is_exported_answers_as_what_was_exported(self):
        """Each text in its batch and alone."""
        with tempfile.TemporaryDirectory() as folder:
            exported = zoo.load(zoo.serving.export(self.task, folder, explore=True))
            for name, call in self.calls().items():
                with eagerly():
                    expected = call(self.task, list(self.texts))
                self._check(call(exported, list(self.texts)), expected, name)
                self._check(self._alone(call, exported), expected, f"{name}, alone")
