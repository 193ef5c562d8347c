"""The script of the evidence bundle, as a stranger runs it: a second opinion on every history that a test makes."""

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import aetheris.proofs
from aetheris.proofs import RawRecord, bundle
from aetheris.proofs.approver_signatures import read_signers
from aetheris.proofs.findings import ProofReport
from aetheris.proofs.trust import TrustedKey

SCRIPT = Path(bundle.__file__).parent / "standalone" / bundle.SCRIPT


def load() -> ModuleType:
    """The script as a module; nothing of it runs yet."""
    spec = importlib.util.spec_from_file_location("standalone_verify", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verify: Any = load()
_ALSO_BY_THE_SCRIPT = ("unproven_report", "signed_creation", "activation_decreases")
"""The notes that the script has, too."""


def judged(
    records: Iterable[RawRecord],
    keys: Iterable[TrustedKey] = (),
    blobs: Mapping[str, bytes] | None = None,
    signers: str | None = None,
) -> dict[str, Any]:
    """Its report on a history; `signers` is the text of a file."""
    taken = [verify.Record(at, r.offset, r.key, list(r.headers), r.value) for at, r in enumerate(records)]
    trusted = {key.key_id: verify.Key(key.to_json()) for key in keys}
    allowed = verify.read_signers(signers.encode()) if signers is not None else None
    return verify.judge(taken, dict(blobs or {}), trusted, allowed)[0]


def related(jobs: Iterable[Iterable[RawRecord]], keys: Iterable[TrustedKey]) -> set[tuple[str, str, str]]:
    """What it says is wrong between jobs: (the job that says it, rule, event)."""
    links = []
    for records in jobs:
        taken = [verify.Record(at, r.offset, r.key, list(r.headers), r.value) for at, r in enumerate(records)]
        judged = verify.judge_sealed(taken, {}, {key.key_id: verify.Key(key.to_json()) for key in keys})
        links.append(verify.Link(taken[0].log_key.decode(), *judged, {}))
    return {(one["job_id"], one["rule"], one["event_id"]) for one in verify.check_related(links)}


def assert_agrees(
    report: ProofReport,
    records: Iterable[RawRecord],
    keys: Iterable[TrustedKey] = (),
    blobs: Mapping[str, bytes] | None = None,
    signers: str | None = None,
) -> None:
    """Both say the same of every proof, and name the same events for the same rules."""
    other, own = answers(judged(records, keys, blobs, signers)), answers(report.to_json())
    assert other == own, {name: (other.get(name), own[name]) for name in own if other.get(name) != own[name]}


def answers(report: dict[str, Any]) -> dict[str, Any]:
    """What two implementations must agree on: all but the wording, and notes that the script does not have."""
    named = {
        kind: {(one["rule"], one["event_id"], one["offset"]) for one in report[kind]}
        for kind in ("violations", "unproven", "after_seal")
    }
    noted = {
        (one["rule"], one["event_id"], one["offset"]) for one in report["notes"] if one["rule"] in _ALSO_BY_THE_SCRIPT
    }
    return {**report, **named, "replay_proof_result": report["replay_proof_result"]["ok"], "notes": noted}


def verified(records: Iterable[RawRecord], keys: Iterable[TrustedKey] = (), signers: str | None = None) -> ProofReport:
    """`aetheris.proofs.verify`, with which the script must agree."""
    records, keys = list(records), list(keys)
    allowed = read_signers(signers.encode()) if signers is not None else None
    report = aetheris.proofs.verify(records, keys=keys, signers=allowed)
    assert_agrees(report, records, keys, signers=signers)
    return report
