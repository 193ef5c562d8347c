"""`aetheris amendments`: a kept bundle against a newer one, or against lines of the log of seals."""

import base64
import copy
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.seal_tiles import SealTiles
from aetheris.proofs import bundle
from aetheris.proofs.amendments import line_hash
from aetheris.proofs.claims import line_leaf, log_entry
from aetheris.proofs.evidence import Evidence, judge
from aetheris.proofs.merkle import Tree
from aetheris.proofs.notes import Checkpoint, InclusionProof, open_checkpoint, sign_checkpoint
from aetheris.proofs.redacted_records import Redaction
from aetheris.proofs.seals import sign
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY, TRUSTED, amend, sealed, signer
from tests.testkit.proof_histories import Log, clean


def unsure(job: str = "job-1") -> Log:
    """A sealed job that failed with a call of which nobody heard any more."""
    log = Log(job=job)
    log.start("n1")
    log.permanent("n1", "ledger")
    log.done("a", "permanent_failure")
    log.add("job_failed", error="a")
    return sealed(log)


@dataclass
class LogOfSeals:
    """A log of seals with these lines."""

    lines: list[bytes]
    key: Ed25519PrivateKey = KEY

    def tree(self) -> Tree:
        tree = Tree()
        for line in self.lines:
            tree.append(line_leaf(line))
        return tree

    def seal_entries(self, start: int) -> list[str]:
        return [log_entry(line).hex() for line in self.lines[start:]]

    def checkpoint(self) -> Checkpoint:
        note = sign_checkpoint(ORIGIN, len(self.lines), self.tree().root(), self.key)
        return open_checkpoint(note, TRUSTED)

    def proof(self, line: bytes) -> str:
        at, tree = self.lines.index(line), self.tree()
        note = sign_checkpoint(ORIGIN, len(tree), tree.root(), self.key)
        return InclusionProof(at, tuple(tree.inclusion(at, len(tree))), note).dumps()


class Amended:
    """A job whose seal is amended twice; its bundles from each time, and the log of seals behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, unsure()
        self.seals = LogOfSeals([b"other 1", b"other 2", self.log.records[-1].value])
        self.kept = self.export("kept")
        self.log.finish("n1", via="late")
        amend(self.log)
        self.seals.lines += [b"other 3", self.log.records[-1].value]
        self.once = self.export("once")
        self.log.finish("n1", via="late", result={"ok": "otherwise"})
        amend(self.log)
        self.seals.lines.append(self.log.records[-1].value)
        self.twice = self.export("twice")
        self.keys = folder / "keys.json"
        self.keys.write_text(json.dumps({"keys": [one.to_json() for one in TRUSTED]}))

    def export(self, name: str, log: Log | None = None) -> Path:
        records = (log or self.log).records
        proof = self.seals.proof(records[-1].value)
        evidence = Evidence((records[0].key or b"").decode(), list(records), {}, proof, TRUSTED)
        path = self.folder / f"{name}.zip"
        path.write_bytes(bundle.build(evidence, [judge(records, TRUSTED, {}.__getitem__)], signer(KEY)))
        return path

    def ask(self, kept: Path, *options: object, status: int | None = None) -> dict[str, Any]:
        argv = ["amendments", str(kept), *map(str, options), "--public-key", str(self.keys), "--json"]
        ran = CliRunner().invoke(app, argv)
        assert status is None or ran.exit_code == status, ran.output
        report = json.loads(ran.stdout)
        assert "error" in report or ran.exit_code == (0 if report["ok"] else 1)
        return report

    def shown(self, *lines: bytes, proved: bool = True, name: str = "lines.json") -> Path:
        path = self.folder / name
        parts = [{"line": line.decode(), **({"proof": self.seals.proof(line)} if proved else {})} for line in lines]
        path.write_text(json.dumps({"lines": parts}))
        return path

    def dumped(self, lines: Sequence[bytes]) -> Path:
        path = self.folder / "lines.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    def tiles(self) -> Path:
        folder = self.folder / "tiles"
        SealTiles(folder).publish(self.seals.checkpoint(), self.seals)
        return folder

    @property
    def own(self) -> list[bytes]:
        """The lines of the job."""
        return [line for line in self.seals.lines if line.startswith(b"{")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Amended:
    return Amended(tmp_path_factory.mktemp("amended"))


@pytest.fixture
def job(made: Amended, tmp_path: Path) -> Amended:
    """The same in a folder of the test's own."""
    folder = tmp_path / "job"
    shutil.copytree(made.folder, folder)
    own = copy.copy(made)
    own.folder, own.seals = folder, LogOfSeals(list(made.seals.lines))
    own.kept, own.once, own.twice, own.keys = (
        folder / path.name for path in (made.kept, made.once, made.twice, made.keys)
    )
    return own


def rules(report: dict[str, Any]) -> list[str]:
    return [one["rule"] for one in report["violations"]]


def test_a_newer_bundle_tells_what_came_since(job: Amended) -> None:
    report = job.ask(job.kept, "--newer", job.twice, status=1)
    assert rules(report) == []
    first, second = report["amendments"]
    _, one, two = job.own
    assert [first["line"], second["line"]] == [line_hash(one), line_hash(two)]
    assert (first["amends"], second["amends"]) == (report["seal"], first["line"])
    assert (first["leaf"], second["leaf"]) == (None, 5), "a bundle proves the last, which names those before it"
    told = first["facts"][0]
    assert (told["type"], told["node_id"], told["outcome"]) == ("tool_invocation_finished", "a", "success")
    assert {fact["event_id"] for fact in first["facts"]}.isdisjoint(fact["event_id"] for fact in second["facts"])
    assert "truth_differs" in {one["rule"] for one in report["shows"]}


def test_of_what_was_kept_later_only_what_came_behind_that_is_told(job: Amended) -> None:
    report = job.ask(job.once, "--newer", job.twice, status=1)
    assert (rules(report), len(report["amendments"])) == ([], 1)
    assert job.ask(job.twice, "--newer", job.twice, status=0)["amendments"] == []
    assert job.ask(job.kept, "--newer", job.kept, status=0)["ok"]


def test_people_are_told_in_words(job: Amended) -> None:
    argv = ["amendments", str(job.kept), "--newer", str(job.twice), "--public-key", str(job.keys)]
    ran = CliRunner().invoke(app, argv)
    assert ran.exit_code == 1
    assert ran.stdout.count("\namended  ") == 2
    assert "tool_invocation_finished a success: event" in ran.stdout
    assert ran.stdout.endswith("amended since: export it again\n")


def test_lines_with_their_proofs_tell_it_without_any_record(job: Amended) -> None:
    report = job.ask(job.kept, "--lines", job.shown(*job.own), status=1)
    assert (rules(report), [one["leaf"] for one in report["amendments"]]) == ([], [4, 5])
    assert [one["facts"] for one in report["amendments"]] == [None, None], "lines tell of no fact"


def test_all_lines_against_the_published_log_leave_nothing_unsaid(job: Amended) -> None:
    report = job.ask(job.kept, "--lines", job.dumped(job.seals.lines), "--tiles", job.tiles(), status=1)
    assert (rules(report), [one["leaf"] for one in report["amendments"]]) == ([], [4, 5])
    assert report["published"] == {"leaves": 6, "not_shown": 0}
    shutil.rmtree(job.folder / "tiles")
    del job.seals.lines[4:]
    report = job.ask(job.kept, "--lines", job.dumped(job.seals.lines), "--tiles", job.tiles(), status=0)
    assert report["published"] == {"leaves": 4, "not_shown": 0}


def test_a_line_that_is_held_back_is_counted(job: Amended) -> None:
    """The log has a leaf of which nobody has shown the line: it may be anything."""
    report = job.ask(job.kept, "--lines", job.dumped(job.seals.lines[:4]), "--tiles", job.tiles(), status=0)
    assert report["published"] == {"leaves": 6, "not_shown": 2}


def test_a_redacted_bundle_may_be_the_one_that_was_kept(job: Amended) -> None:
    log = unsure()
    records = log.records
    evidence = Evidence(log.job, list(records), {}, job.seals.proof(records[-1].value), TRUSTED)
    judged = [judge(records, TRUSTED, {}.__getitem__)]
    kept = job.folder / "redacted.zip"
    kept.write_bytes(bundle.build_redacted(evidence, judged, Redaction.of(["reasons"], ""), signer(KEY)))
    report = job.ask(kept, "--newer", job.twice, status=1)
    assert (rules(report), len(report["amendments"])) == ([], 2)


def resigned(line: bytes, key: Ed25519PrivateKey = KEY, **changed: Any) -> bytes:
    """A line as somebody who holds that key would write it."""
    body = {name: value for name, value in json.loads(line).items() if name not in ("signature", "key_id")}
    return json.dumps(sign({**body, **changed}, key)).encode()


Change = Callable[[bytes], bytes]

LIES: dict[str, tuple[Change, list[str], int]] = {
    "a byte changed": (lambda line: line.replace(b'"event_count": ', b'"event_count": 1'), [], 0),
    "by a stranger": (lambda line: resigned(line, OTHER_KEY), [], 0),
    "no growth": (lambda line: resigned(line, consistency=[]), ["seal_consistency"], 1),
    "growth that is none": (lambda line: resigned(line, consistency="x"), ["seal_consistency"], 1),
    "growth of another tree": (lambda line: resigned(line, tree="0" * 64), ["seal_consistency"], 1),
    "over no more records": (lambda line: resigned(line, event_count=2), ["seal_count"], 0),
    "over what is no number": (lambda line: resigned(line, event_count=True), ["seal_count"], 0),
    "of another tenant": (lambda line: resigned(line, tenant="other"), ["seal_count"], 0),
    "amends what nobody shows": (lambda line: resigned(line, amends="0" * 64), ["amended_unseen"], 0),
    "amends nothing": (lambda line: resigned(line, amends=None), ["sealed_otherwise"], 0),
    "of another job": (lambda line: resigned(line, job_id="job-2"), [], 0),
    "no seal of this version": (lambda line: resigned(line, chain=1), [], 0),
}


@pytest.mark.parametrize("name", LIES)
def test_a_line_that_lies_says_nothing_or_is_named(job: Amended, name: str) -> None:
    change, expected, told = LIES[name]
    seal, amendment, _ = job.own
    forged = change(amendment)
    job.seals.lines.append(forged)
    report = job.ask(job.kept, "--lines", job.shown(seal, forged))
    assert (rules(report), len(report["amendments"])) == (expected, told)
    unsigned = name in ("a byte changed", "by a stranger", "no seal of this version")
    assert report["unsigned"] == unsigned


def test_two_amendments_by_other_records_are_named(job: Amended) -> None:
    seal, amendment, _ = job.own
    fork = resigned(amendment, root="0" * 64)
    job.seals.lines.append(fork)
    report = job.ask(job.kept, "--lines", job.shown(seal, amendment, fork), status=1)
    assert rules(report) == ["sealed_otherwise"]


def test_an_amendment_that_nobody_shows_in_the_log_is_named(job: Amended) -> None:
    seal, once, twice = job.own
    report = job.ask(job.kept, "--lines", job.dumped([seal, once, twice]), status=1)
    assert rules(report) == ["not_included", "not_included"]
    report = job.ask(job.kept, "--lines", job.shown(seal, once, twice, proved=False), status=1)
    assert rules(report) == ["not_included", "not_included"]
    path = job.shown(seal, twice)
    parts = json.loads(path.read_text())
    parts["lines"].append({"line": once.decode()})
    path.write_text(json.dumps(parts))
    assert rules(job.ask(job.kept, "--lines", path, status=1)) == [], "one in the log names it"


def test_a_proof_that_is_another_lines_is_named(job: Amended) -> None:
    seal, once, _ = job.own
    path = job.folder / "lies.json"
    lines = [
        {"line": seal.decode(), "proof": job.seals.proof(seal)},
        {"line": once.decode(), "proof": job.seals.proof(seal)},
    ]
    path.write_text(json.dumps({"lines": lines}))
    assert rules(job.ask(job.kept, "--lines", path, status=1)) == ["not_included", "not_included"]
    lines[1]["proof"] = "none"
    path.write_text(json.dumps({"lines": lines}))
    assert rules(job.ask(job.kept, "--lines", path, status=1)) == ["bad_proof", "not_included"]
    job.seals.key = OTHER_KEY
    path = job.shown(seal, once)
    assert rules(job.ask(job.kept, "--lines", path, status=1))[:2] == ["checkpoint_unknown_key"] * 2


@pytest.mark.parametrize("dump", [b"", b"\n", b"\xff\xfe\n[]\n", b"[" * 100_000, b'{"job_id": "job-1"}\n'])
def test_what_has_not_the_kept_seal_tells_nothing(job: Amended, dump: bytes) -> None:
    path = job.folder / "junk"
    path.write_bytes(dump)
    report = job.ask(job.kept, "--lines", path, status=1)
    assert (rules(report), report["amendments"]) == (["seal_not_logged"], [])


@pytest.mark.parametrize("text", ['{"lines"', '{"lines": 1}', '{"lines": [1]}', '{"lines": [{"line": 1}]}'])
def test_a_file_that_is_none_is_refused(job: Amended, text: str) -> None:
    path = job.folder / "junk"
    path.write_text(text)
    assert job.ask(job.kept, "--lines", path, status=2)["error"]["code"] == "bad_lines"


def test_an_older_bundle_is_no_newer_one(job: Amended) -> None:
    assert rules(job.ask(job.twice, "--newer", job.kept, status=1)) == ["not_newer", "seal_not_logged"]


def test_a_history_in_its_place_is_named(job: Amended) -> None:
    """Sealed by the key itself: the kept seal is not among its own."""
    other = sealed(clean())
    job.seals.lines.append(other.records[-1].value)
    path = job.export("other", other)
    assert "sealed_otherwise" in rules(job.ask(job.kept, "--newer", path, status=1))


def test_a_bundle_of_another_job_is_refused(job: Amended) -> None:
    other = unsure("job-2")
    job.seals.lines.append(other.records[-1].value)
    report = job.ask(job.kept, "--newer", job.export("other", other), status=2)
    assert report["error"]["code"] == "other_job"


def test_bundles_are_judged_by_the_keys_that_count(job: Amended, tmp_path: Path) -> None:
    keys = tmp_path / "others.json"
    keys.write_text(json.dumps({"keys": [{**TRUSTED[0].to_json(), "revoked_at": "2020-01-01T00:00:00+00:00"}]}))
    argv = ["amendments", str(job.kept), "--newer", str(job.twice), "--public-key", str(keys), "--json"]
    ran = CliRunner().invoke(app, argv)
    assert (ran.exit_code, json.loads(ran.stdout)["error"]["code"]) == (1, "envelope_revoked_key")


def test_a_key_that_has_retired_since_signed_what_was_kept(job: Amended) -> None:
    entry = {**TRUSTED[0].to_json(), "valid_until": "2026-02-01T00:00:00+00:00"}
    job.keys.write_text(json.dumps({"keys": [entry]}))
    report = job.ask(job.kept, "--newer", job.twice, status=1)
    assert report["error"]["code"] == "envelope_retired_key", (
        "of what is exported now a key that counts now is asked for"
    )
    assert rules(job.ask(job.kept, "--lines", job.dumped(job.own), status=1)) == ["not_included", "not_included"]


def test_a_kept_bundle_that_was_changed_is_named(job: Amended) -> None:
    content = bytearray(job.kept.read_bytes())
    content[len(content) // 2] ^= 1
    job.kept.write_bytes(bytes(content))
    assert "error" in job.ask(job.kept, "--newer", job.twice, status=1)


def test_tiles_of_another_log_do_not_have_it(job: Amended) -> None:
    other = LogOfSeals([b"other"])
    folder = job.folder / "others"
    SealTiles(folder).publish(other.checkpoint(), other)
    report = job.ask(job.kept, "--newer", job.once, "--tiles", folder, status=1)
    assert rules(report) == ["not_included", "not_included"]
    (folder / "tile/entries/000.p/1").write_bytes(b"\0\x20" + base64.b64decode("A" * 43 + "="))
    assert job.ask(job.kept, "--newer", job.once, "--tiles", folder, status=1)["error"]["code"] == "bad_tile"


def test_it_is_asked_for_one_thing_by_keys_that_count(job: Amended, tmp_path: Path) -> None:
    report = job.ask(job.kept, "--newer", job.once, "--from-log", status=2)
    assert report["error"]["code"] == "bad_usage"
    ran = CliRunner().invoke(
        app, ["amendments", str(job.kept), "--newer", str(job.once), "--data", str(tmp_path), "--json"]
    )
    assert (ran.exit_code, json.loads(ran.stdout)["error"]["code"]) == (2, "no_public_key")


def test_a_job_that_was_never_amended_says_so(job: Amended) -> None:
    log = sealed(clean())
    job.seals.lines.append(log.records[-1].value)
    path = job.export("clean", log)
    assert job.ask(path, "--newer", path, status=0)["ok"]
