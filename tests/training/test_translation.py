"""What a translator's recipe says before it trains."""

import pytest
from zoo_training import translation
from zoo_training.corpora.pairs import Pairs, Part
from zoo_training.schema.recipe import read_recipe


@pytest.mark.parametrize(
    ("target", "tables", "told"),
    [
        ("a man stands here", "", True),
        ("21 November", "", False),
        ("a man stands here", "[model]\nunits = 8\n", False),
        ("a man stands here", '[tokenizer.source]\nkind = "whitespace"\n', False),
    ],
)
def test_that_the_default_model_is_not_for_sentences(tmp_path, monkeypatch, capsys, target, tables, told):
    def stop(*_):
        raise RuntimeError("the corpus is read")

    monkeypatch.setattr(translation, "new_model", stop)
    (tmp_path / "pairs.tsv").write_text("".join(f"{n}\t{target} {n}\n" for n in range(40)))
    (tmp_path / "mine.toml").write_text(f'[corpus]\nkind = "text"\ntrain = "pairs.tsv"\n{tables}')
    with pytest.raises(RuntimeError, match="the corpus is read"):
        translation.prepare(read_recipe(str(tmp_path / "mine.toml")))
    said = " ".join(capsys.readouterr().err.split())
    assert ("suits words, names and dates; for sentences see 'Sentences' in docs/own_data.md" in said) == told


@pytest.mark.parametrize(("epochs", "rows"), [(2, 6), (3, 2)])
def test_a_stage_after_the_last_epoch_does_not_count(epochs, rows):
    """The first corpus is trained on in two epochs only; the other one has two pairs."""
    texts = [f"{number}" for number in range(6)]
    train, validation = Pairs(texts, texts, parts=[Part(4, 1.0, 2), Part(2, 1.0)]), Pairs(texts, texts)
    recipe = read_recipe("dates", [f"training.epochs={epochs}", "training.batch_size=8", "model.units=4"])
    assert translation.prepare(recipe, (train, validation)).fewest_rows == rows
