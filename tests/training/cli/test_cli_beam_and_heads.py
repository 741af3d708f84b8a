"""The command line's beam, and its pictures of layers and heads."""

import json
import shutil

import pytest
from command_line import pictures, refuses, run, succeeds

import zoo
from zoo import Translator
from zoo.models import Transformer
from zoo.text import CharacterTokenizer

MODEL, SAVED = "saved_models/backwards", "runs/backwards/translator"


BOTH = ["head 1", "head 2"]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """The folder of a transformer that has learnt nothing, of two decoder layers and three encoder layers."""
    tokenizer = CharacterTokenizer("abc123 ")
    model = Transformer(tokenizer.size, tokenizer.size, 8, 2, 12, encoder_layers=3, decoder_layers=2)
    return Translator(model, tokenizer, tokenizer, max_target_length=5).save(tmp_path_factory.mktemp("saved") / "mine")


class TestBeam:
    def test_n_best_with_an_empty_line_after_each_text(self, trained, monkeypatch):
        saved = zoo.load(SAVED)
        monkeypatch.setattr(zoo, "load", lambda path: saved)  # whose search is then traced once
        wanted = saved.translate(["fade7", "", "b0"], beam_size=4, length_penalty=0.2, n_best=3)
        options = ("--beam", 4, "--length-penalty", 0.2, "--n-best", 3)
        lines = succeeds("translate", SAVED, *options, "--scores", "fade7", "", "b0").split("\n")
        every = [
            *(f"{each.score:.4f}\t{each.text}" for each in (wanted[0], *wanted[0].alternatives)),
            "",
            "0.0000\t",
            "",
            *(f"{each.score:.4f}\t{each.text}" for each in (wanted[2], *wanted[2].alternatives)),
            "",
            "",
        ]
        assert lines == every
        assert len(wanted[0].alternatives) == 2 and wanted[0].text == "7EDAF"
        assert succeeds("translate", SAVED, "--beam", 3, "fade7", "b0") == "7EDAF\n0B\n"  # the best alone
        told = refuses("translate", SAVED, "fade7", "--n-best", 4, "--beam", 3)
        assert told == "--n-best must be at most --beam. Received: --n-best 4, --beam 3"
        result = run("translate", SAVED, "fade7", "--beam", 0)
        assert result.exit_code == 2 and "--beam" in result.stderr

    @pytest.mark.parametrize("options", [("--length-penalty", 0), ("--beam", 3, "--n-best", 2)])
    def test_an_exported_models_beam_is_fixed(self, trained, options):
        assert refuses("translate", MODEL, "fade7", *options) == (
            f"The SavedModel {MODEL}/1 decodes with the beam that it was exported with, and gives the best text alone. "
            f"For {' and '.join(options[::2])} load what was exported: a saved Translator, or its run, runs/NAME."
        )

    def test_a_value_that_the_file_holds_is_no_option(self, transformer, tmp_path):
        file = shutil.copytree(transformer, tmp_path / "changed") / "translator.json"
        file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "beam_size": "a"}), "utf-8")
        told = refuses("translate", file.parent, "abc", "--beam", 3)
        assert told == f"{file}: `beam_size` must be an integer. Received: beam_size='a'"


class TestHeads:
    @pytest.mark.parametrize(
        ("options", "titles"),
        [
            (
                (),
                [
                    (["layer 1", "layer 2"], BOTH),
                    (["layer 1", "layer 2", "layer 3"], BOTH),
                    (["layer 1", "layer 2"], BOTH),
                ],
            ),
            (("--layers", "all"), [(["layer 1", "layer 2"], ["mean of 2 heads"])]),
            (("--heads", "all"), [(["layer 2"], BOTH)]),
            (("--layers", 1, "--heads", 2), [(["layer 1"], ["head 2"])]),
            (("--encoder",), [([f"layer {last}"], ["mean of 2 heads"]) for last in (2, 3, 2)]),
        ],
    )
    @pytest.mark.long
    def test_chosen_maps(self, transformer, tmp_path, eager, options, titles):
        path = tmp_path / "page.html"
        assert succeeds("attend", transformer, "cab1", *options, "--out", path) == f"{path}\n"
        (picture,) = pictures(path)
        assert [(kind["layers"], kind["heads"]) for kind in picture["kinds"]] == titles

    @pytest.mark.long
    def test_of_several_texts_and_as_svg_the_one_map(self, transformer, tmp_path, monkeypatch, eager):
        page, plain = tmp_path / "page.html", tmp_path / "plain.svg"
        succeeds("attend", transformer, "cab1", "b", "--out", page)
        assert [len(each["kinds"]) for each in pictures(page)] == [3, 3]
        succeeds("attend", transformer, "cab1", "--out", plain)
        assert plain.read_text(encoding="utf-8").count('class="inks"') == 1
        monkeypatch.setattr("zoo_training.cli.translate._MOST_WEIGHTS", 10)
        succeeds("attend", transformer, "cab1", "b", "--out", page)
        assert [each["kinds"][0]["shape"][:2] for each in pictures(page)] == [[1, 1], [1, 1]]
        told = refuses("attend", transformer, "cab1", "--layers", 3, "--out", tmp_path / "none.html")
        assert told.startswith("--layers must be 'all', 'last' or a number from 1 to 2 (attention to the source)")
        assert not (tmp_path / "none.html").exists()

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--layers", "mean"), "--layers must be all, last or a number counted from 1. Received: 'mean'"),
            (("--heads", "-1"), "--heads must be all, mean or a number counted from 1. Received: '-1'"),
        ],
    )
    def test_what_is_never_there(self, transformer, tmp_path, options, told):
        assert refuses("attend", transformer, "cab1", *options, "--out", tmp_path / "a.html") == told
        assert list(tmp_path.iterdir()) == []

    def test_one_attention_has_neither(self, trained, tmp_path):
        options = ("--heads", 1, "--encoder", "--out", tmp_path / "a.html")
        told = refuses("attend", SAVED, "fade7", *options)
        assert told == "--heads, --encoder: This model has one attention, without layers and heads to choose from."
        told = refuses("attend", MODEL, "fade7", *options)
        assert told.startswith(
            f"--heads, --encoder: The SavedModel {MODEL}/1 has no signature 'attention_by_head': its"
        )
