"""lines: a text file as groups of whole lines, a thousand rows at a time, with their numbers.

Plain, gzip, bzip2 and xz files by suffix, and a member of a zip archive as `archive.zip!member` (or its only file). What is
remembered is one group, of fewer lines where they are long. Memory does not grow with the file, and a
line longer than 16 MiB is refused rather than held.

Why this way: every text reader needs whole lines, line numbers for its errors, and the bytes as an array to find
separators in.
"""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from stream_dr.disk import FileName
from stream_dr.errors import MalformedInput, SourceMissing, did_you_mean

BLOCK_ROWS = 1_000
"""Rows a block."""

LONGEST = 16 << 20
"""Bytes that a line may have, or some lines that are looked at together. Parsed they take some forty times as much."""

MARK = b"\xef\xbb\xbf"
"""UTF-8's byte order mark, which some editors put first."""


_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

PACKED = (*_OPENERS, ".zip")
"""Suffixes of packed files."""


class Lines(NamedTuple):
    """A group of lines that are neither blank nor comments.

    path: of the file. data: (bytes,) uint8, read-only. numbers: (n,) line numbers from 1. starts, ends: (n,) where each line
    begins and ends in data, without its line end.
    """

    path: str
    data: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def rows(self) -> int:
        """Number of lines."""
        return len(self.numbers)

    def text(self, i: int) -> str:
        """Line i."""
        return self.data[self.starts[i] : self.ends[i]].tobytes().decode("utf-8", "replace")

    def fail(self, i: int, why: str) -> NoReturn:
        """Raise MalformedInput naming file and line."""
        number = int(self.numbers[i])
        raise MalformedInput(f"{self.path}, line {number}: {why}", file=self.path, line=number)


def open_bytes(path: FileName) -> IO[bytes]:
    """The file's bytes, unpacked. Raises SourceMissing."""
    name = str(path)
    archive, _, member = name.partition("!")
    if not Path(archive).is_file():
        raise SourceMissing(f"there is no file {archive}; give the path of a file that is there.", file=archive)
    if archive.lower().endswith(".zip") or (member and archive.lower().endswith(".npz")):
        return _open_member(archive, member)
    return _OPENERS.get(Path(archive).suffix.lower(), open)(archive, "rb")


def _open_member(archive: str, member: str) -> IO[bytes]:
    packed = zipfile.ZipFile(archive)
    files = [info.filename for info in packed.infolist() if not info.is_dir()]
    if not member and len(files) == 1:
        member = files[0]
    if member not in files:
        packed.close()
        raise SourceMissing(
            f"{archive} has no file {member!r}{did_you_mean(member, files)}; write {archive}!NAME with one of {files[:10]}."
        )
    return packed.open(member)


def read_lines(path: FileName, rows: int = BLOCK_ROWS, comment: bytes = b"#", first_line: int = 1) -> Iterator[Lines]:
    """Yield groups of `rows` lines. The last one may be shorter.

    Lines before `first_line` are skipped, and so is a byte order mark.

    comment: bytes that start a comment line, b"" for none.

    Raises SourceMissing. Raises MalformedInput, with the number of the line, if the file is
    damaged, a line is too long, or a line has a NUL byte, which no text has.
    """
    number = 1
    with open_bytes(path) as file:
        lines = _raw(path, file)
        while some := list(_some(lines, rows)):
            yield from _group(str(path), b"".join(some), number, comment, first_line)
            number += len(some)


def _some(lines: Iterator[bytes], rows: int) -> Iterator[bytes]:
    """The next lines, at most `rows`, and none more once they are long together."""
    size = 0
    for line in islice(lines, rows):
        yield line
        size += len(line)
        if size > LONGEST // 2:
            return


def _raw(path: FileName, file: IO[bytes]) -> Iterator[bytes]:
    """The file's lines with their ends, without a byte order mark."""
    number = 0
    try:
        while line := file.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                message = f"{path}, line {number}: longer than {LONGEST} bytes; is this a text file?"
                raise MalformedInput(message, file=str(path), line=number)
            yield line if number > 1 else line.removeprefix(MARK)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as e:
        message = f"{path}: cannot be unpacked after line {number} ({e})."
        raise MalformedInput(message, file=str(path), line=number) from e


def _group(path: str, data: bytes, number: int, comment: bytes, first_line: int) -> Iterator[Lines]:
    if (at := data.find(b"\0")) >= 0:
        line = number + data.count(b"\n", 0, at)
        raise MalformedInput(
            f"{path}, line {line}: a NUL byte; this is no text, or text in UTF-16: write it as UTF-8.",
            file=path,
            line=line,
        )
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == 10)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(array))
    starts = np.concatenate(([0], ends[:-1] + 1))
    numbers = number + np.arange(len(starts))
    ends = ends - ((ends > starts) & (array[np.maximum(ends - 1, 0)] == 13))
    keep = numbers >= first_line
    keep &= np.logical_or.reduceat(array > 32, starts)
    if comment:
        keep &= array[np.minimum(starts, len(array) - 1)] != comment[0]
    if keep.any():
        yield Lines(path, array, numbers[keep], starts[keep], ends[keep])
