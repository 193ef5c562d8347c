"""S3 objects by the toolkit, against a server that nobody here wrote: conditional, found again, confirmed."""

import hashlib
import time
from collections.abc import Generator
from dataclasses import replace

import pytest

from aetheris.sdk import (
    Confirmed,
    Drifted,
    Failed,
    Found,
    NotExecuted,
    NotFound,
    ProbeContext,
    StateChange,
    ToolContext,
    Unknown,
)
from aetheris.sdk.toolkits import http, s3
from tests.testkit.attempts import fresh
from tests.testkit.s3 import BUCKET, S3, running_s3

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[S3]:
    with running_s3(tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def store(server: S3) -> s3.Store:
    return s3.Store(server.endpoint, (BUCKET,), server.access_key, server.secret_key, guard=http.Guard(private=True))


def ctx(node: str) -> ToolContext:
    return ToolContext(f"aetheris:job-1:{node}:0", 0, "ab" * 32, "job-1", node)


def probe(node: str) -> ProbeContext:
    return ProbeContext(f"aetheris:job-1:{node}:0", "ab" * 32, "job-1", node)


async def test_the_same_call_again_is_one_version(store: s3.Store, server: S3) -> None:
    results = [await s3.put(ctx("once"), store, BUCKET, "a/b c+ü.txt", b"one") for _ in range(3)]
    assert [one.value for one in results] == [results[0].value] * 3
    assert server.versions("a/b c+ü.txt") == 1
    held = server.client.get_object(Bucket=BUCKET, Key="a/b c+ü.txt")
    assert (held["Body"].read(), held["Metadata"]["aetheris"]) == (b"one", "aetheris:job-1:once:0")
    found = await s3.find(probe("once"), store, BUCKET)
    assert isinstance(found, Found)
    assert (found.result, found.external_id, list(found.changes)) == (
        results[0].value,
        results[0].external_id,
        list(results[0].changes),
    )


async def test_what_is_there_is_not_overwritten(store: s3.Store, server: S3) -> None:
    x, theirs, mine = fresh("x"), ctx(fresh("theirs")), ctx(fresh("mine"))
    first = await s3.put(theirs, store, BUCKET, x, b"theirs")
    with pytest.raises(Failed):
        await s3.put(mine, store, BUCKET, x, b"mine")
    with pytest.raises(Failed):
        await s3.put(mine, store, BUCKET, x, b"mine", if_match='"0123"')
    with pytest.raises(Failed):
        await s3.put(mine, store, BUCKET, "nothing here", b"mine", if_match=first.value["etag"])
    assert server.versions(x) == 1
    second = await s3.put(mine, store, BUCKET, x, b"mine", if_match=first.value["etag"])
    again = await s3.put(mine, store, BUCKET, x, b"mine", if_match=first.value["etag"])
    assert (server.versions(x), again.value) == (2, second.value)
    (change,) = again.changes
    assert (change.operation, change.version is not None) == ("update", True)


async def test_a_probe_tells_what_became_of_a_put(store: s3.Store, server: S3) -> None:
    p = fresh("p")
    assert isinstance(await s3.find(probe(p), store, BUCKET), NotFound), "nothing was begun"
    await s3._write_note(ctx(p), store, s3._Put(BUCKET, p, hashlib.sha256(b"1").hexdigest(), 1, None))
    assert isinstance(await s3.find(probe(p), store, BUCKET), NotFound), "the note alone is no put"
    await s3.put(ctx(fresh("other")), store, BUCKET, p, b"somebody else's")
    assert isinstance(await s3.find(probe(p), store, BUCKET), Unknown), "there is one, and it is not ours"
    server.client.delete_object(Bucket=BUCKET, Key=p)
    await s3.put(ctx(p), store, BUCKET, p, b"1")
    assert isinstance(await s3.find(probe(p), store, BUCKET), Found)
    with pytest.raises(http.UnclearResponse):
        await s3.find(probe(p), replace(store, buckets=("no-such-bucket",)), "no-such-bucket")


async def test_what_a_put_left_is_confirmed_or_has_drifted(store: s3.Store, server: S3) -> None:
    name = fresh("c")
    (change,) = (await s3.put(ctx(name), store, BUCKET, name, b"one")).changes
    assert isinstance(await s3.confirm(probe(name), store, change), Confirmed)
    server.client.put_object(Bucket=BUCKET, Key=name, Body=b"two")
    drifted = await s3.confirm(probe(name), store, change)
    assert isinstance(drifted, Drifted)
    assert drifted.diff["sha256"]["recorded"] == change.etag
    server.client.delete_object(Bucket=BUCKET, Key=name)
    assert await s3.confirm(probe(name), store, change) == Drifted({"status": 404})
    elsewhere = StateChange(s3.OBJECT, "secrets/c", "create", etag=change.etag)
    assert await s3.confirm(probe(name), store, elsewhere) == Drifted({"name": "is not one that this tool may use"})


@pytest.mark.parametrize(
    ("bucket", "key"), [("other", "x"), (BUCKET, ""), (BUCKET, "../x"), (BUCKET, "a//b"), (BUCKET, ".aetheris/x")]
)
async def test_nothing_is_sent_for_a_name_that_is_not_allowed(store: s3.Store, bucket: str, key: str) -> None:
    nowhere = replace(store, endpoint="http://127.0.0.1:1")
    with pytest.raises(Failed):
        await s3.put(ctx("n"), nowhere, bucket, key, b"")


async def test_a_server_that_does_not_answer(store: s3.Store, server: S3) -> None:
    with pytest.raises(NotExecuted):
        await s3.put(ctx("gone"), replace(store, endpoint="http://127.0.0.1:1"), BUCKET, "gone", b"")
    with pytest.raises(Failed, match="not public"):
        await s3.put(ctx("gone"), replace(store, guard=http.PUBLIC), BUCKET, "gone", b"")
    server.freeze()
    try:
        soon = replace(ctx("late"), deadline=time.monotonic() + 0.5)
        with pytest.raises(NotExecuted):
            await s3.put(soon, store, BUCKET, "late", b"")
    finally:
        server.thaw()
    with pytest.raises(Failed, match="403"):
        await s3.put(ctx("wrong"), replace(store, secret_key="x" * 8), BUCKET, "wrong", b"")
    assert store.secret_key not in repr(store)
