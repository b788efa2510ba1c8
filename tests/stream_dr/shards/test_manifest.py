"""A manifest comes back as it was written; what is none is said, and which file it is."""

import pytest

from stream_dr import errors
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.folder import Manifest, ShardEntry, read_manifest, write_manifest


@pytest.mark.parametrize("labels", [(), ("b", "é"), (3, -1), (True, False)])
@pytest.mark.parametrize("width", [None, 47_236])
def test_it_comes_back_as_it_was(tmp_path, labels, width):
    entries = (
        ShardEntry("part-0.arrow", 30, (10, 20), 999, "ab" * 32),
        ShardEntry("part-1.arrow", 0, (), 7, "cd" * 32),
    )
    manifest = Manifest(30, width, "class" if labels else None, labels, entries)
    read = read_manifest(write_manifest(tmp_path, manifest))
    assert read == manifest
    assert [type(label) for label in read.labels] == [type(label) for label in labels]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", errors.DamagedFile),
        ("{}", errors.ForeignFile),
        ('{"stream_dr": "shards", "format": 9}', errors.UnknownFormat),
        ('{"stream_dr": "shards", "format": 1}', errors.DamagedFile),
        ('{"stream_dr": "shards", "format": 1, "shards": [{}]}', errors.DamagedFile),
    ],
)
def test_a_manifest_that_is_none_is_said(tmp_path, text, error):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(error, match=r"manifest\.json"):
        open_dataset(tmp_path)
