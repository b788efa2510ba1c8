"""Posting: a client process that posts batch after batch, and the same batch with the same key until it is acknowledged.

    python -m tests.support.posting URL NAME FOLDER EVERY

Batch i of client NAME is made from (NAME, i) alone. After every EVERY batches (0: never) it has one of its own taken out
again. It goes on until FOLDER/enough exists, then writes what was acknowledged, [[key, position, what it took out], …], to
FOLDER/NAME.json.
"""

import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stream_dr import Client, errors

FEATURES, CLASSES = 12, "abc"
AGAIN = (errors.InsufficientStorage, errors.Overloaded, errors.ShuttingDown)
"""What is answered for now only."""


def batch(name: str, number: int) -> tuple[Any, list[str]]:
    """Rows and labels of a client's batch; 1 to 16 rows."""
    random = np.random.default_rng([zlib.crc32(name.encode()), number])
    labels = random.integers(0, len(CLASSES), size=random.integers(1, 17))
    rows = random.normal(size=(len(labels), FEATURES)) + labels[:, None] * np.linspace(-1, 1, FEATURES)
    return rows, [CLASSES[label] for label in labels]


def acknowledged(send: Callable[[], dict[str, Any]]) -> int:
    """Send until acknowledged; the position."""
    begun = time.monotonic()
    while True:
        try:
            return int(send()["position"])
        except (errors.RemoteError, *AGAIN) as e:
            if isinstance(e, errors.RemoteError) and e.details.get("status", 503) not in (429, 503):
                raise
            if time.monotonic() - begun > 60:
                raise
            time.sleep(0.05)


def main(url: str, name: str, folder: str, every: str) -> None:
    """Post until told that it is enough."""
    told: list[tuple[str, int, int | None]] = []
    number = 0
    with Client(url, retries=0, timeout=20) as client:
        while not (Path(folder) / "enough").exists():
            (X, y), key = batch(name, number), f"{name}-{number}"
            told.append((key, acknowledged(lambda: client.partial_fit(X, y, key=key, target="class")), None))  # noqa: B023
            number += 1
            if int(every) and number % int(every) == 0:
                gone, key = told[-int(every) // 2][1], f"{name}-gone-{number}"
                try:
                    told.append((key, acknowledged(lambda: client.unlearn([gone], key=key)), gone))  # noqa: B023
                except errors.HistoryGone:
                    continue
    (Path(folder) / f"{name}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
