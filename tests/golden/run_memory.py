#!/usr/bin/env python3
"""Documents made to take memory, against the plan that `quire check` prints.  run_memory.py --quire build/release/quire

The peak of resident memory of each run must stay under what the plan has for it, that of the process which reads documents
under the plan's line "reader", and each document must be read in time.
--quick takes the documents at an eighth of their size.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MIB = 1 << 20
SECONDS = 60    # for each document
TINY = pathlib.Path(__file__).resolve().parents[1] / 'vectors/tiny/llama.gguf'
# name, unit that is repeated, documents, further settings
CASES = [
    ('items.md', '- a\n', 4, []),
    ('nested.md', '- - - - - - - - - - - - - - - - a\n', 2, []),
    ('entities.md', '&&&&&&&&&&&&&&&&', 1, []),
    ('paragraphs.md', 'a\n\n', 2, []),
    ('paragraphs.html', '<p>a', 2, []),
    ('lines.txt', 'a\n\n', 3, []),
    ('wide.txt', '\u0e01\u0e33 ', 1, []),
    ('threads.txt', 'a b c.\n', 1, ['limits.threads=1024', 'model.kind=gguf', f'model.file={TINY}', 'decode.max_tokens=16',
                                    'chunk.tokens=128', 'chunk.min_tokens=16', 'prompt.template=chatml']),
]


def run(quire, *words):
    """Exit status, what it printed, peak of resident memory in bytes, and seconds of processor time."""
    p = subprocess.Popen([quire, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    return os.waitstatus_to_exitcode(status), out, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def try_case(quire, folder, case, size):
    name, unit, n, settings = case
    for i in range(n):
        (folder / f'{i}-{name}').write_text(unit * (200 if settings else size // len(unit.encode()) - 16))
    job = folder / 'job.yaml'
    job.write_text(f'model: {{kind: null}}\nkv: {{memory: 1MiB}}\nchunk: {{tokens: 4000}}\n'
                   f'ingest: {{from: "*-{name}", max_document: {size}, timeout: 1h}}\nwrite: {{to: out}}\n')
    words = [w for s in settings for w in ('--set', s)]
    code, plan, _, _ = run(quire, 'check', job, *words)
    total, reader = (float(re.search(rf'^ *{w} +([0-9.]+) MiB', plan, re.M)[1]) for w in ('total', 'reader'))
    code, out, peak, seconds = run(quire, 'run', job, '--progress', 'none', *words)
    report = folder / 'out/run.json'
    peak, apart = peak / MIB, json.loads(report.read_text())['memory']['reader_peak_rss'] / MIB if code == 0 else 0
    good = code == 0 and peak <= total - reader and 0 < apart <= reader and seconds <= SECONDS * n
    print(f'{"ok  " if good else "FAIL"} {name}: exit {code}, peak {peak:.1f} of {total - reader:.1f} MiB planned, '
          f'reader {apart:.1f} of {reader:.1f} MiB, {seconds:.1f} s')
    if not good:
        print(out[-1500:])
    return good


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--quire', required=True)
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--only', default='')
    a = ap.parse_args()
    quire = pathlib.Path(a.quire).resolve()
    if quire.parent.name in ('asan', 'tsan'):
        print('skipped: sanitizers take memory of their own')
        return 77
    good = []
    for case in CASES:
        if a.only in case[0]:
            with tempfile.TemporaryDirectory(prefix='quire-memory-') as folder:
                good.append(try_case(quire, pathlib.Path(folder), case, (2 if a.quick else 16) * MIB))
    print(f'{sum(good)} passed, {len(good) - sum(good)} failed')
    return 0 if all(good) else 1


sys.exit(main())
