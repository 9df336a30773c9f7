#!/usr/bin/env bash
# Every extra alone: in a fresh environment with the package and one extra its command works; in the one without any
# extra the same command is one line that names the extra.
#   bash tests/soak/extras.sh [extra ...]       (PYTHON names the interpreter)
set -uo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
extras=("$@")
[ ${#extras[@]} -gt 0 ] || extras=(plots tune parquet export serve cluster mlflow wandb docs)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1 WANDB_MODE=offline MLFLOW_DISABLE_TELEMETRY=true
failures=0
failed() { echo "FAILED: $*"; failures=$((failures + 1)); }

git clone -q "$checkout" "$place/clone" && cd "$place/clone" || exit 1
install() {  # environment, what to install
  local environment=$1
  shift
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$@"
}
fresh() { "${PYTHON:-python3}" -m venv "$1"; }

# the environment without extras, and the run that the commands use
base=$place/base
fresh "$base" && install "$base" torch setuptools wheel && install "$base" --no-deps recbole && install "$base" . \
  || { echo "the installation failed"; exit 1; }
mkdir "$place/work" && cd "$place/work" || exit 1
"$base/bin/python" - << 'PYTHON'
import pathlib
rows = [(u, (u + t * (1 + u % 3)) % 30, t) for u in range(60) for t in range(8)]
pathlib.Path("events.csv").write_text("u,i,t\n" + "".join(f"{u},i{i},{t}\n" for u, i, t in rows))
pathlib.Path("grid.yaml").write_text(
    "datasets: [events]\nseeds: [1]\nmodels: {GRU4Rec: {}}\n"
    "settings: {epochs: 1, eval_args: {mode: uni10}, data_path: dataset, state: ERROR}\n")
PYTHON
quick=(--dataset=events --data_path=dataset --epochs=1 --eval_args.mode=uni10 --noise_action=none --show_progress=False --state=ERROR)
recbole() { "$1/bin/python" -m recbole_denoiser "${@:2}"; }
recbole "$base" prepare csv --raw events.csv --user u --item i --time t --core 0 > /dev/null || failed "prepare csv"
recbole "$base" run "${quick[@]}" --run_name=first > /dev/null || failed "run"

# the command of each extra, in an environment
command_of() {
  local extra=$1 environment=$2
  case $extra in
    plots) recbole "$environment" report first -o "$place/report/report.html" ;;
    tune) recbole "$environment" tune "${quick[@]}" --trials=1 --result_dir="$place/tune" ;;
    parquet) recbole "$environment" prepare csv --raw events.parquet --user u --item i --time t --core 0 --overwrite ;;
    export) for format in onnx safetensors; do recbole "$environment" export --run first --format "$format" --output model || return; done ;;
    serve) serve_once "$environment" ;;
    cluster) recbole "$environment" reproduce grid.yaml --result_dir="$place/cluster" --jobs=2 "${scheduler[@]}" ;;
    mlflow | wandb) recbole "$environment" run "${quick[@]}" --tracker="$extra" --run_name="$extra" ;;
    docs) (cd "$place/clone" && "$environment/bin/python" -m mkdocs build --strict --quiet --site-dir "$place/site") ;;
  esac
}

serve_once() {  # one request to the example
  "$1/bin/python" "$place/clone/examples/serve.py" model 8765 & local server=$! answer=1
  for _ in $(seq 120); do
    kill -0 "$server" 2> /dev/null || { wait "$server"; return; }
    "$1/bin/python" - << 'PYTHON' 2> /dev/null && { answer=0; break; }
import json, urllib.request
body = json.dumps({"histories": [["i1", "i2"]]}).encode()
request = urllib.request.Request("http://127.0.0.1:8765/recommend", body, {"Content-Type": "application/json"})
assert len(json.load(urllib.request.urlopen(request))[0]) == 10
PYTHON
    sleep 1
  done
  kill "$server"
  wait "$server" 2> /dev/null
  return $answer
}

proof_of() {  # what the command must have written
  case $1 in
    plots) ls "$place"/report/report_figures/*.png ;;
    tune) ls "$place"/tune/tune/*/best.yaml ;;
    mlflow) ls results/mlflow/mlruns/*/*/metrics/test/ndcg_at_10 ;;
    wandb) ls -d results/wandb/wandb/offline-run-* ;;
    docs) ls "$place/site/trackers.html" && grep -c "<span class=\"gp\">" "$place/site/api.html" ;;
    *) true ;;
  esac
}

printf '%-9s %-22s %s\n' extra "with it alone" "without it"
for extra in "${extras[@]}"; do
  environment=$place/$extra scheduler=(--scheduler=tcp://127.0.0.1:9)
  [ "$extra" = parquet ] && : > events.parquet
  without="-"
  if [ "$extra" != docs ]; then
    said=$(command_of "$extra" "$base" 2>&1 > /dev/null) && failed "$extra: its command works without it"
    without=$(grep -F "recbole-denoiser[$extra]" <<< "$said")
    [ "$(grep -c . <<< "$without")" -eq 1 ] && ! grep -q Traceback <<< "$said" || failed "$extra, without: $(tail -n 3 <<< "$said")"
  fi
  fresh "$environment"
  "$base/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
    > "$("$environment/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth"
  scheduler=()
  (cd "$place/clone" && install "$environment" --no-deps . && install "$environment" ".[$extra]") || failed "$extra: installation"
  [ "$extra" = parquet ] && "$environment/bin/python" -c "import pandas; pandas.read_csv('events.csv').to_parquet('events.parquet')"
  if said=$(command_of "$extra" "$environment" 2>&1) && proof_of "$extra" > /dev/null; then with=works; else with=FAILED; failed "$extra: $(tail -n 3 <<< "$said")"; fi
  [ "$extra" = cluster ] && ! grep -q "Dask dashboard: http" <<< "$said" && failed "cluster: no link to the dashboard"
  printf '%-9s %-22s %s\n' "$extra" "$with" "$without"
done
echo "$failures failure(s)"
[ "$failures" -eq 0 ]
