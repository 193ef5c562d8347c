"""What Linux is asked for so that processes of one user are kept apart, and end together.

See prctl(2), capabilities(7), landlock(7).

Elsewhere nothing of it is there, and nothing here does anything.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64
_CREATE_RULESET = 444
_RESTRICT_SELF = 446
_SCOPE_SIGNAL = 2
_TO_BECOME_ANOTHER = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported between fork and use
_IS_LINUX = sys.platform == "linux"


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def unreadable() -> None:
    """No other process of this user may read this one's memory, environment and descriptors from here on.

    One that may trace any process (CAP_SYS_PTRACE, as root has it) may.
    """
    if _IS_LINUX:
        _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def without_capabilities() -> None:
    """Give up every capability, for this process and all that it starts: root then owns root's files, and no more."""
    if not _IS_LINUX:
        return
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(_MOST_CAPABILITIES):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _LIBC.capset(ctypes.byref(_Header(_CAPABILITY_VERSION_3, 0)), nothing)


def lacks_for_another_user() -> list[str]:
    """Which capabilities this process is without, of those that it takes to start and end what another user runs."""
    with open("/proc/self/status", encoding="ascii") as status:
        (has,) = (int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return [name for name, number in _TO_BECOME_ANOTHER.items() if not has >> number & 1]


def signals_stay_within() -> None:
    """From here on this process, and what it starts, may signal nothing but itself and that: from Linux 6.12 on.

    For a process that has given up its capabilities. Calls stack: what starts later may be given less.
    """
    if not _IS_LINUX:
        return
    attributes = (ctypes.c_uint64 * 3)(0, 0, _SCOPE_SIGNAL)
    size = ctypes.c_long(ctypes.sizeof(attributes))
    ruleset = _LIBC.syscall(ctypes.c_long(_CREATE_RULESET), attributes, size, ctypes.c_long(0))
    if ruleset >= 0:
        _LIBC.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_long(ruleset), ctypes.c_long(0))
        os.close(ruleset)


def end_with(parent: int, *, by: int = signal.SIGKILL) -> None:
    """Be signalled when the thread that has started this process ends; end at once, if its process has already."""
    if _IS_LINUX:
        _LIBC.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """What a descendant leaves behind becomes this process's child."""
    if _IS_LINUX:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> Collection[int]:
    """The children of this process. Looked for twice: the kernel may pass over one while another ends.

    Raises:
        OSError: the system doesn't tell.
    """
    return frozenset(pid for _ in range(2) for pid in _children())


def _children() -> Collection[int]:
    found = set[int]()
    for thread in os.listdir("/proc/self/task"):
        with (  # a thread that has ended is passed over: what it had started is another's now
            suppress(FileNotFoundError),
            open(f"/proc/self/task/{thread}/children", encoding="ascii") as listed,
        ):
            found.update(map(int, listed.read().split()))
    return found
