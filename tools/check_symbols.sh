#!/usr/bin/env bash
# Fails on weak symbols in the kernel objects of an instruction set.
#
# usage: check_symbols.sh OBJECT_DIR      the build folder of src/backend/cpu
#
# The linker keeps one copy of a weak symbol (an inline function or template), whichever object it
# comes from. Kept from an AVX-512 object, that copy would run on machines without AVX-512. generic/
# is compiled for every machine and exempt.
set -euo pipefail

mapfile -t objects < <(find "$1" -name '*.o' -path '*/backend/cpu/*' ! -name '*_test.cc.o' |
  grep -E '/(avx2|avx512|amx)/' | sort)
if [ ${#objects[@]} -eq 0 ]; then
  echo "$1: no object of an instruction set found"
  exit 1
fi
if nm --demangle --print-file-name "${objects[@]}" | grep -E ': *[0-9a-f]* [WVu] '; then
  echo "weak symbols (W, V, u) in kernel objects; see $0"
  exit 1
fi
echo "${#objects[@]} objects without weak symbols"
