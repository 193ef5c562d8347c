"""Rows as a Parquet file: needs the extra `parquet` (pyarrow)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from aetheris.views.query_rows import COLUMNS, Kind, Row, Table

_TYPES: Mapping[Kind, Any] = {
    "text": pa.string(),
    "json": pa.string(),
    "integer": pa.int64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("us", tz="UTC"),
}
SCHEMAS: Mapping[Table, Any] = {
    table: pa.schema([pa.field(name, _TYPES[kind], nullable=name != "job_id") for name, kind in columns.items()])
    for table, columns in COLUMNS.items()
}


def parquet(table: Table, rows: Sequence[Row]) -> bytes:
    """A file of a table's rows; the same bytes of the same rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMAS[table]), sink, compression="zstd")
    return sink.getvalue().to_pybytes()
