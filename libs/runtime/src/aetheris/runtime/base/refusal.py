"""Why a process must not start: its message names the setting and the next step, never a secret."""

REFUSED_STATUS = 78
"""As sysexits.h says it: something was found in an unconfigured or misconfigured state. Another start ends the same."""
AGAIN_STATUS = 75
"""As sysexits.h says it: a temporary failure. What stands in the way lies elsewhere, and another start makes sense."""
REFUSAL = "refuses to run"
"""The event in the log that says why, under `reason`."""


class StartRefused(Exception):
    """The surroundings are unsafe or incomplete; the message is for the operator, and logged as it stands."""

    code = "refused"
    passes = False
    """Whether it may pass without anybody changing this process's settings or files: another start makes sense."""


class SettingInvalid(StartRefused):
    """An environment variable has a value that its setting doesn't take."""

    code = "setting_invalid"


class WorkerIdTaken(StartRefused):
    """Somebody else lives under this worker_id, or may: the message says what to do."""

    code = "worker_id_taken"
    passes = True


class ToolsRefused(StartRefused):
    """Tools that are named can't be loaded: mend the module that the message names, then start again."""

    code = "tools_refused"


def refusal(error: BaseException) -> StartRefused | None:
    """The refusal in an error or a group of errors, if there is one."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := refusal(inner)) is not None), None)
    return error if isinstance(error, StartRefused) else None
