"""How fast generated rows are drawn and written, and whether they have RCV1's statistics.

python benchmarks/generate_rate.py [--rows 100000]
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from stream_dr.datasets.generate import rcv1_like, write_rcv1_like
from stream_dr.datasets.language import TOP_SHARES, build_language


def main() -> None:
    """Print rates and statistics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    build_language()
    start = time.perf_counter()
    entries, labels = 0, Counter[object]()
    for block in rcv1_like(rows):
        entries += block.X.nnz
        labels.update(block.y.labels[code] for code in block.y.codes.tolist())
    drawn = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        manifest = write_rcv1_like(Path(folder) / "shards", rows)
        written = time.perf_counter() - start
    size = sum(entry.bytes for entry in manifest.shards)
    print(f"drawn {rows / drawn:,.0f} rows/s; drawn and written {rows / written:,.0f} rows/s, {size / 1e6:.0f} MB")
    print(f"{entries / rows:.1f} nonzeros and {sum(labels.values()) / rows:.2f} labels a row, {len(labels)} labels")
    print({top: f"{labels[top] / rows:.3f} (RCV1 {share})" for top, share in TOP_SHARES.items()})


if __name__ == "__main__":
    main()
