"""Mail that was sent, looked for where it arrived: a Maildir, and a real IMAP server over it (docs/toolkits.md)."""

import imaplib
import smtplib
import socket
import ssl
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from email.message import EmailMessage
from pathlib import Path

import pytest
from pysasl.hashing import BuiltinHash

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from aetheris.rigs.demo import servers
from aetheris.sdk import ProbeContext, StateChange, ToolContext
from aetheris.sdk.outcomes import Confirmed, Drifted
from aetheris.sdk.toolkits import smtp
from tests.testkit.attempts import fresh
from tests.testkit.external_server import until

pytestmark = [pytest.mark.nightly, pytest.mark.real]

WORD = "of ada"


@dataclass(frozen=True)
class Post:
    """aiosmtpd, which puts mail into a Maildir, and pymap, which shows that to ada."""

    server: smtp.SmtpServer
    maildir: Path
    box: smtp.Imap

    def send(self, key: str) -> StateChange:
        mail = EmailMessage()
        mail["From"], mail["Subject"] = "shop@example.org", key
        mail.set_content("Hello.\n")
        ctx = ToolContext(key, 0, "ab" * 32, "job", "node")
        return smtp.sent(smtp.send_now(ctx, self.server, mail, "ada@example.org"))

    def files(self, key: str) -> list[Path]:
        wanted = f"Message-ID: {smtp.message_id(key)}\n"
        every = [*(self.maildir / "new").iterdir(), *(self.maildir / "cur").iterdir()]
        return [one for one in every if wanted in one.read_text()]


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Generator[Post]:
    folder = tmp_path_factory.mktemp("post")
    (folder / "pymap-etc-passwd").write_text("ada:x::::mail:\n")
    (folder / "pymap-etc-shadow").write_text(f"ada:{BuiltinHash().hash(WORD)}:::::::\n")
    maildir, smtp_port = folder / "mail", free_port()
    imap_port = free_port(taken={smtp_port})
    imap = [str(Path(sys.executable).with_name("pymap")), "--host", "127.0.0.1", "--port", str(imap_port), "--no-tls"]
    with ExitStack() as running:
        for name, argv in (("smtp", servers.mail(smtp_port, maildir)), ("imap", [*imap, "maildir", str(folder)])):
            running.callback(end, spawn(argv, log=folder / f"{name}.log"), 5)
        until(lambda: greets(smtp_port, b"220") and greets(imap_port, b"* OK"), 60)
        box = smtp.Imap("127.0.0.1", "ada", WORD, imap_port, tls=False)
        yield Post(smtp.SmtpServer("127.0.0.1", smtp_port), maildir, box)


def greets(port: int, greeting: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            return connection.recv(len(greeting)) == greeting
    except OSError:
        return False


def asking(key: str) -> ProbeContext:
    return ProbeContext(key, "ab" * 32, "job", "node")


def test_a_mail_is_found_by_its_key_alone_and_stays_unread(post: Post) -> None:
    key = f"aetheris:{fresh('job_1.a-b')}:n.1:1"
    assert post.send("aetheris:other:n:0") is not None
    assert smtp.in_imap(asking(key), post.box) == []
    post.send(key)
    lookalike = f"From: a@b.example\r\nMessage-ID: {smtp.message_id(key)}x\r\nSubject: not it\r\n\r\nHello.\r\n"
    with closing(smtplib.SMTP("127.0.0.1", post.server.port)) as server:
        server.sendmail("a@b.example", "ada@example.org", lookalike)
    (head,) = smtp.in_imap(asking(key), post.box)
    assert (head["Subject"], head["To"]) == (key, "ada@example.org")
    for other in (f"{key}0", key[:-2], key[1:], "aetheris"):
        assert smtp.in_imap(asking(other), post.box) == []
    (file,) = post.files(key)
    assert (file.parent.name, "S" in file.name.partition(":2,")[2]) == ("new", False)


def test_what_is_gone_is_drift(post: Post) -> None:
    key = f"aetheris:{fresh('gone')}:n:0"
    change = post.send(key)
    assert isinstance(smtp.confirm_in_imap(asking(key), post.box, change), Confirmed)
    assert isinstance(smtp.confirm_in_maildir(post.maildir, change), Confirmed)
    for file in post.files(key):
        file.unlink()
    gone = Drifted({"mail": "is not in the mailbox"})
    assert smtp.confirm_in_imap(asking(key), post.box, change) == gone
    assert smtp.confirm_in_maildir(post.maildir, change) == gone


def test_a_box_that_cannot_say_is_no_answer(post: Post) -> None:
    with pytest.raises(smtp.MailboxUnclear):
        smtp.in_imap(asking("aetheris:j:n:0"), replace(post.box, folder='no "such" folder'))
    with pytest.raises(imaplib.IMAP4.error):
        smtp.in_imap(asking("aetheris:j:n:0"), replace(post.box, user="bob"))
    with pytest.raises(ConnectionRefusedError):
        smtp.in_imap(asking("aetheris:j:n:0"), replace(post.box, port=free_port()))
    with pytest.raises(ssl.SSLError):  # it speaks no TLS, and so hears no password
        smtp.in_imap(asking("aetheris:j:n:0"), replace(post.box, tls=True))
    with pytest.raises(FileNotFoundError):
        smtp.confirm_in_maildir(post.maildir / "none", smtp.sent("<a@aetheris>"))


@pytest.mark.parametrize("recorded", ['<a@aetheris>" OR ALL "', "<a@aetheris>\r\nX1 DELETE INBOX", "", "<a@b>", "*"])
def test_no_recorded_id_says_anything_else_to_a_server(recorded: str, tmp_path: Path) -> None:
    """Nothing listens on the port, and no Maildir is there: it isn't asked."""
    change = smtp.sent(recorded)
    nowhere = smtp.Imap("127.0.0.1", "ada", WORD, free_port(), tls=False)
    for verdict in (
        smtp.confirm_in_imap(asking("aetheris:j:n:0"), nowhere, change),
        smtp.confirm_in_maildir(tmp_path / "none", change),
    ):
        assert isinstance(verdict, Drifted)


def test_a_password_is_not_shown(post: Post) -> None:
    assert WORD not in repr(post.box)
