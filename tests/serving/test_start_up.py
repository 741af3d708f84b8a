"""What a version asks of a server, as it is measured."""

import shutil

import tensorflow as tf

from zoo.serving import measure_start_up, newest_version


def test_sizes_and_times_of_a_version(exported, translator, capfd, tmp_path, monkeypatch):
    version = shutil.copytree(newest_version(exported), tmp_path / "1")
    (version / "README.md").write_text("x" * 10_000)  # which a server does not read
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 5}, raising=False)
    found = measure_start_up(version, translator)
    files = [version / "saved_model.pb", *(version / "variables").iterdir()]
    more = [file for folder in ("assets", "assets.extra") for file in (version / folder).iterdir()]
    assert found.size == sum(file.stat().st_size for file in (*files, *more))
    assert 0 < found.later_seconds < found.first_seconds < 60
    assert 0 < found.load_seconds < 60
    assert found.cores == 3
    assert "deprecated" not in capfd.readouterr().err
    assert tf.executing_eagerly()
