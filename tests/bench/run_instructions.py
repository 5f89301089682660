#!/usr/bin/env python3
"""Instructions per token of prefill and decode, against those of instructions.json: a guard that needs no quiet machine.

    run_instructions.py --program build/release/tests/bench/forward_work [--quick] [--accept]

callgrind counts what forward_work does in the forward pass of the tiny models, on one thread and the AVX2 table
(valgrind knows no AVX-512). More than 5 % above the committed figure is a failure; so is more than 5 % below, since
a figure that is too high guards nothing: --accept writes the new ones. Counts depend on the compiler, so there are
figures for one, and builds without optimisation are not counted. Exit status 77 and a reason where it cannot be done.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / 'tests/bench/instructions.json'
TINY = ROOT / 'tests/vectors/tiny'
TOLERANCE = 0.05


def skip(why):
    print(f'SKIP instructions: {why}')
    sys.exit(77)


def count(program, model, work):
    """Instructions per token."""
    with tempfile.TemporaryDirectory() as out:
        env = {**os.environ, 'OMP_NUM_THREADS': '1', 'XDG_CACHE_HOME': out}
        p = subprocess.run(['valgrind', '--tool=callgrind', f'--callgrind-out-file={out}/out', '--collect-atstart=no',
                            '--toggle-collect=counted_pass', program, model, work], text=True, capture_output=True, env=env)
    if p.returncode == 77:
        skip('this CPU has no AVX2')
    m = re.search(r'Collected : (\d+)', p.stderr)
    if p.returncode or not m:
        sys.exit(f'FAIL {model.name} {work}: exit status {p.returncode}\n{p.stderr[-2000:]}')
    return int(m.group(1)) / int(p.stdout)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--program', required=True, type=pathlib.Path)
    ap.add_argument('--quick', action='store_true', help='one model')
    ap.add_argument('--accept', action='store_true', help='write the figures')
    a = ap.parse_args()
    if not shutil.which('valgrind'):
        skip('no valgrind (apt install valgrind)')
    compiler = subprocess.run([a.program, '--compiler'], text=True, capture_output=True, check=True).stdout.strip()
    want = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if want.get('compiler', compiler) != compiler and not a.accept:
        skip(f'figures are for {want["compiler"]}, this is {compiler}')
    found, passed, failed = {'compiler': compiler}, 0, 0
    for model in ['llama'] if a.quick else ['llama', 'qwen2', 'qwen3', 'gemma3']:
        for work in ('prefill', 'decode', 'batch'):
            name = f'{model} {work}'
            n = found[name] = round(count(a.program, TINY / f'{model}.gguf', work))
            change = n / want[name] - 1 if want.get(name) else 0
            good = a.accept or (name in want and abs(change) <= TOLERANCE)
            passed, failed = passed + good, failed + (not good)
            print(f'{"ok  " if good else "FAIL"} {name:15} {n:9} instructions per token ({change:+.1%})')
    if a.accept:
        FIGURES.write_text(json.dumps(found, indent=1) + '\n')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


sys.exit(main())
