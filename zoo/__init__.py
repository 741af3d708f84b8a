"""The Attention Zoo: attention models in Keras 3 that go from `model.fit` to TensorFlow Serving.

- `zoo.layers`, `zoo.models`: Keras layers and functional models, for scripts of your own.
- `zoo.Translator`: a model with its tokenizers, strings in and strings out.
- `zoo.TextGenerator`: a language model with its tokenizer, a text in and its continuation out.
- `zoo.TextClassifier`, `zoo.TextEmbedder`, `zoo.MaskFiller`: an encoder with its tokenizer, a text in and its class,
  its vector or the words behind its masks out.
- `zoo.load`: anything that was saved or exported, ready to be called.
- `zoo.serving`, `zoo.decoding`, `zoo.text`, `zoo.pictures`: the parts between.
- `zoo.beam`: exports in pipelines of Apache Beam.
- `zoo.testing`: test suites for your own families and tasks.

After `import zoo`, `keras.models.load_model` reads `.keras` files with layers and models of the zoo.
"""

import importlib

from zoo import keras_hook

_HOMES = {
    "MaskFiller": "zoo.tasks.encoder_tasks",
    "TextClassifier": "zoo.tasks.encoder_tasks",
    "TextEmbedder": "zoo.tasks.encoder_tasks",
    "TextGenerator": "zoo.tasks.text_generator",
    "Translator": "zoo.tasks.translator",
    "load": "zoo.loading",
}
_PACKAGES = ("beam", "decoding", "layers", "models", "pictures", "serving", "testing", "text")

__all__ = ["MaskFiller", "TextClassifier", "TextEmbedder", "TextGenerator", "Translator", "load"]


def __getattr__(name):
    # On demand, so that `zoo.layers` costs what Keras costs and no more.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"zoo.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("attention-zoo")
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")


def __dir__():
    # What a notebook offers after `zoo.`, also before it is imported.
    return sorted({*globals(), *_HOMES, *_PACKAGES})


keras_hook.install()
