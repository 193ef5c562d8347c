"""The two tools of the demo of lost links; load as `aetheris.rigs.demo.messages` (docs/demo.md).

Environment: DEMO_SMTP (host:port), DEMO_MAILDIR, DEMO_WEBHOOK_URL.
"""

import os
from email.message import EmailMessage
from pathlib import Path

from aetheris.rigs.demo.settings import SETTLES_WITHIN_S
from aetheris.sdk import Found, NotFound, Result, StateChange, ToolContext, tool
from aetheris.sdk.outcomes import Verdict
from aetheris.sdk.toolkits import http, smtp


@tool(effect_class="probeable", irreversible=True, settles_within_s=SETTLES_WITHIN_S)
def send_mail(ctx: ToolContext, to: str, text: str) -> Result:
    """Mail somebody; the mailbox can be asked for the Message-ID."""
    host, _, port = os.environ["DEMO_SMTP"].rpartition(":")
    sent = smtp.send_now(ctx, smtp.Server(host, int(port)), letter(to, text))
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


@tool()
async def call_webhook(ctx: ToolContext, text: str) -> dict[str, str]:
    """Tell a service that knows no keys, and can't be asked: opaque."""
    url = f"{os.environ['DEMO_WEBHOOK_URL']}/effect"
    await http.call(ctx, "POST", url, json=payload(text), transport=http.direct())
    return {"told": text}


def letter(to: str, text: str) -> EmailMessage:
    """The mail, as the naive loop sends it too."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", to, text
    mail.set_content(f"{text}.\n")
    return mail


def payload(text: str) -> dict[str, str]:
    """What the webhook is told: nothing in it names the call."""
    return {"key": "", "tag": text}
