import pathlib
import sys

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # scripts, which find each other beside themselves
