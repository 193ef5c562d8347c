"""`aetheris seals tiles`: a folder with the log, for anybody; whoever answers, and whenever it is killed."""

import json
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aetheris.cli.app import app
from aetheris.cli.seal_tiles import ReadSealLog, SealTiles, TilesRefused, from_folder, from_url, read_seal_log
from aetheris.proofs.claims import log_entry
from aetheris.proofs.merkle import Tree, leaf_hash
from aetheris.proofs.notes import (
    BadNote,
    Checkpoint,
    open_checkpoint,
    open_consistency,
    open_inclusion,
    parse_inclusion,
    sign_checkpoint,
)
from aetheris.proofs.tiles import BadTile
from aetheris.runtime.base.whole_file import write_whole
from tests.testkit.evidence import KEY, ORIGIN, OTHER_KEY, TRUSTED, bundle_of, sealed
from tests.testkit.proof_histories import clean

WRITE = "aetheris.cli.seal_tiles.write_whole"
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass
class PublishedLines:
    """A log of seals as the gateway shows it; `page`: how many entries it gives at once."""

    lines: list[bytes]
    page: int = 100
    asked: list[int] = field(default_factory=list[int])

    def seal_entries(self, start: int) -> list[str]:
        self.asked.append(start)
        return [log_entry(line).hex() for line in self.lines[start : start + self.page]]

    def checkpoint(self, size: int, origin: str = ORIGIN) -> Checkpoint:
        note = sign_checkpoint(origin, size, self.tree(size).root(), KEY)
        return open_checkpoint(note, TRUSTED)

    def tree(self, size: int) -> Tree:
        made = Tree()
        for line in self.lines[:size]:
            made.append(leaf_hash(log_entry(line)))
        return made


def lines(count: int, replaced: int = -1) -> PublishedLines:
    return PublishedLines([b"other" if at == replaced else b'{"tenant":"acme","line":%d}' % at for at in range(count)])


def content(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_it_grows_and_what_was_published_stays(tmp_path: Path) -> None:
    log, folder = lines(700), tmp_path / "log"
    before: dict[str, bytes] = {}
    kept: list[Checkpoint] = []
    for size in (0, 3, 255, 256, 300, 511, 700):
        SealTiles(folder).publish(log.checkpoint(size), log)
        found = content(folder)
        full = {path: data for path, data in before.items() if ".p" not in path and path != "checkpoint"}
        assert full.items() <= found.items()
        read = ReadSealLog(from_folder(folder))
        for old in kept:
            assert open_consistency(read.consistency(old.size), old, TRUSTED, NOW).size == size
        for at in range(0, size, 61):
            assert open_inclusion(read.inclusion(at, log.lines[at]), log_entry(log.lines[at]), TRUSTED, NOW)[0] == at
        kept.append(log.checkpoint(size))
        before = found
    assert sorted(one for one in before if ".p" in one) == [
        "tile/0/002.p/188",
        "tile/1/000.p/1",
        "tile/1/000.p/2",
        "tile/entries/002.p/188",
    ], "what was partial goes when it is full"
    assert log.asked.count(0) == 1, "nothing is asked for twice"


def test_nothing_but_hashes_is_published(tmp_path: Path) -> None:
    log = lines(300)
    SealTiles(tmp_path).publish(log.checkpoint(300), log)
    assert not [path for path, data in content(tmp_path).items() if b"acme" in data or b"tenant" in data]


def test_what_is_published_is_not_asked_or_written_again(tmp_path: Path) -> None:
    log = lines(300)
    assert SealTiles(tmp_path).publish(log.checkpoint(300), log) == 300
    written = {path: (tmp_path / path).stat().st_mtime_ns for path in content(tmp_path) if path != "checkpoint"}
    log.asked.clear()
    assert SealTiles(tmp_path).publish(log.checkpoint(300), log) == 0
    assert log.asked == []
    assert written == {path: (tmp_path / path).stat().st_mtime_ns for path in written}


class Lies:
    """A gateway that answers so."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def seal_entries(self, start: int) -> Any:  # noqa: ARG002  whatever it is asked
        return self.answer


LIES: dict[str, tuple[Any, str]] = {
    "nothing": ([], "bad_entries"),
    "what is no hex": (["x" * 64], "bad_entries"),
    "what is no text": ([1], "bad_entries"),
    "a short one": (["00" * 31], "bad_entries"),
    "other entries": (["00" * 32] * 10, "not_consistent"),
    "the first again and again": ([log_entry(b'{"tenant":"acme","line":0}').hex()], "not_consistent"),
}


@pytest.mark.parametrize("name", LIES)
def test_who_lies_gets_nothing_written(name: str, tmp_path: Path) -> None:
    log = lines(600)
    SealTiles(tmp_path).publish(log.checkpoint(5), log)
    before = content(tmp_path)
    answer, rule = LIES[name]
    with pytest.raises(TilesRefused) as refused:
        SealTiles(tmp_path).publish(log.checkpoint(600), Lies(answer))
    assert (refused.value.rule, content(tmp_path)) == (rule, before)


def test_too_many_entries_are_as_many_as_are_needed(tmp_path: Path) -> None:
    log = lines(600)
    log.page = 600
    SealTiles(tmp_path).publish(log.checkpoint(5), log)
    assert ReadSealLog(from_folder(tmp_path)).checkpoint() == log.checkpoint(5).note
    assert not (tmp_path / "tile/0/000").exists()


FORKS: dict[str, tuple[Callable[[], tuple[Checkpoint, PublishedLines]], str]] = {
    "a line replaced": (lambda: (lines(400, replaced=2).checkpoint(400), lines(400, replaced=2)), "not_consistent"),
    "of one size": (lambda: (lines(300, replaced=2).checkpoint(300), lines(300, replaced=2)), "not_consistent"),
    "fewer": (lambda: (lines(200).checkpoint(200), lines(200)), "not_consistent"),
    "another's": (lambda: (lines(400).checkpoint(400, "example.com/others"), lines(400)), "other_log"),
}


@pytest.mark.parametrize("name", FORKS)
def test_a_log_that_did_not_only_grow_is_not_published(name: str, tmp_path: Path) -> None:
    log = lines(300)
    SealTiles(tmp_path).publish(log.checkpoint(300), log)
    before = content(tmp_path)
    made, rule = FORKS[name]
    with pytest.raises(TilesRefused) as refused:
        SealTiles(tmp_path).publish(*made())
    assert (refused.value.rule, content(tmp_path)) == (rule, before)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("checkpoint", b"\xff"),
        ("checkpoint", b"none\n"),
        ("tile/0/001.p/44", b""),
        ("tile/0/001.p/44", b"x" * 44 * 32),
        ("tile/entries/001.p/44", b"x"),
        ("tile/1/000.p/1", b"x" * 32),
    ],
)
def test_a_folder_that_was_touched_is_not_gone_on_with(path: str, data: bytes, tmp_path: Path) -> None:
    log = lines(400)
    SealTiles(tmp_path).publish(log.checkpoint(300), log)
    (tmp_path / path).write_bytes(data)
    with pytest.raises(TilesRefused) as refused:
        SealTiles(tmp_path).publish(log.checkpoint(400), log)
    assert refused.value.rule == "tiles_unusable"


def test_whenever_it_is_killed_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each file: the old checkpoint has what it covers, and the next run publishes all."""
    log = lines(600)
    written = 0
    SealTiles(tmp_path / "whole").publish(log.checkpoint(600), log)
    for limit in range(len(content(tmp_path / "whole"))):
        folder = tmp_path / str(limit)
        SealTiles(folder).publish(log.checkpoint(250), log)
        written = 0

        def write(path: Path, data: bytes, limit: int = limit) -> None:
            nonlocal written
            if written == limit:
                raise KeyboardInterrupt
            written += 1
            write_whole(path, data)

        monkeypatch.setattr(WRITE, write)
        with pytest.raises(KeyboardInterrupt):
            SealTiles(folder).publish(log.checkpoint(600), log)
        monkeypatch.setattr(WRITE, write_whole)
        proof = ReadSealLog(from_folder(folder)).inclusion(249, log.lines[249])
        assert open_inclusion(proof, log_entry(log.lines[249]), TRUSTED, NOW)[1].size == 250
        SealTiles(folder).publish(log.checkpoint(600), log)
        assert content(tmp_path / "whole").items() <= content(folder).items()


@pytest.fixture
def served(tmp_path: Path) -> Generator[tuple[Path, str]]:
    """A folder, and where a web server shows it."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_args: Any, **_named: Any) -> None: ...

    yield from running(Files, folder)


def running(handler: Any, folder: Path) -> Generator[tuple[Path, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_a_web_server_shows_it(served: tuple[Path, str]) -> None:
    folder, url = served
    log = lines(600)
    SealTiles(folder).publish(log.checkpoint(600), log)
    read = read_seal_log(url)
    old = log.checkpoint(77)
    assert open_consistency(read.consistency(77), old, TRUSTED, NOW).size == 600
    with pytest.raises(BadNote, match="not yet"):
        read.inclusion(600, b"")
    with pytest.raises(BadNote, match="another"):
        read.inclusion(3, b"another line")
    with pytest.raises(BadNote, match="fewer"):
        read.consistency(601)


def test_a_server_that_is_none_is_named(served: tuple[Path, str]) -> None:
    folder, url = served
    with pytest.raises(BadTile, match="checkpoint"):
        read_seal_log(url).checkpoint()
    (folder / "tile").write_bytes(b"x" * 10_000)
    with pytest.raises(BadTile, match="too much"):
        from_url(url)("tile")
    with pytest.raises(BadTile, match="no answer"):
        from_url("http://127.0.0.1:1/")("tile")
    with pytest.raises(BadTile, match="no answer"):
        from_url("http://[/")("tile")


def test_a_server_that_fails_is_named(tmp_path: Path) -> None:
    class Fails(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_args: Any, **_named: Any) -> None: ...

    for _, url in running(Fails, tmp_path):
        with pytest.raises(BadTile, match="answers 500"):
            read_seal_log(url).checkpoint()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [one.to_json() for one in TRUSTED]}))
    return path


def test_a_kept_checkpoint_and_a_bundle_are_held_against_what_is_published(tmp_path: Path, keys: Path) -> None:
    data = bundle_of(sealed(clean()).records)
    folder, old, bundle = tmp_path / "log", tmp_path / "old", tmp_path / "job.zip"
    bundle.write_bytes(data)
    log = lines(5)
    log.lines += [sealed(clean()).records[-1].value, *(b"other %d" % at for at in range(300))]
    SealTiles(folder).publish(log.checkpoint(306), log)
    old.write_text(log.checkpoint(4).note)
    asked = ("--tiles", str(folder), "--public-key", str(keys), "--json")

    grown = CliRunner().invoke(app, ["seals", "consistency", str(old), *asked])
    assert (grown.exit_code, json.loads(grown.stdout)["size"]) == (0, 306), grown.output
    proved = CliRunner().invoke(app, ["seals", "inclusion", str(bundle), *asked])
    assert proved.exit_code == 0, proved.output
    assert parse_inclusion(json.loads(proved.stdout)["inclusion"]).index == 5

    old.write_text(lines(4, replaced=1).checkpoint(4).note)
    refused = CliRunner().invoke(app, ["seals", "consistency", str(old), *asked])
    assert (refused.exit_code, "not_consistent" in refused.output) == (1, True)
    other = tmp_path / "other"
    SealTiles(other).publish(lines(306).checkpoint(306), lines(306))
    refused = CliRunner().invoke(app, ["seals", "inclusion", str(bundle), "--tiles", str(other), *asked[2:]])
    assert (refused.exit_code, "not_included" in refused.output) == (1, True)
    refused = CliRunner().invoke(app, ["seals", "inclusion", str(bundle), "--tiles", str(tmp_path / "no"), *asked[2:]])
    assert (refused.exit_code, "bad_tile" in refused.output) == (1, True)


def test_what_another_key_signed_is_no_proof(tmp_path: Path, keys: Path) -> None:
    log, bundle = lines(5), tmp_path / "job.zip"
    bundle.write_bytes(bundle_of(sealed(clean()).records))
    log.lines.append(sealed(clean()).records[-1].value)
    note = sign_checkpoint(ORIGIN, 6, log.tree(6).root(), OTHER_KEY)
    SealTiles(tmp_path / "log").publish(Checkpoint(ORIGIN, 6, log.tree(6).root(), note), log)
    argv = ["seals", "inclusion", str(bundle), "--tiles", str(tmp_path / "log"), "--public-key", str(keys), "--json"]
    refused = CliRunner().invoke(app, argv)
    assert (refused.exit_code, "checkpoint_unknown_key" in refused.output) == (1, True)
