"""What an installation's folder holds beside its log, in a backup: keys, tokens, policy; encrypted, or not at all.

keys.age    a tar, encrypted as age does it (C2SP age), to the recipients that whoever takes the backup names

Keys of personal values are not among them: a person who was erased would be back.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pyrage

from aetheris.cli.backup.files import damaged
from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.signing import read_certificate
from aetheris.runtime.base.whole_file import write_whole

_age = cast("Any", pyrage)  # it ships no types
KEYS = "keys.age"
CHECKPOINT = "checkpoint"
"""What the verifier signed last of its log of seals: it is no key, and that of a backup is an old one."""
SETTINGS = "restored-settings"
"""Where a restored folder has the files that its services were given, for a person to look at."""
_LARGEST = 64 * 1024 * 1024
_FOLDERS, _FILES = ("keys", "tokens"), ("tokens.toml",)
_PRIVATE = 0o600
_CERTIFICATES = ".cert.json"


def recipients(named: Sequence[str]) -> list[object]:
    """Who can open it: public keys of age, or of SSH (Ed25519, RSA); each as it is, or a file with one a line.

    Raises:
        CommandError: one is neither.
    """
    found: list[object] = []
    for name in named:
        path = Path(name)
        is_file = not name.startswith(("age1", "ssh-")) and path.is_file()
        lines = path.read_text(errors="replace").splitlines() if is_file else [name]
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise _no_recipient(name)
        found += [_recipient(key, name) for key in keys]
    return found


def _recipient(key: str, name: str) -> object:
    kind = _age.x25519.Recipient if key.startswith("age1") else _age.ssh.Recipient
    try:
        return kind.from_str(key)
    except (_age.RecipientError, ValueError):
        raise _no_recipient(name) from None


def _no_recipient(name: str) -> CommandError:
    message = f"{name} is no public key of age (age1…) or of SSH (ssh-ed25519 …, ssh-rsa …), and no file of such"
    return CommandError(Exit.BAD_INPUT, "no_recipient", message, field="--keys-to")


def sealed(data: Path, settings: Mapping[str, Path], to: Sequence[object]) -> bytes:
    """The keys and tokens of a data folder, and files of settings by their names, encrypted.

    Raises:
        CommandError: there is no key.
    """
    paths = dict(_held(data))
    if not any(name.startswith("keys/") for name in paths):
        message = f"{data} has no keys: put those of the services into its folder keys, or back them up by themselves"
        raise CommandError(Exit.BAD_INPUT, "no_keys", message, field="--keys-to")
    paths |= {f"{SETTINGS}/{name}": path for name, path in settings.items()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, path in sorted(paths.items()):
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), _PRIVATE
            tar.addfile(member, io.BytesIO(content))
    return _age.encrypt(packed.getvalue(), list(to))


def _held(data: Path) -> Iterator[tuple[str, Path]]:
    for folder in _FOLDERS:
        for path in sorted((data / folder).rglob("*")):
            kept = path.name != CHECKPOINT and not path.name.startswith((f"{CHECKPOINT}.", "."))
            if kept and path.is_file() and not path.is_symlink():
                yield path.relative_to(data).as_posix(), path
    for name in _FILES:
        if (data / name).is_file():
            yield name, data / name


def opened(folder: Path, identity: Path) -> dict[str, bytes]:
    """What a backup has of them, by name, with the private key of one of its recipients (age's, or SSH's).

    Raises:
        CommandError: it has none, the key is none, or not that of a recipient; what is in it is not what was put there.
    """
    path = folder / KEYS
    if not path.is_file():
        message = f"{folder} has no keys: it was taken without --keys-to"
        raise CommandError(Exit.BAD_INPUT, "no_keys", message, field="--identity")
    try:
        packed = _age.decrypt(path.read_bytes(), _identities(identity))
    except _age.DecryptError:
        message = f"{identity} is no private key of those whom {path} is encrypted to"
        raise CommandError(Exit.BAD_INPUT, "not_a_recipient", message, field="--identity") from None
    if len(packed) > _LARGEST:
        raise damaged(path, "is larger than keys are")
    return dict(_members(path, packed))


def _identities(path: Path) -> list[object]:
    try:
        text = path.read_bytes()
        if b"PRIVATE KEY-----" in text:
            return [_age.ssh.Identity.from_buffer(text)]
        lines = [line.strip() for line in text.decode().splitlines()]
        found = [_age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (OSError, ValueError, _age.IdentityError):
        found = []
    if not found:
        message = f"{path} holds no private key of age (AGE-SECRET-KEY-1…) or of SSH, without a passphrase"
        raise CommandError(Exit.BAD_INPUT, "no_identity", message, field="--identity")
    return found


def _members(path: Path, packed: bytes) -> Iterator[tuple[str, bytes]]:
    """Files below the folders that are known here, whoever has packed them."""
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                name = PurePosixPath(member.name)
                known = member.name in _FILES or (len(name.parts) > 1 and name.parts[0] in (*_FOLDERS, SETTINGS))
                if content is None or not known or ".." in name.parts:
                    raise damaged(path, "has a member that is no key, token or setting")
                yield str(name), content.read()
    except tarfile.TarError:
        raise damaged(path, "does not hold what was packed") from None


def roots_in(held: Mapping[str, bytes]) -> frozenset[str]:
    """The key ids of the roots that the certificates among them are of."""
    named = [content for name, content in held.items() if name.endswith(_CERTIFICATES)]
    found = [one for content in named if (one := read_certificate(json.loads(content))) is not None]
    return frozenset(one.installation for one in found)


def lay(held: Mapping[str, bytes], data: Path) -> None:
    """Put them into a data folder that has none of its own, for its owner's eyes.

    Raises:
        CommandError: it has some.
    """
    for name in (*_FOLDERS, *_FILES, SETTINGS):
        if (data / name).exists():
            message = f"{data / name} is there already: leave --identity out, or move it away"
            raise CommandError(Exit.BAD_INPUT, "not_empty", message, field="--identity")
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in held.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=_PRIVATE)
        write_whole(path, content)
        path.chmod(_PRIVATE)
