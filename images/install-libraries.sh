#!/bin/bash
# Makes a virtual environment with everything that the program needs, itself excepted.
# usage: install-libraries.sh VENV TORCH_INDEX     (beside constraints.txt and pyproject.toml)
set -euo pipefail
venv=$1 index=$2

python3 -m venv "$venv"
pip() { "$venv/bin/python" -m pip install --no-cache-dir --no-compile --disable-pip-version-check "$@"; }

# torch comes first and alone: only it may be looked for in TORCH_INDEX.
pip --no-deps -c constraints.txt ${index:+--extra-index-url "$index"} torch

"$venv/bin/python" - > requirements.txt <<'PYTHON'
import tomllib

print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")
PYTHON
pip -c constraints.txt -r requirements.txt
