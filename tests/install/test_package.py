# SPDX-License-Identifier: Apache-2.0
"""The package for Debian and the tarball: what is in them, and that the program in them runs and answers.

With `deep`, as root and with debootstrap, the package is installed into a bare Debian root, and the tarball runs in one that is older."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ['IM_SOURCE'], os.environ['IM_BUILD']
sys.path.insert(0, os.path.join(SOURCE, 'tests', 'cli'))
from program import TINY, check, left_out, skip, verdict  # noqa: E402

ANSWER = ('generate', '--json', '--raw', '--device', 'cpu', '-n', '4')


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more)


def hash_of(done):
    found = re.search(r'"logits_hash": ?"(\w+)"', done.stdout)
    return found[1] if done.returncode == 0 and found else f'no answer: {done}'


def wanted():
    return hash_of(run(os.path.join(BUILD, 'ironmule'), *ANSWER, TINY, 'hello'))


def make_deb(work):
    """A package of what is built, in a folder of its own."""
    done = run('cpack', '-G', 'DEB', '-B', work, cwd=BUILD)
    found = glob.glob(os.path.join(work, '*.deb'))
    check(done.returncode == 0 and len(found) == 1, f'cpack: {done}')
    return found[0] if found else None


def make_tarball(work):
    done = run(os.path.join(SOURCE, 'packaging', 'make-tarball'), BUILD, work)
    path = done.stdout.strip()
    check(done.returncode == 0 and os.path.exists(path), f'make-tarball: {done}')
    return path if done.returncode == 0 else None


def deb(work):
    path = make_deb(work)
    if not path:
        return
    fields = run('dpkg-deb', '--field', path).stdout
    for library in ('libc6', 'libcurl4', 'libevent', 'libjansson4', 'libssl3', 'libutf8proc', 'libxxhash0'):
        check(re.search(rf'^Depends:.*\b{library}', fields, re.M), f'the package does not ask for {library}: {fields}')
    root = os.path.join(work, 'root')
    run('dpkg-deb', '-x', path, root)
    for file in ('bin/ironmule', 'include/ironmule/ironmule.h', 'lib/systemd/system/ironmule.service', 'share/man/man1/ironmule.1',
                 'share/bash-completion/completions/ironmule', 'share/zsh/vendor-completions/_ironmule', 'share/doc/ironmule/LICENSE'):
        check(os.path.exists(os.path.join(root, 'usr', file)), f'the package lacks {file}')
    check(hash_of(run(os.path.join(root, 'usr/bin/ironmule'), *ANSWER, TINY, 'hello')) == wanted(), 'the program of the package')
    unit(root)


def unit(root):
    path = os.path.join(root, 'usr/lib/systemd/system/ironmule.service')
    text = open(path).read()
    check('\nExecStart=/usr/bin/ironmule serve ' in text, text)
    if not shutil.which('systemd-analyze'):
        return left_out('no systemd-analyze here: the unit')
    here = os.path.join(root, 'ironmule.service')  # with a program that is there
    with open(here, 'w') as f:
        f.write(text.replace('/usr/bin/ironmule', os.path.join(root, 'usr/bin/ironmule')).replace('man:ironmule-serve(1)', 'https://example.org'))
    done = run('systemd-analyze', 'verify', '--man=no', here)
    said = [line for line in done.stderr.splitlines() if 'ironmule' in line]
    check(not said, f'systemd-analyze: {said}')


def tarball(work):
    path = make_tarball(work)
    if not path:
        return
    run('tar', '-xzf', path, '-C', work)
    root = os.path.join(work, 'ironmule')
    check(os.path.exists(os.path.join(root, 'share/doc/libraries/libc6')) or not os.path.exists('/usr/share/doc/libc6/copyright'), 'whose work is inside')
    link = os.path.join(work, 'link')
    os.symlink(os.path.join(root, 'ironmule'), link)
    for start in (os.path.join(root, 'ironmule'), link):
        check(hash_of(run(start, *ANSWER, TINY, 'hello')) == wanted(), f'{start}')
    traced = run(os.path.join(root, 'lib/loader'), '--library-path', os.path.join(root, 'lib'), '--list', os.path.join(root, 'lib/ironmule'))
    outside = [line for line in traced.stdout.splitlines() if '=>' in line and root not in line]
    check(traced.returncode == 0 and not outside, f'libraries of the system: {outside} {traced.stderr}')
    if os.geteuid() == 0:  # nothing of this system is there but the program and the model
        shutil.copy(TINY, os.path.join(root, 'model.gguf'))
        os.makedirs(os.path.join(root, 'proc'), exist_ok=True)
        done = run('chroot', root, '/lib/loader', '--library-path', '/lib', '/lib/ironmule', *ANSWER, '/model.gguf', 'hello')
        check(hash_of(done) == wanted(), 'in an empty root')
    else:
        left_out('not root: the tarball in an empty root')


def bare_root(work, release):
    root = os.path.join(work, release)
    done = run('debootstrap', '--variant=minbase', release, root)
    if not check(done.returncode == 0, f'debootstrap {release}: {done.stdout[-500:]} {done.stderr[-500:]}'):
        return None
    shutil.copy(TINY, os.path.join(root, 'model.gguf'))
    for file in ('/etc/resolv.conf', '/etc/hosts'):
        shutil.copy(file, root + file)
    return root


def in_bare_roots(work):
    if os.geteuid() != 0 or not shutil.which('debootstrap'):
        return skip('not root, or no debootstrap')
    package, tar = make_deb(work), make_tarball(work)
    root = bare_root(work, 'bookworm')
    if root and package:
        shutil.copy(package, os.path.join(root, 'ironmule.deb'))
        quiet = {**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}
        done = run('chroot', root, 'apt-get', 'install', '-y', '-q', '--no-install-recommends', '/ironmule.deb', env=quiet)
        check(done.returncode == 0, f'apt-get: {done.stdout[-800:]} {done.stderr[-800:]}')
        check(hash_of(run('chroot', root, 'ironmule', *ANSWER, '/model.gguf', 'hello')) == wanted(), 'installed in a bare Debian')
        done = run('chroot', root, 'apt-get', 'purge', '-y', '-q', 'ironmule', env=quiet)
        check(done.returncode == 0 and not glob.glob(os.path.join(root, 'usr/**/*ironmule*'), recursive=True), 'files stayed behind')
    root = bare_root(work, 'bullseye')
    if root and tar:
        run('tar', '-xzf', tar, '-C', os.path.join(root, 'opt'))
        check(hash_of(run('chroot', root, '/opt/ironmule/ironmule', *ANSWER, '/model.gguf', 'hello')) == wanted(), 'the tarball on an older system')


with tempfile.TemporaryDirectory(prefix='ironmule-') as folder:
    if not shutil.which('dpkg-shlibdeps') or not shutil.which('file'):
        skip('dpkg-shlibdeps (package dpkg-dev) or file is not here')
    elif sys.argv[1:] == ['deep']:
        in_bare_roots(folder)
    else:
        for part in (deb, tarball):
            os.mkdir(os.path.join(folder, part.__name__))
            part(os.path.join(folder, part.__name__))
sys.exit(verdict())
