"""HTTP and mail for tools, against real servers: what was sent, and what may be said of it (docs/tools.md)."""

import asyncio
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

import pytest

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from aetheris.sdk import Failed, Found, NotExecuted, ProbeContext, ToolContext, tool
from aetheris.sdk.invoke import ask_probe, invoke
from aetheris.sdk.outcomes import InDoubt, NotFound, Retryable, Succeeded
from aetheris.sdk.toolkits import http, smtp
from tests.testkit.external_server import running_outside, until

CTX = ToolContext("aetheris:job-1:n.1:0", 0, "ab" * 32, "job-1", "n.1", traceparent=f"00-{'1' * 32}-{'2' * 16}-01")
Peer = Callable[[socket.socket], None]


@contextmanager
def peer(talk: Peer) -> Generator[tuple[str, list[int]]]:
    """A TCP server that handles each connection by `talk`; gives host:port and a list that grows by connection."""
    connections: list[int] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connections.append(1)
            talk(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", connections
        finally:
            server.shutdown()


def request_of(connection: socket.socket) -> bytes:
    """The head of a request and its body."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += connection.recv(65536)
    length = re.search(rb"(?i)content-length: (\d+)", seen)
    while length and len(seen.partition(b"\r\n\r\n")[2]) < int(length[1]):
        seen += connection.recv(65536)
    return seen


def answering(status: int, seen: list[bytes] | None = None) -> Peer:
    def talk(connection: socket.socket) -> None:
        request = request_of(connection)
        if seen is not None:
            seen.append(request)
        head = f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\nLocation: /\r\nConnection: close\r\n\r\n{{}}"
        connection.sendall(head.encode())

    return talk


def dropping(connection: socket.socket) -> None:
    """Takes the request, which may now take effect, and says nothing."""
    request_of(connection)


def half(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


def http_tool(address: str, **options: Any) -> Any:
    @tool("post", effect_class="opaque", irreversible=False)
    async def post(ctx: ToolContext) -> Any:
        response = await http.call(ctx, "POST", f"http://{address}/x", json={}, transport=http.direct(), **options)
        return response.json()

    return post


async def test_one_request_with_the_external_key_and_the_trace() -> None:
    seen: list[bytes] = []
    with peer(answering(200, seen)) as (address, _):
        assert await invoke(http_tool(address), {}, CTX) == Succeeded({})
    assert len(seen) == 1
    assert b"\r\nIdempotency-Key: aetheris:job-1:n.1:0\r\n" in seen[0]
    assert f"\r\ntraceparent: {CTX.traceparent}\r\n".encode() in seen[0]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (201, None),
        (307, http.UnclearResponse),
        (400, Failed),
        (401, NotExecuted),
        (404, Failed),
        (408, http.UnclearResponse),
        (409, http.UnclearResponse),
        (412, http.UnclearResponse),
        (422, Failed),
        (429, NotExecuted),
        (500, http.UnclearResponse),
        (502, http.UnclearResponse),
        (503, http.UnclearResponse),
    ],
)
async def test_what_a_status_says(status: int, expected: type[Exception] | None) -> None:
    with peer(answering(status)) as (address, connections):
        sending = http.call(CTX, "POST", f"http://{address}/x", json={}, transport=http.direct())
        if expected is None:
            assert (await sending).status_code == status
        else:
            with pytest.raises(expected, match=str(status)):
                await sending
    assert len(connections) == 1


async def test_a_deletes_404_may_be_about_its_own_first_copy() -> None:
    with peer(answering(404)) as (address, _), pytest.raises(http.UnclearResponse):
        await http.call(CTX, "DELETE", f"http://{address}/x", transport=http.direct())


async def test_refusals_are_the_authors_to_set() -> None:
    with peer(answering(404)) as (address, _):
        outcome = await invoke(http_tool(address, refusals=http.REFUSALS.but(404)), {}, CTX)
    assert outcome == InDoubt("UnclearResponse")


async def test_nothing_was_sent_where_nobody_listens() -> None:
    outcome = await invoke(http_tool(f"127.0.0.1:{free_port()}"), {}, CTX)
    assert outcome == Retryable("nothing was sent: ConnectError")


async def test_nothing_was_sent_where_there_is_no_such_host() -> None:
    outcome = await invoke(http_tool("no-such-host.invalid"), {}, CTX)
    assert outcome == Retryable("nothing was sent: ConnectError")


async def test_nothing_was_sent_where_tls_fails() -> None:
    def no_tls(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"what?\r\n")

    with peer(no_tls) as (address, _), pytest.raises(NotExecuted):
        await http.call(CTX, "POST", f"https://{address}/x", transport=http.direct())


@pytest.mark.parametrize(("talk", "error"), [(dropping, "RemoteProtocolError"), (half, "RemoteProtocolError")])
async def test_once_sent_no_answer_is_in_doubt_and_nothing_is_sent_again(talk: Peer, error: str) -> None:
    with peer(talk) as (address, connections):
        assert await invoke(http_tool(address), {}, CTX) == InDoubt(error)
    assert len(connections) == 1


async def test_a_held_answer_is_in_doubt_and_the_outside_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_outside(tmp_path) as external:
        monkeypatch.setenv("OUTSIDE_URL", external.url)
        from tests.testkit.external_tools import poke_opaque, poke_probeable, poke_pure

        held = external.hold("net")
        asking = ProbeContext(CTX.external_key, CTX.idempotency_key, CTX.job_id, CTX.node_id)
        assert isinstance(await ask_probe(poke_probeable, asking, 10), NotFound)
        call = asyncio.create_task(invoke(poke_probeable, {"tag": "a", "hold": "net"}, CTX))
        await asyncio.to_thread(external.wait_for, 1)
        call.cancel()
        answer = await ask_probe(poke_probeable, asking, 10)
        assert isinstance(answer, Found)
        assert (answer.result, answer.external_id) == ({"poked": "a"}, "1")
        held.unlink()
        assert await invoke(poke_pure, {"tag": "p"}, CTX) == Succeeded({"tag": "p"})
        outcome = await invoke(poke_opaque, {"tag": "b"}, CTX)
        assert isinstance(outcome, Succeeded)
        assert outcome.external_id == "2"
        assert external.count() == 2
        assert [effect["key"] for effect in external.effects(tag="b")] == [CTX.external_key]


@contextmanager
def mail_server(folder: Path) -> Generator[tuple[smtp.SmtpServer, Path]]:
    port, maildir = free_port(), folder / "maildir"
    handler = ["-c", "aiosmtpd.handlers.Mailbox", str(maildir)]
    argv = [sys.executable, "-m", "aiosmtpd", "-n", "-l", f"127.0.0.1:{port}", *handler]
    child = spawn(argv, log=folder / "smtp.log")
    try:
        until(lambda: answers(port), 60)
        yield smtp.SmtpServer("127.0.0.1", port), maildir
    finally:
        end(child, 5)


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            return connection.recv(3) == b"220"
    except OSError:
        return False


ADA = "ada@example.org"


def letter(body: str = "Hello.\n.hidden\n..\n") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "The Shop <shop@example.org>", "Grüße"
    mail.set_content(body)
    return mail


async def test_a_mail_arrives_once_and_is_found_by_its_key(tmp_path: Path) -> None:
    ctx = ToolContext(f"aetheris:{'j' * 64}:{'n.' * 31}:12", 12, "ab" * 32, "j", "n")
    with mail_server(tmp_path) as (server, maildir):
        assert smtp.in_maildir(maildir, ctx.external_key) == []
        sent = await smtp.send(ctx, server, letter(), [ADA, "bob@example.org"])
        await smtp.send(CTX, server, letter(), ADA)
        assert sent == smtp.message_id(ctx.external_key)
        assert len(smtp.in_maildir(maildir, ctx.external_key)) == 1
        assert len(smtp.in_maildir(maildir, CTX.external_key)) == 1
        text = str(smtp.in_maildir(maildir, CTX.external_key)[0].get_payload())
    assert text == "Hello.\n.hidden\n..\n"


def test_no_two_keys_share_a_message_id() -> None:
    keys = ["aetheris:a:b:0", "aetheris:a.b:0:0", "aetheris:a_b:0:0", "aetheris:a..b:0:0", "a+b", "a=3Ab", "a b", "ä"]
    ids = {smtp.message_id(key) for key in keys}
    assert len(ids) == len(keys)
    assert all(re.fullmatch(r"<[A-Za-z0-9_+=-]+@aetheris>", one) for one in ids)
    assert smtp.message_id("aetheris:job-1:n1:0") == "<aetheris+job-1+n1+0@aetheris>"


def test_no_maildir_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        smtp.in_maildir(tmp_path / "none", CTX.external_key)


def mail_peer(**replies: str) -> Peer:
    """A mail server that answers as told; `hangs` up after a command whose reply is empty."""

    def talk(connection: socket.socket) -> None:
        lines = connection.makefile("rb")
        connection.sendall(b"220 peer\r\n")
        defaults = {"DATA": "354 go on", "QUIT": "221 bye", **replies}
        for line in lines:
            verb = line[:4].decode().upper().strip()
            if not reply(connection, defaults.get(verb, "250 ok")):
                return
            if verb == "DATA" and defaults["DATA"].startswith("354"):
                next(one for one in lines if one == b".\r\n")
                if not reply(connection, defaults.get("END", "250 ok")):
                    return

    return talk


def reply(connection: socket.socket, text: str) -> bool:
    if text:
        connection.sendall(text.encode() + b"\r\n")
    return bool(text)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ({}, None),
        ({"EHLO": "421 busy", "HELO": "421 busy"}, NotExecuted),
        ({"MAIL": "451 later"}, NotExecuted),
        ({"MAIL": "550 never"}, Failed),
        ({"RCPT": "450 later"}, NotExecuted),
        ({"RCPT": "550 nobody"}, Failed),
        ({"RCPT": ""}, NotExecuted),
        ({"DATA": "451 later"}, NotExecuted),
        ({"DATA": "554 never"}, Failed),
        ({"DATA": ""}, NotExecuted),
        ({"END": "452 full"}, NotExecuted),
        ({"END": "554 spam"}, Failed),
        ({"END": ""}, OSError),
        ({"END": "hm"}, OSError),
    ],
)
async def test_what_a_mail_servers_answer_says(replies: dict[str, str], expected: type[Exception] | None) -> None:
    with peer(mail_peer(**replies)) as (address, connections):
        server = smtp.SmtpServer("127.0.0.1", int(address.rpartition(":")[2]))
        if expected is None:
            await smtp.send(CTX, server, letter(), ADA)
        else:
            with pytest.raises(expected):
                await smtp.send(CTX, server, letter(), ADA)
    assert len(connections) == 1


async def test_no_mail_server_means_no_mail() -> None:
    with pytest.raises(NotExecuted, match="no connection: ConnectionRefusedError"):
        await smtp.send(CTX, smtp.SmtpServer("127.0.0.1", free_port()), letter(), ADA)


async def test_a_mail_that_cannot_be_written_is_refused_before_it_is_announced() -> None:
    with pytest.raises(Failed):
        await smtp.send(CTX, smtp.SmtpServer("127.0.0.1", 1), EmailMessage(), ADA)


@pytest.mark.parametrize(
    "to",
    [
        *("ada@example.org, eve@example.org", "ada@example.org;eve@example.org", "ada@example.org eve@example.org"),
        *("Ada <eve@example.org>", '"ada@example.org" <eve@example.org>', "friends: ada@example.org, eve@example.org;"),
        *("ada@example.org\r\nBcc: eve@example.org", "ada@example.org\nRCPT TO:<eve@example.org>", "ada@example.org\n"),
        *('"ada, eve"@example.org', "<ada@example.org>", "ada(eve@example.org)@example.org", "@relay:ada@example.org"),
        *(
            "ada%example.org@relay.example.org",
            "relay!ada@example.org",
            "ada@[127.0.0.1]",
            "ada@example..org",
            "ada",
            "",
        ),
        *("\uff41da@example.org", "ada@example.org\x00", f"{'a' * 65}@example.org", f"a@{'b.' * 130}org"),
    ],
)
async def test_an_argument_names_one_recipient(to: str) -> None:
    """A model, or whoever talks it into it, wrote a second address into the only one that it may fill in."""
    server = smtp.SmtpServer("127.0.0.1", 1)
    for addresses in ({"to": to}, {"to": [ADA, to]}, {"to": ADA, "cc": [to]}, {"to": ADA, "bcc": [to]}):
        with pytest.raises(Failed, match="one address"):
            await smtp.send(CTX, server, letter(), **cast("Any", addresses))
    mail = letter()
    for header in ("To", "Cc", "Bcc", "bcc"):
        mail[header] = "eve@example.org"
        with pytest.raises(Failed, match="not in its headers"):
            await smtp.send(CTX, server, mail, ADA)
        del mail[header]


async def test_all_who_are_named_are_announced_and_bcc_is_not_shown() -> None:
    said: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        lines = connection.makefile("rb")
        connection.sendall(b"220 peer\r\n")
        for line in lines:
            said.append(line)
            connection.sendall(b"354 go on\r\n" if line == b"DATA\r\n" else b"250 ok\r\n")
            if line == b"DATA\r\n":
                said.extend(iter(lines.readline, b".\r\n"))
                connection.sendall(b"250 ok\r\n")

    with peer(talk) as (address, _):
        server = smtp.SmtpServer("127.0.0.1", int(address.rpartition(":")[2]))
        await smtp.send(CTX, server, letter(), ADA, cc=["bob@example.org"], bcc=["log@example.org"])
    assert [one for one in said if one.startswith(b"rcpt")] == [
        b"rcpt TO:<ada@example.org>\r\n",
        b"rcpt TO:<bob@example.org>\r\n",
        b"rcpt TO:<log@example.org>\r\n",
    ]
    text = b"".join(said[said.index(b"DATA\r\n") :])
    assert b"To: ada@example.org\r\nCc: bob@example.org\r\n" in text
    assert b"log@example.org" not in text


async def test_starttls_that_is_not_offered_sends_no_mail() -> None:
    with peer(mail_peer()) as (address, _):
        server = smtp.SmtpServer("127.0.0.1", int(address.rpartition(":")[2]), starttls=True)
        with pytest.raises(NotExecuted, match="refused at the door"):
            await smtp.send(CTX, server, letter(), ADA)
