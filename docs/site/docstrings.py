"""The headings of the zoo's docstrings that Google's style does not have, for the reference on the site."""

from griffe import Extension, Object

_HEADINGS = {"Call arguments:\n": "Other Args: Call arguments\n", "Example:\n": "Examples:\n"}


class Headings(Extension):
    """Writes them as headings that Griffe reads."""

    def on_object(self, *, obj: Object, **_) -> None:
        """Of every class, function and module."""
        if obj.docstring:
            for ours, known in _HEADINGS.items():
                obj.docstring.value = obj.docstring.value.replace(ours, known)
