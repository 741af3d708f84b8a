"""Trains a recipe on the workers of a Ray cluster: `python ray_train.py multi30k-transformer --workers 4`.

Ray's `TensorflowTrainer` sets TF_CONFIG on each worker; the rest is `zoo train`. The command runs in a process of its
own, because Ray's worker may have started TensorFlow. `--out` and `--models` should be on a disk that outlives worker
0.
"""

import argparse
import subprocess


def train_on_worker(config):
    """What each worker runs; Ray starts all again where one fails."""
    subprocess.run(["zoo", "train", "--wait", "600", *config["arguments"]], check=True)


def main():
    """The command line; what it does not know is for `zoo train`."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", action="store_true", help="a GPU for each worker")
    options, arguments = parser.parse_known_args()
    TensorflowTrainer(
        train_on_worker,
        train_loop_config={"arguments": arguments},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpus),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=20)),
    ).fit()


if __name__ == "__main__":
    main()
