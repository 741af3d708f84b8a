"""A model with its tokenizers: strings in, strings out, as it is called, saved and exported."""
