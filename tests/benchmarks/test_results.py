"""What a benchmark says of its timings."""

import json

import pytest
import results
from harness import Timing

OURS, THEIRS = Timing("ours", [0.1, 0.2, 0.4]), Timing("theirs", [0.3, 0.2, 0.8])  # ratios 3, 1, 2


def test_ratio_is_the_median_of_the_rounds_ratios():
    assert results.ratio(THEIRS, OURS) == pytest.approx(2)  # that of the medians is 1.5
    assert results.spread(THEIRS, OURS) == "1.00x - 3.00x"


def test_table():
    assert str(results.compared([OURS, THEIRS], "Race", "ms")) == (
        "Race:\n"
        "\n"
        "|  | median ms | its time / ours | range over the rounds |\n"
        "| --- | --- | --- | --- |\n"
        "| ours | 200.0 |  |  |\n"
        "| theirs | 300.0 | 2.00x | 1.00x - 3.00x |"
    )


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(results, "instruction_sets", lambda: ["AVX-512", "AVX2"])
    monkeypatch.setattr("sys.argv", ["race.py", "--rounds", "2", "--record"])
    return str(tmp_path / "race.py")


def test_recording_is_kept_if_asked_for(script, capsys):
    with results.Recording(script, True, "numpy") as recording:
        recording.table(results.compared([OURS, THEIRS]))
        recording.note("A note.")
        recording.headline("a race", "theirs", 1.04, 2.0)
        recording.headline("another", "theirs", 1.04)
    found = json.loads((results.FOLDER / "avx512" / "race.json").read_text(encoding="utf-8"))
    assert found["command"] == "python benchmarks/race.py --rounds 2"
    assert set(found["versions"]) == {"Python", "numpy"}
    assert found["tables"][0]["rows"][1] == ["theirs", "300.0", "2.00x", "1.00x - 3.00x"]
    assert found["notes"] == ["A note."]
    assert [each["ratio"] for each in found["headlines"]] == ["1.0x to 2.0x", "1.0x"]
    assert "| theirs | 300.0 |" in capsys.readouterr().out


def test_what_is_not_timed_has_one_file(script):
    with results.Recording(script, True, timed=False):
        pass
    assert [path.name for path in results.FOLDER.iterdir()] == ["race.json"]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [("fma avx2", "avx2"), ("avx2 avx512f", "avx512"), ("amx_tile avx512f avx2", "amx"), ("sse4_2", "other")],
)
def test_kind_is_that_of_the_fastest_instruction_set(flags, kind, monkeypatch):
    monkeypatch.setattr(results, "_of_processor", lambda name: flags)
    assert results.kind_of_processor() == kind
    assert kind in results.KINDS


def test_recording_is_not_kept_otherwise(script):
    with results.Recording(script, False) as recording:
        recording.note("A note.")
    with pytest.raises(RuntimeError, match="broken"), results.Recording(script, True):
        raise RuntimeError("broken")
    assert not results.FOLDER.exists()
