"""The events in a FastStream application, in its own test broker."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka.abc import AbstractTokenProvider
from faststream.kafka import KafkaBroker, TestKafkaBroker

from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.messages.envelope import draft
from aetheris.protocol.messages.events import Event, JobCancelled, JobCompleted
from aetheris.runtime.kafka import bootstrap
from aetheris.runtime.kafka.bootstrap import LoginUnusable
from aetheris.sdk.faststream import broker_at, job_events, kafka_broker
from aetheris.sdk.received import Received

WORD = "word"


def fact(event: Event, number: int = 1) -> Draft:
    time = "2026-01-01T00:00:00Z"
    return draft(Topic.JOBS_EVENTS, event, key=event.job_id, id=f"e-{number}", source="test", time=time)


async def publish(broker: KafkaBroker, one: Draft) -> None:
    headers = {name: value.decode() for name, value in one.headers}
    await broker.publish(one.value, one.topic, key=one.key, headers=headers)


async def test_handlers_get_typed_facts_of_the_types_that_they_ask_for() -> None:
    broker, found = KafkaBroker(), list[Received]()
    subscriber = job_events(broker, "billing", types={"job_completed"})

    @subscriber
    async def completed(fact: Received) -> None:
        found.append(fact)

    async with TestKafkaBroker(broker):
        await publish(broker, fact(JobCancelled(job_id="j-1", by="ada")))
        await publish(broker, fact(JobCompleted(job_id="j-2", result={"n": 1}), 7))
    (one,) = found
    assert (one.id, one.type, one.job_id) == ("e-7", "job_completed", "j-2")
    assert one.event == JobCompleted(job_id="j-2", result={"n": 1})


async def test_what_can_not_be_read_comes_as_it_is() -> None:
    broker, found = KafkaBroker(), list[Received]()

    @job_events(broker, "all")
    async def anything(fact: Received) -> None:
        found.append(fact)

    async with TestKafkaBroker(broker):
        await publish(broker, Draft(Topic.JOBS_EVENTS, b"j-1", b"{", (("ce_type", b"io.aetheris.odd.v1"),)))
    assert [(one.event, one.type, one.value) for one in found] == [(None, "odd", b"{")]


async def test_a_handler_that_raises_is_not_hidden_by_the_test_broker() -> None:
    broker = KafkaBroker()

    @job_events(broker, "all")
    async def fails(_fact: Received) -> None:
        raise RuntimeError("not today")

    async with TestKafkaBroker(broker):
        with pytest.raises(RuntimeError, match="not today"):
            await publish(broker, fact(JobCompleted(job_id="j-1")))


def test_no_topic_is_made_and_the_group_is_never_a_services() -> None:
    subscriber = job_events(KafkaBroker(), "billing")
    assert [(topic.name, topic.declare) for topic in subscriber.topics] == [(str(Topic.JOBS_EVENTS), False)]
    assert subscriber.group_id == "aetheris.subscriber.billing"


def test_several_servers_are_several() -> None:
    made = kafka_broker("a:1,b:2", user="aetheris", password=WORD)
    assert made.config.broker_config.builder.keywords["bootstrap_servers"] == ["a:1", "b:2"]  # pyright: ignore


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_broker_is_told_by_which_mechanism_one_logs_in(mechanism: str) -> None:
    made = kafka_broker("a:1", user="aetheris", password=WORD, mechanism=mechanism)
    assert made.config.broker_config.builder.keywords["sasl_mechanism"] == mechanism  # pyright: ignore


def test_an_address_says_how_one_logs_in(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(f"ann:{WORD}")
    asked = broker_at(f"a:1?login={login}&mechanism=SCRAM-SHA-512").config.broker_config.builder.keywords  # pyright: ignore
    assert (asked["sasl_mechanism"], asked["sasl_plain_username"]) == ("SCRAM-SHA-512", "ann")
    with pytest.raises(LoginUnusable, match="no package"):
        broker_at("a:1?tokens=missing")


def test_tokens_are_asked_of_the_provider_that_an_address_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]  it has no type there
            return WORD

    monkeypatch.setattr(bootstrap, "entry_points", lambda **_named: [SimpleNamespace(load=lambda: Tokens)])
    asked = broker_at("a:1?tokens=cloud").config.broker_config.builder.keywords  # pyright: ignore
    assert (asked["security_protocol"], asked["sasl_mechanism"]) == ("SASL_PLAINTEXT", "OAUTHBEARER")
    assert asyncio.run(asked["sasl_oauth_token_provider"].token()) == WORD
