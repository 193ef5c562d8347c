"""The tools that tell: one request each, and what is known of it, whatever the receiver does."""

import base64
import hashlib
import hmac
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from joserfc import jwt
from joserfc.jwk import ECKey

from aetheris.notifier import notice_tools
from aetheris.notifier.notice_tools import Notice
from aetheris.notifier.web_push import LARGEST
from aetheris.sdk import Failed, NotExecuted, ToolContext
from aetheris.sdk.toolkits.http import BodyTooLarge, UnclearResponse
from tests.testkit.notice_receivers import ToldRequest, WebReceiver, web_receiver

CONTEXT = ToolContext("aetheris:j-1:tell:0", 0, "k", "j-1", "tell")
KEY = "a key that signs"
POINT = 65


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[WebReceiver]:
    with web_receiver() as receiver:
        receiver.away = f"{receiver.url}/ok/inside"
        file = tmp_path / "notices.toml"
        file.write_text(_routes(receiver.url))
        monkeypatch.setenv("NOTICES_FILE", str(file))
        yield receiver


def _routes(url: str) -> str:
    hooks = "".join(
        f'[[channels]]\nname = "{name}"\nkind = "webhook"\nurl = "{url}{path}"\nsecret = "hook@1"\n{more}\n'
        for name, path, more in (
            ("hook", "/ok/hook", "private = true"),
            ("inside", "/ok/inside", ""),
            ("failing", "/status/500", "private = true"),
            ("refusing", "/status/403", "private = true"),
            ("limiting", "/status/429", "private = true"),
            ("huge", "/huge", "private = true"),
            ("away", "/away", "private = true"),
            ("again", "/ok/again", "private = true\ndeduplicates = true"),
        )
    )
    return f"""{hooks}
[[channels]]
name = "room"
kind = "slack"
secret = "room@1"
private = true
[[channels]]
name = "phone"
kind = "ntfy"
url = "{url}/ok/ntfy"
topic = "approvals"
private = true
[[channels]]
name = "browser"
kind = "push"
secret = "vapid@1"
subscription = "browser@1"
contact = "mailto:ops@example.org"
private = true
[[routes]]
name = "all"
tell = ["hook"]
"""


def notice(channel: str, *lines: str) -> Notice:
    return Notice(
        channel=channel, title="Approval asked: payout", lines=list(lines), link="https://c.example/approvals/1"
    )


async def hooked(channel: str) -> Any:
    return await notice_tools.webhook.function(CONTEXT, notice(channel, "Tool: payout"), KEY)


def only(web: WebReceiver, path: str) -> ToldRequest:
    (found,) = web.at(path)
    return found


async def test_a_webhook_is_signed_over_its_id_its_time_and_its_body(web: WebReceiver) -> None:
    assert await hooked("hook") == {"status": 200}
    sent = only(web, "/ok/hook")
    assert sent.headers["webhook-id"] == sent.headers["idempotency-key"] == CONTEXT.external_key
    signed = f"{CONTEXT.external_key}.{sent.headers['webhook-timestamp']}.".encode() + sent.body
    expected = base64.b64encode(hmac.new(KEY.encode(), signed, hashlib.sha256).digest()).decode()
    assert sent.headers["webhook-signature"] == f"v1,{expected}"
    assert json.loads(sent.body)["link"] == "https://c.example/approvals/1"


@pytest.mark.parametrize(
    ("channel", "raised"),
    [
        ("failing", UnclearResponse),
        ("away", UnclearResponse),
        ("huge", BodyTooLarge),
        ("refusing", Failed),
        ("limiting", NotExecuted),
        ("inside", Failed),
        ("nobody", Failed),
        ("phone", Failed),
        ("again", Failed),
    ],
)
async def test_what_the_receiver_does_is_what_is_known(web: WebReceiver, channel: str, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        await hooked(channel)
    assert web.at("/ok/inside") == [], "no redirect is followed, and no address that is not public is asked"
    assert len(web.requests) <= 1, "nothing is repeated"


async def test_without_a_file_that_can_be_used_nothing_is_sent(
    web: WebReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notices.toml").write_text("[[channels]]\n")
    with pytest.raises(NotExecuted):
        await hooked("hook")
    monkeypatch.delenv("NOTICES_FILE")
    with pytest.raises(NotExecuted):
        await hooked("hook")
    assert web.requests == []


async def test_a_room_takes_no_text_for_a_link_or_a_mention(web: WebReceiver) -> None:
    told = notice("room", "/note: <!channel> <http://evil.example|look> & co")
    await notice_tools.slack.function(CONTEXT, told, f"{web.url}/ok/room")
    text = json.loads(only(web, "/ok/room").body)["text"]
    assert "&lt;!channel&gt; &lt;http://evil.example|look&gt; &amp; co" in text
    assert text.endswith("<https://c.example/approvals/1>")


async def test_ntfy_is_told_as_its_documentation_has_it(web: WebReceiver) -> None:
    await notice_tools.ntfy.function(CONTEXT, notice("phone", "Größe"), "tk_token")
    sent = only(web, "/ok/ntfy")
    assert sent.headers["authorization"] == "Bearer tk_token"
    assert json.loads(sent.body) == {
        "topic": "approvals",
        "title": "Approval asked: payout",
        "message": "Größe",
        "priority": 3,
        "click": "https://c.example/approvals/1",
    }


async def test_a_push_is_what_the_browser_decrypts_signed_by_the_application_server(web: WebReceiver) -> None:
    browser, secret = ec.generate_private_key(ec.SECP256R1()), b"0123456789abcdef"
    server = ec.generate_private_key(ec.SECP256R1())
    pem = server.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    subscription = {"endpoint": f"{web.url}/ok/push", "keys": {"p256dh": _text(_point(browser)), "auth": _text(secret)}}
    lines = [f"line {number} {'x' * 190}" for number in range(100)]
    assert await notice_tools.push.function(CONTEXT, notice("browser", *lines), pem, json.dumps(subscription))
    sent = only(web, "/ok/push")
    said = json.loads(_decrypted(sent.body, browser, secret))
    assert said["title"] == "Approval asked: payout"
    assert said["url"] == "https://c.example/approvals/1"
    assert said["body"].startswith("line 0")
    assert (sent.headers["content-encoding"], sent.headers["ttl"]) == ("aes128gcm", "86400")
    token, _, public = sent.headers["authorization"].removeprefix("vapid t=").partition(", k=")
    assert public == _text(_point(server))
    claims = jwt.decode(token, ECKey.import_key(pem), algorithms=["ES256"]).claims
    assert claims["aud"] == web.url
    assert claims["sub"] == "mailto:ops@example.org"


@pytest.mark.parametrize(
    ("subscription", "key"),
    [
        ("{}", "no PEM"),
        ("[]", "no PEM"),
        ('{"endpoint": "https://x", "keys": {"p256dh": "AA", "auth": "AA"}}', "no PEM"),
        (
            json.dumps(
                {
                    "endpoint": "https://push.example",
                    "keys": {"p256dh": "B" + "A" * 86, "auth": base64.urlsafe_b64encode(b"0" * 16).decode()},
                }
            ),
            "no PEM",
        ),
    ],
)
async def test_a_subscription_that_is_none_fails_for_good_and_is_not_quoted(
    web: WebReceiver, subscription: str, key: str
) -> None:
    with pytest.raises(Failed) as refused:
        await notice_tools.push.function(CONTEXT, notice("browser"), key, subscription)
    assert "push.example" not in str(refused.value)
    assert web.requests == []


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _decrypted(body: bytes, browser: ec.EllipticCurvePrivateKey, secret: bytes) -> bytes:
    """RFC 8291 §3.4, by its letters: not by the library that has encrypted."""
    salt, length = body[:16], body[20]
    assert length == POINT
    theirs, sealed = body[21 : 21 + POINT], body[21 + POINT :]
    assert len(sealed) <= LARGEST + 17
    shared = browser.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs))
    ikm = _hkdf(secret, shared, b"WebPush: info\0" + _point(browser) + theirs, 32)
    key, nonce = (
        _hkdf(salt, ikm, f"Content-Encoding: {name}\0".encode(), size)
        for name, size in (("aes128gcm", 16), ("nonce", 12))
    )
    text, _, padding = AESGCM(key).decrypt(nonce, sealed, None).rpartition(b"\x02")
    assert padding.strip(b"\0") == b""
    return text


def _hkdf(salt: bytes, secret: bytes, info: bytes, size: int) -> bytes:
    return HKDF(hashes.SHA256(), size, salt, info).derive(secret)
