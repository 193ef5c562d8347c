"""Leases and effects on a real Valkey; what Redis loses is noticed, and its absence never hangs anyone."""

import asyncio
import socket
import time
import uuid

import pytest

from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.redis.location import BadRedisUrl

pytestmark = pytest.mark.real


@pytest.fixture
async def redis(valkey_url: str):
    redis = Redis(valkey_url)
    yield redis
    await redis.close()


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


async def test_a_lease_is_held_until_it_lapses(redis: Redis, key: str) -> None:
    leases = Leases(redis)
    await leases.grant([Lease(key, "l1", 60.0), Lease(key + "b", "l1", 0.05)])
    assert await leases.held([key, key + "none"]) == [True, False]
    async with asyncio.timeout(5):
        while (await leases.held([key + "b"]))[0]:  # noqa: ASYNC110  Redis tells nobody that a key lapsed
            await asyncio.sleep(0.01)


async def test_a_heartbeat_renews_ones_own_lease_only(redis: Redis, key: str) -> None:
    leases = Leases(redis)
    await leases.grant([Lease(key, "l1", 0.5)])
    assert await leases.extend([Lease(key, "l1", 60.0), Lease(key, "l2", 60.0)]) == [True, False]
    assert 30_000 < (await redis.pipeline([("PTTL", f"aetheris:lease:{key}")]))[0] <= 60_000


async def test_a_heartbeat_brings_back_a_lease_that_redis_lost(redis: Redis, key: str) -> None:
    leases = Leases(redis)
    await leases.grant([Lease(key, "l1", 60.0)])
    await redis.pipeline([("DEL", f"aetheris:lease:{key}")])
    assert await leases.extend([Lease(key, "l1", 60.0)]) == [True]
    assert await leases.held([key]) == [True]


async def test_only_the_holder_releases(redis: Redis, key: str) -> None:
    leases = Leases(redis)
    await leases.grant([Lease(key, "l1", 60.0)])
    await leases.release([Lease(key, "l2", 60.0)])
    assert await leases.held([key]) == [True]
    await leases.release([Lease(key, "l1", 60.0)])
    assert await leases.held([key]) == [False]


async def test_lost_data_is_noticed_once(redis: Redis) -> None:
    leases = Leases(redis)
    await leases.data_lost()
    assert not await leases.data_lost()
    await redis.pipeline([("DEL", "aetheris:epoch")])
    other = Leases(redis)
    assert await leases.data_lost()
    assert not await leases.data_lost()
    assert not await other.data_lost()  # another one had noticed, and set the epoch anew, before it began


async def test_a_first_look_at_an_empty_redis_counts_as_lost(redis: Redis) -> None:
    await redis.pipeline([("DEL", "aetheris:epoch")])
    assert await Leases(redis).data_lost()


async def test_of_first_looks_at_the_same_time_one_notices(redis: Redis) -> None:
    for _ in range(50):  # answers cross in some of them
        await redis.pipeline([("DEL", "aetheris:epoch")])
        leases = Leases(redis)
        assert sum(await asyncio.gather(*(leases.data_lost() for _ in range(4)))) == 1


async def test_effects_lie_by_nonce(redis: Redis, key: str) -> None:
    effects = EffectStore(redis, ttl_s=60.0)
    await effects.put([EffectEntry("job", key, "n1", b'{"a":1}'), EffectEntry("job", key, "n2", b"\x00\xff")])
    found = await effects.find([("job", key), ("job", key + "x"), ("other", key)])
    assert found == [{"n1": b'{"a":1}', "n2": b"\x00\xff"}, {}, {}]
    assert (await redis.pipeline([("PTTL", f"aetheris:effect:job:{key}")]))[0] > 0
    await effects.drop([("job", key)])
    assert await effects.find([("job", key)]) == [{}]


async def test_what_is_no_effect_hides_nobody_elses(redis: Redis, key: str) -> None:
    effects = EffectStore(redis, ttl_s=60.0)
    await effects.put([EffectEntry("job", key + "b", "n", b"{}")])
    await redis.pipeline(
        [("SET", f"aetheris:effect:job:{key}", "x"), ("HSET", f"aetheris:effect:job:{key}c", b"\xff", "x")]
    )
    found = await effects.find([("job", key), ("job", key + "b"), ("job", key + "c")])
    assert found == [{}, {"n": b"{}"}, {"\ufffd": b"x"}]


async def test_many_at_once_share_the_connections(redis: Redis, key: str) -> None:
    effects = EffectStore(redis, ttl_s=60.0)
    await asyncio.gather(*(effects.put([EffectEntry("job", key, f"n{n}", b"{}")]) for n in range(200)))
    assert len((await effects.find([("job", key)]))[0]) == 200


async def test_empty_batches_ask_nothing() -> None:
    nowhere = Redis("redis://127.0.0.1:1/0")
    assert await Leases(nowhere).held([]) == []
    assert await Leases(nowhere).extend([]) == []
    await EffectStore(nowhere, 1.0).put([])


async def test_a_refused_connection_is_one_typed_error() -> None:
    nowhere = Redis("redis://127.0.0.1:1/0")
    with pytest.raises(RedisUnavailable):
        await nowhere.ping()
    assert "ConnectionRefusedError" in (nowhere.unready() or "")
    await nowhere.close()


async def test_a_server_that_never_answers_costs_the_deadline_only(key: str) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        redis = Redis(f"redis://127.0.0.1:{mute.getsockname()[1]}/0", deadline_s=0.2)
        began = time.monotonic()
        with pytest.raises(RedisUnavailable):
            await EffectStore(redis, 1.0).put([EffectEntry("job", key, "n", b"{}")])
        assert time.monotonic() - began < 12
        await redis.close()


async def test_replies_of_a_broken_off_exchange_reach_nobody_else(redis: Redis, key: str) -> None:
    await redis.pipeline([("RPUSH", key, "theirs")])
    for _ in range(12):
        with pytest.raises(RedisUnavailable):
            await redis.pipeline([("BLPOP", key + "-empty", 5)], deadline_s=0.01)
    assert await redis.pipeline([("LRANGE", key, 0, -1)]) == [[b"theirs"]]


async def test_an_error_reply_is_unavailable_too_and_the_connection_is_clean(redis: Redis, key: str) -> None:
    await redis.pipeline([("SET", key, "text")])
    with pytest.raises(RedisUnavailable):
        await redis.pipeline([("LPUSH", key, "x"), ("GET", key)])
    assert await redis.pipeline([("GET", key)]) == [b"text"]


async def test_who_has_nothing_to_ask_learns_that_redis_is_back(redis: Redis) -> None:
    with pytest.raises(RedisUnavailable):
        await redis.pipeline([("NO_SUCH_COMMAND",)])
    assert redis.unready() is not None
    async with asyncio.timeout(5):
        while redis.unready() is not None:  # noqa: ASYNC110  as a probe of readiness asks: again and again
            await asyncio.sleep(0.01)


async def test_a_lost_connection_fails_what_waits_and_the_next_exchange_has_a_new_one(redis: Redis, key: str) -> None:
    await redis.ping()
    waits = asyncio.create_task(redis.pipeline([("BLPOP", key, 5)], deadline_s=5.0))
    await asyncio.sleep(0)  # it is sent
    with pytest.raises(RedisUnavailable):
        await redis.pipeline([("PING",)], deadline_s=0.1)  # its reply would come behind the other's
    with pytest.raises(RedisUnavailable):
        await waits
    await redis.pipeline([("SET", key, "text")])
    assert await redis.pipeline([("GET", key)]) == [b"text"]


async def test_a_listener_hears_every_message_of_its_channel(redis: Redis, key: str) -> None:
    observed = asyncio.Event()
    listening = asyncio.create_task(redis.listen(key, observed.set))
    async with asyncio.timeout(5):
        while not (await redis.pipeline([("PUBLISH", key, b"")]))[0]:  # noqa: ASYNC110  nobody listens yet
            await asyncio.sleep(0.01)
        await observed.wait()
    listening.cancel()


async def test_a_user_with_a_password_and_a_database_of_its_own(redis: Redis, valkey_url: str, key: str) -> None:
    await redis.pipeline([("ACL", "SETUSER", key, "on", ">p@ss:w/d", "~*", "+@all")])
    here = valkey_url.removeprefix("unix://")
    other, wrong = Redis(f"unix://{key}:p%40ss%3Aw%2Fd@{here}?db=3"), Redis(f"unix://{key}:no@{here}")
    await other.pipeline([("SET", key, "3")])
    assert await redis.pipeline([("GET", key), ("SELECT", 3), ("GET", key), ("SELECT", 0)]) == [
        None,
        b"OK",
        b"3",
        b"OK",
    ]
    with pytest.raises(RedisUnavailable, match="ReplyError"):
        await wrong.ping()
    await other.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://x", "begins with"),
        ("redis+ring://x", "begins with"),
        ("unix+cluster:///x", "begins with"),
        ("redis://x,y", "several servers"),
        ("redis+sentinel://x,y", "what they call the master"),
        ("redis+sentinel://x/shop?ssl_ca_certs=y", "no option ssl_ca_certs"),
        ("redis+cluster://x/3", "has no databases"),
        ("redis+cluster://x?sentinel_password=secret", "no option sentinel_password"),
        ("redis://x:port/0", "are numbers"),
        ("redis://x/first", "are numbers"),
        ("redis://x/0?ssl_ca_certs=y", "no option ssl_ca_certs"),
        ("rediss://:secret@x/0?ssl_ca_certs=/nowhere", "a certificate or key"),
    ],
)
def test_a_url_that_names_no_redis_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(BadRedisUrl, match=reason) as refused:
        Redis(url)
    assert "secret" not in str(refused.value)
