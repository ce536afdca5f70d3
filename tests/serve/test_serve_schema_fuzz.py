# SPDX-License-Identifier: Apache-2.0
"""schemathesis makes requests out of docs/openapi.json, right and wrong ones, and holds the answers against it."""
import os
import subprocess
import tempfile

from server import Server, check, verdict
from venvs import venv_python

KEY = 'a-key-of-the-fuzzer'
# Not every request that fits the description succeeds: a template refuses an order of roles, an id lies outside the vocabulary.
LEFT_OUT = 'positive_data_acceptance'


def main():
    python = venv_python('schemathesis', 'schemathesis==4.32.5')
    document = os.path.join(os.environ['IM_SOURCE'], 'docs', 'openapi.json')
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, 'keys')
        with open(keys, 'w', encoding='utf-8') as file:
            file.write(KEY + '\n')
        with Server('--api-key-file', keys, '--context', '64', '--max-tokens', '8') as s:
            run = [os.path.join(os.path.dirname(python), 'schemathesis'), 'run', document, '--url', f'http://127.0.0.1:{s.port}',
                   '-H', f'Authorization: Bearer {KEY}', '--max-examples', '150', '--exclude-checks', LEFT_OUT, '--no-color', '--seed', '20']
            done = subprocess.run(run, cwd=folder, timeout=1000)
            check(done.returncode == 0, f'schemathesis ends with {done.returncode}')
            check(s.get('/health').status == 200, 'the server is still well')
    return verdict()


if __name__ == '__main__':
    raise SystemExit(main())
