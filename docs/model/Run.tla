-------------------------------- MODULE Run --------------------------------
(* A run of three nodes a -> b -> c of one job: c comes after b and uses a's result.  b and c have
   a key for each result of a; the outside may deduplicate (Idem).  The reductions of Job.tla hold
   here too.  A run is one process that hands on: finished(n) and started(n + 1) are one batch, at
   any time, also by a zombie; what it knows of earlier nodes is what its own tries returned
   (told), which need not be what the log settled. *)
EXTENDS Naturals, FiniteSets
CONSTANTS          \* the first value named is the rule; the others are weaker
  MaxN, Acts, Idem,
  After,           \* what a later started of a run names, and the fold checks to be settled by exactly that
                   \* nonce with exactly that result: "both": the node before it in the run and the nodes of the
                   \* run that it uses | "prev": only the node before it | "used": only what it uses | "off"
  Strict           \* TRUE: by nonce and result | FALSE: by nonce
VARIABLES s, nx, tr, ky, rs, ext, up, land
vars == <<s, nx, tr, ky, rs, ext, up, land>>
N == 1..MaxN
Keys == {"a", "b1", "b2", "c1", "c2"}
Node(k) == CASE k = "a" -> "a" [] k \in {"b1","b2"} -> "b" [] OTHER -> "c"
Of(nd) == {k \in Keys : Node(k) = nd}
Arg(k) == CASE k \in {"b1","c1"} -> 1 [] k \in {"b2","c2"} -> 2 [] OTHER -> 0
Key(nd, r) == CASE nd = "b" -> (IF r = 1 THEN "b1" ELSE "b2") [] nd = "c" -> (IF r = 1 THEN "c1" ELSE "c2")
Init == /\ s = [k \in Keys |-> [st |-> "none", n |-> 0, x |-> 1, live |-> {}, out |-> "-", r |-> 0, by |-> 0]]
        /\ nx = 1 /\ tr = [n \in N |-> "no"] /\ ky = [n \in N |-> "-"] /\ rs = [n \in N |-> 0]
        /\ ext = [n \in N |-> 0] /\ up = [n \in N |-> 0] /\ land = {}
(******************************** the fold ***********************************)
Settled(q, o, r, n) == [q EXCEPT !.st = "settled", !.out = o, !.r = r, !.by = n]
Succ(q, n, r) == IF q.st # "settled" /\ n \in q.live THEN Settled(q, "success", r, n) ELSE q
Retry(q, n) ==
  IF q.st = "settled" \/ n \notin q.live THEN q
  ELSE LET lv == q.live \ {n} IN
       IF n = q.n /\ q.st \in {"started","parked"}
       THEN [q EXCEPT !.st = "reopened", !.live = lv, !.x = IF lv = {} THEN @ + 1 ELSE @]
       ELSE [q EXCEPT !.live = lv]
Guard(v, k) == \A o \in Of(Node(k)) \ {k} : v[o].st = "none"
SettledBy(v, n) == /\ v[ky[n]].st = "settled" /\ v[ky[n]].out = "success" /\ v[ky[n]].by = n
                   /\ (Strict => v[ky[n]].r = rs[n])
Done(v, nd, r) == \E o \in Of(nd) : v[o].st = "settled" /\ v[o].out = "success" /\ (r = 0 \/ v[o].r = r)
\* the first try of the run that n belongs to and its node's place in it: who told a's result
Told(n) == IF ky[n] = "a" THEN n ELSE IF up[n] # 0 /\ ky[up[n]] = "a" THEN up[n] ELSE 0
AfterOK(v, k, n) ==
  /\ (After \in {"both","prev"} => SettledBy(v, n))
  /\ (After \in {"both","used"} /\ Told(n) # 0 => SettledBy(v, Told(n)))
(******************************* executors ***********************************)
Take(v, k, n0) == /\ s' = [v EXCEPT ![k].st = "started", ![k].n = nx, ![k].live = @ \cup {nx}]
                  /\ nx' = nx + 1 /\ ky' = [ky EXCEPT ![nx] = k] /\ ext' = [ext EXCEPT ![nx] = v[k].x]
                  /\ up' = [up EXCEPT ![nx] = n0] /\ UNCHANGED <<rs, land>>
Requested(k) == CASE k = "a" -> TRUE
                  [] Node(k) = "b" -> Done(s, "a", Arg(k))
                  [] OTHER -> Done(s, "a", Arg(k)) /\ Done(s, "b", 0)
StartGrant(k) == /\ nx \in N /\ Requested(k) /\ s[k].st \in {"none","reopened"} /\ Guard(s, k)
                 /\ Take(s, k, 0) /\ tr' = [tr EXCEPT ![nx] = "clr"]
Argument(n) == IF Told(n) # 0 THEN {rs[Told(n)]} ELSE {r \in {1, 2} : Done(s, "a", r)}
StartRun(n) ==
  /\ nx \in N /\ tr[n] = "eff" /\ Node(ky[n]) # "c"
  /\ \E r \in Argument(n) :
       LET k == Key(IF ky[n] = "a" THEN "b" ELSE "c", r)
           v == [s EXCEPT ![ky[n]] = Succ(@, n, rs[n])] IN
       /\ v[k].st = "none" /\ Guard(v, k) /\ AfterOK(v, k, n) /\ Take(v, k, n)
       /\ tr' = [tr EXCEPT ![nx] = "clr", ![n] = "done"]
Same(n) == {m \in land : Node(ky[m]) = Node(ky[n]) /\ ext[m] = ext[n]}
Results(n) == IF Idem /\ Same(n) # {} THEN {rs[m] : m \in Same(n)} ELSE IF ky[n] = "a" THEN {1, 2} ELSE {1}
Run(n) == /\ tr[n] = "clr"
          /\ \/ /\ land' = land \cup {n} /\ tr' = [tr EXCEPT ![n] = "eff"]
                /\ \E r \in Results(n) : rs' = [rs EXCEPT ![n] = r]
             \/ "retry" \in Acts /\ tr' = [tr EXCEPT ![n] = "noR"] /\ UNCHANGED <<land, rs>>
          /\ UNCHANGED <<s, nx, ky, ext, up>>
Finish(n) == /\ tr[n] \in {"eff","noR"} /\ tr' = [tr EXCEPT ![n] = "done"]
             /\ s' = [s EXCEPT ![ky[n]] = IF tr[n] = "eff" THEN Succ(@, n, rs[n]) ELSE Retry(@, n)]
             /\ UNCHANGED <<nx, ky, rs, ext, up, land>>
(**************************** ledgers and humans *****************************)
Set(k, q) == q # s[k] /\ s' = [s EXCEPT ![k] = q] /\ UNCHANGED <<nx, tr, ky, rs, ext, up, land>>
Ledger(k) ==
  \/ "fail" \in Acts /\ s[k].st \in {"started","reopened"} /\ Set(k, Settled(s[k], "perm", 0, s[k].n))
  \/ "reopen" \in Acts /\ s[k].st = "started" /\ Set(k, [s[k] EXCEPT !.st = "reopened"])
Truth(k, n) ==
  \/ "catchup" \in Acts /\ n \in land /\ ky[n] = k /\ Set(k, Succ(s[k], n, rs[n]))
  \/ "hsucc" \in Acts /\ \E r \in (IF k = "a" THEN {1, 2} ELSE {1}) : Set(k, Succ(s[k], n, r))
Next == \/ \E k \in Keys : StartGrant(k) \/ Ledger(k) \/ \E n \in N : Truth(k, n)
        \/ \E n \in N : StartRun(n) \/ Run(n) \/ Finish(n)
Spec == Init /\ [][Next]_vars
(******************************** properties *********************************)
FromCommitted == \A n \in 1..(nx-1) : ky[n] # "a" => Done(s, "a", Arg(ky[n]))   \* runs on what a settled with
InOrder == \A n \in 1..(nx-1) : Node(ky[n]) = "c" => Done(s, "b", 0)            \* c only when b is done
Eff(nd) == {n \in land : Node(ky[n]) = nd}
OneKey == \A nd \in {"a","b","c"} : Cardinality({ky[n] : n \in Eff(nd)}) <= 1
OneExt == \A nd \in {"a","b","c"} : Cardinality({ext[n] : n \in Eff(nd)}) <= 1
Once == \A nd \in {"a","b","c"} : Cardinality(Eff(nd)) <= 1
\* reachability: each must be violated
NvWhole == ~(\E n \in land : Node(ky[n]) = "c" /\ up[n] # 0 /\ up[up[n]] # 0)
NvTail == ~(\E n \in land : Node(ky[n]) = "c" /\ up[n] # 0 /\ up[up[n]] = 0)
NvZombie == ~(\E n \in land : up[n] # 0 /\ \E m \in N : m > up[n] /\ ky[m] = ky[up[n]])
=============================================================================
