"""Running text of the declaration of human rights: paragraphs, and pieces that are of one language alone."""

import collections
import dataclasses
import hashlib
import io
import itertools
import zipfile

import pytest
from zoo_training.corpora import declarations, language_texts
from zoo_training.corpora.corpus import CorpusError
from zoo_training.corpora.declarations import paragraphs, running_texts
from zoo_training.corpora.languages import Languages

TEXTS = {
    # Each with a heading that is too short, and white space as in the public file.
    "deu": """Die Erklärung der Menschenrechte

      Artikel 1
      Alle Menschen sind frei und gleich an Würde und Rechten geboren.
      Artikel 3
      Jeder hat das Recht auf Leben, Freiheit und Sicherheit der Person.
""",
    "nld": """De Universele Verklaring
      Artikel 1
      Alle mensen worden vrij en gelijk in waardigheid en rechten geboren.
      Jeder hat das Recht auf leven,  vrijheid en onschendbaarheid van zijn persoon.
      Vertaling: iemand@voorbeeld.nl
""",
    "tha": """ปฏิญญาสากลว่าด้วยสิทธิมนุษยชน
      ข้อ 3
      คนทุกคนมีสิทธิในการดำรงชีวิต เสรีภาพ และความมั่นคงแห่งตัวตน
""",
    "yor": """Ìkéde káríayé fún ẹ̀tọ́ ọmọnìyàn
      Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti è̩tó̩ kò̩ò̩kan sì dó̩gba.
""",
}  # fmt: skip


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder with a small file in the public one's place."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in TEXTS.items():
            archive.writestr(f"udhr2/{name}.txt", text)
    (tmp_path / "udhr2.zip").write_bytes(file.getvalue())
    checksums = {"udhr2.zip": hashlib.sha256(file.getvalue()).hexdigest()}
    monkeypatch.setattr(declarations, "_PUBLIC", dataclasses.replace(declarations._PUBLIC, checksums=checksums))
    return tmp_path


def texts_of(folder, *names, **scripts):
    """The running text of languages, all of it for training."""
    named = {code: names[0] if names else () for code in scripts}
    return running_texts(scripts, named, lambda number: "train", folder)["train"]


def test_paragraphs_are_lines_without_headings(folder):
    assert paragraphs("de", folder) == [
        "Die Erklärung der Menschenrechte",
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
        "Jeder hat das Recht auf Leben, Freiheit und Sicherheit der Person.",
    ]
    assert paragraphs("nl", folder)[-1] == (
        "Jeder hat das Recht auf leven, vrijheid en onschendbaarheid van zijn persoon."  # one space, and no address
    )
    assert paragraphs("ku", folder) == []
    assert paragraphs("yo", folder)[1].endswith("ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba.")  # with dots, as they are typed


def test_pieces_in_turn_follow_the_text(folder):
    german = texts_of(folder, de="Latn")["de"]
    # Of 4, 11 and 11 words; a sentence has 4 to 16, one more each time.
    assert list(german.in_turn("sentence")) == [
        "Die Erklärung der Menschenrechte",
        "Alle Menschen sind frei und",
        "gleich an Würde und Rechten geboren.",
        "Jeder hat das Recht auf Leben, Freiheit",
        "und Sicherheit der Person.",
    ]
    assert list(german.in_turn("words"))[:6] == [
        "Die",
        "Erklärung der",
        "Menschenrechte",
        "Alle",
        "Menschen sind",
        "frei und gleich",
    ]
    assert list(german.in_turn("words"))[-2:] == ["und Sicherheit", "der Person"]  # without the full stop


def test_pieces_are_of_one_language_alone(folder):
    both = texts_of(folder, de="Latn", nl="Latn")
    german = set(both["de"].in_turn("words"))
    # Dutch has 'Alle', 'Artikel 1' is no text, 'Jeder hat das' is in both.
    assert "Alle" not in german and "Jeder" not in german and "Menschen sind" in german
    assert "Alle" in set(texts_of(folder, de="Latn")["de"].in_turn("words"))
    german = texts_of(folder, {"Menschen sind", "ALLE"}, de="Latn", nl="Latn")["de"]
    # 'Menschen sind' is said to be a name in both languages.
    assert "Menschen sind" not in set(german.in_turn("words"))
    # Three words in a row that only German has; 'Jeder hat das Recht auf' alone would be in both.
    draws = itertools.product(range(40), range(13))
    drawn = {both["de"].draw("sentence", each) for each in draws}
    assert None in drawn and "Jeder hat das Recht" not in drawn and "das Recht auf Leben, Freiheit" in drawn


@pytest.mark.parametrize(("kind", "sizes"), [("sentence", range(4, 17)), ("words", range(1, 4))])
def test_drawn_pieces_stand_in_the_text_and_have_all_sizes(folder, kind, sizes):
    german = texts_of(folder, de="Latn")["de"]
    whole = paragraphs("de", folder)
    pieces = {german.draw(kind, [place, size]) for place in range(27) for size in range(13)}
    assert None not in pieces and all(any(piece in each for each in whole) for piece in pieces)
    counts = collections.Counter(len(piece.split()) for piece in pieces)
    assert set(counts) == {size for size in sizes if size <= 11}  # the longest paragraph has 11 words
    for word in " ".join(whole).split():
        assert any(word.strip(".,") in piece for piece in pieces)  # each has its turn


def test_without_spaces_pieces_consist_of_whole_characters(folder):
    thai = texts_of(folder, th="Thai")["th"]
    pieces = [*thai.in_turn("words"), *thai.in_turn("sentence")]
    assert pieces[0] == "ปฏิ" and all(len(piece) >= 2 for piece in pieces)
    marks = {"\u0e34", "\u0e31", "\u0e48", "\u0e49", "\u0e4c"}  # vowels and tones above or below a consonant
    assert not any(piece[0] in marks for piece in pieces)
    assert "".join(thai.paragraphs[0]) == "ปฏิญญาสากลว่าด้วยสิทธิมนุษยชน"


def test_a_language_without_a_translation_has_no_pieces(folder):
    kurdish = texts_of(folder, ku="Latn")["ku"]
    assert kurdish.draw("sentence", [5, 6, 7]) is None and list(kurdish.in_turn("words")) == []


def test_paragraphs_are_divided_among_splits(folder):
    split_of = ["train", "test", "validation"].__getitem__
    texts = running_texts({"de": "Latn"}, {"de": ()}, split_of, folder)
    first = {split: next(of_split["de"].in_turn("sentence")) for split, of_split in texts.items()}
    assert first == {
        "train": "Die Erklärung der Menschenrechte",
        "test": "Alle Menschen sind frei",
        "validation": "Jeder hat das Recht",
    }


@pytest.fixture
def few_keywords(monkeypatch):
    """Keywords of eight emoji, in German alone."""
    german = {emoji: [f"Wort {emoji}"] for emoji in "ABCDEFGH"}
    monkeypatch.setattr(
        language_texts, "keywords", lambda codes, _: {code: german if code == "de" else {} for code in codes}
    )


def test_the_corpus_has_sentences_words_and_keywords(folder, few_keywords):
    sizes = {"train_examples": 480, "validation_examples": 20, "test_examples": 20}
    corpus = Languages(languages=("de", "nl", "ku"), folder=folder, **sizes)
    texts = corpus.read("train")
    kinds = collections.defaultdict(collections.Counter)
    for label, kind in zip(texts.labels, texts.groups, strict=True):
        kinds[label][kind] += 1
    # 480 texts / 3 languages / 8 kinds = 20; a piece that both languages have is a list instead.
    assert kinds["de"]["name"] == 20 and 0 < kinds["de"]["sentence"] <= 20 and 0 < kinds["de"]["words"] <= 20
    assert [kinds[label]["keyword"] for label in ("de", "nl")] == [20, 0]
    assert kinds["ku"]["list"] >= 80 and not kinds["ku"]["sentence"]
    without = Languages(languages=("de", "nl"), sentences=False, **sizes).read("train")
    assert set(without.groups) == {"name", "list", "unit", "date", "relative date"}


def test_a_missing_file_that_cannot_be_downloaded_is_named(monkeypatch, tmp_path, few_keywords):
    monkeypatch.setattr(declarations, "_PUBLIC", dataclasses.replace(declarations._PUBLIC, address="file:///nowhere"))
    corpus = Languages(languages=("de", "nl"), folder=tmp_path)
    with pytest.raises(CorpusError, match=r"udhr2\.zip is missing, and .* cannot be downloaded"):
        corpus.read("test")
