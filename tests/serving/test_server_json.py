"""JSON of `zoo serve`, as TensorFlow Serving's documentation and sources have it.

The oracle are the page https://www.tensorflow.org/tfx/serving/api_rest and, for what it leaves open, the sources:
`json_tensor.cc` and the cases of `json_tensor_test.cc`, in `tensorflow_serving/util`.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.serving.clients.messages import TensorSpec
from zoo.serving.server.rest_json import HTTP_STATUS, Refusal, answer, parse, signature_name, tensors

ANY = TensorSpec("int32", None)


def read(body, **specs):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return tensors(parse(body), specs)


def refusal(body, **specs):
    with pytest.raises(Refusal) as caught:
        read(body, **specs)
    assert HTTP_STATUS[caught.value.code] in (400, 501)
    return caught.value.message


class TestRequests:
    def test_rows_of_one_input_need_no_name(self):
        found, in_rows = read({"instances": [[[1, 2]], [[3, 4]], [[5, 6]]]}, x=ANY)  # the page's second example
        assert in_rows
        np.testing.assert_array_equal(found["x"], [[[1, 2]], [[3, 4]], [[5, 6]]])
        assert found["x"].dtype == np.int32

    def test_rows_of_several_inputs_are_objects_and_columns_say_the_same(self):
        # The page's example of both forms.
        tag, signal, sensor = ["foo", "bar"], [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]], [[[1, 2], [3, 4]], [[4, 5], [6, 8]]]
        specs = {"tag": TensorSpec("string", (None,)), "signal": ANY, "sensor": ANY}
        names = ("tag", "signal", "sensor")
        rows = [dict(zip(names, row, strict=True)) for row in zip(tag, signal, sensor, strict=True)]
        by_rows, in_rows = read({"instances": rows}, **specs)
        by_columns, not_rows = read({"inputs": {"tag": tag, "signal": signal, "sensor": sensor}}, **specs)
        assert (in_rows, not_rows) == (True, False)
        assert by_rows["tag"].tolist() == [b"foo", b"bar"]
        for name in names:
            np.testing.assert_array_equal(by_rows[name], by_columns[name])

    def test_a_column_may_be_plain_if_it_is_the_only_input_and_may_have_no_axis(self):
        assert read({"inputs": [[7, 8, 9]]}, x=ANY)[0]["x"].shape == (1, 3)
        # "bin_tensor" in MultipleNamedTensorColumnarFormat
        found = read({"inputs": {"b": {"b64": "aGVsbG8="}}}, b=TensorSpec("string", ()))[0]["b"]
        assert found.shape == ()
        assert found.item() == b"hello"

    @pytest.mark.parametrize("rows", [[{"b64": "/wA="}, "é\0"], [{"s": {"b64": "/wA="}}, {"s": "é\0"}]])
    def test_strings_are_utf8_or_base64(self, rows):
        found = read({"instances": rows}, s=TensorSpec("string", (None,)))[0]["s"]
        assert found.tolist() == [b"\xff\0", "é\0".encode()]

    @pytest.mark.parametrize("packed", ["/wA=", "/wA", " /w\nA", "/w A = "])
    def test_base64_may_lack_padding_and_hold_white_space(self, packed):
        found = read({"inputs": [{"b64": packed}]}, s=TensorSpec("string", (None,)))[0]["s"]
        assert found.tolist() == [b"\xff\0"]

    def test_numbers_of_floats_may_have_no_point_and_be_not_finite(self):
        body = b'{"instances": [1, 2.5, NaN, -Infinity, 1e3, 1435774380, 1e300]}'  # FloatTensorWithPrecisionLoss
        found = read(body, x=TensorSpec("float32", (None,)))[0]["x"]
        np.testing.assert_array_equal(found, np.float32([1, 2.5, np.nan, -np.inf, 1e3, 1435774336, np.inf]))

    def test_the_largest_numbers_of_each_integer_are_read_exactly(self):
        for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
            limits = np.iinfo(dtype)
            spec = TensorSpec(dtype, (None,))
            assert read({"inputs": [limits.min, limits.max]}, x=spec)[0]["x"].tolist() == [limits.min, limits.max]
            assert "is not of expected type" in refusal({"inputs": [limits.min - 1, 0]}, x=spec)
            assert "is not of expected type" in refusal({"inputs": [0, limits.max + 1]}, x=spec)

    def test_of_a_key_that_stands_twice_the_first_counts(self):  # as a server of 2.20 answers
        found, _ = read(b'{"inputs": {"x": [1], "x": [2]}, "inputs": {"x": [3]}}', x=ANY)
        assert found["x"].tolist() == [1]
        assert list(parse(b'{"b": 1, "a": 2, "b": 3}').items()) == [("b", 1), ("a", 2)]

    def test_no_rows_in_columns_are_no_rows(self):
        assert read({"inputs": {"x": []}}, x=TensorSpec("int32", (None,)))[0]["x"].shape == (0,)

    def test_the_signature_has_a_default(self):
        assert signature_name({}) == signature_name({"signature_name": ""}) == "serving_default"
        assert signature_name({"signature_name": "score"}) == "score"
        with pytest.raises(Refusal, match="'signature_name' key must be a string value"):
            signature_name({"signature_name": 5})


NUMBERS = {"a": ANY, "b": TensorSpec("int32", None)}
STRING = {"s": TensorSpec("string", None)}
WORDS = [  # of json_tensor.cc
    (b"", {"x": ANY}, "JSON Parse error: The document is empty"),
    (b"instances = [1, 2]", {"x": ANY}, "JSON Parse error: Invalid value. at offset: 0"),
    (b'{"instances": [1, 2}', {"x": ANY}, "JSON Parse error: "),
    (b"[" * 100_000, {"x": ANY}, "JSON Parse error: "),
    (b'{"instances": ["\xff"]}', STRING, "JSON Parse error: Invalid encoding in string. at offset: 16"),
    (b'{"instances": ["\\ud800"]}', STRING, "JSON Parse error: The surrogate pair in string is invalid."),
    (b'{"instances": [1]} more', {"x": ANY}, "JSON Parse error: "),
    (
        b'{"instances": [1%s]}' % (b"0" * 400),
        {"x": TensorSpec("float32", None)},
        "Number too big to be stored in double",
    ),
    *(
        (b'{"instances": [%s]}' % number, {"x": TensorSpec("float32", None)}, "Number too big to be stored in double")
        for number in (b"1e400", b"-1.5E+309", b"1%s.5" % (b"0" * 400))
    ),
    (b'{"instances": ["a"], "other": 1e400}', STRING, "Number too big to be stored in double"),
    (b'{"instances": [1%s]}' % (b"0" * 9000), {"x": ANY}, "JSON Parse error: "),
    ([1], {"x": ANY}, "JSON Value: [1] Is not object"),
    ({}, {"x": ANY}, "Missing 'inputs' or 'instances' key"),
    ({"inputs": [1], "instances": [1]}, {"x": ANY}, "expecting only one of 'inputs' or 'instances' keys to exist"),
    ({"instances": 1}, {"x": ANY}, "Expecting 'instances' to be an list/array"),
    ({"instances": []}, {"x": ANY}, "No values in 'instances' array"),
    ({"instances": [1]}, NUMBERS, "instances is a plain list, but expecting list of objects as multiple"),
    ({"instances": [{"b64": "aGk="}]}, NUMBERS, "instances is a plain list, but expecting list of objects as multiple"),
    ({"inputs": [1]}, NUMBERS, "inputs is a plain value/list, but expecting an object as multiple input tensors"),
    ({"inputs": {"a": [1]}}, NUMBERS, "Missing named input: b in 'inputs' object."),
    (
        {"instances": [{"a": 1}]},
        NUMBERS,
        "Failed to process element: 0 of 'instances' list. JSON object: {\"a\": 1} keys ",
    ),
    ({"instances": [{"a": 1}]}, NUMBERS, "keys must be equal to: a,b"),
    (
        {"instances": [{"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}]},
        NUMBERS,
        "Failed to process element: 1 key: c of 'instances' list. Error: INVALID_ARGUMENT: JSON object: does not have "
        "named input: c",
    ),
    ({"instances": [{"a": 1, "b": 2}, [1, 20, 30]]}, NUMBERS, "Expecting object but got list at item 1 of input list"),
    ({"instances": [["a"], {"s": "b"}]}, STRING, "Expecting value/list but got object at item 1 of input list"),
    (
        {"instances": [[1, 2], [3, 4], [5, 6, 7]]},
        {"x": ANY},
        "Failed to process element: 2 of 'instances' list. Error: ",
    ),
    ({"instances": [[1, 2], [3, 4], [5, 6, 7]]}, {"x": ANY}, "Expecting tensor size: 2 but got: 3"),
    ({"instances": [[1, 2], [3, 4], [[5, 6]]]}, {"x": ANY}, "Expecting shape [2] but got: [1,2]"),
    ({"instances": [1, [1]]}, {"x": ANY}, "Expecting shape [] but got: [1]"),
    ({"instances": [[1, 2], ["a", "b"]]}, {"x": ANY}, 'JSON Value: "a" Type: String is not of expected type: int32'),
    (
        {"inputs": [[1, 2], 3]},
        {"x": ANY},
        "JSON Value: 3 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
    ),
    (b'{"inputs": %s1%s}' % (b"[" * 65, b"]" * 65), {"x": ANY}, "Encountered lists at 65 levels"),
    (b'{"instances": %s1%s}' % (b"[" * 99, b"]" * 99), {"x": ANY}, "Encountered lists at 98 levels"),
    ({"inputs": [1, [2]]}, {"x": ANY}, "Encountered list at unexpected level: 1 expected < 1"),
    ({"inputs": [[1, 2], [3]]}, {"x": ANY}, "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    ({"inputs": [1.0]}, {"x": ANY}, "JSON Value: 1.0 Type: Number is not of expected type: int32"),
    ({"inputs": [True]}, {"x": ANY}, "JSON Value: true Type: True is not of expected type: int32"),
    ({"inputs": [None]}, {"x": ANY}, "JSON Value: null Type: Null is not of expected type: int32"),
    ({"inputs": [1]}, {"x": TensorSpec("bool", None)}, "JSON Value: 1 Type: Number is not of expected type: bool"),
    (
        {"inputs": ["1"]},
        {"x": TensorSpec("float32", None)},
        'JSON Value: "1" Type: String is not of expected type: float',
    ),
    ({"inputs": [{"c": 1}]}, {"x": TensorSpec("float64", None)}, "Type: Object is not of expected type: double"),
    ({"inputs": [7]}, STRING, "JSON Value: 7 Type: Number is not of expected type: string"),
    ({"inputs": [{"b65": "aA=="}]}, STRING, 'JSON Value: {"b65": "aA=="} not formatted correctly for base64 data'),
    ({"inputs": [{"b64": "a"}]}, STRING, "Unable to base64 decode"),
    ({"inputs": [1]}, {"x": TensorSpec("float16", None)}, "Conversion of JSON Value: 1 to type: half"),
    ({"inputs": [1]}, {"x": TensorSpec("int32", (None, 2))}, "input x must have shape [?,2] but has [1]"),  # only here
]


@pytest.mark.parametrize(
    ("body", "specs", "words"), WORDS, ids=[f"{n}: {words}" for n, (*_, words) in enumerate(WORDS)]
)
def test_a_bad_request_is_refused_in_the_words_of_the_server(body, specs, words):
    assert words in refusal(body, **specs)


class TestAnswers:
    def test_a_single_output_is_given_without_its_name(self):
        # FromJsonSingleTensor
        tensor = {"int_tensor": np.int32([[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]])}
        nested = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]]
        assert json.loads(answer(tensor, in_rows=True)) == {"predictions": nested}
        assert json.loads(answer(tensor, in_rows=False)) == {"outputs": nested}

    def test_several_outputs_are_objects_of_rows_or_an_object_of_columns(self):
        outputs = {"text": np.array([b"a", b"b", b"c"], object), "score": np.float32([[1, 2], [3, 4], [5, 6]])}
        rows = [{"text": t, "score": s} for t, s in zip("abc", [[1, 2], [3, 4], [5, 6]], strict=True)]
        assert json.loads(answer(outputs, in_rows=True)) == {"predictions": rows}
        columns = {"text": ["a", "b", "c"], "score": [[1, 2], [3, 4], [5, 6]]}
        assert json.loads(answer(outputs, in_rows=False)) == {"outputs": columns}

    def test_numbers_are_written_as_the_server_writes_them(self):
        # WriteDecimal: %.6g if that gives the number back, else %.9g or %.17g; a point or an exponent.
        floats = [0.2, 9e6, 3e-5, 5.0, 16777216.0, 0.1234567, -0.0, np.nan, np.inf, -np.inf]
        text = "[0.2, 9e+06, 3e-05, 5.0, 16777216.0, 0.123456702, -0.0, NaN, Infinity, -Infinity]"
        assert answer({"x": np.float32(floats)}, in_rows=True).decode() == f'{{"predictions": {text}}}'
        doubles = np.float64([0.2, 0.1 + 0.2, 1e300])
        assert answer({"x": doubles}, in_rows=True) == b'{"predictions": [0.2, 0.30000000000000004, 1e+300]}'
        assert answer({"x": np.array([True, False])}, in_rows=False) == b'{"outputs": [true, false]}'
        assert answer({"x": np.uint64([2**64 - 1])}, in_rows=False) == b'{"outputs": [18446744073709551615]}'

    def test_strings_are_base64_only_where_the_name_says_so(self):
        texts = np.array(['é"\n'.encode(), b"\xff\0"], object)
        assert answer({"raw_bytes": texts}, in_rows=True) == b'{"predictions": [{"b64": "w6kiCg=="}, {"b64": "/wA="}]}'
        # Elsewhere broken UTF-8 goes out as it is.
        assert answer({"raw": texts}, in_rows=True) == '{"predictions": ["é\\"\\n", "'.encode() + b'\xff\\u0000"]}'

    def test_an_output_may_have_no_axis_in_columns_only(self):
        outputs = {"mean": np.float32(2.5), "rows": np.int32([1, 2])}
        assert json.loads(answer(outputs, in_rows=False)) == {"outputs": {"mean": 2.5, "rows": [1, 2]}}
        with pytest.raises(Refusal, match="Tensor name: mean has no shape information "):
            answer(outputs, in_rows=True)

    def test_rows_must_be_as_many_in_all_outputs(self):
        with pytest.raises(Refusal, match="Tensor name: b has inconsistent batch size: 3 expecting: 2"):
            answer({"a": np.zeros(2), "b": np.zeros(3)}, in_rows=True)

    def test_a_type_that_the_server_does_not_write_is_an_error(self):
        with pytest.raises(Refusal, match="Failed to write JSON value for tensor type: half"):
            answer({"a": np.zeros(2, np.float16)}, in_rows=True)
        with pytest.raises(Refusal, match="Cannot convert empty tensor map to JSON"):
            answer({}, in_rows=True)

    @pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0,), (2, 0, 3), (0, 0), (2, 3, 0)])
    def test_axes_of_size_0_are_empty_lists(self, shape):
        array = np.zeros(shape, np.int32)
        assert json.loads(answer({"x": array}, in_rows=False)) == {"outputs": array.tolist()}
        assert json.loads(answer({"x": array}, in_rows=True)) == {"predictions": array.tolist()}


class TestBackAndForth:
    @given(st.lists(st.floats(width=32), min_size=1))
    def test_every_float32_is_read_back_with_the_same_bits(self, numbers):
        numbers = np.float32(numbers)
        found = json.loads(answer({"x": numbers}, in_rows=True))["predictions"]
        back = tensors({"instances": found}, {"x": TensorSpec("float32", (None,))})[0]["x"]
        np.testing.assert_array_equal(back, numbers)
        assert (np.signbit(back) == np.signbit(numbers))[~np.isnan(numbers)].all()

    @given(
        st.lists(st.integers(1, 4), max_size=3).flatmap(
            lambda shape: st.lists(
                st.binary(max_size=3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
            ).map(lambda values: (shape, values))
        )
    )
    def test_bytes_of_any_shape_are_read_back(self, case):
        shape, values = case
        array = np.empty(len(values), object)
        array[:] = values
        array = array.reshape(shape)
        outputs = json.loads(answer({"any_bytes": array}, in_rows=False))["outputs"]
        back = tensors({"inputs": outputs}, {"any_bytes": TensorSpec("string", tuple(shape))})[0]["any_bytes"]
        assert back.shape == array.shape
        assert back.tolist() == array.tolist()
