"""Imports: each part of the zoo imports only the parts below it."""

import ast
import pathlib
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FILES = sorted(file for folder in ("zoo", "training") for file in (ROOT / folder).rglob("*.py"))

# What is said to a task and by it, without TensorFlow.
TASKS = {"zoo.tasks.protocol", "zoo.tasks.results", "zoo.tasks.settings"}
# What each part may import, apart from itself. What is not named here stands on top of zoo/ and may import all of it.
BELOW = {
    "zoo.layers": set(),
    "zoo.models": {"zoo.layers"},
    "zoo.text": {"zoo.extras", "zoo.git_lfs", "zoo.protobuf"},
    "zoo.atomic": set(),
    "zoo.cluster": set(),
    "zoo.extras": set(),
    "zoo.git_lfs": set(),
    "zoo.protobuf": set(),
    **dict.fromkeys(TASKS, TASKS),
    "zoo.pictures": {"zoo.atomic", "zoo.extras"},
    "zoo.tasks": {
        "zoo.atomic",
        "zoo.decoding",
        "zoo.extras",
        "zoo.layers",
        "zoo.models",
        "zoo.pictures",
        *TASKS,
        "zoo.text",
    },
    "zoo.decoding": {"zoo.layers", "zoo.text"},
    "zoo.checkpoints": {"zoo.atomic", "zoo.git_lfs", "zoo.layers", "zoo.models", "zoo.tasks", "zoo.text"},
    "zoo.serving.packed": {"zoo.layers", "zoo.models"},
    "zoo.serving.layout": set(),
    "zoo.serving.checking": {"zoo.git_lfs", "zoo.serving.layout"},
    "zoo.serving.clients": {"zoo.serving.layout", *TASKS},
    "zoo.beam": {
        "zoo.extras",
        "zoo.serving.clients",
        "zoo.serving.layout",
        *TASKS,
    },
    "zoo.serving.server": {
        "zoo.extras",
        "zoo.pictures",
        "zoo.serving.clients",
        "zoo.serving.layout",
        *TASKS,
    },
}
# The parts of training/, bottom first: each imports only parts of the lines above it. The others stand on top.
TRAINING = [
    {"progress", "answering", "start_tensorflow", "run_files", "search_index", "file_encoding", "ragged"},
    {"storage", "batch_inference"},
    {"corpora"},
    {"schema"},
    {"batches", "scoring", "learn_tokenizer"},
    {"fitting", "cards", "fine_tuning"},
    {"preparing", "distillation", "shortlisting"},
    {"translation", "language_modelling", "classification", "imported"},
    {"masked_language_modelling"},
    {"run"},
    {"ensembling"},
]


def name_of(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = ("zoo_training", *parts[1:]) if parts[0] == "training" else parts  # the name it is installed under
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file) for file in FILES}


def imports(file):
    """The modules of this project that a file imports, anywhere in it."""
    package = name_of(file) if file.name == "__init__.py" else name_of(file).rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # In zoo/ names are absolute; training/ is installed under another name, so its own imports are relative.
            in_training = name_of(file).startswith("zoo_training")
            assert bool(node.level) <= in_training, f"{file}: a relative import"
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in MODULES else module


def part_of(module):
    return next((part for part in sorted(BELOW, key=len, reverse=True) if f"{module}.".startswith(f"{part}.")), None)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_file_imports_what_is_below_it(file):
    module = name_of(file)
    part = part_of(module)
    for imported in imports(file):
        if imported.split(".")[0] not in ("zoo", "zoo_training"):
            assert imported.split(".")[0] != "training", f"{module} imports {imported}: say zoo_training"
            if part in ("zoo.layers", "zoo.models"):
                assert imported.split(".")[0] not in ("tensorflow", "torch", "jax"), f"{module} imports {imported}"
            continue
        assert not (module.startswith("zoo.") and imported.startswith("zoo_training")), f"{module} imports {imported}"
        if part is not None:
            other = part_of(imported)
            assert other == part or other in BELOW[part], f"{module} imports {imported}"


def training_level(module):
    part = module.split(".")[1] if "." in module else ""
    return next((level for level, parts in enumerate(TRAINING) if part in parts), len(TRAINING))


@pytest.mark.parametrize("file", [file for file in FILES if name_of(file).startswith("zoo_training.")], ids=name_of)
def test_the_parts_of_training_have_an_order(file):
    module = name_of(file)
    for imported in imports(file):
        if imported.startswith("zoo_training.") and imported.split(".")[1] != module.split(".")[1]:
            assert training_level(imported) < training_level(module), f"{module} imports {imported}"


def test_nothing_goes_round_in_a_circle():
    modules = {name_of(file): set(imports(file)) for file in FILES}
    graph = {
        module: {each for each in found if each in modules and each != module} for module, found in modules.items()
    }
    while graph:
        done = {module for module, found in graph.items() if not found}
        assert done, f"a circle among {sorted(graph)}"
        graph = {module: found - done for module, found in graph.items() if module not in done}


def test_every_package_is_installed():
    """`pyproject.toml` names each folder of code, since the installed name of `training/` is another.

    So are the types: without `py.typed`, mypy takes everything of an installed package for `Any`.
    """
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    stubs = [".".join(file.relative_to(ROOT).parent.parts) for file in (ROOT / "zoo").rglob("*.pyi")]
    assert stubs and all("*.pyi" in setuptools["package-data"][package] for package in stubs)
    assert (ROOT / "zoo" / "py.typed").is_file() and "py.typed" in setuptools["package-data"]["zoo"]
    assert sorted(setuptools["packages"]) == sorted(name_of(file) for file in FILES if file.name == "__init__.py")
