"""A tool that hands mail in; load as `tests.testkit.mail_tools`. MAIL_PORT is the server's port on this machine."""

import os
from email.message import EmailMessage

from aetheris.sdk import Result, ToolContext, tool
from aetheris.sdk.toolkits import smtp


@tool("send_mail", irreversible=True, duplicate_scope="session", duplicate_window_s=3600, effect_class="opaque")
async def send_mail(ctx: ToolContext, to: str, subject: str) -> Result:
    """Can't be called back; the same mail goes out once in a session, for an hour."""
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "agent@example.org", subject
    mail.set_content(subject)
    sent = await smtp.send(ctx, smtp.SmtpServer("127.0.0.1", int(os.environ["MAIL_PORT"])), mail, to)
    return Result({"said": "sent"}, external_id=sent)
