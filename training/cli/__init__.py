"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

from . import train, evaluate, export, listing, translate, generate, encoders, batch, check, serve, serve_client  # isort: skip  the order of the help
from .shared import app

__all__ = [
    "app",
    "batch",
    "check",
    "encoders",
    "evaluate",
    "export",
    "generate",
    "listing",
    "main",
    "serve",
    "serve_client",
    "train",
    "translate",
]


def main() -> None:
    """The entry point of the command `zoo`."""
    app()
