"""What this process can call: the toolbox, models, and the kinds time and random."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from aetheris.protocol.base.hidden_values import put_at
from aetheris.protocol.base.references import UnresolvedReference, point, with_secrets
from aetheris.protocol.messages.commands import ModelEntry, RegistryEntry
from aetheris.protocol.messages.event_values import Outcome
from aetheris.protocol.plan.graph import JOB_TOOLS, LOCAL_TOOLS, DuplicateScope, EffectKind, Kind, ToolPin
from aetheris.protocol.planning.invocation import Invocation
from aetheris.protocol.planning.personal_fields import personal_fields
from aetheris.protocol.planning.schemas import pin_of
from aetheris.runtime.base.clock import Clock
from aetheris.sdk.context import ToolContext
from aetheris.sdk.invoke import invoke
from aetheris.sdk.isolation.tools import GivenSecrets
from aetheris.sdk.loader import Toolbox
from aetheris.sdk.outcomes import Outcome as Said
from aetheris.sdk.outcomes import Permanent, Retryable, Succeeded
from aetheris.sdk.schema import BadArguments
from aetheris.sdk.tool_output import ToolOutput
from aetheris.sdk.tools import AnyTool
from aetheris.tool_executor.core.reports import NOT_EXECUTED
from aetheris.tool_executor.core.tries import CallRefusal
from aetheris.tool_executor.secret_store import SecretRefused, Secrets, SecretUnreadable

if TYPE_CHECKING:
    from aetheris.tool_executor.model_caller import ModelCaller

_log = structlog.get_logger(__name__)

LONGEST_ERROR = 500  # characters
_MISSING = CallRefusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: tool version missing", is_missing=True)
_OTHERWISE = CallRefusal(
    Outcome.RETRYABLE,
    f"{NOT_EXECUTED}: the plan's pin makes less of the tool than it is (its class, what can't be undone, how long"
    " a call may settle, which calls are equal)",
)
_OF_BODIES = LOCAL_TOOLS | JOB_TOOLS
_SCOPES: Sequence[DuplicateScope] = ("job", "session", "tenant")
"""The widest last."""
_NO_MODEL = CallRefusal(
    Outcome.RETRYABLE, f"{NOT_EXECUTED}: no model is configured here (AETHERIS_MODELS)", is_missing=True
)


def report_tool_output(level: int, event: str, fields: Mapping[str, Any]) -> None:
    """A line of this process's log."""
    _log.log(level, event, **fields)


class Calls:
    """Makes the calls of nodes."""

    def __init__(
        self,
        toolbox: Toolbox,
        clock: Clock,
        secrets: Secrets,
        models: "ModelCaller | None" = None,
        output: ToolOutput | None = None,
        *,
        in_the_clear: bool = False,
    ) -> None:
        """`in_the_clear`: personal arguments may come as they are: of who records nothing, such as a test's system."""
        self._tools: dict[tuple[str, str], AnyTool] = {(tool.name, tool.version): tool for tool in toolbox}
        self._pins = {key: pin_of(_entry_of(tool)) for key, tool in self._tools.items()}
        self._personal = {
            key: frozenset(one.at for one in personal_fields(tool.schema) if not in_the_clear)
            for key, tool in self._tools.items()
        }
        self._clock = clock
        self._secrets = secrets
        self._models = models
        self._output = output if output is not None else ToolOutput(report_tool_output, lambda: secrets.redactor)

    def registry(self) -> Sequence[RegistryEntry | ModelEntry]:
        """What is registered of each tool, and of each model."""
        tools = [_entry_of(tool) for tool in self._tools.values()]
        return [*tools, *(self._models.registry() if self._models is not None else ())]

    def refuses(self, call: Invocation) -> CallRefusal | None:
        """Why the call can't be made here.

        Arguments without references were checked against the pinned schema when the plan was taken.
        """
        pin, name = call.entry.pin, call.entry.node.tool
        if pin is None or name is None:
            return self._refused_question(call) if call.entry.node.kind is Kind.LLM else None
        tool = self._pinned(name, pin)
        if tool is None:
            return _MISSING
        if _is_lowered(pin, self._pins[name, pin.version]):
            return _OTHERWISE
        personal = self._personal[name, pin.version]
        if personal or call.hidden:
            refused = _refused_hidden(call, personal)
            if refused is not None or call.hidden:
                return refused  # what was hidden has been checked before that
        node = call.entry.node
        if not node.args:
            return None
        if node.secrets:
            return self._refused_secrets(tool, call)
        return _refused_arguments(tool, call.args) if node.references else None

    def kind(self, call: Invocation) -> EffectKind:
        """What the call's effect is."""
        pin, name = call.entry.pin, call.entry.node.tool
        tool = self._pinned(name, pin) if pin is not None and name is not None else None
        return EffectKind(tool.kind if tool is not None else call.entry.node.kind)

    async def make(self, call: Invocation, ctx: ToolContext, opened: Mapping[str, Any] | None = None) -> Said:
        """One call, once; whatever it does, it ends as one of the outcomes.

        Args:
            opened: the call's hidden values in the clear, by their places; nothing that it says then goes into a log.
        """
        pin, name = call.entry.pin, call.entry.node.tool
        if pin is None or name is None:
            return await self._without_tool(call)
        tool = self._pinned(name, pin)
        if tool is None:
            return Retryable(_MISSING.error)
        if _is_lowered(pin, self._pins[name, pin.version]):
            return Retryable(_OTHERWISE.error)
        try:
            values = self._secrets.values_for(call) if call.args and call.entry.node.secrets else {}
        except SecretRefused as refused:
            return Permanent(str(refused))
        except SecretUnreadable as refused:
            return Retryable(f"{NOT_EXECUTED}: {refused}")
        args = with_secrets(call.args, values) if values else call.args
        for at, value in (opened or {}).items():
            args = put_at(args, at, value)
        with self._output.of(tool, ctx, silent=bool(opened)), GivenSecrets(values):
            return await invoke(tool, args, ctx, self._secrets.redactor, self._output.raised)

    def _refused_secrets(self, tool: AnyTool, call: Invocation) -> CallRefusal | None:
        try:
            return _refused_arguments(tool, self._secrets.reveal(call))
        except SecretRefused as refused:
            return CallRefusal(Outcome.PERMANENT, str(refused))
        except SecretUnreadable as refused:
            return CallRefusal(Outcome.RETRYABLE, f"{NOT_EXECUTED}: {refused}")

    def _pinned(self, name: str, pin: ToolPin) -> AnyTool | None:
        """The tool of exactly that version and schema."""
        tool = self._tools.get((name, pin.version))
        return tool if tool is not None and tool.schema_hash == pin.schema_hash else None

    async def _without_tool(self, call: Invocation) -> Said:
        kind = call.entry.node.kind
        if kind is not Kind.LLM:
            return Succeeded(self._time() if kind is Kind.TIME else _random())
        return await self._models.answer(call.args) if self._models is not None else Retryable(_NO_MODEL.error)

    def _refused_question(self, call: Invocation) -> CallRefusal | None:
        return self._models.refuses(call.args) if self._models is not None else _NO_MODEL

    def _time(self) -> dict[str, Any]:
        now = self._clock.now()
        return {"now": now.isoformat(timespec="milliseconds"), "unix_ms": int(now.timestamp() * 1000)}


def _random() -> dict[str, Any]:
    """A number in [0, 1) with 53 random bits, and 128 random bits as hex."""
    return {"value": secrets.randbits(53) / (1 << 53), "hex": secrets.token_hex(16)}


def _entry_of(tool: AnyTool) -> RegistryEntry:
    kind = "local" if tool.name in _OF_BODIES else "tool"
    return RegistryEntry.model_validate(tool.registry_entry() | {"kind": kind})


def _is_lowered(pin: ToolPin, own: ToolPin) -> bool:
    """Whether the plan makes less of a tool than it is: whoever wrote its line could have a call repeated."""
    return vars(pin) != vars(own) and (  # nearly every plan says just what the tool does
        pin.effect_class != own.effect_class
        or (own.irreversible and not pin.irreversible)
        or pin.settles_s < own.settles_s
        or set(pin.volatile) != set(own.volatile)
        or _SCOPES.index(pin.duplicate_scope) < _SCOPES.index(own.duplicate_scope)
        or pin.duplicate_window_s < own.duplicate_window_s
    )


def _refused_hidden(call: Invocation, personal: Collection[str]) -> CallRefusal | None:
    """Hidden values stand where the pinned schema says so, and nowhere else; and nothing stands there in the clear."""
    tool, hidden = call.entry.node.tool_name, {one.at for one in call.hidden}
    for at in sorted(hidden - set(personal)):
        return CallRefusal(Outcome.PERMANENT, f"a hidden value is not for {tool}#{at}"[:LONGEST_ERROR])
    for at in sorted(set(personal) - hidden):
        with suppress(UnresolvedReference):
            point(call.args, at, at)
            return CallRefusal(Outcome.PERMANENT, f"{tool}#{at} is personal, and is not hidden"[:LONGEST_ERROR])
    return None


def _refused_arguments(tool: AnyTool, args: Mapping[str, Any]) -> CallRefusal | None:
    try:
        tool.signature.bind(args)
    except BadArguments as refused:
        return CallRefusal(Outcome.PERMANENT, f"invalid_args: {refused}"[:LONGEST_ERROR])
    return None
