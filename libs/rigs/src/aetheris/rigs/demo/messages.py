"""The tools of the demo of what is unknown; load as `aetheris.rigs.demo.messages` (docs/demo.md).

Environment: DEMO_SMTP (host:port), DEMO_MAILDIR, DEMO_WEBHOOK_URL, DEMO_BANK_URL.
"""

import os
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aetheris.rigs.demo.paid import payment_of
from aetheris.rigs.demo.settings import SETTLES_WITHIN_S, UNDER_WAY_S
from aetheris.sdk import Found, NotFound, ProbeContext, Result, StateChange, ToolContext, tool
from aetheris.sdk.outcomes import Verdict
from aetheris.sdk.toolkits import http, smtp


@tool(effect_class="probeable", irreversible=True, settles_within_s=SETTLES_WITHIN_S)
def send_mail(ctx: ToolContext, to: str, text: str) -> Result:
    """Mail somebody; the mailbox can be asked for the Message-ID."""
    host, _, port = os.environ["DEMO_SMTP"].rpartition(":")
    sent = smtp.send_now(ctx, smtp.SmtpServer(host, int(port)), letter(text), to)
    return Result({"sent_to": to}, sent, [smtp.sent(sent)])


@send_mail.probe
def find_mail(external_key: str) -> Found | NotFound:
    """Look through the mailbox for the Message-ID that follows from the key."""
    mails = smtp.in_maildir(Path(os.environ["DEMO_MAILDIR"]), external_key)
    evidence = (f"mailbox: {len(mails)} mail(s) with the Message-ID",)
    if not mails:
        return NotFound(evidence)
    sent = smtp.message_id(external_key)
    return Found({"sent_to": str(mails[0]["To"])}, sent, evidence, (smtp.sent(sent),))


@send_mail.verifier
def mail_is_there(change: StateChange) -> Verdict:
    """Whether the mailbox still has it."""
    return smtp.confirm_in_maildir(Path(os.environ["DEMO_MAILDIR"]), change)


@tool(effect_class="opaque", irreversible=False)
async def call_webhook(ctx: ToolContext, text: str) -> dict[str, str]:
    """Tell a service that knows no keys, and can't be asked: opaque."""
    url = f"{os.environ['DEMO_WEBHOOK_URL']}/effect"
    await http.call(ctx, "POST", url, json=payload(text), transport=http.direct())
    return {"told": text}


@tool(effect_class="probeable", irreversible=True, timeout_s=UNDER_WAY_S)
async def pay(ctx: ToolContext, order: str) -> Result:
    """Pay for an order at a bank that drops no repeat; a request is under way for as long as the demo holds it back."""
    body, slow = payment(order, ctx.external_key), {"hold": order}
    paid = await http.call(ctx, "POST", f"{_bank()}/effect", json=body, params=slow, transport=http.direct())
    change = StateChange("payment", paid.json()["id"], "create", external_ref=ctx.external_key)
    return Result({"paid": order}, paid.json()["id"], [change])


@pay.probe
async def find_payment(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Look through the bank's book for the key."""
    found: list[Any] = await http.read(ctx, f"{_bank()}/effects", params={"key": external_key}, transport=http.direct())
    evidence = (f"bank: {len(found)} payment(s) with the key",)
    if not found:
        return NotFound(evidence)
    change = StateChange("payment", found[0]["id"], "create", external_ref=external_key)
    return Found({"paid": found[0]["tag"].rpartition(" ")[2]}, found[0]["id"], evidence, (change,))


def letter(text: str) -> EmailMessage:
    """The mail, as the naive loop sends it too."""
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "shop@example.org", text
    mail.set_content(f"{text}.\n")
    return mail


def payload(text: str) -> dict[str, str]:
    """What the webhook is told: nothing in it names the call."""
    return {"key": "", "tag": text}


def payment(order: str, key: str) -> dict[str, str]:
    """What the bank is told, by the naive loop too."""
    return {"key": key, "tag": payment_of(order)}


def _bank() -> str:
    return os.environ["DEMO_BANK_URL"]
