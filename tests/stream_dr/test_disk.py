"""Files appear whole or not at all; a directory has one writer."""

import errno
import os
import subprocess
import sys

import pytest

from stream_dr.disk import DirectoryLock, check_free_space, free_bytes, write_atomically
from stream_dr.errors import DirectoryInUse, InsufficientStorage
from stream_dr.failpoints import FailpointReached, failpoints_armed


def write(text):
    return lambda handle: handle.write(text)


def test_a_file_is_created_and_replaced(tmp_path):
    path = tmp_path / "state"
    write_atomically(path, write(b"one"))
    write_atomically(str(path), write(b"two"))
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("place", ["write.tmp", "write.rename"])
@pytest.mark.parametrize(("action", "error"), [("raise", FailpointReached), ("enospc", InsufficientStorage)])
def test_an_error_before_the_rename_leaves_the_old_file(tmp_path, place, action, error):
    path = tmp_path / "state"
    write_atomically(path, write(b"old"))
    with failpoints_armed(f"{place}={action}"), pytest.raises(error):
        write_atomically(path, write(b"new"))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_leaves_the_old_file(tmp_path, monkeypatch, number):
    path = tmp_path / "state"
    write_atomically(path, write(b"old"))

    def refuse(_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(InsufficientStorage, match=os.strerror(number)):
            write_atomically(path, write(b"new"))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_an_error_in_the_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "state"
    write_atomically(path, write(b"old"))
    with pytest.raises(TypeError):
        write_atomically(path, write("not bytes"))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize(("place", "content"), [("s.tmp", b"old"), ("s.rename", b"old"), ("s.dir_fsync", b"new")])
def test_killed_anywhere_the_file_is_the_old_or_the_new_one(tmp_path, place, content):
    path = tmp_path / "state"
    write_atomically(path, write(b"old"))
    code = (
        "import sys; from stream_dr.disk import write_atomically;"
        "write_atomically(sys.argv[1], lambda handle: handle.write(b'new'), failpoint_prefix='s')"
    )
    env = {**os.environ, "STREAM_DR_FAILPOINTS": f"{place}=kill"}
    assert subprocess.run([sys.executable, "-c", code, str(path)], env=env, check=False).returncode == -9
    assert path.read_bytes() == content
    left = {"state", "state.tmp"} if content == b"old" else {"state"}
    assert set(os.listdir(tmp_path)) == left
    write_atomically(path, write(b"new"))
    assert os.listdir(tmp_path) == ["state"]


def test_a_second_lock_names_the_holders_pid(tmp_path):
    with DirectoryLock(tmp_path), pytest.raises(DirectoryInUse, match=str(os.getpid())) as caught:
        DirectoryLock(tmp_path)
    assert caught.value.details["pid"] == str(os.getpid())
    with DirectoryLock(tmp_path) as lock:
        lock.release()
        lock.release()
        DirectoryLock(tmp_path).release()


def test_a_killed_holder_holds_nothing(tmp_path):
    code = (
        "import signal, sys; from stream_dr.disk import DirectoryLock;"
        "lock = DirectoryLock(sys.argv[1]); print(1, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        with pytest.raises(DirectoryInUse, match=str(child.pid)):
            DirectoryLock(tmp_path)
        child.kill()
        child.wait()
    DirectoryLock(tmp_path).release()


def test_free_bytes_is_what_the_system_says(tmp_path):
    status = os.statvfs(tmp_path)
    assert free_bytes(tmp_path) == pytest.approx(status.f_bavail * status.f_frsize, rel=0.2)


def test_room_for_exactly_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr("stream_dr.disk.free_bytes", lambda path: 1_000)
    check_free_space(tmp_path, 1_000)
    check_free_space(tmp_path, 300, min_free_bytes=700)
    for given, needed in [((1_001,), 1_001), ((301, 700), 1_001), ((0, 1_001), 1_001)]:
        with pytest.raises(InsufficientStorage, match=f"1000 bytes are free .* {needed} are needed") as refused:
            check_free_space(tmp_path, *given)
        assert refused.value.details == {"free_bytes": 1_000, "needed": needed}


def test_a_lock_whose_file_was_removed_still_holds(tmp_path):
    with DirectoryLock(tmp_path) as lock:
        lock.path.unlink()
        with pytest.raises(DirectoryInUse, match="being written to"):
            DirectoryLock(tmp_path)
    DirectoryLock(tmp_path).release()
