"""The file of tokens: who has one, what he may do with it, and until when (docs/identity.md). Never a token itself."""

import json
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from aetheris.gateway.core.principal import Principal
from aetheris.protocol.base.principals import DELEGABLE, Delegation, PrincipalKind, Role

MIN_TOKEN_CHARS = 32
"""A shorter one could be guessed: it is refused, whatever the file says."""


class TokensFault(ValueError):
    """The file can't be used; the message names the entry, never its content."""


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("must be printable")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class TokenEntry(BaseModel):
    """One `[[token]]`; `sha256` is that of the token, which is random and long: it can't be found from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Name
    tenant: Name
    kind: PrincipalKind
    roles: tuple[Role, ...] = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    expires: AwareDatetime | None = None
    acts_for: Name | None = None
    """In whose place whoever has it decides, until it ends."""

    @model_validator(mode="after")
    def _lends_for_a_time(self) -> "TokenEntry":
        if self.acts_for is None:
            return self
        if self.expires is None:
            raise ValueError("acts_for: it must have an end")
        if self.acts_for == self.name:
            raise ValueError("acts_for: nobody acts in his own place")
        if not DELEGABLE.issuperset(self.roles):
            raise ValueError(f"acts_for: only {', '.join(sorted(DELEGABLE))} can be lent")
        return self

    @property
    def principal(self) -> Principal:
        """Who has it, whatever the time."""
        return Principal(self.name, self.tenant, self.kind, frozenset(self.roles))

    def lent(self, entries: Iterable["TokenEntry"], now: datetime) -> Principal | None:
        """Who has it, and in whose place he acts at this time; None where its lender may do none of that any more."""
        if self.acts_for is None or self.expires is None:
            return None
        lender = (self.tenant, self.acts_for)
        own = [one for one in entries if (one.tenant, one.name) == lender and one.acts_for is None]
        roles = {role for one in own if not one.ended(now) for role in one.roles} & set(self.roles)
        delegation = Delegation(principal=self.acts_for, until=self.expires, at=now)
        return replace(self.principal, roles=frozenset(roles), delegation=delegation) if roles else None

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the token."""
        return bytes.fromhex(self.sha256)

    def ended(self, now: datetime) -> bool:
        """Whether it counts no more."""
        return self.expires is not None and now >= self.expires


def parsed(text: str) -> tuple[TokenEntry, ...]:
    """The entries of a file, in its order.

    Raises:
        TokensFault: naming the entry that is wrong.
    """
    try:
        listed: object = tomllib.loads(text).get("token", [])
    except tomllib.TOMLDecodeError:
        raise TokensFault("not valid TOML") from None
    if not isinstance(listed, list):
        raise TokensFault("token must be a list: write [[token]]")
    entries = tuple(_entry(index, one) for index, one in enumerate(cast("list[object]", listed)))
    _check_together(entries)
    return entries


def rendered(entries: Iterable[TokenEntry]) -> str:
    """The file that says so."""
    return "\n".join(map(_rendered, entries))


def _entry(index: int, listed: object) -> TokenEntry:
    try:
        return TokenEntry.model_validate(listed)
    except ValidationError as error:
        place = error.errors(include_input=False, include_url=False)[0]["loc"]
        field = ".".join(["", *map(str, place)])
        hint = ": put its SHA-256 there as sha256, or use `aetheris token add`" if field == ".value" else ""
        raise TokensFault(f"token[{index}]{field} is invalid{hint}") from None


def _check_together(entries: Iterable[TokenEntry]) -> None:
    """A token is one principal's, and who has several is of one kind."""
    seen: dict[str, int] = {}
    kinds: dict[tuple[str, str], PrincipalKind] = {}
    for index, entry in enumerate(entries):
        if entry.sha256 in seen:
            raise TokensFault(f"token[{index}].sha256 is that of token[{seen[entry.sha256]}]")
        seen[entry.sha256] = index
        if kinds.setdefault((entry.tenant, entry.name), entry.kind) is not entry.kind:
            raise TokensFault(f"token[{index}].kind is another than this name has above")


def _rendered(entry: TokenEntry) -> str:
    body: dict[str, Any] = entry.model_dump(mode="json", exclude={"expires"}, exclude_none=True)
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in body.items()]
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires.isoformat()}")
    return "\n".join(["[[token]]", *lines, ""])
