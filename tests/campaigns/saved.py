"""Mutated files of saved estimators: each is refused with one of our errors, or is an estimator that can be used.

    python -m tests.campaigns.saved [--runs 20000] [--seed S] [--resume FILE] [--keep DIR]

Mutant N of a seed is the same in every run. Loaders are forked and bounded in memory and time, so that a crash is counted
and the next loader goes on with the next mutant. One that is loaded projects, learns a batch, projects and is saved. Prints
how many came to what; those that did harm are kept in DIR. Exits 1 where there are any: a crash, an error that is no
ValueError, more memory or time than is allowed.
"""

import argparse
import sys
import warnings
from pathlib import Path

from stream_dr.errors import StreamDRError
from stream_dr.models.saved import load
from tests.support import bounded, record
from tests.support.saved_mutants import Base, bases, mutant, used

LIMIT = 64 << 20
"""What a state may take, in bytes."""


def outcome(base: Base, content: bytes) -> str:
    """ "used", "refused" (when it was loaded), "useless" (a ValueError when it was used), "wrong: …" or "memory"."""
    loaded = False
    try:
        estimator = load(content, LIMIT)
        loaded = True
        used(estimator, base.X, base.y)
    except StreamDRError:
        return "useless" if loaded else "refused"
    except MemoryError:
        return "memory"
    except ValueError as e:
        return "useless" if loaded else f"wrong: {base.name}: {type(e).__name__}: {e}"[:300]
    except Exception as e:
        return f"wrong: {base.name}: {'used' if loaded else 'loaded'}: {type(e).__name__}: {e}"[:300]
    return "used"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path)
    options = record.options(parser, runs=20_000)
    done = record.Record(options)
    warnings.simplefilter("ignore")
    whole = bases()
    for base in whole:
        told = outcome(base, base.content)  # compiles what is compiled, once for all loaders
        if told != "used":
            sys.exit(f"the base {base.name} is not used: {told}")

    def make(number: int) -> bytes:
        return mutant(whole, done.seed, number)[1]

    def judge(number: int, content: bytes) -> str:
        return outcome(mutant(whole, done.seed, number)[0], content)

    bounded.try_all(done, make, judge, options.keep)


if __name__ == "__main__":
    main()
