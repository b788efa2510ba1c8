"""PartStore: partial results as files, so that an interrupted plan can be continued.

They are in a folder or under a URI. A file is named by the key of its node (task_plan.py), so a plan
with another shard, spec or release finds none of them. All files of a plan are removed once its
directory has what was learned.

The inputs of a merge stay until the end, since they are needed again if the worker that has the
merge is lost.

Cost: each result is written once, and read when the plan is continued. The files take two states
for each task, which is at most half of the shards' bytes (task_plan.py).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from pyarrow import fs

from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import arrow_from_block, block_from_arrow, read_arrow, write_arrow
from stream_dr.distributed.parts import PartialResult, ProgressCallback
from stream_dr.distributed.task_plan import TaskPlan
from stream_dr.errors import DamagedFile, StreamDRError
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.snapshot_file import Arrays, arrays_under, damaged_contents, file_bytes, packed, read_bytes
from stream_dr.rows.block import Block
from stream_dr.shards.uri import filesystem, write_whole
from stream_dr.statistics.protocol import unpack
from stream_dr.targets.label_codes import Label, distinct_within
from stream_dr.targets.targets import Targets

SUFFIX = ".part"

# The row of an outline need not show all labels and columns of its batch.
LABELS = b"stream_dr.labels"
"""Metadata key of a batch's labels, as JSON."""

WIDTH = b"stream_dr.width"
"""Metadata key of a batch's number of columns."""


class PartStore:
    """Partial results by key, in a folder or under a URI.

    It can be pickled.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri if "://" in uri else str(Path(uri).absolute())
        # Raises an error for a wrong URI.
        filesystem(self.uri)

    def keys(self) -> frozenset[str]:
        """Return the keys of the stored results."""
        system, folder = filesystem(self.uri)
        files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return frozenset(f.base_name.removesuffix(SUFFIX) for f in files if f.base_name.endswith(SUFFIX))

    def read(self, key: str, specs: Sequence[Spec]) -> PartialResult | None:
        """Return the result of a key, or None if it is missing or damaged."""
        system, path = self._store_path(key)
        try:
            with system.open_input_file(path) as file:
                arrays, header = read_bytes(file.read())
            with damaged_contents(path):
                return _result_of_file(arrays, header, specs)
        except (FileNotFoundError, StreamDRError):
            return None

    def write(self, key: str, result: PartialResult) -> None:
        """Store a result, unless it is a refusal."""
        if result.refusal is not None:
            return

        arrays: Arrays = {}
        header: JsonDict = {}
        for number, state in enumerate(result.states):
            state_arrays, description = packed(f"{number}", state)
            arrays |= state_arrays
            header |= description

        outlines = [_outline_bytes(outline) for outline in result.outlines]
        arrays["outlines"] = np.frombuffer(b"".join(outlines), dtype=np.uint8)
        header |= {"kind": "part", "outlines": [len(outline) for outline in outlines]}
        write_whole(self.uri, f"{key}{SUFFIX}", file_bytes(arrays, header))

    def require(self, key: str, specs: Sequence[Spec]) -> PartialResult:
        """Return the result of a key that was stored.

        Raises DamagedFile and removes it if damaged.
        """
        result = self.read(key, specs)
        if result is None:
            self.remove([key])
            raise DamagedFile(f"{key}{SUFFIX} in {self.uri} was damaged, and is removed; give the command again.")
        return result

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the results of these keys that are stored."""
        stored = self.keys()
        for key in set(keys) & stored:
            system, path = self._store_path(key)
            system.delete_file(path)

    def _store_path(self, key: str) -> tuple[fs.FileSystem, str]:
        system, folder = filesystem(self.uri)
        return system, f"{folder}/{key}{SUFFIX}"


def _result_of_file(arrays: Arrays, header: JsonDict, specs: Sequence[Spec]) -> PartialResult:
    """Return the result in a file.

    Raises DamagedFile, and whatever a wrong header leads to.
    """
    estimators = [estimator_of(spec) for spec in specs]
    states = [unpack(e.state_type, arrays_under(f"{n}", arrays), header[f"{n}"]) for n, e in enumerate(estimators)]
    for estimator, state in zip(estimators, states, strict=True):
        # Refuses a state of another spec.
        estimator.accumulator(state)

    ends = np.cumsum(header["outlines"]).tolist()
    outlines = arrays["outlines"].tobytes()
    pieces = (outlines[a:b] for a, b in zip([0, *ends], ends, strict=False))
    return PartialResult(tuple(states), tuple(_outline_block(piece) for piece in pieces))


def load_or_compute(
    store: PartStore | None, key: str, specs: Sequence[Spec], compute: Callable[[], PartialResult]
) -> PartialResult:
    """Return the stored result of a key, or compute and store it.

    store: None to compute without storing.
    """
    stored = None if store is None else store.read(key, specs)
    if stored is not None:
        return stored

    result = compute()
    if store is not None:
        store.write(key, result)
    return result


PlanRunner = Callable[[TaskPlan, ProgressCallback, PartStore | None], Sequence[PartialResult]]
"""Function that runs a plan.

Returns the root's result, if there are models that merge, and then one for each recurrence.
Results in the store are not computed again.
"""


def _outline_bytes(outline: Block) -> bytes:
    """Return an outline as an Arrow stream."""
    batch = arrow_from_block(outline)
    metadata = {WIDTH: str(outline.features)}
    if isinstance(outline.y, Targets):
        metadata[LABELS] = json.dumps(outline.y.labels)
    return bytes(write_arrow([batch.replace_schema_metadata({**(batch.schema.metadata or {}), **metadata})]))


def _outline_block(content: bytes) -> Block:
    """Return the outline in an Arrow stream."""
    batches = read_arrow(content)
    metadata = batches[0].schema.metadata
    block = block_from_arrow(batches)
    if block.sparse and block.features != int(metadata[WIDTH]):
        block.X.resize(block.rows, int(metadata[WIDTH]))
    if LABELS in metadata:
        block = block._replace(y=_reencode(block.y, tuple(json.loads(metadata[LABELS]))))
    return block


def _reencode(targets: Targets, labels: tuple[Label, ...]) -> Targets:
    """Re-encode the targets against `labels`, a superset of their own labels."""
    if targets.values is not None:
        return targets

    new_code = {label: code for code, label in enumerate(labels)}
    # The last entry, for code −1, is an absent label.
    table = np.array([*(new_code[label] for label in targets.labels), -1], dtype=np.int32)
    codes = table[targets.codes]
    indptr = targets.indptr
    if indptr is not None:
        codes, indptr = distinct_within(codes, indptr)
    return targets._replace(labels=labels, codes=codes, indptr=indptr)
