"""Asks a service that is just starting: makes a model, posts a batch, and projects a row. Standard library only."""

import json
import sys
import time
import urllib.request
from typing import Any


def asked(url: str, method: str = "GET", body: Any = None) -> Any:
    """The answer, from JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def check(url: str) -> None:
    """Raise what went wrong."""
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    asked(f"{url}/models/lda", "PUT", {"estimator": "lda"})
    rows = {"rows": [[0.1, 0.2], [0.9, 0.4], [0.2, 0.1], [0.8, 0.5]], "labels": ["a", "b", "a", "b"]}
    told = asked(f"{url}/partial_fit?wait=applied", "POST", rows)
    assert (told["position"], told["rows"]) == (0, 4), told
    told = asked(f"{url}/transform?model=lda&x=0.1,0.2")
    assert len(told["z"][0]) == 1, told


if __name__ == "__main__":
    check(sys.argv[1])
