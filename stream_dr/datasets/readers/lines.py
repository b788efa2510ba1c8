"""Lines: read text files in groups of numbered lines.

A group has about 1,000 lines. All readers of text formats use this module. Files compressed with
gzip, bzip2 or xz are recognised by their suffix. The path of a file in a zip archive is
`archive.zip!member`, or `archive.zip` if the archive has only one file.

One group of lines is in memory at a time. A group has fewer lines if the lines are long, and a
line of more than 16 MiB is an error. The memory therefore does not grow with the size of the file.

`LabelParser` converts the label fields of text formats to Targets. All rows of a file have one
kind of targets. If the caller does not declare the kind, the label fields of the first rows
decide. The first rule that applies is used:

1. If some field is empty or has a comma, rows have several labels.
2. If some field is a word or all fields are whole numbers, rows have one label.
3. In all other cases the targets are numbers.

If a later row has another kind of targets, an error is raised that names the line.

`open_text_for_arrow` opens a file for the readers of Arrow, which do not call Python. Arrow reads
ahead in its own thread. This thread must not call Python functions. If it did, the process would
abort while the interpreter shuts down. The process would deadlock if the main thread waits for
Arrow.

Arrow itself can open UTF-8 files that are uncompressed or compressed as gz or bz2. All other files
are first copied to a temporary file.
"""

import bz2
import codecs
import gzip
import io
import lzma
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, NoReturn, cast

import numpy as np
import pyarrow as pa

from stream_dr.aliases import FileName
from stream_dr.batch.matrix import LARGEST_EXACT_INTEGER
from stream_dr.batch.targets import Targets, class_targets, continuous_targets, multilabel_targets
from stream_dr.errors import InvalidTargets, MalformedInput, SourceMissing, StreamDRError, did_you_mean


class LabelParser:
    """Parser of the label fields of a file.

    target: kind of the targets ("class", "multilabel" or "continuous"). "auto": the first call of
        `parse` decides.
    """

    def __init__(self, target: str = "auto") -> None:
        self._kind = None if target == "auto" else target
        self._numeric: bool | None = None

    def parse(self, label_fields: Sequence[str], lines: "Lines") -> Targets:
        """Return the targets of some rows.

        label_fields: label field of each row.
        lines: line of each row, for error messages.

        Raises MalformedInput, which names the line, if a field does not have the file's kind of
        targets.
        """
        # If the caller has not set the kind of targets, the first rows of the file decide.
        if self._kind is None:
            self._kind = _infer_target_kind(label_fields)
        # `parse` converts one field, and `build` makes Targets of all converted fields.
        parse, build = {
            "class": (self._parse_label, class_targets),
            "multilabel": (self._parse_labels, multilabel_targets),
            "continuous": (_parse_number, continuous_targets),
        }[self._kind]

        targets: list[Any] = []
        try:
            for field in label_fields:
                targets.append(parse(field))
        # The first field that was not converted has the error.
        except InvalidTargets as e:
            lines.fail(len(targets), str(e))
        return build(targets)

    def _parse_labels(self, field: str) -> list[str | int]:
        return [self._parse_label(part) for part in field.split(",") if part]

    def _parse_label(self, field: str) -> str | int:
        """Return the label in a field.

        The label is an int if the file's labels are whole numbers. The first label of the file
        decides this. Raises InvalidTargets if the field is not one label of this type.
        """
        if not field or "," in field:
            message = f"label {field!r} where one label is needed; give target=multilabel for several labels a row."
            raise InvalidTargets(message)

        # `_numeric` is True if labels are whole numbers, and None before the first label.
        number = _parse_whole_number(field)
        if self._numeric is None:
            self._numeric = number is not None
        if not self._numeric:
            return field
        if number is None:
            message = (
                f"label {field!r} is not a whole number, as the first label was; give target=continuous for numbers."
            )
            raise InvalidTargets(message)
        return number


def _parse_number(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise InvalidTargets(f"target {field!r} is not a number.") from None


def _parse_whole_number(field: str) -> int | None:
    """Return the integer that a field of text is, or None.

    "3", "3.0" and "3e0" are the integer 3. Integers of 2^53 or more must be written without a point
    or exponent, because such a number may have been rounded. Otherwise, the result is None.
    """
    # Python parses 1_000 as a number. In a file it is a word.
    if "_" in field:
        return None
    with suppress(ValueError):
        return int(field)
    with suppress(ValueError):
        number = float(field)
        if number.is_integer() and abs(number) < LARGEST_EXACT_INTEGER:
            return int(number)
    return None


def _infer_target_kind(label_fields: Sequence[str]) -> Literal["class", "multilabel", "continuous"]:
    """Return the kind of targets of a file.

    label_fields: label fields of the first rows.
    """
    if any(not field or "," in field for field in label_fields):
        return "multilabel"
    try:
        numbers = [float(field) for field in label_fields]
    except ValueError:
        return "class"
    if all(number.is_integer() for number in numbers):
        return "class"
    return "continuous"


BLOCK_ROWS = 1_000
"""Default number of rows in a block."""

LONGEST = 16 << 20
"""Maximum number of bytes in a line, and approximate maximum in a group of lines.

A group of lines is read at once. Its parsed rows take about forty times as much memory.
"""

MARK = b"\xef\xbb\xbf"
"""Byte order mark of UTF-8, which some editors write at the start of a file."""

PACKED = (".gz", ".bz2", ".xz", ".zip")
"""Suffixes of compressed files."""


class Lines(NamedTuple):
    """Lines of a part of a file. Blank lines and comments are not among them.

    Attributes
    ----------
    path : str
        Path of the file.
    data : ndarray (bytes,) uint8
        Bytes of the part, read-only. They contain the blank lines and comments, too.
    numbers : ndarray (lines,)
        Number of each line in the file, from 1.
    starts : ndarray (lines,)
        Offset in `data` at which each line starts.
    ends : ndarray (lines,)
        Offset in `data` at which each line ends, before its line break.
    """

    path: str
    data: np.ndarray
    numbers: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def rows(self) -> int:
        """Number of lines, each of which is one row."""
        return len(self.numbers)

    def text(self, line_index: int) -> str:
        """Return line `line_index` as a string.

        The lines are counted from 0 among the lines of this object.
        """
        line = self.data[self.starts[line_index] : self.ends[line_index]]
        return line.tobytes().decode("utf-8", "replace")

    def fail(self, line_index: int, message: str) -> NoReturn:
        """Raise MalformedInput for line `line_index`.

        The lines are counted from 0 among the lines of this object. The error names the file and
        the number of the line in the file.
        """
        raise_at_line(self.path, int(self.numbers[line_index]), message)


def raise_at_line(path: FileName, line: int, message: str, **details: int | None) -> NoReturn:
    """Raise MalformedInput for a line of a file.

    details: more details of the error.
    """
    raise MalformedInput(f"{path}, line {line}: {message}", file=str(path), line=line, **details)


def check_file_exists(path: FileName) -> None:
    """Raise SourceMissing if a file does not exist.

    path: path of the file, archive.zip!member or FILE!TABLE. Only the part before "!" is looked up.
    """
    file = str(path).partition("!")[0]
    if not Path(file).is_file():
        raise SourceMissing(f"there is no file {file}; give the path of a file that is there.", file=file)


@contextmanager
def errors_as_malformed_input(path: FileName, fault: str, *error_types: type[Exception]) -> Iterator[None]:
    """Replace errors of other packages by MalformedInput.

    path: path of the file, for the error message.
    fault: fault of the file, such as "cannot be read", for the error message.
    error_types: types of the errors to replace. Our own errors are not replaced.
    """
    try:
        yield
    except StreamDRError:
        raise
    except error_types as e:
        raise MalformedInput(f"{path} {fault} ({e}).", file=str(path)) from e


def open_decompressed(path: FileName) -> IO[bytes]:
    """Open a file as a stream of decompressed bytes.

    path: path of the file, or archive.zip!member.

    Raises SourceMissing if the file or the member does not exist.
    """
    check_file_exists(path)
    archive, _, member = str(path).partition("!")
    # A .npz file is a zip archive, too. Without a member, the archive itself is opened.
    if archive.lower().endswith(".zip") or (member and archive.lower().endswith(".npz")):
        return _open_zip_member(archive, member)

    match Path(archive).suffix.lower():
        case ".gz":
            return cast("IO[bytes]", gzip.open(archive, "rb"))
        case ".bz2":
            return bz2.open(archive, "rb")
        case ".xz":
            return lzma.open(archive, "rb")
        case _:
            return open(archive, "rb")


def _open_zip_member(archive: str, member: str) -> IO[bytes]:
    """Open a member of a zip archive as decompressed bytes.

    archive: path of the archive.
    member: name of the member. "" means the only file of the archive.

    Raises SourceMissing if the member does not exist.
    """
    packed = zipfile.ZipFile(archive)
    files = [info.filename for info in packed.infolist() if not info.is_dir()]
    # Without a name, the only file of the archive is meant.
    if not member and len(files) == 1:
        member = files[0]
    if member not in files:
        packed.close()
        meant = did_you_mean(member, files)
        raise SourceMissing(f"{archive} has no file {member!r}{meant}; write {archive}!NAME with one of {files[:10]}.")
    return packed.open(member)


def read_line_groups(
    path: FileName, lines_per_group: int = BLOCK_ROWS, comment_byte: bytes = b"#", first_line: int = 1
) -> Iterator[Lines]:
    """Yield the lines of a file, many at a time.

    Blank lines, comment lines and a byte order mark are skipped.

    Parameters
    ----------
    path : path
        File to read, which may be compressed (.gz, .bz2, .xz, archive.zip!member).
    lines_per_group : int
        Maximum number of lines in one Lines object. Skipped lines count.
    comment_byte : bytes
        Byte that starts a comment line. b"" means that there are no comments.
    first_line : int
        Number of the first line to yield. Earlier lines are skipped.

    Raises SourceMissing. Raises MalformedInput, which names the line, if the file is damaged or a
    line is too long or has a NUL byte.
    """
    number = 1
    with open_decompressed(path) as file:
        lines = read_raw_lines(path, file)
        while group := list(_take_lines_until_full(lines, lines_per_group)):
            yield from _locate_lines_in_bytes(str(path), b"".join(group), number, comment_byte, first_line)
            number += len(group)


def _take_lines_until_full(lines: Iterator[bytes], max_lines: int) -> Iterator[bytes]:
    """Yield the next lines that are to be parsed together.

    max_lines: maximum number of lines. Fewer lines are yielded if the lines are long.
    """
    size = 0
    for line in islice(lines, max_lines):
        yield line
        size += len(line)
        if size > LONGEST // 2:
            return


def read_raw_lines(path: FileName, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file as bytes.

    The lines include their line breaks. A byte order mark is removed. Raises MalformedInput if the
    file cannot be decompressed or a line is too long.
    """
    # Read one byte more than allowed, to recognise a line that is too long. For this line,
    # `raise_at_line` raises MalformedInput. MARK is the byte order mark.
    number = 0
    try:
        while line := file.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                raise_at_line(path, number, f"longer than {LONGEST} bytes; is this a text file?")
            if number == 1:
                line = line.removeprefix(MARK)
            yield line

    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as e:
        message = f"{path}: cannot be unpacked after line {number} ({e})."
        raise MalformedInput(message, file=str(path), line=number) from e


def _locate_lines_in_bytes(
    path: str, data: bytes, data_line_number: int, comment_byte: bytes, skip_before_line: int
) -> Iterator[Lines]:
    """Yield the lines in `data` as one Lines object.

    Blank lines and comments are left out. Nothing is yielded if no line remains. Raises
    MalformedInput if a line has a NUL byte.

    path: path of the file, for the error message.
    data: bytes of some consecutive lines of the file.
    data_line_number: number in the file of the first line in `data`, from 1.
    comment_byte: byte that starts a comment line. b"" means that there are no comments.
    skip_before_line: number in the file of the first line to yield. Earlier lines are left out.
    """
    if (nul := data.find(b"\0")) >= 0:
        line = data_line_number + data.count(b"\n", 0, nul)
        raise_at_line(path, line, "a NUL byte; this is no text, or text in UTF-16: write it as UTF-8.")

    # Find the start and the end of each line.
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == ord("\n"))
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(array))
    starts = np.concatenate(([0], ends[:-1] + 1))
    numbers = data_line_number + np.arange(len(starts))

    # Files from Windows have a carriage return before the line break. Remove it from the line.
    returns = array[np.maximum(ends - 1, 0)] == ord("\r")
    ends = ends - ((ends > starts) & returns)

    # Leave out early lines, lines of blanks (no byte above " "), and comments.
    keep = numbers >= skip_before_line
    keep &= np.logical_or.reduceat(array > ord(" "), starts)
    if comment_byte:
        keep &= array[starts] != comment_byte[0]
    if keep.any():
        yield Lines(path, array, numbers[keep], starts[keep], ends[keep])


_COMPRESSION = {".gz": "gzip", ".bz2": "bz2"}
"""Suffix of a compressed file → Arrow's name of the compression."""


class _Utf8EncodedStream(io.RawIOBase):
    """Binary stream that encodes a text stream as UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._rest = b""

    def readable(self) -> bool:
        """Return True, because the stream can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the stream.

        size: maximum number of bytes. A negative size means all remaining bytes.
        """
        if size < 0:
            return self._rest + self._text.read().encode()
        data = self._rest or self._text.read(size).encode()
        self._rest = data[size:]
        return data[:size]


@contextmanager
def _open_decompressed_as_utf8(path: FileName, encoding: str) -> Iterator[io.RawIOBase]:
    """Open a file as a binary stream of UTF-8 text.

    The stream decompresses the file and converts its text to UTF-8.

    encoding: encoding of the file's text.

    Raises MalformedInput if the file cannot be decompressed.
    """
    refuse_damaged = errors_as_malformed_input(path, "cannot be unpacked", zlib.error, zipfile.BadZipFile)
    with refuse_damaged, open_decompressed(path) as file:
        if _is_utf8(encoding):
            yield file  # type: ignore[misc]
        else:
            with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
                yield _Utf8EncodedStream(text)


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


@contextmanager
def open_text_for_arrow(path: FileName, encoding: str = "utf-8") -> Iterator[pa.NativeFile]:
    """Return a context manager that opens a file as an Arrow stream of UTF-8 text.

    The text is decompressed and converted to UTF-8. Arrow cannot open xz files, members of zip
    archives, and files in other encodings than UTF-8. These files are first copied to a temporary
    file, which is deleted when it is closed.

    encoding: encoding of the file's text.

    Raises
    ------
    SourceMissing
        If there is no such file.
    MalformedInput, OSError, EOFError, UnicodeError
        If the file cannot be decompressed or decoded.
    """
    # The path of a member of a zip archive is archive.zip!member.
    suffix = Path(str(path)).suffix.lower()
    if _is_utf8(encoding) and "!" not in str(path) and suffix not in (".xz", ".zip"):
        # Opened and closed only to raise SourceMissing if there is no such file.
        open_decompressed(path).close()
        with pa.input_stream(str(path), compression=_COMPRESSION.get(suffix)) as stream:
            yield stream
        return

    with _open_decompressed_as_utf8(path, encoding) as file, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(file, copy)  # type: ignore[misc]
        copy.flush()
        stream = pa.OSFile(copy.name)
    with stream:
        yield stream


def read_first_text(path: FileName, encoding: str, n_bytes: int) -> pa.BufferReader:
    """Return the first bytes of a file as UTF-8 text.

    The bytes are decompressed and converted to UTF-8.

    encoding: encoding of the file's text.
    n_bytes: approximate number of bytes to return.

    Raises the errors of `open_text_for_arrow`.
    """
    with _open_decompressed_as_utf8(path, encoding) as file:
        return pa.BufferReader(file.read(n_bytes))
