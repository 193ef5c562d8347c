"""The report of a verification: the four proofs and what stands beside them (docs/verification.md)."""

from dataclasses import dataclass
from typing import Any

from aetheris.proofs.amendments import AmendedSeal
from aetheris.proofs.gate import DeclaredEnd, Emergency, Reopening, SignedWord
from aetheris.proofs.ledger import LedgerProof
from aetheris.proofs.records import Violation
from aetheris.proofs.replay import ReplayProof
from aetheris.proofs.sealed import SealReport


@dataclass(frozen=True, slots=True)
class ProofReport:
    """What a job's history proves. Where a seal holds, roots and hashes are over the sealed records."""

    execution_hash: str
    event_chain_root_hash: str
    event_tree_root_hash: str
    ledger: LedgerProof
    replay: ReplayProof
    outcome_hash: str
    event_count: int
    seal: SealReport
    violations: tuple[Violation, ...]
    notes: tuple[Violation, ...]
    reopened_by_hand: tuple[Reopening, ...]
    """No fault: each try beyond the first that a person is the reason of."""
    glass_broken: tuple[Emergency, ...]
    """No fault, and for somebody to look at: what was decided alone, in an emergency."""
    signed: tuple[SignedWord, ...]
    """What approvers signed, by which keys."""
    ended_by_hand: tuple[DeclaredEnd, ...]
    """No fault either: what rests on them is as true as they are."""
    ended: bool
    """Has the job a terminal event? While it runs, what is open is pending, and no fault."""
    installation: str | None
    """The key id of the root by which its services sign; None where nothing of it is signed."""
    unproven: tuple[Violation, ...]
    """No fault of the job's: records that are not signed by who may write them, and so changed nothing."""
    after_seal: tuple[Violation, ...] = ()
    """Nor these: records behind what is sealed, which are no part of what is proved."""
    amended: AmendedSeal | None = None
    """What it was sealed as at first, where its seal was amended; None where it was not."""
    hidden_values: int = 0
    """No fault: so many different values stand hidden in its records, and nobody has judged what they are."""
    calls: str = ""
    """The root over the calls of which parts can be shown alone, as a seal states it; empty where there are none."""

    @property
    def ok(self) -> bool:
        """Everything holds, nothing is pending, and a seal, where there is one, is good."""
        return not self.violations and self.ledger.ok and (self.seal.ok or not self.seal.present)

    def to_json(self) -> dict[str, Any]:
        """The four proofs, always all of them, and more beside them."""
        return {
            "ok": self.ok,
            "ended": self.ended,
            "installation": self.installation,
            "execution_hash": self.execution_hash,
            "event_chain_root_hash": self.event_chain_root_hash,
            "event_tree_root_hash": self.event_tree_root_hash,
            "tool_invocation_ledger_proof": self.ledger.to_json(),
            "replay_proof_result": self.replay.to_json(),
            "outcome_hash": self.outcome_hash,
            "event_count": self.event_count,
            "seal": self.seal.to_json(),
            "violations": [broken.to_json() for broken in self.violations],
            "reopened_by_hand": [one.to_json() for one in self.reopened_by_hand],
            "glass_broken": [one.to_json() for one in self.glass_broken],
            "signed": [one.to_json() for one in self.signed],
            "ended_by_hand": [one.to_json() for one in self.ended_by_hand],
            "unproven": [one.to_json() for one in self.unproven],
            "notes": [note.to_json() for note in self.notes],
            "after_seal": [one.to_json() for one in self.after_seal],
            "hidden_values": self.hidden_values,
            "amended": None if self.amended is None else self.amended.to_json(),
        }
