"""What hides people's values and opens them, as the settings have it (docs/hidden-values.md)."""

import re
from pathlib import Path

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import Blobs
from aetheris.runtime.keys.vault import SCHEMES
from aetheris.runtime.process.installation import claim
from aetheris.runtime.process.settings import SubjectSettings
from aetheris.runtime.subjects.hidden_store import HiddenStore
from aetheris.runtime.subjects.kms import FileKms, Kms, KmsRefused
from aetheris.runtime.subjects.subject_keys import SubjectKeys, refusal_of
from aetheris.runtime.subjects.vault_kms import VaultKms

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""What a path begins with that was meant to be none: as a path it would be a folder of this process alone."""


def hiding_of(settings: SubjectSettings, blobs: Blobs, clock: Clock) -> HiddenStore | None:
    """None where no store of keys is set: then nothing is hidden, and nothing hidden is opened.

    Raises:
        InstallationMixed: they are those of another installation.
        KmsRefused: they are not in a folder, or the key that wraps them is not set, or can't be used.
    """
    if settings.subject_keys is None:
        return None
    if _URL.match(str(settings.subject_keys)):
        rule = "a folder that gateway and executors share, and no bucket: one that keeps versions keeps destroyed keys"
        raise KmsRefused(f"AETHERIS_SUBJECT_KEYS must be {rule}")
    if settings.subject_kms is None:
        raise KmsRefused("AETHERIS_SUBJECT_KEYS is set, and AETHERIS_SUBJECT_KMS names nothing that wraps its keys")
    claim(settings.subject_keys, settings.prefix)
    if (why_not := refusal_of(settings.subject_keys)) is not None:
        raise KmsRefused(f"AETHERIS_SUBJECT_KEYS: no folder in which keys can be kept: {why_not}")
    return HiddenStore(SubjectKeys(settings.subject_keys, _kms(settings.subject_kms), clock.now), blobs)


def _kms(named: str) -> Kms:
    return VaultKms(named) if named.startswith(SCHEMES) else FileKms(Path(named))
