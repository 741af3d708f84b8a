"""Runs the notebooks of this folder and keeps their outputs in them: `python docs/notebooks/run.py`."""

import pathlib

import nbformat
from nbclient import NotebookClient


def executed(path: pathlib.Path) -> nbformat.NotebookNode:
    """A notebook with new outputs, without those of libraries that talk on stderr, and without times."""
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    return notebook


if __name__ == "__main__":
    for file in sorted(pathlib.Path(__file__).parent.glob("*.ipynb")):
        nbformat.write(executed(file), file)
        print(file)
