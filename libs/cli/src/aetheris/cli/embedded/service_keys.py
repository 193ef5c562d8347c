"""The private keys of the embedded system's services: made with their root, or brought by who names another root."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.cli.embedded.plan import RECORD_KEYS
from aetheris.cli.embedded.services import Service, outside
from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.keys.files import REVOCATIONS, ROOT, KeyUnusable, load_service_key, make_installation
from aetheris.runtime.keys.signing import Signer
from aetheris.runtime.subjects.kms import make_file_key
from aetheris.verifier.apart import SUBJECT_KEYS
from aetheris.verifier.keys import load_private_key

_KEYS_LAST = timedelta(days=3650)
_EARLIER = timedelta(minutes=5)
"""A clock that is set back a little ends nothing."""


def record_keys(data: Path, services: Sequence[Service], shared: dict[str, str]) -> Path | None:
    """Where the keys lie that services sign records with; None where the brokers are others' and no root is named.

    They are made with their root on the first start. Who names an installation has put its keys there.

    Raises:
        EmbeddedError: a key can't be used, or is another installation's.
    """
    folder = data / RECORD_KEYS
    parties = [service.signs for service in services if service.signs is not None]
    named = outside("AETHERIS_INSTALLATION")
    if named is None and outside("AETHERIS_KAFKA"):
        return None
    if named is not None:
        _check_brought(folder, parties, [one.strip() for one in named.split(",")])
        shared |= {"AETHERIS_INSTALLATION": named} | _revoked_in(folder)
        return folder
    if not (folder / ROOT).exists() and (data / "state.json").exists():
        raise EmbeddedError(
            f"{data} holds jobs whose records are not signed", "Start on another folder, or move this one away."
        )
    begins = datetime.now(UTC).replace(microsecond=0) - _EARLIER
    try:
        root = make_installation(folder, parties, begins, begins + _KEYS_LAST)
    except KeyUnusable as error:
        raise EmbeddedError(str(error), "Put back the files of the folder that they are in.") from None
    shared |= {"AETHERIS_INSTALLATION": root} | _revoked_in(folder)
    return folder


def subject_keys(data: Path) -> dict[str, str]:
    """Where the keys lie of people whose values are hidden, and what wraps them; each as the environment has it, or
    made with the folder."""
    found = {name: path for name in SUBJECT_KEYS if (path := outside(name))}
    if len(found) == len(SUBJECT_KEYS):
        return found
    wrapping = data / "keys" / "subjects.key"
    if "AETHERIS_SUBJECT_KMS" not in found:
        make_file_key(wrapping)
    return {"AETHERIS_SUBJECT_KEYS": str(data / "subjects"), "AETHERIS_SUBJECT_KMS": str(wrapping)} | found


def _revoked_in(folder: Path) -> dict[str, str]:
    path = folder / REVOCATIONS
    return {"AETHERIS_REVOCATIONS": str(path)} if path.exists() and not outside("AETHERIS_REVOCATIONS") else {}


def check_seal_key(data: Path) -> None:
    """Whether the key that seals can be read, where it lies in a file; the first start makes the folder's.

    Raises:
        EmbeddedError.
    """
    path = Path(outside("AETHERIS_SEAL_KEY") or data / "keys" / "seal.pem")
    if outside("AETHERIS_SEAL_KEY_URI") or not (outside("AETHERIS_SEAL_KEY") or path.exists()):
        return
    try:
        load_private_key(path)
    except StartRefused as error:
        raise EmbeddedError(str(error), "Put the file back, or name another one.") from None


def _check_brought(folder: Path, parties: Sequence[Party], roots: Sequence[str]) -> None:
    """Each service signs with a key of its own: one setting for all of them names none."""
    for party in parties:
        try:
            held = load_service_key(folder, party)
            Signer(held.private_key, held.certificate).check(datetime.now(UTC))
        except StartRefused as error:
            why = str(error)
        else:
            if held.certificate.installation in roots:
                continue
            why = f"{folder / f'{party}.cert.json'} is of a root that AETHERIS_INSTALLATION does not name"
        remedy = f"`aetheris root certify {party} --root ROOT.pem --folder {folder}`, or unset AETHERIS_INSTALLATION."
        raise EmbeddedError(f"AETHERIS_INSTALLATION is set, and {party} has no key under it: {why}", remedy)
