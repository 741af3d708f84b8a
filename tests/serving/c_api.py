"""Loads a SavedModel through TensorFlow's C API and runs it on texts, as servers in other languages do.

No TensorFlow of Python is imported: ctypes and the C++ library alone.

    python c_api.py LIBRARY FOLDER INPUT OUTPUT [TEXT]...    INPUT and OUTPUT are tensors' names; prints JSON
"""

import ctypes
import json
import sys

STRING = 7  # TF_STRING
SIZE = 24  # bytes of a TF_TString


class Output(ctypes.Structure):
    """TF_Output: an operation, and which of its outputs."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


class Library:
    """The C API. Functions whose last argument is a status raise what it says."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)

    def __call__(self, name, *arguments, returns=ctypes.c_void_p):
        function = self._library[name]
        function.restype = returns
        return function(*arguments)

    def checked(self, name, *arguments):
        status = ctypes.c_void_p(self("TF_NewStatus"))
        found = self(name, *arguments, status)
        if self("TF_GetCode", status, returns=ctypes.c_int):
            raise SystemExit(self("TF_Message", status, returns=ctypes.c_char_p).decode())
        self("TF_DeleteStatus", status)
        return found

    def tensor(self, texts):
        shape = (ctypes.c_int64 * 1)(len(texts))
        tensor = ctypes.c_void_p(
            self("TF_AllocateTensor", ctypes.c_int(STRING), shape, ctypes.c_int(1), ctypes.c_size_t(SIZE * len(texts)))
        )
        start = self("TF_TensorData", tensor)
        for number, text in enumerate(texts):
            place = ctypes.c_void_p(start + SIZE * number)
            self("TF_StringInit", place)
            self("TF_StringCopy", place, ctypes.c_char_p(text), ctypes.c_size_t(len(text)))
        return tensor

    def texts(self, tensor):
        tensor = ctypes.c_void_p(tensor)
        assert self("TF_TensorType", tensor, returns=ctypes.c_int) == STRING
        assert self("TF_NumDims", tensor, returns=ctypes.c_int) == 1
        start, texts = self("TF_TensorData", tensor), []
        for number in range(self("TF_Dim", tensor, ctypes.c_int(0), returns=ctypes.c_int64)):
            place = ctypes.c_void_p(start + SIZE * number)
            size = self("TF_StringGetSize", place, returns=ctypes.c_size_t)
            texts.append(ctypes.string_at(self("TF_StringGetDataPointer", place), size))
        return texts


def main():
    path, folder, taken, given, *texts = sys.argv[1:]
    library = Library(path)
    graph = ctypes.c_void_p(library("TF_NewGraph"))
    options = ctypes.c_void_p(library("TF_NewSessionOptions"))
    tags = (ctypes.c_char_p * 1)(b"serve")
    session = ctypes.c_void_p(
        library.checked(
            "TF_LoadSessionFromSavedModel", options, None, folder.encode(), tags, ctypes.c_int(1), graph, None
        )
    )

    def output(name):
        operation, index = name.split(":")
        found = library("TF_GraphOperationByName", graph, operation.encode())
        assert found, f"no operation {operation}"
        return (Output * 1)(Output(found, int(index)))

    answers = []
    for batch in (texts, texts[:1]):
        inputs = (ctypes.c_void_p * 1)(library.tensor([text.encode() for text in batch]))
        outputs = (ctypes.c_void_p * 1)()
        one = ctypes.c_int(1)
        library.checked(
            "TF_SessionRun", session, None, output(taken), inputs, one, output(given), outputs, one, None, 0, None
        )
        answers.append([text.decode() for text in library.texts(outputs[0])])
    assert not any(name.split(".")[0] in ("tensorflow", "keras", "numpy", "zoo") for name in sys.modules)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
