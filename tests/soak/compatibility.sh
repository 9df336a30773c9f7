#!/usr/bin/env bash
# Smoke tests on the oldest and the newest supported dependencies, each in a throw-away environment.
#   bash tests/soak/compatibility.sh [oldest|newest]
# torch stays at the version of constraints.txt in both.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
torch=$(grep -E '^torch==' constraints.txt)
tests=(tests/test_checkpoint.py tests/test_config.py tests/test_recbole_entry_points.py tests/core/test_core_gradient.py
       tests/data/test_rows.py)

try() {
  local name=$1 place
  shift
  place=$(mktemp -d)
  trap 'rm -rf "$place"' RETURN
  printf '%s\n' "$torch" "$@" > "$place/constraints.txt"
  "$python" -m venv "$place/venv"
  local pip=("$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$place/constraints.txt")
  "${pip[@]}" torch setuptools wheel
  "${pip[@]}" . pytest hypothesis optuna matplotlib
  "$place/venv/bin/python" - <<'PYTHON'
import importlib.metadata as m
print({name: m.version(name) for name in ("torch", "numpy", "pandas", "scipy", "recbole")})
PYTHON
  OMP_NUM_THREADS=1 "$place/venv/bin/python" -m pytest -q "${tests[@]}"
  echo "$name: passed"
}

case ${1:-both} in
  oldest | both) try oldest numpy==1.26.4 recbole==1.2.0 pandas==2.1.4 scipy==1.11.4 'setuptools<81' ;;&
  newest | both) try newest 'numpy>=2' recbole==1.2.1 'pandas<3' 'setuptools<81' ;;
esac
