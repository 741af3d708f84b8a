#!/bin/bash
# Trains a recipe on the nodes of a Slurm job; what follows the script's name is for `zoo train`:
#
#     sbatch --nodes=2 deploy/training/slurm.sh mine.toml --out /shared/runs/mine --models /shared/models
#
# With four GPUs in each node, add --ntasks-per-node=4 --gpus-per-task=1.
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
# After the loss of a node, Slurm starts the job again, and the training goes on after the last finished epoch.

port=$((20000 + SLURM_JOB_ID % 10000)) # so that two jobs may share a node
workers=$(scontrol show hostnames | while read -r host; do
  for task in $(seq 0 $((SLURM_NTASKS_PER_NODE - 1))); do printf ',"%s:%d"' "$host" $((port + task)); done
done)
export CLUSTER="{\"worker\": [${workers#,}]}"

# The tasks have their numbers node by node, in the order of the list.
srun --distribution=block bash -c '
  export TF_CONFIG="{\"cluster\": $CLUSTER, \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
  exec zoo train "$@"' zoo "$@"
