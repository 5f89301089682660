#!/usr/bin/env python3
"""`quire check` on broken job files, `quire show` on good ones.

    tests/golden/run_check.py --quire build/release/quire [--accept] [--only TEXT]

check/broken/NAME.yaml must end with the status in the first line of NAME.expect, say exactly the rest of that file on
stderr (its folder written as @HERE@), and nothing on stdout. check/good/NAME.yaml must pass the check; what `show` prints is NAME.show,
and showing that again changes nothing. --accept writes the expectations anew: read the difference.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent / 'check'
ENV = {k: v for k, v in os.environ.items() if not k.startswith('QUIRE_')} | {'HOME': '/home/reader', 'LC_ALL': 'C.UTF-8'}


def quire(program, folder, *words):
    return subprocess.run([program, *words], cwd=folder, env=ENV, stdin=subprocess.DEVNULL, text=True, errors='replace',
                          capture_output=True, timeout=120)


def compare(path, got, accept):
    """What differs, or None."""
    if accept:
        path.write_text(got)
    want = path.read_text() if path.is_file() else '(no expectation: run with --accept)\n'
    return None if got == want else f'  want: {want.rstrip()}\n  got:  {got.rstrip()}'


def broken(program, case, accept):
    p = quire(program, case.parent, 'check', case.name)
    if p.stdout and 'the plan needs' not in p.stderr:       # a plan that does not fit is shown
        return f'  stdout: {p.stdout.rstrip()}'
    stderr = p.stderr.replace(str(case.parent), '@HERE@')
    return compare(case.with_suffix('.expect'), f'exit {p.returncode}\n{stderr}', accept)


def good(program, case, accept):
    p = quire(program, case.parent, 'check', case.name)
    if p.returncode or p.stderr:
        return f'  check: exit {p.returncode}: {p.stderr.rstrip()}'
    first = quire(program, case.parent, 'show', case.name)
    if first.returncode or first.stderr:
        return f'  show: exit {first.returncode}: {first.stderr.rstrip()}'
    with tempfile.TemporaryDirectory() as other:      # from another folder, so that only absolute paths survive
        again = pathlib.Path(other) / 'again.yaml'
        again.write_text(first.stdout)
        second = quire(program, other, 'show', again.name)
    if second.stdout != first.stdout:
        return f'  shown twice: exit {second.returncode} {second.stderr}\n{second.stdout}'
    return compare(case.with_suffix('.show'), first.stdout.replace(str(case.parent), '@HERE@'), accept)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--quire', required=True, type=pathlib.Path)
    ap.add_argument('--accept', action='store_true')
    ap.add_argument('--only', default='')
    ap.add_argument('--quick', action='store_true', help='accepted for the test runner; all cases are quick')
    a = ap.parse_args()
    program = a.quire.resolve()
    passed = failed = 0
    for folder, test in (('broken', broken), ('good', good)):
        for case in sorted((HERE / folder).glob('*.yaml')):
            if a.only not in case.stem:
                continue
            fault = test(program, case, a.accept)
            passed, failed = passed + (not fault), failed + bool(fault)
            if fault:
                print(f'FAIL {folder}/{case.stem}\n{fault}')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed or not passed else 0


sys.exit(main())
