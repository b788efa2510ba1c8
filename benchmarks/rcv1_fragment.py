"""The RCV1 fragment (CCAT or not; 1,000 + 500 real rows × 47,236), as benchmarks/news20.py does it.

STREAM_DR_DATA=… python benchmarks/rcv1_fragment.py
"""

import argparse
import tempfile

from benchmarks.news20 import compare, data
from stream_dr.datasets.convert import convert
from stream_dr.datasets.sources import Options
from stream_dr.shards.dataset import open_dataset

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--passes", type=int, default=21)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = Options(n_features=47_236)
        convert([data("rcv1_fragment") / "rcv1_small.dat"], "vw", f"{folder}/train", options)
        convert([data("rcv1_fragment") / "rcv1_small_test.data"], "vw", f"{folder}/test", options)
        sets = open_dataset(f"{folder}/train"), open_dataset(f"{folder}/test")
        compare(*sets, given.gamma, given.passes, lsi=100, check=None)
