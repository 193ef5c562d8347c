"""The part of `aetheris demo unknown` in which a payment is on its way for longer than its sender lives."""

import time
from dataclasses import dataclass
from uuid import uuid4

from aetheris.rigs.chaos.external_server import ExternalServer
from aetheris.rigs.demo import naive_loop
from aetheris.rigs.demo.kills import CALL_WITHIN_S, EXECUTOR, DemoError
from aetheris.rigs.demo.paid import payment_of
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.settings import UNDER_WAY_S
from aetheris.rigs.demo.stage import ASK_AGAIN_S, END_WITHIN_S, await_status, settled_by, verified_with_seal
from aetheris.rigs.demo.system import DemoSystem
from aetheris.sdk.client import JobEvent

NAIVE_ORDER, ORDER = "o-1001", "o-1002"


@dataclass(frozen=True)
class Paid:
    """What came of one payment: how often it is in the bank's book, what settled it, and what the bank had said."""

    payments: int
    by: str
    answers: tuple[str, ...]
    verified: bool

    @property
    def as_promised(self) -> bool:
        """Once, by an answer that came after one that knew nothing of it."""
        return self == Paid(1, "probe", ("not_found", "found"), verified=True)


def naive(bank: ExternalServer, say: Say) -> int:
    """How often a loop pays that looks first."""
    held = bank.hold_before(NAIVE_ORDER)
    count = naive_loop.pay(bank.url, NAIVE_ORDER)
    say.kill("a payment is slow on its way; the loop waits for it no longer, looks, finds nothing, and pays again")
    held.unlink()
    bank.wait_for(2, payment_of(NAIVE_ORDER))
    payments = bank.count(payment_of(NAIVE_ORDER))
    say.step(
        f"it tried {count} times, looked before each, and says it is done: {payments} payment(s) in the bank's book"
    )
    return payments


def on_aetheris(system: DemoSystem, bank: ExternalServer, say: Say) -> Paid:
    """The same, and the sender is killed. Raises: DemoError: it does not go on in time."""
    held = bank.hold_before(ORDER)
    plan = {"nodes": [{"id": "pay", "tool": "pay", "args": {"order": ORDER}}]}
    job_id = system.submit(plan, f"demo-{uuid4()}")
    say.step(f"submitted as job {job_id}; its payment is slow on its way")
    bank.wait_arrived(ORDER, CALL_WITHIN_S)
    pid = system.kill(EXECUTOR)
    say.kill(f"kill -9 {pid} (executor): its payment is under way, and not in the book")
    _await_event(system, job_id, "invocation_probed")
    say.step("its outside is asked by the key of the call: nothing there. So it says, and nobody pays again yet:")
    say.detail(f"what was sent may be under way for {UNDER_WAY_S:.0f} s, says the tool; then it is asked once more")
    held.unlink()
    bank.wait_for(1, payment_of(ORDER))
    say.step("now the payment arrives")
    _await_event(system, job_id, "tool_invocation_finished")
    await_status(system, job_id, "completed")
    answers = tuple(str(event.data["answer"]) for event in _events(system, job_id, "invocation_probed"))
    paid = Paid(
        bank.count(payment_of(ORDER)),
        settled_by(system, job_id, "pay"),
        answers,
        bool(verified_with_seal(system, job_id)["ok"]),
    )
    say.step(f"the job has completed. The bank said {', '.join(answers)}: {paid.payments} payment(s) in its book")
    return paid


def _await_event(system: DemoSystem, job_id: str, kind: str) -> None:
    deadline = time.monotonic() + END_WITHIN_S
    while not _events(system, job_id, kind):
        if time.monotonic() > deadline:
            raise DemoError(f"no {kind} within {END_WITHIN_S:.0f} s")
        time.sleep(ASK_AGAIN_S)


def _events(system: DemoSystem, job_id: str, kind: str) -> list[JobEvent]:
    return [event for event in system.client.events(job_id) if event.type == kind]
