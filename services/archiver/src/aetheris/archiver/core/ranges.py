"""A range of jobs.seals, and the files that hold its jobs: what is written twice has the same names.

A range is settled by who creates its record first. The next one begins where it ends, and is created only when its
files are there. So of any two files of a table no two hold the same job, whichever process died where.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.protocol.base.ids import NAME
from aetheris.views.query_rows import Table

FOLDER = "ranges"
_NAME = re.compile(r"([0-9]{12})\.json")


class BadRange(ValueError):
    """What lies among the ranges is none."""


class SealRange(BaseModel):
    """The jobs whose seals lie from `begin` up to, without, `end`, but for those of `refused` (job → code).

    `jobs`: how many are written. `files`: the paths of what holds them, below the store's root.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1] = 1
    begin: int = Field(ge=0)
    end: int = Field(ge=1)
    jobs: int = Field(ge=0)
    refused: Mapping[str, str] = {}
    files: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where its record lies: there is one that begins there, or none."""
        return range_path(self.begin)

    def dump(self) -> bytes:
        """As it is kept."""
        return self.model_dump_json().encode()


def range_path(begin: int) -> str:
    """Where the record of a range lies."""
    return f"{FOLDER}/{begin:012d}.json"


def begin_of(name: str) -> int | None:
    """Where the range begins whose record has this name; None for what is no record's."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found is not None else None


def read_range(data: bytes, begin: int) -> SealRange:
    """A record.

    Raises:
        BadRange: it is none, or another's.
    """
    try:
        found = SealRange.model_validate_json(data)
    except ValidationError:
        raise BadRange(f"{range_path(begin)} is no record of a range") from None
    if found.begin != begin or found.end <= begin:
        raise BadRange(f"{range_path(begin)} is the record of another range")
    return found


def tenant_folder(tenant: str) -> str:
    """The folder of a tenant: its name; of one that is no plain name, its SHA-256."""
    plain = NAME.fullmatch(tenant) is not None and tenant.strip(".")
    return tenant if plain else hashlib.sha256(tenant.encode(errors="replace")).hexdigest()


def file_path(tenant: str, table: Table, day: str, begin: int, end: int) -> str:
    """The file with a tenant's rows of a range; `day`: YYYY-MM-DD (UTC) of the seals."""
    return f"tenants/{tenant_folder(tenant)}/{table}/day={day}/{begin:012d}-{end:012d}.parquet"
