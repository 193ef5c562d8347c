------------------------------- MODULE Certs -------------------------------
(* What a signature in a job's log counts for: roots, certificates, revocations, and what is signed
   (docs/adr/0009-signed-records.md).  The log is in here, as readers fold it that differ in all that the log
   does not say: their clock, the roots that they are configured for, what they have read of a second source.
   The forger has a root and a key of his own (no certificate of the installation's), one stolen key, and every
   record that an honest key has ever signed, wherever. *)
EXTENDS Naturals, Sequences
CONSTANTS      \* the first value named is the rule; the others are weaker
  MaxLog,
  Bound,       \* what is signed beside the payload: {"installation","topic","type","job","born"}; a SUBSET of it
  Root,        \* the root that counts is "pinned" by the birth, of those that a reader knows | "told": by the birth alone
               \* | "known": any that a reader knows
  Unknown,     \* a root that a reader doesn't know "stops" the job there | "voids": its records are void
  Ends,        \* whether a certificate is over is nothing to the fold: "audited" | "clock": by the reader's
  Certified,   \* certificates are "carried" by the job's own records | "table": in another topic
  Revoked      \* a revocation counts from its place in the job's "log" | "table": as a reader has read of another topic
               \* | "whole": from the birth on, wherever it lies in the log
VARIABLES log
Contexts == {"here", "installation", "topic", "type", "job", "born"}
Keys == {"own", "stolen", "forger"}
Records == [ty : {"born"}, root : {"old", "new", "forger"}]
           \cup [ty : {"cert"}, key : Keys, root : {"old", "new", "forger"}]
           \cup [ty : {"act"}, key : Keys, of : Contexts] \cup [ty : {"revoked"}]
\* who can make it: the installation's roots certify and revoke, but nothing of the forger's
Makes(r) == CASE r.ty = "cert" -> (r.key = "forger") = (r.root = "forger")
              [] r.ty = "act" -> r.key # "own" => r.of = "here"
              [] OTHER -> TRUE
Births == {i \in 1..Len(log) : log[i].ty = "born"}
Append1(r) == /\ Len(log) < MaxLog /\ Makes(r) /\ log' = Append(log, r)
              /\ (log = <<>>) = (r.ty = "born")          \* later births are void: left out
Init == log = <<>>
Next == \E r \in Records : Append1(r)
Spec == Init /\ [][Next]_log
(********************************** readers ***********************************)
Readers == [known : {{"old"}, {"new"}, {"old", "new"}}, late : BOOLEAN, table : BOOLEAN]
Pinned == log[1].root
Counts(v, root) == CASE Root = "pinned" -> root = Pinned /\ root \in v.known
                     [] Root = "told" -> root = Pinned
                     [] Root = "known" -> root \in v.known
Stops(v) == Unknown = "stops" /\ Root = "pinned" /\ Pinned \notin v.known
Cert(v, k, i) == \/ \E j \in 1..(i-1) : log[j].ty = "cert" /\ log[j].key = k /\ Counts(v, log[j].root)
                 \/ Certified = "table" /\ v.table /\ k # "forger"
Ended(v) == Ends = "clock" /\ v.late
Void(v, i) == /\ log[i].key = "stolen"
              /\ \/ Revoked = "table" /\ v.table
                 \/ Revoked = "log" /\ \E j \in 1..(i-1) : log[j].ty = "revoked"
                 \/ Revoked = "whole" /\ \E j \in 1..Len(log) : log[j].ty = "revoked"
Here(i) == log[i].of = "here" \/ log[i].of \notin Bound
Acts(v) == {i \in 2..Len(log) : log[i].ty = "act" /\ Here(i) /\ Cert(v, log[i].key, i) /\ ~Ended(v) /\ ~Void(v, i)}
Judging == IF log = <<>> THEN {} ELSE {v \in Readers : ~Stops(v)}
(******************************** properties **********************************)
Agree == \A v, w \in Judging : Acts(v) = Acts(w)                              \* folds of a prefix agree
Genuine == \A v \in Judging : \A i \in Acts(v) : log[i].key # "forger" /\ log[i].of = "here"
VoidBehind == \A v \in Judging : \A i \in Acts(v) : log[i].key = "stolen" => ~\E j \in 1..(i-1) : log[j].ty = "revoked"
Kept == [][\A v \in Readers : (log # <<>> /\ ~Stops(v)) => Acts(v) \subseteq Acts(v)']_log   \* what has counted, counts
NvActs == ~(\E v \in Judging : \E i, j \in Acts(v) : i # j /\ log[i].key = "stolen")
=============================================================================
