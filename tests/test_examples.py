"""The examples of docs/examples do what their texts say."""

import importlib.util
import pathlib

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

EXAMPLES = pathlib.Path(__file__).parent.parent / "docs" / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.test_all
@pytest.mark.parametrize(("seed", "n_neighbors"), [(0, 20), (1, 20), (2, 5)], ids=["0", "1", "few neighbours"])
def test_spectral_clustering_finds_the_moons(seed, n_neighbors):
    X, moon = make_moons(4000, noise=0.07, random_state=seed)
    batches = np.array_split(X, 8)
    embedding, kmeans = example("spectral_clustering").spectral_clusters(batches, 2, 600, n_neighbors)
    assert embedding.parts_ == 1
    assert adjusted_rand_score(moon, kmeans.predict(embedding.transform(X))) > 0.95


@pytest.mark.test_all
def test_spectral_clustering_as_it_is_printed(capsys):
    example("spectral_clustering").main()
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert float(last.split()[-1]) > 0.99
