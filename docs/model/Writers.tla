------------------------------ MODULE Writers ------------------------------
(* Who may write what of one call that can't be undone: a forger appends whatever record he can make
   to the job's log, at any time, beside those whose writers are honest (docs/adr/0009-signed-records.md).
   He can't sign for a key that he hasn't, nor say a word of a try that he has neither seen nor chosen.
   The reductions of Job.tla hold here too: a void record is no step, every writer may act on what any
   earlier prefix said, and the append of `started` and its read-back are one step.

   A try's words: each is the SHA-256 of the one before it, the last is its invocation_id.  Who has seen
   one has all behind it, and none before it.
     1 "took no effect"   2 "took effect"   3 "can act no more"   4 the invocation_id
   A record that is dropped, or comes late, is one whose writer takes no more steps; who sees a record
   before it is delivered may put his own in its place. *)
EXTENDS Naturals, FiniteSets
CONSTANTS       \* the first value named is the rule; the others are weaker
  MaxN,         \* tries in all
  Class,        \* "opaque" | "idem" | "probe"
  Corrupt,      \* SUBSET {"executor","planner","gateway","ledger","prober","broker","store"}: who works for the forger
  Acts,         \* what the honest ledger and people do: SUBSET {"probe","fail","park","catchup","hreopen","pause"}
  Words,        \* "four": as above | "one": one secret, whatever is said with it | "off": none is asked for
  Doubt,        \* "word": that a try can act no more is said with its word | "none": by anybody
  Store,        \* "word": what the effect store has is believed with its word only | "none": always
  Via,          \* "own": only a try itself says that it took no effect | "any": whoever may settle it
  Unsigned,     \* types that are believed without a signature: none; SUBSET Types
  Pin,          \* "compared": an executor refuses a pin that differs from its own tool | "trusted"
  Revoked       \* "void": what a revoked key signs behind its revocation | "counts"
VARIABLES s, nx, tr, own, ext, said, kn, land, ok, irr, pz, nf, el, tel, pe, en, re, rev, hre, flag
vars == <<s, nx, tr, own, ext, said, kn, land, ok, irr, pz, nf, el, tel, pe, en, re, rev, hre, flag>>
N == 1..MaxN
Types == {"permit", "reopen", "park", "settle", "ended", "probed", "resume", "plan"}
Writer(ty) == CASE ty = "probed" -> "prober" [] ty \in {"resume", "plan"} -> "planner" [] OTHER -> "ledger"
NONE == 1
EFFECT == 2
NOMORE == 3
Level(w) == IF Words = "one" THEN NONE ELSE w
Init == /\ s = [st |-> "none", n |-> 0, x |-> 1, live |-> {}, out |-> "-", by |-> 0, g |-> 1]   \* g: which permission holds
        /\ nx = 1 /\ tr = [n \in N |-> "no"] /\ own = [n \in N |-> "-"] /\ ext = [n \in N |-> 0]
        /\ said = [n \in N |-> 4]          \* the strongest word of it that its own executor has said, or kept in the store
        /\ kn = [n \in N |-> 4]            \* ... that the forger has
        /\ land = {} /\ ok = {} /\ irr = TRUE /\ pz = "off" /\ nf = {} /\ el = {} /\ tel = {} /\ pe = {}
        /\ en = {} /\ re = {} /\ rev = {} /\ hre = 0 /\ flag = {}

(******************************** the fold ***********************************)
Settled(q, o, n) == [q EXCEPT !.st = "settled", !.out = o, !.by = n]
Succ(n) == s.st # "settled" /\ n \in s.live /\ s' = Settled(s, "success", n)
Retry(n) == /\ s.st # "settled" /\ n \in s.live
            /\ LET lv == s.live \ {n} IN
               s' = IF n = s.n /\ s.st \in {"started", "parked"}
                    THEN [s EXCEPT !.st = "reopened", !.live = lv, !.x = IF lv = {} THEN @ + 1 ELSE @]
                    ELSE [s EXCEPT !.live = lv]
Perm(n) == s.st # "settled" /\ n = s.n /\ n \in s.live /\ s' = Settled(s, "perm", n)
StartOK == s.st \in {"none", "reopened"} /\ (irr => s.g \in {p[1] : p \in ok}) /\ pz # "on"
(******************************* executors ***********************************)
\* what the forger learns of an honest try's word: at once who sees it under way, else when it lies in the log
Sees == Corrupt \cap {"broker"} # {}
Reads == Corrupt \cap {"store", "executor", "ledger"} # {}      \* has the effect store's credentials
Least(a, b) == IF a < b THEN a ELSE b
Tell(n, w) == /\ said' = [said EXCEPT ![n] = Least(@, w)]
              /\ kn' = [kn EXCEPT ![n] = Least(@, Level(w))]
Take(o) == /\ nx \in N /\ StartOK /\ nx' = nx + 1
           /\ s' = [s EXCEPT !.st = "started", !.n = nx, !.live = @ \cup {nx}]
           /\ own' = [own EXCEPT ![nx] = o] /\ ext' = [ext EXCEPT ![nx] = s.x]
           /\ tr' = [tr EXCEPT ![nx] = IF o = "honest" THEN "clr" ELSE "forged"]
           /\ kn' = [kn EXCEPT ![nx] = IF o = "honest" THEN @ ELSE 0]
\* what a start that is cleared lacks, although it must not
Lacks == (IF <<s.g, "ledger">> \in ok THEN {} ELSE {"permission"}) \cup (IF pz = "lifted" THEN {"pause"} ELSE {})
Start == /\ (Pin = "compared" => irr) /\ Take("honest") /\ flag' = flag \cup Lacks
         /\ UNCHANGED <<said, land, ok, irr, pz, nf, el, tel, pe, en, re, rev, hre>>
StartForged == Take("forger") /\ UNCHANGED <<said, land, ok, irr, pz, nf, el, tel, pe, en, re, rev, hre, flag>>
U0 == UNCHANGED <<nx, own, ext, ok, irr, pz, nf, el, tel, rev, hre, flag>>
Run(n) == /\ tr[n] = "clr" /\ n \notin pe
          /\ \/ tr' = [tr EXCEPT ![n] = "fly"] \/ tr' = [tr EXCEPT ![n] = "none"]
          /\ U0 /\ UNCHANGED <<s, said, kn, land, pe, en, re>>
Land(n) == /\ tr[n] = "fly" /\ tr' = [tr EXCEPT ![n] = "eff"] /\ land' = land \cup {n}   \* its code may have raised, or ended
           /\ IF n \notin pe /\ (Sees \/ Reads)       \* kept in the store, and on its way to the log
              THEN Tell(n, EFFECT) ELSE UNCHANGED <<said, kn>>
           /\ U0 /\ UNCHANGED <<s, pe, en, re>>
Under(n) == tr[n] = "none" /\ Sees /\ said[n] = 4 /\ Tell(n, NONE) /\ U0 /\ UNCHANGED <<s, tr, land, pe, en, re>>
Finish(n) == /\ tr[n] \in {"eff", "none"} /\ n \notin pe
             /\ IF tr[n] = "eff" THEN Succ(n) /\ Tell(n, EFFECT) ELSE (Retry(n) \/ Perm(n)) /\ Tell(n, NONE)
             /\ U0 /\ UNCHANGED <<tr, land, pe, en, re>>
Raise(n) == /\ Class = "probe" /\ tr[n] = "fly" /\ n \notin pe /\ pe' = pe \cup {n}   \* what it has sent may land later
            /\ Tell(n, NOMORE) /\ re' = re \cup {n} /\ U0 /\ UNCHANGED <<s, tr, land, en>>
Die(n) == /\ tr[n] \in {"clr", "fly", "eff", "none"} /\ n \notin pe /\ pe' = pe \cup {n}
          /\ en' = en \cup {n}                                               \* and worker_ended may be written
          /\ U0 /\ UNCHANGED <<s, tr, said, kn, land, re>>
(************************* the honest ledger, people **************************)
U1 == UNCHANGED <<nx, tr, own, ext, said, kn, land, irr, pz, pe, en, re, rev>>
Permit == /\ s.g \notin {p[1] : p \in ok} /\ s.st \in {"none", "reopened"} /\ ok' = ok \cup {<<s.g, "ledger">>}
          /\ U1 /\ UNCHANGED <<s, nf, el, tel, hre, flag>>
Gone(n) == n \in en \cup re
Elapse(n) == \* settles_within has passed since the ledger folded an end; what was sent before a true one lands no more
  /\ "probe" \in Acts /\ Gone(n) /\ n \notin el /\ el' = el \cup {n}
  /\ tel' = IF n \in pe THEN tel \cup {n} ELSE tel
  /\ tr' = [tr EXCEPT ![n] = IF n \in pe /\ @ \in {"fly", "clr"} THEN "gone" ELSE @]
  /\ UNCHANGED <<s, nx, own, ext, said, kn, land, ok, irr, pz, nf, pe, en, re, rev, hre, flag>>
Same(n) == {m \in land : ext[m] = ext[n]}
Probed(n) == /\ "probe" \in Acts /\ n = s.n /\ n \in el /\ Same(n) = {} /\ nf' = nf \cup {n}
             /\ U1 /\ UNCHANGED <<s, ok, el, tel, hre, flag>>
Set(q) == q # s /\ s' = q /\ U1 /\ UNCHANGED <<ok, nf, el, tel>>
Ledger == /\ UNCHANGED <<hre, flag>>
          /\ \/ /\ s.st \in {"started", "parked"} /\ Class = "probe" /\ "probe" \in Acts
                /\ Gone(s.n) /\ s.n \in el /\ s.n \in nf /\ Set([s EXCEPT !.st = "reopened"])
             \/ s.st = "started" /\ Class = "idem" /\ Set([s EXCEPT !.st = "reopened"])
             \/ "park" \in Acts /\ s.st = "started" /\ Set([s EXCEPT !.st = "parked"])
             \/ "fail" \in Acts /\ s.st = "started" /\ Set(Settled(s, "perm", s.n))
Resolve == /\ "hreopen" \in Acts /\ s.st = "parked" /\ hre < 1 /\ hre' = hre + 1    \* he may be wrong: said so
           /\ Set([s EXCEPT !.st = "reopened", !.g = @ + 1]) /\ UNCHANGED flag
CatchUp(n) == /\ "catchup" \in Acts
              /\ n \in land \/ (Store = "none" /\ Reads) \/ (Reads /\ kn[n] <= Level(EFFECT))
              /\ Succ(n) /\ flag' = flag \cup (IF own[n] = "honest" /\ n \notin land THEN {"effect"} ELSE {})
              /\ said' = [said EXCEPT ![n] = IF n \in land THEN Least(@, EFFECT) ELSE @]
              /\ kn' = [kn EXCEPT ![n] = IF n \in land THEN Least(@, Level(EFFECT)) ELSE @]
              /\ UNCHANGED <<nx, tr, own, ext, land, ok, irr, pz, nf, el, tel, pe, en, re, rev, hre>>
U2 == UNCHANGED <<s, nx, tr, own, ext, said, kn, land, ok, irr, nf, el, tel, pe, en, re, rev, hre, flag>>
Pause == "pause" \in Acts /\ pz = "off" /\ pz' = "on" /\ U2
Resume == pz \in {"on", "lifted"} /\ pz' = "over" /\ U2
(******************************** the forger **********************************)
Says(n, w) == n < nx /\ (Words = "off" \/ kn[n] <= Level(w))
Lie(n, w, what) == flag' = flag \cup (IF own[n] = "honest" /\ ~w THEN {what} ELSE {})
U3 == UNCHANGED <<nx, tr, own, ext, said, kn, land, ok, irr, pz, nf, el, tel, pe, en, rev, hre>>
ForgeReport(n) ==
  \/ Says(n, NONE) /\ (Retry(n) \/ Perm(n)) /\ Lie(n, tr[n] = "none", "none") /\ U3 /\ UNCHANGED re
  \/ Says(n, EFFECT) /\ Succ(n) /\ Lie(n, n \in land, "effect") /\ U3 /\ UNCHANGED re
  \/ /\ n \notin re /\ n < nx /\ (Doubt = "none" \/ Says(n, NOMORE)) /\ re' = re \cup {n}
     /\ Lie(n, n \in pe \/ tr[n] \in {"eff", "none", "gone"}, "nomore") /\ U3 /\ UNCHANGED s
Signs(ty) == Writer(ty) \in Corrupt
Forges(ty) == ty \in Unsigned \/ (Signs(ty) /\ (Writer(ty) \notin rev \/ Revoked = "counts"))
Marked(ty) == flag' = flag \cup (IF Signs(ty) THEN {} ELSE {ty})
              \cup (IF ty \notin Unsigned /\ Writer(ty) \in rev THEN {"revoked"} ELSE {})
F(q) == q # s /\ s' = q /\ UNCHANGED <<ok, irr, pz, nf, en>>
U4 == UNCHANGED <<nx, tr, own, ext, said, kn, land, el, tel, pe, re, rev, hre>>
Forge(ty) ==
  /\ Forges(ty) /\ Marked(ty) /\ U4
  /\ CASE ty = "permit" -> /\ s.g \notin {p[1] : p \in ok} /\ UNCHANGED <<s, irr, pz, nf, en>>
                           /\ ok' = ok \cup {<<s.g, IF Signs(ty) THEN "ledger" ELSE "forger">>}
       [] ty = "reopen" -> s.st \in {"started", "parked"} /\ F([s EXCEPT !.st = "reopened"])
       [] ty = "park" -> s.st = "started" /\ F([s EXCEPT !.st = "parked"])
       [] ty = "settle" -> s.st \in {"started", "parked", "reopened"} /\ F(Settled(s, "perm", s.n))
       [] ty = "ended" -> \E n \in 1..(nx-1) : n \notin en /\ en' = en \cup {n} /\ UNCHANGED <<s, ok, irr, pz, nf>>
       [] ty = "probed" -> \E n \in 1..(nx-1) : n \notin nf /\ n \in el /\ nf' = nf \cup {n} /\ UNCHANGED <<s, ok, irr, pz, en>>
       [] ty = "resume" -> pz = "on" /\ pz' = "lifted" /\ UNCHANGED <<s, ok, irr, nf, en>>
       [] ty = "plan" -> irr /\ irr' = FALSE /\ UNCHANGED <<s, ok, pz, nf, en>>    \* the call as one that can be undone
ForgeRetry == /\ Via = "any" /\ Forges("settle") /\ \E n \in s.live : Retry(n) /\ Lie(n, tr[n] = "none", "none") /\ U3 /\ UNCHANGED re
Revoke(w) == w \in Corrupt \ rev /\ w \in {"ledger", "planner", "prober"} /\ rev' = rev \cup {w}
             /\ UNCHANGED <<s, nx, tr, own, ext, said, kn, land, ok, irr, pz, nf, el, tel, pe, en, re, hre, flag>>
Next == \/ Start \/ StartForged \/ Permit \/ Ledger \/ Resolve \/ Pause \/ Resume \/ ForgeRetry
        \/ \E n \in N : Run(n) \/ Land(n) \/ Under(n) \/ Finish(n) \/ Raise(n) \/ Die(n) \/ Elapse(n) \/ Probed(n) \/ CatchUp(n) \/ ForgeReport(n)
        \/ \E ty \in Types : Forge(ty)
        \/ \E w \in Corrupt : Revoke(w)
Spec == Init /\ [][Next]_vars

(******************************** properties **********************************)
Effects == IF Class = "idem" THEN {ext[n] : n \in land} ELSE land
Once == Cardinality(Effects) <= 1 + hre                     \* at most one effect, and one more for a person's retry
Permitted == "permission" \notin flag                       \* nothing starts that the ledger has not permitted
Held == "pause" \notin flag                                 \* nor behind a pause
OwnNone == "none" \notin flag                               \* that it took no effect, only the try itself has said
OwnEffect == "effect" \notin flag                           \* ... that it took effect, too
OwnEnd == "nomore" \notin flag                              \* ... that it can act no more, too
ByWriter == flag \cap Types = {}                            \* all else is by whom the table names
Voided == "revoked" \notin flag                             \* nothing counts that a key signed behind its revocation
\* reachability: each must be violated
NvTwice == ~(hre = 0 /\ Cardinality(land) = 1 /\ nx > 2 /\ \E n \in land : n > 1)
NvForged == ~(\E n \in N : own[n] = "forger" /\ s.by = n)
NvRevoked == ~(rev # {} /\ \E n \in land : n > 1)
=============================================================================
