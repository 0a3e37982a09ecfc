"""``--dry-run``: what a search would train, and what that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdnas.cli.tables.answers import answer, fact_lines

if TYPE_CHECKING:
    from api.searches.run import PreparedSearch
    from kdnas.db.engine import Database


def show_plan(prepared: PreparedSearch, database: Database, as_json: bool) -> None:
    """Print the plan of a search; trains a few steps to know how long it would take."""
    from api.searches.plan import plan_search

    plan = plan_search(prepared, database)
    answer(plan, as_json, fact_lines(_facts(plan)))


def _facts(plan: dict[str, Any]) -> dict[str, str]:
    allowed = plan["num_allowed"]
    limits = f", {allowed} within the limits" if allowed is not None else ", limits not known yet"
    hours, minutes = divmod(round(plan["training_seconds"] / 60), 60)
    return {
        "space": f"{plan['num_states']} architectures{limits}",
        "would train": f"{plan['num_candidates']} candidates in {plan['num_episodes']} episodes, "
        f"each {plan['steps']} steps of {plan['batch_size']} sequences; {plan['num_known']} states "
        "are in the look-up table",
        "cost": f"{plan['total_tflops']:.0f} TFLOP for students of middle size, teacher "
        f"{100 * plan['teacher_share']:.0f} % of it",
        "memory": f"{plan['group_gib']:.2f} GiB for a group of {plan['group_size']} of the largest "
        f"students, {plan['teacher_gib']:.2f} GiB for the teacher, per worker",
        "time": f"about {hours} h {minutes:02} min of training on {plan['num_workers']} x "
        f"{plan['device']} ({plan['threads']} threads, {plan['dtype']}), from "
        f"{plan['seconds_per_student']:.1f} s a student timed just now"
        + ("" if plan["latency_known"] else "; and the latency table first"),
    }
