"""An OpenID provider on this machine, as far as a gateway asks it: description and keys. It signs what it is told."""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey

from tests.testkit.local_site import running_site

AUDIENCE = "aetheris"
_CLAIMS = '[provider.claims]\ntenant = "org"\nroles = "roles"\n[provider.fixed]\nkind = "person"\n'


@dataclass(frozen=True)
class SigningSite:
    """Where it is, and its key."""

    issuer: str
    key: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "one"}))

    @property
    def believed(self) -> str:
        """The gateway's file of providers."""
        return f'[[provider]]\nissuer = "{self.issuer}"\naudience = ["{AUDIENCE}"]\n{_CLAIMS}'

    def token(self, key: ECKey | None = None, **other: Any) -> str:
        """One for Zoe of acme, who may read, with other claims where they are given; None: without it."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "zoe", "org": "acme", "roles": ["read"], "exp": now + 600}
        said = {name: value for name, value in (claims | other).items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": "one"}, said, key or self.key, algorithms=["ES256"])


@contextmanager
def running_provider() -> Generator[SigningSite]:
    """Until the end of the block."""
    with running_site() as site:
        provider = SigningSite(f"http://127.0.0.1:{site.port}")
        described = {"issuer": provider.issuer, "jwks_uri": f"{provider.issuer}/keys"}
        keys = {"keys": [provider.key.as_dict(private=False)]}
        for path, body in (("/.well-known/openid-configuration", described), ("/keys", keys)):
            site.pages[path] = ("application/json", json.dumps(body).encode())
        yield provider
