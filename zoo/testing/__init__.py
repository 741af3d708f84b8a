"""Test suites for your own parts of a model: subclass one in a test file, and pytest collects its tests.

The suites use NumPy and plain `assert`, so importing them needs no test library.
"""

from zoo.testing.families import FamilyTests

__all__ = ["FamilyTests"]
