"""Open text files that Arrow reads without calling Python.

Arrow reads ahead in its own thread. This thread must not call Python functions. If it did, the
process would abort while the interpreter shuts down. The process would deadlock if the main thread
waits for Arrow.

Arrow itself can open UTF-8 files that are uncompressed or compressed as gz or bz2. All other files
are first copied to a temporary file.
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
from stream_dr.datasets.readers.lines import errors_as_malformed_input, open_decompressed

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
    """Open a file as an Arrow stream of UTF-8 text.

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
    suffix = Path(str(path)).suffix.lower()
    if _is_utf8(encoding) and "!" not in str(path) and suffix not in (".xz", ".zip"):
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


def read_first_bytes_as_utf8(path: FileName, encoding: str, n_bytes: int) -> pa.BufferReader:
    """Return the first bytes of a file as UTF-8 text.

    The bytes are decompressed and converted to UTF-8.

    encoding: encoding of the file's text.
    n_bytes: approximate number of bytes to return.

    Raises the errors of `open_text_for_arrow`.
    """
    with _open_decompressed_as_utf8(path, encoding) as file:
        return pa.BufferReader(file.read(n_bytes))
