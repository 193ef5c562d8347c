"""What stands before an installation's names: which prefixes there are, what they make of names, whose a folder is."""

import itertools
from pathlib import Path

import pytest
from aiokafka.protocol.produce import ProduceResponse_v7

from aetheris.protocol.base.topics import Topic, dead_letters
from aetheris.runtime.base import prefix
from aetheris.runtime.base.prefix import MOST_CHARACTERS, in_bucket, in_kafka, in_redis
from aetheris.runtime.base.refusal import SettingInvalid
from aetheris.runtime.kafka import wire
from aetheris.runtime.kafka.topics import topic_specs
from aetheris.runtime.process.installation import InstallationMixed, claim
from aetheris.runtime.process.settings import RuntimeSettings, load

KAFKAS_LONGEST = 249
NAMES = [*map(str, Topic), *(dead_letters(topic) for topic in Topic)]
GOOD = ("a", "acme", "acme.eu", "acme-2", "ACME_x", "0", "a" * MOST_CHARACTERS)
BAD = ("acme.", ".acme", "-a", "a b", "a:b", "a/b", "a*", "aetheris", "x.aetheris", "aetheris.x", "ü", "a\n", "a" * 101)


def test_no_installations_topic_is_anothers_nor_below_its_prefix() -> None:
    for one, other in itertools.permutations(("", *GOOD), 2):
        theirs = {in_kafka(other) + name for name in NAMES}
        assert not theirs & {in_kafka(one) + name for name in NAMES}
        assert not [name for name in theirs if name.startswith(in_kafka(one) + "aetheris.")]
    assert max(len(in_kafka(good) + name) for good in GOOD for name in NAMES) <= KAFKAS_LONGEST


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_prefix_is_refused_by_the_settings_name(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_PREFIX", bad)
    with pytest.raises(SettingInvalid, match="AETHERIS_PREFIX: not_a_prefix"):
        load(RuntimeSettings)
    for make in (in_kafka, in_redis):
        with pytest.raises(ValueError, match="letters, digits"):
            make(bad)


def test_without_a_prefix_names_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AETHERIS_PREFIX", "")
    assert load(RuntimeSettings).prefix == ""
    assert (in_kafka(""), in_redis(""), in_bucket("x", ""), in_bucket("", "")) == ("", "", "x", "")
    assert [in_bucket(one, "acme") for one in ("", "x")] == ["installations/acme", "x/installations/acme"]
    assert [spec.name for spec in topic_specs(4)] == NAMES
    assert [spec.name for spec in topic_specs(4, "acme")] == [f"acme.{name}" for name in NAMES]
    assert prefix.check_prefix("") == ""


def test_requests_have_the_prefix_and_answers_lose_it() -> None:
    assert b"acme.aetheris.jobs.events.v1" in wire.produce({(Topic.JOBS_EVENTS, 0): b"batch"}, 1, "acme.")
    answer = ProduceResponse_v7([("acme.t", [(0, 0, 5, -1, 0)])], 0).encode()
    assert wire.produced(answer, "acme.") == {("t", 0): wire.Produced(0, first=5)}
    with pytest.raises(wire.Malformed):
        wire.produced(answer, "other.")


def test_a_folder_is_the_installations_that_came_first(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for _ in range(2):
        claim(folder, "acme")
    for other in ("", "other"):
        with pytest.raises(InstallationMixed, match=r"AETHERIS_PREFIX.*installation acme"):
            claim(folder, other)
    claim(tmp_path / "plain", "")
    with pytest.raises(InstallationMixed, match="without a prefix"):
        claim(tmp_path / "plain", "acme")


def test_a_folder_that_takes_no_file_keeps_nobody_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    claim(tmp_path / "file", "acme")
