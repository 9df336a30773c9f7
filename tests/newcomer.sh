#!/usr/bin/env bash
# Types the commands of the README and of docs/ in a fresh clone and a fresh environment, and fails on any surprise: an
# exit code, a stack trace, more than a few warnings, a command without output, a file outside the expected folders.
#   bash tests/newcomer.sh [page.md ...]   (PYTHON names the interpreter; NEWCOMER_BIN uses an environment that is there already)
#   bash tests/newcomer.sh --list          what it would type, and what it leaves out and why; tests/test_readme.py reads this
set -uo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)

# every command line of pages: from blocks of code, between fences or indented, and from `...` in the text
shown() {
  for page in "$@"; do
    awk '/^```/ {inside = !inside; next} inside || sub(/^    /, "")' "$page" | sed -E 's/[[:space:]]+#.*$//'
    awk '/^```/ {inside = !inside; next} !inside' "$page" | grep -oE '`recbole-denoiser [^`]+`' | tr -d '`'
  done | grep -E '^(recbole-denoiser|make) ' | awk '!seen[$0]++'
}

# why a line is not typed; empty if it is
left_out() {
  case $1 in
    *"prepare ml-1m"* | *reproduce* | *config_files=strong*) echo "needs ml-1m or amazon-games" ;;
    *mlflow* | *wandb* | *parquet* | *" export "*) echo "tests/soak/extras.sh types it" ;;
    *--nproc*) echo "tests/integration/test_parallel.py types it" ;;
    "make test") echo "the test suite itself" ;;
  esac
}

# placeholders filled in, and short: what a newcomer would wait minutes for takes one epoch
filled() {
  sed -E -e 's/<run>/first/; s/<user>/1/; s/<data set>/ml-100k/; s/<folder>/dataset\/copy/; s/^make demo$/recbole-denoiser demo/' \
    -e 's/ --epochs=[0-9]+//; s/^(recbole-denoiser (run|demo)( .*)?)$/\1 --epochs=1 --show_progress=False/' \
    -e 's/--draws 50/--draws 1/; s/^recbole-denoiser tune$/& --trials=1 --epochs=1 --noise_action=none/' <<< "$1"
}

if [ "${1:-}" = --list ]; then
  while IFS= read -r line; do
    reason=$(left_out "$line")
    echo "$line -> ${reason:-$(filled "$line")}"
  done < <(shown "$checkout/README.md" "$checkout"/docs/*.md)
  exit
fi
pages=("$@")

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
surprises=0
surprise() { echo "SURPRISE: $*"; surprises=$((surprises + 1)); }

git clone -q "$checkout" "$place/clone" && cd "$place/clone" || exit 1
[ $# -gt 0 ] || pages=(README.md docs/*.md)
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

judge() { # name, exit code, output
  [ "$2" -eq 0 ] || surprise "exit code $2: $1 : $(tail -n 3 <<< "$3")"
  grep -q "Traceback (most recent call last)" <<< "$3" && surprise "stack trace: $1"
  grep -E "^[^ ]*(Future|Deprecation|User|Runtime|Resource)Warning|: (Future|Deprecation|User|Runtime|Resource)Warning:" <<< "$3" \
    && surprise "Python's warnings: $1"
  [ "$(grep -c WARNING <<< "$3")" -le 3 ] || surprise "$(grep -c WARNING <<< "$3") warnings: $1"
  [ -n "$3" ] || surprise "no output: $1"
}

type_in() {
  local code=0 out
  echo "\$ recbole-denoiser $*"
  out=$(OMP_NUM_THREADS=1 timeout 1800 "$bin/python" -m recbole_denoiser "$@" 2>&1 < /dev/null) || code=$?
  judge "$*" "$code" "$out"
}

# what every newcomer does, whatever the README says
type_in --version
type_in --help
type_in run --model=SASRecDenoiser --dataset=ml-100k --epochs=1 --show_progress=False --run_name=first
type_in run --model=SASRecDenoiser --denoise=False --dataset=ml-100k --epochs=1 --show_progress=False --run_name=second
type_in recommend --run first --user 1
type_in report first second
type_in compare first second
{ # 200 users, 160 items: more than the 100 negatives of the evaluation
  echo user,item,when
  awk 'BEGIN { for (user = 0; user < 200; user++) for (item = 0; item < 12; item++)
    printf "u%d,i%d,%d\n", user, (user * 7 + item * (1 + user % 3)) % 160, item * 1000 + user }'
} > events.csv

typed=0
while IFS= read -r line; do
  reason=$(left_out "$line")
  if [ -n "$reason" ]; then
    echo "left out: $line ($reason)"
    continue
  fi
  words=()
  eval "words=($(filled "${line}"))" # the page's own words: quotes and * as a shell reads them
  type_in "${words[@]:1}"
  typed=$((typed + 1))
done < <(cd "$place/clone" && shown "${pages[@]}")
[ "$typed" -gt $(($# > 0 ? 0 : 15)) ] || surprise "${pages[*]}: only $typed commands that this script can type"

# the README's first Python block, with one epoch
echo "\$ python"
awk '/^```python/ {block++; inside = 1; next} /^```/ {inside = 0} inside && block == 1' "$place/clone/README.md" \
  | sed 's/run("SASRecDenoiser", "ml-100k")/run("SASRecDenoiser", "ml-100k", flags={"epochs": 1, "show_progress": False})/' > block.py
grep -q '"epochs": 1' block.py || surprise "the README's first Python block runs no model"
code=0
out=$(OMP_NUM_THREADS=1 timeout 1800 "$bin/python" block.py 2>&1 < /dev/null) || code=$?
judge "the first Python block" "$code" "$out"

# typing mistakes are one line and code 2
code=0
out=$("$bin/python" -m recbole_denoiser run --hiden_size=3 2>&1) || code=$?
[ "$code" -eq 2 ] && [ "$(wc -l <<< "$out")" -eq 1 ] || surprise "a typing mistake: code $code, $(wc -l <<< "$out") lines"

# everything is in results/ and dataset/ (copies and own data), beside what this script made
for name in $(ls -A); do
  case $name in
    results | dataset | events.csv | block.py) ;;
    *) surprise "unexpected file $name in the current folder" ;;
  esac
done
git -C "$place/clone" status --porcelain | grep -Ev 'egg-info|build/' && surprise "the checkout was changed"

echo "$typed commands of ${pages[*]} typed, $surprises surprise(s)"
[ "$surprises" -eq 0 ]
