#!/usr/bin/env bash
# Make a Python environment with verl, this package and pytest, from pinned versions: it can't share one with the
# rest, because verl 0.9.1 needs transformers < 5.11.
#
# usage: tests/adapters/verl/make_env.sh FOLDER      then: FOLDER/bin/python -m pytest tests/adapters/verl
set -euo pipefail
folder=${1:?usage: make_env.sh FOLDER}
root=$(cd "$(dirname "$0")/../../.." && pwd)
pins=$root/constraints-verl.txt

"${PYTHON:-python3.11}" -m venv "$folder"
# torch first and by itself: its CPU build satisfies everything after it.
"$folder/bin/python" -m pip install --quiet "torch==$(sed -n 's/^torch==//p' "$pins")" ${TORCH_INDEX:-}
"$folder/bin/python" -m pip install --quiet --constraint "$pins" --editable "$root[verl]" hypothesis pytest pytest-timeout
