"""Ctrl-C while a command works."""

import signal
import time

import pytest
import tensorflow as tf
from command_line import run
from zoo_training.cli.ctrl_c import interrupted_between_graphs
from zoo_training.run import Run


class TestCtrlC:
    """It is heard while TensorFlow makes a graph, in which a `KeyboardInterrupt` would come out as another error."""

    @pytest.fixture(autouse=True)
    def default_handler(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.mark.parametrize("presses", [1, 2])
    def test_one_waits_for_the_graph_and_a_second_one_does_not(self, presses, capsys):
        made, stopped, begin = [], False, time.monotonic()

        @tf.function(autograph=False)
        def step():
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
            # Longer than until it looks again, after 0.1 s. It looks next after 0.2 s, when the process waits below. A
            # signal in the moment in which a wait begins is heard only after it.
            time.sleep(0.15)
            made.append(1)

        try:
            with interrupted_between_graphs():
                step()
                time.sleep(60)
        except KeyboardInterrupt:
            stopped = True
        assert stopped and len(made) == 2 - presses
        assert time.monotonic() - begin < 50, "it was not heard while the process waited"
        assert capsys.readouterr().err == "stopping when the graph is made; a second Ctrl-C stops at once\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_in_an_export(self, trained, monkeypatch):
        made = []

        @tf.function(autograph=False)
        def graph():
            signal.raise_signal(signal.SIGINT)
            made.append(1)

        monkeypatch.setattr(Run, "export", lambda *_: (graph(), time.sleep(60)))
        result = run("export", "runs/backwards")
        assert (result.exit_code, result.stdout, made) == (130, "", [1])
        assert "stopping when the graph is made; a second Ctrl-C stops at once" in result.stderr

    def test_elsewhere_it_does_not_wait(self, capsys):
        with pytest.raises(KeyboardInterrupt), interrupted_between_graphs():
            signal.raise_signal(signal.SIGINT)
        assert capsys.readouterr().err == ""
