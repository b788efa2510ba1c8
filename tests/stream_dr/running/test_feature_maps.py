"""Estimators behind a feature map, and projections that are no matrices, in a directory: saved, published, exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr import hashing, nystroem, random_fourier
from stream_dr.models.model import Model
from stream_dr.models.snapshot import state_sha256, write_snapshot_if_needed
from stream_dr.running.advance import ParsedEvent, apply_event_or_rebuild
from stream_dr.running.query import export_projection, transform
from tests.support.batches import dense, opened, put

FOURIER = random_fourier(40, gamma=0.1)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "kernel LDA": ("lda", {"gamma": 1.0, "feature_map": FOURIER}),
    "hashed means": ("class_means", {"feature_map": hashing(32)}),
    "kernel CCIPCA": ("ccipca", {"feature_map": FOURIER}),
    "columns of a map": ("information_gain", {"n_components": 3, "feature_map": hashing(32)}),
    "LDA on landmarks": ("lda", {"gamma": 1.0, "feature_map": nystroem(20, gamma=0.1)}),
    "eigenmaps": ("laplacian_eigenmaps", {"reservoir": 30}),
    "kernel LLE": ("lle", {"reservoir": 30, "feature_map": FOURIER}),
    "label-aware LPP": ("lpp", {"label_aware": True}),
}


def learn(directory: Any, model: Model, *seeds: int) -> None:
    for seed in seeds:
        block = dense(seed)
        (position,) = put(directory, block)
        apply_event_or_rebuild(model, ParsedEvent(position, block), directory)
    assert model.failure is None


@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_back_with_its_state_and_its_published_projection(name: str, tmp_path: Path) -> None:
    with opened(tmp_path, m=CASES[name]) as directory:
        model = directory.model("m")
        learn(directory, model, 0, 1)
        published = model.publish(model.freeze())
        write_snapshot_if_needed(model, model.freeze(), directory.path)
        answered = transform(directory.releases.served(model), dense(9))
        told = export_projection(model)
        assert told.to_safetensors()
        assert told.to_arrow()
        learn(directory, model, 2)
        straight = state_sha256(model.accumulator.freeze())
    with opened(tmp_path) as directory:
        model = directory.model("m")
        assert model.published is not None
        assert model.published.projection.kind == published.projection.kind
        assert np.array_equal(transform(directory.releases.served(model), dense(9)).z, answered.z)
        again = export_projection(model)
        assert again.metadata == told.metadata
        assert {n: a.tobytes() for n, a in again.arrays.items()} == {n: a.tobytes() for n, a in told.arrays.items()}
        apply_event_or_rebuild(model, ParsedEvent(2, dense(2)), directory)
        assert state_sha256(model.accumulator.freeze()) == straight


@pytest.mark.parametrize("name", CASES)
def test_a_second_version_leads_on_from_the_first(name: str, tmp_path: Path) -> None:
    with opened(tmp_path, m=CASES[name]) as directory:
        model = directory.model("m")
        for seed in range(3):
            learn(directory, model, seed)
            model.publish(model.freeze())
        first, last = export_projection(model, 1), export_projection(model)
        assert last.metadata["version"] == 3
        linear = hasattr(model.published.projection, "loadings")  # type: ignore[union-attr]
        assert ("map" in first.arrays) == linear
        assert ("feature_map" in last.metadata) == ("feature_map" in CASES[name][1])
