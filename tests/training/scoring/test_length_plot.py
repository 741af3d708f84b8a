"""BLEU by source length as a picture: what is drawn, and what is said of scores that cannot be."""

import copy
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner
from zoo_training.cli import app
from zoo_training.scoring.bleu import scores
from zoo_training.scoring.length_plot import draw, save
from zoo_training.scoring.plot_files import read_scores

KEY = "bleu_by_source_words"


def metrics(name="rnn", shift=0.0, published=True, **pairs):
    """Scores of three ranges of lengths, of which the last has few pairs."""
    ranges = {"1-5": (30.0, 40), "6-10": (25.5, 1200), "101-105": (10.0, 3)}
    table = {}
    for key, (score, count) in ranges.items():
        each = {"score": score + shift, "low": score + shift - 2, "high": score + shift + 3}
        table[key] = {"pairs": pairs.get(key, count), "bleu": each}
        if published:
            table[key]["bleu_published_style"] = {kind: value + 1 for kind, value in each.items()}
    return {"name": name, KEY: table}


@pytest.fixture
def run(tmp_path):
    """A function that makes the folder of a run, or of a version of an exported model."""

    def run(folder, content, exported=False):
        path = tmp_path / folder
        path.mkdir(parents=True)
        (path / "metrics.json").write_text(content if isinstance(content, str) else json.dumps(content))
        if exported:
            (path / "saved_model.pb").touch()
        return path

    return run


class TestDrawing:
    def test_a_line_a_model_with_its_scores_and_intervals(self):
        axes, below = draw({"a": metrics(), "b": metrics(shift=5)}).axes
        assert [line.get_label() for line in axes.lines] == ["a", "b"]
        for line, band, shift in zip(axes.lines, axes.collections, (0, 5), strict=True):
            np.testing.assert_allclose(line.get_xydata(), [[3, 31 + shift], [8, 26.5 + shift]])
            corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
            assert corners == {(3, 29 + shift), (3, 34 + shift), (8, 24.5 + shift), (8, 29.5 + shift)}
        assert [bar.get_height() for bar in below.patches] == [40, 1200]
        assert [text.get_text() for text in below.texts] == ["40", "1,200"]
        assert [tick.get_text() for tick in below.get_xticklabels()] == ["1–5", "6–10"]

    def test_the_published_style_only_if_all_have_it(self):
        axes = draw({"a": metrics(), "b": metrics(published=False)}).axes[0]
        assert axes.get_ylabel() == "BLEU"
        assert axes.lines[0].get_ydata().tolist() == [30, 25.5]
        assert draw({"a": metrics()}).axes[0].get_ylabel() == "BLEU (lowercased, tokenised)"

    def test_ranges_with_few_pairs_are_left_out(self):
        assert draw({"a": metrics()}, least=40).axes[0].lines[0].get_xdata().tolist() == [3, 8]
        assert draw({"a": metrics()}, least=41).axes[0].lines[0].get_xdata().tolist() == [8]
        with pytest.raises(
            ValueError, match=r"^Some length must have at least 1201 pairs\. Received: 1243 pairs in all$"
        ):
            draw({"a": metrics()}, least=1201)

    def test_lines_differ_without_colours_too_and_a_name_is_no_mathematics(self):
        axes = draw({f"${n}^2$": metrics(shift=n) for n in range(8)}).axes[0]
        assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 8
        assert not axes.get_legend().get_texts()[0].get_parse_math()

    def test_other_pairs_cannot_be_compared(self):
        with pytest.raises(ValueError, match=r"^a and c were scored on different pairs \(1,243 and 1,242\)"):
            draw({"a": metrics(), "b": metrics(), "c": metrics(**{"1-5": 39})})


class TestReading:
    def test_runs_and_exported_models(self, run):
        run("models/rnn/2", metrics("old"), exported=True)
        run("models/rnn/10", metrics("new"), exported=True)
        folder = run("runs/rnn", metrics("run"))
        parent = folder.parents[1]
        folders = (folder, parent / "models/rnn", parent / "models/rnn/2")
        assert [read_scores(path, KEY, "it")["name"] for path in folders] == ["run", "new", "old"]

    def test_scored_by_exact_match_alone(self, run, tmp_path):
        with pytest.raises(
            ValueError, match=r"run/metrics\.json has no BLEU by source length; what was scored by exact"
        ):
            save([run("run", {"exact_match": 0.5, "total": 3, "split": "test"})], tmp_path / "lengths.png")

    def test_what_the_scores_are_made_by(self, run):
        texts = ["one two three four five"] * 20
        run("run", {"name": "copy", **scores(texts, texts, texts, "en")})
        axes, below = draw({"copy": read_scores(run("again", {**scores(texts, texts, texts, "en")}), KEY, "it")}).axes
        assert axes.lines[0].get_xydata().tolist() == [[3, 100]]
        assert below.patches[0].get_height() == 20


class TestSaving:
    @pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml"), ("pdf", b"%PDF")])
    def test_kinds_of_picture(self, run, tmp_path, suffix, start):
        folders = [run("a", metrics("a")), run("b", metrics("b"))]
        paths = [save(folders, tmp_path / "new" / f"{n}.{suffix}") for n in range(2)]
        first, second = (path.read_bytes() for path in paths)
        assert first.startswith(start)
        assert first == second

    def test_legend(self, run, monkeypatch, tmp_path):
        folders = [run("a", metrics("rnn")), run("b", metrics("rnn")), run("c", metrics("transformer"))]
        nameless = copy.deepcopy(metrics())
        del nameless["name"]
        folders.append(run("d", nameless))
        save(folders, tmp_path / "lengths.svg")
        drawn = (tmp_path / "lengths.svg").read_text(encoding="utf-8")
        # Letters are outlines there; what was written stands beside them.
        for label in (str(folders[0]), str(folders[1]), "transformer", str(folders[3])):
            assert f"<!-- {label} -->" in drawn

    def test_a_model_twice(self, run, tmp_path):
        folder = run("a", metrics())
        with pytest.raises(
            ValueError,
            match=rf"^Give each model once\. Received: {re.escape(str(folder))} more than once$",
        ):
            save([folder, folder], tmp_path / "lengths.png")

    def test_the_command(self, run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        run("runs/a", metrics("a")), run("runs/b", metrics("b"))
        result = CliRunner().invoke(app, ["compare-lengths", "runs/a", "runs/b"])
        assert (result.exit_code, result.stdout) == (0, "pictures/lengths.png\n")
        assert (tmp_path / "pictures" / "lengths.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["runs/a", "runs/none"], "zoo: runs/none must be the folder of a finished run"),
            (["runs/a", "--out", "a.gif"], "zoo: --out must end in .png, .svg, .pdf. Received: --out 'a.gif'"),
        ],
    )
    def test_mistakes_of_the_command(self, run, tmp_path, monkeypatch, arguments, told):
        monkeypatch.chdir(tmp_path)
        run("runs/a", metrics("a"))
        result = CliRunner().invoke(app, ["compare-lengths", *arguments])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(told)
        assert [path.name for path in tmp_path.iterdir()] == ["runs"]
