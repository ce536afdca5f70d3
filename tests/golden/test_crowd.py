# SPDX-License-Identifier: Apache-2.0
"""The same answer alone and in a crowd, on a real model: test_crowd.py MODEL CROWD_RUN"""
import os
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'cli'))
from program import GEMMA3, SMOLLM2, need_model  # noqa: E402

path = need_model({'smollm2': SMOLLM2, 'gemma3': GEMMA3}[sys.argv[1]])
sys.exit(subprocess.run([*shlex.split(sys.argv[2]), path]).returncode)
