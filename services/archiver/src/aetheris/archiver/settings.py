"""The archiver's own settings; each is one environment variable, AETHERIS_<NAME>."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.functional_validators import AfterValidator

from aetheris.runtime.blobs.store import s3_place
from aetheris.runtime.process.settings import RuntimeSettings


def _store(value: str) -> str:
    if "://" in value:
        s3_place(value)
    return value


class ArchiverSettings(RuntimeSettings):
    """Where the rows go, and by which keys seals count."""

    parquet: Annotated[str, AfterValidator(_store)] = Field(
        description="Where sealed jobs are written as Parquet: a folder, or s3://bucket[/prefix]"
    )
    parquet_every_s: float = Field(300.0, gt=0, description="How long a sealed job waits for others, at most")
    parquet_payloads: bool = Field(
        default=True, description="Whether goals, arguments, results, reasons and payloads are written, too"
    )
    seal_keys: Path | None = Field(
        None, description="Public keys that seals count by (JSON or PEM); default: those in keys of the data folder"
    )
