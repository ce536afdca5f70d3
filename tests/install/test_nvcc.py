# SPDX-License-Identifier: Apache-2.0
"""cmake/nvcc.cmake on made-up machines: for which GPUs kernels are made, and what is said when there are none."""
import os
import shutil
import subprocess
import sys
import tempfile

FAILED = []
KNOWS = {'11.8': 'compute_75', '12.4': 'compute_75 compute_80 compute_86 compute_90', '13.0': 'compute_75 compute_80 compute_86 compute_90 compute_100 compute_120'}
SCRIPT = '''cmake_minimum_required(VERSION 3.25)
set(IRONMULE_CUDA "{mode}")
set(IRONMULE_CUDA_ARCHS "{archs}")
include({source}/cmake/nvcc.cmake)
message(STATUS "archs [${{cuda_archs}}] missing [${{cuda_missing}}]")
'''


def configured(folder, mode='AUTO', archs='75;80;86;89;90;100;120', nvcc=None, gpus=None):
    """What CMake says with an nvcc of this release, and GPUs of these capabilities."""
    tools = os.path.join(folder, 'bin')
    os.makedirs(tools, exist_ok=True)
    for name, text in (('nvcc', nvcc and f'case $1 in --version) echo "release {nvcc}, V{nvcc}.1";; *) printf "%s\\n" {KNOWS[nvcc]};; esac'),
                       ('nvidia-smi', gpus and 'printf "%s\\n" ' + gpus)):
        path = os.path.join(tools, name)
        if os.path.exists(path):
            os.remove(path)
        if text:
            with open(path, 'w') as f:
                f.write(f'#!/bin/sh\n{text}\n')
            os.chmod(path, 0o755)
    script = os.path.join(folder, 'try.cmake')
    with open(script, 'w') as f:
        f.write(SCRIPT.format(mode=mode, archs=archs, source=os.environ['IM_SOURCE']))
    done = subprocess.run([shutil.which('cmake'), '-DCMAKE_IGNORE_PATH=/usr/local/cuda/bin', '-P', script],
                          env={'PATH': f'{tools}:/bin', 'CUDA_HOME': '/nowhere', 'HOME': folder}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def check(what, got, code, *texts):
    flat = ' '.join(got[1].split())
    if got[0] != code or not all(t in flat for t in texts):
        FAILED.append(what)
        print('FAILED', what, got)


with tempfile.TemporaryDirectory(prefix='ironmule-') as folder:
    check('all that nvcc knows', configured(folder, nvcc='13.0'), 0, 'archs [75;80;86;90;100;120] missing []', 'for 75 80 86 90 100 120 by nvcc 13.0')
    check('an older nvcc makes fewer', configured(folder, nvcc='12.4'), 0, 'archs [75;80;86;90] missing []')
    check('too old', configured(folder, nvcc='11.8'), 0, 'archs [] missing [its nvcc was 11.8, older than 12.0]')
    check('too old, wanted', configured(folder, 'ON', nvcc='11.8'), 1, 'IRONMULE_CUDA is ON, but its nvcc was 11.8')
    check('none', configured(folder), 0, 'archs [] missing [there was no nvcc when it was made]')
    check('none, wanted', configured(folder, 'ON'), 1, 'there was no nvcc')
    check('off', configured(folder, 'OFF', nvcc='13.0'), 0, 'archs [] missing [it was made with IRONMULE_CUDA=OFF]')
    check('native', configured(folder, archs='native', nvcc='13.0', gpus='8.7 9.0 9.0'), 0, 'archs [86;90] missing []')
    check('native without a GPU', configured(folder, archs='native', nvcc='13.0'), 0, 'archs []', 'nvidia-smi found none that is known')
    check('native, too new for us', configured(folder, archs='native', nvcc='13.0', gpus='11.0'), 0, 'archs []', 'none that is known')
    check('no code for it', configured(folder, archs='89', nvcc='13.0'), 0, 'archs [] missing [its nvcc 13.0 makes no code for 89]')
print(f'{len(FAILED)} failures')
sys.exit(1 if FAILED else 0)
