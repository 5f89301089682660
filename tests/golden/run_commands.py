#!/usr/bin/env python3
"""What the program says and returns for right and wrong command lines.  run_commands.py --quire build/release/quire"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = 'tests/golden/check/good/least.yaml'
KV = 'tests/golden/kv'  # six small records, the third removed, the fourth left by a killed run
RING = 'tests/fuzz/corpus/trace/full.ring'
TINY = 'tests/vectors/tiny/llama.gguf'
MODEL = 'samples/models/smollm2-135m-instruct-q4_1.gguf'

# words, exit status, text that stdout holds (None: nothing), text that stderr holds (None: nothing)
CASES = [
    ('', 2, None, 'usage: quire COMMAND'),
    ('help', 0, 'run JOB', None),
    ('help kv', 0, 'quire kv list', None),          # a command and a section
    ('help kv', 0, 'Folder for KV pages', None),
    ('--help', 0, 'run JOB', None),
    ('--version', 0, 'quire 0.', None),
    ('version', 0, 'quire 0.', None),
    ('version now', 2, None, 'too many words: "now"; usage: quire version'),
    ('chekc x', 2, None, 'unknown command "chekc": did you mean "check"?'),
    ('frobnicate', 2, None, 'unknown command "frobnicate": "quire help" lists them'),
    ('check', 2, None, 'usage: quire check JOB'),
    ('check --help', 0, 'quire check jobs/summarize.yaml', None),
    ('check -h', 0, 'Options:', None),
    (f'check {JOB} {JOB}', 2, None, 'too many words'),
    (f'check {JOB} --sett a=b', 2, None, 'unknown option --sett: did you mean --set?'),
    (f'check {JOB} --set', 2, None, '--set needs a value: --set KEY=VALUE'),
    (f'check {JOB} --quiet=yes', 2, None, '--quiet takes no value'),
    (f'check {JOB} --log-level loud', 2, None, '--log-level: unknown value "loud": one of error, warn, info'),
    (f'check {JOB}', 0, 'total', None),
    (f'check -- {JOB}', 0, 'total', None),
    (f'check {JOB}', 0, 'note     write.to lies inside ingest.from', None),
    ('check nowhere.yaml', 2, None, 'cannot open "nowhere.yaml": No such file or directory'),
    ('check samples', 2, None, 'cannot read "samples": Is a directory'),
    (f'show {JOB} --set decode.max_tokens=99', 0, 'max_tokens: 99', None),
    (f'show {JOB} --set=decode.max_tokens=99', 0, 'max_tokens: 99', None),
    (f'show {JOB} --set decode.max_tokns=99', 2, None, '--set: unknown key "max_tokns" in decode: did you mean "max_t'),
    (f'show {JOB} --prompt', 0, 'text\t84\t"T"', None),
    ('help status', 0, 'quire status JOB', None),
    ('retry', 2, None, 'usage: quire retry JOB'),
    (f'retry {JOB}', 2, None, 'say what is to be done again: --failed'),
    ('diff README.md', 2, None, 'usage: quire diff RUN RUN'),
    ('diff README.md README.md', 3, None, 'has no records of quire'),
    ('help decode', 0, 'max_tokens', None),
    ('help decode.max_tokens', 0, '1 to 1048576 tokens', None),
    ('help max_tokens', 0, 'decode.max_tokens', None),
    ('help tokens', 0, 'chunk.tokens', None),
    ('help max_tokns', 2, None, 'did you mean "max_tokens"?'),
    ('help run', 0, '--set KEY=VALUE', None),
    ('inspect nowhere.gguf', 2, None, 'cannot open "nowhere.gguf"'),
    ('inspect README.md', 2, None, 'README.md: '),
    ('tokenize README.md', 2, None, 'README.md: '),
    (f'tokenize {TINY} nowhere.txt', 2, None, 'nowhere.txt'),
    ('help kv', 0, 'quire kv trace', None),
    ('kv trace', 2, None, 'usage: quire kv WORD FILE|FOLDER'),
    ('kv tarce x', 2, None, 'unknown word "tarce": did you mean "trace"?'),
    ('kv list nowhere', 3, None, '"nowhere" is not a folder of KV pages'),
    ('kv gc samples --all', 3, None, '"samples" is not a folder of KV pages'),
    ('kv stats samples --limit 5GiB', 2, None, 'kv stats takes no --limit'),
    (f'kv gc {KV} --older-than 30', 2, None, '--older-than: "30" is not a time such as 30d'),
    (f'kv gc {KV} --limit much', 2, None, '--limit: '),
    (f'kv list {KV} --context xyz', 2, None, '--context: "xyz" is not 1 to 64 hexadecimal digits'),
    (f'kv pin {KV}', 2, None, 'kv pin needs --context, --key or --all'),
    (f'kv list {KV}', 0, 'df3f619804a92fdb 07070707 page     64 split           300 B', None),
    (f'kv list {KV} --key df3f --json', 0, '"kind": "page", "tokens": 64, "codec": "split", "bytes": 300,', None),
    (f'kv stats {KV}', 0, 'records   5: 4 pages, 1 ends of prompts; 261 tokens', None),
    ('kv trace nowhere.ring', 3, None, 'cannot open "nowhere.ring"'),
    ('kv trace samples', 3, None, 'samples/events.ring'),
    ('kv trace README.md', 3, None, 'README.md: not a ring of KV events'),
    (f'kv trace {RING} --last 0', 2, None, '--last: "0" is not a number from 1'),
    (f'kv trace {RING} --last 5x', 2, None, '--last: "5x" is not a number'),
    (f'kv trace {RING}', 0, '29 events, the last 8 kept', None),
    (f'kv trace {RING} --last 1', 0, 'spill     ram        28 ', None),
    (f'kv trace {RING} --json', 0, '"op": "spill", "tier": "ram", "page": 28, "key": "', None),
    ('doctor', 0, 'ok    rounding  to nearest', None),
    ('doctor nowhere.yaml', 2, None, 'cannot open "nowhere.yaml"'),
    ('doctor --set a=b', 2, None, '--set needs a JOB'),
    (f'doctor {JOB} {JOB}', 2, None, 'too many words'),
    (f'doctor {JOB}', 0, 'ok    kv        in memory only', None),
    (f'doctor {JOB} --set limits.threads=200', 0, 'warn  threads   200 (limits.threads), but ', None),
    (f'doctor {JOB} --set kv.disk={KV}', 0, ' 5 records in 0.0 GiB', None),
    (f'doctor {JOB} --set kv.disk=README.md', 1, 'fail  kv        ', None),
    (f'doctor {JOB} --set write.to=README.md/x', 1, 'fail  output    write.to: ', None),
    (f'doctor {JOB} --set model.kind=gguf --set model.file=no.gguf', 1, 'fail  model     model.file: cannot open ', None),
    (f'doctor {JOB} --set ingest.from=nowhere', 1, 'fail  input     ingest.from: ', None),
    (f'doctor kernels {JOB} --set model.kernels=ref --set limits.threads=2', 0, 'table     ref (model.kernels: ref)', None),
    ('bench nowhere.gguf', 3, None, 'cannot open "nowhere.gguf"'),
    ('bench README.md', 3, None, 'README.md: '),
    (f'bench {TINY} --what prefil', 2, None, '--what: unknown part "prefil": load, prefill, decode, gemm, attention, '),
    (f'bench {TINY} --threads 0', 2, None, '--threads: "0" is not a number from 1 to 256'),
    (f'bench {TINY} --kernels fast', 2, None, '--kernels: unknown table "fast"'),
    (f'bench {TINY} --quick --what load,prefill --threads 1', 0, 'prefill 256 at 0  ', None),
    (f'bench {TINY} --quick --what spill --threads 2', 0, ' times as fast as computing', None),
    (f'check {JOB} --set model.kind=null --set model.file=no/such.gguf', 0,
     'note     model.kind is null: model.file is not opened', None),
    (f'run {JOB} --set decode.max_tokens=0', 2, None, '--set: decode.max_tokens: 0 is too small'),
    (f'run {JOB} --progress never', 2, None, 'one of auto, bar, lines, none'),
]
MODEL_CASES = [
    (f'inspect {MODEL}', 0, 'blk.29.ffn_up.weight', None),
    (f'inspect {MODEL} --context 2048 --batch 2', 0, '64 pages of 64 tokens', None),
    (f'inspect {MODEL} --context 0x10', 2, None, '--context: "0x10" is not a whole number'),
    (f'inspect {MODEL} --context 9000', 2, None, 'is more than the 8192 tokens'),
    (f'tokenize {MODEL} samples/packages.txt --ids', 0, '\n', None),
    (f'tokenize {MODEL}', 0, '504\t"The"\n7395\t" bridge"\n', None),
    (f'tokenize {MODEL} --special', 0, '1\t"<|im_start|>"\tspecial', None),
    (f'check {JOB} --set model.kind=gguf --set model.file={MODEL}', 0, 'template chatml', None),
]
STDIN = 'The bridge<|im_start|>'


def check(program, case):
    words, status, out, err = case
    p = subprocess.run([program, *words.split()], cwd=ROOT, input=STDIN, text=True, capture_output=True, timeout=120)
    for what, want, got in (('stdout', out, p.stdout), ('stderr', err, p.stderr)):
        if (want is None and got) or (want is not None and want not in got):
            return f'{what}: want {want!r}, got {got[-400:]!r}'
    return None if p.returncode == status else f'exit {p.returncode}, want {status}'


def run_whole(program):
    """A null job runs to its end, and a full disk behind standard output is an error."""
    with tempfile.TemporaryDirectory() as out:
        p = subprocess.run([program, 'run', JOB, '--set', f'write.to={out}/r', '-q'], cwd=ROOT, text=True, capture_output=True)
        if p.returncode or p.stdout or not (pathlib.Path(out) / 'r/results.jsonl').is_file():
            return f'run: exit {p.returncode} {p.stdout!r} {p.stderr!r}'
    with open('/dev/full', 'w') as full:
        p = subprocess.run([program, 'help'], stdout=full, stderr=subprocess.PIPE, text=True)
    return None if p.returncode == 3 and 'cannot write to standard output' in p.stderr else f'/dev/full: {p}'


def gemm_fault(found):
    """A row for each type of weights, K types in whole blocks, whose share is of the peak that its products can reach."""
    rows = [r for r in found['rows'] if r['part'] == 'gemm']
    floats, blocks, k_blocks = ('F32', 'F16', 'BF16'), ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0'), ('Q4_K', 'Q5_K', 'Q6_K')
    if [r['name'] for r in rows] != [f'gemm {t} 64 x 96' for t in floats + blocks] + [f'gemm {t} 256 x 96' for t in k_blocks]:
        return 'names'
    for r in rows:
        peak, unit = ('gflops', 'GFLOP/s') if r['name'].split()[1] in floats else ('byte_gops', 'GOP/s')
        share = r['best'] / found['peaks'][peak]['all']
        if r['unit'] != unit or r['tokens'] != 512 or abs(r['share_of_roof'] - share) > 1e-4 * share:
            return r['name']
    return None


def bench_json(program):
    """One JSON object whose rows are those that were asked for, with a share of the roof where there is one."""
    p = subprocess.run([program, 'bench', TINY, '--quick', '--json', '--what', 'decode,gemm,codecs'], cwd=ROOT, text=True,
                       capture_output=True)
    if p.returncode:
        return f'bench --json: exit {p.returncode} {p.stderr!r}'
    found = json.loads(p.stdout)
    sequences = [r['sequences'] for r in found['rows'] if r['part'] == 'decode']
    bad = [r for r in found['rows'] if not (r['best'] >= r['median'] > 0 and r['repeats'] > 0)]
    shares = all(('share_of_roof' in r) == (r['part'] in ('decode', 'gemm')) for r in found['rows'])
    peaks = all(p['all'] > 0 and p['one'] > 0 for p in found['peaks'].values())
    good = sequences == [1, 2, 4, 8, 16, 24, 32] and not bad and shares and peaks and not gemm_fault(found)
    return None if good else f'bench --json: {p.stdout}'


def tidy_kv(program):
    """verify, pin and gc on a copy of the folder, and verify once more after a flipped bit."""
    with tempfile.TemporaryDirectory() as out:
        folder = pathlib.Path(out) / 'kv'
        shutil.copytree(ROOT / KV, folder)

        def kv(words, status, text):
            p = subprocess.run([program, 'kv', *words.split()[:1], folder, *words.split()[1:]], text=True,
                               capture_output=True)
            return None if p.returncode == status and text in p.stdout else f'kv {words}: exit {p.returncode} {p.stdout!r} {p.stderr!r}'

        steps = [('verify', 0, '5 records are as they were written (1.2 KiB), 0 are damaged'),
                 ('pin --key 67ab', 0, 'pinned 2 records'),       # and the page before it
                 ('gc --dry-run', 0, 'would remove 1 records (246 B)'),
                 ('gc', 0, 'removed 1 records'),
                 ('gc --older-than 30000d --dry-run', 0, 'would remove 0 records'),
                 ('stats --json', 0, '"records": 4, "pages": 3, "tails": 1, "tokens": 197,')]
        for step in steps:
            if fault := kv(*step):
                return fault
        segment = folder / '00000000.seg'
        data = bytearray(segment.read_bytes())
        data[600] ^= 4                              # in the body of the first record
        segment.write_bytes(data)
        for step in [('verify', 1, '3 records are as they were written (716 B), 1 are damaged'),
                     ('verify', 0, '3 records are as they were written (716 B), 0 are damaged'),
                     ('gc --all', 0, 'removed 2 records'),
                     ('unpin --all', 0, 'unpinned 1 records'),
                     ('gc --limit 0', 0, 'removed 1 records'),
                     ('list', 0, 'key ')]:
            if fault := kv(*step):
                return fault
    return None


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument('--quire', required=True, type=pathlib.Path)
    ap.add_argument('--quick', action='store_true', help='accepted for the test runner; all cases are quick')
    program = ap.parse_args().quire.resolve()
    cases, skipped = CASES, 0
    if os.path.exists(ROOT / MODEL):
        cases = CASES + MODEL_CASES
    else:
        skipped = len(MODEL_CASES)
        print(f'SKIP {skipped} cases: no {MODEL} (sh samples/run.sh --setup fetches it)')
    faults = [(c[0], check(program, c)) for c in cases] + [('a whole run', run_whole(program)), ('kv', tidy_kv(program)),
              ('bench --json', bench_json(program))]
    failed = [f for f in faults if f[1]]
    for words, fault in failed:
        print(f'FAIL quire {words}\n  {fault}')
    print(f'{len(faults) - len(failed)} passed, {len(failed)} failed, {skipped} skipped')
    return 1 if failed else 0


sys.exit(main())
