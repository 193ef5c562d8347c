"""The planner's core: what it asks for, what it reports, and what it never says twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from aetheris.planner.core.decisions import Append, Joined, LoadArguments, RefusedSubmission, SubmissionConflict
from aetheris.protocol.base.canonical import digest
from aetheris.protocol.messages import events as ev
from aetheris.protocol.messages.commands import JobIndexEntry
from aetheris.protocol.messages.event_values import BlobRef, Decision, RejectReason
from aetheris.protocol.plan.graph import MAX_PLAN_BYTES, TaskGraph, check_graph
from tests.testkit.histories import JOB, TENANT, about, adopts, finished, graph, planned, sealed, started
from tests.testkit.planners import (
    CHAIN,
    PURE,
    WIDE,
    Planner,
    PlannerSurroundings,
    cancel,
    events_of,
    of_type,
    ran,
    requests,
    started_planner,
    submit,
)


class TestBirth:
    def test_one_group_then_index_and_request(self) -> None:
        planner = PlannerSurroundings().planner()
        group = planner.submit(submit(CHAIN), "cmd-9")
        assert isinstance(group, Append)
        made, planned = (one.event for one in group.facts)
        assert isinstance(made, ev.JobCreated)
        assert isinstance(planned, ev.PlanGenerated)
        assert made.caused_by == "cmd-9"
        assert made.plan == planned.task_graph == CHAIN
        assert planned.plan_hash == digest(CHAIN)
        planner.settle()
        assert events_of(planner.take()) == ["job_created", "plan_generated", ("a", "b", "c"), "index running"]

    def test_births_come_from_the_log(self) -> None:
        surroundings = PlannerSurroundings()
        other = ev.JobCreated(job_id="other", tenant=TENANT, submitted_by="x", request_hash="q")
        planner = surroundings.planner().happens(other)
        planner.submit(submit(CHAIN))
        planner.settle()
        (asked,) = requests(planner.take())
        assert (asked.body.birth, asked.body.as_of, asked.body.revision) == (1, 2, 0)
        assert surroundings.index[JOB].birth == 1
        assert surroundings.index[JOB].created_at == "2026-01-01T00:00:00Z"

    def test_a_repeat_is_nothing_before_and_after_the_fold(self) -> None:
        planner = PlannerSurroundings().planner()
        planner.submit(submit(CHAIN))
        assert planner.submit(submit(CHAIN), "cmd-2") is None
        planner.settle()
        assert planner.submit(submit(CHAIN), "cmd-3") is None

    def test_another_request_under_the_same_id_is_a_conflict(self) -> None:
        planner = started_planner(CHAIN)
        assert planner.submit(submit(WIDE, "other")) == SubmissionConflict()

    def test_a_job_that_only_the_index_knows_is_not_born_again(self) -> None:
        surroundings = PlannerSurroundings()
        planner = surroundings.planner()
        line = {"job_id": JOB, "birth": 3, "request_hash": "r", "status": "completed", "tenant": TENANT}
        surroundings.index[JOB] = JobIndexEntry.model_validate(line | {"submitted_by": "ann", "created_at": ""})
        assert planner.submit(submit(CHAIN)) is None
        assert planner.submit(submit(CHAIN, "other")) == SubmissionConflict()

    def test_a_late_second_birth_of_a_sealed_job_is_void(self) -> None:
        planner = started_planner(PURE).happens(*ran("a"), *ran("b"))
        planner.happens(sealed())
        planner.take()
        for event in planner.surroundings.log[:2]:
            planner.append(event, "zombie")
        planner.settle()
        assert [one for one in events_of(planner.take()) if not one.startswith("behind")] == ["birth_repeated"]
        assert [*planner.core.live()] == []

    def test_one_that_is_read_together_with_the_seal_is_void_too(self) -> None:
        planner = started_planner(PURE).happens(*ran("a"), *ran("b"))
        planner.take()
        planner.append(sealed(), "seal")
        for event in planner.surroundings.log[:2]:
            planner.append(event, "zombie")
        planner.settle()
        said = [one for one in events_of(planner.take()) if not one.startswith(("behind", "index"))]
        assert said == ["birth_repeated"]
        assert [*planner.core.live()] == []

    @pytest.mark.parametrize(
        ("plan", "field"),
        [
            (None, "plan"),
            ({"nodes": []}, "plan.nodes"),
            ({"nodes": [{"id": "a", "kind": "tool", "tool": "act"}]}, "nodes[0].tool"),
            ({"nodes": [{"id": "a", "kind": "llm"}]}, "nodes[0].args/model"),
            (graph({"id": "a", "depends_on": ["z"]}), "nodes[0].depends_on[0]"),
            (graph({"id": "a", "args": {"x": {"$ref": "z#/y"}}}), "nodes[0].args/x"),
            (graph({"id": "a", "args": {"x": 2**60}}), "plan/nodes/0/args/x"),
            (graph({"id": "a", "args": {"x": "y" * MAX_PLAN_BYTES}}), "plan: larger"),
        ],
    )
    def test_an_invalid_plan_is_refused_by_field(self, plan: dict[str, Any] | None, field: str) -> None:
        refused = PlannerSurroundings().planner().submit(submit(plan))
        assert isinstance(refused, RefusedSubmission)
        assert refused.reason.startswith(field)

    def test_the_largest_plan_fits_its_group(self) -> None:
        plan = graph({"id": "a", "args": {"x": "y" * (MAX_PLAN_BYTES - 500)}})
        assert isinstance(PlannerSurroundings().planner().submit(submit(plan)), Append)

    def test_a_missing_index_line_is_written_after_a_crash(self) -> None:
        planner = PlannerSurroundings().planner()
        planner.submit(submit(CHAIN))
        again = planner.surroundings.planner().restore()
        assert events_of(again.take()) == [("a", "b", "c"), "index running"]
        assert events_of(planner.surroundings.planner().restore().take()) == [("a", "b", "c")]


class TestRequests:
    def test_ready_nodes_in_declared_order(self) -> None:
        plan = graph({"id": "z"}, {"id": "m"}, {"id": "a"})
        assert events_of(started_planner(plan).take())[2:5] == [("z",), ("m",), ("a",)]

    def test_without_runs_each_node_is_asked_for_alone(self) -> None:
        planner = started_planner(CHAIN, runs=False)
        assert [one.body.nodes for one in requests(planner.take())] == [("a",)]
        planner.happens(*ran("a"))
        assert [one.body.nodes for one in requests(planner.take())] == [("b",)]

    def test_a_run_needs_nothing_from_outside_of_it(self) -> None:
        planner = started_planner(WIDE)
        assert [one.body.nodes for one in requests(planner.take())] == [("a",), ("b",)]
        planner.happens(*ran("a"))
        assert requests(planner.take()) == []
        planner.happens(*ran("b"))
        assert [one.body.nodes for one in requests(planner.take())] == [("c",)]

    def test_a_run_continues_over_a_node_whose_other_needs_are_done(self) -> None:
        plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": ["a", "b"]})
        assert [one.body.nodes for one in requests(started_planner(plan).take())] == [("a", "b", "c")]

    def test_where_several_could_follow_the_others_run_beside_it(self) -> None:
        plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": ["a"]})
        planner = started_planner(plan)
        assert [one.body.nodes for one in requests(planner.take())] == [("a", "b")]
        planner.happens(*ran("a"), started("b", "nonce-b"))
        assert [one.body.nodes for one in requests(planner.take())] == [("c",)]

    def test_a_run_is_capped_and_ends_before_what_is_irreversible(self) -> None:
        long = graph(*({"id": f"n{i}", "depends_on": [f"n{i - 1}"] if i else []} for i in range(250)))
        (asked,) = requests(started_planner(long).take())
        assert len(asked.body.nodes) == 200
        plan = graph({"id": "a"}, {"id": "b", "depends_on": ["a"], "irreversible": True})
        assert [one.body.nodes for one in requests(started_planner(plan).take())] == [("a",)]

    def test_nodes_that_a_run_took_along_are_not_asked_for(self) -> None:
        planner = started_planner(CHAIN)
        planner.take()
        planner.happens(*ran("a"), started("b", "nonce-b"))
        assert events_of(planner.take()) == ["node_finished a"]
        assert planner.core.joined() == [Joined(started("b", "x").idempotency_key, JOB, "b")]

    def test_nodes_that_a_cut_run_left_are_asked_for_again(self) -> None:
        planner = started_planner(CHAIN)
        planner.take()
        planner.happens(*ran("a"))
        assert events_of(planner.take()) == ["node_finished a", ("b", "c")]

    def test_the_same_head_is_asked_for_once(self) -> None:
        planner = started_planner(CHAIN)
        planner.take()
        planner.happens(started("a", "n1"), finished("a", "n1", "retryable_failure"))
        assert planner.take() == []

    def test_arguments_and_key_of_the_head(self) -> None:
        plan = graph(
            {"id": "a"}, {"id": "b", "args": {"to": {"$ref": "a#/mail"}, "n": 1}}, act={"effect_class": "pure"}
        )
        planner = started_planner(plan, runs=False)
        planner.happens(*ran("a", result={"mail": "x@y"}))
        head = requests(planner.take())[-1]
        args = {"to": "x@y", "n": 1}
        assert head.body.args == args
        assert head.key == started("b", "n", args=args).idempotency_key

    def test_a_large_result_is_loaded_first(self) -> None:
        planner, ref = self.large_result()
        (load,) = [output for output in planner.take() if isinstance(output, LoadArguments)]
        assert (load.node_id, load.refs) == ("b", (ref,))
        (asked,) = requests(planner.core.resolved(JOB, "b", {ref.sha256: {"mail": "x@y"}}))
        assert asked.body.args == {"to": "x@y"}
        assert asked.key == started("b", "n", args={"to": "x@y"}).idempotency_key

    def test_a_large_result_of_an_earlier_job_is_loaded_first(self) -> None:
        ref = BlobRef(sha256="s", size=70_000)
        planner = PlannerSurroundings().planner(runs=False)
        planner.happens(
            adopts("a", {}, ref=ref), planned(graph({"id": "b", "args": {"to": {"$ref": "job-0/a#/mail"}}}))
        )
        (load,) = [output for output in planner.take() if isinstance(output, LoadArguments)]
        assert (load.node_id, load.refs) == ("b", (ref,))
        (asked,) = requests(planner.core.resolved(JOB, "b", {"s": {"mail": "x@y"}}))
        assert (asked.body.nodes, asked.body.args) == (("b",), {"to": "x@y"})

    def test_a_large_result_that_cannot_be_loaded_is_left_to_the_readers(self) -> None:
        planner, _ = self.large_result()
        (asked,) = requests(planner.core.resolved(JOB, "b", None))
        assert (asked.body.nodes, asked.body.args, asked.key) == (("b",), {}, None)

    def test_a_reference_into_a_large_result_may_lead_nowhere(self) -> None:
        planner, ref = self.large_result()
        planner.take()
        planner.write(planner.core.resolved(JOB, "b", {ref.sha256: {}}))
        planner.settle()
        assert events_of(planner.take()) == ["node_finished b", "job_stopping", "job_failed b", "index failed"]

    def large_result(self) -> tuple[Planner, BlobRef]:
        planner = started_planner(graph({"id": "a"}, {"id": "b", "args": {"to": {"$ref": "a#/mail"}}}), runs=False)
        start, end = ran("a")
        ref = BlobRef(sha256="0" * 64, size=10**6)
        planner.happens(start, end.model_copy(update={"result_ref": ref}))
        return planner, ref

    def test_resolved_arguments_that_are_large_do_not_travel(self) -> None:
        args = {f"p{i}": {"$ref": "a#/text"} for i in range(3)}
        planner = started_planner(graph({"id": "a"}, {"id": "b", "args": args}), runs=False)
        planner.happens(*ran("a", result={"text": "x" * 30_000}))
        head = requests(planner.take())[-1]
        assert head.body.args == {}
        assert head.key is not None

    def test_a_reference_that_leads_nowhere_fails_its_node(self) -> None:
        plan = graph({"id": "a"}, {"id": "b", "args": {"to": {"$ref": "a#/mail"}}})
        planner = started_planner(plan, runs=False)
        planner.take()
        planner.happens(*ran("a", result={}))
        expected = ["node_finished a", "node_finished b", "job_stopping", "job_failed b", "index failed"]
        assert events_of(planner.take()) == expected
        assert of_type(planner.surroundings, ev.JobFailed)[0].error == "a#/mail: the result has no such place"


class TestEnds:
    def test_completed_with_the_results_of_the_sinks(self) -> None:
        planner = started_planner(PURE)
        planner.take()
        planner.happens(*ran("a", result=1), *ran("b", result={"x": None}))
        assert events_of(planner.take()) == ["node_finished a", "node_finished b", "job_completed", "index completed"]
        assert of_type(planner.surroundings, ev.JobCompleted)[0].result == {"b": {"x": None}}
        reports = of_type(planner.surroundings, ev.NodeFinished)
        assert [(one.result_type, one.step_index, one.attempt) for one in reports] == [
            ("success", 0, 1),
            ("success", 1, 1),
        ]
        assert reports[0].output_hash == digest(1)

    def test_effects_are_committed_side_effects(self) -> None:
        planner = started_planner(graph({"id": "a"})).happens(*ran("a"))
        assert [one.result_type for one in of_type(planner.surroundings, ev.NodeFinished)] == ["side_effect_committed"]

    def test_large_results_stay_in_their_events(self) -> None:
        planner = started_planner(graph({"id": "a"}, {"id": "b"}))
        planner.happens(*ran("a", result="x" * 70_000), *ran("b", result="y"))
        assert of_type(planner.surroundings, ev.JobCompleted)[0].result == {"b": "y"}

    def test_a_failure_stops_then_waits_for_what_is_in_flight(self) -> None:
        planner = started_planner(WIDE)
        planner.take()
        planner.happens(started("b", "nb"), started("a", "na"), finished("a", "na", "permanent_failure"))
        assert events_of(planner.take()) == ["node_finished a", "job_stopping"]
        planner.happens(finished("b", "nb"))
        assert events_of(planner.take()) == ["node_finished b", "job_failed a", "index failed"]

    def test_a_reopened_key_holds_the_end(self) -> None:
        planner = started_planner(WIDE)
        planner.happens(started("b", "nb"), *ran("a", outcome="permanent_failure"))
        planner.happens(finished("b", "nb", "retryable_failure"))
        assert of_type(planner.surroundings, ev.JobFailed) == []
        planner.happens(finished("b", "nb", "permanent_failure", via="ledger"))
        assert len(of_type(planner.surroundings, ev.JobFailed)) == 1

    def test_a_parked_key_keeps_the_job_waiting(self) -> None:
        planner = started_planner(WIDE)
        planner.take()
        parked = about(ev.InvocationParked, "b", invocation_id="nb", reason="unknown")
        planner.happens(started("b", "nb"), parked, *ran("a", outcome="permanent_failure"))
        assert events_of(planner.take()) == ["node_finished a", "job_stopping", "index waiting"]
        planner.happens(finished("b", "nb", via="human"))
        assert events_of(planner.take()) == ["node_finished b", "job_failed a", "index failed"]

    def test_an_approval_is_waited_for_in_the_index(self) -> None:
        planner = started_planner(CHAIN)
        planner.take()
        bound: dict[str, Any] = {"args_hash": "h", "tool_version": "1", "rule": "r"}
        planner.happens(about(ev.ApprovalRequested, "a", form={}, **bound))
        assert events_of(planner.take()) == ["index waiting"]
        planner.happens(about(ev.ApprovalDecided, "a", decision=Decision.APPROVE, approver="eve", **bound))
        assert events_of(planner.take()) == ["index running"]

    def test_a_rejection_fails_the_job(self) -> None:
        planner = started_planner(CHAIN)
        planner.happens(about(ev.InvocationRejected, "a", reason=RejectReason.POLICY))
        assert of_type(planner.surroundings, ev.JobFailed)[0].error == "policy"
        (report,) = of_type(planner.surroundings, ev.NodeFinished)
        assert (report.result_type, report.attempt, report.output_hash) == ("permanent_failure", 0, None)

    def test_a_partial_effect_stops_the_job(self) -> None:
        planner = started_planner(CHAIN)
        planner.take()
        planner.happens(*ran("a", outcome="compensatable_failure"))
        assert events_of(planner.take()) == ["node_finished a", "job_stopping", "job_failed a", "index failed"]
        assert of_type(planner.surroundings, ev.NodeFinished)[0].result_type == "compensatable_failure"

    def test_an_end_that_another_planner_told_of_a_node_stops_the_job(self) -> None:
        planner = started_planner(WIDE)
        planner.take()
        told = ev.NodeFinished(job_id=JOB, node_id="a", step_index=0, attempt=0, result_type="permanent_failure")
        planner.happens(told)
        assert events_of(planner.take()) == ["job_stopping", "job_failed a", "index failed"]

    def test_nothing_after_the_end(self) -> None:
        planner = started_planner(graph({"id": "a"})).happens(*ran("a"))
        planner.take()
        planner.cancel(cancel())
        planner.happens(finished("a", "other"))
        assert planner.take() == []

    def test_sealed_jobs_are_forgotten_and_stay_known(self) -> None:
        planner = started_planner(graph({"id": "a"})).happens(*ran("a"))
        assert [creation_offset for _, creation_offset in planner.core.live()] == [0]
        planner.surroundings.index.clear()
        planner.happens(sealed())
        assert [*planner.core.live()] == []
        assert not list(planner.core.jobs)
        assert planner.submit(submit(graph({"id": "a"}))) is None


class TestCancel:
    def test_stop_settle_cancelled(self) -> None:
        planner = started_planner(CHAIN).happens(started("a", "na"))
        planner.take()
        planner.cancel(cancel(), "cmd-7")
        planner.settle()
        assert events_of(planner.take()) == ["cancel_requested", "job_stopping"]
        assert of_type(planner.surroundings, ev.CancelRequested)[0].caused_by == "cmd-7"
        assert of_type(planner.surroundings, ev.JobStopping)[0].up_to_revision == 0
        planner.happens(finished("a", "na"))
        assert events_of(planner.take()) == ["node_finished a", "job_cancelled", "index cancelled"]

    def test_cancel_before_the_birth_is_folded_is_held(self) -> None:
        planner = PlannerSurroundings().planner()
        planner.submit(submit(CHAIN))
        planner.cancel(cancel(), offset=41)
        assert planner.core.low_water() == 41
        planner.settle()
        assert planner.core.low_water() is None
        expected = ["cancel_requested", "job_stopping", "index running", "job_cancelled", "index cancelled"]
        assert events_of(planner.take())[2:] == expected

    def test_a_repeated_cancel_is_nothing(self) -> None:
        planner = started_planner(CHAIN).happens(started("a", "na"))
        planner.cancel(cancel())
        planner.cancel(cancel())
        planner.settle()
        planner.cancel(cancel(), "cmd-8")
        assert len(of_type(planner.surroundings, ev.CancelRequested)) == 1

    def test_a_failure_after_a_cancel_is_still_a_cancel(self) -> None:
        planner = started_planner(CHAIN).happens(started("a", "na"))
        planner.cancel(cancel())
        planner.happens(finished("a", "na", "permanent_failure", via="ledger"))
        assert of_type(planner.surroundings, ev.JobFailed) == []
        assert len(of_type(planner.surroundings, ev.JobCancelled)) == 1

    def test_unknown_jobs_have_no_cancel(self) -> None:
        planner = PlannerSurroundings().planner()
        planner.cancel(cancel())
        assert planner.take() == []


class TestUpgrade:
    def test_a_job_that_holds_a_newer_record_pauses(self) -> None:
        planner = started_planner(CHAIN)
        planner.take()
        planner.surroundings.unreadable.add(len(planner.surroundings.log))
        planner.happens(finished("a", "x"), *ran("a"))
        assert events_of(planner.take()) == ["job_waiting", "index needs_upgrade"]
        again = planner.surroundings.planner().restore()
        assert again.take() == []

    def test_a_newer_version_goes_on(self) -> None:
        planner = started_planner(CHAIN)
        planner.surroundings.unreadable.add(len(planner.surroundings.log))
        planner.happens(started("a", "na"), finished("a", "na"))
        planner.surroundings.unreadable.clear()
        upgraded = planner.surroundings.planner().restore()
        assert events_of(upgraded.take()) == ["wait_completed", "node_finished a", ("b", "c"), "index running"]

    def test_a_birth_that_cannot_be_read_holds_the_mark_and_is_not_repeated(self) -> None:
        planner = PlannerSurroundings().planner()
        planner.surroundings.unreadable.add(0)
        planner.happens(ev.JobCreated(job_id=JOB, tenant=TENANT, submitted_by="ann", request_hash="r"))
        assert [creation_offset for _, creation_offset in planner.core.live()] == [0]
        assert planner.submit(submit(CHAIN)) is None

    def test_nor_does_one_that_a_newer_planner_has_listed_let_the_mark_pass(self) -> None:
        newer = started_planner(CHAIN)
        assert newer.surroundings.index[JOB].status == "running"
        newer.surroundings.unreadable.add(0)
        older = newer.surroundings.planner().restore()
        assert [creation_offset for _, creation_offset in older.core.live()] == [0]

    def test_what_is_said_of_a_node_of_a_plan_that_cannot_be_read_is_let_be(self) -> None:
        planner = PlannerSurroundings().planner()
        planner.surroundings.unreadable.add(1)
        born = ev.JobCreated(job_id=JOB, tenant=TENANT, submitted_by="ann", request_hash="r", plan=CHAIN)
        planner.happens(born, planned(CHAIN), *ran("a"))
        planner.happens(
            ev.NodeFinished(job_id=JOB, node_id="a", step_index=1, attempt=1, result_type="permanent_failure")
        )
        assert not planner.core.unjudged.failures
        assert planner.surroundings.index[JOB].status == "needs_upgrade"


def test_a_long_job_asks_for_each_step_once() -> None:
    plan = graph(*({"id": f"n{i}", "depends_on": [f"n{i - 1}"] if i else []} for i in range(3000)))
    planner = started_planner(plan, runs=False)
    for i in range(3000):
        planner.happens(*ran(f"n{i}"))
    assert len(requests(planner.take())) == 3000
    assert len(of_type(planner.surroundings, ev.JobCompleted)) == 1


def test_the_example_of_the_docs_is_a_plan() -> None:
    text = Path(__file__).parents[3].joinpath("docs/plans.md").read_text()
    plan = json.loads(text.split("```json\n", 1)[1].split("```", 1)[0])
    order = check_graph(TaskGraph.model_validate(plan).nodes)
    assert f"`{', '.join(order)}`" in text


def test_a_new_revision_is_asked_for_anew() -> None:
    planner = started_planner(graph({"id": "a"}))
    planner.take()
    planner.happens(planned(graph({"id": "a", "args": {"x": 1}}), revision=1))
    (asked,) = requests(planner.take())
    assert (asked.body.revision, asked.body.nodes) == (1, ("a",))


def test_a_partial_result_of_a_tool_that_only_reads_is_a_success() -> None:
    planner = started_planner(PURE)
    planner.happens(*ran("a", outcome="compensatable_failure"))
    reports = of_type(planner.surroundings, ev.NodeFinished)
    assert [report.result_type for report in reports] == ["success"]
    assert of_type(planner.surroundings, ev.JobStopping) == []


def test_a_stop_stops_revisions_too_that_its_writer_had_not_read() -> None:
    planner = started_planner(WIDE)
    planner.happens(planned(graph({"id": "c"}), revision=1))
    planner.happens(ev.JobStopping(job_id=JOB, by="bob", reason="enough", up_to_revision=0))
    stops = of_type(planner.surroundings, ev.JobStopping)
    assert [stop.up_to_revision for stop in stops] == [0]
    (end,) = of_type(planner.surroundings, ev.JobFailed)
    assert planner.surroundings.log.index(end) > planner.surroundings.log.index(stops[0])
