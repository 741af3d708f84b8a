"""Runs all benchmarks but the longest, in 25 to 40 minutes on two cores, stores their figures and writes the documents.

    python benchmarks/run_all.py                       # what `make bench` does; needs the 'peers' extra
    python benchmarks/run_all.py serving generation    # only these

If `tensorflow_model_server` is on the PATH or named by TF_SERVING_BIN, `load.py` measures it too. `opus_mt.py`,
`batch.py`, `input_pipeline.py`, `long_attention.py`, `onednn.py`, `thought_vector.py` and the training of
`imported_translator.py` take longer, so run these separately. So do the trainings of the models that `trained.py`
lists; `distilled.py` and `shortlist.py` need two of them. `language_identification.py` needs the extra 'identifiers',
and its second table a clone of lingua's repository. `pronunciation.py` and `published_pronunciation.py` need the extra
'pronouncers'.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time

import report

# The libraries' own messages and progress bars would stand between the tables.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
LEFT_OUT = (
    "batch",
    "distilled",
    "shortlist",
    "input_pipeline",
    "long_attention",
    "onednn",
    "opus_mt",
    "thought_vector",
    "imported_translator",
    "language_identification",
    "pronunciation",
    "published_pronunciation",
)


def main() -> None:
    """Runs them one after the other; what fails is said, and does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="script", help=", ".join(report.SCRIPTS))
    arguments = parser.parse_args()
    if unknown := set(arguments.scripts) - set(report.SCRIPTS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(report.SCRIPTS)}")
    begin = time.monotonic()
    failed = []
    for script in arguments.scripts or [each for each in report.SCRIPTS if each not in LEFT_OUT]:
        print(f"\n{script}.py, after {time.monotonic() - begin:.0f} s", flush=True)
        command = [sys.executable, str(pathlib.Path(__file__).with_name(f"{script}.py")), "--record"]
        if subprocess.run(command, env=QUIET | os.environ).returncode:
            failed.append(script)
    report.main()
    print(f"\n{(time.monotonic() - begin) / 60:.1f} minutes; benchmarks/README.md and README.md are written")
    if failed:
        sys.exit(f"failed, and their figures are as they were: {', '.join(failed)}")


if __name__ == "__main__":
    main()
