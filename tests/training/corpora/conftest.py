"""A small corpus of TensorFlow Datasets, which both kinds of corpora are tried with."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def builders():
    """The test corpus's module, whose own builder 'pairs' is never registered: TFDS does not know its code."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import registered

    tfds.disable_progress_bar()
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        with registered.skip_registration():
            from pairs_builder import pairs_dataset_builder as module
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture(scope="session")
def prepared(builders, tmp_path_factory):
    """A data_dir with every config of 'pairs' written by TFDS."""
    import tensorflow_datasets as tfds

    data_dir = tmp_path_factory.mktemp("prepared")
    for config in builders.Builder.builder_configs:
        builders.Builder(data_dir=data_dir, config=config).download_and_prepare()
    assert "pairs" not in tfds.list_builders(with_community_datasets=False)
    return data_dir
