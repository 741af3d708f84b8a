"""What goes wrong with a corpus."""


class CorpusError(ValueError):
    """Text that cannot be read as a corpus; the message says which file and line, and why."""
