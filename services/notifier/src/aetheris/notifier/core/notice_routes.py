"""The routing file: channels, and which of them is told what (docs/notices.md)."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from aetheris.protocol.base.faults import FileFault, first_fault, no_such_key, toml_document, toml_key_line, toml_line

MAX_BYTES = 256 * 1024
MAX_STEPS = 10
"""Of the escalation of one route."""

NoticeKind = Literal["approval", "form", "parked", "confirmation", "stuck"]
PREFIX = "notify."
"""Of the tools that tell; about their calls nobody is told anything."""
KINDS: tuple[NoticeKind, ...] = ("approval", "form", "parked", "confirmation", "stuck")

_ARRAYS = ("channels", "routes")
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Pointer = Annotated[str, StringConstraints(pattern=r"^/", max_length=200)]
_SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}@[A-Za-z0-9_.-]{1,64}$")]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$", max_length=2000)]
_Address = Annotated[str, StringConstraints(pattern=r"^[^\s@<>,]+@[^\s@<>,]+$", max_length=254)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class _Channel(_Entry):
    name: _Name
    secret: _SecretName | None = None
    """What the tool is given beside what stands here, as the executors' file of secrets calls it."""

    @property
    def secrets(self) -> Mapping[str, str]:
        """The tool's arguments that are secrets, and what those are called."""
        return {} if self.secret is None else {"secret": self.secret}


class MailChannel(_Channel):
    """A mail to these addresses; `secret` is the password of `user`."""

    kind: Literal["mail"]
    to: tuple[_Address, ...] = Field(min_length=1, max_length=50)
    sender: _Address = Field(alias="from")
    server: Annotated[str, StringConstraints(pattern=r"^[^\s:/]+:\d{1,5}$")]
    user: str | None = None
    starttls: bool = False

    @model_validator(mode="after")
    def _logs_in(self) -> "MailChannel":
        if (self.user is None) is not (self.secret is None):
            raise ValueError("user: goes with secret, which names its password")
        return self


class _HttpChannel(_Channel):
    private: bool = False
    """Whether the address may be one that is not public."""


class WebhookChannel(_HttpChannel):
    """A POST of JSON, signed with `secret` as Standard Webhooks has it."""

    kind: Literal["webhook"]
    url: _Url
    deduplicates: bool = False
    """The receiver drops a second request of one webhook-id: then, and only then, what is in doubt is sent again."""

    @model_validator(mode="after")
    def _signs(self) -> "WebhookChannel":
        if self.secret is None:
            raise ValueError("secret: is missing; it names the key that signs")
        return self


class SlackChannel(_HttpChannel):
    """A message as incoming webhooks of Slack and its like take it; `secret` is their URL."""

    kind: Literal["slack"]

    @model_validator(mode="after")
    def _has_url(self) -> "SlackChannel":
        if self.secret is None:
            raise ValueError("secret: is missing; it names the webhook's URL")
        return self


class NtfyChannel(_HttpChannel):
    """A message to a topic of an ntfy server; `secret` is an access token of it."""

    kind: Literal["ntfy"]
    url: _Url
    topic: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    priority: int = Field(default=3, ge=1, le=5)


class PushChannel(_HttpChannel):
    """Web Push to one browser; `secret` is the VAPID key (PEM), `subscription` what the browser gave, as JSON."""

    kind: Literal["push"]
    subscription: _SecretName
    contact: Annotated[str, StringConstraints(pattern=r"^(mailto:|https://)\S+$", max_length=254)]
    ttl_s: int = Field(default=86400, ge=0, le=28 * 86400)

    @property
    def secrets(self) -> Mapping[str, str]:
        """The key, and whom it reaches."""
        return {**super().secrets, "subscription": self.subscription}

    @model_validator(mode="after")
    def _signs(self) -> "PushChannel":
        if self.secret is None:
            raise ValueError("secret: is missing; it names the key that says who pushes")
        return self


Channel = Annotated[
    MailChannel | WebhookChannel | SlackChannel | NtfyChannel | PushChannel, Field(discriminator="kind")
]
_CHANNEL: TypeAdapter[Channel] = TypeAdapter(Channel)


class AmountBound(_Entry):
    """An argument, by JSON Pointer, and what it must come to; one that is no number, or hidden, is within no bound."""

    at: _Pointer
    at_least: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _bounds(self) -> "AmountBound":
        if self.at_least is None and self.below is None:
            raise ValueError("at: without at_least or below it bounds nothing")
        return self

    def holds(self, value: Any) -> bool:
        """Whether the value is a number within."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.at_least is None or value >= self.at_least) and (self.below is None or value < self.below)


class Escalation(_Entry):
    """Who is told as well when nobody has answered for so long."""

    after_s: float = Field(gt=0, le=366 * 86400)
    tell: tuple[_Name, ...] = Field(min_length=1, max_length=20)


class NoticeRoute(_Entry):
    """What it is about, and who is told; what is left out doesn't matter."""

    name: str = Field(min_length=1, max_length=200)
    kinds: tuple[NoticeKind, ...] = KINDS
    tenants: tuple[_Pattern, ...] = ("*",)
    tools: tuple[_Pattern, ...] | None = None
    amount: AmountBound | None = None
    tell: tuple[_Name, ...] = Field(max_length=20)
    show: tuple[_Pointer, ...] = Field(default=(), max_length=20)
    """Arguments, by JSON Pointer, that stand in the text."""
    escalate: tuple[Escalation, ...] = Field(default=(), max_length=MAX_STEPS)

    @model_validator(mode="after")
    def _later_and_later(self) -> "NoticeRoute":
        steps = [one.after_s for one in self.escalate]
        if steps != sorted(set(steps)):
            raise ValueError("escalate: each step comes after the one before it")
        return self

    def is_about(self, kind: NoticeKind, tenant: str, tool: str | None, arguments: Any) -> bool:
        """Whether it says who is told."""
        return (
            kind in self.kinds
            and _any(self.tenants, tenant)
            and (self.tools is None or (tool is not None and _any(self.tools, tool)))
            and (self.amount is None or self.amount.holds(at(arguments, self.amount.at)))
        )


class NoticeRoutes(_Entry):
    """The file: the first route that is about something decides."""

    channels: Mapping[str, Channel]
    routes: tuple[NoticeRoute, ...]

    def route(self, kind: NoticeKind, tenant: str, tool: str | None, arguments: Any) -> NoticeRoute | None:
        """Who is told; None: nobody."""
        return next((one for one in self.routes if one.is_about(kind, tenant, tool, arguments)), None)

    def escalations(self) -> Iterator[tuple[int, str]]:
        """(step, channel) of all that anybody might be told later, each once."""
        found = {
            (step, channel)
            for route in self.routes
            for step, one in enumerate(route.escalate, 1)
            for channel in one.tell
        }
        yield from sorted(found)


def parsed(text: str) -> NoticeRoutes:
    """The routing file from TOML: `[[channels]]` and `[[routes]]`.

    Raises:
        FileFault: naming the entry and the field.
    """
    document = toml_document(text, _ARRAYS, MAX_BYTES)
    channels = [_channel(text, place, one) for place, one in enumerate(_entries(text, document, "channels"))]
    routes = [_route(text, place, one) for place, one in enumerate(_entries(text, document, "routes"))]
    for array, named in (("channels", channels), ("routes", routes)):
        names = [one.name for one in named]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise _fault(text, array, place, name=name, field="name", wording="stands twice")
    known = {one.name: one for one in channels}
    for place, route in enumerate(routes):
        for field, told in (("tell", route.tell), *(("escalate", one.tell) for one in route.escalate)):
            for name in told:
                if name not in known:
                    wording = f"{no_such_key(name, known)}".replace("key", "channel", 1)
                    raise _fault(text, "routes", place, name=route.name, field=field, wording=f"{name!r}: {wording}")
    return NoticeRoutes(channels=known, routes=tuple(routes))


def tool_of(channel: Channel) -> str:
    """The tool that tells it; of two for webhooks, by what the receiver promises."""
    if isinstance(channel, WebhookChannel) and channel.deduplicates:
        return f"{PREFIX}webhook.deduplicated"
    return f"{PREFIX}{channel.kind}"


def at(value: Any, pointer: str) -> Any:
    """What a JSON Pointer leads to; None where it leads nowhere."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name)
        elif isinstance(value, list) and name.isdecimal() and len(name) < 7:
            items = cast("list[Any]", value)
            value = items[int(name)] if int(name) < len(items) else None
        else:
            return None
    return value


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _entries(text: str, document: Mapping[str, Any], array: str) -> list[Any]:
    entries = document.get(array)
    if not isinstance(entries, list) or not entries:
        raise FileFault(f"{array}: there is no [[{array}]]", toml_key_line(text, array))
    return cast("list[Any]", entries)


def _channel(text: str, place: int, entry: Any) -> Channel:
    try:
        return _CHANNEL.validate_python(entry)
    except ValidationError as error:
        raise _faulty(text, "channels", place, entry, error) from None


def _route(text: str, place: int, entry: Any) -> NoticeRoute:
    try:
        return NoticeRoute.model_validate(entry)
    except ValidationError as error:
        raise _faulty(text, "routes", place, entry, error) from None


def _faulty(text: str, array: str, place: int, entry: Any, error: ValidationError) -> FileFault:
    where, wording = first_fault(error)
    if array == "channels" and where and where[0] in ("mail", "webhook", "slack", "ntfy", "push"):
        where = where[1:]  # pydantic puts the kind before the field
    if error.errors(include_input=False)[0]["type"].startswith("union_tag"):
        where, wording = ("kind",), "is one of mail, webhook, slack, ntfy, push"
    field = ".".join(map(str, where)) or wording.partition(":")[0]
    name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
    named = wording.removeprefix(f"{field}: ")
    return _fault(text, array, place, name=name or place + 1, field=field, wording=named)


def _fault(text: str, array: str, place: int, *, name: object, field: str, wording: str) -> FileFault:
    line = toml_line(text, array, place, field.partition(".")[0])
    return FileFault(f"{array.removesuffix('s')} {name!r}: {field}: {wording}", line)
