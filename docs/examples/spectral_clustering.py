"""Spectral clustering of a stream: Laplacian eigenmaps on a reservoir, then k-means on the places.

The lecture's recipe: the first eigenvectors of a graph's Laplacian, rows clustered by k-means. Here the rows come in batches
and are not kept; the eigenvectors are those of a uniform sample's graph, and every row, sampled or not, is placed by
Nyström's formula. For k clusters, k − 1 coordinates are enough: the constant eigenvector is left out.

The graph must hang together: where it falls into parts, the parts are clusters already and the coordinates only tell rows of
one part from each other. Then more neighbours are taken until there is one part.

Two half moons, which no straight cut separates:

    python docs/examples/spectral_clustering.py
"""

from collections.abc import Iterable

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from stream_dr import LaplacianEigenmaps


def spectral_clusters(
    batches: Iterable[np.ndarray], clusters: int, sample: int = 500, n_neighbors: int = 20
) -> tuple[LaplacianEigenmaps, KMeans]:
    """A fitted embedding and k-means from batches of rows (rows, features).

    The cluster of any row is kmeans.predict(embedding.transform(X)).
    """
    embedding = LaplacianEigenmaps(n_components=clusters - 1, n_neighbors=n_neighbors, reservoir=sample)
    for rows in batches:
        embedding.partial_fit(rows)
    while embedding.parts_ > 1:
        embedding.set_params(n_neighbors=2 * embedding.n_neighbors)
    places = embedding.transform(embedding.state_.kept)
    return embedding, KMeans(clusters, n_init=10, random_state=0).fit(places)


def main() -> None:
    """Stream 20,000 points in batches of 1,000; print how well the two moons are found, with and without the embedding."""
    X, moon = make_moons(20_000, noise=0.08, random_state=0)
    embedding, kmeans = spectral_clusters((X[i : i + 1000] for i in range(0, len(X), 1000)), clusters=2)
    found = kmeans.predict(embedding.transform(X))
    straight = KMeans(2, n_init=10, random_state=0).fit_predict(X)
    print(f"adjusted Rand index, all {len(X):,} rows, {len(embedding.state_.numbers)} of them sampled")
    print(f"  k-means on the rows          {adjusted_rand_score(moon, straight):.3f}")
    print(f"  k-means on the embedding     {adjusted_rand_score(moon, found):.3f}")


if __name__ == "__main__":
    main()
