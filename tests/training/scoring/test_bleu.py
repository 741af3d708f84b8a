"""BLEU: against numbers computed by hand, a second implementation, and the public files of Multi30k."""

import collections
import json
import math
import random
import statistics
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.significance import _bootstrap_resample
from zoo_training.corpora.multi30k import Multi30k
from zoo_training.scoring import bleu
from zoo_training.scoring.bleu import corpus_bleu, has_published_style, published_style, scores

DATA = Path(__file__).parents[4] / "shared" / "data" / "multi30k"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"needs the corpora in {DATA}, which are not part of the project"
)


def by_definition(hypotheses, references):
    """BLEU of texts split at spaces, without smoothing, from Papineni et al. (2002), section 2."""
    right, total = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(4):
            ours, theirs = (
                collections.Counter(zip(*(words[k:] for k in range(n + 1)), strict=False))
                for words in (hypothesis.split(), reference.split())
            )
            right[n] += sum((ours & theirs).values())
            total[n] += sum(ours.values())
    if not all(right):
        return 0.0
    lengths = [sum(len(text.split()) for text in side) for side in (hypotheses, references)]
    penalty = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * penalty * math.prod(r / t for r, t in zip(right, total, strict=True)) ** (1 / 4)


WORDS = ("the", "a", "man", "dog", "sits", "stands", "near", "red", "blue", "hat", "in", "on", "and")


def made_up(number, seed=0, kept=0.85):
    """Sources, outputs and references of random words; the output keeps most words of its reference."""
    chance = random.Random(seed)
    references = [" ".join(chance.choices(WORDS, k=chance.randint(4, 30))) for _ in range(number)]
    outputs = [" ".join(w if chance.random() < kept else "oops" for w in text.split()) for text in references]
    return references, outputs, references


class TestCorpusBleu:
    def test_by_hand(self):
        # 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples; equally long
        wanted = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
        assert corpus_bleu(["the cat sat on the mat"], ["the cat sat on a mat"]) == pytest.approx(wanted)

    def test_of_the_texts_as_they_are(self):
        assert corpus_bleu(["Ein Mann steht da."], ["Ein Mann steht da."]) == pytest.approx(100)
        assert corpus_bleu(["ein mann steht da."], ["Ein Mann steht da."]) < 60

    def test_languages_without_spaces(self):
        # Six of seven characters in common; as one word they have nothing in common.
        assert corpus_bleu(["我今天去学校了"], ["我今天去学校吧"]) == 0
        for language in ("zh", "zh-TW", "ja"):
            wanted = 100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** (1 / 4)
            assert corpus_bleu(["我今天去学校了"], ["我今天去学校吧"], language) == pytest.approx(wanted)


class TestScores:
    def test_both_kinds_against_the_definition(self):
        texts = made_up(20)
        result = scores(*texts, language="en")
        for kind in ("bleu", "bleu_published_style"):  # lower case and no punctuation: they are the same
            assert result[kind]["score"] == pytest.approx(by_definition(*texts[1:]), abs=0.005)

    def test_published_style_is_the_definition_on_tokens_in_lower_case(self):
        references = ["The man's hat, it's „blue“ (or red).", "A dog (brown) barks; two men don't care!"]
        outputs = ["the Man's hat, it's \"blue\" (and red).", "A dog (brown) barks; two men do not care!"]
        wanted = by_definition(published_style(outputs, "en"), published_style(references, "en"))
        result = scores(references, outputs, references, "en")
        assert result["bleu_published_style"]["score"] == pytest.approx(wanted, abs=0.005)
        assert 20 < result["bleu"]["score"] < wanted - 20  # where the case of a letter and the form of a quote count

    def test_what_is_right_and_what_is_nothing(self):
        result = scores(["a"], ["a b x c d"], ["a b y c d"], "en")
        assert result["bleu_published_style"]["score"] == 0 < result["bleu"]["score"]  # which alone is smoothed
        sources, _, references = made_up(20)
        for outputs, wanted in ((references, 100.0), ([""] * 20, 0.0)):
            result = scores(sources, outputs, references, "de")
            for kind in ("bleu", "bleu_published_style", "chrf"):
                score = result[kind]
                assert (score["score"], score["low"], score["high"]) == (wanted, wanted, wanted)

    def test_signatures(self):
        result = scores(*made_up(10), language="de")
        common = "nrefs:1|bs:1000|seed:12345|case:mixed|"
        assert result["bleu"]["signature"].startswith(f"{common}eff:no|tok:13a|smooth:exp|version:")
        assert result["bleu_published_style"]["signature"].startswith(f"{common}eff:no|tok:none|smooth:none|version:")
        assert result["chrf"]["signature"].startswith(f"{common}eff:yes|nc:6|nw:0|space:no|version:")
        assert "|tok:char|" in scores(*made_up(10), language="ja")["bleu"]["signature"]

    def test_without_rules_there_is_no_published_style(self):
        result = scores(*made_up(5), language="zh")
        assert set(result) == {"bleu", "chrf", "bleu_by_source_words"}
        assert all(set(bucket) == {"pairs", "bleu"} for bucket in result["bleu_by_source_words"].values())
        assert json.dumps(result) == json.dumps(scores(*made_up(5), language="zh")), "it differs each time"


class TestIntervals:
    def test_where_nothing_matches_in_some_resamples(self):
        """A model that has learnt nearly nothing: sacrebleu itself fails to average its scores of two types."""
        references = ["Ein Mann geht die Straße entlang."] * 1000
        outputs = ["Ein Mann"] + [""] * 999
        found = scores(["a source"] * 1000, outputs, references)
        metric = sacrebleu.CHRF()
        statistics_of_rows = metric._extract_corpus_statistics(outputs, [references])
        _, resamples = _bootstrap_resample(statistics_of_rows, metric, 1000)
        wanted = sorted(float(resample.score) for resample in resamples)
        assert wanted[0] == 0 < wanted[-1]
        interval, mean = (wanted[974] - wanted[25]) / 2, statistics.mean(wanted)
        assert found["chrf"]["score"] == round(metric.corpus_score(outputs, [references]).score, 2)
        assert found["chrf"]["low"] == pytest.approx(max(0, mean - interval), abs=0.006)
        assert found["chrf"]["high"] == pytest.approx(mean + interval, abs=0.006)
        assert found["bleu"]["low"] >= 0

    def test_elsewhere_chrf_is_what_sacrebleu_gives(self):
        _, outputs, references = made_up(40, kept=0.5)
        metric = sacrebleu.CHRF()
        wanted = metric.corpus_score(outputs, [references], n_bootstrap=1000)
        assert scores(references, outputs, references)["chrf"] == {
            "score": round(wanted.score, 2),
            "low": pytest.approx(float(wanted._mean - wanted._ci), abs=0.006),
            "high": pytest.approx(float(wanted._mean + wanted._ci), abs=0.006),
            "signature": str(metric.get_signature()),
        }

    def test_as_wide_as_by_resampling(self):
        _, outputs, references = made_up(40, kept=0.7)
        chance, resampled = random.Random(1), []
        for _ in range(200):
            rows = chance.choices(range(40), k=40)
            resampled.append(by_definition([outputs[row] for row in rows], [references[row] for row in rows]))
        deviation = statistics.stdev(resampled)
        score = scores(references, outputs, references, "en")["bleu_published_style"]
        assert score["low"] < score["score"] < score["high"]
        assert score["high"] - score["low"] == pytest.approx(2 * 1.96 * deviation, rel=0.2)

    def test_large_sets_are_resampled_less_often(self, monkeypatch):
        monkeypatch.setattr(bleu, "_MOST_RESAMPLED", 30 * 250)
        assert "|bs:250|" in scores(*made_up(30))["bleu"]["signature"]
        assert "|bs:100|" in scores(*made_up(300))["bleu"]["signature"]


class TestBySourceWords:
    def test_ranges_their_order_and_their_pairs(self):
        lengths = [101, 6, 1, 5, 10, 11, 102, 6]
        sources = [" ".join(["w"] * length) for length in lengths]
        result = scores(sources, ["a b c d"] * 8, ["a b c d"] * 8)["bleu_by_source_words"]
        assert {key: bucket["pairs"] for key, bucket in result.items()} == {
            "1-5": 2,
            "6-10": 3,
            "11-15": 1,
            "101-105": 2,
        }
        assert list(result) == ["1-5", "6-10", "11-15", "101-105"]

    def test_each_is_the_score_of_its_own_pairs(self):
        sources, outputs, references = made_up(60)
        outputs = [text if len(text.split()) <= 15 else text.replace("man", "m") for text in outputs]
        result = scores(sources, outputs, references, "en")["bleu_by_source_words"]
        for key, bucket in result.items():
            first, last = map(int, key.split("-"))
            rows = [row for row, source in enumerate(sources) if first <= len(source.split()) <= last]
            wanted = by_definition([outputs[row] for row in rows], [references[row] for row in rows])
            assert bucket["pairs"] == len(rows)
            for kind in ("bleu", "bleu_published_style"):
                assert set(bucket[kind]) == {"score", "low", "high"}
                assert bucket[kind]["score"] == pytest.approx(wanted, abs=0.005)
        assert sum(bucket["pairs"] for bucket in result.values()) == 60


class TestPublishedStyle:
    @pytest.mark.parametrize(
        ("language", "text", "wanted"),
        [
            ("en", "A man's dog.", "a man &apos;s dog ."),
            ("de", "das „Hook ’em Horns“-Zeichen", "das &quot; hook &quot; em horns &quot; -zeichen"),
            ("de", "Er sagt: „Ja.“", "er sagt : &quot; ja &quot; ."),  # a quotation's end, as Germans put it
            ("en", "He says: “Yes.”", "he says : &quot; yes . &quot;"),
            ("de", "Er kostet 1.000,50 € & mehr", "er kostet 1.000,50 € &amp; mehr"),
            ("de", "ÄÖÜ  z.B.\t[x]", "äöü z.b. &#91; x &#93;"),
            ("en", " \n ", ""),
        ],
    )
    def test_by_hand(self, language, text, wanted):
        assert published_style([text], language) == [wanted]
        assert published_style(["", 'He said "no".', text], language)[2] == wanted

    @needs_data
    @pytest.mark.parametrize("language", ["en", "de"])
    def test_the_public_test_set_line_for_line(self, language):
        raw = Multi30k(source="de" if language == "en" else "en", target=language, folder=DATA).read("test").targets
        public = (
            (DATA / f"test_2016_flickr.lc.norm.tok.{language}").read_bytes().decode().removesuffix("\n").split("\n")
        )
        assert len(public) == 1000
        ours = published_style(raw, language)
        assert [pair for pair in zip(ours, public, strict=True) if pair[0] != pair[1]] == []

    @pytest.mark.parametrize("language", ["xx", "zh-TW", ""])
    def test_other_languages(self, language):
        assert not has_published_style(language)
        with pytest.raises(
            ValueError,
            match=rf"^`language` must be one that Moses has rules for, such as de\. Received: language='{language}'$",
        ):
            published_style(["a"], language)

    @pytest.mark.parametrize("language", ["DE", "pt-BR"])
    def test_languages(self, language):
        assert has_published_style(language)
        assert published_style(["Hop!"], language) == ["hop !"]
