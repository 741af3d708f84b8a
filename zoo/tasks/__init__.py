"""A model with its tokenizers: strings in, strings or numbers out, as it is called, saved and exported."""

# Folders inside a run: the training saves its model there, and `zoo.load` reads it.
TRANSLATOR_FOLDER, GENERATOR_FOLDER = "translator", "generator"
CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER = "classifier", "embedder", "filler"
MODEL_FILE = "model.keras"  # in such a folder
