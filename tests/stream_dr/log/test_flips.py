"""Every byte that is not what was written is found and its file named, or changes nothing that is read."""

import random
import sqlite3

import pytest

from stream_dr import errors
from stream_dr.failpoints import FailpointReached, failpoints_armed
from stream_dr.log.ids import id_hashes
from stream_dr.log.log import Log
from tests.support.logs import draft

KEPT = [f"k{p}" for p in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of bodies, with events of every kind, bodies in rows and beside them."""
    path = tmp_path_factory.mktemp("flips") / "log"
    with Log(path, max_file_bytes=2000) as log:
        for p in range(12):
            kind = "rows" if p % 3 else "reference"
            body = random.Random(p).randbytes(700)
            schema = f'{{"n": {p}}}' if p % 5 == 0 else None
            log.append([draft(kind, body, p, key=KEPT[p], schema=schema)._replace(ids=id_hashes([KEPT[p], "all"]))])
        log.append([draft("unlearn", b'{"rows": {"1": null}}', 0)])
        with failpoints_armed("log.erased=raise"), pytest.raises(FailpointReached):  # so that the erasure stays listed
            log.rewrite(8, b"what is left", 1)
    return path


@pytest.fixture(autouse=True)
def _restored(folder):
    """The folder as it was, after each test."""
    good = {file: file.read_bytes() for file in folder.iterdir()}
    yield
    for file in folder.iterdir():
        file.unlink()
    for file, content in good.items():
        file.write_bytes(content)


def everything(path):
    """All that a log says."""
    with Log(path, writable=False) as log:
        found = (log.last, log.first, log.rows_appended, log.read(-1, limit=1000), log.schema_changes())
        keys = [(log.find_key(key), log.positions_with_ids(id_hashes([key]))) for key in KEPT]
        return (
            *found,
            keys,
            log.read_events_of_kind("unlearn", 99),
            log.position_before_newest(10),
            log.verify(),
        )


def outcome(path):
    """All that a log says, or the error by which it is found damaged."""
    try:
        with Log(path, writable=False) as log:
            log.verify()
    except errors.StreamDRError as e:
        return e
    return everything(path)


@pytest.mark.every_run
@pytest.mark.parametrize("name", [f"{1:020d}.bodies", f"{5:020d}.bodies", "index.sqlite"])
def test_a_flipped_byte_is_found_or_changes_nothing(folder, name):
    whole, path = everything(folder), folder / name
    good = path.read_bytes()
    found = 0
    chance = random.Random(name)
    used = [i for i, byte in enumerate(good) if byte or i < 200]
    for at in chance.sample(used, min(len(used), 250 if name[0] == "0" else 700)):
        bad = bytearray(good)
        bad[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        said = outcome(folder)
        if isinstance(said, errors.StreamDRError):
            found += 1
            assert name.split(".")[0] in str(said), (at, said)
        else:
            assert said == whole, at
    path.write_bytes(good)
    assert found > 100
    assert everything(folder) == whole


@pytest.mark.parametrize(
    "change",
    [
        "position=99",
        "kind='reference'",
        "key='k8'",
        "key=NULL",
        "fingerprint='ab'",
        "rows=rows+1",
        "schema='{}'",
        "schema=NULL",
        "checksum=fingerprint",
        "total=total+1",
        "file=file+1",
        "file=NULL",
        "start=start+1",
        "start=NULL",
        "size=size-1",
        "digest=digest+1",
        "body=x'00'",
    ],
)
def test_a_changed_field_of_an_event_is_found(folder, change):
    path = folder / "index.sqlite"
    position = 0 if change.startswith("body") else 5  # 0, a reference, lies in its row, 5 beside it
    with sqlite3.connect(path) as connection:
        assert connection.execute(f"UPDATE events SET {change} WHERE position={position}").rowcount == 1
    connection.close()
    assert isinstance(outcome(folder), errors.DamagedFile)
    with pytest.raises(errors.DamagedFile, match=path.name), Log(folder, writable=False) as log:
        log.read(-1, limit=1000)


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("keys", "fingerprint='ab'"),
        ("keys", "rows=rows+1"),
        ("keys", "position=position+1"),
        ("keys", "key='another'"),
        ("keys", "number=number+100"),
        ("schemas", "schema='{}'"),
        ("schemas", "position=99"),
        ("ids", "last=last+1"),
        ("ids", "hashes=positions"),
        ("files", "identity=x'00'"),
        ("files", "end=end+1"),
        ("files", "first=99"),
        ("files", "digest=0"),
        ("erasures", "start=start+1"),
    ],
)
def test_a_changed_field_of_any_other_row_is_found(folder, table, change):
    path = folder / "index.sqlite"
    with sqlite3.connect(path) as connection:
        row = "id=1" if table == "erasures" else f"digest=(SELECT MIN(digest) FROM {table})"
        assert connection.execute(f"UPDATE {table} SET {change} WHERE {row}").rowcount == 1
    connection.close()
    said = outcome(folder)
    assert isinstance(said, errors.StreamDRError)
    assert path.name in str(said)
