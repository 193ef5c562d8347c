"""A person's word that another policy decides: judged before it is written, and what is shown of it; pure."""

import hashlib
from collections.abc import Mapping

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import BadRequestProblem
from aetheris.protocol.api_operations import (
    ActivationSummary,
    ActivationView,
    PolicyBody,
    PolicyTrialBody,
    PolicyView,
)
from aetheris.protocol.base.allowed_signers import AllowedSigners
from aetheris.protocol.messages.commands import PolicyActivation, RegistryEntry
from aetheris.protocol.planning.personal_fields import PersonalRefused, personal_fields
from aetheris.protocol.planning.policy import Policy, PolicyError, parse
from aetheris.protocol.tables.policy_activations import MAX_POLICY_BYTES, PolicyActivations

MOST_SHOWN = 100
"""Earlier activations."""


def check(wanted: PolicyBody | PolicyTrialBody, signers: AllowedSigners, registry: Mapping[str, RegistryEntry]) -> None:
    """Whether it is a policy that can decide.

    Raises:
        BadRequest: naming the line and the rule; also where one looks at what no rule sees, a personal argument.
    """
    if len(wanted.policy.encode(errors="surrogatepass")) > MAX_POLICY_BYTES:
        raise BadRequestProblem("bad_policy", "policy", f"larger than {MAX_POLICY_BYTES // 1024} KiB")
    try:
        policy = parse(wanted.policy)
    except PolicyError as error:
        place = f"line {error.line}: " if error.line is not None else ""
        raise BadRequestProblem("bad_policy", "policy", f"{place}{error}") from None
    if policy.signed is not None and not signers.lines:
        rule = f"rule {policy.signed!r} asks for signatures, and AETHERIS_SIGNERS names no signers"
        raise BadRequestProblem("bad_policy", "policy", rule)
    for entry in registry.values():
        _check_personal(policy, entry)


def _check_personal(policy: Policy, entry: RegistryEntry) -> None:
    """Raises: BadRequest."""
    try:
        places = [one.at.split("/")[1] for one in personal_fields(entry.schema_)]
    except PersonalRefused:
        return  # no plan can have it
    personal = {name.replace("~1", "/").replace("~0", "~") for name in places}
    for rule in policy.rules if personal else ():
        covers = any(rule.covers(entry.name, irreversible) for irreversible in (True, False))
        looks = sorted(filter(rule.reads, personal)) if covers else ()
        if looks:
            said = f"rule {rule.name!r} looks at {looks[0]} of {entry.name}, which is personal: no rule is shown that"
            raise BadRequestProblem("bad_policy", "policy", said)


def activation(wanted: PolicyBody, number: int, caller: Principal, at: str) -> PolicyActivation:
    """What is written to the topic."""
    return PolicyActivation(
        number=number,
        policy=wanted.policy,
        policy_hash=hash_of(wanted.policy),
        by=caller.id,
        at=at,
        reason=wanted.reason,
        principal=caller.recorded,
    )


def hash_of(policy: str) -> str:
    """hex SHA-256 of a policy's text."""
    return hashlib.sha256(policy.encode(errors="surrogatepass")).hexdigest()


def shown(one: PolicyActivation, activations: PolicyActivations, partitions: int) -> ActivationView:
    """An activation, and how many partitions have answered it."""
    answered = sum(number < partitions for number in activations.answers(one.key)) if activations.active == one else 0
    return ActivationView(**summary(one).model_dump(), policy=one.policy, answered=answered, partitions=partitions)


def summary(one: PolicyActivation) -> ActivationSummary:
    """Who activated it, and when."""
    return ActivationSummary(number=one.number, policy_hash=one.policy_hash, by=one.by, at=one.at, reason=one.reason)


def view(activations: PolicyActivations, partitions: int) -> PolicyView:
    """What decides, and what did before."""
    last = activations.active
    earlier = activations.history[:-1][: -MOST_SHOWN - 1 : -1]
    active = shown(last, activations, partitions) if last is not None else None
    return PolicyView(active=active, history=tuple(map(summary, earlier)))
