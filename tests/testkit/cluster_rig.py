"""The whole system on a cluster of three brokers, jobs that go on while it is hurt, and what came of them."""

import asyncio
import concurrent.futures
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import httpx

from aetheris.cli import local
from aetheris.cli.embedded.kafka import Tuning
from aetheris.cli.embedded.services import SERVICES
from aetheris.protocol.messages.events import JobCompleted
from aetheris.rigs.chaos.observer import JobsObserver, observing
from aetheris.runtime.kafka.admin import ensure_topics
from aetheris.runtime.keys.files import make_installation, make_key
from aetheris.sdk.client import Client, TooManyRequests, Unreachable
from tests.testkit.attempts import fresh
from tests.testkit.cluster import Cluster
from tests.testkit.external_server import ExternalServer, until
from tests.testkit.rig import Rig, poke, running_rig

JVM = ("-Xms192m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PARTITIONS = 4
STEPS = 10
IN_FLIGHT = 24
PATIENCE_S = 300.0
_LOOK_EVERY_S = 0.05
_AGAIN_S = 0.2


def tuning(_node: int) -> Tuning:
    """Small brokers: there are several on this machine."""
    return Tuning(JVM)


@dataclass
class ClusterOutcome:
    """What came of the jobs of a load; times are the monotonic clock's, in seconds."""

    jobs: int
    ended_s: list[float]
    lost: list[str]
    twice: list[str]
    unproven: list[str]

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, nothing came twice, and every job verifies."""
        return not (self.lost or self.twice or self.unproven)

    def longest_gap_s(self, since_s: float = 0.0, until_s: float = float("inf")) -> float:
        """The longest time between two ended jobs, one of them within these times at least."""
        times = sorted(self.ended_s)
        return max((b - a for a, b in pairwise(times) if b >= since_s and a <= until_s), default=0.0)


class LoadedSystem(Protocol):
    """What jobs are submitted to, and where their effects are counted."""

    @property
    def external(self) -> ExternalServer:
        """That of the tools."""
        ...

    def client(self) -> Client:
        """Of a gateway, past any proxy."""
        ...


@dataclass
class ClusterLoad:
    """Chains of ten steps, `IN_FLIGHT` jobs at a time: each slot submits its next once its last has ended.

    A submission is repeated under its key until it is acknowledged; from then on its job must end.
    """

    rig: LoadedSystem
    observer: JobsObserver
    acknowledged: dict[str, str] = field(default_factory=dict[str, str])
    """Job → the tag of its steps."""
    slots: list[Future[None]] = field(default_factory=list[Future[None]])
    _ends: dict[str, float] = field(default_factory=dict[str, float])
    _stopping: threading.Event = field(default_factory=threading.Event)
    _failed: list[BaseException] = field(default_factory=list[BaseException])

    def wait_ended(self, more: int) -> None:
        """Return once so many more jobs have ended.

        Raises:
            TimeoutError: they have not.
        """
        wanted = len(self._ends) + more
        until(lambda: len(self._ends) >= wanted or bool(self._failed), PATIENCE_S)
        assert not self._failed, self._failed

    def stop(self) -> None:
        """Submit no more."""
        self._stopping.set()

    def finish(self, within_s: float = PATIENCE_S) -> ClusterOutcome:
        """Submit no more, wait until every acknowledged job has ended, and count outside."""
        self.stop()
        concurrent.futures.wait(self.slots)  # one may just be told that its submission was taken
        open_jobs = set(self.acknowledged)

        def all_ended() -> bool:
            open_jobs.difference_update(job for job in tuple(open_jobs) if self._ended(job) is not None)
            return not open_jobs

        with suppress(TimeoutError):  # those that have not are named as lost
            until(all_ended, within_s)
        assert not self._failed, self._failed
        return self._counted(open_jobs)

    def run(self) -> None:
        """One slot, until the load is told to stop."""
        try:
            with self.rig.client() as client:
                while not self._stopping.is_set():
                    self._one(client)
        except BaseException as error:
            self._failed.append(error)
            raise

    def _one(self, client: Client) -> None:
        tag = fresh("c")
        nodes = [poke(f"n{n}", f"{tag}-{n}", *([f"n{n - 1}"] if n else [])) for n in range(STEPS)]
        while not self._stopping.is_set():
            try:
                job = client.submit({"nodes": nodes}, idempotency_key=tag).job_id
            except (Unreachable, TooManyRequests):
                time.sleep(_AGAIN_S)
                continue
            self.acknowledged[job] = tag
            while self._ended(job) is None and not self._stopping.is_set():
                time.sleep(_LOOK_EVERY_S)
            return

    def _ended(self, job: str) -> float | None:
        """When its end was read in the log."""
        if job not in self._ends:
            with self.observer.lock:
                seen = self.observer.jobs.get(job)
                if seen is None or seen.state.terminal is None:
                    return None
                self._ends[job] = next(at_s for at_s, event in seen.events if event is seen.state.terminal)
                seen.events.clear()  # an hour of jobs has too many
        return self._ends[job]

    def _counted(self, still_open: set[str]) -> ClusterOutcome:
        effects = Counter(effect["tag"] for effect in self.rig.external.effects())
        lost = [f"{job}: not ended" for job in sorted(still_open)]
        twice: list[str] = []
        times: list[float] = []
        for job, tag in self.acknowledged.items():
            made = [effects[f"{tag}-{n}"] for n in range(STEPS)]
            twice += [f"{job} n{n}: {count} effects" for n, count in enumerate(made) if count > 1]
            ended_s = self._ended(job)
            if ended_s is None:
                continue
            times.append(ended_s)
            with self.observer.lock:
                terminal = self.observer.jobs[job].state.terminal
            if not isinstance(terminal, JobCompleted):
                lost.append(f"{job}: {terminal}")
            lost += [f"{job} n{n}: no effect" for n, count in enumerate(made) if not count]
        return ClusterOutcome(len(self.acknowledged), times, lost, twice, self._unproven(still_open))

    def _unproven(self, still_open: set[str]) -> list[str]:
        with self.rig.client() as client:

            def failing(job: str) -> str | None:
                report: dict[str, Any] = {}

                def verified() -> bool:
                    try:
                        report.update(client.verify(job))
                    except Unreachable:
                        return False
                    return True

                until(verified, PATIENCE_S)
                return None if report["ok"] else f"{job}: {report['violations']}"

            with ThreadPoolExecutor(4) as pool:
                found = pool.map(failing, [job for job in self.acknowledged if job not in still_open])
                return [one for one in found if one is not None]


@dataclass(frozen=True)
class ClusterRig(Rig):
    """The system runs on `cluster`."""

    cluster: Cluster

    def client(self) -> Client:
        """Of the gateway, past any proxy."""
        target = local.target(self.system.data)
        return Client(target.url, target.token, timeout_s=60, transport=httpx.HTTPTransport())

    def starts(self) -> int:
        """How often a service was started until now."""
        return sum(part.incarnation for part in self.system.state().parts.values())

    def loaded(self, in_flight: int = IN_FLIGHT) -> AbstractContextManager[ClusterLoad]:
        """Jobs go on inside, so many at a time; `finish` counts."""
        return loading(self, self.cluster.address, in_flight)


@contextmanager
def loading(rig: LoadedSystem, kafka: str, in_flight: int) -> Generator[ClusterLoad]:
    """Jobs go on inside, so many at a time; `finish` counts."""
    with observing(kafka) as observer, ThreadPoolExecutor(in_flight) as slots:
        load = ClusterLoad(rig, observer)
        try:
            load.slots += [slots.submit(load.run) for _ in range(in_flight)]
            yield load
        finally:
            load.stop()


@contextmanager
def running_on(cluster: Cluster, folder: Path, env: Mapping[str, str] | None = None) -> Generator[ClusterRig]:
    """Topics of three replicas, and every service, which checks them as in production: none is told of a trial."""
    asyncio.run(ensure_topics(cluster.address, PARTITIONS, 3))
    given = {"AETHERIS_KAFKA": cluster.address, "AETHERIS_LEASE_TTL_S": "2", **_keys(folder / "data"), **(env or {})}
    with running_rig(folder, given) as rig:
        until(lambda: bool(rig.system.api.get("/tools").json().get("tools")), PATIENCE_S)
        yield ClusterRig(rig.system, rig.external, cluster)


def _keys(data: Path) -> dict[str, str]:
    """Made by who runs it, as in production."""
    own, now = data / "keys", datetime.now(UTC)
    parties = [service.signs for service in SERVICES if service.signs is not None]
    root = make_installation(own / "records", parties, now - timedelta(1), now + timedelta(1))
    for name in ("seal", "log"):
        make_key(own / f"{name}.pem")
    return {
        "AETHERIS_INSTALLATION": root,
        "AETHERIS_SEAL_KEY": str(own / "seal.pem"),
        "AETHERIS_SEAL_LOG_KEY": str(own / "log.pem"),
    }
