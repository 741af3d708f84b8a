"""Texts with their vectors, on disk and searched: what `zoo embed` writes and `zoo search` reads."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Collection, Iterator
from typing import BinaryIO

import numpy as np

from zoo.atomic import replaced_folder

INDEX_FILE = "index.json"
_VECTORS_FILE, _TEXTS_FILE = "vectors.npy", "texts.txt"
_BLOCK = 65_536  # rows that are compared at once: 100 MB of 384 numbers


@contextlib.contextmanager
def array_file(file: BinaryIO, width: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Writes a .npy of vectors piece by piece, so that all of them need not fit into memory.

    Args:
        file: where to write, from its beginning.
        width: of the vectors, D.

    Yields:
        A function that adds vectors `(N, D)`.
    """
    rows = 0

    def write_header() -> None:
        # NumPy leaves room in it for a larger number of rows, so the header that has the number is as long.
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, header)

    def add(vectors: np.ndarray) -> None:
        nonlocal rows
        rows += len(vectors)
        file.write(np.ascontiguousarray(vectors, "<f4").tobytes())

    write_header()
    yield add
    file.seek(0)
    write_header()


@contextlib.contextmanager
def new_index(
    folder: pathlib.Path, model: pathlib.Path, width: int
) -> Iterator[Callable[[list[str], np.ndarray], None]]:
    """Writes an index: `vectors.npy` float32 `(N, D)`, `texts.txt` with a text a line, and `index.json`.

    It is a folder, and no .npz: a server of many texts maps a .npy into memory, which reads only what is needed, and
    which is not possible inside an archive. The vectors get the length 1, so a search is one product.

    Args:
        folder: where to write; another index there is replaced when this one is complete.
        model: the folder of the model that makes the vectors.
        width: of the vectors, D.

    Yields:
        A function that adds texts and their vectors `(N, D)`.

    Raises:
        FileExistsError: the folder holds something else.
    """
    with replaced_folder(folder, INDEX_FILE) as partial:
        number = 0
        with (
            (partial / _TEXTS_FILE).open("wb") as texts_file,
            (partial / _VECTORS_FILE).open("wb") as vectors_file,
            array_file(vectors_file, width) as add_vectors,
        ):

            def add(texts: list[str], vectors: np.ndarray) -> None:
                nonlocal number
                number += len(texts)
                texts_file.writelines(text.replace("\n", " ").encode("utf-8", "replace") + b"\n" for text in texts)
                add_vectors(unit_length(vectors))

            yield add
        content = {"model": str(model.resolve()), "texts": number, "width": width}
        (partial / INDEX_FILE).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


class SearchIndex:
    """An index on disk.

    Args:
        folder: what `new_index` wrote.

    Attributes:
        model: the folder of the model that made the vectors, when it made them.
        vectors: `(N, D)` of the length 1, mapped into memory.

    Raises:
        FileNotFoundError: the folder is no index.
        ValueError: its files cannot be read, or do not fit each other.
    """

    def __init__(self, folder: pathlib.Path):
        if not (folder / INDEX_FILE).is_file():
            what = "is no index" if folder.exists() else "does not exist"
            raise FileNotFoundError(f"{folder} {what}; `zoo embed MODEL --file FILE --index FOLDER` makes one")
        try:
            content = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
            shape = content["texts"], content["width"]
            self.model = pathlib.Path(content["model"])
            self.vectors: np.ndarray = np.load(folder / _VECTORS_FILE, mmap_mode="r")
        except (ValueError, EOFError, KeyError, TypeError) as error:
            raise ValueError(f"the index {folder} cannot be read; its files may be damaged ({error})") from None
        if (self.vectors.shape, self.vectors.dtype) != (shape, np.float32):
            raise ValueError(f"the index {folder} is damaged: {_VECTORS_FILE} is not float32 {shape}")
        self._texts = folder / _TEXTS_FILE

    def nearest(self, queries: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows whose vectors have the largest cosines with each query, after a look at all of them.

        Args:
            queries: `(Q, D)`.
            number: how many to find, K.

        Returns:
            Rows `(Q, K)` and their cosines `(Q, K)`, the largest first; fewer than K if the index has fewer.
        """
        queries = unit_length(queries)
        rows = np.zeros((len(queries), 0), "int64")
        cosines = np.zeros((len(queries), 0), "float32")
        for begin in range(0, len(self.vectors), _BLOCK):
            found = queries @ self.vectors[begin : begin + _BLOCK].T  # (Q, block)
            places = np.broadcast_to(np.arange(begin, begin + found.shape[1]), found.shape)
            rows, cosines = np.hstack([rows, places]), np.hstack([cosines, found])  # (Q, K + block)
            kept = np.argpartition(-cosines, min(number, cosines.shape[1]) - 1)[:, :number]  # (Q, K)
            rows, cosines = np.take_along_axis(rows, kept, 1), np.take_along_axis(cosines, kept, 1)
        order = np.lexsort((rows, -cosines))  # of each query by itself; of equal cosines the first text
        return np.take_along_axis(rows, order, 1), np.take_along_axis(cosines, order, 1)

    def texts(self, rows: Collection[int]) -> dict[int, str]:
        """The texts of these rows, by row.

        Raises:
            ValueError: the file of the texts is damaged.
        """
        wanted, found, number = set(rows), {}, 0
        with self._texts.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if number - 1 in wanted:
                    found[number - 1] = line
        damaged = f"the index {self._texts.parent} is damaged: {_TEXTS_FILE}"
        if number != len(self.vectors):
            raise ValueError(f"{damaged} has {number:,} lines, and there are {len(self.vectors):,} vectors")
        try:
            return {row: line.rstrip(b"\n").decode() for row, line in found.items()}
        except UnicodeDecodeError:
            raise ValueError(f"{damaged} is not UTF-8") from None


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """`(N, D)` divided by their Euclidean norms; zeros stay zeros."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)  # (N, 1)
    return vectors / np.where(norms > 0, norms, np.float32(1))
