"""Receipts of submissions, kept as files (docs/receipts.md)."""

import hashlib
from pathlib import Path

from aetheris.cli.console import CommandError, Exit
from aetheris.sdk.client import Submitted

SUFFIX = ".receipt.json"
SENT = ".request.json"


def keep(submitted: Submitted, folder: Path, sent: bytes | None = None) -> Path:
    """Write a submission's receipt into a folder, byte for byte; each has a name of its own. `sent`: its body.

    Raises:
        CommandError: the gateway gave none, or it can't be written.
    """
    if submitted.receipt is None:
        message = (
            f"job {submitted.job_id} was taken, and the gateway gives no receipt: it signs nothing, or could not now"
        )
        raise CommandError(Exit.FAILED, "no_receipt", message)
    if "/" in submitted.job_id or "\0" in submitted.job_id:
        raise CommandError(Exit.FAILED, "no_receipt", "what the gateway says names no job")
    value = submitted.receipt.encode()
    path = folder / f"{submitted.job_id}-{hashlib.sha256(value).hexdigest()[:16]}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if sent is not None:
            sent_with(path).write_bytes(sent)
        path.write_bytes(value)
    except OSError as error:
        raise CommandError(Exit.BAD_INPUT, "receipt_not_written", f"{path}: {error.strerror}") from None
    return path


def sent_with(receipt: Path) -> Path:
    """Where the body lies that a receipt is of, if it was kept."""
    return receipt.with_name(receipt.name.removesuffix(SUFFIX) + SENT)
