"""Aetheris, killed around every call of the refund job: where, in what order, and how its recovery is awaited."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aetheris.rigs.demo.external_systems import DemoExternalSystems, EffectCounts
from aetheris.rigs.demo.gate import Gate
from aetheris.rigs.demo.naive import CRASHES
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.system import DemoSystem

EXECUTOR, LEDGER = "executor-0", "ledger-0"
CALL_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.01


class DemoError(Exception):
    """The story did not go as it should; the message says where it stopped."""


@dataclass(frozen=True)
class KilledCall:
    """A call of the job: in words, its server, its bytes, and what counts its effect (a lookup has none)."""

    name: str
    server: str
    bytes: bytes
    effects: Callable[[EffectCounts], int] | None = None


CALLS = (
    KilledCall("order lookup", "stripe", b"GET /v1/charges"),
    *(KilledCall(crash.effect, crash.server, crash.call, crash.effects) for crash in CRASHES),
)


@dataclass
class Kills:
    """What was done to the system."""

    executor: int = 0
    ledger: int = 0
    flushes: int = 0
    recovered_s: list[float] = field(default_factory=list[float])

    @property
    def slowest_recovery_s(self) -> float:
        """From a kill to the next call at its server."""
        return max(self.recovered_s, default=0.0)


@dataclass
class Torment:
    """kill -9 before and after each call of one job; in the middle the ledger too, and all of Redis.

    Each moment is made with a gate: it keeps the request back so that nothing happens, or the answer so that nobody
    learns what happened. Only then is the process killed.
    """

    system: DemoSystem
    external: DemoExternalSystems
    gates: Mapping[str, Gate]
    order_id: str
    say: Say
    done: Kills = field(default_factory=Kills)
    _killed_at: float | None = None

    def begin(self) -> None:
        """Lie in wait; call it before the job is submitted."""
        self._before(CALLS[0])

    def run(self, job_id: str) -> Kills:
        """Returns when the job has been killed around its last call, and may end.

        Raises:
            DemoError: a call didn't come.
        """
        for call, following in zip(CALLS, (*CALLS[1:], None), strict=True):
            gate = self.gates[call.server]
            self._await(gate, call, job_id)
            self._kill_executor(f"its {call.name} was on the way, and never arrived")
            gate.hold_after(call.bytes)
            self._await(gate, call, job_id)
            self._await_effect(call)
            self._hurt_more(call)
            landed = "had been made" if call.effects is None else "had landed"
            self._kill_executor(f"its {call.name} {landed}, the answer was on the way")
            gate.open()
            if following is not None:
                self._before(following)
        return self.done

    def _before(self, call: KilledCall) -> None:
        self.gates[call.server].hold_before(call.bytes)

    def _await(self, gate: Gate, call: KilledCall, job_id: str) -> None:
        if not gate.wait_held(CALL_WITHIN_S):
            raise DemoError(f"no {call.name} within {CALL_WITHIN_S:.0f} s: {self._standing(job_id)}")
        if self._killed_at is not None:
            took_s = time.monotonic() - self._killed_at
            self.done.recovered_s.append(took_s)
            self.say.detail(f"recovered, and at work again after {took_s:.1f} s")

    def _await_effect(self, call: KilledCall) -> None:
        deadline = time.monotonic() + CALL_WITHIN_S
        while call.effects is not None and call.effects(self.external.counts(self.order_id)) == 0:
            if time.monotonic() > deadline:
                raise DemoError(f"the {call.name} took no effect at its server")
            time.sleep(_LOOK_EVERY_S)

    def _kill_executor(self, moment: str) -> None:
        pid = self.system.kill(EXECUTOR)
        self._killed_at = time.monotonic()
        self.done.executor += 1
        self.say.kill(f"kill -9 {pid} (executor): {moment}")

    def _hurt_more(self, call: KilledCall) -> None:
        """While nobody yet knows what the call did."""
        if call.name == "refund":
            self.system.flush_redis()
            self.done.flushes += 1
            self.say.kill("FLUSHALL: Redis forgets every lease and every stored effect")
        elif call.name == "mail":
            pid = self.system.kill(LEDGER)
            self.done.ledger += 1
            self.say.kill(f"kill -9 {pid} (ledger): who may run next is forgotten, but for the log")

    def _standing(self, job_id: str) -> str:
        job = self.system.job(job_id)
        return f"the job is {job.status} ({job.why or job.error or 'no reason given'})" if job else "nobody can say why"
