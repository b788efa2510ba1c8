"""A directory of format 2, which was never released, is refused by name and stays what it was; one of format 3 is as it is.

format2.tar.xz was written by the last version that wrote format 2: `d` is a directory of three segments.
"""

import tarfile
from pathlib import Path

import pytest

from stream_dr import errors
from stream_dr.cli import main
from stream_dr.directory.directory import Directory
from stream_dr.log.log import Log
from tests.support.batches import dense, opened, put

FIXTURE = Path(__file__).with_name("format2.tar.xz")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of format 2."""
    with tarfile.open(FIXTURE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        archive.extractall(tmp_path)
    return tmp_path / "d"


def test_a_log_of_format_2_says_what_to_do(old: Path) -> None:
    before = {path.name: path.read_bytes() for path in (old / "log").iterdir()}
    for writable in (True, False):
        with pytest.raises(errors.UnknownFormat, match=r"format version 2.*learn the rows again"):
            Log(old / "log", writable)
        with pytest.raises(errors.UnknownFormat, match=r"format version 2.*learn the rows again"):
            Directory(old, writable)
    assert {path.name: path.read_bytes() for path in (old / "log").iterdir() if path.name in before} == before


def status(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """What `stream-dr upgrade` ends with, and says."""
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", str(path)])
    return int(str(ended.value.code)), capsys.readouterr().err


def test_the_command(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, words = status(old, capsys)
    assert (code, "unknown_format" in words, "format version 2" in words) == (1, True, True)
    with opened(tmp_path / "new") as directory:
        put(directory, dense(0))
    code, words = status(tmp_path / "new", capsys)
    assert (code, "format 3 already" in words) == (0, True)
    code, words = status(tmp_path / "none", capsys)
    assert (code, "directory_missing" in words) == (1, True)
    with pytest.raises(SystemExit) as ended:
        main(["upgrade"])
    assert ended.value.code == 2
