"""Whether enough witnesses have seen a job's seal in the log; where not, they are asked now, once, and within a bound.

That can fail in any way and an export goes on: its bundle says what it has, and a policy judges it (docs/evidence.md).
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from aetheris.cli.console import CommandError
from aetheris.cli.embedded.errors import EmbeddedError
from aetheris.cli.gateway import connected
from aetheris.cli.seal_relay import SealRelay, post
from aetheris.proofs.notes import BadNote, parse_inclusion
from aetheris.proofs.witnesses import LogPolicy, Witnessed, open_witnessed

WITHIN_S = 5.0
"""For each of the two questions that a witness may be asked."""
_NOT_READ = (
    "it shows nothing of what was cosigned just now: "
    "its AETHERIS_SEAL_POLICY must name a policy, too, and its folder be this one"
)


def witnessed(job_id: str, policy: LogPolicy, data: Path) -> dict[str, Any]:
    """{by, at, missing}: who has seen the job's seal, since when all of them; of who has not, why.

    `by` is empty where it is not the quorum.
    """
    missing = dict[str, str]()
    try:
        found = _seen(job_id, policy, data)
        if found is None:
            missing = _asked(policy, data)
            found = _seen(job_id, policy, data)
            if found is None and not missing:
                missing = {"the verifier": _NOT_READ}
    except (BadNote, CommandError, EmbeddedError, OSError) as error:
        found, missing = None, {**missing, "the log of seals": str(error)}
    at = found.at.isoformat() if found is not None and found.at is not None else None
    return {"by": list(found.by) if found is not None else [], "at": at, "missing": missing}


def _seen(job_id: str, policy: LogPolicy, data: Path) -> Witnessed | None:
    """What the verifier gives along with the job's seal, where the policy's quorum has seen it.

    Raises:
        BadNote: it is no proof at all.
        CommandError, EmbeddedError: nobody answers, or the job is not sealed.
    """
    with connected(data) as client:
        checkpoint = parse_inclusion(client.inclusion(job_id)).checkpoint
    try:
        return open_witnessed(checkpoint, policy)
    except BadNote:
        return None


def _asked(policy: LogPolicy, data: Path) -> dict[str, str]:
    """Who could not be brought to cosign the log as it is, and why; what the others said lies in the folder."""
    folder = Path(os.environ.get("AETHERIS_SEAL_WITNESSED") or data / "witnessed")
    relay = SealRelay(policy, folder, partial(post, within_s=WITHIN_S))
    if not relay.witnesses:
        return {"the policy": "it says of no witness where it is"}
    with connected(data) as client:
        return dict(relay.carry(client)[1])
