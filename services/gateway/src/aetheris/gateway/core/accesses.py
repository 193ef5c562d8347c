"""Which requests are told of to who looks into who looked, and as what (docs/audit.md). Pure."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aetheris.gateway.core.principal import Principal
from aetheris.protocol.base.principals import RecordedPrincipal
from aetheris.protocol.messages.accesses import AccessAction

ACTIONS: Mapping[str, AccessAction] = {
    "GET /api/jobs/{job_id}": AccessAction.READ,
    "GET /api/jobs/{job_id}/events": AccessAction.READ,
    "GET /api/jobs/{job_id}/events/{seq}/record": AccessAction.READ,
    "GET /api/jobs/{job_id}/contracts": AccessAction.READ,
    "GET /api/jobs/{job_id}/replay": AccessAction.READ,
    "GET /api/jobs/{job_id}/effects": AccessAction.READ,
    "GET /api/jobs/{job_id}/ledger": AccessAction.READ,
    "GET /api/jobs/{job_id}/trace": AccessAction.READ,
    "GET /api/effects": AccessAction.READ,
    "GET /api/undo": AccessAction.READ,
    "GET /api/budgets": AccessAction.READ,
    "GET /api/quotas": AccessAction.READ,
    "GET /api/search": AccessAction.READ,
    "POST /api/policies/trial": AccessAction.READ,
    "GET /api/jobs/{job_id}/stream": AccessAction.EXPORT,
    "GET /api/jobs/{job_id}/evidence": AccessAction.EXPORT,
    "GET /api/jobs/{job_id}/openings": AccessAction.EXPORT,
    "GET /api/jobs/{job_id}/call-proof": AccessAction.EXPORT,
    "GET /api/audit": AccessAction.EXPORT,
    "GET /api/dead-letters/{topic}/{partition}/{offset}": AccessAction.EXPORT,
    "GET /api/approvals": AccessAction.REQUESTS_SEEN,
    "GET /api/ecs/status/{request_id}": AccessAction.REQUESTS_SEEN,
    "POST /api/ecs/respond": AccessAction.DECIDED,
    "POST /api/jobs/{job_id}/contracts/{execution_id}/resolve": AccessAction.DECIDED,
    "POST /api/jobs/{job_id}/signal": AccessAction.DECIDED,
    "POST /api/tools/{name}/release": AccessAction.CONFIGURED,
    "POST /api/workers/{worker_id}/end": AccessAction.CONFIGURED,
    "POST /api/dead-letters/{topic}/{partition}/{offset}/redrive": AccessAction.CONFIGURED,
    "POST /api/policies": AccessAction.CONFIGURED,
    "POST /api/rules": AccessAction.CONFIGURED,
    "POST /api/subjects/erase": AccessAction.CONFIGURED,
    "POST /api/subjects/enrol": AccessAction.CONFIGURED,
    "POST /api/subjects/hold": AccessAction.CONFIGURED,
    "POST /api/subjects/release": AccessAction.CONFIGURED,
    "POST /api/freezes": AccessAction.CONFIGURED,
    "POST /api/freezes/end": AccessAction.CONFIGURED,
}
"""What a request was for, where it was answered; what is not here changes nothing but jobs, whose logs tell of it, and
is told only where it reached into another tenant."""
_TOO_MANY = 429
_REFUSALS = frozenset({401, 403, 404, _TOO_MANY})
_LOGIN_AGAIN_S, _SAME_AGAIN_S = 3600.0, 60.0
_MOST_KNOWN = 20_000
_ONCE = frozenset({AccessAction.LOGIN, AccessAction.READ, AccessAction.REQUESTS_SEEN, AccessAction.REFUSED})
"""Of which the same is told once in a while, however often it is done."""


@dataclass(slots=True)
class Visit:
    """One request, as far as it has come."""

    route: str
    address: str
    caller: Principal | None = None
    subject: str | None = None
    """The job, request, tool or worker that it is about, or what is frozen."""
    reason: str | None = None
    """The code of what refused it."""
    other_tenant: str | None = None
    """Whose that is, where it is another tenant's than the caller's."""
    breaks_glass: bool = False
    """Whether it was said to be an emergency, and taken."""

    def body(self, action: AccessAction, status: int | None) -> dict[str, Any]:
        """What is recorded of it."""
        caller = self.caller
        return {
            "action": action,
            "tenant": caller.tenant if caller is not None else None,
            "principal": recorded(caller) if caller is not None else None,
            "address": self.address,
            "route": self.route,
            "status": status,
            "subject": self.subject,
            "other_tenant": self.other_tenant,
            "reason": self.reason,
        }


def recorded(caller: Principal) -> RecordedPrincipal:
    """A principal, as it is recorded."""
    return caller.recorded.model_copy(update={"tenant": None})


class Told:
    """What was told lately."""

    def __init__(self) -> None:
        self._at_s: OrderedDict[tuple[object, ...], float] = OrderedDict()

    def actions(self, access: Visit, status: int, now_s: float) -> list[AccessAction]:
        """What of a request that was answered so is to be told now."""
        found: list[AccessAction] = []
        if access.caller is not None:
            found.append(AccessAction.LOGIN)
        if status in _REFUSALS:
            found.append(AccessAction.REFUSED)
        elif status < 400 and access.route in ACTIONS:
            found.append(ACTIONS[access.route])
            found += [AccessAction.BROKE_GLASS] if access.breaks_glass else []
        elif status < 400 and access.other_tenant is not None:
            found.append(AccessAction.ACROSS)
        return [one for one in found if one not in _ONCE or self._is_new(one, access, status, now_s)]

    def _is_new(self, action: AccessAction, access: Visit, status: int, now_s: float) -> bool:
        key = _key(action, access, status)
        again_s = _LOGIN_AGAIN_S if action is AccessAction.LOGIN else _SAME_AGAIN_S
        at_s = self._at_s.pop(key, None)
        is_new = at_s is None or now_s - at_s >= again_s
        self._at_s[key] = now_s if at_s is None or is_new else at_s
        if len(self._at_s) > _MOST_KNOWN:
            self._at_s.popitem(last=False)
        return is_new


def _key(action: AccessAction, access: Visit, status: int) -> tuple[object, ...]:
    """What makes two of them the same; of those who fail too often to be told it is not whence they come."""
    if access.caller is None:
        return (action, access.reason, *(() if status == _TOO_MANY else (access.address,)))
    who = (action, access.caller.tenant, access.caller.id, access.address)
    return who if action is AccessAction.LOGIN else (*who, access.route, access.subject, status, access.reason)
