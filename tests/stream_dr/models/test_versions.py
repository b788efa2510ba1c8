"""Versions: the last ones by number, older ones out of memory, nothing held back from whoever still reads them."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.models import versions
from stream_dr.models.versions import Published, Versions
from stream_dr.projection import Linear
from tests.support.batches import dense, opened, put


def published(number: int, features: int = 40_000) -> Published:
    """A projection of three components, told from others by its number."""
    rng = np.random.default_rng(number)
    return Published(
        number, number, Linear(rng.random(features), rng.random((features, 3)), np.array([3.0, 2.0, 1.0]), "exact")
    )


def anonymous() -> int:
    """Bytes of this process's anonymous memory."""
    told = Path("/proc/self/status").read_text()
    return int(told.split("RssAnon:")[1].split()[0]) * 1024


def test_every_kept_version_answers_as_when_it_was_published(tmp_path: Path) -> None:
    kept = Versions(32, tmp_path)
    for number in range(1, 41):
        kept.add(published(number))
    assert kept.numbers == list(range(9, 41))
    assert kept.find(8) is None
    for number in kept.numbers:
        found, wanted = kept.find(number).projection, published(number).projection
        for name in ("mean", "loadings", "eigenvalues"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.test_all
def test_older_versions_take_no_anonymous_memory(tmp_path: Path) -> None:
    """In a process of its own: what other tests have freed would be used again."""
    code = (
        "import sys, pathlib\n"
        "from stream_dr.models.versions import Versions\n"
        "from tests.stream_dr.models.test_versions import anonymous, published\n"
        "kept = Versions(32, pathlib.Path(sys.argv[1]) if sys.argv[1] else None)\n"
        "before = anonymous()\n"
        "for number in range(32): kept.add(published(number, 47_000))\n"
        "print((anonymous() - before) / published(0, 47_000).projection.loadings.nbytes)\n"
    )

    def grown(folder: str) -> float:
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert grown(str(tmp_path)) < 8
    assert grown("") > 20


@pytest.mark.test_all
def test_descriptors_are_few_and_given_back(tmp_path: Path) -> None:
    gc.collect()
    kept, before = Versions(32, tmp_path), len(os.listdir("/proc/self/fd"))
    for number in range(200):
        kept.add(published(number))
    assert len(os.listdir("/proc/self/fd")) - before <= 6
    held = kept.find(kept.numbers[0]).projection.loadings
    expected = held.copy()
    del kept
    gc.collect()
    np.testing.assert_array_equal(held, expected)
    del held
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_projection_larger_than_a_file_has_a_longer_one(tmp_path: Path) -> None:
    kept = Versions(4, tmp_path, file_bytes=100_000)
    for number in range(6):
        kept.add(published(number))
    np.testing.assert_array_equal(kept.find(2).projection.loadings, published(2).projection.loadings)  # type: ignore[attr-defined]


def test_without_room_for_a_file_the_older_version_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    kept = Versions(8, tmp_path)
    for number in range(3):
        kept.add(published(number))
    monkeypatch.setattr(versions.os, "pwrite", full)
    kept.add(published(3))
    assert kept.numbers == [0, 2, 3]
    assert "No space left" in caplog.text


def test_a_model_keeps_so_many_and_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        model = directory.model("m")
        put(directory, dense(0, 40))
        model.accumulator.add(dense(0, 40))
        for _ in range(40):
            model.publish(model.freeze())
        assert model.versions.numbers == list(range(9, 41))
        assert model.version(9).version == 9
        with pytest.raises(errors.UnknownVersion, match=r"keeps versions \[9\] … \[40\]; 8 is not there"):
            model.version(8)
        monkeypatch.setattr(versions, "MOST_BYTES", 1)
        model.publish(model.freeze())
        assert model.versions.numbers == [40, 41]
