#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of README.md in this folder from bench/results/serve-*.json.

    serve_figures.py write    renders them into the document
    serve_figures.py check    fails when the document holds anything else
"""
import glob
import json
import os
import sys

from serve_load import MODES

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENT = os.path.join(HERE, 'README.md')
BEGIN, END = '<!-- figures: written by serve_figures.py -->\n', '<!-- end of figures -->\n'


def render():
    out = []
    for path in sorted(glob.glob(os.path.join(HERE, '..', 'results', 'serve-*.json'))):
        with open(path, encoding='utf-8') as file:
            document = json.load(file)
        about = document['machine']
        out += [f'**{document["mode"]}.** {about["cpu"]}, {about["cores"]} processors, {about["date"]}, load {about["load_before"]:.1f} of other work before. '
                f'`{os.path.basename(path)}`:', '', f'    {document["command"]}', '', *MODES[document['mode']][1](document['rows']), '']
    return '\n'.join(out)


def main():
    with open(DOCUMENT, encoding='utf-8') as file:
        text = file.read()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    wanted = text[:begin] + render() + text[end:]
    if sys.argv[1:] == ['write']:
        with open(DOCUMENT, 'w', encoding='utf-8') as file:
            file.write(wanted)
    elif sys.argv[1:] != ['check']:
        sys.exit(__doc__)
    elif wanted != text:
        sys.exit('bench/serve/README.md differs from bench/results; render it with: python3 bench/serve/serve_figures.py write')


if __name__ == '__main__':
    main()
