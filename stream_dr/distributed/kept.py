"""Kept: parts that are done, as files in a folder or under a URI, so that a plan goes on after whatever ended it.

A file is named by what its part holds (plan.py), so a plan with another shard, spec or release finds nothing of it. All of a
plan's files are removed once its directory has what was learned.

Cost: each part is written once, and read when the plan is begun again. Room: two states a task, which is at most half of the
shards' bytes (plan.py).

Why this way: what a merge was made of stays until the end, for it is needed once more when the worker that has the merge
is lost.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import fs

from stream_dr.arrow.codec import arrow_from_block, block_from_arrow, read_arrow, write_arrow
from stream_dr.distributed.parts import Part, Told
from stream_dr.distributed.plan import Plan
from stream_dr.errors import DamagedFile, StreamDRError
from stream_dr.models.entry import Spec
from stream_dr.models.saved import estimator_of
from stream_dr.models.schema import Facts
from stream_dr.models.snapshot_file import Arrays, contents_of, file_bytes, packed, part, read_bytes
from stream_dr.rows.block import Block
from stream_dr.shards.uri import filesystem, write_whole
from stream_dr.statistics.protocol import unpack
from stream_dr.targets.label_codes import distinct_within
from stream_dr.targets.targets import Targets

SUFFIX = ".part"

LABELS, WIDTH = b"stream_dr.labels", b"stream_dr.width"
"""Schema metadata keys: the batch's labels (JSON) and width, of which an outline's rows need not show all."""


class Kept:
    """Parts by key, in a folder or under a URI. It holds nothing but the URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri if "://" in uri else str(Path(uri).absolute())
        filesystem(self.uri)  # raises what is wrong with it

    def keys(self) -> frozenset[str]:
        """The keys of the parts that are there."""
        system, folder = filesystem(self.uri)
        found = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return frozenset(f.base_name.removesuffix(SUFFIX) for f in found if f.base_name.endswith(SUFFIX))

    def read(self, key: str, specs: Sequence[Spec]) -> Part | None:
        """The part of a key; None where there is none, or a damaged one."""
        system, path = self._place(key)
        try:
            with system.open_input_file(path) as file:
                arrays, facts = read_bytes(file.read())
            with contents_of(path):
                return _part(arrays, facts, specs)
        except (FileNotFoundError, StreamDRError):
            return None

    def write(self, key: str, learned: Part) -> None:
        """Keep a part; one that was refused is not kept."""
        if learned.refused is not None:
            return
        arrays, facts = dict[str, np.ndarray](), dict[str, Any]()
        for number, state in enumerate(learned.states):
            own, described = packed(f"{number}", state)
            arrays, facts = arrays | own, facts | described
        outlines = [_bytes(outline) for outline in learned.outlines]
        arrays["outlines"] = np.frombuffer(b"".join(outlines), dtype=np.uint8)
        facts |= {"kind": "part", "outlines": [len(outline) for outline in outlines]}
        write_whole(self.uri, f"{key}{SUFFIX}", file_bytes(arrays, facts))

    def expected(self, key: str, specs: Sequence[Spec]) -> Part:
        """The part of a key that was there. Raises DamagedFile."""
        kept = self.read(key, specs)
        if kept is None:
            self.remove([key])
            raise DamagedFile(f"{key}{SUFFIX} in {self.uri} was damaged, and is removed; give the command again.")
        return kept

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the parts of these keys that are there."""
        there = self.keys()
        for key in set(keys) & there:
            system, path = self._place(key)
            system.delete_file(path)

    def _place(self, key: str) -> tuple[fs.FileSystem, str]:
        system, folder = filesystem(self.uri)
        return system, f"{folder}/{key}{SUFFIX}"


def _part(arrays: Arrays, facts: Facts, specs: Sequence[Spec]) -> Part:
    """The part of a file. Raises DamagedFile, and whatever else wrong facts lead to."""
    estimators = [estimator_of(spec) for spec in specs]
    states = [unpack(e.state_type, part(f"{n}", arrays), facts[f"{n}"]) for n, e in enumerate(estimators)]
    for estimator, state in zip(estimators, states, strict=True):
        estimator.accumulator(state)  # refuses a state of another spec
    ends = np.cumsum(facts["outlines"]).tolist()
    outlines = arrays["outlines"].tobytes()
    pieces = (outlines[a:b] for a, b in zip([0, *ends], ends, strict=False))
    return Part(tuple(states), tuple(_block(piece) for piece in pieces))


def once(kept: Kept | None, key: str, specs: Sequence[Spec], made: Callable[[], Part]) -> Part:
    """The part of a key as it is kept, or else as it is made, and kept from now on; kept None: made."""
    found = None if kept is None else kept.read(key, specs)
    if found is None:
        found = made()
        if kept is not None:
            kept.write(key, found)
    return found


Run = Callable[[Plan, Told, Kept | None], Sequence[Part]]
"""Runs a plan: the root's part, where models merge, and then one of each recurrence; told every batch that is learned. What
is kept already is not done again."""


def _bytes(outline: Block) -> bytes:
    batch = arrow_from_block(outline)
    said = {WIDTH: str(outline.features)}
    if isinstance(outline.y, Targets):
        said[LABELS] = json.dumps(outline.y.labels)
    return bytes(write_arrow([batch.replace_schema_metadata({**(batch.schema.metadata or {}), **said})]))


def _block(content: bytes) -> Block:
    batches = read_arrow(content)
    said = batches[0].schema.metadata
    block = block_from_arrow(batches)
    if block.sparse and block.features != int(said[WIDTH]):
        block.X.resize(block.rows, int(said[WIDTH]))
    if LABELS in said:
        block = block._replace(y=_numbered(block.y, tuple(json.loads(said[LABELS]))))
    return block


def _numbered(targets: Targets, labels: tuple[Any, ...]) -> Targets:
    """The targets by the codes of these labels, which hold all of theirs."""
    if targets.values is not None:
        return targets
    number = {label: code for code, label in enumerate(labels)}
    table = np.array([*(number[label] for label in targets.labels), -1], dtype=np.int32)  # −1: absent
    codes, indptr = table[targets.codes], targets.indptr
    if indptr is not None:
        codes, indptr = distinct_within(codes, indptr)
    return targets._replace(labels=labels, codes=codes, indptr=indptr)
