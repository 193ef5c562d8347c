"""Tokens of people in tests: each may do everything in his tenant, where nothing else is said."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aetheris.cli import token_files
from aetheris.gateway.core.token_entries import MIN_TOKEN_CHARS, TokenEntry
from aetheris.protocol.base.principals import PrincipalKind, Role


def token_of(who: str) -> str:
    """Long enough, and known beforehand."""
    return f"token-of-{who}-".ljust(MIN_TOKEN_CHARS, "0")


def headers_of(who: str) -> dict[str, str]:
    """What a request of theirs carries."""
    return {"Authorization": f"Bearer {token_of(who)}"}


def entry_of(
    who: str,
    tenant: str = "default",
    *,
    roles: Sequence[Role] = tuple(Role),
    kind: PrincipalKind = PrincipalKind.PERSON,
) -> TokenEntry:
    """What the gateway is told of their token."""
    return token_files.entry(token_of(who), who, tenant, kind=kind, roles=roles)


def write_tokens(data: Path, tenants: Mapping[str, str], *more: TokenEntry) -> None:
    """Tokens of these people (name → tenant), and more; commands speak by the first one's where none is named."""
    for who in tenants:
        token_files.save(data, who, token_of(who))
    token_files.save(data, token_files.AGENT, token_of(next(iter(tenants))))
    with token_files.changed(data / "tokens.toml") as entries:
        entries[:] = [*(entry_of(who, tenant) for who, tenant in tenants.items()), *more]
