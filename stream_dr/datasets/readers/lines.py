"""Lines: text files as groups of whole lines with their numbers.

Plain, gzip, bzip2 and xz files are recognised by their suffix. A member of a zip archive is
`archive.zip!member`, or the archive if it has only one file.

One group of lines is in memory at a time, of fewer lines if they are long. Memory does not grow
with the file, and a line longer than 16 MiB is refused.

Why this way: every text reader needs whole lines, line numbers for its errors, and the bytes as an
array in which to find separators.
"""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, cast

import numpy as np

from stream_dr.aliases import FileName
from stream_dr.errors import MalformedInput, SourceMissing, did_you_mean

BLOCK_ROWS = 1_000
"""Number of rows in a block."""

LONGEST = 16 << 20
"""Maximum number of bytes in a line, and about that in a group of lines.

A parsed group takes some forty times as much memory.
"""

MARK = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, which some editors put first."""

PACKED = (".gz", ".bz2", ".xz", ".zip")
"""Suffixes of packed files."""


class Lines(NamedTuple):
    """A group of lines that are neither blank nor comments.

    Attributes
    ----------
    path : str
        Path of the file.
    data : ndarray (bytes,) uint8
        Bytes of the group, read-only. Blank lines and comments are among them.
    numbers : ndarray (n,)
        Line numbers in the file, from 1.
    starts, ends : ndarray (n,)
        Boundaries of each line in `data`, without the line break.
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
        """Return the text of line i of the group."""
        return self.data[self.starts[i] : self.ends[i]].tobytes().decode("utf-8", "replace")

    def fail(self, i: int, message: str) -> NoReturn:
        """Raise MalformedInput for line i of the group, naming file and line."""
        number = int(self.numbers[i])
        raise MalformedInput(f"{self.path}, line {number}: {message}", file=self.path, line=number)


def open_bytes(path: FileName) -> IO[bytes]:
    """Open a file and return its bytes as a stream, unpacked.

    Raises SourceMissing.
    """
    archive, _, member = str(path).partition("!")
    if not Path(archive).is_file():
        raise SourceMissing(f"there is no file {archive}; give the path of a file that is there.", file=archive)
    if archive.lower().endswith(".zip") or (member and archive.lower().endswith(".npz")):
        return _open_member(archive, member)

    match Path(archive).suffix.lower():
        case ".gz":
            return cast("IO[bytes]", gzip.open(archive, "rb"))
        case ".bz2":
            return bz2.open(archive, "rb")
        case ".xz":
            return lzma.open(archive, "rb")
        case _:
            return open(archive, "rb")


def _open_member(archive: str, member: str) -> IO[bytes]:
    """Open a member of a zip archive.

    An empty `member` opens the only file. Raises SourceMissing.
    """
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

    A byte order mark is skipped.

    Parameters
    ----------
    path : path
        File to read, plain or packed.
    rows : int
        Number of lines in a group.
    comment : bytes
        Byte that starts a comment line, b"" for none.
    first_line : int
        Number of the first line that is yielded. Lines before it are skipped.

    Raises SourceMissing. Raises MalformedInput, with the number of the line, if the file is
    damaged, a line is too long, or a line has a NUL byte, which no text has.
    """
    number = 1
    with open_bytes(path) as file:
        lines = _raw_lines(path, file)
        while group := list(_next_lines(lines, rows)):
            yield from _parse_group(str(path), b"".join(group), number, comment, first_line)
            number += len(group)


def _next_lines(lines: Iterator[bytes], rows: int) -> Iterator[bytes]:
    """Yield the next lines, at most `rows` and fewer if they are long."""
    size = 0
    for line in islice(lines, rows):
        yield line
        size += len(line)
        if size > LONGEST // 2:
            return


def _raw_lines(path: FileName, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the file's lines with their line breaks, without a byte order mark."""
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


def _parse_group(path: str, data: bytes, number: int, comment: bytes, first_line: int) -> Iterator[Lines]:
    """Yield the lines of a group's bytes.

    Nothing is yielded if all are blank or comments.

    number: line number of the first line. comment, first_line: as in `read_lines`.
    """
    if (nul := data.find(b"\0")) >= 0:
        line = number + data.count(b"\n", 0, nul)
        raise MalformedInput(
            f"{path}, line {line}: a NUL byte; this is no text, or text in UTF-16: write it as UTF-8.",
            file=path,
            line=line,
        )

    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(array))
    starts = np.concatenate(([0], ends[:-1] + 1))
    numbers = number + np.arange(len(starts))

    # A line of Windows ends with a carriage return too.
    ends = ends - ((ends > starts) & (array[np.maximum(ends - 1, 0)] == ord("\r")))

    keep = numbers >= first_line
    keep &= np.logical_or.reduceat(array > ord(" "), starts)
    if comment:
        keep &= array[np.minimum(starts, len(array) - 1)] != comment[0]
    if keep.any():
        yield Lines(path, array, numbers[keep], starts[keep], ends[keep])
