"""Test suites for your own parts of a model: subclass one in a test file, and pytest collects its tests.

The suites use NumPy and plain `assert`, so importing them needs no test library.
"""

from zoo.testing.families import FamilyTests
from zoo.testing.tasks import TaskTests
from zoo.testing.tokenizers import TokenizerTests

__all__ = ["FamilyTests", "TaskTests", "TokenizerTests"]
