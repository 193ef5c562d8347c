"""A mail server that drops nothing, and a restaurant that is full."""

from pathlib import Path
from typing import Any

from aetheris.sdk import Failed, ToolContext, tool

MAILS = Path(__file__).parent.parent / "outside" / "mails"


@tool(effect_class="idempotent")
def send_mail(ctx: ToolContext, to: str, text: str) -> dict[str, Any]:
    """Send a mail; the server knows a Message-ID that it has seen."""
    MAILS.mkdir(parents=True, exist_ok=True)
    (MAILS / ctx.external_key.replace(":", "_")).write_text(f"To: {to}\n\n{text}\n")
    return {"to": to}


@tool(effect_class="idempotent")
def book_table(guests: int) -> dict[str, Any]:
    """Book a table: there is none."""
    raise Failed(f"no table for {guests}")
