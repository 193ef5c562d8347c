------------------------------- MODULE Births -------------------------------
(* Where a job's birth counts, and who comes back: planners that write late, services that restart at any
   mark that was ever committed, and a forger who lays any birth there once more, to the byte.  Offsets: the
   record at i has i-1 before it; as_of is how many its writer knew of.  marks: up to where some service needed
   nothing any more; that passes no live job's birth.  What it commits lies Reach below, and not below where it
   began to read: that may be anywhere, where the log was cut. *)
EXTENDS Naturals, Sequences, FiniteSets
CONSTANTS    \* the first value named is the rule; the others are weaker
  Jobs, Parts, Home, MaxLog, Reach,   \* all jobs are of one partition: others have only what is laid there
  AsOf,      \* TRUE: a birth counts within reach of its as_of | FALSE: wherever it lies
  Part,      \* TRUE: and in the partition that it names | FALSE: in any
  Cut,       \* "committed": below what is committed, records may be deleted | "mark": below the mark
  Restart    \* "since": who restarts reads from Reach below its mark, and takes no birth whose writer had read
             \* less than he has not | "below": takes them | "mark": reads from the mark
VARIABLES log, marks, alive, sealed
vars == <<log, marks, alive, sealed>>
End(p) == Len(log[p])
Counts(p, i, r) == /\ r.k = "birth"
                   /\ AsOf => r.as_of < i /\ i <= r.as_of + Reach
                   /\ Part => r.part = p
Put(p, r) == End(p) < MaxLog /\ log' = [log EXCEPT ![p] = Append(@, r)]
Init == log = [p \in Parts |-> <<>>] /\ marks = [p \in Parts |-> {0}] /\ alive = {} /\ sealed = {}
\* a planner that had read up to a, where the job was not born yet; others may have written much since
Birth(j, a) ==
  LET r == [k |-> "birth", j |-> j, as_of |-> a, part |-> Home] IN
  /\ a <= End(Home) /\ \A i \in 1..a : ~(log[Home][i].j = j /\ Counts(Home, i, log[Home][i]))
  /\ Put(Home, r)
  /\ alive' = IF j \in sealed \/ ~Counts(Home, End(Home) + 1, r) THEN alive ELSE alive \cup {j}
  /\ UNCHANGED <<marks, sealed>>
Seal(j) == /\ j \in alive /\ Put(Home, [k |-> "seal", j |-> j, as_of |-> 0, part |-> Home])
           /\ alive' = alive \ {j} /\ sealed' = sealed \cup {j} /\ UNCHANGED marks
Other(p) == Put(p, [k |-> "other", j |-> "none", as_of |-> 0, part |-> p]) /\ UNCHANGED <<marks, alive, sealed>>
\* the forger; of a job that lives or is over: one that is to come he has nothing of
Again(p, i) == /\ log[Home][i].k = "birth" /\ log[Home][i].j \in alive \cup sealed
               /\ Put(p, log[Home][i]) /\ UNCHANGED <<marks, alive, sealed>>
First(j) == CHOOSE i \in 1..End(Home) : /\ log[Home][i].j = j /\ Counts(Home, i, log[Home][i])
                                        /\ \A h \in 1..(i - 1) : ~(log[Home][h].j = j /\ Counts(Home, h, log[Home][h]))
MarkTo(p, m) == /\ m \in 1..End(p) /\ m \notin marks[p] /\ (p = Home => \A j \in alive : First(j) > m)
                /\ marks' = [marks EXCEPT ![p] = @ \cup {m}] /\ UNCHANGED <<log, alive, sealed>>
Next == \/ \E j \in Jobs : Seal(j) \/ \E a \in 0..MaxLog : Birth(j, a)
        \/ \E p \in Parts : Other(p) \/ \E i \in 1..MaxLog : MarkTo(p, i) \/ (i <= End(Home) /\ Again(p, i))
Spec == Init /\ [][Next]_vars
Start(m) == IF Restart = "mark" THEN m ELSE IF m > Reach THEN m - Reach ELSE 0
\* who begins to read at s: the jobs that it takes to be live; a name that it has read it keeps
FoldFrom(p, s) ==
  LET F[i \in s..End(p)] ==
        IF i = s THEN [live |-> {}, known |-> {}]
        ELSE LET f == F[i - 1]
                 r == log[p][i]
             IN IF Counts(p, i, r) /\ r.j \notin f.known
                THEN [live |-> IF Restart = "since" /\ r.as_of < s THEN f.live ELSE f.live \cup {r.j},
                      known |-> f.known \cup {r.j}]
                ELSE IF r.k = "seal" THEN [live |-> f.live \ {r.j}, known |-> f.known] ELSE f
  IN F[End(p)]
Fold(p, m) == FoldFrom(p, Start(m))
\* nobody takes a job that is over for one that lives, nor one for a job of another partition
Once == \A p \in Parts : \A m \in marks[p] : Fold(p, m).live \subseteq (IF p = Home THEN alive ELSE {})
\* and everybody knows those that live
Known == \A m \in marks[Home] : alive \subseteq Fold(Home, m).live
\* the same for who began at s, and restarts at what it had committed when it needed nothing below m any more
OnceFrom == \A p \in Parts : \A s \in 0..End(p) : FoldFrom(p, s).live \subseteq (IF p = Home THEN alive ELSE {})
Larger(a, b) == IF a > b THEN a ELSE b
KnownFrom == \A s \in 0..End(Home), m \in marks[Home] : m >= s =>
  FoldFrom(Home, s).live \subseteq FoldFrom(Home, Larger(IF Cut = "mark" THEN m ELSE Start(m), s)).live
NvLate == ~(\E j \in alive : First(j) > 1 /\ \E i \in 1..(First(j) - 1) : log[Home][i].j = j)
NvAgain == ~(\E j \in sealed : \E i \in (First(j) + 1)..End(Home) : log[Home][i].k = "birth" /\ log[Home][i].j = j)
=============================================================================
