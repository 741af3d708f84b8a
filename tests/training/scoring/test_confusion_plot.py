"""The table of confusions as a picture: what is drawn, and what is said of scores that cannot be."""

import itertools
import json
import warnings

import numpy as np
import pytest
from matplotlib import font_manager
from typer.testing import CliRunner
from zoo_training.cli import app
from zoo_training.run_files import saved_digest
from zoo_training.scoring.confusion_plot import draw, save


def metrics(labels, counts, name="mood"):
    counts = np.array(counts)
    total = int(counts.sum())
    return {
        "name": name,
        "metric": "accuracy",
        "accuracy": counts.trace() / total,
        "macro_f1": 0.5,
        "calibration_error": 0.25,
        "total": total,
        "split": "test",
        "confusion": {"labels": labels, "counts": counts.tolist()},
    }


# The second class has no texts.
FEW = metrics(["bad", "a mixed mood", "good"], [[30, 10, 0], [0, 0, 0], [50, 150, 1800]])


def many(classes, right=95):
    """Each class has some texts that are given the next class, the more the later the class is."""
    counts = np.diag([right] * classes)
    counts[np.arange(classes), (np.arange(classes) + 1) % classes] = np.arange(classes)
    return metrics([f"c{number}" for number in range(classes)], counts)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that makes the folder of a run, or of a version of an exported model, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def run(folder, content, exported=False):
        path = tmp_path / folder
        path.mkdir(parents=True)
        (path / "metrics.json").write_text(json.dumps(content))
        if exported:
            (path / "saved_model.pb").touch()
        return path

    return run


def ticks(labels):
    return [label.get_text() for label in labels]


class TestDrawing:
    def test_few_classes_have_their_counts_on_the_share_of_the_row(self):
        figure = draw(FEW, "mood")
        axes, bar = figure.axes
        assert axes.images[0].get_array().tolist() == [[0.75, 0.25, 0], [0, 0, 0], [0.025, 0.075, 0.9]]
        written = {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}
        assert written == {
            (column, row): shown
            for row, line in enumerate((["30", "10", "0"], ["0", "0", "0"], ["50", "150", "1,800"]))
            for column, shown in enumerate(line)
        }
        assert ticks(axes.get_xticklabels()) == ticks(axes.get_yticklabels()) == ["bad", "a mixed mood", "good"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("class given", "true class")
        assert bar.get_ylabel() == "share of the true class"
        assert figure.get_suptitle() == "mood: 89.71% accuracy on 2,040 test texts"

    def test_of_many_classes_the_mistakes_have_another_colour_and_scale_than_the_right_answers(self):
        figure = draw(many(23))
        right, mistakes = figure.axes[0].images
        assert not figure.axes[0].texts
        np.testing.assert_array_equal(~np.ma.getmaskarray(right.get_array()), np.eye(23, dtype=bool))
        drawn = ~np.ma.getmaskarray(mistakes.get_array())
        assert drawn.sum() == 22 and drawn[22, 0] and not drawn[0, 1], "the first class has no mistakes"
        assert mistakes.get_clim() == (0, 22 / 117)
        assert right.get_cmap().name != mistakes.get_cmap().name
        assert figure.axes[1].get_ylabel() == "mistakes: share of the true class"

    def test_many_classes_without_a_mistake(self):
        counts = np.diag([3] * 21)
        draw(metrics([f"c{n}" for n in range(21)], counts)).canvas.draw()

    def test_of_too_many_classes_those_with_the_most_mistakes_in_their_order(self):
        figure = draw(many(130))
        # Of class n, n texts are wrong, and n - 1 others are given it; of class 0, 129 are.
        kept = [f"c{n}" for n in (*range(31, 130),)]
        assert ticks(figure.axes[0].get_yticklabels()) == ["c0", *kept]
        assert figure.get_suptitle().endswith("\nthe 100 of 130 classes with the most mistakes")

    @pytest.mark.parametrize("classes", [2, 5, 20, 21, 80])
    def test_nothing_is_cut_off_and_labels_do_not_overlap(self, classes):
        labels = [f"a label that is longer than most, number {n}" if n % 3 else "Ελ" for n in range(classes)]
        figure = draw(metrics(labels, many(classes)["confusion"]["counts"]), "a long name of a model")
        figure.canvas.draw()
        renderer, (width, height) = figure.canvas.get_renderer(), figure.bbox.size
        for side in ("get_xticklabels", "get_yticklabels"):
            boxes = [tick.get_window_extent(renderer) for tick in getattr(figure.axes[0], side)()]
            assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes)
            for one, next_one in itertools.pairwise(boxes):
                assert not one.overlaps(next_one)

    def test_labels_are_no_mathematics_and_long_ones_are_cut_off(self):
        axes = draw(metrics(["$x^2$", "y" * 40], [[1, 2], [3, 4]])).axes[0]
        assert not any(label.get_parse_math() for label in axes.get_xticklabels())
        assert ticks(axes.get_xticklabels()) == ["$x^2$", "y" * 31 + "…"]

    def test_scripts_that_the_font_has_are_drawn_and_others_named(self, monkeypatch):
        monkeypatch.setattr(font_manager, "get_font_names", lambda: ["DejaVu Sans"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            draw(metrics(["Ελληνικά", "русский", "עברית"], np.eye(3, dtype=int)), "née").canvas.draw()
        with pytest.raises(
            ValueError, match=r"^No font has 1 of the characters: 文 .*\. Read the table in metrics\.json;"
        ):
            draw(metrics(["文", "a"], [[1, 2], [3, 4]]))


class TestFiles:
    @pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml"), ("pdf", b"%PDF")])
    def test_the_same_scores_give_the_same_file(self, run, tmp_path, suffix, start):
        folder = run("runs/mood", FEW)
        first, second = (save(folder, tmp_path / "new" / f"{n}.{suffix}").read_bytes() for n in range(2))
        assert first.startswith(start)
        assert first == second

    def test_the_command(self, run, tmp_path):
        run("saved_models/mood/3", FEW, exported=True)
        result = CliRunner().invoke(app, ["confusion", "saved_models/mood"])
        assert (result.exit_code, result.stdout) == (0, "pictures/mood-confusion.png\n")
        assert (tmp_path / "pictures/mood-confusion.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["runs/mood", "--out", "a.gif"], "zoo: --out must end in .png, .svg, .pdf. Received: --out 'a.gif'\n"),
            (["runs/none"], "zoo: runs/none must be the folder of a finished run"),
            (
                ["runs/dates"],
                "zoo: runs/dates/metrics.json has no table of confusions; only a scored classifier of one ",
            ),
        ],
    )
    def test_mistakes_of_the_command(self, run, tmp_path, arguments, told):
        run("runs/mood", FEW)
        run("runs/dates", {"metric": "exact_match", "exact_match": 0.5, "total": 3, "split": "test"})
        result = CliRunner().invoke(app, ["confusion", *arguments])
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert result.stderr.startswith(told)
        assert [path.name for path in tmp_path.iterdir()] == ["runs"]

    def test_a_model_that_was_replaced_has_no_scores(self, run, tmp_path):
        saved = run("runs/mood", {}) / "classifier"
        saved.mkdir()
        (saved / "classifier.json").write_text("{}")
        (saved / "model.keras").write_text("one")
        content = FEW | {"digests": {"model": saved_digest(saved.parent)}}
        (saved.parent / "metrics.json").write_text(json.dumps(content))
        assert CliRunner().invoke(app, ["confusion", "runs/mood"]).exit_code == 0
        (saved / "model.keras").write_text("other")
        result = CliRunner().invoke(app, ["confusion", "runs/mood"])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == (
            "zoo: the model in runs/mood has changed since it was trained, so the scores in metrics.json are not its "
            "own; `zoo evaluate runs/mood` prints its scores\n"
        )
