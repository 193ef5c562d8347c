"""Who writes which record, and by what it is known that he did (docs/adr/0009-signed-records.md): the one table.

A record is known by the signature of its writer, or by a word that only its try has, or it decides nothing that the
fold does not itself check. Whatever is not in the table decides nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.words import TryWord


class Party(StrEnum):
    """A kind of service, as certificates name it."""

    GATEWAY = "gateway"
    PLANNER = "planner"
    LEDGER = "ledger"
    EXECUTOR = "executor"
    PROBER = "prober"
    AUDITOR = "auditor"


SIGNING = frozenset({Party.PLANNER, Party.LEDGER, Party.PROBER, Party.AUDITOR})
"""Whose signatures are asked for, of what they write into a signed job."""


class KnownBy(StrEnum):
    """By what a record is known to be its writer's."""

    SIGNATURE = "signature"
    WORD = "word"
    ROOT = "root"
    """By the signature of the job's root that is in it; whoever carries it into the job."""
    FOLLOWS = "follows"
    """By nothing: the fold checks all of it against what is proved, or it decides nothing."""


@dataclass(frozen=True, slots=True)
class WriterRule:
    """Who may write a record, and by what it is known; `word` where it is one of a try's four."""

    writer: Party
    known_by: KnownBy
    word: TryWord | None = None


# made once: one is asked for with each end of a call
_PLANNERS, _LEDGERS = WriterRule(Party.PLANNER, KnownBy.SIGNATURE), WriterRule(Party.LEDGER, KnownBy.SIGNATURE)
_TOOK_NONE = WriterRule(Party.EXECUTOR, KnownBy.WORD, TryWord.NO_EFFECT)
_TOOK_EFFECT = WriterRule(Party.EXECUTOR, KnownBy.WORD, TryWord.EFFECT)
_CAUGHT_UP = WriterRule(Party.LEDGER, KnownBy.WORD, TryWord.EFFECT)
_NO_MORE = WriterRule(Party.EXECUTOR, KnownBy.WORD, TryWord.NO_MORE)
_IN_DOUBT = WriterRule(Party.EXECUTOR, KnownBy.WORD, TryWord.IN_DOUBT)

_PLANNERS_WAITS = frozenset({"upgrade", "resolve"})
_NO_EFFECT = frozenset({"retryable_failure", "permanent_failure"})
_EFFECT = frozenset({"success", "compensatable_failure"})
_OWN = frozenset({"executor", "late"})

_SIGNED: Mapping[Party, tuple[str, ...]] = {
    Party.PLANNER: (
        "job_created",
        "plan_generated",
        "cancel_requested",
        "job_paused",
        "job_resumed",
        "job_stopping",
        "job_completed",
        "job_failed",
        "job_cancelled",
        "birth_repeated",
    ),
    Party.LEDGER: (
        "policy_allowed",
        "approval_requested",
        "approval_voted",
        "approval_decided",
        "resolution_voted",
        "invocation_rejected",
        "invocation_cancel_requested",
        "retry_scheduled",
        "invocation_parked",
        "invocation_reopened",
        "worker_ended",
        "job_frozen",
        "job_unfrozen",
        "job_waiting",
        "wait_completed",
        "signal_received",
        "workflow_accepted",
    ),
    Party.PROBER: ("invocation_probed", "effect_confirmed", "confirmation_failed"),
    Party.AUDITOR: ("violation_found", "job_sealed"),
}

_FOLLOWING: Mapping[Party, tuple[str, ...]] = {
    Party.PLANNER: ("decision_snapshot", "node_finished", "state_checkpointed", "step_compensated"),
    Party.EXECUTOR: ("tool_invocation_started", "command_committed", "state_changed"),
}

EVENTS: Mapping[str, WriterRule] = {
    **{name: WriterRule(by, KnownBy.SIGNATURE) for by, names in _SIGNED.items() for name in names},
    **{name: WriterRule(by, KnownBy.FOLLOWS) for by, names in _FOLLOWING.items() for name in names},
    "key_revoked": WriterRule(Party.LEDGER, KnownBy.ROOT),
    "call_planned": WriterRule(Party.EXECUTOR, KnownBy.WORD),
}
"""event_type → rule, of all but those that `rule_of` tells apart by what they say."""

MESSAGES: Mapping[tuple[str, str], WriterRule] = {
    **{
        (Topic.JOBS_COMMANDS.value, name): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE)
        for name in (
            "submit",
            "receipt",
            "receipt_void",
            "cancel",
            "pause",
            "resume",
            "signal",
            "cancel_contract",
            "respond",
            "resolve",
            "reconcile",
        )
    },
    **{
        (Topic.JOBS_COMMANDS.value, name): WriterRule(Party.PLANNER, KnownBy.SIGNATURE)
        for name in ("begin_job", "cancel_child", "job_ended", "placement_over")
    },
    (Topic.TOOLS_REQUESTS.value, "tool_request"): WriterRule(Party.PLANNER, KnownBy.FOLLOWS),
    (Topic.TOOLS_GRANTS.value, "tool_grant"): WriterRule(Party.LEDGER, KnownBy.FOLLOWS),
    (Topic.VERIFICATIONS.value, "verification"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.JOBS_INDEX.value, "job_index"): WriterRule(Party.PLANNER, KnownBy.SIGNATURE),
    (Topic.JOBS_INDEX.value, "job_behind"): WriterRule(Party.PLANNER, KnownBy.SIGNATURE),
    (Topic.JOBS_ARCHIVE.value, "archived_job"): WriterRule(Party.AUDITOR, KnownBy.SIGNATURE),
    (Topic.WORKERS.value, "worker"): WriterRule(Party.EXECUTOR, KnownBy.WORD),
    (Topic.WORKERS.value, "worker_end"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.TOOLS_REGISTRY.value, "tool"): WriterRule(Party.EXECUTOR, KnownBy.FOLLOWS),
    (Topic.TOOLS_REGISTRY.value, "model"): WriterRule(Party.EXECUTOR, KnownBy.FOLLOWS),
    (Topic.TOOLS_REGISTRY.value, "executor_tools"): WriterRule(Party.EXECUTOR, KnownBy.FOLLOWS),
    (Topic.TOOLS_REGISTRY.value, "tool_release"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.FREEZES.value, "freeze_order"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.FREEZES.value, "freeze_answer"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.POLICIES.value, "policy_activation"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.POLICIES.value, "policy_answer"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.POLICIES.value, "rules_order"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.POLICIES.value, "rules_answer"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.POLICIES.value, "subject_erasure"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.POLICIES.value, "log_home"): WriterRule(Party.GATEWAY, KnownBy.SIGNATURE),
    (Topic.JOBS_EVENTS.value, "freeze_barrier"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.JOBS_EVENTS.value, "policy_barrier"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.JOBS_EVENTS.value, "rules_barrier"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
    (Topic.JOBS_EVENTS.value, "submission_answered"): WriterRule(Party.PLANNER, KnownBy.SIGNATURE),
    (Topic.JOBS_EVENTS.value, "job_placed"): WriterRule(Party.PLANNER, KnownBy.SIGNATURE),
    (Topic.JOBS_SEALS.value, "answered_submissions"): WriterRule(Party.AUDITOR, KnownBy.SIGNATURE),
    (Topic.JOBS_SEALS.value, "interim_seals"): WriterRule(Party.AUDITOR, KnownBy.SIGNATURE),
    (Topic.JOBS_SEALS.value, "subject_erased"): WriterRule(Party.AUDITOR, KnownBy.SIGNATURE),
    (Topic.LEDGER_RECORDS.value, "ledger_record"): WriterRule(Party.LEDGER, KnownBy.FOLLOWS),
    (Topic.LEDGER_CONTENTS.value, "content"): WriterRule(Party.LEDGER, KnownBy.SIGNATURE),
}
"""(topic, type) → rule, of what is no event."""

CHECKPOINTS: Mapping[str, Party] = {
    Topic.PLANNER_CHECKPOINTS.value: Party.PLANNER,
    Topic.LEDGER_CHECKPOINTS.value: Party.LEDGER,
    Topic.AUDIT_CHECKPOINTS.value: Party.AUDITOR,
}
"""Topic of checkpoints → whose signature is asked for, of each piece in it."""

_ASKED = frozenset(
    {
        *("tool_release", "worker_end", "verification", "policy_activation", "policy_answer"),
        *("freeze_order", "freeze_answer", "freeze_barrier", "policy_barrier", "submission_answered"),
        *("rules_order", "rules_answer", "rules_barrier", "subject_erasure", "log_home", "job_placed"),
    }
)

SIGNED_MESSAGES = frozenset((topic, name) for topic, name in MESSAGES if topic == Topic.JOBS_COMMANDS or name in _ASKED)
"""Of these the signatures are asked for; the others count as they lie there."""


def signed_types(party: Party) -> frozenset[str]:
    """The types of events that a party signs all of; some of a type that is told apart may need none."""
    apart = {
        Party.PLANNER: ("job_waiting", "wait_completed"),
        Party.LEDGER: ("tool_invocation_finished", "invocation_in_doubt"),
    }
    return frozenset((*_SIGNED.get(party, ()), *apart.get(party, ())))


def rule_of(
    event_type: str,
    *,
    via: str | None = None,
    outcome: str | None = None,
    returned: bool = False,
    has_word: bool = False,
    wait_type: str | None = None,
) -> WriterRule | None:
    """Who may write an event that says this, and by what it is known; None: nobody, it is void.

    `via` and `outcome` are those of a tool_invocation_finished, `returned` and `has_word` those of an
    invocation_in_doubt, `wait_type` that of a job_waiting or wait_completed.
    """
    if event_type == "tool_invocation_finished":
        return _of_end(via, outcome)
    if event_type == "invocation_in_doubt":
        if returned or has_word:
            return _NO_MORE if returned else _IN_DOUBT
        return _LEDGERS
    if event_type in ("job_waiting", "wait_completed") and wait_type in _PLANNERS_WAITS:
        return _PLANNERS
    return EVENTS.get(event_type)


def _of_end(via: str | None, outcome: str | None) -> WriterRule | None:
    """That a try took no effect, for certain, it alone can say; that it did, also who has its word from the store."""
    if via in _OWN and outcome in _NO_EFFECT:
        return _TOOK_NONE
    if via in _OWN and outcome in _EFFECT:
        return _TOOK_EFFECT
    if via == "catch_up" and outcome in _EFFECT:
        return _CAUGHT_UP
    happened = via in ("probe", "human") and outcome in _EFFECT
    given_up = via in ("human", "ledger") and outcome == "permanent_failure"
    return _LEDGERS if happened or given_up else None
