"""What is checked: each case is one specification, its constants, and what must come of it."""

from collections.abc import Iterator

from case import Case, Constants
from child_cases import child_ends, child_runs, children
from job_cases import job_ends, jobs
from writer_cases import births, certs, writers


def all_cases() -> Iterator[Case]:
    """Every case, by specification."""
    yield from _claim()
    yield from _claim_live()
    yield from jobs()
    yield from job_ends()
    yield from _run()
    yield from _mark()
    yield from _name()
    yield from writers()
    yield from certs()
    yield from births()
    yield from children()
    yield from child_ends()
    yield from child_runs()


_CLAIM: Constants = {
    "Keys": ["k1"],
    "MaxN": 3,
    "MaxLog": 8,
    "MaxTok": 4,
    "Idem": False,
    "Policy": [],
    "ReadBack": True,
    "Horizon": "birth",
    "FoldStart": "zero",
    "LedgerFold": "zero",
    "RedisClaim": False,
    "ExtRule": "live",
    "ExtSrc": "fold",
    "TokenRule": "EQ",
    "LateRule": "anyLive",
    "NameNonce": True,
    "NonceReuse": False,
    "BirthMode": "zero",
    "KeepVoid": True,
}
_NO_REOPEN = ["catchup", "verified", "fail", "park", "hfail", "retry", "perm"]
_REOPEN = [*_NO_REOPEN, "reopen", "hreopen"]
_PLAIN = ["fail", "retry", "reopen", "catchup"]
_ALWAYS = ("AtMostOnce", "ExtStable", "FinalStable", "ClearSound", "SuccessTrue", "SureFail")
_ONE = (*_ALWAYS, "OneRunner", "NoRunOpen")
_W: Constants = {"FoldStart": "W", "LedgerFold": "W", "BirthMode": "rec"}
_Q: Constants = {"FoldStart": "any", "Horizon": "q"}


def _claim() -> Iterator[Case]:
    for name, constants, invariants, long in _CLAIM_HOLDS:
        yield Case(f"claim_{name}", "Claim", {**_CLAIM, **constants}, invariants, view="View", long=long)
    for name, violated, constants in _CLAIM_FAILS:
        yield Case(f"claim_{name}", "Claim", {**_CLAIM, **constants}, (violated,), violates=violated, view="View")


_CLAIM_HOLDS: list[tuple[str, Constants, tuple[str, ...], bool]] = [
    ("once", {"Policy": _NO_REOPEN, "MaxLog": 6}, (*_ONE, "NoLostTruth"), False),
    ("once_small", {"Policy": _NO_REOPEN, "MaxLog": 5, "MaxN": 2}, (*_ONE, "NoLostTruth"), False),
    (
        "once_deep",
        {"Policy": _NO_REOPEN, "MaxN": 6, "MaxLog": 14, "MaxTok": 8, "KeepVoid": False},
        (*_ONE, "NoLostTruth"),
        True,
    ),
    (
        "once_two_keys",
        {"Policy": _NO_REOPEN, "Keys": ["k1", "k2"], "MaxN": 4, "MaxLog": 8, "KeepVoid": False},
        _ONE,
        True,
    ),
    ("idem", {"Idem": True, "Policy": _REOPEN, "MaxLog": 6}, (*_ALWAYS, "NoLostTruth"), True),
    ("idem_small", {"Idem": True, "Policy": _REOPEN, "MaxLog": 4}, (*_ALWAYS, "NoLostTruth"), False),
    (
        "idem_deep",
        {"Idem": True, "Policy": _REOPEN, "MaxN": 4, "MaxLog": 10, "MaxTok": 6, "KeepVoid": False},
        (*_ALWAYS, "NoLostTruth"),
        True,
    ),
    ("mark", {"Idem": True, "Policy": _PLAIN, "Keys": ["k1", "k2"], "MaxLog": 6, **_W}, _ALWAYS, True),
    ("mark_small", {"Idem": True, "Policy": _PLAIN, "Keys": ["k1", "k2"], "MaxLog": 5, **_W}, _ALWAYS, False),
    (
        "mark_once",
        {"Policy": ["fail", "retry", "park", "hfail"], "Keys": ["k1", "k2"], "MaxLog": 7, **_W},
        _ONE,
        True,
    ),
    (
        "any_start",
        {"Idem": True, "Policy": _PLAIN, "MaxLog": 6, "FoldStart": "any", "BirthMode": "rec"},
        _ALWAYS,
        False,
    ),
    (
        "opaque_reopened",
        {"Policy": _REOPEN, "MaxLog": 9, "KeepVoid": False},
        ("FinalStable", "ClearSound", "SuccessTrue", "SureFail", "ExtStable"),
        False,
    ),
]

_CLAIM_FAILS: list[tuple[str, str, Constants]] = [
    # what the rules rest on
    ("no_read_back", "AtMostOnce", {"Policy": _NO_REOPEN, "ReadBack": False}),
    ("no_horizon", "AtMostOnce", {"Policy": _NO_REOPEN, "FoldStart": "any", "Horizon": "off"}),
    ("redis_claim", "AtMostOnce", {"Policy": _NO_REOPEN, "RedisClaim": True}),
    ("new_key_at_reopen", "AtMostOnce", {"Idem": True, "Policy": _REOPEN, "ExtRule": "gen"}),
    ("new_key_at_retry", "AtMostOnce", {"Idem": True, "Policy": ["retry", "reopen"], "ExtRule": "retry"}),
    ("nameless", "AtMostOnce", {"Policy": ["fail", "retry"], "NameNonce": False}),
    (
        "nameless_retry",
        "AtMostOnce",
        {"Idem": True, "Policy": ["retry"], "NameNonce": False, "ExtRule": "retry", "MaxLog": 6},
    ),
    ("nonce_reused", "AtMostOnce", {"Policy": _NO_REOPEN, "NonceReuse": True}),
    (
        "key_from_grant",
        "AtMostOnce",
        {
            "Idem": True,
            "Policy": ["retry", "reopen"],
            "TokenRule": "GE",
            "ExtSrc": "grant",
            "KeepVoid": False,
            "MaxLog": 6,
        },
    ),
    (
        "blind_to_birth",
        "ClearSound",
        {"Idem": True, "Policy": ["catchup", "reopen"], "TokenRule": "GE", "MaxLog": 6, **_Q},
    ),
    (
        "blind_to_birth_effects",
        "AtMostOnce",
        {
            "Idem": True,
            "Policy": ["retry", "reopen"],
            "TokenRule": "GE",
            "MaxN": 4,
            "MaxLog": 7,
            "KeepVoid": False,
            **_Q,
        },
    ),
    (
        "ledger_behind_birth",
        "AtMostOnce",
        {"Policy": ["fail"], "FoldStart": "W", "LedgerFold": "W", "Horizon": "q", "MaxLog": 5},
    ),
    (
        "born_again",
        "AtMostOnce",
        {"Policy": ["fail"], "FoldStart": "W", "LedgerFold": "W", "BirthMode": "dup", "MaxLog": 6},
    ),
    ("late_success_lost", "NoLostTruth", {"Idem": True, "Policy": ["reopen"], "LateRule": "reopened", "MaxLog": 5}),
    # what is not promised
    ("opaque_reopen_duplicates", "AtMostOnce", {"Policy": ["reopen"], "MaxLog": 5}),
    ("two_run_after_reopen", "OneRunner", {"Idem": True, "Policy": ["reopen"], "MaxLog": 5}),
    ("failed_is_not_none", "FailMeansNone", {"Policy": _NO_REOPEN}),
    ("failed_after_reopen", "FailMeansNone", {"Idem": True, "Policy": ["perm", "reopen"], "MaxLog": 5}),
    # reached
    (
        "reach_mark",
        "NonVacuousW",
        {"Idem": True, "Policy": _PLAIN, "Keys": ["k1", "k2"], "MaxLog": 6, **_W},
    ),
    ("reach_late", "NonVacuousLate", {"Idem": True, "Policy": _REOPEN, "MaxLog": 5}),
]

_LIVE: Constants = {"MaxN": 3, "Crashes": 2, "Losses": 1, "Retries": 1, "Spurious": True, "LateRule": "anyLive"}


def _claim_live() -> Iterator[Case]:
    for name, constants, violates in _ENDS:
        yield Case(f"ends_{name}", "ClaimLive", {**_LIVE, **constants}, properties=("Ends",), violates=violates)


_ENDS: list[tuple[str, Constants, str | None]] = [
    ("fail_or_park", {"Policy": ["catchup", "fail", "park"]}, None),
    ("reopen", {"Policy": ["catchup", "verified", "reopen"]}, None),
    ("only_current_counts", {"Policy": ["catchup", "reopen"], "LateRule": "current"}, "Ends"),
    ("no_last_rung", {"Policy": ["catchup", "verified"]}, "Ends"),
]

_RUN: Constants = {"MaxN": 4, "Acts": [], "Idem": True, "After": "both", "Strict": True}
_FOLLOWED = ("FromCommitted", "InOrder", "OneKey")
_MIXED = ["catchup", "hsucc", "reopen", "fail"]


def _run() -> Iterator[Case]:
    for name, constants, invariants, violates, long in _RUNS:
        yield Case(f"run_{name}", "Run", {**_RUN, **constants}, invariants, (), violates, long=long)


_RUNS: list[tuple[str, Constants, tuple[str, ...], str | None, bool]] = [
    ("idem", {"Acts": _MIXED}, (*_FOLLOWED, "OneExt"), None, False),
    ("idem_5", {"Acts": [*_MIXED, "retry"], "MaxN": 5}, (*_FOLLOWED, "OneExt"), None, True),
    ("opaque", {"Acts": ["catchup", "hsucc", "fail", "retry"], "Idem": False}, (*_FOLLOWED, "Once"), None, False),
    ("previous_alone", {"Acts": _MIXED, "After": "prev"}, (*_FOLLOWED, "OneExt"), None, False),
    ("used_alone", {"Acts": ["fail"], "After": "used"}, ("InOrder",), "InOrder", False),
    ("nothing", {"Acts": ["hsucc"], "After": "off"}, ("FromCommitted",), "FromCommitted", False),
    ("by_nonce", {"Acts": ["hsucc"], "Strict": False}, ("FromCommitted",), "FromCommitted", False),
    ("reach_whole", {"Acts": _MIXED}, ("NvWhole",), "NvWhole", False),
    ("reach_tail", {"Acts": _MIXED}, ("NvTail",), "NvTail", False),
    ("reach_zombie", {"Acts": _MIXED}, ("NvZombie",), "NvZombie", False),
]

_MARK: Constants = {
    "Jobs": ["j1", "j2"],
    "MaxLog": 4,
    "Snapshots": True,
    "StartRule": "min",
    "GapRule": "error",
    "BirthCheck": True,
    "MarkRule": "loaded",
    "DelRule": "asof",
    "Zombie": False,
    "CompactKey": "as_of",
}
_EXACT = ("ExactFold", "Fresh")


def _mark() -> Iterator[Case]:
    for name, constants, invariants, violates, long in _MARKS:
        yield Case(f"mark_{name}", "Mark", {**_MARK, **constants}, invariants, (), violates, long=long)


_MARKS: list[tuple[str, Constants, tuple[str, ...], str | None, bool]] = [
    ("births", {"Snapshots": False, "MaxLog": 6}, _EXACT, None, False),
    ("snapshots", {"Zombie": True}, _EXACT, None, True),
    ("snapshots_3", {"Zombie": True, "MaxLog": 3}, _EXACT, None, False),
    ("deleted_below_mark", {"DelRule": "mark"}, ("Fresh",), "Fresh", False),
    ("old_snapshot_again", {"Zombie": True, "CompactKey": "job"}, ("Fresh",), "Fresh", False),
    ("start_at_mark", {"StartRule": "mark"}, ("ExactFold",), "ExactFold", False),
    ("gap_jumped", {"GapRule": "jump"}, ("ExactFold",), "ExactFold", False),
    ("no_birth_check", {"BirthCheck": False}, ("ExactFold",), "ExactFold", False),
    ("mark_passes_all", {"MarkRule": "any"}, ("Fresh",), "Fresh", False),
    ("reach_deleted", {}, ("NvDel",), "NvDel", False),
]

_NAME: Constants = {
    "MaxP": 3,
    "Folders": ["here", "there"],
    "Proof": "file",
    "ReadBack": True,
    "LogRule": "names",
    "Inherited": True,
    "Freed": "end",
    "Inode": True,
}
_ENDS_TRUE = ("EndTrue", "OneLives", "Known")


def _name() -> Iterator[Case]:
    for name, constants, invariants, violates, long in _NAMES:
        yield Case(f"name_{name}", "Name", {**_NAME, **constants}, invariants, (), violates, long=long)


_NAMES: list[tuple[str, Constants, tuple[str, ...], str | None, bool]] = [
    ("once", {}, _ENDS_TRUE, None, False),
    ("once_4", {"MaxP": 4}, _ENDS_TRUE, None, True),
    ("whoever_lives", {"Proof": "table"}, ("EndTrue",), "EndTrue", False),
    ("no_read_back", {"ReadBack": False}, ("OneLives",), "OneLives", False),
    ("last_counts", {"LogRule": "last"}, ("OneLives",), "OneLives", False),
    ("not_inherited", {"Inherited": False}, ("EndTrue",), "EndTrue", False),
    ("freed_at_drain", {"Freed": "drain"}, ("EndTrue",), "EndTrue", False),
    ("copied", {"Inode": False}, ("EndTrue",), "EndTrue", False),
    ("reach_successor", {}, ("NvSuccessor",), "NvSuccessor", False),
    ("reach_other", {}, ("NvOther",), "NvOther", False),
    ("reach_second", {}, ("NvSecond",), "NvSecond", False),
]
