"""Open text files so that Arrow reads them without calling Python.

Arrow reads ahead in one of its threads. If this thread calls Python while the interpreter shuts
down, the process is aborted. If it calls Python while the main thread waits for it, both wait
forever. So plain, gz and bz2 files in UTF-8 are opened by Arrow itself.
"""

import codecs
import io
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from stream_dr.aliases import FileName
from stream_dr.datasets.readers.lines import open_bytes
from stream_dr.errors import MalformedInput

_COMPRESSION = {".gz": "gzip", ".bz2": "bz2"}
"""Arrow's name of each compression that Arrow can unpack, by suffix of the file."""


class _Utf8(io.RawIOBase):
    """Binary stream of a file's text, encoded as UTF-8."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._rest = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the stream.

        size: maximum number of bytes. If negative, all remaining bytes are returned.
        """
        if size < 0:
            return self._rest + self._text.read().encode()
        data = self._rest or self._text.read(size).encode()
        self._rest = data[size:]
        return data[:size]


@contextmanager
def _open_as_utf8(path: FileName, encoding: str) -> Iterator[io.RawIOBase]:
    """Open a file as an unpacked binary stream in UTF-8.

    encoding: encoding of the file.

    Raises MalformedInput if the file cannot be unpacked.
    """
    try:
        with open_bytes(path) as file:
            if _is_utf8(encoding):
                yield file  # type: ignore[misc]
            else:
                with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
                    yield _Utf8(text)
    except (zlib.error, zipfile.BadZipFile) as e:
        raise MalformedInput(f"{path} cannot be unpacked ({e}).", file=str(path)) from e


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "utf-8"


@contextmanager
def open_for_arrow(path: FileName, encoding: str = "utf-8") -> Iterator[pa.NativeFile]:
    """Open a file for Arrow as an unpacked stream in UTF-8.

    Xz files, members of zip archives and files in other encodings are first copied to a temporary
    file. The temporary file has no name, so the system deletes it when it is closed.

    Raises
    ------
    SourceMissing
        If there is no such file.
    MalformedInput, OSError, EOFError, UnicodeError
        If the file cannot be unpacked or decoded.
    """
    suffix = Path(str(path)).suffix.lower()
    if _is_utf8(encoding) and "!" not in str(path) and suffix not in (".xz", ".zip"):
        open_bytes(path).close()
        with pa.input_stream(str(path), compression=_COMPRESSION.get(suffix)) as stream:
            yield stream
        return

    with _open_as_utf8(path, encoding) as file, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(file, copy)  # type: ignore[misc]
        copy.flush()
        stream = pa.OSFile(copy.name)
    with stream:
        yield stream


def read_head(path: FileName, encoding: str, size: int) -> pa.BufferReader:
    """Return about the first bytes of a file, unpacked and in UTF-8.

    size: number of bytes.

    Raises the errors of `open_for_arrow`.
    """
    with _open_as_utf8(path, encoding) as file:
        return pa.BufferReader(file.read(size))
