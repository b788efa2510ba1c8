"""parquet: a Parquet file by column, a row group's batch at a time.

Files in stream_dr's own layout need no reader: they are shards already. Memory: one batch and what
Arrow buffers of its row group (a file with one huge row group is decoded column chunk by column chunk, not at once). Nothing
is fetched ahead: Arrow keeps what it has fetched until the file is closed. Page checksums are verified where there are any.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from stream_dr.block import Block, check_finite
from stream_dr.datasets.readers.columns import Roles, block_of
from stream_dr.datasets.readers.lines import BLOCK_ROWS
from stream_dr.disk import FileName
from stream_dr.errors import MalformedInput, NotFinite, SchemaMismatch, SourceMissing


def read_parquet(path: FileName, roles: Roles = Roles(), *, rows: int = BLOCK_ROWS) -> Iterator[Block]:
    """Blocks of dense float64 rows, names kept. Raises SourceMissing, SchemaMismatch, MalformedInput naming file and row."""
    try:
        file = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
    except FileNotFoundError as e:
        raise SourceMissing(f"there is no file {path}; give the path of a file that is there.") from e
    except (pa.ArrowInvalid, OSError) as e:
        raise MalformedInput(f"{path} is not a Parquet file ({e}).", file=str(path)) from e
    with file:
        columns = file.schema_arrow.names
        features = roles.features(columns)
        row = 0
        try:
            for batch in file.iter_batches(rows, columns=[c for c in columns if c not in roles.drop]):
                block = block_of(batch, features, roles)
                check_finite(block.X)
                yield block
                row += batch.num_rows
        except (SchemaMismatch, NotFinite) as e:
            at = row + int(e.details.get("row", 0))
            raise MalformedInput(f"{path}, row {at}: {e}", file=str(path), row=at) from e
        except (pa.ArrowInvalid, OSError) as e:
            raise MalformedInput(f"{path}, after row {row}: {e}", file=str(path)) from e
