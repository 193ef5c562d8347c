"""`aetheris demo approve`: a payout waits for a human, through a blackout, and is made once, as he changed it."""

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx

from aetheris.cli import local, token_files
from aetheris.protocol.base.principals import PrincipalKind, Role
from aetheris.rigs.chaos.external_server import ExternalServer, running_external_server
from aetheris.rigs.demo.kills import DemoError
from aetheris.rigs.demo.paid import tag_of
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.stage import (
    ASK_AGAIN_S,
    END_WITHIN_S,
    await_status,
    report,
    verified_with_seal,
)
from aetheris.rigs.demo.system import DemoSystem, check_free, running
from aetheris.sdk.client import Action, Client, Conflict, Forbidden, Unreachable

PAYEE, ASKED, CHANGED = "Northwind", 5_000, 500
EDITOR, APPROVER = "carol", "dave"
BLACKOUT_S = 10.0


@dataclass(frozen=True)
class ApproveOutcome:
    """What the demo has shown; answers are HTTP statuses."""

    own_approval: int
    own_edit: int
    stale_approval: int
    replayed_approval: int
    payouts: tuple[str, ...]
    verified: bool

    @property
    def as_promised(self) -> bool:
        """Refused where it must be, and one payout of what was approved."""
        answers = (self.own_approval, self.own_edit, self.stale_approval, self.replayed_approval)
        refused = answers == (403, 403, 409, 409)
        return refused and self.payouts == (tag_of(PAYEE, CHANGED),) and self.verified


def run(data: Path | None, keep: bool) -> int:
    """Run the whole story, print its table; 0 if all is as promised, else 1.

    Args:
        data: folder of the log and the servers' data; None: a temporary one, removed afterwards.
        keep: leave Aetheris running, to look at the job.
    """
    return report(data, lambda folder, say: _play(folder, say, keep=keep), _show, keep=keep)


def _play(folder: Path, say: Say, *, keep: bool) -> ApproveOutcome:
    check_free(folder)
    _write_tokens(folder)
    say.headline("The external system: a bank that makes every payout it is asked for, and drops no repeat")
    with running_external_server(folder / "demo" / f"bank-{uuid4().hex[:8]}") as bank:
        env = {
            "AETHERIS_TOOLS": "aetheris.rigs.demo.payouts",
            "AETHERIS_POLICY": str(Path(__file__).with_name("approve_policy.toml")),
            "DEMO_BANK_URL": bank.url,
        }
        say.step("starting Kafka, Valkey and the six services (the first time, Kafka is downloaded)")
        with running(folder, env, say, keep=keep) as system:
            job_id, request = _ask(system, say)
            own = _refused(system.client, request, "approve")
            say.step(f"{token_files.AGENT}, who submitted the job, approves it himself: {own}")
            count = system.kill_everything()
            say.kill(
                f"kill -9: all {count} processes, Kafka and Valkey among them; for {BLACKOUT_S:.0f} s nothing runs"
            )
            time.sleep(BLACKOUT_S)
        with running(folder, env, say, keep=keep) as system:
            return _answer(system, bank, job_id, request, own, say)


def _ask(system: DemoSystem, say: Say) -> tuple[str, str]:
    say.headline(f"An agent wants to pay {ASKED} units to {PAYEE}")
    node = {"id": "pay", "tool": "payout", "args": {"to": PAYEE, "amount": ASKED}}
    job_id = system.submit({"nodes": [node]}, f"demo-{uuid4()}")
    request = _await_request(system, job_id)
    form = system.client.request(request).request
    names = ", ".join(f"{field['name']} = {field['default']}" for field in form["fields"])
    say.step(f"job {job_id} waits for a human: {form['title']} {names}")
    say.detail(f"the policy's rule names who may answer: {EDITOR}, {APPROVER}; until {form['expires_at']}")
    return job_id, request


def _answer(system: DemoSystem, bank: ExternalServer, job_id: str, request: str, own: int, say: Say) -> ApproveOutcome:  # noqa: PLR0917  what the first half of the story has left
    say.headline("Everything is started again on the same folder")
    if _await_request(system, job_id) != request:
        raise DemoError("the job asks for something else than before")
    say.step("the same request waits, from the log")
    with _client(system, EDITOR) as editor, _client(system, APPROVER) as approver:
        changed = editor.respond(request, "edit", data={"amount": CHANGED})
        new = changed.next_request_id
        if new is None:
            raise DemoError(f"the change was answered with {changed.event}")
        say.step(f"{EDITOR} changes the amount to {CHANGED}: that is another call, which needs its own approval")
        edit = _refused(editor, new, "approve")
        say.step(f"{EDITOR}, who changed it, approves it herself: {edit}")
        stale = _refused(approver, request, "approve")
        say.step(f"{APPROVER} still has the old form open, and approves {ASKED}: {stale}")
        reported = approver.respond(new, "approve", comment="as agreed")
        say.step(f"{APPROVER} approves {CHANGED}: {reported.event}")
        await_status(system, job_id, "completed")
        say.step(f"the approval is sent once more: {_repeated(approver, new)}")
        replayed = _refused(approver, new, "reject")
        say.step(f"{APPROVER} says no after all: {replayed}")
    payouts = tuple(effect["tag"] for effect in bank.effects())
    say.step(f"the job has completed. The bank's book: {', '.join(payouts)}")
    verified = bool(verified_with_seal(system, job_id)["ok"])
    return ApproveOutcome(own, edit, stale, replayed, payouts, verified)


def _await_request(system: DemoSystem, job_id: str) -> str:
    """Raises: DemoError: nothing is asked."""
    deadline = time.monotonic() + END_WITHIN_S
    while time.monotonic() < deadline:
        try:
            for one in system.client.approvals().approvals:
                if one.job_id == job_id:
                    return one.request_id
        except Unreachable:
            pass
        time.sleep(ASK_AGAIN_S)
    raise DemoError("the job asks for no approval")


def _refused(client: Client, request: str, action: Action) -> int:
    """The status of an answer that must not count; 200 where it did."""
    try:
        client.respond(request, action)
    except Conflict:
        return 409
    except Forbidden:
        return 403
    return 200


def _repeated(client: Client, request: str) -> str:
    """The same answer by the same name is the same answer."""
    return f"200, {client.respond(request, 'approve', comment='as agreed').event} as before"


@contextmanager
def _client(system: DemoSystem, who: str) -> Generator[Client]:
    where = local.target(system.data, who)
    with ExitStack() as stack:
        yield stack.enter_context(Client(where.url, where.token, transport=httpx.HTTPTransport()))


def _write_tokens(folder: Path) -> None:
    """One for the agent, and for two people of finance."""
    token_files.ensure_tokens(folder)
    with token_files.changed(folder / "tokens.toml") as entries:
        for who in (EDITOR, APPROVER):
            token = token_files.fresh()
            token_files.save(folder, who, token)
            roles = (Role.READ, Role.READ_PAYLOADS, Role.APPROVE)
            entries.append(token_files.entry(token, who, kind=PrincipalKind.PERSON, roles=roles))


def _show(outcome: ApproveOutcome, say: Say) -> None:
    rows = [
        ("the submitter approves himself", str(outcome.own_approval), "403"),
        ("who changed the call approves it", str(outcome.own_edit), "403"),
        (f"a stale approval of {ASKED}", str(outcome.stale_approval), "409"),
        ("another answer, afterwards", str(outcome.replayed_approval), "409"),
        ("payouts in the bank's book", ", ".join(outcome.payouts), tag_of(PAYEE, CHANGED)),
        ("verify", "holds" if outcome.verified else "fails", "holds"),
    ]
    say.table(("", "found", "promised"), rows)
