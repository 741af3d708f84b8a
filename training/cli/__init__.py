"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

from . import train, evaluate, ensemble, export, listing, translate  # isort: skip  the order of the help
from . import generate, encoders, batch, check, serve, serve_client  # isort: skip
from .shared import app

__all__ = [
    "app",
    "batch",
    "check",
    "encoders",
    "ensemble",
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
