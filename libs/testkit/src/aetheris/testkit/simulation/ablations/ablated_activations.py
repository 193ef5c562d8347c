"""Ablations of who decides by which policy (docs/policy.md)."""

from collections.abc import Callable
from typing import Any

from aetheris.protocol.messages.commands import PolicyActivation, PolicyAnswer
from aetheris.testkit.simulation.ablations.ablation import Ablation, always


def _answers_first(real: Callable[..., None]) -> Callable[..., None]:
    """A partition is answered for at once, and goes by what it has answered when the next line is read."""

    def activated(ledger: Any, record: PolicyActivation | PolicyAnswer) -> None:
        unheard: list[PolicyActivation] = vars(ledger).setdefault("unheard", [])
        for one in unheard:
            real(ledger, one)
        unheard.clear()
        if isinstance(record, PolicyActivation):
            unheard.append(record)
            ledger.answers(record.number)

    return activated


_EDGE = "aetheris.testkit.simulation.actors.ledger.SimulatedLedger"

ACTIVATIONS: tuple[Ablation, ...] = (
    Ablation(
        "with an answer before the policy",
        "a partition answers an activation when it decides by it",
        1000,
        {f"{_EDGE}._activated": _answers_first},
    ),
    Ablation(
        "with calls by an earlier policy",
        "behind a partition's barrier of a policy no call is made that was granted by an earlier one",
        2000,
        {"aetheris.tool_executor.core.partition_policies.PartitionPolicies.lets": always(value=True)},
    ),
    Ablation(
        "with tries again that no policy is asked about",
        "what certainly took no effect starts again only where the policy in force lets it",
        2000,
        {"aetheris.ledger.core.adjudication._refused_now": always(None)},
    ),
    Ablation(
        "with activations of any number",
        "an activation counts with the next number",
        1000,
        {"aetheris.protocol.tables.policy_activations.PolicyActivations._follows": always(value=True)},
    ),
    Ablation(
        "with activations that nobody signs",
        "an activation is the gateway's, and its answer the ledger's",
        2000,
        {"aetheris.protocol.tables.signed_messages.SignedMessages.counts": always(value=True)},
    ),
    Ablation(
        "with decisions by what others have left",
        "nothing is decided by what cannot be read, nor of a job that names an activation which was not read",
        2000,
        {"aetheris.ledger.core.live_jobs.DecisionContext.may_judge": always(value=True)},
    ),
)
