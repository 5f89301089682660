#!/bin/sh
# From a fresh Debian 12 to finished summaries: packages, sample model, build, sample job.
#
#   sh samples/run.sh            everything
#   sh samples/run.sh --setup    packages, model and build only
set -eu
cd "$(dirname "$0")/.."
. samples/setup.sh

case "${1:-}" in
'' | --setup) ;;
*) say "usage: sh samples/run.sh [--setup]"; exit 2 ;;
esac

need_packages samples/packages.txt
need_model smollm2
say "building build/release/quire"
scons -Q -s -j"$(nproc)"
[ "${1:-}" != --setup ] || exit 0

job=jobs/summarize.yaml
say "running $job: each document of samples/archive/ gets a summary"
build/release/quire run "$job"
out=jobs/out/summarize
say
say "Done. The summaries:"
for f in "$out"/summaries/*.md; do
    printf '\n--- %s\n' "$f"
    cat "$f"
done
say
say "All records are in $out/results.jsonl, how the run went in $out/run.json."
say "Next: copy $job, point it at your documents, and run  build/release/quire run YOUR.yaml"
