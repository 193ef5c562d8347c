"""An approver's passkey by the command line: what its page takes, from whom, and what becomes of it."""

import base64
import hashlib
import http.client
import json
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from aetheris.cli import new_passkey, page_server, passkey_signatures
from aetheris.cli.console import CommandError
from aetheris.cli.page import exact
from aetheris.cli.page_server import PageAnswerRefused, PersonalPage, answer, served
from aetheris.cli.passkey_signatures import KnownPasskey
from aetheris.console.core.passkey_answers import OwnPasskey
from aetheris.protocol.base.allowed_signers import parse_signers
from aetheris.protocol.base.sshsig import read_key, read_signature, signed_bytes
from aetheris.protocol.planning.approval_text import NAMESPACE
from tests.testkit.passkeys import FLAGS, Passkey, client_data_of

KEY = Passkey(1)
BOB = KnownPasskey("bob", OwnPasskey(read_key(KEY.key), "AQID"))
MESSAGE = b'aetheris approval 1\nrequest: "j:1"\n'
CHALLENGE = signed_bytes(NAMESPACE.encode(), b"sha512", MESSAGE)
ORIGIN = b"http://localhost:8123"


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def made(
    key: Passkey = KEY,
    *,
    challenge: bytes = CHALLENGE,
    host: bytes = b"localhost",
    flags: int = FLAGS,
    name: str = "AQID",
    cut: int = 37,
) -> bytes:
    """What a browser sends of an assertion."""
    data = hashlib.sha256(host).digest() + bytes([flags]) + bytes(4)
    data = data[:cut]
    client_data = client_data_of(challenge, ORIGIN, b',"crossOrigin":false}')
    signature = key.private.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(SHA256()))
    parts = {"authenticatorData": data, "clientDataJSON": client_data, "signature": signature}
    return json.dumps({"id": name, "response": {one: text(value) for one, value in parts.items()}}).encode()


def signature(body: bytes) -> str:
    return passkey_signatures.signature_of(body, MESSAGE, {BOB.made.credential: BOB.key})


def test_what_a_browser_makes_becomes_an_ssh_signature() -> None:
    found = read_signature(signature(made()))
    assert (found.key, found.holds(MESSAGE)) == (BOB.key, True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (made(Passkey(2)), "something else"),
        (made(challenge=CHALLENGE + b"x"), "something else"),
        (made(challenge=hashlib.sha256(MESSAGE).digest()), "something else"),
        (made(host=b"evil.example"), "something else"),
        (made(flags=1), "did not verify"),
        (made(cut=36), "can't be used"),
        (made(cut=0), "can't be used"),
        (made(name="other"), "another passkey"),
        (b"", "no JSON object"),
        (b"[" * 10_000, "no JSON object"),
        (b"[]", "no JSON object"),
        (b"{}", "another passkey"),
        (b'{"id":"AQID","response":1}', "another passkey"),
        (b'{"id":"AQID","response":{}}', "can't be used|base64url"),
        (b'{"id":"AQID","response":{"authenticatorData":"","clientDataJSON":"MQ","signature":""}}', "can't be used"),
        (made().replace(b'"signature": "', b'"signature": "="'[:-1]), "base64url|can't be used"),
    ],
)
def test_what_was_not_asked_for_is_refused_on_the_page(body: bytes, why: str) -> None:
    with pytest.raises(PageAnswerRefused, match=why):
        signature(body)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"id":"a","rawId":"a","type":"public-key","response":{}}'])
def test_no_passkey_is_made_of_anything_else(body: bytes) -> None:
    with pytest.raises(PageAnswerRefused):
        new_passkey.made_of(body, "bob", b"c" * 32, "http://localhost:1")


@pytest.mark.parametrize("name", ["", "a b", "a,b", "*", "b?b", "!bob", "#bob", 'b"', "b\nc", "b\u200bc", "b\\"])
def test_a_name_that_means_more_in_a_file_of_signers_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match="NAME"):
        new_passkey.add(name, tmp_path, opens=False)


def test_the_file_is_read_as_it_was_written_and_its_lines_are_allowed_signers(tmp_path: Path) -> None:
    (tmp_path / passkey_signatures.FILE).write_text(
        BOB.line + "\n" + KnownPasskey("carol", OwnPasskey(BOB.key, "AA")).line + "\n"
    )
    assert passkey_signatures.known(tmp_path, "bob") == [BOB]
    with pytest.raises(CommandError, match="passkey add dan"):
        passkey_signatures.known(tmp_path, "dan")
    (line,) = parse_signers(BOB.line).lines
    assert (line.principals, line.key, line.namespaces) == (("bob",), BOB.key, (NAMESPACE,))
    (tmp_path / passkey_signatures.FILE).write_text(BOB.line.replace("AAAA", "AAAB") + "\n")
    with pytest.raises(CommandError, match="line 1"):
        passkey_signatures.known(tmp_path, "bob")


def test_whatever_can_not_be_seen_is_written_out_and_reads_back() -> None:
    value = {"a": "\u202eb\u200b\x7f\x85\ud7ff\U000e0041 \\u202e é 日本"}
    shown = exact(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(shown) == value
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert "é 日本" in shown


Ask = Callable[..., tuple[int, str]]


def asking(page: PersonalPage) -> Ask:
    def ask(method: str, path: str, body: bytes = b"", host: str | None = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
        named: Mapping[str, str] = {"Host": host or f"localhost:{page.port}"}
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, {**named, **more})
        response = connection.getresponse()
        found = response.status, response.read().decode()
        connection.close()
        return found

    return ask


def taken(body: bytes) -> str:
    if body == b"bad":
        raise PageAnswerRefused("not this")
    return body.decode()


def test_the_page_is_for_who_knows_it_takes_one_answer_and_is_gone() -> None:
    page = PersonalPage(lambda nonce: f"page {nonce}", taken)
    with served(page):
        ask, path = asking(page), f"/{page.secret}"
        own = {"Origin": page.origin, "Content_Type": "application/json"}
        assert len(page.secret) >= 40
        assert ask("GET", path)[1].startswith("page ")
        assert ask("GET", path)[1] != ask("GET", path)[1], "each has a nonce of its own"
        for other in ("/", "/x", f"{path}/", path[:-1], f"{path}?a=b", "/%00"):
            assert ask("GET", other)[0] == 404, other
            assert ask("POST", other, b"good", **own)[0] == 404, other
        for host in ("evil.example", f"127.0.0.1:{page.port}", "localhost", f"localhost:{page.port + 1}"):
            assert ask("GET", path, host=host)[0] == 404, host
            assert ask("POST", path, b"good", host=host, **own)[0] == 404, host
        for wrong in (
            {},
            {**own, "Origin": "http://evil.example"},
            {**own, "Origin": "null"},
            {**own, "Content_Type": "text/plain"},
            {"Content_Type": "application/json"},
        ):
            assert ask("POST", path, b"good", **wrong)[0] == 403, wrong
        assert ask("POST", path, b"x" * (page_server.MAX_BODY + 1), **own)[0] == 413
        assert ask("POST", path, b"bad", **own) == (400, "not this")
        assert not page.answered.is_set()
        assert ask("POST", path, b"good", **own)[0] == 200
        assert ask("POST", path, b"later", **own)[0] == 410
        assert answer(page, opens=False, within_s=10) == "good"
    with pytest.raises(OSError, match="refused"):
        asking(page)("GET", f"/{page.secret}")


def test_of_answers_that_come_at_once_one_is_taken() -> None:
    met = threading.Barrier(2, timeout=0.5)

    def both(body: bytes) -> bytes:
        """Waits for a second answer that is being judged, too: there is none."""
        with suppress(threading.BrokenBarrierError):
            met.wait()
        return body

    page = PersonalPage(str, both)
    found: list[int] = []
    with served(page):
        own = {"Origin": page.origin, "Content_Type": "application/json"}

        def post() -> None:
            found.append(asking(page)("POST", f"/{page.secret}", b"good", **own)[0])

        threads = [threading.Thread(target=post) for _ in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert sorted(found) == [200] + [410] * 7


def test_who_says_nothing_keeps_nobody_else_away() -> None:
    page = PersonalPage(str, taken)
    with served(page), socket.create_connection(("127.0.0.1", page.port)):
        assert asking(page)("GET", f"/{page.secret}")[0] == 200


def test_nobody_else_can_have_its_port_on_the_other_address() -> None:
    page = PersonalPage(str, taken)
    with served(page):
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as other, pytest.raises(OSError, match=r"in use|assign|support"):
                other.bind((host, page.port))


def test_where_nobody_answers_it_ends() -> None:
    page = PersonalPage(str, taken)
    with served(page), pytest.raises(CommandError, match="nobody answered"):
        answer(page, opens=False, within_s=0.05)


def test_the_signing_page_names_who_signs_what_and_asks_for_his_keys_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []

    def kept(page: PersonalPage, *, opens: bool) -> Any:
        pages.append(page.html("N"))
        return page.take(made()) if not opens else None

    monkeypatch.setattr(passkey_signatures, "answer", kept)
    assert read_signature(passkey_signatures.signed(MESSAGE, {"a": "<b>"}, [BOB], opens=False)).holds(MESSAGE)
    assert "<b>" not in pages[0]
    assert "&lt;b&gt;" in pages[0]
    assert text(CHALLENGE) in pages[0]
    assert "AQID" in pages[0]


def test_what_a_browser_is_called_with_does_not_tell_others_where_the_page_is(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PersonalPage(lambda _nonce: "", bytes)
    called: list[str] = []

    def opened(url: str) -> bool:
        called.append(url)
        leads = Path(urlsplit(url).path)
        assert page.url in leads.read_text()
        assert (leads.stat().st_mode & 0o777, leads.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        page.answer = b"good"
        page.answered.set()
        return True

    monkeypatch.setattr(webbrowser, "open", opened)
    with served(page):
        assert answer(page, opens=True, within_s=10) == b"good"
    (url,) = called
    assert url.startswith("file:///")
    assert page.secret not in url
    assert not Path(urlsplit(url).path).exists()
