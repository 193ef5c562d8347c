"""Carrying out the faults of a schedule on a running system, and taking back those that last."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aetheris.cli.embedded.plan import ProcessSpec, log_path
from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.probes import kafka_answers
from aetheris.cli.embedded.processes import end, spawn
from aetheris.rigs.chaos.external_server import until
from aetheris.rigs.chaos.quorum import controller, leader_of
from aetheris.rigs.chaos.schedule import OUTSIDE, FaultKind, ScheduledFault, Struck
from aetheris.rigs.chaos.system import ChaosSystem
from aetheris.runtime.redis.client import Redis, RedisUnavailable

RUNS_WITHIN_S = 30.0
BROKER_BACK_WITHIN_S = 60.0
STOPS_WITHIN_S = 10.0
MOST_EXTRAS = 2


@dataclass
class _Lasting:
    """A fault that is to be taken back; it is over once `over` says so."""

    place: int
    due_s: float
    undo: Callable[[], None]
    over: Callable[[], bool]
    undone: bool = False


@dataclass
class FaultInjector:
    """The hand that strikes. Call `tick` often."""

    system: ChaosSystem
    struck: list[Struck] = field(default_factory=list[Struck])
    _lasting: list[_Lasting] = field(default_factory=list[_Lasting])
    _extras: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])
    _leaving: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def strike(self, fault: ScheduledFault) -> Struck:
        """Carry one out; what lasts goes on in the background."""
        reason = self._impossible(fault)
        now_s = time.monotonic()
        self.struck.append(Struck(fault, fault.target, now_s, now_s, reason))
        if reason is None:
            self._carry_out(fault)
        return self.struck[-1]

    def tick(self) -> None:
        """Take back what is due."""
        now_s = time.monotonic()
        for lasting in tuple(self._lasting):
            if not lasting.undone and now_s >= lasting.due_s:
                lasting.undo()
                lasting.undone = True
            if lasting.undone and lasting.over():
                self._lasting.remove(lasting)
                self._note(lasting.place, ended_s=time.monotonic())
        self._leaving = [child for child in self._leaving if child.poll() is None]

    def restless(self) -> list[str]:
        """What still lasts: faults that are not over, extra executors that have not gone."""
        lasting = [
            f"{self.struck[one.place].fault.kind.value} {self.struck[one.place].target}" for one in self._lasting
        ]
        return [*lasting, *(f"pid {child.pid} is leaving" for child in self._leaving)]

    def stop(self) -> None:
        """Take everything back at once, and let extra executors go."""
        for lasting in self._lasting:
            lasting.due_s = 0.0
        for name in tuple(self._extras):
            self._leave(name)
        self.tick()

    def close(self) -> None:
        """End every process of our own, whatever happened."""
        for child in (*self._extras.values(), *self._leaving):
            end(child, 0.0)

    def _carry_out(self, fault: ScheduledFault) -> None:
        match fault.kind:
            case FaultKind.KILL:
                os.kill(self._pid(fault.target), signal.SIGKILL)
            case FaultKind.PAUSE:
                self._pause(fault)
            case FaultKind.FLUSH:
                self._flush()
            case FaultKind.LOSE_TAIL:
                self._lose_tail(fault.amount)
            case FaultKind.KILL_BROKER:
                self._kill_broker(fault.target or self.system.brokers[0])
            case FaultKind.KILL_LEADER | FaultKind.KILL_CONTROLLER:
                self._kill_broker(self._in_charge(fault))
            case FaultKind.STOP_LEADER | FaultKind.STOP_CONTROLLER:
                pid = self._pid(self._in_charge(fault))
                os.kill(pid, signal.SIGSTOP)
                self._last(fault.lasts_s, lambda: _wake(pid), self._brokers_are_back)
            case FaultKind.ROLLING:
                self._last(0.0, _nothing, self._brokers_are_back)
                for name in self.system.brokers:
                    self._restart_broker(name)
            case FaultKind.ADD | FaultKind.REMOVE:
                self._scale(add=fault.kind is FaultKind.ADD)
            case FaultKind.SLOW:
                self._slow(fault.target, fault.amount)
                self._last(fault.lasts_s, lambda: self._slow(fault.target, 0.0))
            case FaultKind.RESET:
                self._reset(fault.target, on=True)
                self._last(fault.lasts_s, lambda: self._reset(fault.target, on=False))
            case FaultKind.ON_THE_WIRE:
                self.system.proxy.late(OUTSIDE, fault.amount)
                self._last(fault.lasts_s, lambda: self._kill_with_requests_under_way(fault.target))
            case FaultKind.FULL_DISK:
                filler = _filled(self.system.broker_folder)
                self._last(fault.lasts_s, lambda: filler.unlink(missing_ok=True), self._brokers_are_back)
            case FaultKind.WRONG_CLOCK | FaultKind.BORN_WRONG:
                clock = self.system.clock(fault.target)
                clock.write_text(f"{fault.amount:+.0f}s\n")
                self._last(fault.lasts_s, lambda: _set_right(clock))
                if fault.kind is FaultKind.BORN_WRONG:
                    os.kill(self._pid(fault.target), signal.SIGKILL)

    def _kill_with_requests_under_way(self, target: str) -> None:
        """What it has sent arrives when it has been gone for a while."""
        pid = self.system.part(target).pid
        if pid is not None:  # else it is between two lives, and what its last one sent arrives as well
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.system.proxy.late(OUTSIDE, 0.0)

    def _impossible(self, fault: ScheduledFault) -> str | None:
        if fault.kind in (FaultKind.WRONG_CLOCK, FaultKind.BORN_WRONG) and not self.system.has_clocks:
            return "libfaketime is not installed"
        if fault.kind is FaultKind.FULL_DISK and not self.system.has_disk:
            return "only root can give the broker a small disk of its own"
        return None

    def _pause(self, fault: ScheduledFault) -> None:
        pid = self._pid(fault.target)
        os.kill(pid, signal.SIGSTOP)
        self._last(fault.lasts_s, lambda: _wake(pid))

    def _flush(self) -> None:
        """A Redis that is just being restarted is waited for."""
        until(self._flushed, RUNS_WITHIN_S)

    def _flushed(self) -> bool:
        try:
            asyncio.run(_flush(self.system.state().redis))
        except RedisUnavailable:
            return False
        return True

    def _lose_tail(self, share: float) -> None:
        """While it is stopped nothing is written: what is cut off is what a lost page cache would have lost."""
        pid = self._pid("valkey")
        os.kill(pid, signal.SIGSTOP)
        until(lambda: _status(pid) in ("T", ""), STOPS_WITHIN_S)
        logs = sorted((self.system.data / "valkey" / "appendonlydir").glob("*.incr.aof"))
        if logs:
            size = logs[-1].stat().st_size
            os.truncate(logs[-1], round(size * (1 - share)))
        os.kill(pid, signal.SIGKILL)

    def _scale(self, *, add: bool) -> None:
        """Up to a few more executors; where there is none to remove one is added, and the other way round."""
        if (add and len(self._extras) < MOST_EXTRAS) or not self._extras:
            self._add()
        else:
            name = next(iter(self._extras))
            self._leave(name)
            self._note(len(self.struck) - 1, target=name)

    def _add(self) -> None:
        name = next(name for number in range(MOST_EXTRAS) if (name := f"extra-{number}") not in self._extras)
        part = _renamed(self.system.template(), name)
        log = log_path(self.system.data, name)
        self._extras[name] = spawn(part.argv, log=log, env={**os.environ, **part.env})
        self._note(len(self.struck) - 1, target=name)

    def _leave(self, name: str) -> None:
        child = self._extras.pop(name)
        child.terminate()
        self._leaving.append(child)

    def _last(self, lasts_s: float, undo: Callable[[], None], over: Callable[[], bool] = lambda: True) -> None:
        place = len(self.struck) - 1
        self.struck[place] = replace(self.struck[place], ended_s=None)
        self._lasting.append(_Lasting(place, time.monotonic() + lasts_s, undo, over))

    def _note(self, place: int, *, target: str | None = None, ended_s: float | None = None) -> None:
        was = self.struck[place]
        self.struck[place] = replace(was, target=target or was.target, ended_s=ended_s or was.ended_s)

    def _slow(self, target: str, late_s: float) -> None:
        for route in self.system.routes(target):
            self.system.proxy.slow(route, late_s)

    def _reset(self, target: str, *, on: bool) -> None:
        for route in self.system.routes(target):
            self.system.proxy.reset(route, on=on)

    def _kill_broker(self, name: str) -> None:
        self._note(len(self.struck) - 1, target=name)
        os.kill(self._pid(name), signal.SIGKILL)
        self._last(0.0, _nothing, self._brokers_are_back)

    def _restart_broker(self, name: str) -> None:
        """In good order, and until it answers again; what lasts beside is taken back meanwhile."""
        pid = self._pid(name)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
        host, port = self.system.addresses()[self.system.brokers.index(name)]

        def is_back() -> bool:
            self.tick()
            return self.system.part(name).pid not in (None, pid) and kafka_answers(f"{host}:{port}")

        with suppress(TimeoutError):
            until(is_back, BROKER_BACK_WITHIN_S)

    def _in_charge(self, fault: ScheduledFault) -> str:
        """The broker that leads the partition, or whose controller is in charge; the first where nobody says."""
        addresses = self.system.addresses()
        if fault.kind in (FaultKind.KILL_CONTROLLER, FaultKind.STOP_CONTROLLER):
            node = asyncio.run(controller(addresses))
            name = self.system.brokers[0] if node is None else self.system.brokers[node - 1]
        else:
            leader = asyncio.run(leader_of(int(fault.target), addresses))
            name = self.system.brokers[0 if leader is None else addresses.index(leader)]
        self._note(len(self.struck) - 1, target=name)
        return name

    def _brokers_are_back(self) -> bool:
        return all(kafka_answers(f"{host}:{port}") for host, port in self.system.addresses())

    def _pid(self, part: str) -> int:
        """It may be between two lives."""
        until(lambda: self.system.part(part).pid is not None, RUNS_WITHIN_S)
        pid = self.system.part(part).pid
        if pid is None:
            raise TimeoutError(f"{part} keeps exiting: see {log_path(self.system.data, part)}")
        return pid


async def _flush(url: str) -> None:
    redis = Redis(url)
    try:
        await redis.pipeline([("FLUSHALL",)])
    finally:
        await redis.close()


def _renamed(part: ProcessSpec, name: str) -> ProcessSpec:
    env = {**part.env, "AETHERIS_WORKER_ID": name, "AETHERIS_HEALTH_PORT": str(free_port())}
    return replace(part, name=name, env=env)


def _filled(folder: Path) -> Path:
    """A file that takes all the room that is left."""
    filler = folder / "filler"
    for size in (1024 * 1024, 4096, 1):
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while file.write(bytes(size)) == size:
                pass
    return filler


def _set_right(clock: Path) -> None:
    clock.write_text("+0\n")


def _wake(pid: int) -> None:
    """SIGCONT, if it is still the stopped one."""
    if _status(pid) == "T":
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _status(pid: int) -> str:
    """The kernel's letter for a process: R, S, T (stopped), Z; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _nothing() -> None:
    """It is undone by itself."""
