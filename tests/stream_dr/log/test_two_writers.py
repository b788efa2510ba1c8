"""A writer whose folder was moved stops and changes nothing; who opens in mid-append waits for its end."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stream_dr.errors import DirectoryInUse, DirectoryMissing
from stream_dr.failpoints import FailpointReached, failpoints_armed
from stream_dr.log import index
from stream_dr.log.log import Log
from tests.support.logs import bodies, drafts

OTHER = """if True:
    import sys
    from stream_dr.log.log import Log
    from tests.support.logs import drafts
    path, what = sys.argv[1:]
    with Log(path) as log:
        if what == "append":
            log.append(drafts(log.last + 1, 2, size=500))
        elif what == "rewrite":
            log.rewrite(1, b"other", 1)
        print(log.last)
"""

LOOK = """if True:
    import hashlib, pathlib, sqlite3, sys
    for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        if path.suffix == ".sqlite":
            content = repr(list(sqlite3.connect(f"file:{path}?mode=ro", uri=True).iterdump())).encode()
        else:
            content = path.read_bytes()
        if "sqlite-" not in path.name:  # its WAL goes when a connection is closed, into the file
            print(path.name, hashlib.sha256(content).hexdigest())
"""


def other(folder: Path, what: str) -> subprocess.Popen[str]:
    """Another process that writes to the folder, as no lock keeps it from it."""
    command = [sys.executable, "-c", OTHER, str(folder), what]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd())


def wrote(folder: Path, what: str) -> None:
    with other(folder, what) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said


def content(folder: Path) -> dict[str, str]:
    """What each file holds, seen by another process: one that this process closes loses the locks SQLite has on it."""
    command = [sys.executable, "-c", LOOK, str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(line.split() for line in said.splitlines())


@pytest.mark.every_run
@pytest.mark.parametrize("place", ["log.bodies_sync", "log.before_commit"])
def test_who_opens_in_mid_append_waits_for_its_end(folder, place, monkeypatch):
    begun = []

    def meanwhile(name):
        if name == place and not begun:
            begun.append(other(folder, "look"))
            with pytest.raises(subprocess.TimeoutExpired):
                begun[0].wait(3)

    with Log(folder, max_file_bytes=2_000) as log:
        log.append(drafts(0, 3))  # so that the next one begins a file, which is to stay as well
        monkeypatch.setattr(index, "failpoint", meanwhile)
        monkeypatch.setattr("stream_dr.log.bodies.failpoint", meanwhile)
        assert log.append(drafts(3, 1)) == [3]
        said, wrong = begun[0].communicate(timeout=120)
        assert (said.split(), begun[0].returncode) == (["3"], 0), wrong
        assert log.append(drafts(4, 1)) == [4]
        log.verify()


def test_what_it_has_committed_itself_although_it_raised_is_its_own(folder):
    for place, write in {"log.after_commit": "append", "log.rewritten": "rewrite"}.items():
        with Log(folder) as log:
            log.append(drafts(log.last + 1, 3))
            with failpoints_armed(f"{place}=raise"), pytest.raises(FailpointReached):
                log.append(drafts(log.last + 1, 1)) if write == "append" else log.rewrite(0, b"mine", 1)
            log.rewrite(0, b"again", 1)
            log.append(drafts(log.last + 1, 1))
            log.verify()


@pytest.mark.parametrize("instead", [True, False])
def test_a_folder_that_was_moved_is_not_written_to(folder, tmp_path, instead):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        moved = tmp_path / "moved"
        folder.rename(moved)
        if instead:
            shutil.copytree(moved, folder)
            wrote(folder, "append")
        seen = [content(path) for path in (moved, folder) if path.exists()]
        with pytest.raises(DirectoryInUse if instead else DirectoryMissing, match="moved"):
            log.append(drafts(3, 1))
        assert [content(path) for path in (moved, folder) if path.exists()] == seen


def test_a_file_of_bodies_that_was_begun_for_nothing_is_removed(folder):
    with Log(folder, max_file_bytes=2_000) as log:
        log.append(drafts(0, 3))
        with failpoints_armed("log.before_commit=raise"), pytest.raises(FailpointReached):
            log.append(drafts(3, 1))
        assert log.find_key("k3") is None
        assert len(bodies(folder)) == 1
        assert log.append(drafts(3, 1)) == [3]
        log.verify()
