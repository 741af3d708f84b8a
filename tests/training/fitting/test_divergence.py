"""The end of a training whose loss is no number."""

import math
import types

import pytest
from zoo_training.fitting.divergence import Divergence


@pytest.mark.parametrize(("loss", "stops"), [(math.nan, True), (math.inf, True), (-math.inf, True), (1e30, False)])
def test_ends_the_training(loss, stops, capsys):
    guard, model = Divergence(), types.SimpleNamespace(stop_training=False)
    guard.set_model(model)
    guard.on_train_batch_end(6, {"loss": loss})
    assert model.stop_training == stops
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == ("the loss of batch 7 is no number: the training ends with this epoch\n" if stops else "")
