#!/bin/sh
# The numeric tests on every vector path of torch that this processor has: sums are rounded differently on each.
set -eu
PYTHON=${PYTHON:-.venv/bin/python}
for path in default avx2 avx512; do
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
    OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=$path "$PYTHON" -m pytest -n 2 tests/core tests/model
done
