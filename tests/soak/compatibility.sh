#!/usr/bin/env bash
# Smoke tests and a run of one epoch in throw-away environments; the run must have the metrics that it has in $PYTHON's.
#   bash tests/soak/compatibility.sh [3.10 | 3.11 | 3.12 | 3.13 | oldest | newest ...]      (PYTHON: an environment with the package)
# A number is that Python with constraints.txt; oldest is the oldest supported release of every dependency but torch, on
# the first Python that is there, newest the newest of each, torch too, on the last. Needs uv, whose cache is shared: the
# first time it downloads torch for every Python (where it brings CUDA, some gigabytes), later it links the files.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
uv=$(command -v uv || echo "$(dirname "$python")/uv")
export OMP_NUM_THREADS=1 UV_LINK_MODE=${UV_LINK_MODE:-hardlink}
versions=(3.10 3.11 3.12 3.13)
tests=(tests/training/test_checkpoint.py tests/integration/test_config.py tests/integration/test_schema.py
       tests/runs/test_same_data.py tests/core/test_core_gradient.py tests/data/test_rows.py tests/model/test_protocols.py
       tests/training/test_optimizer.py)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

find_python() {  # its path, or nothing: on PATH, or among pyenv's
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c '' 2> /dev/null; then echo "$candidate"; return; fi
  done
}

metrics_of() {  # of one epoch on ml-100k, in the environment $2
  (cd "$place" && PYTHONPATH='' "$2" -m recbole_denoiser run --dataset=ml-100k --epochs=1 --show_progress=False --state=ERROR \
    --run_name="with-$1" --device=cpu > "$1.log" 2>&1) || { tail -n 20 "$place/$1.log" >&2; return 1; }
  "$2" -c "import json, sys; print({m: round(v, 4) for m, v in json.load(open(sys.argv[1]))['test'].items()})" "$place/results/with-$1/result.json"
}

try() {  # name, Python, torch, constraints
  local name=$1 python=$2 torch=$3 constraints=$4 environment found
  environment=$place/$name
  "$uv" venv --quiet --python "$python" "$environment"
  local install=("$uv" pip install --quiet --python "$environment/bin/python" -c "$constraints")
  "${install[@]}" "$torch" setuptools wheel
  "${install[@]}" --no-deps recbole  # without ray, which has no release for the newest Pythons
  "${install[@]}" . pytest hypothesis optuna matplotlib
  "$environment/bin/python" - << 'PYTHON'
import importlib.metadata as m, platform
print(platform.python_version(), {name: m.version(name) for name in ("torch", "numpy", "pandas", "scipy", "recbole")})
PYTHON
  PYTHONPATH='' "$environment/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}"
  found=$(metrics_of "$name" "$environment/bin/python")
  [ "$found" = "$expected" ] || { echo "$name: one epoch has $found, with $python_name $expected"; exit 1; }
  echo "$name: passed, and one epoch has the same metrics"
  rm -rf "$environment"
}

git clone -q . "$place/clone" && cd "$place/clone"  # so that several of these can build it at once
python_name=$("$python" -c "import platform; print('Python', platform.python_version())")
expected=$(metrics_of expected "$python")
echo "$python_name: one epoch has $expected"
there=()
for version in "${versions[@]}"; do
  if [ -n "$(find_python "$version")" ]; then there+=("$version"); else echo "Python $version: not on this machine"; fi
done
printf '%s\n' numpy==1.26.4 recbole==1.2.0 pandas==2.1.4 scipy==1.11.4 'setuptools<81' > "$place/oldest.txt"
echo 'setuptools<81' > "$place/newest.txt"
torch=$(grep -E '^torch==' constraints.txt)
[ $# -gt 0 ] || set -- "${there[@]}" oldest newest
for name in "$@"; do
  case $name in
    oldest) try oldest "$(find_python "${there[0]}")" "$torch" "$place/oldest.txt" ;;
    newest) try newest "$(find_python "${there[-1]}")" torch "$place/newest.txt" ;;
    *) if [[ " ${there[*]} " = *" $name "* ]]; then try "$name" "$(find_python "$name")" "$torch" constraints.txt; fi ;;
  esac
done
