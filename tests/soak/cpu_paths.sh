#!/bin/sh
# The numeric tests on every vector path of torch that this processor has: sums are rounded differently on each.
#   sh tests/soak/cpu_paths.sh [default | avx2 | avx512 ...]
set -eu
PYTHON=${PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- default avx2 avx512
for path in "$@"; do
    case $path in
        default) needs= ;;
        avx2) needs=avx2 ;;
        avx512) needs=avx512f ;;
    esac
    if [ -n "$needs" ] && ! grep -qw "$needs" /proc/cpuinfo; then
        echo "$path: not on this processor"
        continue
    fi
    echo "$path:"
    OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=$path "$PYTHON" -m pytest tests/core tests/model
done
