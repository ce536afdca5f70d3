# SPDX-License-Identifier: Apache-2.0
"""Installs into an empty folder and builds a stranger's program with it: through pkg-config (shared and static) and find_package."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = '''cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(ironmule 0.1 REQUIRED CONFIG)
add_executable(shared consumer.c)
target_link_libraries(shared PRIVATE ironmule::ironmule)
add_executable(static consumer.c)
target_link_libraries(static PRIVATE ironmule::ironmule_static)
'''


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f'{" ".join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}')
    return done.stdout


def installed_files(prefix):
    for folder, _, names in os.walk(prefix):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), prefix)


def main():
    source, build = os.environ['IM_SOURCE'], os.environ['IM_BUILD']
    with tempfile.TemporaryDirectory() as work:
        prefix = os.path.join(work, 'prefix')
        run('cmake', '--install', build, '--prefix', prefix)
        files = set(installed_files(prefix))
        headers = {os.path.basename(f) for f in files if f.endswith('.h')}
        assert headers == {h for h in os.listdir(os.path.join(source, 'include', 'ironmule')) if h.endswith('.h')}, headers
        pc = next(f for f in files if f.endswith('ironmule.pc'))
        libdir = os.path.join(prefix, os.path.dirname(os.path.dirname(pc)))
        env = dict(os.environ, LD_LIBRARY_PATH=libdir, PKG_CONFIG_PATH=os.path.join(libdir, 'pkgconfig'))

        flags = run('pkg-config', '--cflags', '--libs', 'ironmule', env=env).split()
        consumer = os.path.join(HERE, 'consumer.c')
        run('cc', consumer, '-o', os.path.join(work, 'by_pc'), *flags)
        versions = {run(os.path.join(work, 'by_pc'), env=env)}

        flags = run('pkg-config', '--static', '--cflags', '--libs', 'ironmule', env=env).split()
        flags = [os.path.join(libdir, 'libironmule.a') if f == '-lironmule' else f for f in flags]
        run('cc', consumer, '-o', os.path.join(work, 'by_pc_static'), *flags)
        versions.add(run(os.path.join(work, 'by_pc_static')))

        project = os.path.join(work, 'project')
        os.mkdir(project)
        shutil.copy(consumer, project)
        with open(os.path.join(project, 'CMakeLists.txt'), 'w', encoding='utf-8') as f:
            f.write(PROJECT)
        built = os.path.join(project, 'build')
        run('cmake', '-S', project, '-B', built, '-G', 'Ninja', f'-DCMAKE_PREFIX_PATH={prefix}')
        run('cmake', '--build', built)
        for name in ('shared', 'static'):
            versions.add(run(os.path.join(built, name), env=env))
        assert len(versions) == 1, versions
        program = os.path.join(prefix, 'bin', 'ironmule')
        if os.path.exists(program):
            run(program, '--help', env={'PATH': '/usr/bin:/bin'})
            for ending in ('man1/ironmule.1', 'man1/ironmule-models-add.1', 'bash-completion/completions/ironmule'):
                assert any(f.endswith(ending) for f in files), ending
    print(f'{len(files)} files installed; four programs built with them agree on version {versions.pop().strip()}')


if __name__ == '__main__':
    main()
