#!/usr/bin/env python3
"""CPUs that this machine is not, emulated by qemu's user mode: every table of theirs, and which one is chosen.

    run_emulated.py --build build/release [--quick]

  64-bit Arm            kcheck is compiled for it (with a stand-in for cmocka) and runs on a CPU without and one with the
                        dot product of bytes: the reference there gives the pinned bytes of here, and every table its bytes
  x86 with AVX2 alone   the program takes that table and answers as it does here (full tier); its products are kcheck's, here
  x86 before AVX        the program takes the reference and answers as it does here
What is not installed is skipped by name.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARM_GCC, ARM, X86 = 'aarch64-linux-gnu-gcc', 'qemu-aarch64', 'qemu-x86_64'
FLAGS = ('-std=c17 -O2 -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -DNDEBUG -ffp-contract=off -fno-math-errno -fopenmp -Wall '
         '-Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror -I. -Itests/kernels/plain').split()
ENV = {**os.environ, 'GOMP_SPINCOUNT': '1000'}
counts = {'passed': 0, 'failed': 0, 'skipped': 0}


def that(what, holds, detail=''):
    counts['passed' if holds else 'failed'] += 1
    print(f'{"ok  " if holds else "FAIL"} {what}' + ('' if holds else f'\n{detail[-3000:]}'), flush=True)


def lacks(what, *programs):
    """Says which of the programs are missing."""
    missing = [p for p in programs if not shutil.which(p)]
    if missing:
        counts['skipped'] += 1
        print(f'SKIP {what}: not installed: {", ".join(missing)} (tests/packages.txt)', flush=True)
    return missing


def run(*words):
    p = subprocess.run([str(w) for w in words], cwd=ROOT, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors='replace')
    return p.returncode, p.stdout


def compile_arm(folder):
    """kcheck and the kernels as a program that needs no library of its machine, or what the compiler said."""
    def one(source):
        extra = {'_dotprod': ['-march=armv8.2-a+dotprod'], '_ref': ['-fno-tree-vectorize']}
        flags = next((f for suffix, f in extra.items() if source.stem.endswith(suffix)), [])
        out = folder / (source.stem + '.o')
        return out, *run(ARM_GCC, *FLAGS, *flags, '-c', source, '-o', out)

    sources = [f for d in ('kernels', 'kernels/cpu', 'tests/kernels', 'tests/kernels/plain') for f in sorted((ROOT / d).glob('*.c'))
               if not f.stem.endswith(('_avx2', '_avx512'))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(one, sources))
    bad = [text for _, code, text in done if code]
    if bad:
        return None, '\n'.join(bad)
    code, text = run(ARM_GCC, *FLAGS, '-static', *[o for o, _, _ in done], '-o', folder / 'kcheck', '-lm', '-lpthread')
    return (folder / 'kcheck', '') if code == 0 else (None, text)


def arm(folder, rounds):
    if lacks('64-bit Arm', ARM_GCC, ARM):
        return
    kcheck, said = compile_arm(folder)
    that('64-bit Arm: kcheck compiles without a warning', kcheck, said)
    for cpu, tables in (('cortex-a53', ['neon']), ('max', ['neon', 'dotprod']))[:2 if kcheck else 0]:
        code, out = run(ARM, '-cpu', cpu, kcheck, '--rounds', rounds)
        ran = [t for t in ('neon', 'dotprod') if f'--table {t} ' in out]
        that(f'64-bit Arm, {cpu}: {" and ".join(tables)} as the reference', code == 0 and ran == tables, out)


JOB = '''model: {{file: {model}, context: 512}}
task: {{kind: ask, questions: ["Who?", "Where was it built?"]}}
prompt: {{template: chatml, document: "{{{{text}}}} {{{{question}}}}"}}
decode: {{max_tokens: 8}}
limits: {{threads: 2}}
ingest: {{from: text.txt}}
write: {{to: out, partial_ok: yes}}
'''


def answers(folder, *words):
    shutil.rmtree(folder / 'out', ignore_errors=True)
    code, log = run(*words, 'run', folder / 'job.yaml', '--progress', 'none')
    records, report = folder / 'out/results.jsonl', folder / 'out/run.json'
    if code or not records.is_file():
        return None, None, log
    record = json.loads(records.read_text())
    record.pop('timings', None)
    return json.loads(report.read_text())['machine']['kernels'], record, log


def other_x86(folder, build, what, cpu, chosen, lacking):
    """The program on another CPU: the table that it takes, what it answers, and the table that it refuses."""
    if lacks(what, X86):
        return
    (folder / 'text.txt').write_text('The bridge over the river was built of stone.\n')
    (folder / 'job.yaml').write_text(JOB.format(model=ROOT / 'tests/vectors/tiny/llama.gguf'))
    _, here, said = answers(folder, build / 'quire')
    table, there, log = answers(folder, X86, '-cpu', cpu, build / 'quire')
    that(f'{what}: {chosen} is chosen', table == chosen, f'{table}\n{log}')
    that(f'{what}: the same record', here is not None and there == here, f'{said}\n{log}\n{here}\n{there}')
    code, out = run(X86, '-cpu', cpu, build / 'quire', 'check', folder / 'job.yaml', '--set', f'model.kernels={lacking}')
    that(f'{what}: {lacking} is refused', code == 2 and f'this CPU has no {lacking}' in out, out)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--build', required=True, type=pathlib.Path)
    ap.add_argument('--quick', action='store_true')
    a = ap.parse_args()
    build = a.build.resolve()
    with tempfile.TemporaryDirectory(prefix='quire-emulated-') as name:
        folder = pathlib.Path(name)
        arm(folder, 1 if a.quick else 16)
        if platform.machine() == 'x86_64':
            if not a.quick:
                other_x86(folder, build, 'x86 with AVX2 alone', 'max', 'avx2', 'avx512')
            other_x86(folder, build, 'x86 before AVX', 'Nehalem', 'ref', 'avx2')
    print(f'{counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped')
    return 1 if counts['failed'] else 0 if counts['passed'] else 77


sys.exit(main())
