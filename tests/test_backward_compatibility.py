"""Files that version 0.1.0 wrote still load: `.keras` files, runs, stopped trainings, exports and recipes.

`tests/data/v0.1.0.tar.xz` was written by 0.1.0 itself, of tiny models: `keras/` with inputs and outputs in
`expected.npz`; `runs/words` and `runs/text`, a translator and a language model, finished; the same with `-stopped`,
after two of three epochs; `saved_models/`, their exports; and the corpora and recipes that they came from.
"""

import csv
import pathlib
import tarfile

import numpy as np
import pytest

ARCHIVE = pathlib.Path(__file__).parent / "data" / "v0.1.0.tar.xz"
KERAS_FILES = {
    "gpt": "GPT",
    "gpt_modern": "GPT",
    "layers": "Functional",
    "recurrent": "Functional",
    "rnn_seq2seq": "RNNSeq2Seq",
    "rnn_without_attention": "RNNSeq2Seq",
    "transformer": "Transformer",
    "transformer_rotary": "Transformer",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v0.1.0")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def workplace(files, monkeypatch):
    """The unpacked folder as working directory, where its recipes find their corpora."""
    monkeypatch.chdir(files)
    return files


@pytest.mark.parametrize("name", KERAS_FILES)
def test_keras_file(name, files):
    import keras

    import zoo.layers
    import zoo.models  # noqa: F401

    model = keras.models.load_model(files / "keras" / f"{name}.keras")
    assert type(model).__name__ == KERAS_FILES[name]
    with np.load(files / "keras" / "expected.npz") as expected:
        inputs = {key.rpartition(".")[2]: expected[key] for key in expected.files if key.startswith(f"{name}.in.")}
        outputs = [expected[key] for key in expected.files if key.startswith(f"{name}.out")]
    named = not next(iter(inputs)).isdigit()
    arrays = list(inputs.values())
    results = model(inputs if named else arrays if len(arrays) > 1 else arrays[0])
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    for result, output in zip(results, outputs, strict=True):
        # Values of about 1, float32: other kernels sum in another order.
        np.testing.assert_allclose(result, output, atol=1e-4 * max(1, np.abs(output).max()))
    if name in ("gpt", "transformer", "rnn_seq2seq"):  # saved after a step of training, with the optimizer
        assert int(model.optimizer.iterations) == 1


@pytest.mark.long
@pytest.mark.parametrize(("name", "texts"), [("words", ["abc1", "f2", ""]), ("text", ["ab", "c1 is", ""])])
def test_run_and_export(name, texts, workplace):
    """A run of 0.1 gives the texts of its export, a graph that 0.1 itself made, which stops at the context."""
    import zoo

    seed = {"seed": [0] * len(texts)} if name == "text" else {}  # what the signature draws with
    expected = zoo.load(f"saved_models/{name}")(texts, **seed)
    run = zoo.load(f"runs/{name}")
    found = run(texts, **seed)
    assert seed or run.early_stopping is True  # which 0.1 did not write down
    assert [text[: len(old)] if seed else text for text, old in zip(found, expected, strict=True)] == expected
    assert any(expected)


@pytest.mark.long
@pytest.mark.parametrize("name", ["words", "text"])
def test_run_is_exported_again(name, workplace, tmp_path):
    from zoo_training.run import Run

    version = Run.load(pathlib.Path("runs") / name).export(tmp_path / name)
    assert (version / "saved_model.pb").is_file()


@pytest.mark.long
@pytest.mark.parametrize("name", ["words", "text"])
def test_stopped_training_goes_on(name, workplace, tmp_path, monkeypatch, eager):
    """It ends as 0.1 ended, of which `runs/` holds the whole log; the moving average has no warm-up, as there."""
    from zoo_training.run import Run, train
    from zoo_training.schema.recipe import read_recipe

    folder = pathlib.Path("runs") / f"{name}-stopped"
    with (folder / "history.csv").open() as file:
        before = list(csv.DictReader(file))
    monkeypatch.setattr(Run, "export", lambda run, path: path / "1")
    train(name, read_recipe(f"{name}.toml"), folder, "zoo train", tmp_path)
    with (folder / "history.csv").open() as file:
        after = list(csv.DictReader(file))
    with (folder.parent / name / "history.csv").open() as file:
        undisturbed = list(csv.DictReader(file))
    assert (len(before), len(after)) == (2, 3)
    assert after[:2] == before
    for key, value in after[2].items():
        assert float(value) == pytest.approx(float(undisturbed[2][key]), rel=1e-3), key


@pytest.mark.parametrize("name", ["words", "text"])
def test_recipe(name, workplace):
    from zoo_training.schema.recipe import read_recipe

    of_run, of_file = read_recipe(f"runs/{name}/recipe.json"), read_recipe(f"{name}.toml")
    assert of_run == of_file
