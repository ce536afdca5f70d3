# SPDX-License-Identifier: Apache-2.0
"""Broken and odd GGUF files against the reader: test_gguf_hostile.py PROBE. Each is refused in one line that names the file, or loads with
all tensors as they should be; nothing crashes, takes a second or 64 MiB."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gguf_mutants  # noqa: E402
from file_probe import Probe, check, failures, refused, write  # noqa: E402

STATUS_ARGUMENT, STATUS_IO, STATUS_FORMAT, STATUS_UNSUPPORTED = 1, 2, 3, 4


def fnv(h, data):
    for b in data:
        h = (h ^ b) * 0x100000001B3 & gguf_mutants.MASK64
    return h


def digest(f):
    """What the probe prints for a file, from our own reading of it."""
    total = 0
    for t in f.tensors:
        h = fnv(0xCBF29CE484222325, t.name)
        for d in (t.dims + [1, 1, 1, 1])[:4] + [t.kind]:
            h = fnv(h, d.to_bytes(8, 'little'))
        total += fnv(h, t.data)
    return f'{total & gguf_mutants.MASK64:016x}'


def test_mutants(probe, folder, raw):
    expected, count = digest(gguf_mutants.File.parse(raw)), 0
    for name, verdict, files in gguf_mutants.mutants(raw):
        count += 1
        place = os.path.join(folder, name.replace('/', '-')[:60])
        write(place, files)
        for path in [os.path.join(place, f) for f in files] + [place]:
            answer = probe.open(path)
            if verdict == 'refuse':
                refused(answer, path)
            elif verdict == 'load':
                check(answer == ('ok', expected), f'{path}: {answer}')
            elif verdict == 'later':
                check(answer[0] == 'ok', f'{path}: {answer}')
            elif answer[0] == 'error':
                refused(answer, path)
    check(count > 220, f'only {count} mutants')


def test_refusals_say_why(probe, folder, raw):
    for name, status, words in (
            ('big-endian', STATUS_UNSUPPORTED, ['big-endian']), ('version-1', STATUS_UNSUPPORTED, ['version 1']), ('cut-40', STATUS_FORMAT, ['keys']),
            ('type-36', STATUS_UNSUPPORTED, ['blk.0.attn_q.weight', '36']), ('offset-plus-1', STATUS_FORMAT, ['blk.0.attn_q.weight', 'alignment']),
            ('offset-plus-32', STATUS_FORMAT, ['overlap', 'blk.0.attn_q.weight']), ('key-twice', STATUS_FORMAT, ['llama.block_count', 'twice']),
            ('tensor-twice', STATUS_FORMAT, ['blk.0.attn_q.weight', 'twice']), ('cut-last-byte', STATUS_FORMAT, ['output.weight', 'cut short']),
            ('key-with-new-line', STATUS_FORMAT, ['a?b']), ('array-nested-100000', STATUS_FORMAT, ["'a'"]), ('empty', STATUS_FORMAT, ['empty']),
            ('alignment-24', STATUS_FORMAT, ['general.alignment', 'power of two']), ('bool-2', STATUS_FORMAT, ['x.b', 'boolean']),
            ('key-zero-byte', STATUS_FORMAT, ['zero byte']), ('key-not-utf8', STATUS_FORMAT, ['UTF-8']),
            ('split-second-missing', STATUS_IO, ['1 of the 3', 'm-00002-of-00003.gguf']), ('split-two-missing', STATUS_IO, ['m-00001-of-00003.gguf', 'm-00003-of-00003.gguf']),
            ('split-total-plus-1', STATUS_FORMAT, ['split.tensors.count']), ('split-shard-empty', STATUS_FORMAT, ['m-00002-of-00003.gguf', 'empty'])):
        path = os.path.join(folder, name)
        answer = probe.open(path)
        refused(answer, path, *words)
        check(answer[1] == status, f'{path}: status {answer[1]}, expected {status}')


def test_places(probe, folder, raw):
    """Folders, links and names."""
    base = gguf_mutants.File.parse(raw)
    expected, shards = digest(base), base.split()
    names = sorted(shards)

    # A cache: files named by hash, and a snapshot of links to them.
    blobs, snapshot = os.path.join(folder, 'cache/blobs'), os.path.join(folder, 'cache/snapshots/aaaa')
    write(blobs, {f'{i:064x}': shards[n] for i, n in enumerate(names)})
    os.makedirs(snapshot)
    for i, n in enumerate(names):
        os.symlink(f'../../blobs/{i:064x}', os.path.join(snapshot, n))
    for path in [os.path.join(snapshot, n) for n in names] + [snapshot, snapshot + '/', os.path.relpath(snapshot)]:
        check(probe.open(path) == ('ok', expected), f'{path}: {probe.open(path)}')
    os.remove(os.path.join(snapshot, names[1]))
    for path in (os.path.join(snapshot, names[2]), snapshot):
        refused(probe.open(path), path, names[1])
    os.symlink('../../blobs/gone', os.path.join(snapshot, names[1]))
    refused(probe.open(snapshot), snapshot, names[1])

    # A blob on its own: part of a split model whose name does not tell where the others are.
    path = os.path.join(blobs, f'{0:064x}')
    refused(probe.open(path), path, '3')

    other = os.path.join(folder, 'other')
    write(other, shards)
    os.remove(os.path.join(other, names[1]))
    os.mkdir(os.path.join(other, names[1]))
    refused(probe.open(other), other, names[1], 'folder')

    two = os.path.join(folder, 'two')
    write(two, {'b.gguf': raw, 'a.gguf': raw, 'readme.txt': b'x', '.hidden.gguf': raw, 'c.gguf.part': raw})
    answer = probe.open(two)
    refused(answer, two, 'a.gguf', 'b.gguf')
    check(answer[1] == STATUS_ARGUMENT, f'{two}: {answer}')
    check(probe.open(os.path.join(two, 'b.gguf')) == ('ok', expected), 'one of two')
    os.remove(os.path.join(two, 'b.gguf'))
    check(probe.open(two) == ('ok', expected), 'a folder with one model and other files')
    os.remove(os.path.join(two, 'a.gguf'))
    for path in (two, os.path.join(two, 'absent.gguf'), os.path.join(two, 'absent', 'm.gguf')):
        answer = probe.open(path)
        refused(answer, path)
        check(answer[1] == STATUS_IO, f'{path}: {answer}')

    # Names that look like shards but count nonsense are plain names.
    odd = os.path.join(folder, 'odd')
    for name in ('m-00000-of-00003.gguf', 'm-00004-of-00003.gguf', 'm-0001-of-0002.gguf', 'm-00001-of-00001.gguf'):
        write(odd, {name: raw})
        check(probe.open(os.path.join(odd, name)) == ('ok', expected), name)
    write(odd, {'m-00001-of-99999.gguf': raw})
    refused(probe.open(os.path.join(odd, 'm-00001-of-99999.gguf')), odd + '/', '99999')


def test_large(probe, folder, raw):
    """Many small things: refused, or read in time."""
    base = gguf_mutants.File.parse(raw)
    many = base.copy().put('tokenizer.ggml.tokens', gguf_mutants.ARRAY, (gguf_mutants.STRING, ['t%d' % i for i in range(300000)]))
    keys = gguf_mutants.File()
    for i in range(70000):
        keys.add('%x' % i, gguf_mutants.U8, 0)
    fewer = gguf_mutants.File()
    for i in range(65536):
        fewer.add('k%d' % (i * 40503 % 65536), gguf_mutants.U8, 0)
    write(folder, {'many-tokens.gguf': many.pack(), 'many-keys.gguf': keys.pack(), 'most-keys.gguf': fewer.pack()})
    check(probe.open(os.path.join(folder, 'many-tokens.gguf')) == ('ok', digest(base)), 'many tokens')
    refused(probe.open(os.path.join(folder, 'many-keys.gguf')), folder + '/', '65536')
    check(probe.open(os.path.join(folder, 'most-keys.gguf'))[0] == 'ok', 'as many keys as are allowed')


def main():
    with open(os.path.join(os.environ['IM_TEST_DATA'], 'zoo', 'arch-tiny.gguf'), 'rb') as f:
        raw = f.read()
    probe = Probe(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        test_mutants(probe, folder, raw)
        test_refusals_say_why(probe, folder, raw)
        test_places(probe, os.path.join(folder, 'places'), raw)
        test_large(probe, os.path.join(folder, 'large'), raw)
    probe.close()
    print(f'{len(failures)} failures')
    return 1 if failures else 0


sys.exit(main())
