------------------------------- MODULE Claim -------------------------------
(* One idempotency key with its log, docs/guarantees.md, "The log is the lock".
   Abstraction (sound over-approximation for safety):
   - One TRY = one nonce = one executor process attempt. Any number of executor
     instances/zombies; a crash or an endless pause = the try takes no more steps,
     a resumed zombie = the try takes its next step arbitrarily late.
   - The append of `started` and its read-back are one step: the verdict of the
     read-back is a function of the prefix ending at the own record.
   - Ledger instances are stateless: a ledger may act at any time on the state of
     ANY prefix p (lagging fold, zombie, wrong clock: every lease may be believed
     expired at once).  Grants are implied the same way: a try may use the grant
     that any ledger could ever have issued from any prefix (late, duplicate,
     same token twice, redelivered).
   - Redis loss: catch-up is optional and usable at any later time after the effect
     (read before the loss, appended after).  Hence every loss pattern is included. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC
CONSTANTS      \* the first value named is the rule; the others are weaker
  Keys, MaxN, MaxLog, MaxTok,
  Idem,        \* TRUE: the outside dedups by (key, external attempt id)
  Policy,      \* SUBSET {"catchup","verified","fail","park","reopen","hfail","hreopen","retry","perm"}
  ReadBack,    \* TRUE: run only when the own `started` was read back as the winner
  Horizon,     \* "birth": judge only what was folded from birth on | "q": from before the grant's place on | "off"
  FoldStart,   \* executors fold from: "zero" | "W" (the mark) | "any"
  LedgerFold,  \* ledgers fold from: "zero" | "W"
  RedisClaim,  \* FALSE | TRUE: a claim in Redis instead of the read-back
  ExtRule,     \* "live": the external key changes only when no try is live | "retry": at each retry | "gen": at each reopen
  ExtSrc,      \* "fold" | "grant": who says the external key
  TokenRule,   \* "EQ" | "GE"
  LateRule,    \* "anyLive": a success of any live try settles | "reopened" | "current"
  NameNonce,   \* TRUE: what judges a try names its nonce
  NonceReuse,  \* FALSE: a restarted process takes no old nonce up
  BirthMode,   \* "zero": keys exist from offset 0 | "rec": a key is born by a record in E |
               \* "dup": a forgotten key may be born again
  KeepVoid     \* FALSE: void records are not put in E (they do not change the fold)
VARIABLES E, S, W, tr, ky, ext, cnt, claim, nx, birth
vars == <<E, S, W, tr, ky, ext, cnt, claim, nx, birth>>
N == 1..MaxN
Init0 == [st |-> "none", n |-> 0, t |-> 1, x |-> 1, live |-> {}, out |-> "-", r |-> 0, sure |-> FALSE]
Open(s) == s.st \in {"none","reopened"}
TokOK(t, s) == IF TokenRule = "EQ" THEN t = s.t ELSE t >= s.t

(************************** the pure function apply **************************)
Settle(s, o, r, sure) == [s EXCEPT !.st = "settled", !.out = o, !.r = r, !.sure = sure]
Apply(s, e) ==
  IF s.st = "settled" THEN s
  ELSE CASE e.ty = "born" -> s
    [] e.ty = "started" ->
         IF Open(s) /\ TokOK(e.t, s)
         THEN [s EXCEPT !.st = "started", !.n = e.n, !.t = e.t, !.live = @ \cup {e.n}]
         ELSE s
    [] e.ty = "finished" /\ e.out = "success" ->
         LET ok == IF ~NameNonce THEN s.st # "none"
                   ELSE CASE LateRule = "anyLive"  -> e.n \in s.live
                          [] LateRule = "reopened" -> e.n = s.n /\ e.n \in s.live
                          [] LateRule = "current"  -> e.n = s.n /\ s.st \in {"started","parked"}
         IN IF ok THEN Settle(s, "success", e.r, TRUE) ELSE s
    [] e.ty = "finished" /\ e.out = "perm" /\ e.by = "exec" ->
         IF (e.n = s.n \/ ~NameNonce) /\ s.n \in s.live /\ s.st # "none"
         THEN Settle(s, "perm", 0, s.live = {e.n}) ELSE s
    [] e.ty = "finished" /\ e.out = "perm" /\ e.by = "human" ->
         IF (e.n = s.n \/ ~NameNonce) /\ s.st = "parked" THEN Settle(s, "perm", 0, FALSE) ELSE s
    [] e.ty = "finished" /\ e.out = "perm" /\ e.by = "ledger" ->
         IF (e.n = s.n \/ ~NameNonce) /\ s.st \in {"started","reopened"}
         THEN Settle(s, "perm", 0, s.st = "reopened" /\ s.live = {}) ELSE s
    [] e.ty = "finished" /\ e.out = "retry" ->      \* only ever written by the try itself
         IF e.n \notin s.live /\ NameNonce THEN s
         ELSE LET lv == s.live \ {e.n} IN
           IF (e.n = s.n \/ ~NameNonce) /\ s.st \in {"started","parked"}
           THEN [s EXCEPT !.st = "reopened", !.t = @ + 1, !.live = lv,
                          !.x = CASE ExtRule = "live"  -> IF lv = {} THEN @ + 1 ELSE @
                                  [] ExtRule = "retry" -> @ + 1
                                  [] ExtRule = "gen"   -> s.t + 1]
           ELSE [s EXCEPT !.live = lv]
    [] e.ty = "reopen" ->
         IF (e.n = s.n \/ ~NameNonce) /\ s.st = (IF e.by = "human" THEN "parked" ELSE "started")
         THEN [s EXCEPT !.st = "reopened", !.t = @ + 1, !.x = IF ExtRule = "gen" THEN s.t + 1 ELSE @]
         ELSE s
    [] e.ty = "park" ->
         IF (e.n = s.n \/ ~NameNonce) /\ s.st = "started" THEN [s EXCEPT !.st = "parked"] ELSE s

ApplyAll(sv, e) == [sv EXCEPT ![e.k] = Apply(@, e)]
RECURSIVE FoldFrom(_,_,_)
FoldFrom(sv, log, i) == IF i > Len(log) THEN sv ELSE FoldFrom(ApplyAll(sv, log[i]), log, i + 1)
S0 == [k \in Keys |-> Init0]
\* fold of the records f+1..p, blind to what came before f
Local(log, f, p) == IF f = 0 /\ p = Len(E) THEN S[p+1] ELSE FoldFrom(S0, SubSeq(log, f+1, p), 1)
Cur == S[Len(E)+1]
Prefixes == 0..Len(E)
Append1(e) ==
  LET s2 == ApplyAll(Cur, e) IN
  /\ Len(E) < MaxLog
  /\ KeepVoid \/ s2 # Cur
  /\ E' = Append(E, e) /\ S' = Append(S, s2)

Init == /\ E = <<>> /\ S = <<S0>> /\ W = 0 /\ nx = 1
        /\ tr = [n \in N |-> "no"] /\ ky = [n \in N |-> CHOOSE k \in Keys : TRUE]
        /\ ext = [n \in N |-> 0] /\ cnt = [n \in N |-> 0] /\ claim = [k \in Keys |-> 0]
        /\ birth = [k \in Keys |-> IF BirthMode = "zero" THEN 1 ELSE 0]

(******************************** executors **********************************)
\* ledger view that issued the grant: records g+1..p ; executor fold starts at f
LStarts == IF LedgerFold = "zero" THEN {0} ELSE {0, W}
EStarts == CASE FoldStart = "zero" -> {0} [] FoldStart = "W" -> {0, W} [] FoldStart = "any" -> 0..Len(E)
\* birth[k] = offset of the record that created k (no record about k precedes it); carried unchanged
\* by every message about k.  A fold that starts after it must not judge k at all.
HorizonOK(k, f, g, q) == CASE Horizon = "birth" -> f < birth[k] /\ g < birth[k]
                        [] Horizon = "q"     -> f <= q
                        [] Horizon = "off"   -> TRUE
LView(k, g) == { <<Local(E, g, p)[k], p>> : p \in g..Len(E) }
\* <<g, token, ext, q>>; of the grants that differ only in q the one with the largest q is kept:
\* the check f <= q accepts more with it
Grants(k) == UNION { LET V == { v \in LView(k, gg) : Open(v[1]) } IN
                { <<g, t, x, q>> \in {gg} \X (1..MaxTok) \X {v[1].x : v \in V} \X {v[2] : v \in V} :
                    /\ \E v \in V : TokOK(t, v[1]) /\ v[1].x = x /\ v[2] = q
                    /\ \A v \in V : TokOK(t, v[1]) /\ v[1].x = x => v[2] <= q } : gg \in LStarts }
Start(k) ==
  /\ nx \in N /\ birth[k] # 0
  /\ LET n == nx IN
     \E gr \in Grants(k) : \E f \in EStarts :
       LET e == [ty |-> "started", k |-> k, n |-> n, t |-> gr[2]]
       IN /\ HorizonOK(k, f, gr[1], gr[4])
          /\ Append1(e)
          /\ LET ls  == (IF f = 0 THEN S'[Len(E')+1] ELSE FoldFrom(S0, SubSeq(E', f+1, Len(E')), 1))[k]
                 ok  == IF RedisClaim THEN claim[k] = 0
                        ELSE IF ReadBack THEN ls.st = "started" /\ ls.n = n
                        ELSE TRUE
             IN /\ tr'  = [tr EXCEPT ![n] = IF ok THEN "clr" ELSE "void"]
                /\ ext' = [ext EXCEPT ![n] = IF ExtRule = "gen" THEN gr[2]
                                             ELSE IF ExtSrc = "fold" THEN ls.x ELSE gr[3]]
                /\ ky'  = [ky EXCEPT ![n] = k]
                /\ claim' = IF RedisClaim /\ ok THEN [claim EXCEPT ![k] = n] ELSE claim
                /\ nx' = nx + 1
                /\ UNCHANGED <<W, cnt, birth>>
ReStart(n) ==  \* a nonce derived from the grant, the process restarted
  /\ NonceReuse /\ tr[n] = "eff" /\ cnt[n] < 2
  /\ Cur[ky[n]].st = "started" /\ Cur[ky[n]].n = n
  /\ tr' = [tr EXCEPT ![n] = "clr"] /\ UNCHANGED <<E, S, W, ky, ext, cnt, claim, nx, birth>>
Run(n) ==
  /\ tr[n] = "clr"
  /\ \/ tr' = [tr EXCEPT ![n] = "eff"] /\ cnt' = [cnt EXCEPT ![n] = @ + 1]
     \/ "retry" \in Policy /\ tr' = [tr EXCEPT ![n] = "noR"] /\ cnt' = cnt
     \/ "perm"  \in Policy /\ tr' = [tr EXCEPT ![n] = "noP"] /\ cnt' = cnt
  /\ UNCHANGED <<E, S, W, ky, ext, claim, nx, birth>>
Res(n) == IF Idem THEN 100 + ext[n] ELSE n      \* a deduplicating outside gives one result per ext id
Finish(n) ==
  /\ tr[n] \in {"eff","noR","noP"}
  /\ Append1([ty |-> "finished", k |-> ky[n], n |-> n, by |-> "exec",
              out |-> CASE tr[n] = "eff" -> "success" [] tr[n] = "noR" -> "retry" [] OTHER -> "perm",
              r |-> IF tr[n] = "eff" THEN Res(n) ELSE 0])
  /\ UNCHANGED <<W, tr, ky, ext, cnt, claim, nx, birth>>

(***************************** ledgers and humans *****************************)
InDoubt(k, n, st) == \E p \in Prefixes : S[p+1][k].st = st /\ S[p+1][k].n = n
LedgerAct(k, n) ==
  /\ \/ /\ "catchup" \in Policy /\ tr[n] = "eff" /\ ky[n] = k
        /\ Append1([ty |-> "finished", k |-> k, n |-> n, by |-> "catchup", out |-> "success", r |-> Res(n)])
     \/ /\ "verified" \in Policy /\ InDoubt(k, n, "started")
        /\ \E m \in N : tr[m] = "eff" /\ ky[m] = k /\ ext[m] = ext[n]
             /\ Append1([ty |-> "finished", k |-> k, n |-> n, by |-> "verified", out |-> "success", r |-> Res(m)])
     \/ /\ "fail" \in Policy /\ (InDoubt(k, n, "started") \/ InDoubt(k, n, "reopened"))
        /\ Append1([ty |-> "finished", k |-> k, n |-> n, by |-> "ledger", out |-> "perm", r |-> 0])
     \/ /\ "reopen" \in Policy /\ InDoubt(k, n, "started")
        /\ Append1([ty |-> "reopen", k |-> k, n |-> n, by |-> "ledger"])
     \/ /\ "park" \in Policy /\ InDoubt(k, n, "started")
        /\ Append1([ty |-> "park", k |-> k, n |-> n])
     \/ /\ "hfail" \in Policy /\ InDoubt(k, n, "parked")
        /\ Append1([ty |-> "finished", k |-> k, n |-> n, by |-> "human", out |-> "perm", r |-> 0])
     \/ /\ "hreopen" \in Policy /\ InDoubt(k, n, "parked")
        /\ Append1([ty |-> "reopen", k |-> k, n |-> n, by |-> "human"])
  /\ UNCHANGED <<W, tr, ky, ext, cnt, claim, nx, birth>>
AdvanceW == /\ FoldStart = "W" \/ LedgerFold = "W"
            /\ \E p \in Prefixes : p > W /\ (\A k \in Keys : (birth[k] # 0 /\ birth[k] <= p) => S[p+1][k].st = "settled") /\ W' = p
            /\ UNCHANGED <<E, S, tr, ky, ext, cnt, claim, nx, birth>>
Born(k) == /\ \/ birth[k] = 0
              \/ BirthMode = "dup" /\ birth[k] <= W
           /\ Len(E) < MaxLog /\ E' = Append(E, [ty |-> "born", k |-> k]) /\ S' = Append(S, Cur)
           /\ birth' = [birth EXCEPT ![k] = Len(E) + 1]
           /\ UNCHANGED <<W, tr, ky, ext, cnt, claim, nx>>
RedisLoss == RedisClaim /\ claim' = [k \in Keys |-> 0] /\ claim # claim'
             /\ UNCHANGED <<E, S, W, tr, ky, ext, cnt, nx, birth>>
Next == \/ \E k \in Keys : Start(k) \/ Born(k)
        \/ \E n \in N : Run(n) \/ Finish(n) \/ ReStart(n)
        \/ \E k \in Keys, n \in N : n < nx /\ ky[n] = k /\ LedgerAct(k, n)
        \/ AdvanceW \/ RedisLoss
View == <<E, W, tr, ky, ext, cnt, claim, nx, birth>>
Spec == Init /\ [][Next]_vars

(******************************** properties **********************************)
RECURSIVE Sum(_)
Sum(A) == IF A = {} THEN 0 ELSE LET a == CHOOSE a \in A : TRUE IN cnt[a] + Sum(A \ {a})
Eff(k) == IF Idem THEN Cardinality({ext[n] : n \in {m \in N : cnt[m] > 0 /\ ky[m] = k}})
          ELSE Sum({m \in N : ky[m] = k})
AtMostOnce == \A k \in Keys : Eff(k) <= 1
ExtStable == \A n, m \in N :   \* the external key changes only when all
  (tr[n] \notin {"no","void"} /\ tr[m] \notin {"no","void"} /\ ky[n] = ky[m] /\ ext[n] < ext[m])
     => tr[n] = "noR"   \* earlier tries are known dead
FinalStable == \A i, j \in 1..Len(S) : \A k \in Keys :
  (i < j /\ S[i][k].st = "settled") => S[j][k] = S[i][k]
ClearSound == \A n \in N : tr[n] \notin {"no","void"} =>   \* who is cleared by its own fold won in the log
  \E i \in 1..Len(E) : E[i].ty = "started" /\ E[i].n = n /\ S[i+1][ky[n]].st = "started"
                       /\ S[i+1][ky[n]].n = n
SuccessTrue == \A k \in Keys : (Cur[k].st = "settled" /\ Cur[k].out = "success") =>
  \E n \in N : ky[n] = k /\ cnt[n] > 0 /\ Res(n) = Cur[k].r
SureFail == \A k \in Keys : (Cur[k].st = "settled" /\ Cur[k].out = "perm" /\ Cur[k].sure) =>
  \A n \in N : (ky[n] = k) => (cnt[n] = 0 /\ tr[n] # "clr")
OneRunner == \A n, m \in N : (tr[n] = "clr" /\ tr[m] = "clr" /\ ky[n] = ky[m]) => n = m
NoRunOpen == \A n \in N : tr[n] = "clr" => Cur[ky[n]].st # "none" /\ (Cur[ky[n]].st # "settled" => Cur[ky[n]].n = n)
FailMeansNone == \A k \in Keys : (Cur[k].st = "settled" /\ Cur[k].out = "perm") => Eff(k) = 0
\* a try whose `started` is valid in the log but which its own (partial) fold rejects: nobody will run it
NoSelfVoid == \A n \in N : tr[n] = "void" => ~\E i \in 1..Len(E) : E[i].ty = "started" /\ E[i].n = n /\ S[i+1][ky[n]].n = n
NonVacuousW == ~(W > 0 /\ \E n \in N : cnt[n] > 0 /\ birth[ky[n]] > W)   \* must be violated (reachability)
NonVacuousLate == ~(\E k \in Keys : Cur[k].st = "settled" /\ Cur[k].out = "success" /\ Cur[k].n = 2 /\ E[Len(E)].ty = "finished" /\ E[Len(E)].n = 1)
\* truth is not lost: an effect reported in the log by a validly started try, before any other settlement, is committed
NoLostTruth == \A i \in 1..Len(E) : (E[i].ty = "finished" /\ E[i].out = "success" /\ tr[E[i].n] = "eff") =>
  S[i+1][E[i].k].st = "settled"
=============================================================================
