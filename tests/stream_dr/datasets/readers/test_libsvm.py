"""libsvm lines: labels of every kind, comments, blank lines, indices from 0 and 1; errors name file and line."""

import bz2
import gzip
import lzma
import zipfile
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from stream_dr.datasets.readers.libsvm import read_libsvm
from stream_dr.errors import MalformedInput, SourceMissing


def write(tmp_path, text, name="rows.svm"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def joined(blocks):
    """All rows as one CSR and all labels."""
    blocks = list(blocks)
    width = blocks[-1].features
    X = sp.vstack([sp.csr_matrix((b.X.data, b.X.indices, b.X.indptr), shape=(b.rows, width)) for b in blocks])
    return X.tocsr(), [label for b in blocks for label in b.y.targets_by_row()]


@pytest.mark.parametrize("zero_based", [False, True])
def test_equals_scikit_learn(tmp_path, zero_based):
    X = sp.random(257, 400, density=0.05, random_state=0, format="csr")
    y = np.random.default_rng(0).integers(-1, 3, 257)
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=zero_based)
    reference, labels = load_svmlight_file(str(tmp_path / "a.svm"), n_features=400, zero_based=zero_based)
    found, given = joined(read_libsvm(tmp_path / "a.svm", n_features=400, rows_per_block=50, zero_based=zero_based))
    assert (found != reference).nnz == 0
    assert given == labels.astype(int).tolist()


def test_multilabel_as_scikit_learn_writes_it(tmp_path):
    X = sp.random(40, 30, density=0.2, random_state=1, format="csr")
    Y = (np.random.default_rng(1).random((40, 5)) < 0.4).astype(int)
    dump_svmlight_file(X, Y, str(tmp_path / "m.svm"), zero_based=False, multilabel=True)
    _, found = joined(read_libsvm(tmp_path / "m.svm", rows_per_block=7, target="multilabel"))
    assert [sorted(labels) for labels in found] == [np.flatnonzero(row).tolist() for row in Y]


def test_comments_blank_lines_queries_and_line_ends(tmp_path):
    path = write(tmp_path, "# head\r\n\r\n+1 qid:7 3:0.5 1:2 # note 9:9\r\n   \n-1\n2 \t4:1e-3")
    X, labels = joined(read_libsvm(path))
    assert labels == [1, -1, 2]
    np.testing.assert_array_equal(X.toarray(), [[2, 0, 0.5, 0], [0, 0, 0, 0], [0, 0, 0, 1e-3]])


@pytest.mark.parametrize(
    ("text", "kind", "labels"),
    [
        ("1 1:1\n2 1:1\n", "class", [1, 2]),
        ("1.0 1:1\n2.0 1:1\n", "class", [1, 2]),
        ("ham 1:1\nspam 1:1\n", "class", ["ham", "spam"]),
        ("0.5 1:1\n2 1:1\n", "continuous", [[0.5], [2.0]]),
        ("1,3 1:1\n 1:1\n2 1:1\n", "multilabel", [[1, 3], [], [2]]),
        ("1:1\n2 1:1\n", "multilabel", [[], [2]]),
    ],
)
def test_the_kind_of_targets_is_what_the_first_rows_say(tmp_path, text, kind, labels):
    block = next(read_libsvm(write(tmp_path, text)))
    assert block.y.kind == kind
    assert block.y.targets_by_row() == labels


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 2:x", "'2:x' is not index:value"),
        ("1 3:4 3:5", "index 3 stands twice"),
        ("1 0:3", "index 0 is out of range"),
        ("1 -4:3", "out of range"),
        ("1 5", "'5' is not index:value"),
        ("1 2:3 4", "'4' is not index:value"),
        ("1 2:3: 4:1", "is not index:value"),
        ("1 2:3:4 5", "'2:3:4' is not index:value"),
        ("1 2: 3", "'2:' is not index:value"),
        ("1 2 :3", "'2' is not index:value"),
        ("1 :2 3:4:5", "':2' is not index:value"),
        ("1 4:nan", "must be finite"),
        ("1 4:inf", "must be finite"),
        ("1 99999999999:1", "out of range"),
        ("1 2.5:1", "is not index:value"),
        ("word 2:1", "not a whole number"),
        ("1,2 2:1", "one label is needed"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    path = write(tmp_path, f"1 2:3\n\n# note\n2 1:1\n{line}\n")
    with pytest.raises(MalformedInput, match=said) as caught:
        list(read_libsvm(path, target="class", rows_per_block=10))
    assert caught.value.details["line"] == 5
    assert str(path) in str(caught.value)


def test_a_column_past_the_stated_width_is_named(tmp_path):
    path = write(tmp_path, "1 2:3\n1 7:3\n")
    with pytest.raises(MalformedInput, match=r"line 2.*n_features = 5"):
        list(read_libsvm(path, n_features=5))


def test_packed_files_and_archives(tmp_path):
    text = b"1 1:1\n2 2:1\n"
    with gzip.open(tmp_path / "a.svm.gz", "wb") as file:
        file.write(text)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("in/a.svm", text)
        archive.writestr("in/b.txt", "other")
    for name in ("a.svm.gz", "a.zip!in/a.svm"):
        assert joined(read_libsvm(tmp_path / name))[1] == [1, 2]
    with pytest.raises(SourceMissing, match=r"in/b\.txt"):
        list(read_libsvm(tmp_path / "a.zip"))


PACKED = {
    "gz": (gzip.compress, lambda: zlib.decompressobj(31)),
    "bz2": (bz2.compress, bz2.BZ2Decompressor),
    "xz": (lzma.compress, lzma.LZMADecompressor),
}


@pytest.mark.test_all
@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_file_that_was_cut_names_the_last_whole_line(tmp_path, suffix):
    compress, unpacker = PACKED[suffix]
    values = np.random.default_rng(6).random(90_000)
    cut = compress("".join(f"{i % 3} {i + 1}:{x}\n" for i, x in enumerate(values)).encode())
    cut = cut[: len(cut) // 2]
    whole = unpacker().decompress(cut).count(b"\n")
    with pytest.raises(MalformedInput, match=r"unpacked after line \d+") as caught:
        list(read_libsvm(write(tmp_path, cut, f"a.svm.{suffix}")))
    assert whole - 1_000 < caught.value.details["line"] <= whole  # the unpacker keeps its last buffer to itself


@pytest.mark.test_all
def test_a_packed_file_with_a_wrong_byte_is_said_to_be_damaged(tmp_path):
    text = b"1 1:1\n2 2:1\n" * 4000
    for suffix, (compress, _) in PACKED.items():
        good = compress(text)
        for at in range(20, len(good), max(1, len(good) // 25)):
            path = write(tmp_path, good[:at] + bytes([good[at] ^ 255]) + good[at + 1 :], f"a.svm.{suffix}")
            try:
                rows = sum(block.rows for block in read_libsvm(path))
            except MalformedInput:
                continue
            assert rows == 8000  # a byte that no checksum covers


def test_missing_empty_and_binary_files(tmp_path):
    with pytest.raises(SourceMissing, match="there is no file"):
        list(read_libsvm(tmp_path / "none.svm"))
    assert list(read_libsvm(write(tmp_path, "\n\n# only\n"))) == []
    with pytest.raises(MalformedInput, match="longer than"):
        list(read_libsvm(write(tmp_path, b"1" * (17 << 20), "long")))


def test_a_byte_order_mark_is_no_part_of_the_first_label(tmp_path):
    (block,) = read_libsvm(write(tmp_path, b"\xef\xbb\xbf1 1:0.5\n2 2:1\n1 1:1\n"))
    assert block.y.labels == (1, 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\x89PNG\0\0", "line 3: a NUL byte"),
        (b"1 1:1e300", "line 3: .*1e100"),
        (b"1 0:1", r"line 3: index 0 .*give --zero-based \(zero_based=True\)"),
    ],
)
def test_what_no_row_may_hold_is_named_by_line(tmp_path, line, said):
    with pytest.raises(MalformedInput, match=said):
        list(read_libsvm(write(tmp_path, b"1 1:1\n# a comment\n" + line + b"\n2 1:1\n")))


def test_a_number_that_may_be_another_is_a_word(tmp_path):
    (block,) = read_libsvm(write(tmp_path, b"9007199254740993.0 1:1\n9007199254740992.0 1:1\n"))
    assert block.y.labels == ("9007199254740993.0", "9007199254740992.0")


def test_an_underscore_is_no_digit(tmp_path):
    (tmp_path / "a.svm").write_text("1_0 1:1\n10 1:2\n")
    assert next(read_libsvm(tmp_path / "a.svm")).y.targets_by_row() == ["1_0", "10"]
