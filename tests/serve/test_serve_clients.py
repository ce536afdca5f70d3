# SPDX-License-Identifier: Apache-2.0
"""Clients that others wrote, as they come from PyPI, against a real model: client_checks.py runs in an environment that has them."""
import os
import subprocess
import tempfile

from server import SMOLLM2, Server, check, need_model, verdict
from venvs import venv_python

PACKAGES = ('openai==3.57.0', 'litellm==1.110.2', 'langchain-openai==1.7.4')
KEY = 'a-key-of-the-clients'


def main():
    model = need_model(SMOLLM2)
    python = venv_python('clients', *PACKAGES)
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.NamedTemporaryFile('w', suffix='.keys') as keys:
        keys.write(KEY + '\n')
        keys.flush()
        key = ('--api-key-file', keys.name)
        with Server(*key, '--context', '1024', model=model) as roomy, Server(*key, '--context', '1024', '--parallel', '1', '--queue', '1', model=model) as narrow:
            urls = [f'http://127.0.0.1:{s.port}' for s in (roomy, narrow)]
            done = subprocess.run([python, '-B', os.path.join(here, 'client_checks.py'), *urls, KEY], timeout=900)
            check(done.returncode == 0, f'client_checks.py ends with {done.returncode}')
    return verdict()


if __name__ == '__main__':
    raise SystemExit(main())
