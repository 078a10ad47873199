#!/usr/bin/env bash
# Verifies the small checkpoints on every path: levels x numerics x chunks x threads. Takes some minutes; the golden
# tests run a part of it.
#
# usage: scripts/golden.sh [PROGRAM]      default: build/release/deepinfer; test data as scripts/test.sh leaves it
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release/deepinfer}
runs=0 failed=0
for isa in generic avx2 avx512 amx; do
  case $isa in
    generic) ;;
    amx) grep -qw amx_bf16 /proc/cpuinfo || continue ;;
    *) grep -qw "${isa/avx512/avx512bw}" /proc/cpuinfo || continue ;;
  esac
  for checkpoint in tiny tiny-odd tiny-window; do
    for numerics in fp32 release trn2; do
      [ "$checkpoint $numerics" = "tiny-window trn2" ] && continue # has no such sets
      for chunk in 1 3 7 64 0; do
        for threads in 1 2; do
          path=(--isa $isa --numerics $numerics --chunk $chunk --threads $threads)
          runs=$((runs + 1))
          status=0
          "$program" verify --model "build/testdata/checkpoints/$checkpoint" --golden build/testdata/golden \
            "${path[@]}" >build/golden.log || status=$?
          [ $status = 0 ] || failed=$((failed + 1))
          echo "$checkpoint ${path[*]}: $(tail -n 1 build/golden.log)"
          grep '^mismatch' build/golden.log || true
        done
      done
    done
  done
done
echo "$runs runs, $failed failed"
[ $failed = 0 ]
