"""A backup that is not what was written is refused before anything is touched, and the file is named."""

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.backup import blob_copies, files
from aetheris.cli.backup.files import BackupManifest, CopiedPartition, SealTree
from aetheris.proofs.claims import log_entry
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.protocol.base.records import Record
from aetheris.protocol.base.topics import Topic
from aetheris.runtime.blobs.store import FolderBlobs

EVENTS, SEALS = str(Topic.JOBS_EVENTS), str(Topic.JOBS_SEALS)


def record(topic: str, offset: int, value: bytes = b"{}") -> Record:
    return Record(topic, 0, offset, 1_700_000_000_000 + offset, b"job", (("ce_id", b"\xff\x00"), ("ce_id", b"")), value)


def copied(folder: Path, topic: str, *records: Record, begin: int = 0, end: int = 10) -> CopiedPartition:
    path = folder / files.log_path(topic, 0)
    with files.lines_into(path) as lines:
        for one in records:
            lines.write(files.written(one))
    return CopiedPartition(
        partition=0,
        begin=begin,
        end=end,
        records=lines.count,
        lines_sha256=lines.hash.hexdigest(),
        file_sha256=files.file_sha256(path),
    )


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    folder, store = tmp_path / "backup", tmp_path / "store"
    (store / "ab").mkdir(parents=True)
    (store / "ab" / "blob").write_bytes(b"large")
    (store / "ab" / ".blob.new").write_bytes(b"not whole yet")
    seals = [record(SEALS, at, b"seal %d" % at) for at in range(2)]
    tree = Tree()
    for seal in seals:
        tree.append(leaf_hash(log_entry(seal.value)))
    topics = {
        EVENTS: (copied(folder, EVENTS, record(EVENTS, 3), record(EVENTS, 7, b""), begin=3),),
        SEALS: (copied(folder, SEALS, *seals, end=2),),
    }
    count, sha256, corrupt = asyncio.run(blob_copies.copy_out(FolderBlobs(store), folder))
    assert (count, corrupt) == (1, [])
    sealed = SealTree(size=2, root=tree.root(2).hex())
    manifest = BackupManifest(
        taken_at="2026-11-26T10:00:00+00:00",
        partitions=1,
        topics=topics,
        marks={},
        seals=sealed,
        roots=(),
        blobs=count,
        blobs_sha256=sha256,
    )
    files.save(folder, manifest)
    return folder


def checked(folder: Path, *more: str) -> tuple[int, dict[str, str]]:
    done = CliRunner().invoke(app, ["restore", str(folder), "--check", "--json", *more])
    said = json.loads(done.stdout)
    return done.exit_code, said.get("error", said)


def test_a_whole_one_is_read_back_byte_for_byte(backup: Path) -> None:
    code, said = checked(backup)
    assert (code, said["whole"]) == (0, True)
    manifest, sha256 = files.load(backup)
    (events,) = manifest.topics[EVENTS]
    assert list(files.records_of(backup, EVENTS, events)) == [record(EVENTS, 3), record(EVENTS, 7, b"")]
    assert checked(backup, "--expect", sha256)[0] == 0
    code, said = checked(backup, "--expect", "0" * 64)
    assert (code, said["code"]) == (1, "other_backup")


def change(path: str) -> Callable[[Path], str]:
    def changed(folder: Path) -> str:
        data = bytearray((folder / path).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / path).write_bytes(data)
        return path

    return changed


def cut(path: str) -> Callable[[Path], str]:
    def shortened(folder: Path) -> str:
        data = (folder / path).read_bytes()
        (folder / path).write_bytes(data[:-1])
        return path

    return shortened


def gone(path: str) -> Callable[[Path], str]:
    def removed(folder: Path) -> str:
        (folder / path).unlink()
        return path

    return removed


def other_records(folder: Path) -> str:
    """Whoever writes a file anew, and its hash into the manifest, has other lines than were hashed."""
    path = files.log_path(EVENTS, 0)
    with gzip.open(folder / path, "wb") as file:
        file.write(files.written(record(EVENTS, 3)))
    body = json.loads((folder / files.MANIFEST).read_text())
    body["topics"][EVENTS][0]["file_sha256"] = files.file_sha256(folder / path)
    (folder / files.MANIFEST).write_text(json.dumps(body))
    return str(path)


def out_of_order(folder: Path) -> str:
    path = folder / files.log_path(EVENTS, 0)
    path.unlink()
    made = copied(folder, EVENTS, record(EVENTS, 7), record(EVENTS, 3), begin=3)
    body = json.loads((folder / files.MANIFEST).read_text())
    body["topics"][EVENTS] = [made.model_dump()]
    (folder / files.MANIFEST).write_text(json.dumps(body))
    return str(files.log_path(EVENTS, 0))


def leads_outside(folder: Path) -> str:
    path = folder / files.BLOB_LINES
    with gzip.open(path, "wb") as file:
        file.write(json.dumps({"path": "../../store/ab/blob", "sha256": "0" * 64}).encode() + b"\n")
    body = json.loads((folder / files.MANIFEST).read_text())
    body["blobs_sha256"] = files.file_sha256(path)
    (folder / files.MANIFEST).write_text(json.dumps(body))
    return files.BLOB_LINES


def other_seals(folder: Path) -> str:
    body = json.loads((folder / files.MANIFEST).read_text())
    body["seals"]["root"] = "0" * 64
    (folder / files.MANIFEST).write_text(json.dumps(body))
    return str(files.log_path(SEALS, 0))


@pytest.mark.parametrize(
    "harm",
    [
        change(str(files.log_path(EVENTS, 0))),
        cut(str(files.log_path(EVENTS, 0))),
        gone(str(files.log_path(SEALS, 0))),
        change(f"{files.BLOBS}/ab/blob"),
        gone(f"{files.BLOBS}/ab/blob"),
        gone(files.BLOB_LINES),
        other_records,
        out_of_order,
        leads_outside,
        other_seals,
        cut(files.MANIFEST),
    ],
)
def test_what_is_changed_missing_or_cut_is_named(backup: Path, harm: Callable[[Path], str]) -> None:
    name = harm(backup)
    if name == files.MANIFEST:
        (backup / name).write_bytes((backup / name).read_bytes()[:-3])
    code, said = checked(backup)
    assert (code, said["code"]) == (1, "backup_damaged")
    assert name in said["message"]


def test_one_that_was_not_taken_to_its_end_is_none(backup: Path) -> None:
    (backup / files.MANIFEST).unlink()
    code, said = checked(backup)
    assert (code, said["code"]) == (2, "no_backup")


def test_a_folder_that_has_something_gets_no_backup(tmp_path: Path, backup: Path) -> None:
    done = CliRunner().invoke(
        app, ["backup", str(backup), "--data", str(tmp_path), "--json"], env={"AETHERIS_KAFKA": "127.0.0.1:1"}
    )
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, "not_empty")


@pytest.mark.parametrize("missing", ["--by", "--old-ended"])
def test_a_person_must_say_who_he_is_and_that_the_old_one_has_ended(backup: Path, tmp_path: Path, missing: str) -> None:
    words = {"--by": "ann", "--old-ended": "it burnt"}
    words.pop(missing)
    data = tmp_path / "data"
    argv = ["restore", str(backup), "--data", str(data), "--json", *(one for pair in words.items() for one in pair)]
    done = CliRunner().invoke(app, argv)
    said = json.loads(done.stdout)["error"]
    assert (done.exit_code, said["code"], said["details"]["field"]) == (2, "bad_usage", missing)
    assert not data.exists()


def test_without_the_keys_of_its_root_nothing_is_restored(backup: Path, tmp_path: Path) -> None:
    body = json.loads((backup / files.MANIFEST).read_text())
    body["roots"] = ["ab" * 32]
    (backup / files.MANIFEST).write_text(json.dumps(body))
    argv = [
        "restore",
        str(backup),
        "--data",
        str(tmp_path / "data"),
        "--by",
        "ann",
        "--old-ended",
        "it burnt",
        "--json",
    ]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 78, done.output
    assert json.loads(done.stdout)["error"]["code"] == "key_unusable"
