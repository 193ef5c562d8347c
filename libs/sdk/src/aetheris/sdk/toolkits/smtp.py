"""Mail for tools: one message with a Message-ID that follows from the external key (docs/tools.md).

Whatever goes wrong before the first byte of the message is written is NotExecuted or Failed. After it, only the
server's own answer tells; without one the call is in doubt, and the mailbox can be asked for the Message-ID: a Maildir,
or a folder of an IMAP server. Both can be asked later too, whether the mail is still there.
"""

import asyncio
import email
import imaplib
import mailbox
import math
import re
import smtplib
import ssl
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage, Message
from email.utils import getaddresses
from functools import partial
from pathlib import Path
from typing import Any

from aetheris.sdk.context import ProbeContext, ToolContext
from aetheris.sdk.outcomes import Confirmed, Drifted, Failed, NotExecuted, StateChange, Verdict

LONGEST_WAIT_S = 300.0  # RFC 5321 §4.5.3.2: what a server may take
MAIL = "mail"
_OK, _START_MAIL = 250, 354
_OURS = re.compile(r"<[A-Za-z0-9_+=-]+@aetheris>")
_ADDRESS = re.compile(r"[A-Za-z0-9.#$&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
"""One address and nothing else (RFC 5321 §4.1.2, without quotes, routes and address literals)."""
_LONGEST_ADDRESS = 254
_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_WIRE = policy.SMTP.clone(max_line_length=998)  # RFC 5322 §2.1.1; a folded Message-ID is not found again


@dataclass(frozen=True)
class SmtpServer:
    """Where mail is handed in; TLS by STARTTLS, where it is asked for, before the password."""

    host: str
    port: int = 25
    user: str | None = None
    password: str | None = None
    starttls: bool = False

    def __repr__(self) -> str:
        return f"Server({self.host}:{self.port})"


@dataclass(frozen=True)
class Imap:
    """A folder of an IMAP server, asked and never changed; TLS from the first byte, unless it is turned off."""

    host: str
    user: str
    password: str = field(repr=False)
    port: int = 993
    folder: str = "INBOX"
    tls: bool = True


class MailboxUnclear(Exception):
    """The IMAP server did not answer with OK: nothing follows from it."""


def message_id(external_key: str) -> str:
    """The Message-ID of an external key; no two keys share one (RFC 5322 §3.6.4)."""
    safe = re.sub(r"[^A-Za-z0-9_-]", lambda found: _quoted(found.group()), external_key)
    return f"<{safe}@aetheris>"


def _quoted(character: str) -> str:
    return "+" if character == ":" else "".join(f"={byte:02X}" for byte in character.encode())


async def send(
    ctx: ToolContext,
    server: SmtpServer,
    mail: EmailMessage,
    to: str | Sequence[str],
    *,
    cc: Sequence[str] = (),
    bcc: Sequence[str] = (),
) -> str:
    """Hand one mail in, to all of these addresses or to none; gives its Message-ID.

    Each text is one address, as `ada@example.org`, whatever it is: a model that fills in `to` reaches nobody else. So
    To, Cc and Bcc are not for the mail's own headers.

    Raises:
        NotExecuted: refused for now, or given up, before anything of it was sent.
        Failed: refused for what it is.
        smtplib.SMTPException, OSError: it was sent, and no answer came.
    """
    return await asyncio.to_thread(partial(send_now, cc=cc, bcc=bcc), ctx, server, mail, to)


def send_now(
    ctx: ToolContext,
    server: SmtpServer,
    mail: EmailMessage,
    to: str | Sequence[str],
    *,
    cc: Sequence[str] = (),
    bcc: Sequence[str] = (),
) -> str:
    """The same, for tools that aren't async."""
    sender, recipients = _addressed(mail, [to] if isinstance(to, str) else to, cc, bcc)
    del mail["Message-ID"]
    mail["Message-ID"] = message_id(ctx.external_key)
    if ctx.traceparent:
        del mail["traceparent"]
        mail["traceparent"] = ctx.traceparent
    lines = _on_the_wire(mail)
    remaining_s = ctx.remaining()
    connection = _connected(server, LONGEST_WAIT_S if math.isinf(remaining_s) else max(remaining_s, 0.001))
    try:
        _announce(connection, sender, recipients)
        _hand_over(connection, lines)
    finally:
        connection.close()
    return str(mail["Message-ID"])


def sent(identity: str) -> StateChange:
    """What a call that handed in a mail of this Message-ID has changed."""
    return StateChange(MAIL, identity, "send")


def in_maildir(folder: Path, external_key: str) -> list[mailbox.MaildirMessage]:
    """The mails in a Maildir that carry the external key's Message-ID.

    Raises:
        FileNotFoundError: no Maildir is there.
    """
    return _in_maildir(folder, message_id(external_key))


def in_imap(ctx: ProbeContext, box: Imap) -> list[Message]:
    """The heads of the mails in an IMAP folder that carry the external key's Message-ID; it blocks.

    Raises:
        MailboxUnclear, imaplib.IMAP4.error, OSError: it can't say.
    """
    return _in_imap(ctx, box, message_id(ctx.external_key))


def confirm_in_maildir(folder: Path, change: StateChange) -> Verdict:
    """Whether a mail that was sent is still in a Maildir; raises as `in_maildir`."""
    if not _OURS.fullmatch(change.resource_id):
        return _NOT_OURS
    return _compared(_in_maildir(folder, change.resource_id))


def confirm_in_imap(ctx: ProbeContext, box: Imap, change: StateChange) -> Verdict:
    """Whether a mail that was sent is still in an IMAP folder; raises as `in_imap`."""
    if not _OURS.fullmatch(change.resource_id):
        return _NOT_OURS
    return _compared(_in_imap(ctx, box, change.resource_id))


_NOT_OURS = Drifted({"id": "is no Message-ID of a call"})


def _compared(mails: Sequence[Message]) -> Verdict:
    if not mails:
        return Drifted({"mail": "is not in the mailbox"})
    return Confirmed((f"{len(mails)} mail(s) with the Message-ID",))


def _in_maildir(folder: Path, wanted: str) -> list[mailbox.MaildirMessage]:
    if not (folder / "new").is_dir():
        raise FileNotFoundError("no Maildir there")
    return [mail for mail in mailbox.Maildir(folder, create=False) if _id_of(mail) == wanted]


def _in_imap(ctx: ProbeContext, box: Imap, wanted: str) -> list[Message]:
    remaining_s = ctx.remaining()
    wait_s = LONGEST_WAIT_S if math.isinf(remaining_s) else max(remaining_s, 0.001)
    with _folder(box, wait_s) as connection:
        (numbers,) = _answered(connection.search(None, "HEADER", "Message-ID", f'"{wanted}"'))
        if not numbers:
            return []
        shown = _answered(connection.fetch(b",".join(numbers.split()).decode(), "(BODY.PEEK[HEADER])"))
    heads = [email.message_from_bytes(part[1]) for part in shown if isinstance(part, tuple)]
    return [head for head in heads if _id_of(head) == wanted]  # a search finds what contains it, too


@contextmanager
def _folder(box: Imap, wait_s: float) -> Generator[imaplib.IMAP4]:
    """A connection on which the folder is examined: nothing can be changed there."""
    if box.tls:
        context = ssl.create_default_context()
        connection: imaplib.IMAP4 = imaplib.IMAP4_SSL(box.host, box.port, ssl_context=context, timeout=wait_s)
    else:
        connection = imaplib.IMAP4(box.host, box.port, timeout=wait_s)
    try:
        connection.login(box.user, box.password)
        name = box.folder.replace("\\", r"\\").replace('"', r"\"")
        _answered(connection.select(f'"{name}"', readonly=True))
        yield connection
    finally:
        connection.shutdown()


def _answered(answer: tuple[str, list[Any]]) -> list[Any]:
    text, data = answer
    if text != "OK":
        raise MailboxUnclear("the IMAP server says no")
    return data


def _id_of(mail: Message) -> str:
    return "".join(str(mail.get("Message-ID", "")).split())


def _addressed(mail: EmailMessage, to: Sequence[str], cc: Sequence[str], bcc: Sequence[str]) -> tuple[str, list[str]]:
    """Sender and recipients of the envelope; the mail's headers say the same, without Bcc."""
    from_ = [address for _, address in getaddresses([str(mail.get("From", ""))]) if address]
    recipients = [*to, *cc, *bcc]
    if any(name in mail for name in ("To", "Cc", "Bcc")):
        raise Failed("say to whom a mail goes by to, cc and bcc, not in its headers")
    if len(from_) != 1 or not recipients:
        raise Failed("a mail needs one sender and at least one recipient")
    for address in (from_[0], *recipients):
        if len(address) > _LONGEST_ADDRESS or not _ADDRESS.fullmatch(address):
            raise Failed("an address is one address, as ada@example.org: no name, no list, no comment")
    mail["To"] = ", ".join(to)
    if cc:
        mail["Cc"] = ", ".join(cc)
    return from_[0], recipients


def _connected(server: SmtpServer, timeout_s: float) -> smtplib.SMTP:
    try:
        connection = smtplib.SMTP(server.host, server.port, timeout=timeout_s)
    except (OSError, smtplib.SMTPException) as error:
        raise NotExecuted(f"no connection: {type(error).__name__}") from None
    try:
        connection.ehlo_or_helo_if_needed()
        if server.starttls:
            connection.starttls(context=ssl.create_default_context())
        if server.user is not None:
            connection.login(server.user, server.password or "")
    except (OSError, smtplib.SMTPException) as error:
        connection.close()
        raise NotExecuted(f"refused at the door: {type(error).__name__}") from None
    return connection


def _announce(connection: smtplib.SMTP, sender: str, recipients: list[str]) -> None:
    """MAIL, RCPT, DATA: up to here the server has nothing that it could deliver."""
    try:
        _expect(connection.mail(sender), "MAIL", _OK)
        for recipient in recipients:
            _expect(connection.rcpt(recipient), "RCPT", _OK, 251)
        _expect(connection.docmd("DATA"), "DATA", _START_MAIL)
    except (OSError, ValueError, smtplib.SMTPException) as error:
        raise NotExecuted(f"given up before the mail was sent: {type(error).__name__}") from None


def _on_the_wire(mail: EmailMessage) -> bytes:
    """With its dots doubled and its end marked (RFC 5321 §4.5.2); a line ends by CR LF alone: it has one end."""
    whole = mail.as_bytes(policy=_WIRE)
    if _BARE.search(whole):
        raise Failed("a mail whose lines end otherwise than by CR LF")
    lines = re.sub(rb"(?m)^\.", b"..", whole)
    return lines + (b"" if lines.endswith(b"\r\n") else b"\r\n") + b".\r\n"


def _hand_over(connection: smtplib.SMTP, lines: bytes) -> None:
    connection.send(lines)
    _expect(connection.getreply(), "the mail", _OK)


def _expect(reply: tuple[int, bytes], what: str, *accepted: int) -> None:
    """RFC 5321 §4.2.1: 4xx may be accepted later, 5xx not; either way the server has taken nothing on."""
    code = reply[0]
    if code in accepted:
        return
    if 400 <= code < 500:
        raise NotExecuted(f"SMTP {code} to {what}")
    if 500 <= code < 600:
        raise Failed(f"SMTP {code} to {what}")
    raise smtplib.SMTPResponseException(code, "unclear")
