"""The files of bodies: what is not ours told apart, nothing left of what failed."""

import os

import pytest

from stream_dr import errors
from stream_dr.failpoints import FailpointReached, failpoints_armed
from stream_dr.log.bodies import BEGIN, BodyReader, create_body_file


@pytest.fixture
def file(tmp_path):
    return create_body_file(tmp_path / "00.bodies")


def read(file, *ranges):
    with BodyReader(lambda first: file) as reader:
        return [reader.read(0, start, size) for start, size in ranges]


def test_what_is_written_is_read(file):
    pieces = [b"first", b"", b"0123456789" * 1000, memoryview(b"end")]
    starts = file.write_and_return_offsets(pieces, BEGIN)
    assert read(file, *((at, len(piece)) for at, piece in zip(starts, pieces, strict=True))) == pieces
    assert starts == [BEGIN, BEGIN + 5, BEGIN + 5, BEGIN + 10_005]
    with pytest.raises(errors.DamagedFile, match=rf"00\.bodies.*ends after {BEGIN + 10_008} bytes; {BEGIN + 10_009}"):
        read(file, (starts[-1], 4))


@pytest.mark.parametrize("place", ["log.bodies_write", "log.bodies_sync"])
@pytest.mark.parametrize(("action", "error"), [("raise", FailpointReached), ("enospc", errors.InsufficientStorage)])
def test_a_write_that_fails_leaves_the_file_as_it_was(file, place, action, error):
    (first,) = file.write_and_return_offsets([b"first"], BEGIN)
    before = file.path.read_bytes()
    with failpoints_armed(f"{place}={action}"), pytest.raises(error):
        file.write_and_return_offsets([b"second", b"third"], first + 5)
    assert file.path.read_bytes() == before
    (again,) = file.write_and_return_offsets([b"again"], first + 5)
    assert read(file, (first, 5), (again, 5)) == [b"first", b"again"]


def test_what_is_past_the_end_is_cut_and_what_is_short_is_said(file):
    (at,) = file.write_and_return_offsets([b"0123456789"], BEGIN)
    file.check(at + 4)
    assert file.path.stat().st_size == at + 10
    for _ in range(2):
        file.check(at + 4, cut_past_end=True)
        assert file.path.read_bytes()[at:] == b"0123"
    with pytest.raises(errors.DamagedFile, match=r"00\.bodies"):
        file.check(at + 5, cut_past_end=True)


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_erased_ranges_are_zeros_and_nothing_else_is(file, size):
    (at,) = file.write_and_return_offsets([b"x" * size], BEGIN)
    file.overwrite_with_zeros(at + 1, size - 3)
    file.overwrite_with_zeros(at + size - 1, 0)
    assert file.path.read_bytes()[at:] == b"x" + bytes(size - 3) + b"xx"


def test_foreign_damaged_and_missing_are_told_apart(file, tmp_path):
    other = create_body_file(tmp_path / "01.bodies")
    good = file.path.read_bytes()
    for content, error, words in (
        (other.path.read_bytes(), errors.ForeignFile, "another log"),
        (b"this is a letter, not a file of bodies", errors.ForeignFile, "not written by stream_dr"),
        (good[:20], errors.DamagedFile, "ends after 20 bytes"),
        (b"", errors.DamagedFile, "ends after 0 bytes"),
        (None, errors.DamagedFile, "missing"),
    ):
        if content is None:
            os.unlink(file.path)
        else:
            file.path.write_bytes(content)
        for use in (
            lambda: file.check(BEGIN),
            lambda: file.write_and_return_offsets([b"x"], BEGIN),
            lambda: read(file, (BEGIN, 0)),
        ):
            with pytest.raises(error, match=f"00.bodies.*{words}"):
                use()
        assert content is None or file.path.read_bytes() == content
