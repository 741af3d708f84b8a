"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

from training.cli import train, translate, generate  # isort: skip  the order of the help
from training.cli.shared import app

__all__ = ["app", "generate", "main", "train", "translate"]


def main() -> None:
    """The entry point of the command `zoo`."""
    app()
