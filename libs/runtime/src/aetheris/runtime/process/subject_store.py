"""What hides people's values and opens them, as the settings have it (docs/hidden-values.md)."""

from pathlib import Path

from aetheris.runtime.base.clock import Clock
from aetheris.runtime.blobs.store import Blobs
from aetheris.runtime.keys.vault import SCHEMES
from aetheris.runtime.process.settings import SubjectSettings
from aetheris.runtime.subjects.hidden_store import HiddenStore
from aetheris.runtime.subjects.kms import FileKms, Kms, KmsRefused
from aetheris.runtime.subjects.subject_keys import SubjectKeys
from aetheris.runtime.subjects.vault_kms import VaultKms


def hiding_of(settings: SubjectSettings, blobs: Blobs, clock: Clock) -> HiddenStore | None:
    """None where no store of keys is set: then nothing is hidden, and nothing hidden is opened.

    Raises:
        KmsRefused: the key that wraps them is not set, or can't be used.
    """
    if settings.subject_keys is None:
        return None
    if settings.subject_kms is None:
        raise KmsRefused("AETHERIS_SUBJECT_KEYS is set, and AETHERIS_SUBJECT_KMS names nothing that wraps its keys")
    return HiddenStore(SubjectKeys(settings.subject_keys, _kms(settings.subject_kms), clock.now), blobs)


def _kms(named: str) -> Kms:
    return VaultKms(named) if named.startswith(SCHEMES) else FileKms(Path(named))
