"""The names of the files that a run, and a version exported from it, are made of."""

RECIPE_FILE = "recipe.json"
METRICS_FILE = "metrics.json"
CARD_FILE = "README.md"
