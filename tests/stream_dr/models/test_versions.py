"""Versions: the last ones by number, older ones dropped past a number and past bytes."""

from pathlib import Path

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.models.versions import Published, Versions
from stream_dr.projection import Linear
from tests.support.batches import dense, opened, put


def published(number: int, features: int = 40_000) -> Published:
    """A projection of three components, told from others by its number."""
    rng = np.random.default_rng(number)
    return Published(
        number, number, Linear(rng.random(features), rng.random((features, 3)), np.array([3.0, 2.0, 1.0]), "exact")
    )


def test_every_kept_version_answers_as_when_it_was_published() -> None:
    kept = Versions(32)
    for number in range(1, 41):
        kept.add(published(number))
    assert kept.numbers == list(range(9, 41))
    assert kept.find(8) is None
    for number in kept.numbers:
        found, wanted = kept.find(number).projection, published(number).projection
        for name in ("mean", "loadings", "eigenvalues"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_older_versions_are_dropped_past_their_bytes() -> None:
    versions = Versions(32, 4_500_000)
    for number in range(8):
        versions.add(published(number))
    assert versions.numbers == [5, 6, 7]
    tight = Versions(32, 1)
    for number in range(8):
        tight.add(published(number))
    assert tight.numbers == [6, 7]


def test_a_model_keeps_the_newest_versions(tmp_path: Path) -> None:
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
