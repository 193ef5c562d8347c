"""The embedded runtime on the real parts: what a restart keeps, and who brings a dead part back.

The services are stand-ins that only answer /readyz: what is tested here is who starts, restarts and ends them.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

from aetheris.cli.embedded import bytecode, doctor, forks, jars, lifecycle
from aetheris.cli.embedded.errors import JarsMissingError, NotReadyError, NotRunningError, PortTakenError, RefusedError
from aetheris.cli.embedded.forks import Template, run_module
from aetheris.cli.embedded.jars import cache_folder, corrupt_jars, fetch_jars, locked_jars
from aetheris.cli.embedded.kafka import broker_in, install, running_broker
from aetheris.cli.embedded.plan import PartState, ProcessSpec, State, log_path
from aetheris.cli.embedded.ports import Ports, free_port
from aetheris.cli.embedded.services import Service, with_counts
from aetheris.cli.embedded.supervisor import Child, next_backoff
from aetheris.cli.embedded.valkey import Valkey, running_valkey
from aetheris.runtime.kafka.bootstrap import client_options
from aetheris.runtime.process.installation import named

pytestmark = [pytest.mark.nightly, pytest.mark.real]

STAND_IN = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
print("WORKER", os.environ["AETHERIS_WORKER_ID"], os.environ["AETHERIS_KAFKA"], os.environ["AETHERIS_REDIS"])
http.server.HTTPServer(("127.0.0.1", int(os.environ["AETHERIS_HEALTH_PORT"])), Answer).serve_forever()
"""
STAND_IN_ARGV = (sys.executable, "-c", STAND_IN)
SERVICES = (Service("planner", STAND_IN_ARGV), Service("executor", STAND_IN_ARGV, count=2))


class Lines:
    """Collects the lines of progress."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def __call__(self, part: str, message: str) -> None:
        if message.startswith("ready"):
            self.parts.append(part)


@pytest.fixture
def data(tmp_path: Path) -> Generator[Path]:
    """A data folder on which nothing runs any more when the test has ended."""
    yield tmp_path
    if lifecycle.supervisor_pid(tmp_path) is not None:
        lifecycle.down(tmp_path)


def until(what: Callable[[], bool], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def part(data: Path, name: str) -> PartState:
    state = State.load(data)
    assert state is not None
    return state.parts[name]


def pid(data: Path, name: str) -> int:
    found = part(data, name).pid
    assert found is not None
    return found


def is_alive(number: int) -> bool:
    """A killed child that nobody has reaped yet does not count."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return False


async def create_topic(address: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(**client_options(address))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def produce(address: str, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(**client_options(address), acks="all", enable_idempotence=True)
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def first_value(address: str, topic: str) -> bytes:
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(**client_options(address), auto_offset_reset="none", enable_auto_commit=False)
    consumer.assign([partition])
    await consumer.start()
    try:
        consumer.seek(partition, 0)
        return (await asyncio.wait_for(consumer.getone(), 20)).value or b""
    finally:
        await consumer.stop()


def set_key(url: str, value: bytes) -> None:
    with redis.Redis.from_url(url) as client:
        client.set("key", value)


def get_key(url: str) -> object:
    with redis.Redis.from_url(url) as client:
        return client.get("key")


async def test_broker_keeps_a_record_through_a_restart(tmp_path: Path) -> None:
    broker = broker_in(install(Lines()), tmp_path, Ports(tmp_path))
    with running_broker(broker, tmp_path / "kafka.log") as address:
        await create_topic(address, "kept")
        await produce(address, "kept", b"one")
    again = broker_in(install(Lines()), tmp_path, Ports(tmp_path))
    with running_broker(again, tmp_path / "kafka.log") as address:
        assert await first_value(address, "kept") == b"one"
    assert again.port == broker.port


def test_valkey_keeps_a_key_through_a_restart_on_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    server = Valkey(tmp_path / ("long-" * 30))
    with running_valkey(server, tmp_path / "valkey.log") as url:
        set_key(url, b"one")
    with running_valkey(server, tmp_path / "valkey.log") as url:
        assert get_key(url) == b"one"
    assert not server.socket.exists()


async def test_killed_parts_come_back_with_what_they_held(data: Path) -> None:
    lines = Lines()
    started = time.monotonic()
    state = lifecycle.up(data, services=SERVICES, progress=lines)
    assert time.monotonic() - started < 60
    assert sorted(lines.parts) == ["executor-0", "executor-1", "kafka", "planner-0", "valkey"]
    await create_topic(state.kafka, "kept")
    await produce(state.kafka, "kept", b"one")
    set_key(state.redis, b"one")

    for name in ("kafka", "valkey", "executor-1"):
        before = part(data, name)
        os.kill(pid(data, name), signal.SIGKILL)
        until(lambda name=name, before=before: part(data, name).incarnation == before.incarnation + 1)
    until(lambda: lifecycle.status(data).ready)

    assert await first_value(state.kafka, "kept") == b"one"
    assert get_key(state.redis) == b"one"
    assert part(data, "executor-0").incarnation == 1
    assert f"WORKER {named('executor-1', data)} {state.kafka} {state.redis}" in log_path(data, "executor-1").read_text()


async def test_down_ends_everything_and_up_finds_it_again(data: Path) -> None:
    state = lifecycle.up(data, services=SERVICES, progress=Lines())
    await create_topic(state.kafka, "kept")
    await produce(state.kafka, "kept", b"one")
    pids = [pid(data, name) for name in state.parts]

    lifecycle.down(data)
    assert not any(is_alive(number) for number in pids)
    assert lifecycle.status(data).pid is None
    with pytest.raises(NotRunningError):
        lifecycle.down(data)

    again = lifecycle.up(data, services=SERVICES, progress=Lines())
    assert (again.kafka, again.redis, again.gateway) == (state.kafka, state.redis, state.gateway)
    assert await first_value(again.kafka, "kept") == b"one"
    assert part(data, "planner-0").incarnation == 2


def test_children_die_with_a_killed_supervisor_and_up_starts_anew(data: Path) -> None:
    state = lifecycle.up(data, services=SERVICES, progress=Lines())
    pids = [pid(data, name) for name in state.parts]
    supervisor = lifecycle.supervisor_pid(data)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not any(is_alive(number) for number in pids))
    assert not lifecycle.status(data).ready
    again = lifecycle.up(data, services=SERVICES, progress=Lines())
    assert again.kafka == state.kafka


LEAVES = """
import os, subprocess, sys
SLEEPS = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()} '); time.sleep(600)"
DAEMON = "import os, sys; os.fork() and os._exit(0); os.setsid(); os.closerange(3, 64); exec(sys.argv[2])"
file = os.path.join(os.environ["AETHERIS_DATA"], os.environ["AETHERIS_WORKER_ID"] + ".left")
subprocess.Popen([sys.executable, "-c", SLEEPS, file], start_new_session=True)
subprocess.run([sys.executable, "-c", DAEMON, file, SLEEPS])
if "executor-1" in file:
    subprocess.run([sys.executable, "-c", DAEMON, file, SLEEPS], env={})
"""


def test_what_a_service_leaves_running_is_killed_before_it_starts_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions and environments of their own save nothing; what a service that lives has started is spared."""
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    services = (Service("executor", (sys.executable, "-c", LEAVES + STAND_IN), count=2),)
    lifecycle.up(data, services=services, progress=Lines())

    def left(name: str, count: int) -> list[int]:
        file = data / f"{named(name, data)}.left"
        until(lambda: file.exists() and len(file.read_text().split()) >= count)
        return [int(one) for one in file.read_text().split()]

    spared, killed = left("executor-0", 2), left("executor-1", 3)
    assert all(map(is_alive, [*spared, *killed]))
    os.kill(pid(data, "executor-1"), signal.SIGKILL)
    until(lambda: part(data, "executor-1").incarnation == 2)
    assert [one for one in killed if is_alive(one)] == []
    assert all(map(is_alive, spared))
    again = left("executor-1", 6)
    lifecycle.down(data)
    until(lambda: not any(map(is_alive, [*spared, *again])))


def test_services_are_forked_and_share_only_what_is_unchanged(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the supervisor's files a fork holds none: not its lock, which would outlive it."""
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    monkeypatch.setenv("PYTHONPATH", str(data))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reported = (
        "import json, os, signal, sys\n"
        "import stand_in_common\n"
        "fds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
        "files = sorted({os.readlink(f'/proc/self/fd/{fd}') for fd in fds if os.path.exists(f'/proc/self/fd/{fd}')})\n"
        "term = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "print('TOLD', json.dumps([__name__, os.getsid(0) == os.getpid(), term, files]))\n"
    )
    (data / "stand_in.py").write_text(reported + STAND_IN)
    (data / "stand_in_common.py").write_text("")
    common = (*forks.COMMON, "stand_in_common")
    (data / "sitecustomize.py").write_text(f"from aetheris.cli.embedded import forks\nforks.COMMON = {common}\n")
    services = (Service("executor", run_module("stand_in")),)
    lifecycle.up(data, services=services, progress=Lines())
    supervisor = lifecycle.supervisor_pid(data)
    forked = pid(data, "executor-0")
    assert command(forked) == command(supervisor)
    log = log_path(data, "executor-0")
    line = next(line for line in log.read_text().splitlines() if line.startswith("TOLD"))
    assert json.loads(line[5:]) == ["__main__", True, True, ["/dev/null", str(log)]]

    os.kill(forked, signal.SIGKILL)
    until(lambda: lifecycle.status(data).ready and part(data, "executor-0").incarnation == 2)
    assert command(pid(data, "executor-0")) == command(supervisor)

    (data / "stand_in_common.py").write_text("NEW = 1")
    os.kill(pid(data, "executor-0"), signal.SIGTERM)
    until(lambda: lifecycle.status(data).ready and part(data, "executor-0").incarnation == 3)
    assert command(pid(data, "executor-0")) == list(run_module("stand_in"))


def command(pid: int | None) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]


def test_a_forked_service_that_keeps_exiting_fails_up(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    monkeypatch.setenv("PYTHONPATH", str(data))
    (data / "broken.py").write_text("print('BROKEN')\nraise SystemExit(7)")
    broken = (Service("planner", run_module("broken")),)
    with pytest.raises(NotReadyError, match="planner-0 keeps exiting"):
        lifecycle.up(data, services=broken, progress=Lines())
    assert part(data, "planner-0").pid is None
    assert "exited with 7" in log_path(data, "supervisor").read_text()
    assert "BROKEN" in log_path(data, "planner-0").read_text()


REFUSING = """
import json, sys
print(json.dumps({"event": "refuses to run", "reason": "shop.py:3: no tools"}), file=sys.stderr)
sys.exit(78)
"""


def test_a_service_that_refuses_to_run_is_not_started_again_and_up_says_why(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = (*SERVICES, Service("refusing", (sys.executable, "-c", REFUSING)))
    monkeypatch.setattr(lifecycle, "STARTS_BEFORE_GIVING_UP", 100)
    with pytest.raises(RefusedError, match=r"refusing-0 refuses to run: shop\.py:3: no tools\. Mend it"):
        lifecycle.up(data, services=refusing, progress=Lines())
    assert lifecycle.supervisor_pid(data) is None
    assert part(data, "refusing-0").incarnation == 1
    with pytest.raises(RefusedError):  # by what it says now, whatever the former one has left
        lifecycle.up(data, services=refusing, progress=Lines())
    lifecycle.up(data, services=SERVICES, progress=Lines())


@pytest.mark.parametrize(("status", "again"), [(78, False), (75, True), (0, True)])
def test_only_who_refuses_for_good_is_not_due_again(tmp_path: Path, status: int, again: bool) -> None:
    argv = (sys.executable, "-c", f"raise SystemExit({status})")
    child = Child(ProcessSpec("one", "service", argv, "http", "0"), tmp_path, PartState("one"), Template())
    child.start()
    until(child.reap)
    assert (child.due is not None, child.state.last_exit) == (again, status)


def test_a_service_that_may_be_let_in_later_is_started_again(data: Path, tmp_path: Path) -> None:
    once = f"import os, sys\nif not os.path.exists({str(tmp_path / 'seen')!r}):\n open({str(tmp_path / 'seen')!r}, 'w')"
    later = f"{once}\n sys.exit(75)\n{STAND_IN}"
    lifecycle.up(data, services=(Service("later", (sys.executable, "-c", later)),), progress=Lines())
    assert part(data, "later-0").incarnation == 2


def test_what_a_forked_service_says_as_it_exits_is_in_its_log(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "says_why.py").write_text("import sys\nsys.exit('it is for this reason')\n")
    monkeypatch.setenv("PYTHONPATH", str(data))
    with pytest.raises(NotReadyError):
        lifecycle.up(data, services=(Service("mute", run_module("says_why")),), progress=Lines())
    assert "it is for this reason" in log_path(data, "mute-0").read_text()


def test_up_twice_starts_nothing_twice(data: Path) -> None:
    first = lifecycle.up(data, services=SERVICES, progress=Lines())
    assert lifecycle.up(data, services=SERVICES, progress=Lines()) == first


def test_a_service_that_keeps_exiting_fails_up_and_leaves_nothing_running(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    broken = (Service("planner", (sys.executable, "-c", "raise SystemExit(7)")),)
    with pytest.raises(NotReadyError, match=r"planner-0 keeps exiting.*planner-0\.log"):
        lifecycle.up(data, services=broken, progress=Lines())
    assert lifecycle.supervisor_pid(data) is None
    assert part(data, "planner-0").pid is None


def test_a_service_that_ignores_sigterm_is_killed_with_its_own_children(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    monkeypatch.setattr("aetheris.cli.embedded.services.STOP_WITHIN_S", 0.5)
    deaf = (
        "import signal, subprocess\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('CHILD', subprocess.Popen(['sleep', '600']).pid)\n"
    )
    lifecycle.up(data, services=(Service("planner", (sys.executable, "-c", deaf + STAND_IN)),), progress=Lines())
    line = next(x for x in log_path(data, "planner-0").read_text().splitlines() if x.startswith("CHILD"))
    lifecycle.down(data)
    until(lambda: not is_alive(int(line.split()[1])))


def test_a_taken_port_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    port = free_port()
    monkeypatch.setenv("AETHERIS_HTTP_PORT", str(port))
    gateway = (Service("gateway", STAND_IN_ARGV, http=True),)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(PortTakenError, match=str(port)):
        lifecycle.up(data, services=gateway, progress=Lines())


AT_ONCE = """
import sys
from pathlib import Path
from aetheris.cli.embedded import lifecycle, ports
from aetheris.cli.embedded.services import Service
ports._FIRST, ports._LAST = map(int, sys.argv[2:4])
sys.stdin.readline()
services = (Service("executor", (sys.executable, "-c", sys.argv[4]), count=6),)
lifecycle.up(Path(sys.argv[1]), services=services, progress=lambda *line: None)
"""


def test_two_systems_that_start_at_once_have_no_port_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wants eight of the same 24: who doesn't ask what the other drew meets it in 98 of 100 starts."""
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://127.0.0.1:1")
    first = free_port()
    argv = [str(first), str(first + 24), STAND_IN]
    folders = [tmp_path / "one", tmp_path / "other"]
    starts = [
        subprocess.Popen([sys.executable, "-c", AT_ONCE, str(folder), *argv], stdin=subprocess.PIPE, text=True)
        for folder in folders
    ]
    try:
        for start in starts:
            assert start.stdin is not None
            start.stdin.write("go\n")
            start.stdin.flush()
        assert [start.wait(60) for start in starts] == [0, 0]
        drawn = [json.loads((folder / "ports.json").read_text()).values() for folder in folders]
        assert len({*drawn[0], *drawn[1]}) == 16
    finally:
        for start, folder in zip(starts, folders, strict=True):
            start.kill()
            start.communicate()
            if lifecycle.supervisor_pid(folder) is not None:
                lifecycle.down(folder)


def test_foreground_ends_in_good_order_on_sigterm(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    code = (
        "import sys; from pathlib import Path\n"
        "from aetheris.cli.embedded.lifecycle import up\n"
        f"up(Path({str(data)!r}), foreground=True, services=(), progress=lambda *line: print(*line, flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("valkey ready")
        valkey = pid(data, "valkey")
        process.terminate()
        process.wait(20)
    assert not is_alive(valkey)
    assert lifecycle.status(data).pid is None


def test_doctor_names_what_is_wrong_and_what_to_do(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("AETHERIS_REDIS", "redis://:secret@127.0.0.1:1")
    with socket.create_server(("127.0.0.1", Ports(data).get("gateway-0-http"))):
        wrong = [finding for finding in doctor.examine(data) if not finding.ok]
    assert [finding.subject for finding in wrong] == ["kafka", "redis", "port"]
    assert all(finding.remedy for finding in wrong)
    assert "secret" not in str(wrong)


def test_doctor_finds_nothing_wrong_with_a_running_system(data: Path) -> None:
    lifecycle.up(data, services=SERVICES, progress=Lines())
    findings = doctor.examine(data)
    assert [finding for finding in findings if not finding.ok] == []
    assert {"java", "jars", "valkey", "kafka", "executor-1"} <= {finding.subject for finding in findings}


def test_a_jar_with_other_bytes_is_found_and_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar = locked_jars()[0]
    cache = cache_folder()
    cache.mkdir(parents=True)
    (cache / jar.filename).write_bytes(b"not a jar")
    assert corrupt_jars(cache) == [jar]
    monkeypatch.setattr(jars, "locked_jars", lambda: (replace(jar, sha256="0" * 64),))
    (cache / jar.filename).unlink()
    with pytest.raises(JarsMissingError, match=r"has not the sha256"):
        fetch_jars(cache, Lines())
    assert not (cache / jar.filename).exists()


@pytest.mark.parametrize(
    ("previous", "uptime", "expected"), [(0, 0, 0.1), (0.1, 0, 0.2), (4, 1, 5), (5, 9.9, 5), (5, 10, 0), (0, 10, 0)]
)
def test_backoff_doubles_and_what_held_out_comes_back_at_once(previous: float, uptime: float, expected: float) -> None:
    assert next_backoff(previous, uptime) == expected


def test_services_keep_bytecode_in_the_cache_where_it_may_not_lie_beside_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(bytecode, "cache_from_source", lambda _path: str(tmp_path / "none"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    env = {**os.environ, **bytecode.kept_bytecode()}
    subprocess.run((sys.executable, "-c", "import aetheris.protocol.base.ids"), env=env, check=True)
    assert list((tmp_path / "aetheris" / "bytecode").rglob("ids.*.pyc"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert bytecode.kept_bytecode() == {}


def test_counts_change_only_what_they_name() -> None:
    assert [service.count for service in with_counts({"executor": 3}, SERVICES)] == [1, 3]
