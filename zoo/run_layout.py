"""The folders in a training run's folder where what it has trained is saved: who writes and who reads agree on them."""

TRANSLATOR_FOLDER, GENERATOR_FOLDER = "translator", "generator"
