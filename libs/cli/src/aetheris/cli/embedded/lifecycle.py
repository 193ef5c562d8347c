"""Up, down and status of the embedded system of one data folder."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from aetheris.cli.embedded import kafka, service_keys, valkey
from aetheris.cli.embedded.bytecode import kept_bytecode
from aetheris.cli.embedded.errors import DiskFullError, EmbeddedError, NotReadyError, NotRunningError, RefusedError
from aetheris.cli.embedded.forks import run_module
from aetheris.cli.embedded.jars import Progress
from aetheris.cli.embedded.plan import PartState, Plan, ProcessSpec, State, log_path
from aetheris.cli.embedded.ports import Ports
from aetheris.cli.embedded.processes import end, spawn
from aetheris.cli.embedded.refusals import reason_in
from aetheris.cli.embedded.services import CONSOLE, SERVICES, Service, http_port, outside, service_parts
from aetheris.cli.embedded.supervisor import is_locked, lock_path
from aetheris.http_server.internal import kept_in, make
from aetheris.runtime.base.refusal import REFUSED_STATUS, StartRefused
from aetheris.runtime.kafka.bootstrap import with_login
from aetheris.runtime.process import installation

READY_WITHIN_S = 60.0
STOP_WITHIN_S = 60.0  # services 10 s, Valkey 10 s, Kafka 30 s
PID_WITHIN_S = 5.0
STARTS_BEFORE_GIVING_UP = 5
FREE_BYTES_NEEDED = 512 * 1024 * 1024
_POLL_S = 0.05


@dataclass(frozen=True)
class PartStatus:
    """One part as it is now; `ready` is its own answer, just asked."""

    state: PartState
    ready: bool
    log: Path
    health_port: int | None = None
    """Where a service says what it waits for."""


@dataclass(frozen=True)
class SystemStatus:
    """The embedded system of a data folder; without a supervisor (`pid` None) nothing of it runs."""

    pid: int | None
    kafka: str
    redis: str
    gateway: str
    parts: Mapping[str, PartStatus]

    @property
    def ready(self) -> bool:
        """Whether all of it runs and answers."""
        return self.pid is not None and all(part.ready for part in self.parts.values())


def up(
    data: Path,
    *,
    foreground: bool = False,
    services: Sequence[Service] = SERVICES,
    progress: Progress,
    brokers: int = 1,
    tuning: Callable[[int], kafka.Tuning] = lambda _node: kafka.USUAL,
    loaded: Mapping[str, str] | None = None,
    guarded: bool = True,
) -> State:
    """Start everything and return once each part has said that it is ready; nothing happens twice.

    `brokers` more than one make a cluster whose topics have as many replicas; `tuning` is by node, from 1 on.
    `loaded` is kept in the plan, for who asks later what it was started with. `guarded`: the brokers ask who one is.
    `foreground` returns only when the system has ended, which Ctrl-C and SIGTERM do in good order.
    Raises: EmbeddedError, with nothing left running that was not running before.
    """
    data = _made(data)
    _claimed(data)
    if supervisor_pid(data) is not None:
        return _await_ready(data, Plan.load(data), progress, lambda: _held(data))
    plan = replace(_prepare(data, services, progress, brokers, tuning, guarded=guarded), loaded=loaded)
    plan.save(data)
    return _in_foreground(data, plan, progress) if foreground else _detached(data, plan, progress)


def check_keys(data: Path, services: Sequence[Service] = SERVICES) -> None:
    """Whether the services of a folder can be given the keys that they need, before anything is ended for that.

    Raises: EmbeddedError.
    """
    data = data.resolve()
    service_keys.record_keys(data, services, {})
    service_keys.check_seal_key(data)


def down(data: Path) -> None:
    """End the services, then Valkey, then Kafka; returns once all have ended.

    Raises: NotRunningError.
    """
    data = data.resolve()
    pid = supervisor_pid(data)
    if pid is None:
        raise NotRunningError(f"Nothing runs on {data}", "Start it with `aetheris up`.")
    _end_supervisor(data, pid)


def status(data: Path) -> SystemStatus:
    """What runs on a data folder, each part asked once.

    Raises: NotRunningError, if nothing ever ran there.
    """
    data = data.resolve()
    state = State.load(data)
    if state is None:
        raise NotRunningError(f"Nothing ever ran on {data}", "Start it with `aetheris up`.")
    pid = supervisor_pid(data)
    parts = {part.name: _status(data, part, state, running=pid is not None) for part in Plan.load(data).parts}
    return SystemStatus(pid, state.kafka, state.redis, state.gateway, parts)


def loaded(data: Path) -> Mapping[str, str] | None:
    """What the system of a data folder was last started with; None where its starter didn't say, or it never was."""
    try:
        return Plan.load(data.resolve()).loaded
    except FileNotFoundError:
        return None


def supervisor_pid(data: Path) -> int | None:
    """The pid of the supervisor that holds the folder's lock; None if nobody does."""
    try:
        with lock_path(data).open() as lock:
            return int(lock.read() or 0) or None if is_locked(lock) else None
    except FileNotFoundError:
        return None


def _made(data: Path) -> Path:
    """The folder, which nobody else on the machine may look into: the log is in it, and the tokens."""
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if data.stat().st_uid == os.getuid() and data.stat().st_mode & 0o077:
            data.chmod(0o700)
        free = shutil.disk_usage(data).free
    except OSError as error:
        raise EmbeddedError(f"{data} can't be made: {error.strerror}", "Choose another folder.") from error
    if not os.access(data, os.W_OK | os.X_OK):
        raise EmbeddedError(f"{data} can't be written to", "Choose another folder, or make this one yours to write.")
    if free < FREE_BYTES_NEEDED:
        needed = FREE_BYTES_NEEDED // 2**20
        raise DiskFullError(
            f"{data} has {free // 2**20} MiB free, {needed} are needed", "Make room, or choose another folder."
        )
    return data.resolve()


def _claimed(data: Path) -> None:
    """What runs on a folder is one installation for ever: its log, root and keys are not for another."""
    try:
        installation.claim(data, outside("AETHERIS_PREFIX") or "")
    except StartRefused as error:
        raise EmbeddedError(str(error), "Set AETHERIS_PREFIX as it was, or start on another folder.") from None


def _prepare(
    data: Path,
    services: Sequence[Service],
    progress: Progress,
    brokers: int,
    tuning: Callable[[int], kafka.Tuning],
    *,
    guarded: bool,
) -> Plan:
    """Configure the servers, choose or check the ports."""
    ports = Ports(data)
    if chosen := outside("AETHERIS_HTTP_PORT"):
        ports.keep("gateway-0-http", int(chosen))
    shared = {"AETHERIS_DATA": str(data), "AETHERIS_VERIFIER_URL": _url("verifier-0", ports)}
    shared["AETHERIS_GATEWAY_URL"] = _url("gateway-0", ports)
    shared["AETHERIS_CONSOLE_URL"] = _console_url(services, ports)
    shared["AETHERIS_TOOLS_FOLDER"] = outside("AETHERIS_TOOLS_FOLDER") or os.getcwd()
    servers = [
        *_kafka_parts(data, ports, shared, progress, brokers, tuning, guarded=guarded),
        *_valkey_part(data, shared),
    ]
    keys = service_keys.record_keys(data, services, shared)
    shared |= service_keys.subject_keys(data)
    parts = (*servers, *service_parts(services, shared, ports, keys))
    ports.check_free()
    make(kept_in(data))  # so that gateway and verifier share one, also where the brokers are others
    kafka_at, redis_at = shared.get("AETHERIS_KAFKA", ""), shared.get("AETHERIS_REDIS", "")
    return Plan(parts, kafka_at, redis_at, shared["AETHERIS_GATEWAY_URL"], shared["AETHERIS_CONSOLE_URL"])


def _kafka_parts(  # noqa: PLR0917  what `up` was given, and what it fills in
    data: Path,
    ports: Ports,
    shared: dict[str, str],
    progress: Progress,
    count: int,
    tuning: Callable[[int], kafka.Tuning],
    *,
    guarded: bool,
) -> Iterator[ProcessSpec]:
    if outside("AETHERIS_KAFKA"):
        return
    installation = kafka.install(progress)
    login = kafka.login_in(data) if guarded else None
    if count == 1:
        named = {"kafka": kafka.broker_in(installation, data, ports, tuning(1), login)}
    else:
        cluster = kafka.cluster_in(installation, data, ports, count, tuning, login)
        named = {f"kafka-{one.node}": one for one in cluster}
    addresses = ",".join(broker.server for broker in named.values())
    addresses = addresses if login is None else with_login(addresses, login)
    # one node is allowed in development only, and only there do services create their topics
    shared |= {"AETHERIS_KAFKA": addresses, "AETHERIS_DEV": "1", "AETHERIS_REPLICATION": str(count)}
    for name, broker in named.items():
        broker.prepare()
        yield ProcessSpec(name, "server", broker.argv(), "kafka", broker.address, stop_within_s=kafka.STOP_WITHIN_S)


def _valkey_part(data: Path, shared: dict[str, str]) -> Iterator[ProcessSpec]:
    if outside("AETHERIS_REDIS"):
        return
    server = valkey.Valkey(data / "valkey")
    server.prepare()
    shared |= {"AETHERIS_REDIS": server.url}
    yield ProcessSpec("valkey", "server", server.argv(), "redis", server.url, stop_within_s=valkey.STOP_WITHIN_S)


def _url(process: str, ports: Ports) -> str:
    scheme = "https" if outside("AETHERIS_HTTP_CERT") else "http"
    return f"{scheme}://127.0.0.1:{http_port(process, ports)}"


def _console_url(services: Sequence[Service], ports: Ports) -> str:
    """By the name that passkeys of this machine are for, where no certificate says another; empty without a console."""
    if not any(service.name == CONSOLE.name for service in services):
        return ""
    url = _url("console-0", ports)
    return outside("AETHERIS_CONSOLE_URL") or (
        url if url.startswith("https:") else url.replace("127.0.0.1", "localhost")
    )


def _supervisor(data: Path) -> tuple[str, ...]:
    return (*run_module("aetheris.cli.embedded.supervisor"), str(data))


def _supervisor_env() -> dict[str, str]:
    """Services are forked from it: they keep bytecode where it does, and buffer what they print as little."""
    return {**os.environ, **kept_bytecode(), "PYTHONUNBUFFERED": "1"}


def _detached(data: Path, plan: Plan, progress: Progress) -> State:
    """The supervisor holds its lock before its starter returns."""
    supervisor_log = log_path(data, "supervisor")
    supervisor_log.parent.mkdir(exist_ok=True)
    try:
        with supervisor_log.open("ab") as log:
            argv = (*_supervisor(data), "--detach")
            env = _supervisor_env()
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, check=True)
        return _await_ready(data, plan, progress, lambda: _held(data))
    except BaseException:
        pid = _pid_of_starting(data)
        if pid is not None:
            _end_supervisor(data, pid)
        raise


def _pid_of_starting(data: Path) -> int | None:
    """The supervisor's pid, also where it holds its lock already and has not yet written who it is."""
    deadline = time.monotonic() + PID_WITHIN_S
    while (pid := supervisor_pid(data)) is None and _held(data) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return pid


def _held(data: Path) -> bool:
    try:
        with lock_path(data).open() as lock:
            return is_locked(lock)
    except FileNotFoundError:
        return False


def _in_foreground(data: Path, plan: Plan, progress: Progress) -> State:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    log, env = log_path(data, "supervisor"), _supervisor_env()
    child = spawn(_supervisor(data), log=log, env=env, death_signal=signal.SIGTERM)
    try:
        state = _await_ready(data, plan, progress, lambda: child.poll() is None)
        with suppress(KeyboardInterrupt):
            child.wait()
        return state
    finally:
        end(child, STOP_WITHIN_S)


def _await_ready(data: Path, plan: Plan, progress: Progress, alive: Callable[[], bool]) -> State:
    """One line of progress for each part, in the order in which they become ready."""
    started = time.monotonic()
    pending = list(plan.parts)
    former = _starts(data)
    while pending:
        for part in [part for part in pending if part.is_ready()]:
            pending.remove(part)
            progress(part.name, f"ready after {time.monotonic() - started:.1f} s")
        _give_up(data, pending, former, time.monotonic() - started, alive=alive())
        time.sleep(_POLL_S if pending else 0)
    return _state(data, plan)


def _state(data: Path, plan: Plan) -> State:
    return State.load(data) or State(None, plan.kafka, plan.redis, plan.gateway, {}, plan.console)


def _give_up(
    data: Path, pending: Sequence[ProcessSpec], former: Mapping[str, int], waited_s: float, *, alive: bool
) -> None:
    """Raises: NotReadyError, RefusedError, if waiting longer makes no sense."""
    if not alive:
        raise NotReadyError("The supervisor has ended", f"Read {log_path(data, 'supervisor')}.")
    starts = _starts(data)
    _report_refusals(data, [part.name for part in pending])
    for part in pending:
        count = starts.get(part.name, 0) - former.get(part.name, 0)
        if count >= STARTS_BEFORE_GIVING_UP:
            reason = reason_in(log_path(data, part.name))
            why = f": {reason.rstrip('.')}" if reason is not None else ""
            raise NotReadyError(f"{part.name} keeps exiting{why}", f"Read {log_path(data, part.name)}.")
        if waited_s > READY_WITHIN_S:
            raise NotReadyError(
                f"{part.name} was not ready after {READY_WITHIN_S:.0f} s", f"Read {log_path(data, part.name)}."
            )


def _report_refusals(data: Path, names: Sequence[str]) -> None:
    """Raises: RefusedError, with each reason once; executor and prober load the same tools."""
    state = State.load(data)
    if state is None or state.pid is None or state.pid != supervisor_pid(data):  # what an earlier one has left
        return
    refused = [name for name in names if name in state.parts and state.parts[name].last_exit == REFUSED_STATUS]
    reasons = {reason_in(log_path(data, name)) or f"read {log_path(data, name)}": name for name in reversed(refused)}
    if reasons:
        text = "; ".join(f"{name} refuses to run: {reason.rstrip('.')}" for reason, name in reversed(reasons.items()))
        raise RefusedError(text, "Mend it, then `aetheris up` again; `aetheris check` looks without starting anything.")


def _starts(data: Path) -> dict[str, int]:
    state = State.load(data)
    return {name: part.incarnation for name, part in state.parts.items()} if state else {}


def _status(data: Path, part: ProcessSpec, state: State, *, running: bool) -> PartStatus:
    known = state.parts.get(part.name, PartState(part.name))
    here = known if running else replace(known, pid=None)
    port = int(part.target) if part.ask == "http" else None
    return PartStatus(here, here.pid is not None and part.is_ready(), log_path(data, part.name), port)


def _end_supervisor(data: Path, pid: int) -> None:
    """SIGTERM; past the deadline SIGKILL, with which its children die too."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN_S
    while supervisor_pid(data) == pid:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
