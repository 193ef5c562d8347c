"""What each route asks of who calls it: one table (docs/identity.md shows it)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aetheris.gateway.core.principal import Principal
from aetheris.gateway.core.problems import ForbiddenProblem, NotFoundProblem
from aetheris.protocol.base.principals import Role


@dataclass(frozen=True, slots=True)
class Access:
    """Any of the `roles` will do; `own`: or `submit`, for a job that the caller submitted himself.

    `also`: and each of these.
    """

    roles: tuple[Role, ...]
    own: bool = False
    also: tuple[Role, ...] = ()


OPEN = Access(())
"""No token is needed."""
ANYBODY = Access(tuple(Role))
"""Whoever has a token, whatever its roles."""

_READ = Access((Role.READ, Role.READ_PAYLOADS), own=True)
_READ_PAYLOADS = Access((Role.READ_PAYLOADS,), own=True)
_STEER = Access((Role.OPERATE,), own=True)
_CANCEL = Access((Role.OPERATE, Role.ADMINISTER), own=True)
"""In the caller's tenant; in another, which is named, only who administers (`in_tenant`)."""
_PROOF = Access((Role.READ, Role.READ_PAYLOADS, Role.AUDIT), own=True)
_EVIDENCE = Access((Role.AUDIT,))
_FREEZE = Access((Role.OPERATE, Role.ADMINISTER))
"""In the caller's tenant; across tenants only who administers (`core.frozen`)."""
_WORKERS = Access((Role.READ, Role.OPERATE, Role.ADMINISTER))

ROUTES: Mapping[str, Access] = {
    "POST /api/jobs": Access((Role.SUBMIT,)),
    "POST /api/sessions": Access((Role.SUBMIT,)),
    "POST /api/sessions/{job_id}/calls": Access((Role.SUBMIT,)),
    "POST /api/sessions/{job_id}/complete": Access((Role.SUBMIT,)),
    "GET /api/jobs": Access((Role.READ, Role.READ_PAYLOADS, Role.ADMINISTER)),
    "GET /api/search": Access((Role.READ, Role.READ_PAYLOADS)),
    "GET /api/jobs/{job_id}": _READ,
    "GET /api/jobs/{job_id}/events": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/events/{seq}/record": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/contracts": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/replay": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/effects": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/ledger": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/trace": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/openings": _READ_PAYLOADS,
    "GET /api/jobs/{job_id}/call-proof": _READ_PAYLOADS,
    "GET /api/effects": Access((Role.READ_PAYLOADS,)),
    "POST /api/jobs/{job_id}/continue": Access((Role.READ_PAYLOADS,), own=True, also=(Role.SUBMIT,)),
    "GET /api/undo": Access((Role.OPERATE,)),
    "POST /api/jobs/{job_id}/undo": Access((Role.OPERATE,), also=(Role.READ_PAYLOADS, Role.SUBMIT)),
    "POST /api/jobs/{job_id}/cancel": _CANCEL,
    "POST /api/jobs/{job_id}/pause": _STEER,
    "POST /api/jobs/{job_id}/resume": _STEER,
    "POST /api/jobs/{job_id}/signal": Access((Role.OPERATE, Role.RESOLVE), own=True),
    "POST /api/jobs/{job_id}/reconcile": _STEER,
    "POST /api/jobs/{job_id}/contracts/{execution_id}/cancel": _STEER,
    "POST /api/jobs/{job_id}/contracts/{execution_id}/resolve": Access((Role.RESOLVE,)),
    "GET /api/approvals": Access((Role.APPROVE, Role.READ, Role.READ_PAYLOADS)),
    "GET /api/ecs/status/{request_id}": Access((Role.APPROVE, Role.READ_PAYLOADS), own=True),
    "POST /api/ecs/respond": Access((Role.APPROVE,)),
    "POST /api/ecs/continue": Access((Role.APPROVE, Role.READ, Role.READ_PAYLOADS), own=True),
    "GET /api/jobs/{job_id}/verify": _PROOF,
    "GET /api/jobs/{job_id}/inclusion": _PROOF,
    "GET /api/jobs/{job_id}/interim-seals": _PROOF,
    "GET /api/jobs/{job_id}/stream": _EVIDENCE,
    "GET /api/jobs/{job_id}/evidence": _EVIDENCE,
    "GET /api/seals/checkpoint": ANYBODY,
    "GET /api/seals/consistency": ANYBODY,
    "GET /api/seals/entries": ANYBODY,
    "GET /api/seals/answers/{receipt}": ANYBODY,
    "GET /api/seals/erasures/{pseudonym}": ANYBODY,
    "GET /api/tools": ANYBODY,
    "POST /api/tools/{name}/release": Access((Role.OPERATE,)),
    "GET /api/freezes": Access((Role.READ, Role.OPERATE, Role.ADMINISTER)),
    "POST /api/freezes": _FREEZE,
    "POST /api/freezes/end": _FREEZE,
    "GET /api/policies": Access((Role.OPERATE, Role.AUDIT, Role.ADMINISTER)),
    "POST /api/policies": Access((Role.ADMINISTER,)),
    "POST /api/policies/trial": Access((Role.OPERATE, Role.AUDIT, Role.ADMINISTER), also=(Role.READ_PAYLOADS,)),
    "POST /api/subjects/erase": Access((Role.ADMINISTER,)),
    "POST /api/subjects/enrol": Access((Role.ADMINISTER,)),
    "POST /api/subjects/hold": Access((Role.ADMINISTER,)),
    "POST /api/subjects/release": Access((Role.ADMINISTER,)),
    "GET /api/rules": Access((Role.OPERATE, Role.AUDIT, Role.ADMINISTER)),
    "POST /api/rules": Access((Role.ADMINISTER,)),
    "GET /api/models": ANYBODY,
    "GET /api/caller": ANYBODY,
    "GET /api/limits": ANYBODY,
    "GET /api/audit": _EVIDENCE,
    "GET /api/health": Access((Role.OPERATE, Role.ADMINISTER)),
    "GET /api/dead-letters": Access((Role.OPERATE, Role.ADMINISTER)),
    "GET /api/dead-letters/{topic}/{partition}/{offset}": Access(
        (Role.OPERATE, Role.ADMINISTER), also=(Role.READ_PAYLOADS,)
    ),
    "POST /api/dead-letters/{topic}/{partition}/{offset}/redrive": Access((Role.OPERATE, Role.ADMINISTER)),
    "GET /api/stalled": Access((Role.READ, Role.READ_PAYLOADS)),
    "GET /api/leases": Access((Role.READ, Role.READ_PAYLOADS)),
    "GET /api/jobs/{job_id}/leases": _READ,
    "GET /api/budgets": Access((Role.READ_PAYLOADS,)),
    "GET /api/quotas": Access((Role.ADMINISTER,)),
    "GET /api/schedules": Access((Role.READ, Role.READ_PAYLOADS, Role.OPERATE, Role.ADMINISTER)),
    "POST /api/schedules": Access((Role.SUBMIT,)),
    "GET /api/workers": _WORKERS,
    "GET /api/workers/{worker_id}": _WORKERS,
    "POST /api/workers/{worker_id}/end": Access((Role.ADMINISTER,)),
    "GET /livez": OPEN,
    "GET /readyz": OPEN,
}
"""Method and path → who may. What is not here is refused."""


def admitted(caller: Principal, access: Access) -> Principal:
    """The caller, as far as a route lets him.

    Raises:
        Forbidden: he has none of its roles.
    """
    for role in access.also:
        if role not in caller.roles:
            raise missing(role)
    if not caller.roles.isdisjoint(access.roles):
        return caller
    if access.own and Role.SUBMIT in caller.roles:
        return replace(caller, lacks=access.roles)
    raise missing(*access.roles)


def check_reach(caller: Principal, submitted_by: str) -> None:
    """Whether he may ask this about a job of his tenant.

    Raises:
        Forbidden: only about his own.
    """
    if not caller.reaches(submitted_by):
        raise missing(*caller.lacks, about="a job that somebody else submitted")


def in_tenant(caller: Principal, tenant: str | None, *, of_job: bool = False) -> Principal:
    """The caller, as far as he reaches into the tenant that he names; into his own, where he names none.

    Raises:
        Forbidden: another one, and he does not administer.
        NotFound: the same of a job: whether it is there is not said.
    """
    if tenant is None or tenant == caller.tenant:
        return caller
    if Role.ADMINISTER not in caller.roles:
        raise unknown_job() if of_job else missing(Role.ADMINISTER, about="what is of another tenant")
    return replace(caller, tenant=tenant, lacks=())


def unknown_job() -> NotFoundProblem:
    """The refusal of a job that is not there, or another tenant's."""
    return NotFoundProblem("unknown_job", "there is no such job")


def missing(*roles: Role, about: str = "this") -> ForbiddenProblem:
    """The refusal of who has none of the roles."""
    named = f"the role {roles[0]}" if len(roles) == 1 else f"one of the roles {', '.join(roles)}"
    return ForbiddenProblem("missing_role", f"{about} needs {named}", roles=[role.value for role in roles])
