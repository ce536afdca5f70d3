# SPDX-License-Identifier: Apache-2.0
"""A client for servers of OpenAI's shape over raw asyncio streams: it does little beside noting when each token came.

    answer = await ask('http://127.0.0.1:8080', {'model': ..., 'messages': [...]})
    answer.first_s, answer.per_token_s, answer.text, answer.completion_tokens
"""
import asyncio
import dataclasses
import json
import time
import urllib.parse


class Refused(Exception):
    """The server said no, with a status, or broke off."""

    def __init__(self, message, status=0):
        super().__init__(message)
        self.status = status


@dataclasses.dataclass
class Answer:
    begun: float                                       # of the clock of time.perf_counter, as all times
    arrivals: list = dataclasses.field(default_factory=list)  # of each event that brought text
    tokens: list = dataclasses.field(default_factory=list)  # of each event that stands for a token, also one that made no text yet
    text: str = ''
    finish: str = ''
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    @property
    def first_s(self):
        """From sending the request to the first text."""
        return self.arrivals[0] - self.begun

    @property
    def per_token_s(self):
        """From the first token to the last, for each token after the first."""
        return (self.arrivals[-1] - self.arrivals[0]) / (self.completion_tokens - 1)

    def take(self, event, now):
        if 'error' in event:
            raise Refused(json.dumps(event['error']))
        for choice in event.get('choices', ()):
            delta = choice.get('delta', {})
            piece = delta.get('content')
            if piece or (piece == '' and 'role' not in delta):
                self.tokens.append(now)
            if piece:
                self.arrivals.append(now)
                self.text += piece
            self.finish = choice.get('finish_reason') or self.finish
        usage = event.get('usage')
        if usage:
            self.prompt_tokens, self.completion_tokens = usage['prompt_tokens'], usage['completion_tokens']
            self.cached_tokens = (usage.get('prompt_tokens_details') or {}).get('cached_tokens') or 0


async def lines_of(reader, chunked):
    """Lines of a body, chunked or up to the end of the connection."""
    rest = b''
    while True:
        if chunked:
            size = int((await reader.readline()).split(b';')[0] or b'0', 16)
            data = await reader.readexactly(size + 2) if size else b''
            data = data[:size]
        else:
            data = await reader.read(65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b'\n')
        for line in lines:
            yield line.strip()
    yield rest.strip()


async def read_head(reader):
    """Status and headers, names in lower case."""
    status = int((await reader.readline()).split(b' ', 2)[1])
    headers = {}
    while (line := (await reader.readline()).strip()):
        name, value = line.decode('latin-1').split(':', 1)
        headers[name.lower()] = value.strip()
    return status, headers


async def request(base, method, path, body=None, key=None):
    """Sends one request on a connection of its own; returns (reader, writer, status, headers)."""
    url = urllib.parse.urlsplit(base)
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 20)
    data = b'' if body is None else json.dumps(body).encode()
    head = [f'{method} {url.path.rstrip("/")}{path} HTTP/1.1', f'Host: {url.netloc}', 'Connection: close', 'Accept: */*']
    if body is not None:
        head += ['Content-Type: application/json', f'Content-Length: {len(data)}']
    if key:
        head.append(f'Authorization: Bearer {key}')
    writer.write('\r\n'.join(head).encode() + b'\r\n\r\n' + data)
    await writer.drain()
    status, headers = await read_head(reader)
    return reader, writer, status, headers


async def fetch(base, path, key=None):
    """The JSON document behind a path."""
    reader, writer, status, headers = await request(base, 'GET', path, key=key)
    try:
        text = b'\n'.join([line async for line in lines_of(reader, headers.get('transfer-encoding') == 'chunked')])
        if status != 200:
            raise Refused(f'{path}: status {status}', status)
        return json.loads(text or 'null')
    finally:
        writer.close()


async def ask(base, body, key=None, on_text=None, timeout=600):
    """A streamed chat answer. `on_text(answer)` is called after each piece."""
    async with asyncio.timeout(timeout):
        answer = Answer(time.perf_counter())
        body = {**body, 'stream': True, 'stream_options': {'include_usage': True}}
        reader, writer, status, headers = await request(base, 'POST', '/v1/chat/completions', body, key)
        try:
            await read_events(reader, status, headers, answer, on_text)
        finally:
            writer.close()
    if not answer.arrivals or not answer.completion_tokens:
        raise Refused('an answer without text or without usage')
    return answer


async def read_events(reader, status, headers, answer, on_text):
    lines = lines_of(reader, headers.get('transfer-encoding', '').lower() == 'chunked')
    if status != 200:
        raise Refused(f'status {status}: ' + ' '.join([line.decode('utf-8', 'replace') async for line in lines])[:400], status)
    async for line in lines:
        if line == b'data: [DONE]':
            return
        if line.startswith(b'data:'):
            now = time.perf_counter()
            answer.take(json.loads(line[5:]), now)
            if on_text and answer.arrivals and answer.arrivals[-1] == now:
                on_text(answer)
    raise Refused('the stream ended without [DONE]')
