"""Drawing: matplotlib, only where a script is asked for pictures (`pip install 'stream-dr[bench]'`).

Numbers that are drawn are also written as CSV, under the picture's name.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np


def figure(rows: int, columns: int, width: float = 3.4, height: float = 3.0) -> tuple[Any, Any]:
    """A figure and its axes (rows, columns), drawn without a screen."""
    try:
        import matplotlib
    except ImportError as e:
        raise SystemExit("pictures need matplotlib: pip install 'stream-dr[bench]'") from e
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)


def save(picture: Any, folder: str, name: str) -> None:
    """Write the figure as folder/name.png, in 64 colours: a third of the size."""
    from PIL import Image  # comes with matplotlib

    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{name}.png"
    picture.tight_layout()
    drawn = BytesIO()
    picture.savefig(drawn, dpi=90)
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)
    print(f"drawn: {path}")


def numbered_values(results: Mapping[str, Mapping[str, np.ndarray]]) -> list[tuple[str, str, int, float]]:
    """Return (set, method, number, value) for each value (runs,) of each set and method."""
    return [
        (name, method, number, value)
        for name, methods in results.items()
        for method, values in methods.items()
        for number, value in enumerate(values.tolist())
    ]


def save_numbers(folder: Path, name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write measured numbers as folder/name.csv, floats with six digits."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    with path.open("w", newline="", encoding="utf8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in row] for row in rows)
    print(f"written: {path}")
