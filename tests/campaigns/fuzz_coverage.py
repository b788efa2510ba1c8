"""Coverage-guided fuzzing of the codec: bodies that take new ways through stream_dr.arrow are kept and mutated further.

    pip install atheris
    python -m tests.campaigns.fuzz_coverage CORPUS -max_total_time=1800 [-seed=S] [other options of libFuzzer]

CORPUS is a folder. It begins with the bases of mutated_bodies.py, grows by what is new, and is used again the next
time. The status is not 0 if a body did harm, as fuzz_codec.py has it. That body is kept as crash-… in the current folder.
"""

import sys
from pathlib import Path

import numpy as np

try:
    import atheris
except ImportError:
    sys.exit("coverage-guided fuzzing needs atheris: pip install atheris")

with atheris.instrument_imports(include=["stream_dr.arrow"]):
    from tests.campaigns.fuzz_codec import LIMIT, MEMORY, SECONDS, harmful, outcome
from tests.campaigns.mutated_bodies import bases


def one(data: bytes) -> None:
    """Parse one body; raises where it did harm."""
    told = outcome(data)
    if harmful(told):
        raise RuntimeError(told)


def main() -> None:
    """The command line."""
    folders = [Path(given) for given in sys.argv[1:] if not given.startswith("-")]
    if len(folders) != 1:
        sys.exit(__doc__)
    folders[0].mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(bases(np.random.default_rng(0))):
        (folders[0] / f"base-{number}").write_bytes(data)
        one(data)
    megabytes = (LIMIT + MEMORY >> 20) + 512
    atheris.Setup([*sys.argv, f"-timeout={SECONDS}", f"-rss_limit_mb={megabytes}", "-max_len=65536"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
