#!/usr/bin/env python3
"""quire and llama.cpp on the same model and machine, by turns; the ratios of their speeds.

    LLAMA_BENCH=path/to/llama-bench tests/bench/peer.py MODEL.gguf [--quire build/release/quire] [--threads N]
        [--rounds N] [--depth TOKENS] [--kernels TABLE] [--only TEXT]

llama-batched-bench is taken from the same folder; without it the rows of several sequences are left out. The peer
gets flash attention, the same number of threads, and, with several sequences, the faster of its two kinds of cache.
Speeds swing on machines that others
use, so each round measures every row with both, one after the other; the table has the best and the median of the
rounds, and the load of the machine before and after. Not part of the test run: it asserts nothing.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 16                      # of decode, for the peer


def parse():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('model')
    ap.add_argument('--quire', default=ROOT / 'build/release/quire', type=pathlib.Path)
    ap.add_argument('--threads', type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument('--rounds', type=int, default=3)
    ap.add_argument('--depth', type=int, default=6000, help='where the deep prefill begins')
    ap.add_argument('--kernels', default='auto')
    ap.add_argument('--only', default='', help='rows whose name holds this')
    a = ap.parse_args()
    peer = os.environ.get('LLAMA_BENCH')
    if not peer:
        ap.error('set LLAMA_BENCH to the path of llama-bench')
    return a, pathlib.Path(peer)


def output(command):
    p = subprocess.run([str(c) for c in command], text=True, capture_output=True)
    if p.returncode:
        sys.exit(f'{" ".join(map(str, command))}\nexit status {p.returncode}\n{p.stderr[-2000:]}')
    return p.stdout


def quire_speeds(a):
    """Every row of prefill and decode: name -> tokens/s."""
    found = json.loads(output([a.quire, 'bench', a.model, '--json', '--quick', '--what', 'prefill,decode', '--threads',
                               a.threads, '--depth', a.depth, '--kernels', a.kernels]))
    return {row['name']: row['best'] for row in found['rows']}, found


def peer_speed(a, peer, row):
    """tokens/s of the peer for one row, or None when the program for it is missing."""
    kind, sequences, depth, shared = row
    if sequences == 1:
        what = ['-p', 512, '-n', 0] if kind == 'prefill' else ['-p', 0, '-n', STEPS]
        out = output([peer, '-m', a.model, '-t', a.threads, '-fa', 'on', '-r', 1, '-d', depth, '-o', 'json', *what])
        return json.loads(out)[0]['avg_ts']
    batched = peer.with_name('llama-batched-bench')
    if not batched.exists():
        return None
    room = depth + sequences * STEPS if shared else sequences * (depth + STEPS)
    command = [batched, '-m', a.model, '-t', a.threads, '-fa', 'on', '-c', room + 64, '-npp', depth, '-ntg', STEPS,
               '-npl', sequences, '--output-format', 'jsonl']
    # one cache for all sequences, or one each: which is faster depends on the depth, and a prefix is shared in the first
    return max(batched_speed([*command, *way]) for way in ([['-pps', '-kvu']] if shared else [['-kvu'], []]))


def batched_speed(command):
    out = output(command)
    lines = [x for x in out.splitlines() if x.startswith('{')]
    if not lines:
        sys.exit(f'{" ".join(map(str, command))}\nno result\n{out[-1000:]}')
    return json.loads(lines[0])['speed_tg']


def main():
    a, peer = parse()
    rows = {'prefill 512 at 0': ('prefill', 1, 0, False),
            'prefill 512 at 2048': ('prefill', 1, 2048, False),
            f'prefill 512 at {a.depth}': ('prefill', 1, a.depth, False),
            'decode 1 at 128': ('decode', 1, 128, False),
            'decode 1 at 2048': ('decode', 1, 2048, False),
            'decode 8 at 128': ('decode', 8, 128, False),
            'decode 24 at 128': ('decode', 24, 128, False),
            'decode 8 at 2048': ('decode', 8, 2048, False),
            'decode 8 at 2048, shared': ('decode', 8, 2048, True)}
    rows = {name: row for name, row in rows.items() if a.only in name}
    ours, theirs, loads = {}, {}, [os.getloadavg()[0]]
    for i in range(a.rounds):
        speeds, found = quire_speeds(a)
        rows = {name: row for name, row in rows.items() if name in speeds}   # a short context has fewer
        for name, row in rows.items():
            ours.setdefault(name, []).append(speeds[name])
            theirs.setdefault(name, []).append(peer_speed(a, peer, row))
        loads.append(os.getloadavg()[0])
        print(f'round {i + 1} of {a.rounds}', file=sys.stderr)
    print(f'{found["model"]}, {a.threads} threads, table {found["table"]}, {a.rounds} rounds; load of the machine '
          + ', '.join(f'{x:.1f}' for x in loads))
    print(f'{"tokens/s":26} {"quire":>9} {"median":>9} {"peer":>9} {"median":>9} {"best/best":>10} {"medians":>8}')
    for name in rows:
        q, p = ours[name], theirs[name]
        if None in p:
            print(f'{name:26} {max(q):9.1f} {statistics.median(q):9.1f} {"-":>9}')
            continue
        print(f'{name:26} {max(q):9.1f} {statistics.median(q):9.1f} {max(p):9.1f} {statistics.median(p):9.1f} '
              f'{max(q) / max(p):9.2f}x {statistics.median(q) / statistics.median(p):7.2f}x')


main()
