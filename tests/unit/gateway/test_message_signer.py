"""Commands that come at the same time are signed under one signature, and none of them is another's harm."""

import asyncio
from datetime import timedelta
from pathlib import Path

from aetheris.gateway.core.problems import Unavailable
from aetheris.gateway.message_signer import MessageSigner
from aetheris.protocol.base.records import Draft
from aetheris.protocol.base.signing import read_signed
from aetheris.protocol.base.topics import Topic
from aetheris.protocol.base.writers import Party
from aetheris.protocol.messages.commands import Cancel
from aetheris.protocol.messages.envelope import draft
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.keys.files import load_service_key, make_installation
from aetheris.runtime.keys.records import UNSIGNED, RecordKeys, RecordSigner
from aetheris.runtime.keys.signing import Signer


def keys_of(folder: Path, *, for_s: float = 3600) -> RecordKeys:
    now = SystemClock().now()
    root = make_installation(folder, [Party.GATEWAY], now - timedelta(hours=2), now + timedelta(seconds=for_s))
    held = load_service_key(folder, Party.GATEWAY)
    signer = Signer(held.private_key, held.certificate)
    return RecordKeys(frozenset({root}), RecordSigner({Party.GATEWAY: signer}, SystemClock()))


def cancel(number: int) -> Draft:
    body = Cancel(job_id=f"job-{number}", by="ann", tenant="t")
    return draft(Topic.JOBS_COMMANDS, body, key=body.job_id, id=str(number), source="s", time="t")


def signature_of(record: Draft) -> bytes:
    found = read_signed(record.value)
    assert found is not None
    return found[1].value


async def test_what_comes_in_one_turn_has_one_signature_and_each_its_own_record(tmp_path: Path) -> None:
    keys = keys_of(tmp_path)
    signer = MessageSigner(keys)
    said = [cancel(number) for number in range(4)]
    made = await asyncio.gather(*map(signer.signed, said))
    assert [one.key for one in made] == [one.key for one in said]
    assert len(set(map(signature_of, made))) == 1
    assert all(keys.messages.counts(one.topic, "cancel", one.key, one.value) for one in made)
    later = await signer.signed(cancel(5))
    assert signature_of(later) not in set(map(signature_of, made))


async def test_who_gives_up_takes_no_other_with_him(tmp_path: Path) -> None:
    signer = MessageSigner(keys_of(tmp_path))
    first, second = (asyncio.create_task(signer.signed(cancel(number))) for number in (1, 2))
    await asyncio.sleep(0)  # both wait now
    first.cancel()
    assert (await second).key == b"job-2"
    assert first.cancelled() or first.cancelling()


async def test_what_cannot_be_signed_is_told_to_who_said_it_alone(tmp_path: Path) -> None:
    signer = MessageSigner(keys_of(tmp_path))
    no_text = cancel(1).replaced(key=b"\xff")
    bad, good = await asyncio.gather(signer.signed(no_text), signer.signed(cancel(2)), return_exceptions=True)
    assert isinstance(bad, UnicodeDecodeError)
    assert isinstance(good, Draft)


async def test_with_a_certificate_that_has_ended_nobody_can_say_anything(tmp_path: Path) -> None:
    signer = MessageSigner(keys_of(tmp_path, for_s=-60))
    answers = await asyncio.gather(signer.signed(cancel(1)), signer.signed(cancel(2)), return_exceptions=True)
    assert all(isinstance(one, Unavailable) and one.code == "certificate_ended" for one in answers)


async def test_without_a_key_a_command_stays_as_it_is() -> None:
    assert await MessageSigner(UNSIGNED).signed(cancel(1)) == cancel(1)
