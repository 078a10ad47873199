#!/usr/bin/env bash
# check_symbols.sh must accept a plain object and reject each kind of weak symbol.
#
# usage: check_symbols_test.sh COMPILER
set -euo pipefail
compiler=$1
check=$(dirname "$0")/../../tools/check_symbols.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect pass|fail NAME ISA CODE: the check of one object compiled from CODE.
expect() {
  rm -rf "$folder/backend"
  mkdir -p "$folder/backend/cpu/$3"
  echo "$4" | "$compiler" -std=c++20 -x c++ -c - -o "$folder/backend/cpu/$3/a.cc.o"
  local found=pass
  "$check" "$folder" || found=fail
  [ "$found" = "$1" ] || { echo "$2: expected $1, found $found"; exit 1; }
}

expect pass "plain function" avx2 'static inline int f() { return 1; } int g() { return f(); }'
expect fail "inline function" avx2 'inline int f() { return 1; } int g() { return f(); }'
expect fail "template" avx512 'template <class T> T f(T x) { return x; } int g() { return f(1); }'
expect fail "inline variable" amx 'inline int x = 1; int g() { return x; }'
expect fail "static local" amx 'inline int& f() { static int x; return x; } int g() { return f(); }'
expect fail "no object of an instruction set" generic 'int g() { return 1; }'
echo "all cases as expected"
