"""The tokens of a data folder: what the gateway knows of them, and those that are kept here to speak by.

`tokens.toml` has digests; `tokens/NAME` is a token, for who may read that file and nobody else.
"""

import fcntl
import hashlib
import os
import pwd
import re
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from aetheris.cli.embedded.errors import EmbeddedError, NotRunningError
from aetheris.cli.embedded.plan import TOKENS
from aetheris.gateway.core import token_entries
from aetheris.gateway.core.token_entries import TokenEntry, TokensFault
from aetheris.gateway.tokens import TokensFileInvalid
from aetheris.protocol.base.principals import ORDINARY, PrincipalKind, Role

AGENT = "agent"
"""The name of the token that commands speak by: it submits, and decides nothing."""
APPROVER = "approver"
"""The name of the other one: a person's, to decide about what was submitted, and to operate the system with."""
TENANT = "default"
_TENANTS = {"notifier": "notices"}

_PREFIX = "aetheris_"
"""By which scanners find a token where it should not be."""
_LENT_BY = ":"
"""Between who decides and in whose place; no name that a token is kept under has it."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*")
_LONGEST = 200
_AGENT_ROLES = (Role.SUBMIT, Role.READ, Role.READ_PAYLOADS, Role.AUDIT)


def ensure_tokens(data: Path) -> None:
    """A token for agents and one for the person who decides; a folder that has a file of tokens is left as it is."""
    listed = data / "tokens.toml"
    if listed.exists():
        return
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    agent, approver = fresh(), fresh()
    save(data, AGENT, agent)
    save(data, APPROVER, approver)
    with changed(listed) as entries:
        entries.append(entry(agent, AGENT, kind=PrincipalKind.AGENT, roles=_AGENT_ROLES))
        entries.append(entry(approver, APPROVER, kind=PrincipalKind.PERSON))


def ensure_service(data: Path, name: str) -> None:
    """A token that a service of this name submits by; the notifier's is of a tenant of its own (docs/notices.md)."""
    if (data / TOKENS / name).exists():
        return
    token = fresh()
    with changed(data / "tokens.toml") as entries:
        tenant = _TENANTS.get(name, TENANT)
        entries.append(entry(token, name, tenant, kind=PrincipalKind.SERVICE, roles=(Role.SUBMIT,)))
        save(data, name, token)


def fresh() -> str:
    """A token that nobody can guess: 256 bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def entry(
    token: str,
    name: str,
    tenant: str = TENANT,
    *,
    kind: PrincipalKind,
    roles: Sequence[Role] = ORDINARY,
    expires: datetime | None = None,
    acts_for: str | None = None,
) -> TokenEntry:
    """What the gateway is told of a token.

    Raises:
        ValueError: a name that can't be one.
    """
    digest = hashlib.sha256(token.encode()).hexdigest()
    return TokenEntry(
        name=name,
        tenant=tenant,
        kind=kind,
        roles=tuple(roles),
        sha256=digest,
        expires=expires,
        acts_for=acts_for,
    )


def kept_as(entry: TokenEntry) -> str:
    """The name of its file, where the folder has it: what is lent is under both names, apart from anybody's own."""
    return _kept_as(entry.name, entry.acts_for)


@contextmanager
def changed(path: Path) -> Generator[list[TokenEntry]]:
    """The entries of a file, to be changed; what they are afterwards is written whole, for its owner alone.

    Raises:
        TokensFileInvalid: it can't be read as it is; it stays so.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(path):
        entries = listed(path)
        yield entries
        try:
            token_entries.parsed(text := token_entries.rendered(entries))
        except TokensFault as error:
            raise TokensFileInvalid(f"{path} would be wrong: {error}") from None
        _put(path, text)


def listed(path: Path) -> list[TokenEntry]:
    """The entries of a file; none of one that is not there.

    Raises:
        TokensFileInvalid: naming what is wrong.
    """
    try:
        return list(token_entries.parsed(path.read_text()))
    except FileNotFoundError:
        return []
    except (TokensFault, UnicodeDecodeError) as error:
        detail = str(error) if isinstance(error, TokensFault) else "not valid TOML"
        raise TokensFileInvalid(f"{path}: {detail}") from None


def save(data: Path, name: str, token: str, acts_for: str | None = None) -> Path:
    """Keep a token in the folder, to speak by; raises ValueError for a name that no file could have."""
    path = _path(data, _kept_as(name, acts_for))
    if path is None or _LENT_BY in name:
        raise ValueError("letters, digits and any of _ . @ + - (not the dot first)")
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    _put(path, token + "\n")
    return path


def forget(data: Path, name: str, digests: frozenset[bytes]) -> None:
    """Delete the token that is kept under a name, if it is one of these."""
    path = _path(data, name)
    if path is not None and path.exists() and hashlib.sha256(path.read_text().strip().encode()).digest() in digests:
        path.unlink()


def saved(data: Path, name: str) -> str:
    """The token that is kept under a name, which is that name's and nobody else's.

    Raises:
        NotRunningError: there is none, or it is not for this user to read.
    """
    path = _path(data, name)
    try:
        token = path.read_text().strip() if path is not None else ""
    except PermissionError:
        raise NotRunningError(f"{path} is not yours to read", "Set AETHERIS_TOKEN to a token of your own.") from None
    except OSError:
        token = ""
    if not token:
        missing = f"No token of {name} in {data / TOKENS}"
        raise NotRunningError(missing, "Set AETHERIS_TOKEN to a token that the gateway knows.")
    return token


def hand_over(data: Path, user: str) -> Path:
    """Give another user of the machine a token of an agent called as he is: beside the folder, its owner's alone.

    It submits, and sees and steers what it has submitted, nothing else. One that he was given before goes on to count.

    Raises:
        EmbeddedError: there is no such user, or this one may not give files away.
        TokensFileInvalid: the file of tokens has that name as somebody else's.
    """
    path, listed = _handed_over(data), data / "tokens.toml"
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise EmbeddedError(f"No user {user} on this system", "Make one, or leave --agent-user out.") from None
    try:
        with changed(listed) as entries:
            token = _given_before(path, user, entries)
            if token is None:
                token = fresh()
                entries.append(entry(token, user, kind=PrincipalKind.AGENT, roles=(Role.SUBMIT,)))
            _put(path, token + "\n", uid)
    except PermissionError:
        raise EmbeddedError(
            f"{path} can't be given to {user}: only root may give files away",
            "Run `aetheris up` as root, or leave --agent-user out.",
        ) from None
    return path


def sharing(data: Path) -> str | None:
    """In words that whoever reads the agent's token can read the approver's; None where they are parted, or not both
    there.
    """
    approver, handed_over = data / TOKENS / APPROVER, _handed_over(data)
    if not approver.exists() or (handed_over.exists() and handed_over.stat().st_uid != approver.stat().st_uid):
        return None
    return (
        f"{AGENT} and {APPROVER} have one reader: an agent that runs as this user can approve what it submits. "
        "`up --agent-user NAME`, as root, gives another user a token that submits, and no more"
    )


def _given_before(path: Path, user: str, entries: Sequence[TokenEntry]) -> str | None:
    """The token in a file that was handed over, if it still counts, and is his."""
    try:
        token = path.read_text().strip()
    except OSError:
        return None
    made = entry(token, user, kind=PrincipalKind.AGENT, roles=(Role.SUBMIT,))
    return token if made in entries else None


def _handed_over(data: Path) -> Path:
    return data.with_name(f"{data.name}-agent-token")


def _kept_as(name: str, acts_for: str | None) -> str:
    return name if acts_for is None else f"{name}{_LENT_BY}{acts_for}"


def _path(data: Path, kept: str) -> Path | None:
    name, lent, lender = kept.partition(_LENT_BY)
    if len(kept) > _LONGEST or not _FILE_NAME.fullmatch(name) or (lent and not _FILE_NAME.fullmatch(lender)):
        return None
    return data / TOKENS / kept


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Nobody else changes the file meanwhile."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _put(path: Path, text: str, uid: int | None = None) -> None:
    """Whole or not at all, and for the owner alone, or another user."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    staged.unlink(missing_ok=True)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            if uid is not None:
                os.fchown(file.fileno(), uid, -1)
        staged.replace(path)
    except OSError:
        staged.unlink(missing_ok=True)
        raise
