"""A model with its tokenizers: strings in, strings or numbers out, as it is called, saved and exported."""

# The folders in a training's run in which what it trained is saved: who writes and who reads agree on them.
TRANSLATOR_FOLDER, GENERATOR_FOLDER = "translator", "generator"
CLASSIFIER_FOLDER, EMBEDDER_FOLDER, FILLER_FOLDER = "classifier", "embedder", "filler"
