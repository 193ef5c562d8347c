"""What a Redis URL says; what is wrong with one is tested where it is refused (test_streams_redis)."""

import pytest

from aetheris.runtime.redis.location import Address, RedisKind, RedisLocation, RedisLogin, RedisTls, redis_at

TLS = "ssl_ca_certs=/ca&ssl_certfile=/cert&ssl_keyfile=/key"
FILES = RedisTls("/ca", "/cert", "/key")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://localhost", RedisLocation(RedisKind.SERVER, (Address("localhost", 6379),))),
        (
            "redis://ann:p%40ss@valkey:7000/3",
            RedisLocation(RedisKind.SERVER, (Address("valkey", 7000),), None, RedisLogin("ann", "p@ss"), 3),
        ),
        (
            f"rediss://:pass@valkey/0?{TLS}",
            RedisLocation(RedisKind.SERVER, (Address("valkey", 6379),), None, RedisLogin(None, "pass"), 0, FILES),
        ),
        (
            "unix://ann:pass@/run/valkey.sock?db=2",
            RedisLocation(RedisKind.SERVER, (), "/run/valkey.sock", RedisLogin("ann", "pass"), 2),
        ),
        (
            "redis+sentinel://s0,s1:7,[::1]:8/shop",
            RedisLocation(
                RedisKind.SENTINEL, (Address("s0", 26379), Address("s1", 7), Address("::1", 8)), master="shop"
            ),
        ),
        (
            f"rediss+sentinel://ann:p,q@s0/shop/1?sentinel_username=sen&sentinel_password=tinel&{TLS}",
            RedisLocation(
                RedisKind.SENTINEL,
                (Address("s0", 26379),),
                None,
                RedisLogin("ann", "p,q"),
                1,
                FILES,
                "shop",
                RedisLogin("sen", "tinel"),
            ),
        ),
        (
            "rediss+cluster://ann:pass@n0,n1:7001",
            RedisLocation(
                RedisKind.CLUSTER,
                (Address("n0", 6379), Address("n1", 7001)),
                None,
                RedisLogin("ann", "pass"),
                0,
                RedisTls(),
            ),
        ),
    ],
)
def test_a_url_says_where_redis_is(url: str, said: RedisLocation) -> None:
    assert redis_at(url) == said


def test_no_password_is_shown() -> None:
    shown = repr(redis_at("rediss+sentinel://ann:s3cret@s0/shop?sentinel_password=s3cret"))
    assert "s3cret" not in shown
