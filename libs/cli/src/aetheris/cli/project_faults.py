"""What is wrong with what a system is given, found without starting anything: settings, tools and files."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aetheris.gateway.limiter import quotas_of
from aetheris.gateway.openid import providers_of
from aetheris.gateway.settings import GatewaySettings
from aetheris.gateway.tokens import Tokens
from aetheris.ledger.settings import LedgerSettings
from aetheris.notifier import loaded_routes
from aetheris.planner.settings import PlannerSettings
from aetheris.protocol.base.faults import like
from aetheris.protocol.planning.policy import Policy
from aetheris.runtime.base.clock import SystemClock
from aetheris.runtime.base.refusal import StartRefused
from aetheris.runtime.process.policy_file import load as load_policy
from aetheris.runtime.process.settings import RuntimeSettings, load
from aetheris.runtime.process.signers_file import load_signers
from aetheris.scheduler import loaded_starts
from aetheris.sdk.isolation.imports import threads_started
from aetheris.sdk.loader import Toolbox, examine
from aetheris.tool_executor.secret_store import SecretRefused, Secrets, SecretUnreadable, secrets_of
from aetheris.tool_executor.settings import ExecutorSettings
from aetheris.verifier.prober.settings import ProberSettings
from aetheris.verifier.settings import VerifierSettings

_SETTINGS: Sequence[type[RuntimeSettings]] = (
    GatewaySettings,
    PlannerSettings,
    LedgerSettings,
    ExecutorSettings,
    ProberSettings,
    VerifierSettings,
)
_WILD = frozenset("*?[")
_NO_TOOLS = frozenset({"llm", "time", "random"})
"""What a rule of a policy may name beside tools."""
_THREAD = (
    "a thread is started as the module is imported, and lives: calls fork in the middle of what it does,"
    " and no doubt of them is said to act no more; start it where it is needed"
)


@dataclass(frozen=True)
class ProjectFault:
    """One thing that is wrong: of what, and what and where it is; `stops` where a service would refuse to run."""

    subject: str
    detail: str
    stops: bool = True


@dataclass(frozen=True)
class Checked:
    """What was found: everything wrong, and what was right."""

    faults: Sequence[ProjectFault]
    loaded: Sequence[tuple[str, str]]
    """(what, where from and how much of it)"""
    tools: Toolbox
    """What could be loaded of the tools."""


def checked() -> Checked:
    """Look at the settings of this environment and at everything that they name; runs what modules of tools run."""
    faults = list(_settings())
    if faults:
        return Checked(faults, (), Toolbox({}))
    look = _Look()
    tools = look.all()
    return Checked(look.faults, look.loaded, tools)


class _Look:
    def __init__(self) -> None:
        self.faults: list[ProjectFault] = []
        self.loaded: list[tuple[str, str]] = []
        self._executor = load(ExecutorSettings)
        self._ledger = load(LedgerSettings)
        self._gateway = load(GatewaySettings)

    def all(self) -> Toolbox:
        toolbox = self._tools()
        policy = self._named("policy", self._ledger.policy, load_policy, lambda one: f"{len(one.rules)} rules")
        if self._ledger.policy is None:
            self.loaded.append(("policy", "none: what can't be undone needs a human's approval"))
        elif policy is not None and self._executor.mcp is None:
            self.faults.extend(_ruled(policy, toolbox, self._ledger.policy))
        needed_by = policy.signed if policy is not None else None
        if self._ledger.signers is not None or needed_by is not None:
            self._signers(needed_by)
        secrets = self._named("secrets", self._executor.secrets, secrets_of, lambda _one: "")
        self._mcp(secrets if secrets is not None else Secrets(()))
        self._models()
        providers = partial(providers_of, dev=self._gateway.dev)
        self._named("oidc", self._gateway.oidc, providers, lambda one: f"{len(one)} providers")
        self._named("limits", self._gateway.limits, quotas_of, lambda _one: "")
        self._named("notices", _path("AETHERIS_NOTICES"), loaded_routes.load, lambda one: f"{len(one.routes)} routes")
        self._named("starts", _path("AETHERIS_STARTS"), loaded_starts.load, _counted)
        self._named("tokens", self._gateway.tokens, lambda path: Tokens(path, SystemClock()), lambda _one: "")
        return toolbox

    def _tools(self) -> Toolbox:
        modules = ",".join(self._executor.tools)
        with (
            redirect_stdout(sys.stderr),
            threads_started() as threads,
        ):  # what modules print is no result
            toolbox, wrong = examine(modules, self._executor.tools_folder or Path.cwd())
        self.faults.extend(ProjectFault("tools", str(fault)) for fault in wrong)
        if self._executor.tool_isolation == "process" or any(tool.isolation == "process" for tool in toolbox):
            self.faults.extend(ProjectFault("tools", f"{at}: {_THREAD}", stops=False) for at in threads.places())
        if not wrong:
            self.loaded.append(("tools", f"{modules or 'installed packages'}: {len(toolbox)} tools"))
        return toolbox

    def _named(
        self, subject: str, path: Path | None, read: Callable[[Path], Any], counted: Callable[[Any], str]
    ) -> Any:
        if path is None:
            return None
        try:
            found = read(path)
        except StartRefused as refused:
            self.faults.append(ProjectFault(subject, str(refused)))
            return None
        count = counted(found)
        self.loaded.append((subject, f"{path}: {count}" if count else str(path)))
        return found

    def _signers(self, needed_by: str | None) -> None:
        try:
            found = load_signers(self._ledger.signers, needed_by)
        except StartRefused as refused:
            self.faults.append(ProjectFault("signers", str(refused)))
        else:
            self.loaded.append(("signers", f"{self._ledger.signers}: {len(found.lines)} keys"))

    def _mcp(self, secrets: Secrets) -> None:
        path = self._executor.mcp
        if path is None:
            return
        try:
            from aetheris.sdk.toolkits.mcp.servers import ServersFileInvalid, read_servers  # noqa: PLC0415  a second
        except ImportError:
            self.faults.append(ProjectFault("mcp", f"{path}: install aetheris-tool-executor[mcp] to use it"))
            return
        try:
            servers = read_servers(path)
            for name, server in servers.items():
                secrets.of_settings(f"mcp/{name}", server.secrets)
        except ServersFileInvalid as invalid:
            self.faults.append(ProjectFault("mcp", str(invalid)))
        except (SecretRefused, SecretUnreadable) as refused:
            self.faults.append(ProjectFault("mcp", f"{path}: {refused}"))
        else:
            self.loaded.append(("mcp", f"{path}: {len(servers)} servers"))

    def _models(self) -> None:
        entries = self._executor.models
        if not entries:
            return
        try:
            from aetheris.models.config import ModelsInvalid, read_models  # noqa: PLC0415  where they are installed
        except ImportError:
            self.faults.append(ProjectFault("models", "AETHERIS_MODELS is set: install aetheris-tool-executor[models]"))
            return
        try:
            found = read_models(entries)
        except ModelsInvalid as invalid:
            self.faults.append(ProjectFault("models", str(invalid)))
        else:
            self.loaded.append(("models", f"{','.join(entries)}: {len(found)} models"))


def _counted(starts: loaded_starts.LoadedStarts) -> str:
    return f"{len(starts.schedules)} schedules, {len(starts.triggers)} topics, {len(starts.webhooks)} webhooks"


def _path(variable: str) -> Path | None:
    """A setting of a service that runs only where it is set."""
    value = os.environ.get(variable)
    return Path(value) if value else None


def _settings() -> Iterator[ProjectFault]:
    """Each variable that some service doesn't take, once."""
    reported: set[str] = set()
    for kind in _SETTINGS:
        try:
            load(kind)
        except StartRefused as refused:
            if str(refused) not in reported:
                yield ProjectFault("settings", f"{refused}: `aetheris config` says what each means")
            reported.add(str(refused))


def _ruled(policy: Policy, toolbox: Toolbox, path: Path) -> Iterator[ProjectFault]:
    """Rules about a tool that isn't there: a name that was mistyped leaves the tool to the rules behind it."""
    names = {tool.name for tool in toolbox} | _NO_TOOLS
    for rule in policy.rules:
        for pattern in rule.tools:
            if not _WILD & set(pattern) and pattern not in names:
                near = like(pattern, names)
                meant = f"; did you mean {near}?" if near is not None else ""
                yield ProjectFault(
                    "policy", f"{path}: rule {rule.name!r}: there is no tool {pattern}{meant}", stops=False
                )
