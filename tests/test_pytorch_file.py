"""Files of `torch.save` without PyTorch: their tensors, and strangers' files that do harm or are damaged.

The pickles are written here opcode by opcode, as PyTorch writes them; `test_checkpoints_peers.py` reads PyTorch's own.
"""

import io
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import pytest

from zoo.checkpoints.pytorch_file import read_pytorch

FLOATS = np.arange(12, dtype=np.float32) / 8
INTS = np.array([7, -5, 3], np.int64)
FLOAT_BYTES = FLOATS.tobytes()


def tensor(kind, key, size, offset, shape, strides, view=b""):
    """The opcodes of a tensor: a call of the function that rebuilds it, with its storage, place and shape."""
    storage = b"(Vstorage\nctorch\n%b\nV%d\nVcpu\nI%d\n%btQ" % (kind, key, size, view)
    numbers = b"".join(b"(" + b"".join(b"I%d\n" % n for n in row) + b"t" for row in (shape, strides))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(%bI%d\n%bI00\nccollections\nOrderedDict\n(tRtR" % (
        storage,
        offset,
        numbers,
    )


def table(view=b"", **changes):
    """The opcodes of two tensors by name: the columns 1 and 2 of a transposed matrix (3, 4), and a row of integers."""
    a = {"kind": b"FloatStorage", "size": 12, "offset": 1, "shape": (2, 3), "strides": (1, 4), **changes}
    return b"(dVa\n%bsVb\n%bs." % (tensor(key=0, view=view, **a), tensor(b"LongStorage", 1, 3, 0, (3,), (1,), view))


def zipped(program, floats=FLOAT_BYTES, compression=zipfile.ZIP_STORED, **more):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        members = {"data.pkl": program, "byteorder": b"little", "data/0": floats, "data/1": INTS.tobytes(), **more}
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    return content.getvalue()


def in_pickles(program, sizes=(12, 3)):
    """As PyTorch wrote before 1.6."""
    heads = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    content = b"".join(pickle.dumps(head, 2) for head in heads) + program + pickle.dumps(["0", "1"], 2)
    for size, numbers in zip(sizes, (FLOATS, INTS), strict=True):
        content += struct.pack("<q", size) + numbers.tobytes()
    return content


@pytest.fixture
def read(tmp_path):
    def read(content):
        file = pathlib.Path(tmp_path / "pytorch_model.bin")
        file.write_bytes(content)
        return {name: (array.shape, array.read()) for name, array in read_pytorch(file).items()}

    return read


@pytest.mark.parametrize("content", [zipped(table()), in_pickles(table(b"N"))], ids=["zip", "pickles"])
def test_tensors_are_read_by_shape_and_strides(read, content):
    tensors = read(content)
    assert [tensors[name][0] for name in "ab"] == [(2, 3), (3,)]
    np.testing.assert_array_equal(tensors["a"][1], FLOATS.reshape(3, 4)[:, 1:3].T)
    np.testing.assert_array_equal(tensors["b"][1], INTS)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (b"DoubleStorage", np.arange(12.0)),
        (b"HalfStorage", np.arange(12, dtype=np.float16)),
        (b"BFloat16Storage", (np.arange(12, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)),
    ],
)
def test_floats_of_any_width(read, kind, numbers):
    found = read(zipped(table(kind=kind, size=12), numbers.tobytes()))["a"][1]
    np.testing.assert_array_equal(found.astype(np.float32), np.arange(12).reshape(3, 4)[:, 1:3].T)


def test_a_checkpoint_of_a_training_holds_its_tensors_by_the_name_state_dict(read):
    assert [*read(zipped(b"(dVstate_dict\n" + table()[:-1] + b"s."))] == ["a", "b"]


@pytest.mark.parametrize("place", [zipped, in_pickles], ids=["zip", "pickles"])
def test_a_payload_does_not_run(read, tmp_path, place):
    """Neither a call nor a name that could be called."""
    witness = tmp_path / "ran"
    for name in ("builtins eval", "os system", "posix system", "torch load", "torch._utils _rebuild_qtensor"):
        module, function = name.split()
        call = f"c{module}\n{function}\n(Vopen({str(witness)!r}, 'w')\ntR"
        for program in (call, f"(dVa\n{call}s"):
            with pytest.raises(ValueError, match=rf"its pickle names {module}\.{function}, which tensors do not need"):
                read(place(program.encode() + b"."))
    assert not witness.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read: it is empty"),
        (b"{}", "is damaged or cut off, or is no file of PyTorch"),
        (pickle.dumps({"a": 1}, 2), "it is not a file of `torch.save`"),
        (zipped(pickle.dumps([1], 2)), "it holds a list instead of tensors by name"),
        (zipped(pickle.dumps({"a": 1}, 2)), "'a' in it is no tensor"),
        (zipped(table(), byteorder=b"big"), "its numbers are big-endian"),
        (zipped(table(), compression=zipfile.ZIP_DEFLATED), r"its member archive/data.pkl is compressed"),
        (zipped(table(), floats=b"0" * 47 + b"")[:-120], "is damaged or cut off, or is no file of PyTorch"),
        (zipped(table(size=10**12)), "a is not whole: the file is too short"),
        (zipped(table(offset=-1)), "a has an impossible shape"),
        (zipped(table(shape=(2, 3, 4))), "a has an impossible shape"),
        (zipped(table(shape=(2, 4))), r"a is larger than its storage of 12 numbers: shape \(2, 4\)"),
        (zipped(table(shape=(10**9, 10**9), strides=(0, 0))), "a is larger than its storage"),
        (zipped(table(kind=b"QInt8Storage")), "its pickle names torch.QInt8Storage"),
        (in_pickles(table(b"N"), sizes=(11, 3)), "its storage 0 has 11 numbers instead of 12"),
        (in_pickles(table(b"N"))[:-1], "b is not whole: the file is too short"),
        (in_pickles(table(b"N"))[:80], "is damaged or cut off, or is no file of PyTorch"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(read, content, message):
    with pytest.raises(ValueError, match=message) as error:
        read(content)
    assert "\n" not in str(error.value)
    assert "pytorch_model.bin" in str(error.value)


def test_damaged_bytes_give_tensors_or_a_clear_error(read):
    """No other error, no endless loop, nothing read outside the file."""
    random = np.random.default_rng(0)
    for content in (zipped(table()), in_pickles(table(b"N"))):
        for _ in range(300):
            damaged = bytearray(content)
            for place in random.integers(len(damaged), size=random.integers(1, 6)):
                damaged[place] = random.integers(256)
            try:
                read(bytes(damaged))
            except ValueError as error:
                assert "pytorch_model.bin" in str(error)
