"""Receipts on a running system: nothing is called left out through kills; what is, or is written anew, is found."""

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.receipts import keep
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.commands import Submit
from aetheris.protocol.messages.envelope import Envelope, decode_event, decode_message
from aetheris.protocol.messages.events import JobCreated
from aetheris.protocol.messages.submission_numbers import Receipt, ReceiptVoid, SubmissionAnswered
from aetheris.sdk.client import Submitted
from tests.testkit.external_server import until
from tests.testkit.lying_services import LEFT_OUT, NEVER_ENDED, REWRITTEN, installed
from tests.testkit.rig import Rig, poke, running_rig, wait
from tests.testkit.system import REPOSITORY

pytestmark = [pytest.mark.real, pytest.mark.timeout(500)]

FREQUENT = {"AETHERIS_INTERIM_SEAL_S": "2"}
PATIENCE_S = 120.0


@pytest.fixture
def rig(tmp_path: Path) -> Generator[Rig]:
    with running_rig(tmp_path, FREQUENT) as rig:
        yield rig


def submitted(rig: Rig, folder: Path, *nodes: dict[str, Any], key: str | None = None) -> str | None:
    """The job, its receipt kept; None where no answer came."""
    headers = {"idempotency-key": key} if key is not None else {}
    body = {"plan": {"nodes": list(nodes)}}
    try:
        answer = rig.system.api.post("/jobs", json=body, headers=headers)
    except httpx.HTTPError:
        return None
    if answer.status_code != 202:
        return None
    taken = Submitted.model_validate(answer.json())
    keep(taken, folder, json.dumps(body).encode())
    return taken.job_id


def audit(rig: Rig, folder: Path, *argv: str) -> dict[str, Any]:
    with ThreadPoolExecutor(1) as thread:
        asked = ["seals", "audit", "--receipts", str(folder), "--json", "--data", str(rig.system.data), *argv]
        done = thread.submit(CliRunner().invoke, app, asked).result()
    found = json.loads(done.stdout)
    assert done.exit_code == (0 if found.get("ok") else 1), done.output
    return found


def test_what_is_receipted_is_found_through_kills(rig: Rig, tmp_path: Path) -> None:
    folder, chance = tmp_path / "receipts", random.Random(7)  # noqa: S311
    first = submitted(rig, folder, poke("a", "first"), key="first")
    assert submitted(rig, folder, poke("a", "first"), key="first") == first
    waiting = submitted(rig, folder, wait("a", "go"))
    assert waiting is not None
    over = threading.Event()

    def submit(worker: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            key = f"{worker}-{count}" if count % 2 else None
            submitted(rig, folder, poke("a", f"{worker}-{count}"), key=key)
            if key is not None and count % 3 == 0:
                submitted(rig, folder, poke("a", f"{worker}-{count}"), key=key)
            time.sleep(0.05)

    with ThreadPoolExecutor(4) as pool:
        at_work = [pool.submit(submit, worker) for worker in range(4)]
        for name in ("gateway-0", "planner-0", "verifier-0", "gateway-0", "verifier-0", "planner-0"):
            time.sleep(chance.uniform(0.5, 2.0))
            rig.system.kill(name)
        rig.system.wait_ready()
        # one at least that a gateway takes which has followed a killed one
        until(lambda: submitted(rig, folder, poke("a", "last"), key="last") is not None, PATIENCE_S)
        over.set()
        for one in at_work:
            one.result()
    rig.system.wait_ready()
    found: dict[str, Any] = {}

    def all_over() -> bool:
        found.clear()
        found.update(audit(rig, folder))
        assert found["violations"] == []
        return found["not_asked"] == [] and found.get("sealed", 0) + 1 == found["receipts"]

    until(all_over, PATIENCE_S)
    assert found["open"] == 1, found
    check_numbers(rig, folder)
    rig.system.signal(waiting, "go")
    rig.system.wait_sealed(waiting)
    assert audit(rig, folder)["sealed"] == found["receipts"]


def check_numbers(rig: Rig, folder: Path) -> None:
    """Each number in jobs.commands is answered, none is missing below another, and each receipt's is there."""
    laid: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    answered: dict[tuple[str, str, int], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for record in rig.system.records(Topic.JOBS_COMMANDS):
        found = decode_message(record)
        if isinstance(found, Envelope) and isinstance(found.body, Submit | ReceiptVoid) and found.body.receipt:
            number = found.body.receipt
            laid[number.gateway, found.body.tenant, number.partition].add(number.number)
    for record in rig.system.records(Topic.JOBS_EVENTS):
        event, message = decode_event(record), decode_message(record)
        body: Any = event.body if isinstance(event, Envelope) else getattr(message, "body", None)
        if isinstance(body, JobCreated | SubmissionAnswered) and body.receipt is not None:
            answer = "born" if isinstance(body, JobCreated) else body.answer
            number = body.receipt
            answered[number.gateway, body.tenant, number.partition][number.number].add(answer)
    assert len({gateway for gateway, _, _ in laid}) >= 2
    for stream, numbers in laid.items():
        assert numbers == set(range(1, len(numbers) + 1))
        assert answered[stream].keys() == numbers
        assert all(len(said - {"same_as"}) <= 1 for said in answered[stream].values())
    for path in folder.glob("*.receipt.json"):
        receipt = Receipt.model_validate_json(path.read_bytes())
        stream = receipt.receipt.gateway, receipt.tenant, receipt.receipt.partition
        assert receipt.receipt.number in laid[stream]


def test_what_is_left_out_never_ended_or_written_anew_is_named(tmp_path: Path) -> None:
    folder, receipts = tmp_path / "lies", tmp_path / "receipts"
    folder.mkdir()
    switch = installed(folder)
    with running_rig(tmp_path, {**FREQUENT, "PYTHONPATH": f"{folder}:{REPOSITORY}"}) as rig:
        left_out = submitted(rig, receipts, poke("a", LEFT_OUT))
        never_ended = submitted(rig, receipts, poke("a", NEVER_ENDED))
        rewritten = submitted(rig, receipts, poke("a", REWRITTEN), wait("b", "go", "a"))
        honest = submitted(rig, receipts, poke("a", "honest"))
        assert honest is not None
        rig.system.wait_sealed(honest)

        def seen() -> bool:
            audit(rig, receipts)
            kept = receipts / f"{rewritten}.seen.json"
            return kept.exists() and kept.read_text() != "[]"

        until(seen, PATIENCE_S)
        switch.write_text("")
        bounds = ("--within", "10", "--answered-within", "10")

        def named() -> bool:
            found = audit(rig, receipts, *bounds)
            rules = {one["job_id"]: one["rule"] for one in found["violations"]}
            assert honest not in rules
            return rules == {left_out: "left_out", never_ended: "never_ended", rewritten: "rewritten"}

        until(named, PATIENCE_S)
        assert audit(rig, receipts, *bounds)["sealed"] == 1
