"""Where text comes from: `pairs` for translators, `texts` for language models."""
