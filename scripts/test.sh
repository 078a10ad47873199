#!/usr/bin/env bash
# Every check of the project, as CI runs it: about 45 minutes on two cores without a compiler cache.
#
# usage: scripts/test.sh [--quick]      --quick: the release build and its tests only
#
# Test data is prepared under build/testdata, Python packages under build/venv; both are reused
# while their sources stay the same. A skipped test counts as a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=false
case "${1:-}" in
  '') ;;
  --quick) quick=true ;;
  *) echo "usage: scripts/test.sh [--quick]" >&2; exit 2 ;;
esac
source scripts/setup.sh
setup_packages scripts/apt-test-packages.txt
mkdir -p build/testdata
jobs=$(nproc)

# stage NAME COMMAND...: runs a command and prints how long it took.
stage() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  echo "== $name: $((SECONDS - start)) s"
}

# once STAMP SOURCE COMMAND...: runs it unless it has succeeded for these bytes of SOURCE.
once() {
  local stamp=$1 sum
  sum=$(sha256sum <"$2")
  [ "$(cat "$stamp" 2>/dev/null)" = "$sum" ] && return
  "${@:3}"
  echo "$sum" >"$stamp"
}

make_venv() {
  rm -rf build/venv
  python3 -m venv build/venv
  build/venv/bin/pip install -q --disable-pip-version-check -r tests/python/requirements.txt
}

unpack() {
  rm -rf "build/testdata/$1"
  tar -C build/testdata -xJf "tests/data/$1.tar.xz"
}

prepare() {
  once build/venv.stamp tests/python/requirements.txt make_venv
  local archive
  for archive in checkpoints golden; do
    once "build/testdata/$archive.stamp" "tests/data/$archive.tar.xz" unpack "$archive"
  done
  once build/testdata/tokenizer_v41.stamp tests/data/make_tokenizer_v41.py \
    build/venv/bin/python tests/data/make_tokenizer_v41.py build/testdata/tokenizer_v41.json
}

check_format() {
  find src tests fuzz -name '*.h' -o -name '*.cc' | xargs clang-format --dry-run -Werror
}

# build PRESET [TARGET]
build() {
  cmake --preset "$1" >"build/configure-$1.log" 2>&1 || { cat "build/configure-$1.log"; return 1; }
  cmake --build --preset "$1" --target "${2:-all}" -j "$jobs"
}

# run_ctest PRESET [OPTION...]
run_ctest() {
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error -j "$jobs" "${@:2}" |
    tee "build/ctest-$1.log"
  if grep -E 'did not run|^\[  SKIPPED \]|YOU HAVE [0-9]+ DISABLED' \
    "build/ctest-$1.log" "build/$1/Testing/Temporary/LastTest.log"; then
    echo "skipped tests count as failures"
    return 1
  fi
}

run_pytest() {
  build/venv/bin/python -m pytest -q -rs tests/python | tee build/pytest.log
  if grep -E '^SKIPPED|[0-9]+ (skipped|xfailed)' build/pytest.log; then
    echo "skipped tests count as failures"
    return 1
  fi
}

# fuzz_one BINARY: a minute, from the inputs in fuzz/seeds.
fuzz_one() {
  local name log
  name=$(basename "$1")
  log=build/fuzz/$name.log
  mkdir -p "build/fuzz/corpus/$name"
  if ! "$1" -max_total_time=60 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/fuzz/$name." \
    "build/fuzz/corpus/$name" "fuzz/seeds/$name" >"$log" 2>&1; then
    tail -n 40 "$log"
    return 1
  fi
  echo "$name: $(grep -E '^Done' "$log")"
}

run_fuzz() {
  export -f fuzz_one
  find build/fuzz -name '*_fuzz' -type f -executable |
    xargs -P "$jobs" -I{} bash -ec 'fuzz_one {}'
}

stage "format" check_format
stage "test data" prepare
stage "release: build" build release
stage "release: tests" run_ctest release
stage "release: Python tests" run_pytest
stage "release: two minutes of mixed load" build/venv/bin/python tests/python/soak_serve.py --minutes 2
if ! $quick; then
  stage "asan: build" build asan
  stage "asan: tests" run_ctest asan
  stage "tsan: build" build tsan thread_tests
  stage "tsan: tests" run_ctest tsan -L threads
  stage "fuzz: build" build fuzz fuzzers
  stage "fuzz: one minute each" run_fuzz
fi
echo "== all passed: $SECONDS s"
