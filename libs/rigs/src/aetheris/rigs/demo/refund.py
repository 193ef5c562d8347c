"""`aetheris demo refund`: a refund by a naive agent and on Aetheris, both killed, counted at the other side."""

import json
import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from aetheris.cli import streamfile
from aetheris.cli.streamfile import Stream
from aetheris.proofs import Violation
from aetheris.rigs.demo.external_systems import DemoExternalSystems, EffectCounts, ExternalSystemError
from aetheris.rigs.demo.gate import Gate
from aetheris.rigs.demo.kills import Kills, Torment
from aetheris.rigs.demo.naive import CRASHES, NaiveCrash, run_naive
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.servers import MissingServerError
from aetheris.rigs.demo.stage import await_status, report, verified_with_seal
from aetheris.rigs.demo.system import DemoSystem, check_free, running
from aetheris.rigs.demo.tamper import complaint, forge, judge
from aetheris.runtime.redis.client import RedisUnavailable

PLAN = Path(__file__).with_name("plan.json")
NAIVE_ORDER, ORDER = "o-1001", "o-1002"
AMOUNT = 4200  # cents
CUSTOMER = "ada@example.org"

TWICE, ONCE = EffectCounts(2, 2, 2), EffectCounts(1, 1, 1)

_EXPECTED = (ExternalSystemError, MissingServerError, RedisUnavailable)


@dataclass(frozen=True)
class Proof:
    """Whether the job verifies, in the system and offline; and what is said of a stream with one byte changed."""

    online_ok: bool
    offline_ok: bool
    tampered_ok: bool
    complaint: Violation | None

    @property
    def holds(self) -> bool:
        """The true history passes; the forged one does not, and the event is named."""
        return self.online_ok and self.offline_ok and not self.tampered_ok and self.complaint is not None


@dataclass(frozen=True)
class RefundOutcome:
    """What the demo has shown."""

    naive: EffectCounts
    aetheris: EffectCounts
    kills: Kills
    proof: Proof

    @property
    def as_promised(self) -> bool:
        """The naive agent's doubles, one of each on Aetheris, and a proof."""
        return (self.naive, self.aetheris) == (TWICE, ONCE) and self.proof.holds


def run(data: Path | None, keep: bool) -> int:
    """Run the whole story, print its table; 0 if every count and every verification is as promised, else 1.

    Args:
        data: folder of the log, the servers' data and their logs; None: a temporary one, removed afterwards.
        keep: leave Aetheris running, to look at the job.
    """
    return report(data, lambda folder, say: _play(folder, say, keep=keep), _show, keep=keep, expected=_EXPECTED)


def _play(folder: Path, say: Say, *, keep: bool) -> RefundOutcome:
    check_free(folder)
    shop = folder / "demo"
    shutil.rmtree(shop, ignore_errors=True)  # of an earlier run on this folder
    say.headline(
        "External systems: a payment server (localstripe), a mail server (aiosmtpd), an issue tracker (Roundup)"
    )
    say.step("starting them; they are real servers that know nothing of Aetheris, and none of them drops repeats")
    with DemoExternalSystems(shop / "outside") as external:
        for order_id in (NAIVE_ORDER, ORDER):
            external.place_order(order_id, AMOUNT, CUSTOMER)
        say.step(f"a customer has paid {AMOUNT / 100:.2f} EUR each for orders {NAIVE_ORDER} and {ORDER}")
        say.detail("the job for each: look the order up, refund it, mail a receipt, file an issue; once, not twice")
        naive = _naive(external, shop / "naive", say)
        with _gates(external) as gates:
            return _on_aetheris(folder, external, gates, naive, say, keep=keep)


def _naive(external: DemoExternalSystems, folder: Path, say: Say) -> EffectCounts:
    say.headline(f"Order {NAIVE_ORDER}: a naive agent with retries and a progress file")

    def told(crash: NaiveCrash) -> None:
        say.kill(f"kill -9: its {crash.effect} had landed, the answer was on the way; it is started again")

    counts = run_naive(external, folder, NAIVE_ORDER, told)
    say.step(f"it says it is done. Its servers have: {_words(counts)}")
    return counts


def _on_aetheris(
    folder: Path, external: DemoExternalSystems, gates: Mapping[str, Gate], naive: EffectCounts, say: Say, *, keep: bool
) -> RefundOutcome:
    say.headline(f"Order {ORDER}: the same job on Aetheris")
    say.step("starting Kafka, Valkey and the six services (the first time, Kafka is downloaded)")
    with running(folder, {**external.env, **_through(gates)}, say, keep=keep) as system:
        torment = Torment(system, external, gates, ORDER, say)
        torment.begin()
        job_id = system.submit(_plan(), f"demo-{uuid4()}")
        say.step(f"submitted as job {job_id}")
        say.detail("the executor makes the calls; the ledger says which may be made; what they know lies in Kafka")
        kills = torment.run(job_id)
        await_status(system, job_id, "completed")
        counts = external.counts(ORDER)
        say.step(f"the job has completed. The servers have: {_words(counts)}")
        return RefundOutcome(naive, counts, kills, _prove(system, job_id, folder / "demo", say))


def _prove(system: DemoSystem, job_id: str, folder: Path, say: Say) -> Proof:
    say.headline("Proof: anyone can check the job's history")
    online = verified_with_seal(system, job_id)
    say.step(f"verify: {_verdict(bool(online['ok']))}, {online['event_count']} events, sealed and signed")
    exported, tampered = folder / "exported.jsonl", folder / "tampered.jsonl"
    _write(streamfile.of_answer(system.client.raw_stream(job_id)), exported)
    offline = judge(streamfile.read(exported))
    say.step(f"the exported stream, verified offline: {_verdict(offline.ok)}")
    forgery = forge(streamfile.read(exported), "tool_invocation_finished", "refund", AMOUNT)
    _write(forgery.stream, tampered)
    say.kill(f"one byte of the exported stream is changed: the refund's {forgery.was} becomes {forgery.now}")
    report = judge(streamfile.read(tampered))
    broken = complaint(report, forgery.event_id)
    if broken is not None:
        say.step(f"verify: {_verdict(report.ok)}, and names event {broken.event_id} ({broken.rule})")
    return Proof(bool(online["ok"]), offline.ok, report.ok, broken)


def _write(stream: Stream, path: Path) -> None:
    path.write_text("".join(f"{line}\n" for line in stream.lines()))


@contextmanager
def _gates(external: DemoExternalSystems) -> Generator[Mapping[str, Gate]]:
    """One in front of each server, open until a moment is to be made."""
    with ExitStack() as stack:
        yield {crash.server: stack.enter_context(Gate(external.ports[crash.server])) for crash in CRASHES}


def _through(gates: Mapping[str, Gate]) -> dict[str, str]:
    found: dict[str, str] = {}
    for crash in CRASHES:
        found |= crash.through(gates[crash.server].port)
    return found


def _plan() -> dict[str, Any]:
    return json.loads(PLAN.read_text())


def _show(outcome: RefundOutcome, say: Say) -> None:
    naive, aetheris, kills, proof = outcome.naive, outcome.aetheris, outcome.kills, outcome.proof
    named = ", names the event" if proof.complaint is not None else ", names no event"
    rows = [
        ("refunds at the payment server", _count(naive.refunds, 2), _count(aetheris.refunds, 1)),
        ("mails in the mailbox", _count(naive.mails, 2), _count(aetheris.mails, 1)),
        ("issues in the tracker", _count(naive.issues, 2), _count(aetheris.issues, 1)),
        ("kill -9", f"{len(CRASHES)} × agent", f"{kills.executor} × executor, {kills.ledger} × ledger"),
        ("FLUSHALL", "", str(kills.flushes)),
        ("slowest recovery", "", f"{kills.slowest_recovery_s:.1f} s"),
        ("verify", "nothing to verify", _verdict(proof.online_ok and proof.offline_ok)),
        ("verify, one byte changed", "", f"{_verdict(proof.tampered_ok)}{named}"),
    ]
    say.table(("counted at the other side", "naive agent", "Aetheris"), rows)


def _count(found: int, expected: int) -> str:
    return str(found) if found == expected else f"[red]{found} (expected {expected})[/red]"


def _verdict(ok: bool) -> str:
    return "holds" if ok else "fails"


def _words(counts: EffectCounts) -> str:
    return f"{counts.refunds} refund(s), {counts.mails} mail(s), {counts.issues} issue(s)"
