import re

import keras
import numpy as np
import pytest

from zoo.layers import AttentionDecoder, ConcatAttention, MaxoutReadout, TransformerEncoderLayer
from zoo.layers.checks import check_choice, check_positive, check_positive_number, check_rate, check_width


def test_good_values_pass_through():
    assert check_positive("units", 1) == 1
    assert [check_positive_number("max_wavelength", value) for value in (3, 0.5)] == [3, 0.5]
    assert check_choice("cell", "gru", ("gru", "lstm")) == "gru"
    assert check_choice("attention", None, ("dot", None)) is None
    assert [check_rate("dropout", rate) for rate in (0, 0.0, 0.999)] == [0, 0.0, 0.999]


@pytest.mark.parametrize("value", [0, -3, 2.0, "4", True, None])
def test_sizes_must_be_positive_integers(value):
    message = f"`units` must be a positive integer. Received: units={value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_positive("units", value)


def test_choices_are_listed():
    message = "`score` must be one of 'dot', 'scaled', None. Received: score='dott'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_choice("score", "dott", ("dot", "scaled", None))


@pytest.mark.parametrize("value", [1, 1.0, -0.1, np.nan, "0.5", False, None])
def test_rates_are_at_least_zero_and_below_one(value):
    message = f"`dropout` must be at least 0 and below 1. Received: dropout={value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_rate("dropout", value)


@pytest.mark.parametrize("value", [0, -1.5, np.inf, np.nan, "2", True, None])
def test_numbers_must_be_positive(value):
    message = f"`max_wavelength` must be a positive number. Received: max_wavelength={value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_positive_number("max_wavelength", value)


def test_widths_must_be_known():
    assert check_width("memory", [None, 3, 4]) == 4
    with pytest.raises(ValueError, match=r"^`memory` must have a known width\. Received: memory of shape \(2, None\)$"):
        check_width("memory", [2, None])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x, y: TransformerEncoderLayer(2, 4)(x), "inputs"),
        (lambda x, y: MaxoutReadout(4)([y, x]), "inputs"),
        (lambda x, y: ConcatAttention(4)(y, x), "key"),
        (lambda x, y: AttentionDecoder(4, ConcatAttention(4))(y, [keras.Input((4,))], x), "memory"),
    ],
)
def test_layers_that_calculate_with_widths_say_so(call, name):
    with pytest.raises(
        ValueError, match=rf"`{name}` must have a known width\. Received: {name} of shape \(None, 3, None\)"
    ):
        call(keras.Input((3, None)), keras.Input((3, 5)))
