"""What a column of prose costs and gains beside other columns: accuracy of LDA on made-up tables of two numbers, a category
and a note of twelve words of 3,000, which tells nothing, or of which two words tell the class, with and without a ridge.

    python -m benchmarks.prose [--rows 500 1000 2000 4000 8000]
"""

import argparse

import numpy as np

import stream_dr

TESTED, BATCH = 3000, 1000
WAYS: dict[str, tuple[dict[str, object], float]] = {
    "without": ({"drop": ["note"]}, 0.0),
    "no ridge": ({}, 0.0),
    "gamma 20": ({}, 20.0),
}
"""Options of the map and `gamma` of LDA, by name in the table."""


def notes(rows: int, seed: int, informative: bool) -> tuple[list[dict[str, object]], np.ndarray]:
    """Rows and their classes (rows,), three of them."""
    random, words = np.random.default_rng(seed), np.arange(1, 3001)
    y, frequency = random.integers(0, 3, rows), 1.0 / (words + 1) / (1.0 / (words + 1)).sum()
    made: list[dict[str, object]] = []
    for label in y.tolist():
        note = random.choice(words, 12, p=frequency)
        if informative and random.random() < 0.7:
            note[:2] = 100 + 20 * label + random.integers(0, 20, 2)
        made.append(
            {
                "a": float(random.normal() + 0.8 * label),
                "b": float(100 + 20 * random.normal() - 15 * (label == 1)),
                "c": "uvw"[int(label + (random.random() < 0.5) * random.integers(0, 3)) % 3],
                "note": " ".join(f"w{word}" for word in note),
            }
        )
    return made, y


def accuracy(options: dict[str, object], gamma: float, rows: int, informative: bool) -> float:
    """Return the accuracy on held-out rows of LDA, learned batch by batch."""
    X, y = notes(rows, 1, informative)
    held_out, expected = notes(TESTED, 2, informative)
    lda = stream_dr.LDA(gamma=gamma, feature_map=stream_dr.table(**options))
    for start in range(0, rows, BATCH):
        lda.partial_fit(X[start : start + BATCH], y[start : start + BATCH])
    return float(np.mean(lda.predict(held_out) == expected))


def main() -> None:
    """Print a line a number of rows and kind of prose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000])
    print(f"{'rows':>5}  {'prose tells':>11}  " + "  ".join(f"{way:>8}" for way in WAYS))
    for rows in parser.parse_args().rows:
        for informative in (False, True):
            figures = [accuracy(*way, rows, informative) for way in WAYS.values()]
            told = "the class" if informative else "nothing"
            print(f"{rows:5}  {told:>11}  " + "  ".join(f"{figure:8.3f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
