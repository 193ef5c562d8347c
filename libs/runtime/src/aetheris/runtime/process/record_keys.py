"""The key that a service signs its records with, as its settings name it: judged before the process does anything."""

from aetheris.protocol.base.writers import Party
from aetheris.runtime.base.clock import Clock, SystemClock
from aetheris.runtime.keys.files import KeyUnusable, read_service_key
from aetheris.runtime.keys.records import RecordKeys, RecordSigner
from aetheris.runtime.keys.revocations import load_revocations
from aetheris.runtime.keys.signing import Signer, SigningKeyRevoked, ToldOfSignature
from aetheris.runtime.process.settings import SigningSettings

_LOOK_EVERY_S = 10.0


def record_keys(
    settings: SigningSettings, service: Party, clock: Clock | None = None, also_told: ToldOfSignature | None = None
) -> RecordKeys:
    """The roots whose jobs count, and what this service signs its records with; neither, where nothing names a root.

    `also_told`: who else of this process reads what it signs.

    Raises:
        KeyUnusable: the key or its certificate is missing, another's, or of another root.
        CertificateNotInForce: it is not in force now.
        SigningKeyRevoked: its root says so.
    """
    clock = clock or SystemClock()
    key, certificate, roots = settings.record_key, settings.record_cert, settings.installation
    if key is None and certificate is None and not roots:
        return RecordKeys()
    if key is None or certificate is None or not roots:
        raise KeyUnusable(
            "AETHERIS_INSTALLATION, AETHERIS_RECORD_KEY and AETHERIS_RECORD_CERT belong together: set all or none"
        )
    held = read_service_key(key, certificate, service)
    if held.certificate.installation not in roots:
        raise KeyUnusable(f"{certificate} is of a root that AETHERIS_INSTALLATION does not name")
    signer = Signer(held.private_key, held.certificate, also_told)
    signer.check(clock.now())
    revocations = load_revocations(settings.revocations, roots)
    if revocations.revokes(held.certificate.installation, signer.key_id):
        raise SigningKeyRevoked(f"{key} is revoked: give this {service} another with `aetheris root certify --new-key`")
    return RecordKeys(frozenset(roots), RecordSigner({service: signer}, clock), revocations)


async def while_in_force(keys: RecordKeys, clock: Clock) -> None:
    """For a process that could go on without signing: it ends with its certificate.

    Raises:
        CertificateNotInForce.
    """
    while True:
        if keys.signer is not None:
            keys.signer.check()
        await clock.sleep(_LOOK_EVERY_S)
