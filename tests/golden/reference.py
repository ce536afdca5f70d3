# SPDX-License-Identifier: Apache-2.0
"""Golden data of an independent implementation: the real models' (tests/data/golden) and the zoo of small random models (tests/data/zoo,
unpacked once into the build folder)."""
import fcntl
import json
import lzma
import os
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))

DATA = os.environ['IM_TEST_DATA']


def load(name):
    """tests/data/golden/NAME.json.xz: "smollm2-135m.score", "gemma3-270m.vectors" ..."""
    with lzma.open(os.path.join(DATA, 'golden', name + '.json.xz'), 'rt', encoding='utf-8') as f:
        return json.load(f)


def sources():
    folder = os.path.join(DATA, 'zoo')
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith('.tar.xz')]


def unpack():
    """The folder that holds every NAME.gguf and NAME.json of the zoo."""
    folder = os.path.join(os.environ['IM_BUILD'], 'zoo')
    stamp, archives = os.path.join(folder, '.stamp'), sources()
    state = '\n'.join(f'{os.path.basename(a)} {os.path.getsize(a)} {os.stat(a).st_mtime_ns}' for a in archives)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, '.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run beside each other
        if os.path.exists(stamp) and open(stamp).read() == state:
            return folder
        for archive in archives:
            with tarfile.open(archive) as t:
                for member in t:
                    if not member.isfile() or os.path.basename(member.name) != member.name:
                        raise SystemExit(f'FAILED {archive}: {member.name} is no plain file')
                    t.extract(member, folder, set_attrs=False)
        with open(stamp, 'w') as f:
            f.write(state)
    return folder


def zoo_model(folder, name):
    return os.path.join(DATA, 'zoo', 'arch-tiny.gguf') if name == 'arch-tiny' else os.path.join(folder, name + '.gguf')
