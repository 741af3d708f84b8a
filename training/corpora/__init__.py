"""Where text comes from: pairs of texts (`pairs`) for translators, running text (`texts`) for language models."""
