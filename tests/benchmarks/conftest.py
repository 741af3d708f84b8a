import pathlib
import sys

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # scripts, which find each other beside themselves
