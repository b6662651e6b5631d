"""The disk in user space as programs see it: mounted by the kernel."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import psutil
import pytest

from nemesis.disk import control
from node.formats.errors import FloodmarkError
from node.runtime.failing_disk import DiskFails
from tests.support.disk_rig import Program, disk, run, suspend
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.needs("fuse")]

WRITES = "file = open('log', 'ab', buffering=0)\n"
LMDB = """
import lmdb
store = lmdb.open('store', writemap={writemap}, sync={sync}, map_size=1 << 20)
for number in range(200):
    with store.begin(write=True) as turn:
        turn.put(b'%04d' % number, bytes(500))
    print(number, flush=True)
"""
READ_LMDB = """
import lmdb
with lmdb.open('store').begin() as turn:
    print(turn.stat()['entries'])
"""


def test_a_power_cut_takes_what_was_not_synced_and_a_kill_nothing(tmp_path: Path) -> None:
    code = f"{WRITES}file.write(b'synced,')\nos.fsync(file)\nfile.write(b'not')\n"
    with disk(tmp_path) as used:
        with pytest.raises(FloodmarkError, match="nothing was synced yet"):
            used.tear(0.5, 0.5)
        program = Program(used, f"{code}print('there', flush=True)\nsys.stdin.read()")
        assert program.line() == "there"
        program.kill()
        assert run(used, "print(open('log').read())") == "synced,not"
        assert (used.folder / "log").read_bytes() == b"synced,not"
        assert used.cut(0.0) == (3, 0)
        assert (used.folder / "log").read_bytes() == b"synced,"
        used.start()
        assert run(used, "print(open('log').read())") == "synced,"


def test_a_server_that_refuses_root_sees_another_user_to_whom_its_disk_belongs(
    tmp_path: Path,
) -> None:
    code = "open('log', 'w').write('x')\nprint(os.geteuid(), os.stat('log').st_uid)"
    seen = 1000 if os.geteuid() == 0 else os.geteuid()
    with disk(tmp_path) as used:
        assert Program(used, code, ordinary=True).end() == (0, f"{seen} {seen}")
    assert (tmp_path / "n1" / "log").stat().st_uid == os.geteuid()


def test_a_socket_has_a_name_that_a_power_cut_takes(tmp_path: Path) -> None:
    code = """
import socket
there, here = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
there.bind('socket')
there.listen()
here.connect('socket')
print(os.listdir())
"""
    with disk(tmp_path) as used:
        assert run(used, code) == "['socket']"
        used.cut(0.0)
        used.start()
        assert run(used, "print(os.listdir())") == "[]"


def test_what_waits_too_long_and_what_is_there_at_an_order_is_written_back(tmp_path: Path) -> None:
    with disk(tmp_path, write_back_ms=40) as used:
        for code in ("open('log', 'a').write('x')", ""):
            run(used, f"{code}\nopen('old', 'w')\nos.remove('old')")
            # What is removed later is gone for good later.
            until(lambda: not list((tmp_path / "n1.disk").iterdir()), "the end of 'old'")
        assert used.cut(0.0) == (0, 0)
    with disk(tmp_path) as used:
        run(used, "open('log', 'a').write('y')")
        used.sync()
        run(used, "open('log', 'a').write('z')")
        assert used.cut(0.0) == (1, 0)
    assert [(f.name, f.read_bytes()) for f in (tmp_path / "n1").iterdir()] == [("log", b"xy")]


def test_a_cut_that_takes_too_long_does_not_happen_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disk(tmp_path) as used:
        run(used, f"{WRITES}file.write(b'not synced')")
        stopped = suspend(used.pid)
        monkeypatch.setattr(control, "ORDER_S", 0.05)
        with pytest.raises(control.DiskTooSlow, match="did not answer"):
            used.cut(0.0)
        assert used.pid == 0
        until(lambda: not stopped.is_running(), "the end of the disk")
        monkeypatch.undo()
        used.start()
        assert run(used, "print(open('log').read())") == "not synced"


@pytest.mark.parametrize("writemap", [False, True])
def test_lmdb_keeps_what_it_has_committed(tmp_path: Path, writemap: bool) -> None:
    with disk(tmp_path) as used:
        program = Program(used, LMDB.format(writemap=writemap, sync=True))
        for _ in range(60):
            said = program.line()
        program.kill()
        used.cut(0.0)
        used.start()
        # Of the commit that was under way, nobody knows.
        assert int(run(used, READ_LMDB)) > int(said)


def test_faults_begin_and_end_while_a_program_runs(tmp_path: Path) -> None:
    code = f"""{WRITES}
for line in sys.stdin:
    try:
        file.write(b'x')
        os.fsync(file)
        print('done', flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""
    with disk(tmp_path, write_through=True) as used:
        program = Program(used, code)

        def answer() -> str:
            program.tell("write")
            return program.line()

        assert answer() == "done"
        for what, said in (("error", "5"), ("full", "28"), ("slow", "done"), ("lying", "done")):
            number = used.add(DiskFails(what, delay_ms=1))
            assert answer() == said, what
            if what != "lying":
                # A lie takes effect by what a power cut takes then.
                assert used.remove(number) == 1, what
                assert answer() == "done", what
        program.kill()
        assert used.cut(1.0) == (1, 0)
        assert used.remove(number) >= 1
        # The one of the failed sync is lost too, but a later sync has given the file its length.
        assert (used.folder / "log").read_bytes() == b"x\0xxxx"


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stands still too long: the fault that was ordered meanwhile is not in force."""
    sync = f"{WRITES}try:\n    os.fsync(file)\nexcept OSError as error:\n    print(error.errno)"
    with disk(tmp_path) as used:
        first = used.add(DiskFails("error"))
        assert run(used, sync) == "5"
        suspend(used.pid)
        with monkeypatch.context() as patched:
            patched.setattr(control, "ORDER_S", 0.01)
            with pytest.raises(FloodmarkError, match="did not answer within"):
                used.add(DiskFails("error"))
        os.kill(used.pid, signal.SIGCONT)
        assert used.remove(first) == 1
        assert run(used, sync) == ""
        used.end()
        used.start()
        assert run(used, sync) == ""


def test_reads_fail_while_a_disk_is_unreadable(tmp_path: Path) -> None:
    with disk(tmp_path) as used:
        run(used, f"{WRITES}file.write(b'x')\nos.fsync(file)")
        number = used.add(DiskFails("unreadable"))
        code = "try:\n    open('log').read()\nexcept OSError as error:\n    print(error.errno)"
        assert run(used, code) == "5"
        assert used.remove(number) >= 1
        assert run(used, "print(open('log').read())") == "x"


def test_a_slow_sync_delays_nobody_else_and_a_kill_ends_it_undone(tmp_path: Path) -> None:
    with disk(tmp_path) as used:
        used.add(DiskFails("slow", delay_ms=3_600_000))
        slow = Program(used, f"{WRITES}file.write(b'x')\nprint('now', flush=True)\nos.fsync(file)")
        assert slow.line() == "now"
        assert run(used, "open('other', 'w').write('y')\nprint(open('other').read())") == "y"
        slow.kill()
        before, after = used.cut(0.0)
        assert before > 0 == after
        assert not (used.folder / "log").exists()


def test_a_paused_program_can_be_killed_and_its_disk_cut(tmp_path: Path) -> None:
    with disk(tmp_path) as used:
        program = Program(used, f"{WRITES}while True:\n    print(file.write(b'x'), flush=True)")
        assert program.line() == "1"
        os.kill(program.process.pid, signal.SIGSTOP)
        program.kill()
        before, after = used.cut(0.0)
        assert before > 0 == after
        assert not (used.folder / "log").exists()


def test_a_program_whose_disk_process_dies_gets_errors_and_leaves_no_mount(tmp_path: Path) -> None:
    code = f"""{WRITES}
print('now', flush=True)
sys.stdin.readline()
try:
    os.listdir('.')
except OSError as error:
    print('gone', flush=True)
sys.stdin.read()
"""
    with disk(tmp_path) as used:
        program = Program(used, code)
        assert program.line() == "now"
        psutil.Process(used.pid).kill()
        program.tell("go on")
        assert program.line() == "gone"
        program.kill()
        assert not [p.pid for p in psutil.process_iter() if str(used.folder) in _mounts(p.pid)]
        with pytest.raises(FloodmarkError, match=r"the disk of n1 has ended \(see "):
            used.cut(0.0)


def _mounts(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return ""


def test_what_is_written_from_outside_while_no_program_runs_is_seen(tmp_path: Path) -> None:
    with disk(tmp_path) as used:
        for text in ("short", "rather longer", "s"):
            (used.folder / "conf").write_text(text)
            used.start()
            assert run(used, "print(open('conf').read())") == text


OPERATIONS = """
import random, stat
rng, out = random.Random({seed}), []
names = ['a', 'b', 'dir/a', 'dir/b', 'dir/dir']
opened = []
def step():
    what = rng.choice(['write', 'append', 'read', 'rename', 'link', 'symlink', 'unlink', 'mkdir',
                       'rmdir', 'truncate', 'list', 'stat', 'chmod', 'keep', 'use', 'sync'])
    one, two, size = rng.choice(names), rng.choice(names), rng.randrange(9000)
    if what in ('write', 'append'):
        with open(one, 'r+b' if rng.random() < 0.5 else what[0] + 'b') as file:
            file.seek(rng.randrange(5000), 0)
            file.write(rng.randbytes(size))
    elif what == 'read':
        return hash(open(one, 'rb').read())
    elif what == 'truncate':
        os.truncate(one, size)
    elif what == 'list':
        return sorted((e.name, e.is_dir()) for e in os.scandir('dir' if size % 2 else '.'))
    elif what == 'stat':
        found = os.lstat(one)
        size = found.st_size * stat.S_ISREG(found.st_mode)
        return stat.S_IFMT(found.st_mode), found.st_nlink, size
    elif what == 'chmod':
        os.chmod(one, 0o600 if size % 2 else 0o755)
        return oct(os.stat(one).st_mode)
    elif what == 'keep':
        opened.append(open(one, 'r+b', buffering=0))
    elif what == 'use' and opened:
        file = rng.choice(opened)
        file.write(b'kept')
        return os.fstat(file.fileno()).st_size, os.fstat(file.fileno()).st_nlink
    elif what == 'sync' and opened:
        os.fsync(rng.choice(opened))
    elif what in ('mkdir', 'rmdir', 'unlink'):
        getattr(os, what)(one)
    elif what in ('rename', 'link', 'symlink'):
        return getattr(os, what)(one, two)
for number in range(400):
    try:
        out.append(step())
    except OSError as error:
        out.append(error.errno)
print(out)
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("write_through", [False, True])
def test_programs_see_what_they_see_on_a_plain_folder(
    tmp_path: Path, seed: int, write_through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    code = OPERATIONS.format(seed=random.Random(seed).getrandbits(32))
    with disk(tmp_path, write_through=write_through) as used:
        on_it = run(used, code)
        (tmp_path / "plain").mkdir()
        monkeypatch.setattr(used, "folder", tmp_path / "plain")
        assert on_it == run(used, code)
