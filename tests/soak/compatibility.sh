#!/usr/bin/env bash
# Smoke tests on the oldest and the newest supported dependencies, each in a throw-away environment: the oldest on Python
# 3.10 and the newest on 3.13 where they are installed, else on $PYTHON.
#   bash tests/soak/compatibility.sh [oldest|newest]
# torch is that of constraints.txt in both; TORCH=torch takes the newest release, which brings CUDA, some gigabytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
torch=${TORCH:-$(grep -E '^torch==' constraints.txt)}
tests=(tests/training/test_checkpoint.py tests/integration/test_config.py tests/integration/test_schema.py
       tests/runs/test_same_data.py tests/core/test_core_gradient.py tests/data/test_rows.py tests/model/test_protocols.py
       tests/training/test_optimizer.py)

first_working() {
  for candidate in "$@"; do
    if "$candidate" -c '' 2> /dev/null; then echo "$candidate"; return; fi
  done
}

try() {
  local name=$1 python=$2 place
  shift 2
  place=$(mktemp -d)
  trap 'rm -rf "$place"' RETURN
  printf '%s\n' "$@" > "$place/constraints.txt"
  "$python" -m venv "$place/venv"
  local pip=("$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$place/constraints.txt")
  "${pip[@]}" "$torch" setuptools wheel
  "${pip[@]}" --no-deps recbole  # without ray, which has no release for the newest Pythons
  "${pip[@]}" . pytest hypothesis optuna matplotlib
  "$place/venv/bin/python" - <<'PYTHON'
import importlib.metadata as m, platform
print(platform.python_version(), {name: m.version(name) for name in ("torch", "numpy", "pandas", "scipy", "recbole")})
PYTHON
  OMP_NUM_THREADS=1 "$place/venv/bin/python" -m pytest -q "${tests[@]}"
  echo "$name: passed"
}

case ${1:-both} in
  oldest | both) try oldest "$(first_working python3.10 "$python")" numpy==1.26.4 recbole==1.2.0 pandas==2.1.4 scipy==1.11.4 'setuptools<81' ;;&
  newest | both) try newest "$(first_working python3.13 "$python")" 'setuptools<81' ;;
esac
