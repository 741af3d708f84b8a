"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

from . import train, listing, translate, generate, check, serve_client  # isort: skip  the order of the help
from .shared import app

__all__ = ["app", "check", "generate", "listing", "main", "serve_client", "train", "translate"]


def main() -> None:
    """The entry point of the command `zoo`."""
    app()
