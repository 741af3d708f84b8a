"""How good a model is, and how that is said and drawn."""
