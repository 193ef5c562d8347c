"""Redis as operators run it, by real processes: Sentinels and failover, a cluster and its slots, stores that evict."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from redis.crc import key_slot

from aetheris.runtime.redis.client import Redis, RedisUnavailable
from aetheris.runtime.redis.effects import EffectEntry, EffectStore
from aetheris.runtime.redis.leases import Lease, Leases
from aetheris.runtime.redis.store_check import StoreRefused, check_store
from tests.testkit.attempts import fresh
from tests.testkit.guarded_valkey import USERS
from tests.testkit.valkeys import PATIENCE_S, Replicated, Server, ValkeyCluster, cluster, replicated

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(300)]

T = TypeVar("T")
KEYS = 60


@pytest.fixture
def group(tmp_path: Path) -> Generator[Replicated]:
    with replicated(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Generator[ValkeyCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@asynccontextmanager
async def at(url: str) -> AsyncGenerator[Redis]:
    redis = Redis(url)
    try:
        yield redis
    finally:
        await redis.close()


async def once_there(ask: Callable[[], Awaitable[T]]) -> T:
    """What it says, once it says anything."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await ask()
            except RedisUnavailable:
                await asyncio.sleep(0.05)


async def heard(redis: Redis, channel: str) -> None:
    """A message that is published arrives at who listens."""
    arrived = asyncio.Event()
    listening = asyncio.create_task(redis.listen(channel, arrived.set))
    async with asyncio.timeout(PATIENCE_S):
        while not arrived.is_set():
            await redis.pipeline([("PUBLISH", channel, b"")])
            await asyncio.sleep(0.02)
    listening.cancel()


async def test_sentinels_name_the_master_and_the_next_one_where_it_dies(group: Replicated) -> None:
    async with at(group.url) as redis:
        leases, key = Leases(redis), fresh("k")
        await leases.grant([Lease(key, "l", 60.0)])
        await leases.data_lost()
        assert not await leases.data_lost()
        await heard(redis, fresh("bell"))
        master = group.master()
        with master.client() as client:
            client.wait(1, 5000)
        master.kill()
        with pytest.raises(RedisUnavailable):
            await leases.held([key])
        assert await once_there(lambda: leases.held([key])) == [True]
        assert await leases.data_lost()  # a replica may lack what was written last
        assert not await leases.data_lost()
        await heard(redis, fresh("bell"))
        assert group.wait_failed_over(master) is not master


async def test_a_demoted_master_is_left_at_its_first_no(group: Replicated) -> None:
    async with at(group.url) as redis:
        leases, key, old = Leases(redis), fresh("k"), group.master()
        await leases.grant([Lease(key, "l", 60.0)])
        # The Sentinels cut clients off where they demote a master; one that they can't reach is demoted by hand.
        for sentinel in group.sentinels:
            sentinel.signal(signal.SIGSTOP)
        replica = next(one for one in group.servers if one is not old)
        with replica.client() as new, old.client() as client:
            new.replicaof("no", "one")
            client.replicaof("127.0.0.1", replica.port)
        with pytest.raises(RedisUnavailable):
            await leases.grant([Lease(key, "l2", 60.0)])
        assert redis.unready() is not None
        for sentinel in group.sentinels:
            sentinel.signal(signal.SIGCONT)
        await once_there(lambda: leases.grant([Lease(key, "l2", 60.0)]))
        with group.master().client() as client:
            assert client.get(f"aetheris:lease:{key}") == b"l2"


async def test_a_stale_replica_that_is_promoted_counts_as_lost_data(group: Replicated) -> None:
    async with at(group.url) as redis:
        leases, effects, key, master = Leases(redis), EffectStore(redis, 60.0), fresh("k"), group.master()
        await leases.data_lost()
        behind = group.cut_off_replica()
        await leases.grant([Lease(key, "l", 60.0)])
        await effects.put([EffectEntry("job", key, "n", b"{}")])
        assert not await leases.data_lost()
        master.kill()
        assert await once_there(lambda: leases.held([key])) == [False]
        assert await leases.data_lost()
        assert await effects.find([("job", key)]) == [{}]
        assert group.wait_failed_over(master) is behind


async def test_a_master_that_evicts_is_seen_when_it_takes_over(group: Replicated) -> None:
    async with at(group.url) as redis:
        await check_store(redis)
        assert redis.evicting() is None
        with group.replica().client() as client:
            client.config_set("maxmemory-policy", "allkeys-lfu")
        group.master().kill()
        await once_there(redis.ping)
        assert redis.evicting() == "maxmemory-policy must be noeviction, is allkeys-lfu"
        with pytest.raises(StoreRefused, match="must be noeviction, is allkeys-lfu"):
            await check_store(redis)


async def test_a_replica_is_no_server_of_ours(group: Replicated) -> None:
    async with at(f"redis://127.0.0.1:{group.replica().port}") as redis:
        with pytest.raises(RedisUnavailable, match="IsReplica"):
            await redis.ping()


async def test_nobody_is_asked_whom_no_sentinel_names(group: Replicated) -> None:
    async with at(group.url.replace("/shop", "/another")) as redis:
        with pytest.raises(RedisUnavailable, match="NoMaster"):
            await redis.ping()


async def test_a_cluster_has_each_key_where_its_slot_is(nodes: ValkeyCluster) -> None:
    async with at(nodes.url) as redis:
        leases, effects = Leases(redis), EffectStore(redis, 60.0)
        keys = [fresh("k") for _ in range(KEYS)]
        assert len({nodes.owner(key_slot(f"aetheris:lease:{key}".encode())).port for key in keys}) == 3
        await leases.grant([Lease(key, "l", 60.0) for key in keys])
        await leases.data_lost()
        assert not await leases.data_lost()
        assert all(await leases.held(keys))
        assert (
            await leases.extend([Lease(key, who, 60.0) for key in keys for who in ("l", "x")]) == [True, False] * KEYS
        )
        await effects.put([EffectEntry("job", key, "n", key.encode()) for key in keys])
        assert await effects.find([("job", key) for key in keys]) == [{"n": key.encode()} for key in keys]
        await effects.drop([("job", key) for key in keys])
        await leases.release([Lease(key, "l", 60.0) for key in keys])
        assert not any(await leases.held(keys))
        await heard(redis, fresh("bell"))


async def test_what_is_sent_while_a_slot_moves_arrives(nodes: ValkeyCluster) -> None:
    """Writes go on, each to whoever has its key at that moment: not one is refused, lost or made twice."""
    tag = fresh("t")
    slot = key_slot(tag.encode())
    source = nodes.owner(slot)
    target = next(one for one in nodes.servers[:3] if one is not source)
    async with at(nodes.url) as redis:
        names = [f"{{{tag}}}:{number}" for number in range(200)]
        await redis.pipeline([("INCR", name) for name in names])
        moving = asyncio.create_task(asyncio.to_thread(nodes.move, slot, target, 1))
        rounds = 1
        while not moving.done():
            await redis.pipeline([("INCR", name) for name in names], 10.0)
            rounds += 1
        await moving
        assert nodes.owner(slot) is target
        assert rounds > 2
        assert await redis.pipeline([("GET", name) for name in names]) == [str(rounds).encode()] * len(names)


def tried_again(one: Server) -> int:
    """How often a server said that the keys of a command were in two places."""
    found = one.ask("INFO", "errorstats").get("errorstat_TRYAGAIN", {"count": 0})
    return int(found["count"])


async def test_a_script_whose_keys_are_being_moved_waits_for_them(nodes: ValkeyCluster) -> None:
    tag = fresh("t")
    slot = key_slot(tag.encode())
    source = nodes.owner(slot)
    target = next(one for one in nodes.servers[:3] if one is not source)
    both = [f"{{{tag}}}:a", f"{{{tag}}}:b"]
    script = ("EVAL", "return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])", 2, *both)
    async with at(nodes.url) as redis:
        assert await redis.pipeline([script]) == [2]
        with source.client() as giving, target.client() as taking:
            taking.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", nodes.names[source.port])
            giving.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", nodes.names[target.port])
            giving.execute_command("MIGRATE", "127.0.0.1", target.port, both[0], 0, 5000)
            waits = asyncio.create_task(redis.pipeline([script], 30.0))
            async with asyncio.timeout(PATIENCE_S):
                while tried_again(source) < 2:  # noqa: ASYNC110  one key is here, the other there
                    await asyncio.sleep(0.01)
            giving.execute_command("MIGRATE", "127.0.0.1", target.port, both[1], 0, 5000)
            taking.execute_command("CLUSTER", "SETSLOT", slot, "NODE", nodes.names[target.port])
            giving.execute_command("CLUSTER", "SETSLOT", slot, "NODE", nodes.names[target.port])
            assert await waits == [4]


async def test_one_flushed_node_is_noticed(nodes: ValkeyCluster) -> None:
    async with at(nodes.url) as redis:
        leases = Leases(redis)
        await leases.data_lost()
        for one in nodes.servers[:3]:
            assert not await leases.data_lost()
            with one.client() as client:
                client.flushall()
            assert await leases.data_lost()


async def test_a_node_that_evicts_is_named(nodes: ValkeyCluster) -> None:
    await check_quietly(nodes)
    wrong = nodes.servers[2]
    with wrong.client() as client:
        client.config_set("maxmemory-policy", "volatile-ttl")
        try:
            async with at(nodes.url) as redis:
                with pytest.raises(
                    StoreRefused, match=f"of 127.0.0.1:{wrong.port} must be noeviction, is volatile-ttl"
                ):
                    await check_store(redis)
        finally:
            client.config_set("maxmemory-policy", "noeviction")


async def check_quietly(nodes: ValkeyCluster) -> None:
    async with at(nodes.url) as redis:
        await check_store(redis)


async def test_a_master_of_a_cluster_dies_and_its_replica_takes_over(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        async with at(nodes.url) as redis:
            leases, keys = Leases(redis), [fresh("k") for _ in range(KEYS)]
            await leases.grant([Lease(key, "l", 60.0) for key in keys])
            await leases.data_lost()
            victim = nodes.servers[0]
            with victim.client() as client:
                client.wait(1, 5000)
            victim.kill()
            with pytest.raises(RedisUnavailable):
                await leases.held(keys)
            assert all(await once_there(lambda: leases.held(keys)))
            assert await leases.data_lost()
            assert not await leases.data_lost()


async def test_slots_without_a_node_are_no_word_about_their_keys(tmp_path: Path) -> None:
    """An effect that can't be looked for is not one that isn't there."""
    with cluster(tmp_path, replicas=0) as nodes:
        async with at(nodes.url) as redis:
            effects, keys = EffectStore(redis, 60.0), [("job", fresh("k")) for _ in range(KEYS)]
            await effects.put([EffectEntry(*key, "n", b"{}") for key in keys])
            nodes.servers[2].kill()
            async with asyncio.timeout(PATIENCE_S):
                while nodes.healthy(nodes.servers[2:]):  # noqa: ASYNC110  until the others say that slots are missing
                    await asyncio.sleep(0.05)
            there = [
                key
                for key in keys
                if nodes.owner(key_slot(f"aetheris:effect:job:{key[1]}".encode())) is nodes.servers[0]
            ]
            with pytest.raises(RedisUnavailable):
                await effects.find(there)


def let_in(one: Server, user: str, word: str) -> None:
    """A service's user, with the rights that deploy/valkey_users.py gives it."""
    rules = [*str(USERS["EVERYBODY"]).split(), *str(USERS["RULES"][user]).split()]
    one.ask("ACL", "SETUSER", user, "on", f">{word}", "resetkeys", *rules)


async def test_a_service_has_its_rights_in_a_cluster(nodes: ValkeyCluster) -> None:
    for one in nodes.servers:
        let_in(one, "ledger", "w/rd")
    hosts = nodes.url.removeprefix("redis+cluster://")
    async with at(f"redis+cluster://ledger:w%2Frd@{hosts}") as redis, at(f"redis+cluster://ledger:no@{hosts}") as wrong:
        leases, keys = Leases(redis), [fresh("k") for _ in range(KEYS)]
        await check_store(redis)
        await leases.grant([Lease(key, "l", 60.0) for key in keys])
        await leases.data_lost()
        assert all(await leases.held(keys))
        await heard(redis, "aetheris:bell:x")
        with pytest.raises(RedisUnavailable):
            await redis.pipeline([("SET", "another's", "x")])
        with pytest.raises(RedisUnavailable):
            await Leases(wrong).held(keys)
    logged = [{str(one["object"]) for one in node.ask("ACL LOG")} for node in nodes.servers]
    assert set().union(*logged) == {"another's", "AUTH"}  # nothing else was refused


async def test_sentinels_and_servers_ask_for_passwords_of_their_own(group: Replicated) -> None:
    for one in group.servers:
        let_in(one, "ledger", "theirs")
    for one in group.sentinels:
        one.ask("ACL", "SETUSER", "watcher", "on", ">of-sentinels", "resetchannels", "-@all", "+sentinel|masters")
        one.ask("ACL", "SETUSER", "default", "resetpass", ">nobody-knows")
    hosts = group.url.removeprefix("redis+sentinel://")
    known = "sentinel_username=watcher&sentinel_password=of-sentinels"
    async with at(f"redis+sentinel://ledger:theirs@{hosts}?{known}") as redis:
        await Leases(redis).grant([Lease(fresh("k"), "l", 60.0)])
    async with at(f"redis+sentinel://ledger:theirs@{hosts}") as nobody:
        with pytest.raises(RedisUnavailable, match="NoMaster"):
            await nobody.ping()
    async with at(f"redis+sentinel://ledger:wrong@{hosts}?{known}") as wrong:
        with pytest.raises(RedisUnavailable, match="ReplyError"):
            await wrong.ping()
