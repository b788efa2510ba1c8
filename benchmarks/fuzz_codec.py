"""Mutated Arrow streams and JSON bodies against the codec: each is either read or refused with one of our errors.

    python benchmarks/fuzz_codec.py [--inputs 20000] [--seed 0]

Runs in child processes, so that a crash of the interpreter is seen and its seed printed. Exits 1 on a crash, on an error
of another kind, or on a Block whose numbers are not finite or whose indices are not sorted.
"""

import argparse
import subprocess
import sys
from collections import Counter

import numpy as np
import orjson
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.arrow.codec import arrow_from_block, block_from_arrow, block_from_json, json_rows, read_arrow
from stream_dr.block import Block, check_finite
from stream_dr.errors import StreamDRError
from stream_dr.targets import class_targets, continuous_targets, multilabel_targets

LIMIT = 1 << 26


def seeds(random: np.random.Generator) -> list[bytes]:
    """Well-formed inputs of every layout: dense, sparse, named; every kind of target; stream, file, compressed; JSON."""
    rows = 7
    X = sp.random(rows, 50, density=0.1, format="csr", random_state=int(random.integers(1 << 30)))
    names = list("abcdefg")
    blocks = [
        Block(X, class_targets(names), width_stated=False),
        Block(X.astype(np.float32), multilabel_targets([[n, "z"] for n in names]), weights=np.ones(rows)),
        Block(random.normal(size=(rows, 4)), continuous_targets(random.normal(size=(rows, 2))), ids=names),
        Block(random.normal(size=(rows, 3)).astype(np.float32), class_targets([True, False, None] * 2 + [True])),
        Block(random.normal(size=(rows, 2)), class_targets(range(rows)), names=("price", "size")),
    ]
    batches = [arrow_from_block(block) for block in blocks]
    coded = pa.record_batch(
        {**{n: batches[4].column(n) for n in ("price", "size")}, "label": pa.array(names).dictionary_encode()}
    )
    inputs = [_stream([b]) for b in [*batches, coded]]
    inputs += [_stream([b, b], compression) for b in batches[:3] for compression in ("lz4", "zstd")]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        writer.write_batch(batches[0])
    return [*inputs, sink.getvalue().to_pybytes(), *(orjson.dumps(json_rows(block)) for block in blocks)]


def _stream(batches: list[pa.RecordBatch], compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def mutated(random: np.random.Generator, data: bytes) -> bytes:
    """Bytes flipped, set to extremes, cut, doubled or moved, one to four times; half the time in the first 600 bytes."""
    body = bytearray(data)
    for _ in range(int(random.integers(1, 5))):
        if not body:
            break
        at = int(random.integers(len(body) if random.random() < 0.5 else min(len(body), 600)))
        length = int(random.integers(1, 65))
        match int(random.integers(6)):
            case 0:
                body[at] ^= 1 << int(random.integers(8))
            case 1:
                body[at] = int(random.choice([0, 1, 127, 128, 255]))
            case 2:
                number = int(random.choice([-1, 0, 1, 2**31 - 1, -(2**31), 2**30]))
                body[at : at + 4] = number.to_bytes(4, "little", signed=True)
            case 3:
                del body[at : at + length]
            case 4:
                body[at:at] = body[at : at + length]
            case 5:
                number = int(random.choice([-1, 2**63 - 1, 2**40, 2**33, -(2**63)]))
                body[at : at + 8] = number.to_bytes(8, "little", signed=True)
    return bytes(body)


def outcome(data: bytes) -> str:
    """ "read", or the code of the error that refused it; anything else is raised."""
    try:
        if data[:1] in (b"{", b"["):
            block = block_from_json(data, max_features=1_000_000)
        else:
            block = block_from_arrow(read_arrow(data, LIMIT), max_features=1_000_000)
    except StreamDRError as e:
        return e.code
    check_finite(block.X)
    if block.sparse:
        fresh = sp.csr_matrix((block.X.data, block.X.indices, block.X.indptr), shape=block.X.shape)
        if not fresh.has_canonical_format:
            raise AssertionError("a Block whose indices are not sorted and distinct")
    if block.y is not None and block.y.rows != block.rows:
        raise AssertionError("a Block with another number of targets than rows")
    return "read"


def run(inputs: int, seed: int) -> Counter[str]:
    """Outcomes of so many mutated inputs."""
    random = np.random.default_rng(seed)
    whole = seeds(random)
    counts: Counter[str] = Counter()
    for number in range(inputs):
        data = mutated(random, whole[int(random.integers(len(whole)))])
        try:
            counts[outcome(data)] += 1
        except Exception as e:
            raise AssertionError(f"seed {seed}, input {number}: {type(e).__name__}: {e}") from e
    return counts


def main() -> None:
    """Run in child processes of 1,000 inputs each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(orjson.dumps(run(options.inputs, options.seed)).decode())
        return
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + -(-options.inputs // 1000)):
        command = [sys.executable, __file__, "--child", "--inputs", "1000", "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"seed {seed} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        total.update(orjson.loads(done.stdout))
    print(f"{total.total()} inputs, none crashed: {dict(total.most_common())}")


if __name__ == "__main__":
    main()
