#!/usr/bin/env bash
# Builds the program and lets the demo model write a few lines.
#
# usage: scripts/demo.sh [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset release --target deepinfer
exec build/release/deepinfer generate --model models/demo --seed 1 --max-tokens 96 --prompt "${1:-In the beginning}"
