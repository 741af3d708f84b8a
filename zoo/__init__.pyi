# What `__init__.py` imports on demand, for type checkers, editors and the reference of the site. `as` exports a name.
from zoo import beam as beam
from zoo import decoding as decoding
from zoo import layers as layers
from zoo import models as models
from zoo import pictures as pictures
from zoo import serving as serving
from zoo import testing as testing
from zoo import text as text
from zoo.loading import load
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier, TextEmbedder
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator

__all__ = ["MaskFiller", "TextClassifier", "TextEmbedder", "TextGenerator", "Translator", "load"]
__version__: str
