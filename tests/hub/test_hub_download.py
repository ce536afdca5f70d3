# SPDX-License-Identifier: Apache-2.0
"""Downloads that go well, and downloads that are disturbed: cut connections, slow bodies, servers that do not honour ranges, two at once, Ctrl-C."""
import glob
import os
import signal
import stat
import time

from hub_client import Fault, Home, RANDOM, SLOWER, check, noise, together, verdict

FOLDER = {'config.json': b'{"model_type": "llama"}', 'tokenizer.json': b'{}', 'model.safetensors': noise(300000), 'README.md': b'# hello',
          'pytorch_model.bin': noise(5000), 'original/params.json': b'{}', 'empty.txt': b''}
WANTED = ('config.json', 'tokenizer.json', 'model.safetensors')


def only(files, names):
    return {n: files[n] for n in names}


def a_folder():
    with Home() as home:
        commit = home.hub.add('acme/tiny', FOLDER)
        got = home.good('models', 'add', 'acme/tiny', '--download')
        if got is None:
            return
        home.holds('acme/tiny', commit, only(FOLDER, WANTED))
        snapshot = os.path.join(home.repo('acme/tiny'), 'snapshots', commit)
        check(open(os.path.join(home.repo('acme/tiny'), 'refs', 'main')).read() == commit, 'refs/main')
        check((got['name'], got['commit'], got['path'], got['files']) == ('acme/tiny', commit, snapshot, 3), f'the answer {got}')
        check(got['bytes'] == got['fetched_bytes'] == sum(map(len, only(FOLDER, WANTED).values())), f'bytes {got}')
        entry, = home.good('models', 'registered')
        check(entry['name'] == 'acme/tiny' and entry['path'] == snapshot, f'registered {entry}')
        for path in glob.glob(os.path.join(home.path, '.local/state/ironmule', '*')):
            check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, f'{path} can be read by others')
        # Again: nothing is fetched.
        before = home.hub.sent('acme')
        got = home.good('models', 'add', 'acme/tiny', '--download')
        check(home.hub.sent('acme') == before and got['fetched_bytes'] == 0, 'what is here was fetched again')


def patterns_revisions_and_names():
    with Home() as home:
        main = home.hub.add('acme/tiny', FOLDER)
        other = home.hub.add('acme/tiny', {'config.json': b'{"other": 1}', 'sub/x.safetensors': b'abc', 'empty.json': b''}, revision='refs/pr/1')
        home.good('models', 'add', 'acme/tiny', '--download', '--file', '*.md', '--file', 'original/*')
        home.holds('acme/tiny', main, only(FOLDER, ('README.md', 'original/params.json')))
        got = home.good('models', 'add', 'acme/tiny', '--download', '--revision', 'refs/pr/1', '--file', '*', '--name', 'mine')
        home.holds('acme/tiny', other, {'config.json': b'{"other": 1}', 'sub/x.safetensors': b'abc', 'empty.json': b''})
        check(open(os.path.join(home.repo('acme/tiny'), 'refs/refs/pr/1')).read() == other and got['name'] == 'mine', f'a pull request {got}')
        got = home.good('models', 'add', f'acme/tiny@{main}', '--download', '--file', 'empty.txt')
        check(got['commit'] == main and got['fetched_bytes'] == 0, f'by commit {got}')
        home.refused('none of its 7 files fits --file', 'models', 'add', 'acme/tiny', '--download', '--file', '*.gguf')


def gguf_repositories():
    shard = 'big-Q8_0-0000{}-of-00003.gguf'
    files = {'m-Q4_K_M.gguf': noise(3000), 'm-Q4_K_S.gguf': noise(2000), 'UD/m-UD-Q4_K_M.gguf': noise(100), 'mmproj-m-f16.gguf': noise(10),
             'config.json': b'{}', **{shard.format(i): noise(1000 * i) for i in (1, 2, 3)}}
    with Home() as home:
        commit = home.hub.add('acme/many', files)
        snapshot = os.path.join(home.repo('acme/many'), 'snapshots', commit)
        for name, path in (('acme/many:q4_k_m', 'm-Q4_K_M.gguf'), ('acme/many:UD-Q4_K_M', 'UD/m-UD-Q4_K_M.gguf'), ('acme/many:m-Q4_K_S', 'm-Q4_K_S.gguf'),
                           ('acme/many:Q8_0', shard.format(1))):
            got = home.good('models', 'add', name, '--download')
            check(got and got['path'] == os.path.join(snapshot, path) and got['name'] == name, f'{name}: {got}')
        home.holds('acme/many', commit, {k: v for k, v in files.items() if k not in ('mmproj-m-f16.gguf', 'config.json')})
        home.refused('choose one as acme/many:NAME: Q4_K_M (3000 bytes), Q4_K_S (2000 bytes)', 'models', 'add', 'acme/many', '--download')
        home.refused('no GGUF file fits "Q5_0"', 'models', 'add', 'acme/many:Q5_0', '--download')
        home.hub.add('acme/one', {'README.md': b'', 'one-Q4_0.gguf': noise(5000)})
        got = home.good('models', 'add', 'acme/one', '--download')
        check(got['path'].endswith('/one-Q4_0.gguf') and got['files'] == 1, f'the only one: {got}')
        home.hub.add('acme/none', {'README.md': b''})
        home.refused('neither GGUF files nor safetensors', 'models', 'add', 'acme/none', '--download')
        home.refused('holds no GGUF file', 'models', 'add', 'acme/none:Q4_0', '--download')


def cut_at_ten_places():
    """Each cut breaks the connection; what arrived is not fetched again."""
    with Home() as home:
        data = noise(3_000_000)
        commit = home.hub.add('acme/cut', {'m-Q4_0.gguf': data})
        left, lengths = len(data), []
        for _ in range(10):
            lengths.append(RANDOM.randrange(1, left // 4))
            left -= lengths[-1]
        home.hub.faults += [Fault(where='store', cut=n) for n in lengths]
        got = home.good('models', 'add', 'acme/cut', '--download')
        home.holds('acme/cut', commit, {'m-Q4_0.gguf': data})
        sent = home.hub.sent('acme/cut')
        check(len(data) <= sent <= len(data) * 1.02, f'{sent} bytes were sent for {len(data)}; cuts {lengths}')
        check(got['fetched_bytes'] == len(data), f'{got}')
        ranges = [e.range for e in home.hub.log if e.where == 'store']
        check(len(ranges) == 11 and ranges[0] is None and all(ranges[1:]), f'ranges {ranges}')


def cut_and_run_again():
    """The program ends each time; the next run goes on where it stopped."""
    with Home() as home:
        data = noise(2_000_000)
        commit = home.hub.add('acme/runs', {'m-Q4_0.gguf': data})
        sums = 0
        for _ in range(10):
            n = RANDOM.randrange(1, (len(data) - sums) // 4)
            sums += n
            home.hub.faults[:] = [Fault(where='store', cut=n), Fault(where='hub', path='/resolve/'),
                                  Fault(where='hub', path='/resolve/', status=404, headers={'X-Error-Code': 'EntryNotFound'})]
            home.refused('has no file m-Q4_0.gguf at this revision', 'models', 'add', 'acme/runs', '--download', lines=2)
        check(home.run('models', 'show', 'acme/runs').returncode == 1, 'half a model can be named')
        home.hub.faults.clear()
        got = home.good('models', 'add', 'acme/runs', '--download')
        home.holds('acme/runs', commit, {'m-Q4_0.gguf': data})
        check(got['fetched_bytes'] == len(data) - sums, f'{got} after {sums}')
        check(home.hub.sent('acme/runs') == len(data), f'{home.hub.sent("acme/runs")} of {len(data)}')


def servers_without_ranges():
    with Home() as home:
        data = noise(500_000)
        commit = home.hub.add('acme/whole', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='store', cut=100_000), Fault(where='store', ignore_range=True, times=9)]
        home.good('models', 'add', 'acme/whole', '--download')
        home.holds('acme/whole', commit, {'m-Q4_0.gguf': data})
        home.hub.faults.clear()
        # The answer to a range begins elsewhere: refused, never written.
        home.hub.add('acme/shift', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='store', cut=100_000), Fault(where='store', shift=10)]
        home.refused('another part of m-Q4_0.gguf than it was asked for', 'models', 'add', 'acme/shift', '--download', lines=2)
        # The range is refused although bytes are missing: once from the beginning.
        commit = home.hub.add('acme/range', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='store', cut=100_000), Fault(where='store', status=416)]
        home.good('models', 'add', 'acme/range', '--download')
        home.holds('acme/range', commit, {'m-Q4_0.gguf': data})
        # From the beginning each time, and never to the end: not for ever.
        home.hub.add('acme/endless', {'m-Q4_0.gguf': data})
        home.hub.faults[:] = [Fault(where='store', cut=100_000, ignore_range=True, headers={'Retry-After': '0'}, times=999)]
        before = len(home.hub.log)
        home.refused('m-Q4_0.gguf could not be fetched', 'models', 'add', 'acme/endless', '--download', lines=2)
        check(len(home.hub.log) - before < 20, f'{len(home.hub.log) - before} requests')


def what_an_earlier_run_left():
    """Too long, damaged, complete: each has its way."""
    with Home() as home:
        data = noise(400_000)
        commit = home.hub.add('acme/left', {'m-Q4_0.gguf': data})
        blobs = os.path.join(home.repo('acme/left'), 'blobs')
        digest = home.hub.metadata_digest('acme/left', commit, 'm-Q4_0.gguf')
        for left, fetched in ((data + b'more', len(data)), (b'x' * 1000, 2 * len(data) - 1000), (data, 0), (data[:777], len(data) - 777)):
            os.makedirs(blobs, exist_ok=True)
            for path in glob.glob(os.path.join(blobs, '*')):
                os.remove(path)
            with open(os.path.join(blobs, digest + '.incomplete'), 'wb') as f:
                f.write(left)
            got = home.good('models', 'add', 'acme/left', '--download')
            check(got and got['fetched_bytes'] == fetched, f'{len(left)} bytes were left: {got}')
            home.holds('acme/left', commit, {'m-Q4_0.gguf': data})


def slow_and_silent_bodies():
    with Home(HF_HUB_DOWNLOAD_TIMEOUT='1') as home:
        data = noise(100_000)
        commit = home.hub.add('acme/slow', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='store', pace=3)]
        home.good('models', 'add', 'acme/slow', '--download')
        home.holds('acme/slow', commit, {'m-Q4_0.gguf': data})
        check(len([e for e in home.hub.log if e.where == 'store']) > 1, 'a silent server was waited for')


def patience():
    """Busy servers: Retry-After is honoured, other failures are tried again, and the end of patience is told."""
    with Home() as home:
        data = noise(50_000)
        commit = home.hub.add('acme/busy', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='hub', path='/api/', status=429, headers={'Retry-After': '1'}), Fault(where='hub', path='/api/', status=503),
                            Fault(where='hub', path='/resolve/', status=429, headers={'Retry-After': '2'}), Fault(where='store', status=500),
                            Fault(where='store', status=403)]
        begun = time.monotonic()
        home.good('models', 'add', 'acme/busy', '--download')
        check(time.monotonic() - begun >= 3, 'Retry-After was not waited for')
        home.holds('acme/busy', commit, {'m-Q4_0.gguf': data})
        home.hub.add('acme/later', {'m-Q4_0.gguf': data})
        home.hub.faults[:] = [Fault(where='hub', status=429, headers={'Retry-After': '5000'})]
        home.refused('asks to wait for 5000 seconds (status 429); try again then', 'models', 'add', 'acme/later', '--download')
        home.hub.faults[:] = [Fault(where='hub', path='/api/', cut=20, times=2)]
        home.good('models', 'add', 'acme/later', '--download')


def two_at_once():
    with Home() as home:
        data = noise(1_500_000)
        commit = home.hub.add('acme/two', {'m-Q4_0.gguf': data})
        home.hub.faults += [Fault(where='store', pace=0.02)]
        first = home.start('models', 'add', 'acme/two', '--download')
        time.sleep(0.5 * SLOWER)
        second = home.start('models', 'add', 'acme/two', '--download')
        ends = [p.communicate(timeout=120) for p in (first, second)]
        check(first.returncode == second.returncode == 0, f'two at once: {ends}')
        home.holds('acme/two', commit, {'m-Q4_0.gguf': data})
        check(home.hub.sent('acme/two') == len(data), f'two at once: {home.hub.sent("acme/two")} bytes for {len(data)}')


def interrupted():
    for number in (signal.SIGINT, signal.SIGKILL):
        with Home() as home:
            data = noise(1_500_000)
            commit = home.hub.add('acme/stop', {'m-Q4_0.gguf': data})
            home.hub.faults += [Fault(where='store', pace=0.05)]
            process = home.start('models', 'add', 'acme/stop', '--download')
            until = time.monotonic() + 30
            while home.hub.sent('acme/stop') < 200_000 and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)
            if number == signal.SIGINT:
                check(process.returncode == 130 and b'goes on where it stopped' in err and not out, f'Ctrl-C: {process.returncode} {err}')
            check(not os.path.exists(os.path.join(home.repo('acme/stop'), 'refs/main')), 'half a snapshot has a ref')
            home.hub.faults.clear()
            got = home.good('models', 'add', 'acme/stop', '--download')
            home.holds('acme/stop', commit, {'m-Q4_0.gguf': data})
            check(0 < got['fetched_bytes'] < len(data) - 100_000, f'after {number.name} all was fetched again: {got}')


def many_files_in_parallel():
    files = {f'model-{i:05d}-of-00012.safetensors': noise(40_000) for i in range(1, 13)}
    files['config.json'] = b'{}'
    files['model.safetensors.index.json'] = b'{"weight_map": {}}'
    with Home() as home:
        commit = home.hub.add('acme/shards', files)
        home.hub.faults += [Fault(where='store', pace=0.2, times=12)]
        begun = time.monotonic()
        home.good('models', 'add', 'acme/shards', '--download')
        took = time.monotonic() - begun
        home.holds('acme/shards', commit, files)
        check(took < 12 * 0.6 * 0.7 * SLOWER, f'12 files of 0.6 s one after another? {took:.1f} s')


together(a_folder, patterns_revisions_and_names, gguf_repositories, cut_at_ten_places, cut_and_run_again, servers_without_ranges,
         what_an_earlier_run_left, slow_and_silent_bodies, patience, two_at_once, interrupted)
many_files_in_parallel() # its time is measured
raise SystemExit(verdict())
