"""What a version asks of a server, as it is measured."""

import tensorflow as tf

from zoo.serving import measure_start_up, newest_version


def test_sizes_and_times_of_a_version(exported, translator, capfd):
    version = newest_version(exported)
    found = measure_start_up(version, translator)
    files = [version / "saved_model.pb", *(version / "variables").iterdir()]
    more = [file for folder in ("assets", "assets.extra") for file in (version / folder).iterdir()]
    assert found.size == sum(file.stat().st_size for file in (*files, *more))
    assert 0 < found.later_seconds < found.first_seconds < 60
    assert 0 < found.load_seconds < 60
    assert found.cores >= 1
    assert "deprecated" not in capfd.readouterr().err
    assert tf.executing_eagerly()


def test_cards_of_another_size_change_nothing(exported, translator, tmp_path):
    version = newest_version(exported)
    (version / "README.md").write_text("x" * 10_000)
    assert measure_start_up(version, translator).size < sum(
        file.stat().st_size for file in version.rglob("*") if file.is_file()
    )
    (version / "README.md").unlink()
