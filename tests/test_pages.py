"""README and the pages: their Python runs, their recipes are valid, their links, names and commands exist."""

import json
import os
import pathlib
import pydoc
import re
import shlex
import subprocess
import sys
import tomllib
import warnings

import nbformat
import pytest
from tensorflow.core.protobuf import saved_model_pb2
from typer.testing import CliRunner
from zoo_training.cli import app
from zoo_training.corpora.file_pairs import FilePairs

import zoo
from zoo.extras import MissingExtraError

ROOT = pathlib.Path(__file__).parent.parent
NAMES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/notes.md",
    "saved_models/README.md",
    "zoo/layers/README.md",
]
NAMES += [f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
RUN_AS_PROGRAMS = ["README.md", "saved_models/README.md", "zoo/layers/README.md"]
RUN_AS_PROGRAMS += [f"docs/{name}.md" for name in ("batch", "encoders", "exported_models", "language_models")]


def blocks(name, language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[name], re.DOTALL | re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in RUN_AS_PROGRAMS for number in range(len(blocks(name, "python")))]
)
def test_python_runs(name, number, monkeypatch, tmp_path):
    if "zoo.beam" in blocks(name, "python")[number]:
        pytest.importorskip("apache_beam", reason="needs the extra 'beam'")
    for folder in ("saved_models", "docs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    block = re.sub(r"epochs=\d+", "epochs=1", blocks(name, "python")[number])  # what it learns is not looked at
    exec(compile(block, name, "exec"), {})


@pytest.mark.long
def test_the_program_of_encoders_takes_an_encoder_with_segments(monkeypatch, tmp_path):
    """As an imported BERT has them; without the export."""
    encoder = "zoo.models.Encoder(tokenizer.size, units=16, num_heads=2, num_layers=1, num_segments=2)"
    [program] = blocks("docs/encoders.md", "python")
    changed = program.replace("RNNEncoder(tokenizer.size, units=16)", encoder).partition("zoo.serving.export")[0]
    changed = changed.replace("epochs=8", "epochs=1")
    assert encoder in changed and "epochs=1" in changed
    monkeypatch.chdir(tmp_path)
    exec(compile(changed, "docs/encoders.md", "exec"), {})


@pytest.mark.long
def test_the_keras_script_goes_from_texts_to_answers(tmp_path, monkeypatch):
    """The second and third block each in a new process; the last one without the zoo."""
    first, *others = blocks("docs/keras_script.md", "python")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        exec(compile(first, "docs/keras_script.md", "exec"), {})
    for block in others:
        done = subprocess.run([sys.executable, "-c", block], check=True, capture_output=True, text=True)
        assert "UserWarning" not in done.stderr
    assert "zoo" not in block and done.stdout == "[b'21 November 2026' b'3 February 1999']\n"


def test_a_csv_file_becomes_a_tsv(tmp_path, monkeypatch):
    """With quotes, a tab and a line break inside its texts; a text is missing, and a last line is too short."""
    monkeypatch.chdir(tmp_path)
    rows = 'id,english,german\n1,"He said ""no"",\n twice.",Nein\t!\n2,Yes.,Ja.\n3,,Wer?\n4,Who?\n'
    pathlib.Path("pairs.csv").write_text(rows, encoding="utf-8-sig")
    (block,) = blocks("docs/own_data.md", "python")
    exec(block, {})
    found = FilePairs(train=pathlib.Path("pairs.tsv"), validation_pairs=0, test_pairs=0).read("train")
    assert (found.sources, found.targets) == (['He said "no", twice.', "Yes."], ["Nein !", "Ja."])


def test_json_lines_become_a_tsv(tmp_path, monkeypatch):
    """Also with numbers, such as the label 0, which is not an empty cell."""
    monkeypatch.chdir(tmp_path)
    rows = [{"english": "so\tso", "german": 0}, {"german": 1, "english": 2.5}, {"english": None, "german": "x"}]
    pathlib.Path("pairs.csv").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (block,) = blocks("docs/own_data.md", "python")
    exec(block.replace("csv.DictReader(file)", "map(json.loads, file)"), {"json": json})
    assert pathlib.Path("pairs.tsv").read_text(encoding="utf-8") == "so so\t0\n2.5\t1\n\tx\n"


@pytest.mark.long
def test_the_site_has_every_page_and_figure_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra 'docs'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    page = (tmp_path / "zoo" / "layers" / "index.html").read_text(encoding="utf-8")
    figures = re.findall(r'<iframe class="attention" src="([^"]+)"', page)
    records = {file.stem for file in (ROOT / "docs" / "layers").glob("*.json")}
    assert {pathlib.Path(figure).stem for figure in figures} == records and len(records) == 8
    assert all((tmp_path / "zoo" / "layers" / figure).exists() for figure in figures)
    assert (
        page.count("<math") > 20
        and "$" not in re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL).split("<article")[1]
    )
    packages = {name: getattr(zoo, name) for name in ("layers", "models", "decoding", "text", "serving", "pictures")}
    for name, package in {**packages, "tasks": zoo}.items():
        reference = (tmp_path / "api" / name / "index.html").read_text(encoding="utf-8")
        assert {each for each in package.__all__ if f'id="{package.__name__}.{each}"' not in reference} == set(), name
    assert 'id="zoo.Translator.translate"' in reference, "a method of its base"
    # A list, a table and code inside an item of a list stay there.
    found = {
        name: (tmp_path / "docs" / name / "index.html").read_text() for name in ("import", "operations", "serving")
    }
    assert re.search(r"For 4 beams:\s*<ul>", found["import"])
    assert re.search(r"million parameters took:\s*(</p>\s*)?<table>", found["operations"])
    assert re.search(r"deployment/zoo-serving</code>\.</p>\s*<div class=\"[^\"]*highlight", found["serving"])
    # An item after a paragraph of the item before needs an empty line between them.
    for file in tmp_path.rglob("index.html"):
        prose = re.sub(r"<pre.*?</pre>", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert re.findall(r"^\s*(?:-|\d+\.) .*", prose.partition("<article")[2], re.MULTILINE) == [], file
    # Without this one, the theme keeps the light or dark of the first visit.
    assert 'data-md-color-media="(prefers-color-scheme)"' in page
    for file in tmp_path.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]* src="?(?:https?:)?//', text) == [], file
        assert re.findall(r'<link rel="?stylesheet"?[^>]* href="?(?:https?:)?//', text) == [], file


@pytest.mark.long
def test_the_notebook_runs_and_shows_what_it_says(tmp_path):
    """Attention turns twenty letters around, a thought vector does not; a transformer does if it knows the places.

    The two recurrent networks, of Keras alone, are trained in one epoch here: their ten take a minute.
    """
    sys.path.append(str(ROOT / "docs" / "notebooks"))
    from run import executed

    def shares(notebook):
        texts = "".join(each.get("text", "") for cell in notebook.cells for each in cell.get("outputs", []))
        return [int(share) for share in re.findall(r"(\d+)%", texts)]

    file = ROOT / "docs" / "notebooks" / "attention.ipynb"
    thought, attention, *shown = shares(nbformat.read(file, 4))
    assert attention > thought + 20 and attention > 85
    content = file.read_text(encoding="utf-8")
    assert content.count("epochs=10)") == 2
    (tmp_path / "short.ipynb").write_text(content.replace("epochs=10)", "epochs=1)"), encoding="utf-8")
    _, _, *found = shares(executed(tmp_path / "short.ipynb"))
    for bag, places in (shown, found):
        assert bag < 40 and places > 95
    assert file.stat().st_size < 150_000


@pytest.mark.peers
def test_hf_downloads_all_that_an_import_reads(monkeypatch):
    """Without a network: what `hf` would download."""
    from huggingface_hub.cli import download
    from huggingface_hub.cli.hf import app as hf

    asked = []
    monkeypatch.setattr(download, "snapshot_download", lambda **options: asked.append(options) or "folder")
    [command] = re.findall(r"^hf (download .*?[^\\])\n", blocks("docs/import.md", "sh")[0], re.DOTALL | re.MULTILINE)
    hf(shlex.split(command.replace("\\\n", "")), standalone_mode=False)
    assert asked[0]["allow_patterns"] == ["*.json", "*.spm", "pytorch_model.bin"]
    assert asked[0]["local_dir"] == "opus-mt-en-de"


@pytest.mark.parametrize("name", PAGES)
def test_links_files_and_names_lead_somewhere(name):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", PAGES[name], flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)]+)\)", prose):
        file, _, heading = link.partition("#")
        if "://" not in link:
            target = (ROOT / name).parent / file if file else ROOT / name
            assert target.exists(), link
            if heading:
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, link
    for path in re.findall(r"`((?:zoo|training|tests|docs|benchmarks|deploy)/[\w/]+\.(?:py|md))`", PAGES[name]):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`(zoo(?:\.\w+)+)[`(]", PAGES[name]):
        try:
            assert pydoc.locate(path) is not None, path
        except pydoc.ErrorDuringImport as error:
            assert isinstance(error.value, MissingExtraError), path


@pytest.mark.parametrize(
    "command", sorted({command for page in PAGES.values() for command in re.findall(r"\bzoo ([a-z-]+) [A-Zm\[]", page)})
)
def test_command_exists(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_exist(name):
    targets = re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[name], re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/own_data.md", "docs/language_models.md"])
def test_recipes_are_valid(page, tmp_path):
    """The recipe that a page writes with `cat`, and what it adds to it as TOML."""
    from zoo_training.schema.recipe import read_recipe

    [recipe] = re.findall(r"^cat > (?:mine|book)\.toml <<'END'\n(.*?)^END", PAGES[page], re.DOTALL | re.MULTILINE)
    file = tmp_path / "mine.toml"
    whole = re.compile(r"^\[\[?corpus\]", re.MULTILINE)  # a block that is a recipe, and no addition to one
    alone = [block for block in blocks(page, "toml") if whole.search(block)]
    file.write_text("\n".join([recipe, *(block for block in blocks(page, "toml") if block not in alone)]))
    assert read_recipe(str(file)).corpus.kind == "text"
    assert set(tomllib.loads(file.read_text())) >= {"corpus"}
    for block in alone:
        file.write_text(block)
        read_recipe(str(file))


@pytest.mark.parametrize("recipe", blocks("docs/better_translators.md", "toml"))
def test_recipes_of_better_translators_are_valid(recipe, tmp_path):
    from zoo_training.schema.recipe import read_recipe

    (tmp_path / "recipe.toml").write_text(recipe)
    read_recipe(str(tmp_path / "recipe.toml"))


@pytest.mark.parametrize(
    ("page", "name", "family"), [("own_data", "tuned", "rnn_seq2seq"), ("encoders", "reviews", "classifier")]
)
def test_other_recipes_are_valid(page, name, family, tmp_path):
    from zoo_training.schema.recipe import read_recipe

    written = re.search(rf"^cat > {name}\.toml <<'END'\n(.*?)^END", PAGES[f"docs/{page}.md"], re.DOTALL | re.MULTILINE)
    (tmp_path / "recipe.toml").write_text(written[1])
    assert read_recipe(str(tmp_path / "recipe.toml")).model.family == family


def test_readme_is_a_shop_window():
    assert len(PAGES["README.md"].splitlines()) <= 200


class TestReleasedModels:
    """What `dates` answers is in `tests/training/test_demo.py`."""

    def test_language_model(self):
        pydoc = zoo.load(ROOT / "saved_models" / "gpt-pydoc" / "1")
        [generated] = pydoc.generate(["The yield expression"], max_new_tokens=60, seed=1)
        assert (generated.tokens, len(generated.text) > 60) == (60, True)
        manual, mixed = pydoc.score(["The yield expression is evaluated.", "evaluated is The expression yield."])
        assert manual.perplexity < 0.1 * mixed.perplexity

    def test_languages(self):
        texts = {
            "Norwegen, Schweden und Finnland": "de",
            "vendredi 3 mai 2024 à 14:05": "fr",
            "12 किलोमीटर": "hi",
            "πριν από 3 ημέρες": "el",
            "Türkiye ve Azerbaycan": "tr",
            "Where is the nearest railway station?": "en",
            "Il treno parte dal binario tre": "it",
            "El tren a Colonia sale hoy de la vía tres": "es",
            "今日はいい天気ですね": "ja",
            "Hello, how are you?": "en",
            "Tack så mycket": "sv",
        }
        classes = zoo.load(ROOT / "saved_models" / "languages" / "1").classify(list(texts))
        assert {text: found.label for text, found in zip(texts, classes, strict=True)} == texts

    def test_pronunciations(self):
        words = {
            "Thought": "TH AO1 T",
            "attention": "AH0 T EH1 N SH AH0 N",
            "pronunciation": "P R OW0 N AH2 N S IY0 EY1 SH AH0 N",
            "XYLOPHONE": "Z AY1 L AH0 F OW2 N",
            "tokenizer": "T OW1 K AH0 N AY2 Z ER0",  # which the dictionary lacks
            "": "",
        }
        pronounce = zoo.load(ROOT / "saved_models" / "pronounce" / "1")
        assert dict(zip(words, pronounce([*words]), strict=True)) == words
        odd = pronounce(["日本語", "a" * 500, "\0", "two words", "x-ray", " \t"])
        assert all(set(text) <= set("ABCDEFGHIJKLMNOPRSTUVWYZ012 ") for text in odd)

    @pytest.mark.parametrize("name", ["dates", "gpt-pydoc", "languages", "pronounce"])
    def test_they_are_small_and_servable(self, name):
        version = ROOT / "saved_models" / name / "1"
        most = 6e6 if name == "gpt-pydoc" else 5e6  # bytes; with its signatures to explore it has 5.6 million
        assert sum(file.stat().st_size for file in version.rglob("*") if file.is_file()) < most
        assert {"README.md", "metrics.json", "recipe.json"} <= {file.name for file in version.iterdir()}
        assert zoo.serving.check(version) == []
        card = (version / "README.md").read_text(encoding="utf-8")
        [graph] = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes()).meta_graphs
        signatures = {name for name in graph.signature_def if not name.startswith("__saved_model")}
        assert len(signatures) > 1
        assert [signature for signature in signatures if f"`{signature}`" not in card] == []
