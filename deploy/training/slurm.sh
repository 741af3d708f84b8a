#!/bin/bash
# Trains a recipe on the nodes of a Slurm job; what follows the script's name is for `zoo train`:
#
#     sbatch --nodes=2 deploy/training/slurm.sh mine.toml --out /shared/runs/mine --models /shared/models
#
# With four GPUs in each node, add --ntasks-per-node=4 --gpus-per-task=1.
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
# After the loss of a node, Slurm starts the job again, and the training goes on after the last finished epoch. The
# output of all starts stays in one file.

port=$((20000 + SLURM_JOB_ID % 625 * 16)) # 16 for each job, so that jobs that follow one another may share a node
workers=$(scontrol show hostnames | while read -r host; do
  for task in $(seq 0 $((SLURM_NTASKS_PER_NODE - 1))); do printf ',"%s:%d"' "$host" $((port + task)); done
done)
export CLUSTER="{\"worker\": [${workers#,}]}"

# The tasks have their numbers node by node, in the order of the list. Worker 0 scores and exports after the others have
# ended. Without --wait=0, a cluster's WaitTime could end it meanwhile. Since version 22.05, srun does not take the
# number of processors from sbatch.
srun --distribution=block --wait=0 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} bash -c '
  export TF_CONFIG="{\"cluster\": $CLUSTER, \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
  exec zoo train --wait 600 "$@"' zoo "$@"
code=$? # the highest of all tasks

# If a worker is lost and its node is not, Slurm would not start the job again. The code is then 75, with which the
# other workers end, or above 128, with which a killed task ends. At most 20 times, as in the manifests.
if ((code == 75 || code > 128)) && ((${SLURM_RESTART_COUNT:-0} < 20)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
