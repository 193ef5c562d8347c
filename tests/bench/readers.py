"""`make bench-verify`: a job of 20,000 records, 1,000 signed permissions among them, checked by each reader of bundles.

CPU time and memory are those of the whole process, from its start to its answer.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aetheris.proofs import RawRecord, bundle, verify
from aetheris.proofs.evidence import Evidence, judge
from aetheris.proofs.seals import seal_payload, sign
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from tests.testkit.evidence import KEY, SALT, SEALED_AT, TRUSTED, inclusion, signer
from tests.testkit.proof_histories import Log, node
from tests.testkit.standalone import SCRIPT
from tests.unit.proofs.test_signed_histories import SignedLog

RECORDS, PERMISSIONS, RUNS = 20_000, 1_000, 3
MOST_S = {"aetheris verify": 2.0, "verify.py": 5.0, "check_bundle.py": 5.0}
MOST_MIB = 190
_OF_A_STEP = 5
_ENDED = b"io.aetheris.tool_invocation_finished.v1"
_SHORT = Path(__file__).parents[2] / "libs/bundle_check/src/aetheris_check/check_bundle.py"


def history() -> Log:
    """A job of so many records that ended well; nobody has signed them yet."""
    steps = (RECORDS - PERMISSIONS) // _OF_A_STEP
    log = Log(*(node(f"n{at}", args={"amount": at}) for at in range(steps)))
    for at in range(steps):
        name = f"n{at}"
        if at < PERMISSIONS:
            said = {"tool_version": "1", "args_hash": log.call(name).args_hash, "rule": "r", "policy_hash": "p"}
            log.about("policy_allowed", name=name, token=1, **said)
        log.start(f"x{at}", name)
        log.finish(f"x{at}", name=name, external_id=f"re_{at}" if at < PERMISSIONS else "")
        log.add("state_changed", node_id=name, changes=[])
        log.done(name)
    log.complete()
    return log


def signed(log: Log, folder: Path) -> Sequence[RawRecord]:
    """Its records, each that must be under a signature of its own, and their seal."""
    made = SignedLog(folder)
    for one in log.records:
        draft = _draft(one, json.loads(one.value))
        if one.named["ce_type"] == _ENDED:  # an executor's word, which has no key
            made.put(draft)
        else:
            made.sign(draft)
    report = verify(made.records, keys=TRUSTED)
    payload = seal_payload(
        tenant=log.tenant,
        job_id=log.job,
        event_count=report.event_count,
        root=report.event_chain_root_hash,
        tree=report.event_tree_root_hash,
        execution_hash=report.execution_hash,
        outcome_hash=report.outcome_hash,
        sealed_at=SEALED_AT,
        salt=SALT,
        calls=report.calls,
    )
    sealed = RawRecord(0, log.job.encode(), (("ce_id", b"seal"), ("ce_type", b"io.aetheris.job_sealed.v1")), b"")
    made.sign(_draft(sealed, sign(payload, KEY)))
    return made.records


def _draft(one: RawRecord, body: Mapping[str, object]) -> Draft:
    value = json.dumps(body, separators=(",", ":")).encode()
    return Draft(Topic.JOBS_EVENTS, one.key or b"", value, one.headers)


_LAUNCHER = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)])
_, status, used = os.wait4(pid, 0)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""
"""A small process of its own: what one starts is said to have held at least what its starter did."""


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of CPU, and MiB at most; raises RuntimeError where the bundle does not hold."""
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command]
    said = subprocess.run(launcher, capture_output=True, text=True, check=True).stdout.split()
    if said[0] != "0":
        raise RuntimeError(f"{command[-3:]} says that it does not hold")
    return float(said[1]), float(said[2])


def main() -> None:
    """Print a line for each reader; ends with 1 where one takes more than it may."""
    too_much = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = signed(history(), folder / "keys")
        evidence = Evidence((records[0].key or b"").decode(), records, {}, inclusion(records[-1].value), TRUSTED)
        data = bundle.build(evidence, [judge(records, TRUSTED, evidence.blobs.__getitem__)], signer(KEY))
        file, key = folder / "job.zip", folder / "seal.pub"
        file.write_bytes(data)
        key.write_text(TRUSTED[0].to_json()["public_key"])
        own = sum(b',"sig":{' in one.value for one in records)
        print(f"{len(records)} records, {own} of them signed, {len(data) / 2**20:.1f} MiB; the median of {RUNS}")  # noqa: T201
        tail = [str(file), "--public-key", str(key)]
        readers = {
            "aetheris verify": [sys.executable, "-m", "aetheris.cli", "verify", *tail],
            "verify.py": [sys.executable, "-I", str(SCRIPT), *tail],
            "check_bundle.py": [sys.executable, "-I", str(_SHORT), *tail],
        }
        for reader, command in readers.items():
            runs, memory = zip(*(measured(command) for _ in range(RUNS)), strict=True)
            seconds, most_s = statistics.median(runs), MOST_S[reader]
            most = f"(at most {most_s:.0f} s, {MOST_MIB} MiB)"
            print(f"{reader:16} {seconds:6.2f} s of CPU {max(memory):6.0f} MiB {most}")  # noqa: T201
            too_much = too_much or seconds > most_s or max(memory) > MOST_MIB
    sys.exit(too_much)


if __name__ == "__main__":
    main()
