"""What the report says between its tables."""

from __future__ import annotations

from typing import Final

HEAD: Final = """
# Evaluation

Written by `make eval`; nothing here is typed by hand but the first scores under "Blind rounds", which
cannot be measured again. All runs come in as OTLP, through the analyzer of `recloser analyze` with its
default settings. An alarm is a finding of severity warning or critical whose kind says that a run is
stuck: doom_loop, flail, retry_storm, cascade, no_progress.

**How to read it.** Each set is cut in two by the SHA-256 of a run's id, *tuned* and *reported*; *all* is
both together. The halves were meant to keep tuning and reporting apart, and they did not: thresholds were
tuned with both halves of the shared cases, labels and sets in view. The reported half is no better than
the other, and the figures of shared cases and labels are an upper bound. The honest measure, for runs
that nobody has seen, is the first score of each blind round, below; the whole sets tell how much is
alarmed at all. Shares stand with their 95 % interval (Wilson). *Baselines* are rules of a line,
whose numbers were chosen while looking at the shared sets too; *peers* are rules of other systems, written
anew from descriptions of them. Both run over the same calls and know neither kinds nor severities. Cases
are re-told from public reports, labels are of two blind readers, and the judge of a whole set is its
own: tests that pass, a reward, a model. A run that was stuck for a while can come to a good end, so an
alarm on a good run is not always a false one.
"""

TARGETS: Final = """
## What must be true

Counts are of both halves together. Of a share, the reported half and both together must be within the
bound.
"""

CASES: Final = """
## Cases

Runs of public reports, re-told. *In time*: the first alarm of a stuck run came at or before the call by
which a reader would say so, and not too early. Traps are healthy runs that look suspicious. *Ever*:
alarmed at all. *Precision*: of the runs alarmed, those that are stuck.
"""

BLIND: Final = """
The same of cases in `tests/testdata/cases/blind.jsonl`, constructed by somebody who had not read the
detectors, as they are scored today, after tuning:
"""

SECOND: Final = """
And of `tests/testdata/cases/blind-second.jsonl`, by another such writer, today too:
"""

ROUNDS: Final = """
## Blind rounds

Cases and labels by writers and readers who had never looked at the detectors. The first scores were
taken before anybody who writes a detector had looked at them: they are the estimate for runs that nobody
has seen, those of round 3 above all, because it came last. After the first score both halves of the
cases and of the labels of round 2 were looked at, and rules were made more general; what round 3 missed
led to one general change, after which 32 of its 36 were alarmed. Of the second cases 46 of the 47 in
time had a right kind, and 2 were alarmed too early. The labelled runs are of the same data sets as all
others here: how it is with agents of quite another kind, nobody has measured.
"""

FURTHER: Final = """
The labels today, by round. Each run was labelled by one reader, so *delay* and *early* are from that
reader's call alone, and nothing is scored on runs that the reader calls contested. Runs were picked for
reading by how much they repeat and fail: the share of stuck runs is not that of a fleet.
"""

CASES_BESIDE: Final = """
Beside baselines and peers, of the shared cases, the stuck runs alarmed in time and the traps alarmed:
"""

LABELS: Final = """
## Labels

Real trajectories that two readers labelled blind. Where they disagree on stuck or healthy nothing is
scored. *Delay* is in calls from the call at which the later reader says so, negative before both;
*early* counts alarms more than three calls before both.
"""

BY_KIND: Final = """
By kind, all of them. The first three columns are of the runs labelled so: alarmed with any kind; alarmed
first with a kind that is right; the delay. The last two are of the first alarms that say so: those on
runs that are stuck at all, and those whose kind is right.
"""

SETS: Final = """
## Whole sets

Share of runs with an alarm. *Runs* and the median call of the first alarm are of both halves.
"""

KINDS: Final = """
## Every kind

All that was said, notes (`info`) and kinds that speak of single calls included. A finding counts once
for each severity that it had.
"""

BESIDE: Final = """
## Beside baselines and peers

Share of runs with an alarm.
"""

SAVINGS: Final = """
## After the first alarm

What a stop at the first alarm would have saved: the calls made after it, and the tokens of the model
messages before them where tokens were recorded. Where the set's own judge found the runs good, it is
what a stop would have cost: they would not have come to their end.
"""

PAIRS: Final = """
## Human labels of neighbouring calls

The authors of a study (arXiv 2506.18824, sola_st) labelled pairs of neighbouring calls. A pair labelled
Repetition repeats; an episode is a stretch with at least two of them, no two in succession more than two
pairs apart. An alarm is right when at least two pairs within its streak, from its first call to the call
that alarms, repeat; an episode is found when an alarm's streak shares two such pairs with it.
"""

SOFT: Final = """
## Soft failures

Calls that were reported ok although what they say is a failure, as each call is read before any
detector. *Found* is of the error messages whose call was reported ok; *rightly* is of the error messages
found, those whose call was reported ok (the others were reported as failures, so that nothing was to be
found out).
"""

SOFT_RATES: Final = """
Calls read as soft failures among those reported ok; nobody has labelled them all.
"""

ERRORS: Final = """
## Errors

Classes of the real error messages, each told by a model that has seen no message of the same trajectory.
The rules were written by people who had read messages, and counting them all flatters them: the headline
is of those rules only that a message outside the fold, or a vendor's documented one, supports. Messages
of a data set that is judged by all others tell how it is with systems never seen. The macro-F1 is over
classes of five or more messages.
"""
