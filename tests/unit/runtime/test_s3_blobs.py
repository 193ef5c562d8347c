"""Blobs on S3, against a server that nobody here wrote: the same promises as in a folder."""

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from aetheris.runtime.base.refusal import SettingInvalid, StartRefused
from aetheris.runtime.blobs import store
from aetheris.runtime.blobs.location import blobs_at
from aetheris.runtime.blobs.s3 import S3Files
from aetheris.runtime.blobs.store import (
    BlobCorrupt,
    BlobMissing,
    BlobName,
    Blobs,
    BlobsUnreachable,
    FolderBlobs,
    s3_place,
)
from aetheris.runtime.process.settings import RuntimeSettings, load
from tests.testkit.attempts import fresh
from tests.testkit.s3 import BUCKET, S3, running_s3

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Where this attempt's blobs lie, in a bucket that all tests share."""
    return fresh(request.node.originalname)


@pytest.fixture
def blobs(s3: S3, monkeypatch: pytest.MonkeyPatch, place: str) -> Blobs:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    return blobs_at(f"s3://{BUCKET}/{place}", Path("nowhere"))


async def test_a_blob_is_put_once_and_found_by_its_hash(blobs: Blobs, s3: S3, place: str) -> None:
    data = os.urandom(100_000)
    refs = [await blobs.put(data), *await asyncio.gather(*(blobs.put(data) for _ in range(10)))]
    sha256 = hashlib.sha256(data).hexdigest()
    assert set(refs) == {BlobName(sha256, len(data))}
    key = f"{place}/{sha256[:2]}/{sha256}"
    assert s3.keys(place) == [key]
    assert s3.versions(key) == 1, "an object that is there is not written again"
    assert await blobs.get(refs[0]) == blobs.read(sha256) == data


async def test_what_is_gone_and_what_was_changed_is_told_apart(blobs: Blobs, s3: S3, place: str) -> None:
    ref = await blobs.put(b"large")
    key = f"{place}/{ref.sha256[:2]}/{ref.sha256}"
    s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"other")
    with pytest.raises(BlobCorrupt):
        await blobs.get(ref)
    assert blobs.unchecked(ref.sha256) == b"other"
    s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"cut")
    await blobs.put(b"large")
    assert await blobs.get(ref) == b"large", "what was cut off is written again"
    s3.client.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(BlobMissing):
        await blobs.get(ref)
    with pytest.raises(BlobMissing):
        blobs.read("../secret")


async def test_all_that_lies_there_is_named_as_in_a_folder(blobs: Blobs, tmp_path: Path) -> None:
    folder = FolderBlobs(tmp_path / "blobs")
    assert await blobs.paths() == await folder.paths() == []
    for one in (folder, blobs):
        await one.put(b"large")
        await one.put_at("archive/shop/2026-01/j.zip", b"a bundle")
    (tmp_path / "blobs" / ".half").write_bytes(b"what is still being written")
    sha256 = hashlib.sha256(b"large").hexdigest()
    wanted = sorted([f"{sha256[:2]}/{sha256}", "archive/shop/2026-01/j.zip"])
    assert await blobs.paths() == await folder.paths() == wanted


@pytest.mark.usefixtures("blobs")
async def test_files_of_any_size_come_back_as_they_were(place: str, tmp_path: Path) -> None:
    files = S3Files(s3_place(f"s3://{BUCKET}/{place}"))
    large = os.urandom(12 * 1024 * 1024 + 1)  # more than goes in one part
    (tmp_path / "large").write_bytes(large)
    (tmp_path / "none").touch()
    for name in ("large", "none"):
        await files.put(f"log/{name}.gz", tmp_path / name)
    assert await files.names() == ["log/large.gz", "log/none.gz"]
    for name, content in (("large", large), ("none", b"")):
        await files.get(f"log/{name}.gz", tmp_path / f"{name}.back")
        assert (tmp_path / f"{name}.back").read_bytes() == content
    with pytest.raises(BlobMissing):
        await files.get("log/other.gz", tmp_path / "other")
    with pytest.raises(BlobsUnreachable):
        await S3Files(s3_place("s3://no-such-bucket/x")).names()


async def test_each_installation_has_a_folder_of_its_own(blobs: Blobs, s3: S3, place: str) -> None:
    acme, other = (blobs_at(f"s3://{BUCKET}/{place}", Path("nowhere"), prefix) for prefix in ("acme", "other"))
    name = await acme.put(b"large")
    assert await acme.get(name) == b"large"
    for others in (blobs, other):
        with pytest.raises(BlobMissing):
            await others.get(name)
    assert s3.keys(place) == [f"{place}/installations/acme/{name.sha256[:2]}/{name.sha256}"]


@pytest.mark.parametrize("folder", ["archive", "hidden"])
async def test_who_may_write_below_one_folder_alone_keeps_what_goes_there_and_nothing_else(
    s3: S3, monkeypatch: pytest.MonkeyPatch, place: str, blobs: Blobs, folder: str
) -> None:
    large = await blobs.put(b"large")
    for name, value in s3.writer_below(f"{place}/{folder}").items():
        monkeypatch.setenv(name, value)
    own = blobs_at(f"s3://{BUCKET}/{place}", Path("nowhere"))
    await own.check()
    for _ in range(2):
        await own.put_at(f"{folder}/acme/one", b"one")
    assert await own.get_at(f"{folder}/acme/one") == b"one"
    assert await own.get(large) == b"large"
    for putting in (own.put(b"result"), own.put_at(f"{folder}-not/one", b"one")):
        with pytest.raises(BlobsUnreachable):
            await putting
    assert len(s3.keys(place)) == 2


async def test_a_store_that_can_not_say_is_no_missing_blob(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    nowhere = blobs_at("s3://no-such-bucket", Path("nowhere"))
    with pytest.raises(BlobsUnreachable, match="NoSuchBucket"):
        await nowhere.get(BlobName("ab" * 32, 1))
    with pytest.raises(BlobsUnreachable, match="NoSuchBucket"):
        await nowhere.put(b"x")
    with pytest.raises(StartRefused, match=r"AETHERIS_BLOBS.*NoSuchBucket"):
        await nowhere.check()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    stranger = blobs_at(f"s3://{BUCKET}", Path("nowhere"))
    with pytest.raises(BlobsUnreachable) as refused:
        await stranger.get(BlobName("ab" * 32, 1))
    with pytest.raises(StartRefused, match=r"AETHERIS_BLOBS") as at_start:
        await stranger.check()
    assert "s3cret" not in f"{refused.value} {at_start.value}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    silent = blobs_at(f"s3://{BUCKET}", Path("nowhere"))
    with pytest.raises(BlobsUnreachable) as reported:
        await silent.get(BlobName("ab" * 32, 1))
    assert "127.0.0.1" not in str(reported.value)
    with pytest.raises(BlobsUnreachable):
        await silent.put(b"x")
    await silent.check()


class FloodingStore(BaseHTTPRequestHandler):
    """Says how much an object has, and sends without end."""

    protocol_version = "HTTP/1.1"
    said: dict[str, str]
    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        for name, value in {"ETag": '"x"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", **self.said}.items():
            self.send_header(name, value)
        self.end_headers()
        piece = bytes(64 * 1024)
        chunked = b"%x\r\n%b\r\n" % (len(piece), piece) if "Transfer-Encoding" in self.said else piece
        with suppress(OSError):
            while type(self).sent < 64 * MIB:
                self.wfile.write(chunked)
                type(self).sent += len(piece)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as its base calls it
        pass


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ({"Content-Length": str(64 * MIB)}, BlobCorrupt),
        ({"Content-Length": "10"}, BlobCorrupt),
        ({"Transfer-Encoding": "chunked"}, BlobsUnreachable),
        ({"Content-Length": str(64 * MIB), "Transfer-Encoding": "chunked"}, (BlobCorrupt, BlobsUnreachable)),
    ],
)
def test_of_a_server_that_sends_more_than_a_blob_has_no_more_is_taken(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], raised: Any
) -> None:
    monkeypatch.setattr(store, "MOST_BYTES", MIB)
    handler = type("Flooding", (FloodingStore,), {"said": said, "sent": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(raised):
            blobs_at(f"s3://{BUCKET}", Path("nowhere")).read("ab" * 32)
        server.shutdown()
    assert handler.sent < 32 * MIB, "the rest lies in the sockets' buffers"


async def test_a_bucket_that_is_there_is_relied_on(blobs: Blobs) -> None:
    await blobs.check()


async def test_a_folder_that_can_not_be_used_is_no_missing_blob(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"a file")
    folder = blobs_at("", tmp_path)
    with pytest.raises(BlobsUnreachable):
        await folder.put(b"x")
    with pytest.raises(BlobsUnreachable):
        await folder.get(BlobName("ab" * 32, 1))


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///x",
        "bucket",
        "gs://bucket",
        "https://bucket.s3",
        "s3://me:secret@bucket",
        "s3://bucket/../x",
        "s3://bucket//x",
        "s3://bucket?x=1",
        "s3://Bucket",
        "s3://b",
    ],
)
def test_another_url_is_refused_by_the_settings_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_BLOBS", url)
    with pytest.raises(SettingInvalid) as reported:
        load(RuntimeSettings)
    assert str(reported.value) == "AETHERIS_BLOBS: not_s3_url"


def test_bucket_and_prefix() -> None:
    assert s3_place("s3://bucket") == s3_place("s3://bucket/") == ("bucket", "")
    assert s3_place("s3://my.bucket/a/b-c/") == ("my.bucket", "a/b-c")


def test_the_client_is_imported_only_where_it_is_asked_for() -> None:
    code = "import sys, aetheris.runtime.process.runtime; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
