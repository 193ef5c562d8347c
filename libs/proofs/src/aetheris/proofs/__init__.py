"""Chain, hashes, ledger and replay proof, seals (pure, offline)."""

from aetheris.proofs.audit import Audit
from aetheris.proofs.findings import ProofReport
from aetheris.proofs.records import RawRecord, Violation
from aetheris.proofs.report import verify

__all__ = ["Audit", "ProofReport", "RawRecord", "Violation", "verify"]
