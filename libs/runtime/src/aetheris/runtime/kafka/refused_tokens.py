"""aiokafka takes a broker's refusal of a token (OAUTHBEARER) for its consent, and goes on as if it was logged in.

A broker that refuses one says why in a challenge, with no error code (RFC 7628 §3.2.2); who consents says nothing.
"""

from typing import Any

from aiokafka.conn import OAuthAuthenticator
from aiokafka.errors import SaslAuthenticationFailed

_step: Any = OAuthAuthenticator.step


async def _step_on(authenticator: OAuthAuthenticator, payload: bytes | None) -> Any:
    if payload:
        raise SaslAuthenticationFailed("the broker refuses the token")
    return await _step(authenticator, payload)


def mend() -> None:
    """From now on, in this process."""
    setattr(OAuthAuthenticator, "step", _step_on)  # noqa: B010  whose own says otherwise
