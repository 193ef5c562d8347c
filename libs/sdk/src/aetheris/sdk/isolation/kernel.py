"""What Linux is asked for so that processes of one user are kept apart, and end together.

See prctl(2), capabilities(7), landlock(7).

Elsewhere nothing of it is there, and nothing here does anything.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

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
_ADD_RULE = 445
_RESTRICT_SELF = 446
_SCOPE_SIGNAL = 2
_READ_FILE = 1 << 2
_REFER = 1 << 13
"""To move files from one folder to another, which a ruleset without it would forbid."""
_PATH_BENEATH = 1
_ASKS_VERSION = 1
_WITH_REFER = 2
_TO_BECOME_ANOTHER = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported between fork and use
_IS_LINUX = sys.platform == "linux"


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


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
    ruleset = _ruleset(0, _SCOPE_SIGNAL)
    if ruleset >= 0:
        _restrict(ruleset)


def reads_nothing_of(files: Collection[str]) -> Collection[Path]:
    """From here on this process, and what it starts, can't open these files: from Linux 5.19 on.

    It gains no privileges from then on. What can be read is listed as it stands now, so a file stays open to it where
    it could make others beside, which it could not read then: below a folder that it may write to.

    Returns:
        What is closed: the files, or the folders that Kubernetes keeps them in, where they are replaced.
    """
    if not _IS_LINUX:
        return ()
    found = {place for file in files for place in _closable(Path(file))}
    closed = {place for place in found if found.isdisjoint(place.parents)}
    ruleset = _ruleset(_READ_FILE | _REFER, 0) if closed else -1
    if ruleset < 0:
        return ()
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    above = {folder for place in closed for folder in place.parents}
    for folder in above:
        for entry in os.scandir(folder):
            path = Path(entry.path)
            if path not in closed | above and not entry.is_symlink():
                _allow(ruleset, path, _READ_FILE | _REFER if entry.is_dir() else _READ_FILE)
    return closed if _restrict(ruleset) else ()


def stay_open(files: Collection[str]) -> Collection[str]:
    """Which of these files `reads_nothing_of` can't close to a process of this user."""
    if not _IS_LINUX:
        return files
    version = _LIBC.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_long(0), ctypes.c_long(_ASKS_VERSION))
    can = version >= _WITH_REFER
    return [file for file in files if os.access(file, os.R_OK) and not (can and any(_closable(Path(file))))]


def _closable(file: Path) -> Iterator[Path]:
    with suppress(OSError):
        folder = file.parent.resolve(strict=True)
        place = folder if (folder / "..data").is_symlink() else file.resolve(strict=True)
        if all(os.access(one, os.R_OK | os.X_OK) and not os.access(one, os.W_OK) for one in place.parents):
            yield place


def _ruleset(of_files: int, scoped: int) -> int:
    attributes = (ctypes.c_uint64 * 3)(of_files, 0, scoped)
    size = ctypes.c_long(ctypes.sizeof(attributes))
    return _LIBC.syscall(ctypes.c_long(_CREATE_RULESET), attributes, size, ctypes.c_long(0))


def _allow(ruleset: int, path: Path, access: int) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        rule = _Beneath(access, descriptor)
        numbers = (ctypes.c_long(ruleset), ctypes.c_long(_PATH_BENEATH))
        _LIBC.syscall(ctypes.c_long(_ADD_RULE), *numbers, ctypes.byref(rule), ctypes.c_long(0))
        os.close(descriptor)


def _restrict(ruleset: int) -> bool:
    status = _LIBC.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_long(ruleset), ctypes.c_long(0))
    os.close(ruleset)
    return status == 0


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
