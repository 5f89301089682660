#!/usr/bin/env python3
"""Makes the expected token ids in tokens/*.tsv with two tokenizers that share nothing with ours.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf
    /tmp/venv/bin/python tests/vectors/make_tokens.py NAME=FILE.gguf ...

NAME is smollm2, gemma3, gpt-2 or llama-spm: the table of that name is written. Byte-level BPE goes through
`tokenizers` (its own ByteLevel and Digits pre-tokenizers), SentencePiece through `sentencepiece`, given a model
proto with the file's texts, scores and types. Words of the llama-3 and qwen2 pre-tokenizers (splits.tsv, made in
every run) come from `tokenizers` with the published regular expressions.

A table has one line per slice of the text: offset, bytes, tokens, the first 16 hexadecimal digits of the SHA-256
of the ids as 32-bit little-endian integers. Then lines "sample" with all ids of short texts, "special" with the
ids of texts in which special tokens count. Texts are written as JSON strings.
"""
import hashlib
import json
import pathlib
import re
import struct
import sys

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

HERE = pathlib.Path(__file__).parent / 'tokens'
SLICE = 4096
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    'llama-bpe': ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST,
    'qwen2': ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST,
}
SAMPLES = [
    '', ' ', 'a', 'Hello world', ' Hello  world ', "I'm sure they'll say it's DON'T\n", '3.14159 and 1,000,000',
    'x = [i for i in range(10)]\n\treturn x\r\n', 'Ångström naïve 中文 한국어 ไทย עברית', '👩‍👩‍👧‍👦 1️⃣ e\u0301\u0302',
    '<table>\n<tr><td>1</td></tr>\n</table>\n\n\n', '    indented\n        twice', '\u2581 \u2581\u2581a', '\x01\x02\x7f\u00a0\u3000',
    'the <|im_end|> of <end_of_turn> and </s>', 'A' * 100, ' ' * 70 + '.', '\n' * 40,
]
SPECIALS = [
    '<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n', '<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n',
    'a<|endoftext|>b', '<|im_start|', '<s>[INST] Hi [/INST] yes </s>', ' <s> x </s> ', '<bos><bos>',
]


def read_gguf(path):
    """Metadata of a GGUF file as a dict."""
    data = pathlib.Path(path).read_bytes()
    pos = 0
    formats = dict(enumerate('<B <b <H <h <I <i <f <?'.split())) | {10: '<Q', 11: '<q', 12: '<d'}

    def take(fmt):
        nonlocal pos
        value, = struct.unpack_from(fmt, data, pos)
        pos += struct.calcsize(fmt)
        return value

    def string():
        nonlocal pos
        n = take('<Q')
        pos += n
        return data[pos - n:pos].decode()

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            item, n = take('<I'), take('<Q')
            return [value(item) for _ in range(n)]
        return take(formats[kind])

    assert take('<4s') == b'GGUF' and take('<I') in (2, 3)
    _, pairs = take('<Q'), take('<Q')
    return {string(): value(take('<I')) for _ in range(pairs)}


def bpe_encoder(meta):
    tokens = meta['tokenizer.ggml.tokens']
    merges = [tuple(m.split(' ')) for m in meta['tokenizer.ggml.merges']]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if meta['tokenizer.ggml.pre'] == 'smollm':
        words = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words])
    t.pre_tokenizer = words
    return lambda text: t.encode(text).ids


def spm_encoder(meta):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    types = meta['tokenizer.ggml.token_type']
    for text, score, kind in zip(meta['tokenizer.ggml.tokens'], meta['tokenizer.ggml.scores'], types):
        if kind == 4:                   # files hold user-defined texts as they stand in a document
            text = text.replace(' ', '\u2581')
        m.pieces.add(piece=text, score=score, type=kind)
    names = {k: meta['tokenizer.ggml.tokens'][meta[f'tokenizer.ggml.{n}_token_id']]
             for k, n in (('bos', 'bos'), ('eos', 'eos'), ('unk', 'unknown'))}
    if 2 not in types:                  # the library insists on a piece of type "unknown"
        m.pieces[meta['tokenizer.ggml.unknown_token_id']].type = 2
    spec = m.trainer_spec
    spec.model_type, spec.byte_fallback, spec.vocab_size = 2, True, len(types)
    spec.bos_piece, spec.eos_piece, spec.unk_piece = names['bos'], names['eos'], names['unk']
    norm = m.normalizer_spec
    norm.name, norm.remove_extra_whitespaces, norm.escape_whitespaces = 'identity', False, True
    norm.add_dummy_prefix = meta.get('tokenizer.ggml.add_space_prefix', True)
    p = sentencepiece.SentencePieceProcessor(model_proto=m.SerializeToString())
    return p.encode


def with_specials(meta, encode):
    """Control tokens are cut out of the text first, the longest at each place."""
    tokens, types = meta['tokenizer.ggml.tokens'], meta['tokenizer.ggml.token_type']
    ids = {t: i for i, (t, kind) in enumerate(zip(tokens, types)) if kind in (2, 3)}
    pattern = re.compile('(' + '|'.join(map(re.escape, sorted(ids, key=len, reverse=True))) + ')')

    def run(text):
        out = []
        for i, part in enumerate(pattern.split(text)):
            out += [ids[part]] if i % 2 else encode(part) if part else []
        return out
    return run


def slices(data):
    at = 0
    while at < len(data):
        end = min(at + SLICE, len(data))
        while end < len(data) and data[end] & 0xc0 == 0x80:
            end -= 1
        yield at, data[at:end]
        at = end


def table(name, path, text):
    meta = read_gguf(path)
    bpe = meta['tokenizer.ggml.model'] == 'gpt2'
    encode = bpe_encoder(meta) if bpe else spm_encoder(meta)
    special = with_specials(meta, encode)
    with open(HERE / f'{name}.tsv', 'w', newline='\n') as f:
        for at, part in slices(text):
            ids = encode(part.decode())
            digest = hashlib.sha256(struct.pack(f'<{len(ids)}i', *ids)).hexdigest()[:16]
            print(at, len(part), len(ids), digest, sep='\t', file=f)
        for kind, texts, run in (('sample', SAMPLES, encode), ('special', SPECIALS, special)):
            for s in texts:
                print(kind, json.dumps(s), ' '.join(map(str, run(s))), sep='\t', file=f)
    print(name, 'done')


def split_table(text):
    """Number and digest of the words' lengths (bytes) per slice, and the words of the samples."""
    with open(HERE / 'splits.tsv', 'w', newline='\n') as f:
        for name, pattern in SPLITS.items():
            cut = pre_tokenizers.Split(Regex(pattern), behavior='isolated')
            for at, part in slices(text):
                lengths = [len(w.encode()) for w, _ in cut.pre_tokenize_str(part.decode())]
                digest = hashlib.sha256(struct.pack(f'<{len(lengths)}i', *lengths)).hexdigest()[:16]
                print(name, at, len(part), len(lengths), digest, sep='\t', file=f)
            for s in SAMPLES + ["it'\u017fx IT'S 'Re 'LL 12345 ١٢٣٤ a\n\n b\r\n \n\tc  d\u00a0e ...\n\n!\r\n"]:
                words = [w for w, _ in cut.pre_tokenize_str(s)]
                print(name, 'sample', json.dumps(s), json.dumps(words), sep='\t', file=f)


def main():
    text = (HERE / 'prose.txt').read_bytes() + (HERE / 'made.txt').read_bytes()
    split_table(text)
    for arg in sys.argv[1:]:
        name, _, path = arg.partition('=')
        table(name, path, text)


main()
