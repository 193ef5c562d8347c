"""Tokens of OpenID providers: who is believed, and each refusal; the provider here signs with keys of its own."""

import base64
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from aetheris.gateway.core import identity_providers
from aetheris.gateway.core.identity_providers import IdentityProvider, ProvidersFault
from aetheris.gateway.core.problems import TooMany, UnauthorizedProblem, Unavailable
from aetheris.gateway.logins import MAX_TOKEN_CHARS, Logins
from aetheris.gateway.openid import OpenId
from aetheris.gateway.signing_keys import REFRESH_S, STALE_AFTER_S
from aetheris.gateway.tokens import Tokens
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.runtime.telemetry.metrics import Metrics
from aetheris.testkit.clock import VirtualClock
from tests.testkit.tokens import token_of, write_tokens

ISSUER = "https://id.example.com"
KEYS_URL = "https://keys.example.com/jwks"
CLAIMS = {"tenant": "org", "roles": ["realm", "roles"]}
PROVIDER: dict[str, Any] = {
    "issuer": ISSUER,
    "audience": ["aetheris"],
    "claims": CLAIMS,
    "fixed": {"kind": "person"},
    "role_names": {"payouts": ["approve", "read"], "ops": ["operate"]},
}


class SigningProvider:
    """Signs, publishes its keys, and goes away."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.signing = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.published: list[Any] = [self.signing]
        self.away = False
        self.asked: list[str] = []
        self.description = {"issuer": ISSUER, "jwks_uri": KEYS_URL}

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def openid(self, **other: Any) -> OpenId:
        return OpenId([IdentityProvider.model_validate(PROVIDER | other)], self.http(), self.clock, dev=False)

    def claims(self, **other: Any) -> dict[str, Any]:
        now = int(self.clock.now().timestamp())
        body = {"iss": ISSUER, "aud": "aetheris", "sub": "ann", "exp": now + 600, "iat": now, "org": "acme"}
        body |= {"realm": {"roles": ["payouts", "unknown"]}} | other
        return {name: value for name, value in body.items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, key: Any = None, **other: Any) -> str:
        body = {"alg": "RS256", "kid": "one"} | (header or {})
        body = {name: value for name, value in body.items() if value is not None}
        return jwt.encode(body, self.claims(**other), key or self.signing, algorithms=[body["alg"]])

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url))
        if self.away:
            raise httpx.ConnectError("nobody there")
        if str(request.url) == KEYS_URL:
            keys = [one if isinstance(one, dict | str) else one.as_dict(private=False) for one in self.published]
            return httpx.Response(200, json={"keys": keys})
        return httpx.Response(200, json=self.description)


@pytest.fixture
def idp() -> SigningProvider:
    return SigningProvider()


async def reason(idp: SigningProvider, token: str, openid: OpenId | None = None) -> str:
    """Why it is refused."""
    with pytest.raises(UnauthorizedProblem) as refused:
        await (openid or idp.openid()).principal(token)
    return refused.value.reason


async def test_a_token_says_who_calls(idp: SigningProvider) -> None:
    openid = idp.openid()
    found = await openid.principal(idp.token())
    assert (found.id, found.tenant, found.kind) == ("ann", "acme", PrincipalKind.PERSON)
    assert found.roles == {Role.APPROVE, Role.READ}
    assert openid.tenants == {"acme"}
    assert idp.asked == [f"{ISSUER}/.well-known/openid-configuration", KEYS_URL]


Change = Callable[[SigningProvider], str]


def now(idp: SigningProvider) -> int:
    return int(idp.clock.now().timestamp())


def tampered(idp: SigningProvider) -> str:
    """Another's claims under the first one's signature."""
    head, _, signature = idp.token().split(".")
    return ".".join((head, idp.token(sub="root").split(".")[1], signature))


def by_hand(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A token as no library would make it."""
    signed = b".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    return b".".join((signed, encoded(sign(signed)))).decode()


def encoded(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def signed_with_the_public_key(idp: SigningProvider) -> str:
    """Algorithm confusion: the public key, which everybody has, taken for a shared secret."""
    secret = idp.signing.as_pem(private=False)
    header = {"alg": "HS256", "kid": "one"}
    return by_hand(header, idp.claims(), lambda signed: hmac.digest(secret, signed, "sha256"))


def unsigned(idp: SigningProvider) -> str:
    return by_hand({"alg": "none", "kid": "one"}, idp.claims(), lambda _: b"")


REFUSED: dict[str, tuple[Change, str]] = {
    "another audience": (lambda idp: idp.token(aud="billing"), "claims"),
    "audiences without ours": (lambda idp: idp.token(aud=["billing", "mail"]), "claims"),
    "an audience that only begins like ours": (lambda idp: idp.token(aud="aetheris-test"), "claims"),
    "no audience": (lambda idp: idp.token(aud=None), "claims"),
    "another issuer": (lambda idp: idp.token(iss="https://evil.example.com"), "issuer"),
    "no issuer": (lambda idp: idp.token(iss=None), "issuer"),
    "expired": (lambda idp: idp.token(exp=now(idp) - 31), "expired"),
    "without an end": (lambda idp: idp.token(exp=None), "claims"),
    "an end that is no number": (lambda idp: idp.token(exp="2030"), "claims"),
    "an end that no clock reaches": (lambda idp: idp.token(exp=float("nan")), "claims"),
    "not yet": (lambda idp: idp.token(nbf=now(idp) + 31), "not_yet"),
    "issued in the future": (lambda idp: idp.token(iat=now(idp) + 31), "not_yet"),
    "an unknown key": (lambda idp: idp.token({"kid": "two"}), "unknown_key"),
    "another's key under a known id": (lambda idp: idp.token(key=RSAKey.generate_key(2048)), "signature"),
    "another's claims": (tampered, "signature"),
    "HS256 with the public key": (signed_with_the_public_key, "algorithm"),
    "unsigned": (unsigned, "algorithm"),
    "an algorithm that is not allowed": (lambda idp: idp.token({"alg": "RS512"}), "algorithm"),
    "an algorithm of other keys": (
        lambda idp: idp.token({"alg": "ES256"}, ECKey.generate_key("P-256")), "signature"),
    "an end that no clock reaches, by hand": (
        lambda idp: by_hand({"alg": "RS256", "kid": "one"}, idp.claims(exp=float("inf")), lambda _: b"x"), "signature"),
    "a token for logging out": (lambda idp: idp.token({"typ": "logout+jwt"}), "type"),
    "no tenant": (lambda idp: idp.token(org=None), "claims"),
    "a tenant that is no name": (lambda idp: idp.token(org=["acme"]), "claims"),
    "a tenant with a control character": (lambda idp: idp.token(org="ac\nme"), "claims"),
    "nobody": (lambda idp: idp.token(sub=None), "claims"),
    "three parts of nothing": (lambda _: "a.b.c", "malformed"),
    "claims that are no object": (
        lambda idp: ".".join((idp.token().split(".")[0], "W10", idp.token().split(".")[2])), "malformed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused(idp: SigningProvider, name: str) -> None:
    change, why = REFUSED[name]
    openid = idp.openid()
    token = change(idp)
    assert await reason(idp, token, openid) == why
    assert openid.known(token) is None
    await openid.principal(idp.token())


async def test_a_key_that_a_token_brings_along_is_not_its_providers(idp: SigningProvider) -> None:
    known, own = (ECKey.generate_key("P-256", {"kid": "one"}) for _ in range(2))
    idp.published = [known]
    openid = idp.openid()
    await openid.principal(idp.token({"alg": "ES256"}, known))
    assert await reason(idp, idp.token({"alg": "ES256", "jwk": own.as_dict(private=False)}, own), openid) == "signature"


async def test_a_critical_header_is_not_passed_over(idp: SigningProvider) -> None:
    header = {"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False}
    assert await reason(idp, by_hand(header, idp.claims(), lambda _: b"x")) == "malformed"


async def test_clocks_may_be_apart_as_far_as_the_setting_says(idp: SigningProvider) -> None:
    openid = idp.openid()
    apart: dict[str, Any] = {"exp": now(idp) - 29, "nbf": now(idp) + 29, "iat": now(idp) + 29}
    for name, value in apart.items():
        said: dict[str, Any] = {"exp": now(idp) + 600, name: value}
        await openid.principal(idp.token(None, None, **said))
    strict = idp.openid(clock_skew_s=0)
    assert await reason(idp, idp.token(exp=now(idp)), strict) == "expired"


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("PS256", RSAKey.generate_key(2048, {"kid": "k"})),
        ("ES256", ECKey.generate_key("P-256", {"kid": "k"})),
        ("Ed25519", OKPKey.generate_key("Ed25519", {"kid": "k"})),
    ],
)
async def test_other_algorithms_of_public_keys_will_do(idp: SigningProvider, algorithm: str, key: Any) -> None:
    idp.published = [key]
    assert (await idp.openid().principal(idp.token({"alg": algorithm, "kid": "k"}, key))).id == "ann"


async def test_what_else_lies_among_the_keys_is_passed_over(idp: SigningProvider) -> None:
    secret = {"kty": "oct", "kid": "one", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}
    weak = rsa.generate_private_key(65537, 1024).public_key().public_numbers()  # noqa: S505  it is to be refused
    modulus = encoded(weak.n.to_bytes(128, "big")).decode()
    small = {"kty": "RSA", "kid": "weak", "n": modulus, "e": "AQAB"}
    encrypts = RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"}).as_dict(private=False)
    idp.published = [secret, {"kty": "AKP", "kid": "later"}, {}, "no key", small, encrypts, idp.signing.as_dict()]
    openid = idp.openid()
    await openid.principal(idp.token())
    for kid in ("weak", "enc", "later"):
        assert await reason(idp, idp.token({"kid": kid}), openid) == "unknown_key"


async def test_a_token_without_a_key_id_is_by_the_only_key(idp: SigningProvider) -> None:
    openid = idp.openid()
    await openid.principal(idp.token({"kid": None}))
    idp.published = [idp.signing, RSAKey.generate_key(2048, {"kid": "two"})]
    assert await reason(idp, idp.token({"kid": None})) == "unknown_key"


async def test_a_rotated_key_is_fetched_when_it_is_first_named_and_not_at_each_guess(idp: SigningProvider) -> None:
    openid = idp.openid()
    await openid.principal(idp.token())
    fetched = len(idp.asked)
    for number in range(100):
        assert await reason(idp, idp.token({"kid": f"guess-{number}"}), openid) == "unknown_key"
    assert len(idp.asked) == fetched
    rotated = RSAKey.generate_key(2048, {"kid": "two"})
    idp.published = [rotated]
    await idp.clock.advance(10.0)
    await openid.principal(idp.token({"kid": "two"}, rotated))
    assert len(idp.asked) == 2 * fetched


async def test_a_withdrawn_key_counts_no_more_once_that_is_known(idp: SigningProvider) -> None:
    openid = idp.openid()
    token = idp.token()
    await openid.principal(token)
    assert openid.known(token) is not None
    rotated = RSAKey.generate_key(2048, {"kid": "two"})
    idp.published = [rotated]
    await idp.clock.advance(10.0)
    await openid.principal(idp.token({"kid": "two"}, rotated))
    assert openid.known(token) is None
    assert await reason(idp, token, openid) == "unknown_key"


async def test_a_token_is_verified_once_and_known_until_it_ends(idp: SigningProvider) -> None:
    openid = idp.openid()
    token = idp.token(exp=now(idp) + 60)
    found = await openid.principal(token)
    idp.away = True
    await idp.clock.advance(89.0)
    assert openid.known(token) is found
    await idp.clock.advance(1.0)
    assert openid.known(token) is None


async def test_while_the_provider_is_away_its_keys_go_on_to_count_for_a_day(idp: SigningProvider) -> None:
    openid = idp.openid()
    await openid.principal(idp.token())
    idp.away = True
    await idp.clock.advance(STALE_AFTER_S - 1)
    await openid.principal(idp.token(jti="1"))
    await idp.clock.advance(2.0)
    with pytest.raises(Unavailable):
        await openid.principal(idp.token(jti="2"))
    idp.away = False
    await idp.clock.advance(10.0)
    (following,) = openid.follow()
    following.close()


async def test_a_provider_that_was_never_reached_is_no_refusal(idp: SigningProvider) -> None:
    idp.away = True
    with pytest.raises(Unavailable):
        await idp.openid().principal(idp.token())


@pytest.mark.parametrize(
    "description",
    [
        {"issuer": "https://evil.example.com", "jwks_uri": KEYS_URL},
        {"issuer": ISSUER, "jwks_uri": "http://keys.example.com/jwks"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER},
    ],
)
async def test_a_description_that_leads_elsewhere_is_not_followed(
    idp: SigningProvider, description: dict[str, str]
) -> None:
    idp.description = description
    with pytest.raises(Unavailable):
        await idp.openid().principal(idp.token())
    assert len(idp.asked) == 1


def test_keys_are_kept_fresh_in_the_background() -> None:
    assert REFRESH_S <= 600


KINDS = PROVIDER | {"fixed": {}, "claims": CLAIMS | {"kind": "azp"}, "kind_names": {"bot": "agent", "web": "person"}}


async def test_kinds_and_roles_come_of_claims_by_the_names_that_are_given(idp: SigningProvider) -> None:
    openid = idp.openid(**KINDS)
    assert (await openid.principal(idp.token(azp="bot"))).kind is PrincipalKind.AGENT
    assert await reason(idp, idp.token(azp="person"), openid) == "kind"
    assert await reason(idp, idp.token(), openid) == "kind"
    plain = idp.openid(claims={"tenant": "org", "roles": "scope"}, role_names={})
    assert (await plain.principal(idp.token(scope="openid read submit"))).roles == {Role.READ, Role.SUBMIT}
    for nothing in (None, 7, {"read": True}, ["Read", 7, None]):
        assert (await plain.principal(idp.token(scope=nothing, jti=str(nothing)))).roles == frozenset()


async def test_logins_know_both_and_a_token_of_the_file_is_no_jwt(idp: SigningProvider, tmp_path: Any) -> None:
    write_tokens(tmp_path, {"ann": "acme"})
    openid = idp.openid()
    logins = Logins(Tokens(tmp_path / "tokens.toml", idp.clock), openid, Metrics("gateway"), idp.clock)
    assert (await logins.principal(f"Bearer {token_of('ann')}", "192.0.2.1")).kind is PrincipalKind.PERSON
    jwt_token = f"bearer {idp.token()}"
    assert (await logins.principal(jwt_token, "192.0.2.1")).roles == {Role.APPROVE, Role.READ}
    assert logins.counts(jwt_token)
    await idp.clock.advance(630.0)
    assert not logins.counts(jwt_token)


def test_a_provider_that_could_be_forged_is_refused_by_name() -> None:
    good = """
[[provider]]
issuer = "https://id.example.com"
audience = ["aetheris"]
[provider.claims]
tenant = "org"
roles = ["realm", "roles"]
[provider.fixed]
kind = "person"
"""
    (found,) = identity_providers.parsed(good, dev=False)
    assert found.claims.roles == ("realm", "roles")
    wrong = {
        "provider = 7": "names no provider",
        "": "names no provider",
        "[[provider": "not valid TOML",
        good.replace("https", "http"): r"provider\[0\].issuer: must begin with https",
        good.replace('["aetheris"]', "[]"): r"provider\[0\].audience",
        good.replace("[provider.claims]", 'algorithms = ["HS256"]\n[provider.claims]'): r"provider\[0\].algorithms",
        good.replace("[provider.claims]", 'algorithms = ["none"]\n[provider.claims]'): r"provider\[0\].algorithms",
        good.replace("[provider.claims]", "clock_skew_s = 3600\n[provider.claims]"): r"provider\[0\].clock_skew_s",
        good.replace('tenant = "org"\n', ""): "tenant: either in claims or in fixed",
        good.replace('kind = "person"', 'kind = "person"\ntenant = "acme"'): "tenant: either in claims or in fixed",
        good.replace('kind = "person"', 'kind = "god"'): r"provider\[0\].fixed.kind",
        good + good: "named twice",
    }
    for text, wording in wrong.items():
        with pytest.raises(ProvidersFault, match=wording):
            identity_providers.parsed(text, dev=False)
    assert identity_providers.parsed(good.replace("https://id.example.com", "http://127.0.0.1:3000"), dev=True)
    with pytest.raises(ProvidersFault):
        identity_providers.parsed(good.replace("https://id.example.com", "http://id.example.com"), dev=True)


class Refusals:
    """What metrics were counted."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def count(self, _metric: Any, *, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture
def counted() -> Refusals:
    return Refusals()


@pytest.fixture
def logins(tmp_path: Any, counted: Refusals) -> Logins:
    clock = VirtualClock()
    write_tokens(tmp_path, {"ann": "acme"})
    metrics: Any = counted
    return Logins(Tokens(tmp_path / "tokens.toml", clock), None, metrics, clock)


async def test_guesses_are_slowed_and_a_good_token_is_let_in(logins: Logins, counted: Refusals) -> None:
    address, answers = "192.0.2.1", list[str]()
    for number in range(1000):
        try:
            await logins.principal(f"Bearer {token_of(str(number))}", address)
        except TooMany as slowed:
            answers.append(f"429 after {slowed.retry_after_s}")
        except UnauthorizedProblem:
            answers.append("401")
        if number % 100 == 0:
            assert (await logins.principal(f"Bearer {token_of('ann')}", address)).id == "ann"
    assert answers == ["401"] * 20 + ["429 after 5"] * 980
    assert counted.reasons == ["unknown"] * 20 + ["throttled"] * 980


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (None, "none"),
        ("", "none"),
        ("Bearer", "short"),
        ("Bearer ", "short"),
        ("Bearer guess-me", "short"),
        (f"Basic {token_of('ann')}", "scheme"),
        (token_of("ann"), "scheme"),
        (f"Bearer {token_of('eve')}", "unknown"),
        ("Bearer " + "a" * MAX_TOKEN_CHARS, "oversized"),
        ("Bearer a.b.c", "short"),
    ],
)
async def test_each_refusal_is_counted_and_logged_without_the_token(
    logins: Logins, counted: Refusals, capsys: pytest.CaptureFixture[str], header: str | None, reason: str
) -> None:
    with pytest.raises(UnauthorizedProblem) as refused:
        await logins.principal(header, "192.0.2.1")
    assert counted.reasons == [reason] == [refused.value.reason]
    printed = capsys.readouterr()
    line = printed.out + printed.err
    assert ("login refused" in line, reason in line, "192.0.2.1" in line) == (True, True, True)
    assert token_of("eve") not in line
    assert "guess-me" not in line


async def test_a_known_token_costs_microseconds(logins: Logins) -> None:
    """Generous, as the machine may be busy; reading the file for each request would be many times that."""
    header, took_s = f"Bearer {token_of('ann')}", list[float]()
    for _ in range(300):
        began_s = time.perf_counter()
        await logins.principal(header, "192.0.2.1")
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < 50e-6
