-------------------------------- MODULE Mark -------------------------------
(* Marks, snapshots and deletion: who may judge a job after a restart.  One partition, one service.
   Offsets only: a snapshot of job j at q is the exact fold of j's records <= q.  A reader may
   load ANY snapshot that was ever written (or none) and ANY mark that was ever persisted.  A
   zombie planner may write an old snapshot again, also after the job's tombstone. *)
EXTENDS Naturals, FiniteSets
CONSTANTS      \* the first value named is the rule; the others are weaker
  Jobs, MaxLog,
  Snapshots,   \* planners write snapshots; FALSE: a reader folds every job from its birth
  StartRule,   \* "min": from the least of mark and the loaded as_of | "mark"
  GapRule,     \* "error" | "jump" (auto_offset_reset)
  BirthCheck,  \* TRUE: what was folded from behind a job's birth does not judge it
  MarkRule,    \* "loaded": passes only jobs that are sealed or in a loaded snapshot | "any"
  DelRule,     \* "asof": below the mark and every snapshot still in force | "mark"
  Zombie,      \* a zombie planner may write an old snapshot again
  CompactKey   \* "as_of": record key = job and as_of, the largest counts, none of a sealed job does |
               \* "job": compaction keeps the last one written
VARIABLES log, birth, sealed, ever, cur, marks, lo
vars == <<log, birth, sealed, ever, cur, marks, lo>>
Min(A) == CHOOSE a \in A : \A b \in A : a <= b
Max(A) == CHOOSE a \in A : \A b \in A : a >= b
Init == /\ log = 0 /\ birth = [j \in Jobs |-> 0] /\ sealed = {} /\ ever = [j \in Jobs |-> {}]
        /\ cur = [j \in Jobs |-> 0] /\ marks = {0} /\ lo = 0
Born(j) == birth[j] = 0 /\ log < MaxLog /\ log' = log + 1 /\ birth' = [birth EXCEPT ![j] = log + 1]
           /\ UNCHANGED <<sealed, ever, cur, marks, lo>>
Rec == log < MaxLog /\ log' = log + 1 /\ (\E j \in Jobs : birth[j] # 0) /\ UNCHANGED <<birth, sealed, ever, cur, marks, lo>>
Seal(j) == /\ birth[j] # 0 /\ j \notin sealed /\ sealed' = sealed \cup {j} /\ cur' = [cur EXCEPT ![j] = 0]  \* tombstone
           /\ UNCHANGED <<log, birth, ever, marks, lo>>
\* a load: what the reader took of each job's snapshots, 0 = none
Cur == [j \in Jobs |-> IF CompactKey = "as_of" THEN IF j \in sealed \/ ever[j] = {} THEN 0 ELSE Max(ever[j]) ELSE cur[j]]
Loads == {f \in [Jobs -> 0..MaxLog] : \A j \in Jobs : f[j] \in ever[j] \cup {0}}
Begin(m, f) == LET q == {f[j] : j \in {i \in Jobs : f[i] # 0 /\ ~(CompactKey = "as_of" /\ i \in sealed)}}
               IN IF StartRule = "min" THEN Min({m} \cup q) ELSE m
From(m, f) == IF GapRule = "jump" THEN Max({lo, Begin(m, f)}) ELSE Begin(m, f)
Reads(m, f) == From(m, f) >= lo
Judges(j, m, f) == birth[j] # 0 /\ Reads(m, f) /\ (f[j] # 0 \/ birth[j] > From(m, f) \/ ~BirthCheck)
Exact(j, m, f) == From(m, f) >= lo /\ IF f[j] # 0 THEN From(m, f) <= f[j] ELSE birth[j] > From(m, f)
\* a planner snapshots only a fold that is complete (its own load lets it judge j)
Snap(j) == /\ Snapshots /\ birth[j] # 0 /\ j \notin sealed
           /\ Judges(j, Max(marks), Cur) /\ log > Cur[j] /\ cur' = [cur EXCEPT ![j] = log] /\ ever' = [ever EXCEPT ![j] = @ \cup {log}]
           /\ UNCHANGED <<log, birth, sealed, marks, lo>>
ZSnap(j) == /\ Zombie /\ \E q \in ever[j] : q # cur[j] /\ cur' = [cur EXCEPT ![j] = q]
            /\ UNCHANGED <<log, birth, sealed, ever, marks, lo>>
MarkTo(m) == /\ m \in 1..log /\ m \notin marks
             /\ \E f \in Loads : \A j \in Jobs : birth[j] # 0 /\ birth[j] <= m =>
                  \/ j \in sealed \/ MarkRule = "any"
                  \/ MarkRule = "loaded" /\ f[j] # 0
             /\ marks' = marks \cup {m} /\ UNCHANGED <<log, birth, sealed, ever, cur, lo>>
Live == {j \in Jobs : birth[j] # 0 /\ j \notin sealed}
Delete(m) == /\ m > lo /\ m <= Max(marks)
             /\ DelRule = "asof" => \A j \in Live : birth[j] > m \/ (Cur[j] # 0 /\ m <= Cur[j])
             /\ lo' = m /\ UNCHANGED <<log, birth, sealed, ever, cur, marks>>
Next == Rec \/ (\E j \in Jobs : Born(j) \/ Seal(j) \/ Snap(j) \/ ZSnap(j)) \/ \E m \in 1..MaxLog : MarkTo(m) \/ Delete(m)
Spec == Init /\ [][Next]_vars
\* safety: whoever judges, judges from the exact fold (any load, any mark)
ExactFold == \A m \in marks, f \in Loads, j \in Live : Judges(j, m, f) => Exact(j, m, f)
\* nothing is stranded: a fresh reader with the newest mark and what the compacted topic holds can judge every live job
Fresh == LET m == Max(marks) IN \A j \in Live : Judges(j, m, Cur)
NvDel == ~(\E j \in Live : birth[j] <= lo /\ lo < Cur[j])
=============================================================================
