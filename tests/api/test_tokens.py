# SPDX-License-Identifier: Apache-2.0
"""Text to ids and back through the public door: test_tokens.py TOKEN_CHECK models|zoo
models: the 200 golden strings of each real model; zoo: seven small vocabularies in GGUF files, with a conversation each."""
import json
import os
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'golden'))
import reference  # noqa: E402
from program import GEMMA3, SMOLLM2, check, model, skip, verdict  # noqa: E402

VOCABULARIES = ('spm-llama', 'spm-gemma', 'bpe-llama3', 'bpe-qwen2', 'bpe-olmo2', 'bpe-granite', 'spm-phi3')


def judge(name, path, golden, count):
    with tempfile.NamedTemporaryFile('w', suffix='.json') as f:
        json.dump(golden, f)
        f.flush()
        done = subprocess.run(shlex.split(sys.argv[1]) + [path, f.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    text = done.stdout.decode('utf-8', 'replace').strip()
    print(f'{name}: {text}')
    check(done.returncode == 0 and text.endswith(f'{count} strings, 0 differences'), name)


def main():
    absent = []
    if sys.argv[2] == 'zoo':
        folder = reference.unpack()
        with open(os.path.join(folder, 'tokenizers.json'), encoding='utf-8') as f:
            golden = json.load(f)
        check(sorted(golden) == sorted(VOCABULARIES), f'golden data for {sorted(golden)}')
        for name in VOCABULARIES:
            judge(name, os.path.join(folder, name + '.gguf'), golden[name], 14)
    else:
        for name, file, bos in (('smollm2-135m', SMOLLM2, None), ('gemma3-270m', GEMMA3, 2)):
            if model(file) is None:
                absent.append(file)
                continue
            with open(os.path.join(reference.DATA, 'tokenizers', name + '.json'), encoding='utf-8') as f:
                golden = json.load(f)
            judge(name, model(file), {'strings': golden, 'adds_bos': bos}, 200)
    code = verdict()
    if code == 0 and absent:
        skip(f'not judged, not in IM_TEST_MODELS: {", ".join(absent)}')
    return code


sys.exit(main())
