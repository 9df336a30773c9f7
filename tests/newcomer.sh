#!/usr/bin/env bash
# Types the README's commands in a fresh clone and a fresh environment, and fails on any surprise: an exit code, a stack
# trace, a command without output, a file outside the folders that a newcomer expects.
#   bash tests/newcomer.sh            (PYTHON names the interpreter; NEWCOMER_BIN uses an environment that is there already)
set -uo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
surprises=0
surprise() { echo "SURPRISE: $*"; surprises=$((surprises + 1)); }

git clone -q "$checkout" "$place/clone" && cd "$place/clone" || exit 1
if [ -n "${NEWCOMER_BIN:-}" ]; then
  bin=$NEWCOMER_BIN
  export PYTHONPATH="$place/clone"
else
  bin=$place/venv/bin
  "${PYTHON:-python3}" -m venv "$place/venv" || exit 1
  install=("$bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt)
  "${install[@]}" torch setuptools wheel && "${install[@]}" --no-deps recbole && "${install[@]}" '.[plots,tune]' \
    || { echo "the README's installation failed"; exit 1; }
fi
mkdir "$place/work" && cd "$place/work" || exit 1

# recbole-denoiser commands of the README's bash blocks that need no other data, kept short
commands() {
  awk '/^```bash/ {inside = 1; next} /^```/ {inside = 0} inside' "$place/clone/README.md" \
    | sed -E 's/[[:space:]]+#.*$//' \
    | grep -E '^recbole-denoiser ' \
    | grep -Ev '<|\.\.\.|ml-1m|amazon|steam|prepare|reproduce|tune|export|--nproc|scheduler' \
    | sed -E 's/--epochs=[0-9]+//; s/^(recbole-denoiser (run|demo)[^|>]*)$/\1 --epochs=1 --show_progress=False/'
}

type_in() {
  local code=0 out
  echo "\$ $*"
  out=$(OMP_NUM_THREADS=1 timeout 900 "$bin/python" -m recbole_denoiser "$@" 2>&1 < /dev/null) || code=$?
  [ "$code" -eq 0 ] || surprise "exit code $code: $* : $(tail -n 3 <<< "$out")"
  grep -q "Traceback (most recent call last)" <<< "$out" && surprise "stack trace: $*"
  [ -n "$out" ] || surprise "no output: $*"
}

# what every newcomer does, whatever the README says
type_in --version
type_in --help
type_in doctor
type_in run --model=SASRecDenoiser --dataset=ml-100k --epochs=1 --show_progress=False --run_name=first
type_in run --model=GRU4Rec --dataset=ml-100k --epochs=1 --show_progress=False --run_name=second
type_in recommend --run first --user 1
type_in explain --run first --user 1
type_in report first second
type_in compare first second

typed=0
while IFS= read -r line; do
  words=()
  read -r -a words <<< "${line#recbole-denoiser }"
  type_in "${words[@]}"
  typed=$((typed + 1))
done < <(commands)
[ "$typed" -gt 0 ] || surprise "the README has no command that this script can type"

# typing mistakes are one line and code 2
code=0
out=$("$bin/python" -m recbole_denoiser run --hiden_size=3 2>&1) || code=$?
[ "$code" -eq 2 ] && [ "$(wc -l <<< "$out")" -eq 1 ] || surprise "a typing mistake: code $code, $(wc -l <<< "$out") lines"

# files: results/ and what RecBole's logging writes; nothing else in the folder where the commands were typed
for name in $(ls -A); do
  case $name in
    results | report* | saved | log | log_tensorboard) ;;
    *) surprise "unexpected file $name in the current folder" ;;
  esac
done
git -C "$place/clone" status --porcelain | grep -Ev 'egg-info|build/' && surprise "the checkout was changed"

echo "$typed commands of the README typed, $surprises surprise(s)"
[ "$surprises" -eq 0 ]
