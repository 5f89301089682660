#!/bin/sh
# Sets up what the tests need, builds, and runs them.
#
#   sh tests/run.sh             release, asan and tsan builds, every test
#   sh tests/run.sh --quick     release only, the quick tier (under three minutes)
set -eu
cd "$(dirname "$0")/.."
. samples/setup.sh

quick=
case "${1:-}" in
'') ;;
--quick) quick=yes ;;
*) say "usage: sh tests/run.sh [--quick]"; exit 2 ;;
esac

need_packages samples/packages.txt
need_packages tests/packages.txt
need_model smollm2
need_model gemma3

jobs=$(nproc)
variants="release asan tsan"
[ -z "$quick" ] || variants=release
for v in $variants; do
    say "building the $v variant"
    scons -Q -s -j"$jobs" variant="$v" werror=yes tests
done
if [ -n "$quick" ]; then
    exec python3 tests/run.py --tier quick build/release
fi
exec python3 tests/run.py --tier all build/release build/asan build/tsan
