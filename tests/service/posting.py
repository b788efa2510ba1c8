"""Posting: a client process that posts batch after batch, and the same batch with the same key until it is acknowledged.

    python -m tests.service.posting URL NAME FOLDER

Batch i of client NAME is made from (NAME, i) alone. It goes on until FOLDER/enough exists, then writes what was
acknowledged, [[key, position], …], to FOLDER/NAME.json.
"""

import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from stream_dr import Client, errors

FEATURES, CLASSES = 12, "abc"


def batch(name: str, number: int) -> tuple[Any, list[str]]:
    """Rows and labels of a client's batch; 1 to 16 rows."""
    random = np.random.default_rng([zlib.crc32(name.encode()), number])
    labels = random.integers(0, len(CLASSES), size=random.integers(1, 17))
    rows = random.normal(size=(len(labels), FEATURES)) + labels[:, None] * np.linspace(-1, 1, FEATURES)
    return rows, [CLASSES[label] for label in labels]


def post(client: Client, name: str, number: int, enough: Path) -> int | None:
    """Post until acknowledged; the position, or None where nothing answers any more after `enough`."""
    X, y = batch(name, number)
    begun = time.monotonic()
    while True:
        try:
            return int(client.partial_fit(X, y, key=f"{name}-{number}", target="class")["position"])
        except errors.RemoteError as e:
            if e.details.get("status", 503) not in (429, 503):
                raise
            if time.monotonic() - begun > 60:
                raise
            time.sleep(0.01)


def main(url: str, name: str, folder: str) -> None:
    """Post until told that it is enough."""
    enough = Path(folder) / "enough"
    acknowledged: list[tuple[str, int | None]] = []
    with Client(url, retries=0, timeout=20) as client:
        while not enough.exists():
            number = len(acknowledged)
            acknowledged.append((f"{name}-{number}", post(client, name, number, enough)))
    (Path(folder) / f"{name}.json").write_text(json.dumps(acknowledged))


if __name__ == "__main__":
    main(*sys.argv[1:])
