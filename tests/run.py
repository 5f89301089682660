#!/usr/bin/env python3
"""Run the test programs of one or more build folders and count what they say.

    tests/run.py [--tier quick|all] [--only TEXT] BUILD...

Tests run side by side, one for each CPU. Each prints one line with its result and time; a failing one also its
output. The last line is "N passed, N failed, N skipped" over single tests (a cmocka program counts as many as it holds).
The first build gets every test of the tier; further ones (sanitizers) the programs only, with --quick where
a program takes it, since they are many times slower, and tsan those with more than one thread.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENV = {
    'ASAN_OPTIONS': 'detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1',
    'UBSAN_OPTIONS': 'print_stacktrace=1',
    'TSAN_OPTIONS': 'halt_on_error=1:ignore_noninstrumented_modules=1',
    'ARCHER_OPTIONS': 'verbose=0',
    # Idle threads must sleep: two sanitizer builds on two cores would spin for minutes.
    'OMP_WAIT_POLICY': 'passive',
}


# Of one thread, or of processes with one each: nothing that tsan could see.
ONE_THREAD = re.compile(r'corpus |golden (hostile|commands|check)$|vectors (token_ids|codec_kl)$|'
                        r'unit test_(vocab|ingest|jinja|codec|cuts|eviction)')


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.lock = threading.Lock()            # of the counts, and of the output


def counts(output, code):
    """(passed, failed, skipped) that a program reports; else one test by its exit code (77: skipped)."""
    m = re.findall(r'^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$', output, re.M)
    if m:
        return tuple(sum(int(x or 0) for x in col) for col in zip(*m))
    passed = sum(int(n) for n in re.findall(r'\[  PASSED  \] (\d+) test', output))
    failed = sum(int(n) for n in re.findall(r'\[  FAILED  \]\s+\S*\s*(\d+) test', output))
    skipped = sum(int(n) for n in re.findall(r'\[  SKIPPED \]\s+\S*\s*(\d+) test', output))
    if passed or failed or skipped:
        return passed, failed, skipped
    return (0, 0, 1) if code == 77 else (1, 0, 0) if code == 0 else (0, 1, 0)


def run(name, command, tally, timeout):
    start = time.monotonic()
    try:
        p = subprocess.run(command, cwd=ROOT, env={**ENV, **os.environ}, timeout=timeout, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
        output, code = p.stdout, p.returncode
    except subprocess.TimeoutExpired as e:
        output = (e.stdout or b'').decode(errors='replace') + f'\nno end after {timeout} s'
        code = 124
    passed, failed, skipped = counts(output, code)
    if code not in (0, 77) and not failed:          # a crash counts, whatever was printed before it
        failed = 1
    with tally.lock:
        tell(name, command, tally, (passed, failed, skipped), start, output, code)


def tell(name, command, tally, counted, start, output, code):
    passed, failed, skipped = counted
    tally.passed += passed
    tally.failed += failed
    tally.skipped += skipped
    state = 'FAIL' if failed else 'ok  ' if passed else 'skip'
    print(f'{state} {name}  ({passed} passed{f", {failed} failed" if failed else ""}'
          f'{f", {skipped} skipped" if skipped else ""}, {time.monotonic() - start:.1f} s)', flush=True)
    if failed:
        print(f'  command: {" ".join(map(str, command))}   exit status {code}')
        print('\n'.join('  | ' + line for line in output.splitlines()[-60:]), flush=True)
    elif skipped:
        for line in re.findall(r'^(?:skipped?:|SKIP).*$', output, re.M)[:5]:
            print('  ' + line, flush=True)


def plan(build, tier, first):
    """Yields (name, command, timeout)."""
    tests = build / 'tests'
    slow = tier == 'all' and first
    sanitizer = build.name in ('asan', 'tsan')
    for p in sorted((tests / 'unit').glob('test_*')):
        if p.is_file() and os.access(p, os.X_OK):
            yield f'{build.name} unit {p.name}', [p], 1500
    yield f'{build.name} kcheck', [tests / 'kcheck'], 900
    for p in sorted((tests / 'fuzz').glob('fuzz_*')):
        corpus = ROOT / 'tests/fuzz/corpus' / p.name.removeprefix('fuzz_')
        if p.is_file() and os.access(p, os.X_OK):
            yield f'{build.name} corpus {p.name}', [p, corpus], 600
    for p in sorted((tests / 'vectors').glob('*')):
        if p.is_file() and os.access(p, os.X_OK):
            yield f'{build.name} vectors {p.name}', [p] + ([] if slow else ['--quick']), 1500
    if not sanitizer or tier == 'all':
        for p in sorted((ROOT / 'tests/golden').glob('run_*.py')):
            command = [sys.executable, p, '--quire', build / 'quire'] + ([] if slow else ['--quick'])
            yield f'{build.name} golden {p.stem.removeprefix("run_")}', command, 1500
    if first and build.name == 'release':
        command = [sys.executable, ROOT / 'tests/bench/run_instructions.py', '--program', tests / 'bench/forward_work']
        yield f'{build.name} instructions', command + ([] if slow else ['--quick']), 600
        command = [sys.executable, ROOT / 'tests/kernels/run_emulated.py', '--build', build]
        yield f'{build.name} emulated CPUs', command + ([] if slow else ['--quick']), 900
    if first:
        yield 'lint', [sys.executable, ROOT / 'tests/lint/lint.py', ROOT, build], 300


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--tier', choices=('quick', 'all'), default='all')
    ap.add_argument('--only', default='', help='run tests whose name holds this text')
    ap.add_argument('--jobs', type=int, default=os.cpu_count() or 1, help='tests at a time (one for each CPU)')
    ap.add_argument('builds', nargs='+', type=pathlib.Path)
    a = ap.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix='quire-cache-') as cache:   # tests leave no trace in the user's
        os.environ['XDG_CACHE_HOME'] = cache
        tests = [t for i, build in enumerate(a.builds) for t in plan(build.resolve(), a.tier, i == 0)
                 if a.only in t[0] and not (build.name == 'tsan' and ONE_THREAD.search(t[0]))]
        with concurrent.futures.ThreadPoolExecutor(max(1, a.jobs)) as pool:
            for done in [pool.submit(run, name, command, tally, timeout) for name, command, timeout in tests]:
                done.result()                   # an exception of the runner itself is not lost
    print(f'{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped')
    return 1 if tally.failed or not tally.passed else 0


sys.exit(main())
