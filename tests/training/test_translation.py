"""What a translator's recipe says before it trains."""

import pytest
from zoo_training import translation
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
