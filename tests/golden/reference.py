# SPDX-License-Identifier: Apache-2.0
"""Golden data of an independent implementation: the real models' (tests/data/golden) and the zoos of small random models (tests/data/zoo,
tests/data/mlx, each unpacked once into the build folder)."""
import fcntl
import json
import lzma
import os
import re
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))

DATA = os.environ['IM_TEST_DATA']


def load(name):
    """tests/data/golden/NAME.json.xz: "smollm2-135m.score", "gemma3-270m.vectors" ..."""
    with lzma.open(os.path.join(DATA, 'golden', name + '.json.xz'), 'rt', encoding='utf-8') as f:
        return json.load(f)


def sources(zoo):
    folder = os.path.join(DATA, zoo)
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith('.tar.xz')]


def unpack(zoo='zoo'):
    """The folder that holds every NAME.gguf and NAME.json of the zoo; of 'mlx' every NAME/ with the files of a model and its golden.json."""
    folder = os.path.join(os.environ['IM_BUILD'], zoo)
    stamp, archives = os.path.join(folder, '.stamp'), sources(zoo)
    state = '\n'.join(f'{os.path.basename(a)} {os.path.getsize(a)} {os.stat(a).st_mtime_ns}' for a in archives)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, '.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run beside each other
        if os.path.exists(stamp) and open(stamp).read() == state:
            return folder
        for archive in archives:
            with tarfile.open(archive) as t:
                for member in t:
                    if member.isdir() and zoo == 'mlx':
                        continue
                    if not member.isfile() or not re.fullmatch(r'([\w-][\w.-]*/)?' * (zoo == 'mlx') + r'[\w-][\w.-]*', member.name):
                        raise SystemExit(f'FAILED {archive}: {member.name} is no plain file')
                    t.extract(member, folder, set_attrs=False)
        with open(stamp, 'w') as f:
            f.write(state)
    return folder


def zoo_model(folder, name):
    return os.path.join(DATA, 'zoo', 'arch-tiny.gguf') if name == 'arch-tiny' else os.path.join(folder, name + '.gguf')
