"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

from . import train, translate, generate, check, serve_client  # isort: skip  the order of the help
from .shared import app

__all__ = ["app", "check", "generate", "main", "serve_client", "train", "translate"]


def main() -> None:
    """The entry point of the command `zoo`."""
    app()
