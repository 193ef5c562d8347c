"""Streams that must be refused, one for each rule of the proofs, kept as files; each has its reason in its first line.

A new rule needs one: tests/testkit/refused.py writes it.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris import proofs
from aetheris.cli import judgement, streamfile
from aetheris.cli.app import app
from aetheris.proofs import continued, related, verify
from tests.testkit import standalone
from tests.testkit.refused import FOLDER, Blobs
from tests.testkit.system import REPOSITORY

FILES = sorted(FOLDER.glob("*.jsonl"))
_NAMED = re.compile(r'(?:violation|UnreadableResult|_finding)\(\s*"([a-z_]+)"')
_SAID = re.compile(
    r'(?:violation|UnreadableResult|_finding|BadEvidence|BadNote|_at_the_end)\(\s*(?:records, )?"([a-z_]+)"'
)
NOT_OF_A_JOB = {
    "truth_bytes_differ",
    "too_large",
    "other_log",
    "not_consistent",
    "unknown_log",
    "old_beyond",
    "other_size",
    "no_timestamp",
}
"""A note; what can't be exported; what a proof of consistency breaks, and what a witness refuses; a checkpoint's."""
OF_THE_FILE = {"records_missing", "other_job", "not_sealed"}
"""Rules about the file, not about the history in it."""
BEHIND = {"after_seal"}
"""What the whole stream breaks for whoever watches it; a command judges what is sealed, and names it."""
WITHOUT = {
    "foreign_signature": "needs signers from outside: tests/unit/proofs/test_proofs_signed.py",
    "activation_decreases": "a note, not a violation: tests/unit/proofs/test_proofs_activations.py",
    "unproven_report": "a note, not a violation",
    "truth_bytes_differ": "a note, not a violation",
    "certificate_time": "a note, not a violation: tests/unit/proofs/test_signed_histories.py",
    "signed_creation": "a note, not a violation: tests/unit/proofs/test_signed_histories.py",
    "unproven_record": "listed by itself, no violation: tests/unit/proofs/test_signed_histories.py",
    "other_installation": "only where a root is asked for: tests/integration/test_signed_system.py",
    "opening_differs": "of what is brought beside the job: tests/unit/proofs/test_openings.py",
    "erasure_unproven": "of what is brought beside the job: tests/unit/proofs/test_erasures.py",
    "redacted": "of a bundle that leaves records out: tests/unit/proofs/test_redacted_evidence.py",
    "subject_differs": "of what a bundle says around the job: tests/unit/proofs/test_redacted_evidence.py",
    "no_public_key": "of who asks, not of the job: tests/unit/cli/test_cli_proofs.py",
    "seal_consistency": "needs the key of a seal that is amended: tests/unit/proofs/test_amendments.py",
    "seal_not_logged": "needs a log of seals: tests/integration/test_dropped_tail.py",
}


def refused(path: Path) -> dict[str, Any]:
    with path.open() as file:
        return json.loads(file.readline())["refused"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_stream_is_refused_for_its_reason(path: Path) -> None:
    reason, stream = refused(path), streamfile.read(path)
    assert reason["rule"] == path.stem
    records, blobs = list(stream.raw()), Blobs()
    report = verify(records, keys=stream.keys, load_blob=blobs.__getitem__)
    standalone.assert_agrees(report, records, stream.keys, blobs)
    assert (reason in [broken.to_json() for broken in report.violations]) != (reason["rule"] in OF_THE_FILE)
    checked = CliRunner().invoke(app, ["verify", str(path), "--self-signed", "--data", str(FOLDER), "--json"])
    said = json.loads(checked.stdout)
    if reason["rule"] in BEHIND:
        assert [one["event_id"] for one in said["after_seal"]] == [reason["event_id"]]
    else:
        assert (checked.exit_code, reason in said["violations"]) == (1, True)
    shown = CliRunner().invoke(app, ["verify", str(path), "--self-signed", "--data", str(FOLDER)])
    assert reason["rule"] in shown.stdout
    assert reason["event_id"] in shown.stdout


def test_every_rule_has_a_stream_that_breaks_it() -> None:
    """Of what is spelled out in the code, and of the times of keys."""
    sources = [*Path(proofs.__file__).parent.glob("*.py"), Path(judgement.__file__)]
    texts = {source: source.read_text() for source in sources}
    named = {rule for text in texts.values() for rule in _NAMED.findall(text)}
    # what holds between jobs: tests/unit/proofs/test_proofs_continued.py and test_related.py
    between = {rule for one in (continued, related) for rule in _NAMED.findall(texts[Path(str(one.__file__))])}
    assert named - between - {path.stem for path in FILES} == WITHOUT.keys()


def test_every_rule_is_explained() -> None:
    """In the docs; and nothing is explained there that no rule is called."""
    text = (REPOSITORY / "docs" / "verification.md").read_text().partition("## Jobs that jobs begin")[2]
    cells = re.findall(r"^\| ([a-z_, ]+) \|", text, re.MULTILINE)
    explained = {name for cell in cells for name in cell.split(", ")} - {"rule"}
    sources = [path.read_text() for path in (*Path(proofs.__file__).parent.glob("*.py"), Path(judgement.__file__))]
    named = {rule for source in sources for rule in _SAID.findall(source)} | {path.stem for path in FILES}
    assert named - explained == NOT_OF_A_JOB
    assert [rule for rule in explained if not any(f'"{rule}"' in source for source in sources)] == []
