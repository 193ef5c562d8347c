"""Who calls: bearer tokens from a file, compared in constant time.

[[token]]
value = "…"        # or sha256 = "hex of its SHA-256"
name = "alice"
tenant = "acme"
operator = true    # may say that a worker has ended
"""

import hashlib
import hmac
import tomllib
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aetheris.gateway.core.caller import Caller
from aetheris.gateway.core.problems import UnauthorizedProblem
from aetheris.runtime.base.refusal import StartRefused


class TokensFileInvalid(StartRefused):
    """The file of tokens can't be used; the message names the entry, never its content."""

    code = "tokens_file_invalid"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=200)
    tenant: str = Field("default", min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    value: str | None = Field(None, min_length=8)
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    operator: bool = False

    def digest(self) -> bytes:
        """The SHA-256 of the token; only that is kept in memory."""
        if self.value is not None and self.sha256 is None:
            return hashlib.sha256(self.value.encode()).digest()
        if self.sha256 is not None and self.value is None:
            return bytes.fromhex(self.sha256)
        raise ValueError("needs either value or sha256")


class Tokens:
    """The tokens that are known, by their SHA-256."""

    def __init__(self, known: dict[bytes, Caller]) -> None:
        self._known = known

    @classmethod
    def load(cls, path: Path) -> "Tokens":
        """Read the file; a missing file knows no token.

        Raises:
            TokensFileInvalid: naming the entry that is wrong.
        """
        if not path.exists():
            return cls({})
        try:
            entries = tomllib.loads(path.read_text()).get("token", [])
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise TokensFileInvalid(f"{path}: not valid TOML") from None
        if not isinstance(entries, list):
            raise TokensFileInvalid(f"{path}: token must be a list: write [[token]]")
        found = enumerate(cast("list[object]", entries))
        return cls(dict(_known(path, index, entry) for index, entry in found))

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that somebody has a token of."""
        return frozenset(caller.tenant for caller in self._known.values())

    def caller(self, authorization: str | None) -> Caller:
        """Who sent this Authorization header.

        Raises:
            Unauthorized: it names no known token.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthorizedProblem
        sent = hashlib.sha256(token.strip().encode()).digest()
        found: Caller | None = None
        for digest, caller in self._known.items():  # all of them: the time tells nothing of which one matched
            if hmac.compare_digest(digest, sent):
                found = caller
        if found is None:
            raise UnauthorizedProblem
        return found


def _known(path: Path, index: int, entry: object) -> tuple[bytes, Caller]:
    try:
        token = _Entry.model_validate(entry)
        return token.digest(), Caller(token.name, token.tenant, token.operator)
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        raise TokensFileInvalid(f"{path}: token[{index}].{field} is invalid") from None
    except ValueError as error:
        raise TokensFileInvalid(f"{path}: token[{index}] {error}") from None
