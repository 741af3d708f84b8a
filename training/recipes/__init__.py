"""Recipes: TOML files, one a model, that say only what differs from the defaults."""
