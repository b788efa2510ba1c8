"""First bytes of file formats, for messages about bytes that are of another format."""

_FORMATS = {
    b"PAR1": ("parquet", "Parquet"),
    b"ARROW1": ("arrow", "an Arrow file"),
    b"\xff\xff\xff\xff": ("arrow", "an Arrow stream"),
    b"\x93NUMPY": ("npy", "a numpy array (npy)"),
    b"PK\x03\x04": ("npz", "a zip archive, as npz and xlsx are"),
    b"SQLite format 3": ("sqlite", "a SQLite database"),
    b"\x1f\x8b": ("", "packed with gzip"),
    b"BZh": ("", "packed with bzip2"),
    b"\xfd7zXZ": ("", "packed with xz"),
}
"""First bytes → name of the format (as in datasets/sources.py), and words for it."""


def describe_other_format(first_bytes: bytes, expected: str) -> str | None:
    """Return words for the format of some bytes, or None if it is the expected one or unknown.

    first_bytes: at least the first 16 bytes, if there are as many.
    expected: name of the expected format.
    """
    for start, (name, words) in _FORMATS.items():
        if first_bytes.startswith(start) and name != expected:
            return words
    return None
