"""The routing file: which route decides, and what is said of a file that can't be used."""

import pytest

from aetheris.notifier.core.notice_routes import AmountBound, NoticeRoutes, at, parsed, tool_of
from aetheris.protocol.base.faults import FileFault

ROOM = '[[channels]]\nname = "room"\nkind = "slack"\nsecret = "room@1"\n'
FINANCE = """[[channels]]
name = "finance"
kind = "mail"
to = ["finance@example.org"]
from = "aetheris@example.org"
server = "smtp.example.org:587"
"""
ALL = '[[routes]]\nname = "all"\ntell = ["room"]\n'


def routes(text: str) -> NoticeRoutes:
    return parsed(f"{ROOM}{FINANCE}{text}")


def test_the_first_route_that_is_about_it_decides() -> None:
    found = routes(
        '[[routes]]\nname = "large"\nkinds = ["approval"]\ntenants = ["acme*"]\ntools = ["payout*"]\n'
        'amount = {at = "/amount", at_least = 1000}\ntell = ["finance"]\n' + ALL
    )

    def decides(
        kind: str = "approval", tenant: str = "acme", tool: str | None = "payout", amount: object = 1000
    ) -> str:
        route = found.route(kind, tenant, tool, {"amount": amount})  # pyright: ignore[reportArgumentType]
        assert route is not None
        return route.name

    assert decides() == "large"
    assert decides(kind="form") == "all"
    assert decides(tenant="other") == "all"
    assert decides(tool="refund") == "all"
    assert decides(tool=None) == "all"
    assert decides(amount=999.99) == "all"


@pytest.mark.parametrize("amount", ["1000", True, None, {"$hidden": {"c": "0", "d": "0", "k": "0"}}, [1000]])
def test_what_is_no_number_is_within_no_bound(amount: object) -> None:
    assert not AmountBound(at="/amount", at_least=0).holds(amount)


def test_nobody_is_told_what_no_route_is_about() -> None:
    assert (
        routes('[[routes]]\nname = "one"\ntenants = ["acme"]\ntell = ["room"]\n').route("form", "b", None, {}) is None
    )


def test_a_pointer_leads_as_rfc_6901_has_it() -> None:
    value = {"a/b": [{"~": 7}], "": 1}
    assert at(value, "/a~1b/0/~0") == 7
    assert at(value, "/a~1b/1") is None
    assert at(value, "/a~1b/99999999999999999999") is None
    assert at(7, "/a") is None


def test_escalations_are_named_each_once_whatever_the_route() -> None:
    later = "escalate = [{after_s = 60, tell = ['room']}, {after_s = 120, tell = ['room', 'finance']}]\n"
    found = routes(f'{ALL}{later}[[routes]]\nname = "b"\ntell = []\n{later}')
    assert list(found.escalations()) == [(1, "room"), (2, "finance"), (2, "room")]


def test_a_webhook_is_told_by_what_its_receiver_promises() -> None:
    hook = '[[channels]]\nname = "{}"\nkind = "webhook"\nurl = "https://example.org"\nsecret = "h@1"\n'
    found = routes(f"{hook.format('a')}{hook.format('b')}deduplicates = true\n{ALL}").channels
    assert (tool_of(found["a"]), tool_of(found["b"])) == ("notify.webhook", "notify.webhook.deduplicated")


@pytest.mark.parametrize(
    ("text", "line", "wording"),
    [
        ("routes = 1\n[[channels]\n", 2, "is not TOML"),
        (f"{ROOM}{ALL}colour = 1\n", 8, "route 'all': colour: there is no such key"),
        (f'{ROOM}{ALL}tenant = ["a"]\n', 8, "route 'all': tenant: there is no such key"),
        (f'{ROOM}[[routes]]\nname = "a"\ntell = ["rom"]\n', 7, "route 'a': tell: 'rom': there is no such channel"),
        (f"{ROOM}{ALL}{ALL}", 9, "route 'all': name: stands twice"),
        (f"{ROOM}{ROOM}{ALL}", 6, "channel 'room': name: stands twice"),
        (f'{ROOM}{ALL}kinds = ["approvals"]\n', 8, "route 'all': kinds.0: "),
        (f'{ROOM}{ALL}amount = {{at = "/a"}}\n', 8, "amount: "),
        (
            f"{ROOM}{ALL}escalate = [{{after_s = 2, tell = ['room']}}, {{after_s = 1, tell = ['room']}}]\n",
            8,
            "escalate",
        ),
        (f"{ROOM}{ALL}escalate = [{{after_s = 0, tell = ['room']}}]\n", 8, "escalate.0.after_s: "),
        (f'[[channels]]\nname = "a"\nkind = "fax"\n{ALL}', 3, "channel 'a': kind: is one of mail"),
        (f'[[channels]]\nname = "a"\n{ALL}', 1, "channel 'a': kind: is one of mail"),
        (f'[[channels]]\nname = "a"\nkind = "slack"\n{ALL}', 1, "channel 'a': secret: is missing"),
        (f'[[channels]]\nname = "a"\nkind = "ntfy"\nurl = "ftp://x"\ntopic = "t"\n{ALL}', 4, "channel 'a': url: "),
        (f'{FINANCE}user = "u"\n{ALL}', 7, "channel 'finance': user: goes with secret"),
        (f'[[channels]]\nname = "a\\nb"\nkind = "slack"\nsecret = "r@1"\n{ALL}', 2, "name: "),
        (f"chanels = []\n{ROOM}{ALL}", 1, "chanels: there is no such key; did you mean channels?"),
        (ROOM, None, "routes: there is no [[routes]]"),
        (f"{'a.' * 5000}b = 1", None, ""),
        (f"x = {'[' * 20000}", None, ""),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_by_line_and_field(text: str, line: int | None, wording: str) -> None:
    with pytest.raises(FileFault) as refused:
        parsed(text)
    assert wording in str(refused.value)
    if line is not None:
        assert refused.value.line == line


def test_a_secret_in_the_file_is_not_quoted_by_its_refusal() -> None:
    with pytest.raises(FileFault) as refused:
        parsed(f'[[channels]]\nname = "a"\nkind = "slack"\nsecret = "https://hooks.example.org/T0/B0/key"\n{ALL}')
    assert "hooks" not in str(refused.value)
