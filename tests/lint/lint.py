#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes.  lint.py ROOT BUILD

  layers    an #include points down, never up and never from one stage into another
  sizes     files and functions stay short (docs/style.md)
  names     base names are unique in the whole tree; x.c includes x.h first
  headers   every header compiles alone, as C17
  avx       AVX registers appear only in the objects that are named for it
  spills    the tiles of the kernels keep their sums in registers (release builds by gcc)
  format    clang-format leaves the files as they are
  docs      generated documents are what the program generates
  words     no path of a development machine, no registry host
"""
import pathlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = pathlib.Path(sys.argv[2]).resolve()
TOPS = ('kernels', 'stages', 'pipeline')
RANK = [('kernels/', 0), ('stages/base/', 1), ('stages/task.', 1.5), ('stages/kv/', 2), ('stages/ledger/', 2), ('stages/model/', 3)]
SHARED = {'stages/rec.h', 'stages/stats.h', 'stages/stage.h'}  # the top of rank 3
FILE_LINES, FUNCTION_LINES = 600, 100
AVX512 = ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni']


def sources(*suffixes, tops=TOPS):
    out = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', *tops], cwd=ROOT, text=True,
                         capture_output=True, check=True).stdout.split('\n')
    return [ROOT / f for f in sorted(set(out)) if f.endswith(suffixes) and (ROOT / f).is_file()]


def rel(path):
    return path.relative_to(ROOT).as_posix()


def rank(name):
    for prefix, r in RANK:
        if name.startswith(prefix):
            return r
    if name.rsplit('.', 1)[0] + '.h' in SHARED:
        return 3.5
    return 4 if name.startswith('stages/') else 5


def stage(name):
    parts = name.split('/')
    return parts[1] if rank(name) == 4 else ''


def options_only(inc):
    """Option tables and the kv, model, task configs are plain structs that stage.h's users may name."""
    return inc.endswith('_opts.h')


def check_layers():
    for f in sources('.c', '.h', '.cu'):
        me = rel(f)
        for n, line in enumerate(f.read_text().splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m:
                continue
            inc = m.group(1)
            if not inc.startswith(('kernels/', 'stages/', 'pipeline/')):
                yield f'{me}:{n}: "{inc}": write the path from the root'
            elif not (ROOT / inc).is_file():
                yield f'{me}:{n}: "{inc}" does not exist'
            elif rank(inc) > rank(me):
                yield f'{me}:{n}: {inc} is above it'
            elif rank(me) == rank(inc) == 4 and stage(me) != stage(inc) and not options_only(inc):
                yield f'{me}:{n}: {inc} is another stage'
            elif rank(me) in (1, 2) and rank(inc) == 0 and not inc.startswith('kernels/qtypes'):
                if rank(me) == 1:
                    yield f'{me}:{n}: base code knows no kernels'


def check_sizes():
    for f in sources('.c', '.h', '.cu', '.py', tops=TOPS + ('tests',)):
        lines = f.read_text().splitlines()
        if len(lines) > FILE_LINES:
            yield f'{rel(f)}: {len(lines)} lines, over {FILE_LINES}'
        if f.suffix not in ('.c', '.cu'):
            continue
        start = None
        for n, line in enumerate(lines, 1):
            if line.startswith('{'):
                start = n
            elif line.startswith('}') and start:
                if n - start > FUNCTION_LINES and not line.startswith('};'):
                    yield f'{rel(f)}:{start}: a function of {n - start} lines, over {FUNCTION_LINES}'
                start = None


def check_names():
    seen = {}
    for f in sources('.c', '.h', '.cu'):
        other = seen.setdefault(f.name, f)
        if other != f:
            yield f'{rel(f)}: the name is taken by {rel(other)}'
        if f.suffix == '.c' and f.with_suffix('.h').is_file():
            first = re.search(r'^#include\s+(\S+)', f.read_text(), re.M)
            if not first or first.group(1) != f'"{rel(f.with_suffix(".h"))}"':
                yield f'{rel(f)}: its own header comes first'


def check_headers():
    def one(h):
        p = subprocess.run(['gcc', '-std=c17', '-Wall', '-Wextra', '-Werror', '-fsyntax-only', '-D_DEFAULT_SOURCE',
                            *(['-mavx2', '-mfma', '-mf16c'] if '_avx' in h.name else []),
                            *(AVX512 if '_avx512' in h.name else []),
                            '-I.', '-I/usr/include/libxml2', '-x', 'c', '-'],
                           input=f'#include "{rel(h)}"\n', cwd=ROOT, text=True, capture_output=True)
        return None if p.returncode == 0 else f'{rel(h)}: does not compile alone: {p.stderr.splitlines()[0]}'
    with ThreadPoolExecutor(2) as pool:
        here = [h for h in sources('.h') if '_neon' not in h.name]     # those run_emulated.py compiles
        yield from filter(None, pool.map(one, here))


def check_avx():
    objects = [o for top in ('kernels', 'stages', 'pipeline') for o in sorted((BUILD / top).rglob('*.o'))]
    if not objects:
        yield f'{BUILD}: no objects; build first'
    for o in objects:
        beyond = r'%zmm\d|%[xy]mm(1[6-9]|[23]\d)|%k[0-7]' if o.stem.endswith('_avx2') else r'%[yz]mm\d|%k[0-7]'
        if o.stem.endswith('_avx512'):
            continue
        text = subprocess.run(['objdump', '-d', '--no-show-raw-insn', o], text=True, capture_output=True).stdout
        m = re.search(beyond, text)
        if m:
            yield f'{o.name}: uses {m.group(0)}; only *_avx512.o may use AVX-512, only they and *_avx2.o AVX'


# Stores of vectors to the stack that a function may hold: what is set up outside a tile's loop.
SPILLS = {'matmul_avx512.o': 16, 'attn_avx512.o': 8, 'attn_avx2.o': 12, 'matmul_float_avx2.o': 4}


def check_spills():
    for name, most in SPILLS.items():
        o = BUILD / 'kernels/cpu' / name
        if BUILD.name != 'release' or not o.is_file() or b'GCC' not in subprocess.run(
                ['objdump', '-s', '-j', '.comment', o], capture_output=True).stdout:
            continue
        text = subprocess.run(['objdump', '-d', '--no-show-raw-insn', o], text=True, capture_output=True).stdout
        for function in text.split('\n\n'):
            n = len(re.findall(r'\tvmov\w+ +%[yz]mm\d+,[^\n]*\(%r[sb]p', function))
            title = re.search(r'<(.+)>:', function)
            if n > most and not (title and title.group(1).startswith('weigh')):  # keeps a vector a row there
                yield f'{name}: {title and title.group(1)} stores vectors to the stack {n} times, {most} may be'


def check_format():
    tool = shutil.which('clang-format-14') or shutil.which('clang-format')
    if not tool:
        print('SKIP format: no clang-format (apt install clang-format)')
        return
    files = [rel(f) for f in sources('.c', '.h', tops=TOPS + ('tests',))]
    p = subprocess.run([tool, '--dry-run', '-Werror', *files], cwd=ROOT, text=True, capture_output=True)
    bad = sorted(set(re.findall(r'^([^:\n]+):\d+:\d+: error', p.stderr, re.M)))
    for f in bad:
        yield f'{f}: clang-format would change it'


def check_docs():
    quire = BUILD / 'quire'
    for flag, doc in (('--markdown', 'docs/job-file.md'), ('--schema', 'docs/job.schema.json'),
                      ('--completion', 'docs/completion/quire.bash')):
        p = subprocess.run([quire, 'help', flag], cwd=ROOT, text=True, capture_output=True)
        if p.returncode != 0:
            yield f'quire help {flag} failed: {p.stderr.strip()}'
        elif not (ROOT / doc).is_file() or p.stdout != (ROOT / doc).read_text():
            yield f'{doc} is stale: run scons docs'


def check_words():
    bad = re.compile(r'/work/|/tmp/b/|\.\./shared|pypi\.org|pythonhosted|deb\.debian\.org|github\.com/[\w-]+/quire')
    me = pathlib.Path(__file__).resolve()
    out = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, text=True,
                         capture_output=True, check=True).stdout.splitlines()
    for name in sorted(set(out)):
        f = ROOT / name
        if not f.is_file() or f == me or name.startswith('tests/fuzz/corpus/') or f.stat().st_size > 1 << 20:
            continue
        try:
            text = f.read_text()
        except UnicodeDecodeError:
            continue
        for n, line in enumerate(text.splitlines(), 1):
            if bad.search(line):
                yield f'{name}:{n}: {bad.search(line).group(0)}'


CHECKS = (check_layers, check_sizes, check_names, check_headers, check_avx, check_spills, check_format,
          check_docs, check_words)


def main():
    passed = failed = 0
    for check in CHECKS:
        faults = list(check())
        print(f'{"FAIL" if faults else "ok"} {check.__name__.removeprefix("check_")}')
        for f in faults[:40]:
            print('  ' + f)
        failed += bool(faults)
        passed += not faults
    print(f'{passed} passed, {failed} failed')
    return failed > 0


sys.exit(main())
