"""One run: the real appender, and the real pump and reader, over simulated brokers that come and go."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, cast

import structlog

from aetheris.protocol.base.records import Draft, Group, Record
from aetheris.runtime.kafka.appender import KafkaAppender
from aetheris.runtime.kafka.reader import KafkaReader
from aetheris.runtime.log.interface import AppendRefused, LogGap, LogUnreachable, Place, Written
from aetheris.runtime.log.pump import Pump
from aetheris.testkit.simulation.brokers.cluster import PARTITIONS, TOO_LARGE, TOPIC, BrokerNode, Cluster
from aetheris.testkit.simulation.brokers.loop import DeadlockedError, run_virtually
from aetheris.testkit.simulation.checks import Broken
from aetheris.testkit.simulation.outcome import RunOutcome
from aetheris.testkit.simulation.tape import Tape

APPENDS = 60
LATER_APPENDS = 6
FAULTS = 10
LONGEST_CALM_S = 120.0
"""Virtual time without faults after which whatever was appended is acknowledged, and read."""
_WATCH_S = 1.0


class _Log:
    """The part of a log that a pump asks for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def reader(self, max_wait_s: float = 0.1) -> KafkaReader:
        return KafkaReader(self._cluster, max_wait_s)

    async def end_offsets(self, places: Collection[Place], deadline_s: float = 10.0) -> dict[Place, int]:  # noqa: ARG002  answers at once
        await asyncio.sleep(0.001)
        return {place: self._cluster.end_of(place) for place in places}


class BrokersRun:
    """Brokers, one process that writes and reads, and what it was told."""

    def __init__(self, seed: int) -> None:
        self.tape = Tape(seed)
        self.cluster = Cluster(self.tape)
        self.faults = 0
        self.history: list[str] = []
        self._appended: dict[Place, list[Group]] = {place: [] for place in self.cluster.places}
        self._failures: list[BaseException] = []
        self._refused: list[Group] = []
        self._read: dict[Place, list[Record]] = {place: [] for place in self.cluster.places}
        self._pump = Pump(
            cast("Any", _Log(self.cluster)), self._deliver, 0.03 if self.tape.chance(0.5) else 0.0, own=True
        )

    async def go(self) -> None:
        """Appends and faults side by side; then rest, and what must hold then.

        Raises:
            Broken: a promise was.
        """
        asyncio.get_running_loop().set_exception_handler(self._note_failure)
        appender = KafkaAppender(self.cluster, self.cluster.partitions, wall=asyncio.get_running_loop().time)
        await _started(appender)
        appender.report(self._reported)
        self._pump.add(dict.fromkeys(self.cluster.places, 0))
        reading = [asyncio.create_task(work) for work in (self._pump.run(), self._watch())]
        writing = [asyncio.create_task(self._append(appender, number)) for number in range(APPENDS)]
        await self._storm()
        self._heal()
        writing += [asyncio.create_task(self._append(appender, APPENDS + number)) for number in range(LATER_APPENDS)]
        await self._rest(writing, reading)
        await appender.stop()
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for one in writing:
            one.result()
        self._check_log()

    # what happens

    def _note_failure(self, _loop: object, context: dict[str, Any]) -> None:
        """What escapes a callback, also of the appender's."""
        self._failures.append(context.get("exception") or RuntimeError(context["message"]))

    async def _append(self, appender: KafkaAppender, number: int) -> None:
        await asyncio.sleep(self.tape.below(400) / 10)
        groups = [self._group(f"{number}.{place}") for place in range(1 + self.tape.below(3))]
        for group in groups:
            self._appended[TOPIC, group[0].partition or 0].append(group)
        try:
            await appender.append(groups)
        except AppendRefused as error:
            self._refused += [one.group for one in error.refusals]
        for group in groups:
            self._check_acknowledged(group)

    def _group(self, name: str) -> Group:
        partition, size = self.tape.below(PARTITIONS), 1 + self.tape.below(3)
        large = TOO_LARGE if self.tape.chance(0.05) else b""
        return tuple(Draft(TOPIC, b"k", large + f"{name}.{place}".encode(), (), partition) for place in range(size))

    async def _storm(self) -> None:
        for _ in range(2 + self.tape.below(FAULTS)):
            await asyncio.sleep(self.tape.below(80) / 10)
            self.faults += 1
            self._strike()

    def _strike(self) -> None:
        cluster, node = self.cluster, self.tape.pick(self.cluster.nodes)
        back_s = self.tape.below(300) / 10
        kind = self.tape.below(len(_KINDS))
        self._report(node, _KINDS[kind])
        if kind == 0:
            cluster.kill(node)
        elif kind == 1 and node.up:
            cluster.suspend(node)
        elif kind == 2:
            cluster.hand_over(self.tape.pick(sorted(cluster.places)))
        elif kind == 3:
            cluster.cut(node)
        elif kind == 4:
            node.late_s = self.tape.below(400) / 10
            asyncio.get_running_loop().call_later(back_s, self._in_time, node)
        elif kind == 5:
            node.sessions.clear()
        else:
            self._hold(self.tape.pick(sorted(cluster.places)), back_s)
        if not node.up or node.stopped:
            asyncio.get_running_loop().call_later(back_s, cluster.come_back, node)

    def _report(self, node: BrokerNode, what: str) -> None:
        self.history.append(f"{asyncio.get_running_loop().time() - 1000:7.2f} broker {node.number}: {what}")

    def _hold(self, place: Place, for_s: float) -> None:
        """Its partition has enough to do."""
        self._pump.hold([place])
        asyncio.get_running_loop().call_later(for_s, self._pump.release, [place])

    def _in_time(self, node: Any) -> None:
        node.late_s = 0.0

    def _heal(self) -> None:
        """All come back; at times but one, which stays stopped: it takes connections, and whatever it led others do."""
        self.cluster.calm = True
        lasting = self.tape.pick(self.cluster.nodes) if self.tape.chance(0.3) else None
        for node in self.cluster.nodes:
            node.late_s = 0.0
            self.cluster.come_back(node)
        if lasting is not None:
            self._report(lasting, "stays stopped")
            self.cluster.suspend(lasting)
            self.cluster.gone = lasting
        self._pump.release([*self.cluster.places])

    async def _rest(self, writing: Sequence[asyncio.Task[None]], reading: Sequence[asyncio.Task[None]]) -> None:
        """Until all is acknowledged and read."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LONGEST_CALM_S
        while loop.time() < until_s:
            for failure in self._failures:
                raise failure
            for one in (*reading, *writing):
                if one.done() and (error := one.exception()) is not None:
                    raise Broken("no_gap", str(error)) if isinstance(error, LogGap) else error
            if all(one.done() for one in writing) and self._has_read_all():
                return
            await asyncio.sleep(1.0)
        left = sum(not one.done() for one in writing)
        raise Broken("bounded", f"{left} appends are not acknowledged; read: {self._has_read_all()}")

    def _has_read_all(self) -> bool:
        return all(len(self._read[place]) == held.end for place, held in self.cluster.places.items())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            await self._pump.check_silence()

    # what must hold

    def _deliver(self, place: Place, records: list[Record]) -> None:
        """Each record once, in the log's order, as it lies there."""
        read, held = self._read[place], self.cluster.places[place]
        for record in records:
            if record.offset != len(read):
                raise Broken("read_in_order", f"{place}: {record.offset} comes after {len(read) - 1}")
            if record.value != held.value(record.offset):
                raise Broken("read_as_written", f"{place}@{record.offset}")
            read.append(record)

    def _reported(self, written: Written) -> None:
        """What is said to be written lies where it is said to."""
        held = self.cluster.places[written.place]
        for at, draft in enumerate(written.drafts, written.first):
            if at >= held.end or held.value(at) != draft.value:
                raise Broken("acknowledged_where_it_lies", f"{written.place}@{at}")
        self._pump.written(written)

    def _check_acknowledged(self, group: Group) -> None:
        """Whole, in one batch; or refused, and nowhere."""
        held = self.cluster.places[TOPIC, group[0].partition or 0]
        values = tuple(draft.value for draft in group)
        found = [one for one in held.batches if values[0] in one.values]
        if group in self._refused:
            if found or not values[0].startswith(TOO_LARGE):
                raise Broken("refused_is_nowhere", f"{values[0]!r}")
            return
        if not found:
            raise Broken("acknowledged_is_there", f"{values[0]!r} is acknowledged, and in no batch")
        for one in found:
            at = one.values.index(values[0])
            if one.values[at : at + len(values)] != values:
                raise Broken("groups_are_whole", f"{values[0]!r}")

    def _check_log(self) -> None:
        """Groups lie in the order of their appends, by where each lies first; once, but for those in doubt."""
        for place, groups in self._appended.items():
            values = [value for one in self.cluster.places[place].batches for value in one.values]
            first = {value: at for at, value in reversed([*enumerate(values)])}
            at = [first[group[0].value] for group in groups if group not in self._refused]
            if at != sorted(at):
                raise Broken("groups_keep_their_order", f"{place}")
            most = Counter(values).most_common(1)
            if most and most[0][1] > 1 + self.cluster.producers:
                raise Broken("no_copy_without_a_doubt", f"{most[0][0]!r} lies there {most[0][1]} times")


async def _started(appender: KafkaAppender) -> None:
    """A process that finds no broker ends, and starts again."""
    while True:
        try:
            return await appender.start()
        except LogUnreachable:
            await asyncio.sleep(1.0)


_KINDS = (
    "is killed",
    "is stopped",
    "or another hands a lead over",
    "loses its connections",
    "is slow",
    "forgets its readers",
    "is left alone: a place is not read for a while",
)


def simulate_brokers(seed: int) -> RunOutcome:
    """Run a seed; whatever is raised counts as a broken promise too."""
    run = BrokersRun(seed)
    broken, rule = "", ""
    try:
        with structlog.testing.capture_logs():
            run_virtually(run.go())
    except Broken as error:
        broken, rule = str(error), error.rule
    except DeadlockedError:
        broken = rule = "stuck: everybody waits for what never comes"
    except Exception as error:  # noqa: BLE001  what escapes a reader or an appender is what is looked for
        rule = f"raised {type(error).__name__}"
        broken = f"{rule}: {error}"
    records = sum(held.end for held in run.cluster.places.values())
    history = tuple(run.history)
    return RunOutcome(seed=seed, broken=broken, rule=rule, faults=run.faults, records=records, history=history)
