"""The cases of signed records: `Writers.tla` and `Certs.tla`."""

from collections.abc import Iterator

from case import Case, Constants

_WRITERS: Constants = {
    "MaxN": 2,
    "Class": "opaque",
    "Corrupt": [],
    "Acts": ["park", "fail", "catchup", "hreopen", "pause"],
    "Words": "four",
    "Doubt": "word",
    "Store": "word",
    "Via": "own",
    "Unsigned": [],
    "Pin": "compared",
    "Revoked": "void",
}
_PROBEABLE: Constants = {"Class": "probe", "Acts": ["probe", "park", "fail", "catchup", "pause"]}
_DEDUPLICATED: Constants = {"Class": "idem", "Acts": ["park", "fail", "catchup"]}
_UNFORGED = ("Once", "Permitted", "Held", "OwnNone", "OwnEffect", "OwnEnd", "ByWriter", "Voided")


def writers() -> Iterator[Case]:
    """Who writes what, whoever works for the forger (Writers.tla)."""
    for name, constants, exempt, long in _WRITERS_HOLD:
        holding = tuple(one for one in _UNFORGED if one not in exempt)
        yield Case(f"writers_{name}", "Writers", {**_WRITERS, **constants}, holding, long=long)
    for name, violated, constants in _WRITERS_FAIL:
        yield Case(f"writers_{name}", "Writers", {**_WRITERS, **constants}, (violated,), violates=violated)


_WRITERS_HOLD: list[tuple[str, Constants, tuple[str, ...], bool]] = [
    # whoever works for the forger; what is left out of the properties is what his key says by right
    ("nobody", {}, (), False),
    ("nobody_3", {"MaxN": 3}, (), True),
    ("nobody_probe", _PROBEABLE, (), False),
    ("nobody_idem", _DEDUPLICATED, (), False),
    ("executor", {"Corrupt": ["executor"]}, (), False),
    ("executor_probe", {**_PROBEABLE, "Corrupt": ["executor"]}, (), False),
    ("executor_probe_3", {**_PROBEABLE, "Corrupt": ["executor"], "MaxN": 3}, (), True),
    ("executor_idem", {**_DEDUPLICATED, "Corrupt": ["executor"]}, (), False),
    ("store", {"Corrupt": ["store"]}, (), False),
    ("gateway", {"Corrupt": ["gateway"]}, (), False),
    ("planner", {"Corrupt": ["planner"], "Acts": ["park", "fail", "catchup"]}, ("Held",), False),
    ("planner_probe", {**_PROBEABLE, "Corrupt": ["planner"]}, ("Held",), True),
    ("prober", {**_PROBEABLE, "Corrupt": ["prober"]}, ("Once",), False),
    ("ledger", {"Corrupt": ["ledger"], "Acts": ["catchup"]}, ("Once",), False),
    ("ledger_probe", {**_PROBEABLE, "Corrupt": ["ledger"]}, ("Once",), True),
    ("broker", {"Corrupt": ["broker"]}, ("OwnEffect",), False),
    ("broker_probe", {**_PROBEABLE, "Corrupt": ["broker"]}, ("OwnEffect",), False),
    ("broker_idem", {**_DEDUPLICATED, "Corrupt": ["broker"]}, ("OwnEffect",), False),
    (
        "all_but_ledger",
        {
            **_PROBEABLE,
            "Corrupt": ["executor", "store", "planner", "gateway", "broker"],
            "Acts": ["probe", "park", "catchup"],
        },
        ("Held", "OwnEffect"),
        False,
    ),
]

_WRITERS_FAIL: list[tuple[str, str, Constants]] = [
    # what a try says
    ("no_words", "Once", {"Words": "off"}),
    ("no_words_none", "OwnNone", {"Words": "off"}),
    ("no_words_effect", "OwnEffect", {"Words": "off"}),
    ("one_word_seen", "Once", {"Words": "one", "Corrupt": ["broker"]}),
    ("one_word_kept", "Once", {"Words": "one", "Corrupt": ["executor"]}),
    ("one_word_in_doubt", "Once", {**_PROBEABLE, "Words": "one"}),
    ("doubt_by_anybody", "Once", {**_PROBEABLE, "Doubt": "none"}),
    ("store_believed", "OwnEffect", {"Store": "none", "Corrupt": ["store"]}),
    ("none_by_others", "OwnNone", {"Via": "any", "Corrupt": ["ledger"]}),
    # what is signed
    ("unsigned_permit", "Permitted", {"Unsigned": ["permit"]}),
    ("unsigned_reopen", "Once", {"Unsigned": ["reopen"]}),
    ("unsigned_ended", "Once", {**_PROBEABLE, "Unsigned": ["ended"]}),
    ("unsigned_probed", "Once", {**_PROBEABLE, "Unsigned": ["probed"]}),
    ("unsigned_park", "ByWriter", {"Unsigned": ["park"]}),
    ("unsigned_settle", "ByWriter", {"Unsigned": ["settle"]}),
    ("unsigned_resume", "Held", {"Unsigned": ["resume"]}),
    ("unsigned_plan", "Permitted", {"Unsigned": ["plan"], "Pin": "trusted"}),
    ("pin_trusted", "Permitted", {"Corrupt": ["planner"], "Pin": "trusted"}),
    ("revoked_counts", "Voided", {"Corrupt": ["ledger"], "Revoked": "counts"}),
    # what is not promised
    ("ledger_reopens", "Once", {"Corrupt": ["ledger"]}),
    ("prober_denies", "Once", {**_PROBEABLE, "Corrupt": ["prober"]}),
    ("planner_resumes", "Held", {"Corrupt": ["planner"]}),
    ("broker_alters", "OwnEffect", {"Corrupt": ["broker"]}),
    # reached
    ("reach_twice", "NvTwice", {}),
    ("reach_forged", "NvForged", {}),
    ("reach_revoked", "NvRevoked", {"Corrupt": ["ledger"]}),
]

_SIGNED = ["installation", "topic", "type", "job", "born"]
_CERTS: Constants = {
    "MaxLog": 4,
    "Bound": _SIGNED,
    "Root": "pinned",
    "Unknown": "stops",
    "Ends": "audited",
    "Certified": "carried",
    "Revoked": "log",
}


def certs() -> Iterator[Case]:
    """What a signature counts for (Certs.tla)."""
    yield Case("certs_once", "Certs", _CERTS, ("Agree", "Genuine", "VoidBehind"), ("Kept",))
    for left_out in _SIGNED:
        bound = [one for one in _SIGNED if one != left_out]
        yield Case(f"certs_no_{left_out}", "Certs", {**_CERTS, "Bound": bound}, ("Genuine",), violates="Genuine")
    for name, violated, constants in _CERTS_FAIL:
        yield Case(f"certs_{name}", "Certs", {**_CERTS, **constants}, (violated,), violates=violated)
    never_again = {**_CERTS, "Revoked": "whole"}
    yield Case("certs_revoked_from_birth", "Certs", never_again, (), ("Kept",), violates="Kept")


_BIRTHS: Constants = {
    "Jobs": ["j1"],
    "Parts": ["p1", "p2"],
    "Home": "p1",
    "MaxLog": 4,
    "Reach": 2,
    "AsOf": True,
    "Part": True,
    "Cut": "committed",
    "Restart": "since",
}


def births() -> Iterator[Case]:
    """Where a job's birth counts (Births.tla)."""
    alone: Constants = {**_BIRTHS, "Parts": ["p1"], "MaxLog": 5}
    yield Case("births_once", "Births", {**_BIRTHS, "MaxLog": 3}, ("Once", "Known"))
    yield Case("births_far", "Births", alone, ("Once", "Known"))
    yield Case("births_reach_3", "Births", {**alone, "Reach": 3}, ("Once", "Known"))
    yield Case("births_two_jobs", "Births", {**alone, "Jobs": ["j1", "j2"], "MaxLog": 4}, ("Once", "Known"))
    yield Case("births_names_kept", "Births", {**alone, "AsOf": False}, ("Once",))  # names are given up nowhere here
    cut = ("OnceFrom", "KnownFrom")
    yield Case("births_cut", "Births", {**alone, "Reach": 2}, cut)
    yield Case("births_cut_two_jobs", "Births", {**alone, "Jobs": ["j1", "j2"], "MaxLog": 4}, cut)
    for name, violated, constants in _BIRTHS_FAIL:
        yield Case(f"births_{name}", "Births", {**_BIRTHS, **constants}, (violated,), violates=violated)


_BIRTHS_FAIL: list[tuple[str, str, Constants]] = [
    ("everywhere", "Once", {"Parts": ["p1"], "MaxLog": 6, "AsOf": False, "Restart": "below"}),
    ("any_partition", "Once", {"Part": False}),
    ("from_mark", "Once", {"Parts": ["p1"], "MaxLog": 5, "Reach": 3, "Restart": "mark"}),
    ("edge", "Once", {"Parts": ["p1"], "MaxLog": 6, "Reach": 3, "Restart": "below"}),
    ("cut_at_mark", "KnownFrom", {"Parts": ["p1"], "MaxLog": 5, "Cut": "mark"}),
    ("cut_edge", "OnceFrom", {"Parts": ["p1"], "MaxLog": 6, "Reach": 3, "Restart": "below"}),
    ("reach_late", "NvLate", {}),
    ("reach_again", "NvAgain", {}),
]


_CERTS_FAIL: list[tuple[str, str, Constants]] = [
    ("root_told", "Genuine", {"Root": "told"}),
    ("root_known", "Agree", {"Root": "known"}),
    ("root_voids", "Agree", {"Unknown": "voids"}),
    ("by_clock", "Agree", {"Ends": "clock"}),
    ("elsewhere", "Agree", {"Certified": "table"}),
    ("revoked_elsewhere", "Agree", {"Revoked": "table"}),
    ("revoked_unseen", "VoidBehind", {"Revoked": "table"}),
    ("reach_stolen", "NvActs", {}),
]
