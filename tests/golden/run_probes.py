#!/usr/bin/env python3
"""The scripts in docs/bpftrace compile against the program's probes.  run_probes.py --quire build/release/quire

bpftrace -d parses a script, looks the probes and their arguments up in the program, and generates code; it attaches
nothing, so that it runs in a container, too.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fault(script, program):
    p = subprocess.run(['bpftrace', '-d', script, program], text=True, capture_output=True, timeout=120)
    return None if p.returncode == 0 else f'exit {p.returncode}: {p.stderr[-600:]}'


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument('--quire', required=True, type=pathlib.Path)
    ap.add_argument('--quick', action='store_true', help='accepted for the test runner')
    program = ap.parse_args().quire.resolve()
    scripts = sorted((ROOT / 'docs/bpftrace').glob('*.bt'))
    reason = 'no bpftrace (apt install bpftrace)' if not shutil.which('bpftrace') else \
             'bpftrace runs for root only' if os.geteuid() else None
    if reason:
        print(f'SKIP bpftrace scripts: {reason}')
        return 77
    faults = [(s.name, fault(s, program)) for s in scripts]
    with tempfile.NamedTemporaryFile('w', suffix='.bt') as wrong:
        wrong.write(scripts[0].read_text().replace('kv_hit', 'kv_hti'))
        wrong.flush()
        faults.append(('a misspelt probe', None if fault(wrong.name, program) else 'was not noticed'))
    failed = [f for f in faults if f[1]]
    for name, what in failed:
        print(f'FAIL {name}: {what}')
    print(f'{len(faults) - len(failed)} passed, {len(failed)} failed')
    return 1 if failed or len(scripts) < 2 else 0


sys.exit(main())
