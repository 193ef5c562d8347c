"""The table `ledger.contents`: what was done, by what it means, in all partitions."""

from pydantic import ValidationError

from aetheris.ledger.core.contents import Contents
from aetheris.protocol.messages.commands import ContentRecord
from aetheris.runtime.log.table import Table


def contents_of(table: Table) -> Contents:
    """The table's lines, kept as it has them."""
    contents: Contents = {}

    def take(key: str, value: bytes | None) -> None:
        try:
            contents[key] = ContentRecord.model_validate_json(value or b"")
        except ValidationError:
            contents.pop(key, None)

    for key, value in table.items():
        take(key, value)
    table.on_change(take)
    return contents
