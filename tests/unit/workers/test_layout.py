from __future__ import annotations

import pytest

from kdnas.errors import SpecError
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace
from kdnas.specs.search import BackendSpec, ProxySpec
from workers.layout import backend_plan, largest_student_bytes, resolve_backend, teacher_bytes
from workers.machine import Machine

GIB = 2**30
BASE = TeacherShape("bert", 12, 12, 768, 3072, "gelu", 30522, 512, 2, "f")


EIGHT = Machine("this machine", 8, 8, 0, 16 * GIB, 0, False, False)


@pytest.mark.parametrize(
    ("spec", "workers", "threads", "group"),
    [
        # (16 / 2 / n − 1) GiB for each of n workers, 1 GiB a student, two students at least
        (BackendSpec(), 2, 4, 3),
        (BackendSpec(num_workers=1), 1, 8, 7),
        (BackendSpec(num_workers=3), 3, 2, 1),
        (BackendSpec(num_workers=16), 16, 1, 1),
        (BackendSpec(threads=1), 2, 1, 3),
        (BackendSpec(group_size=11), 2, 4, 11),
        (BackendSpec(name="local"), 1, 8, 7),
        (BackendSpec(name="local", num_workers=5), 1, 8, 7),
    ],
)
def test_what_is_left_open_is_filled_in(
    spec: BackendSpec, workers: int, threads: int, group: int
) -> None:
    found = resolve_backend(spec, 20, GIB, GIB, EIGHT)
    assert (found.num_workers, found.threads, found.group_size) == (workers, threads, group)
    assert found.device == "cpu"
    plan = backend_plan(found, "/store")
    assert (plan.num_workers, plan.threads, plan.group_size) == (workers, threads, group)
    assert resolve_backend(found, 20, GIB, GIB, EIGHT) == found


def test_each_core_gets_a_worker_while_two_students_share_a_teacher_pass() -> None:
    found = resolve_backend(BackendSpec(), 20, 1, 0, EIGHT)
    assert (found.num_workers, found.threads, found.group_size) == (8, 1, 3)
    found = resolve_backend(BackendSpec(), 4, 1, 0, EIGHT)
    assert (found.num_workers, found.threads, found.group_size) == (2, 4, 2)
    found = resolve_backend(BackendSpec(), 1, 1, 0, EIGHT)
    assert (found.num_workers, found.threads, found.group_size) == (1, 8, 1)


def test_groups_are_no_larger_than_the_work_or_sixteen() -> None:
    assert resolve_backend(BackendSpec(num_workers=2), 5, 1, 0, EIGHT).group_size == 3
    assert resolve_backend(BackendSpec(num_workers=1), 100, 1, 0, EIGHT).group_size == 16


def test_the_nodes_of_a_cluster_share_the_work() -> None:
    """Two nodes with eight cores and 16 GiB each: a node's memory counts for its own workers."""
    nodes = Machine("the cluster", 8, 16, 0, 16 * GIB, 0, False, False)
    found = resolve_backend(BackendSpec(), 20, GIB, GIB, nodes)
    assert (found.num_workers, found.threads, found.group_size) == (5, 3, 3)
    one = resolve_backend(BackendSpec(num_workers=1), 20, GIB, GIB, nodes)
    assert (one.threads, one.group_size) == (8, 7)  # no worker has more cores than a node
    assert resolve_backend(found, 20, GIB, GIB, nodes) == found


def test_the_gpus_of_a_cluster_count_and_not_those_of_the_driver() -> None:
    nodes = Machine("the cluster", 8, 16, 4, 16 * GIB, 40 * GIB, False, True)
    found = resolve_backend(BackendSpec(gpu_fraction=0.5), 40, GIB, GIB, nodes)
    assert (found.device, found.num_workers, found.group_size) == ("cuda", 8, 5)
    found = resolve_backend(BackendSpec(), 80, GIB, GIB, nodes)
    assert (found.device, found.num_workers, found.group_size) == ("cuda", 4, 16)
    assert resolve_backend(BackendSpec(device="cpu"), 40, GIB, GIB, nodes).device == "cpu"
    with pytest.raises(SpecError, match="torch sees no GPU on this machine"):
        resolve_backend(BackendSpec(device="cuda"), 40, GIB, GIB, EIGHT)


def test_a_plan_needs_a_resolved_spec() -> None:
    with pytest.raises(ValueError, match="not resolved"):
        backend_plan(BackendSpec(), "/store")


def test_memory_is_estimated_from_above_but_not_absurdly() -> None:
    student = largest_student_bytes(SearchSpace.paper(), BASE, ProxySpec(), 256)
    assert 2 * GIB < student < 16 * GIB
    assert 4 * 108e6 < teacher_bytes(BASE) < 2 * GIB
