"""The file that says what starts jobs, and what is said of one that can't be used."""

from pathlib import Path

import pytest

from aetheris.protocol.base.faults import FileFault
from aetheris.scheduler.core.starts_file import parsed
from aetheris.scheduler.loaded_starts import StartsUnusable, load

NIGHTLY = '[[schedules]]\nname = "nightly"\ncron = "30 2 * * *"\nplan = "p.json"\n'
ORDERS = '[[topics]]\nname = "orders"\ntopic = "shop.orders"\nplan = "p.json"\n'


@pytest.mark.parametrize(
    ("text", "line", "wording"),
    [
        ("", None, "starts nothing"),
        (f"{NIGHTLY}{NIGHTLY}", 6, "schedule 'nightly': name: stands twice"),
        (NIGHTLY.replace("30 2", "30 25"), 3, "schedule 'nightly': cron: Bad hour"),
        (NIGHTLY.replace("30 2 * * *", "30 2 * *"), 3, "cron: five fields"),
        (NIGHTLY.replace("30 2", "0 30 2"), 3, "cron: five fields"),
        (NIGHTLY.replace("* * *", "31 2 *"), 3, "cron: "),
        (f"{NIGHTLY}within_s = 1\n", 5, "within_s: "),
        (f"{NIGHTLY}since = 2026-01-01T00:00:00\n", 5, "since: "),
        (f'{NIGHTLY}catchup = "all"\n', 5, "catchup: there is no such key; did you mean catch_up?"),
        (f'{ORDERS}once_per = "day"\n', 5, "once_per: "),
        (ORDERS.replace("shop.orders", "aetheris.jobs.events.v1"), 3, "topic: is one of Aetheris' own"),
        (f"schedule = 1\n{NIGHTLY}", 1, "schedule: there is no such key; did you mean schedules?"),
        ("[[schedules]\n", 1, "is not TOML"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_by_line_and_field(text: str, line: int | None, wording: str) -> None:
    with pytest.raises(FileFault) as refused:
        parsed(text)
    assert wording in str(refused.value)
    if line is not None and refused.value.line is not None:
        assert refused.value.line == line


@pytest.mark.parametrize(
    ("plan", "more", "wording"),
    [
        (None, "", "p.json"),
        ("{", "", "is no JSON"),
        ("[]", "", "is no plan"),
        ("{}", 'timezone = "Europe/Wien"\n', "timezone"),
        ("{}", 'timezone = "../../etc/passwd"\n', "timezone"),
    ],
)
def test_what_it_names_must_be_there(tmp_path: Path, plan: str | None, more: str, wording: str) -> None:
    if plan is not None:
        (tmp_path / "p.json").write_text(plan)
    (tmp_path / "starts.toml").write_text(f"{NIGHTLY}{more}")
    with pytest.raises(StartsUnusable, match=wording):
        load(tmp_path / "starts.toml")


@pytest.mark.parametrize(
    ("key", "wording"),
    [(None, "k: No such file"), ("short", "holds no key of at least 24 bytes"), ("\udcff", "no key")],
)
def test_a_webhook_has_a_key(tmp_path: Path, key: str | None, wording: str) -> None:
    if key is not None:
        (tmp_path / "k").write_bytes(key.encode(errors="surrogateescape"))
    (tmp_path / "p.json").write_text("{}")
    (tmp_path / "starts.toml").write_text('[[webhooks]]\nname = "stripe"\nsecret = "k"\nplan = "p.json"\n')
    with pytest.raises(StartsUnusable, match=f"'stripe': secret: .*{wording}"):
        load(tmp_path / "starts.toml")
