"""What searches and sweeps prepare: teacher, corpus, space, and where students are trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from api.inputs.clusters import cluster_address
from api.inputs.preparation import (
    OnCorpus,
    OnPreparing,
    Pinned,
    build_space,
    check_length,
    check_objective,
    pin,
    possible_start,
    prepare_objective,
    store_warnings,
)
from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, refuse_too_few
from kdnas.corpus.proxy_set import proxy_set
from kdnas.cpu import available_cores
from kdnas.distill.schedule import total_steps
from kdnas.errors import SpecError
from kdnas.models.cost import EmbeddingShape, count_parameters, flops_per_token
from kdnas.models.teacher import TeacherHandle
from kdnas.records import MiniKDContext
from kdnas.search.protocols import Backend
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.search import ProxiesSpec, ProxySpec
from kdnas.store import Store
from workers.backend import build_backend
from workers.layout import (
    backend_plan,
    largest_student_bytes,
    resolve_backend,
    teacher_bytes,
)
from workers.machine import machine_at

AnySpec = TypeVar("AnySpec", bound=ProxiesSpec)


@dataclass(frozen=True)
class PreparedProxies(Generic[AnySpec]):
    """A request with nothing left open: its inputs in the store, its layout decided.

    ``spec`` pins teacher and corpus by fingerprint and names workers, threads and group size;
    ``warnings`` are what the user should know before hours are spent.
    """

    spec: AnySpec
    pinned: Pinned
    space: SearchSpace
    context: MiniKDContext
    store: Store
    warnings: tuple[str, ...] = ()

    def params_millions(self, architecture: Architecture) -> float:
        """Parameters of a student with the teacher's vocabulary, in millions."""
        return count_parameters(architecture, EmbeddingShape.of(self.pinned.teacher.shape)) / 1e6

    def with_proxy(self, proxy: ProxySpec) -> MiniKDContext:
        """The context of another training of the same students."""
        return replace(self.context, proxy=_facts(proxy))

    def backend(self, context: MiniKDContext, settings: Settings) -> Backend:
        """Workers that train students in a context, laid out as the request says."""
        layout = self.spec.backend
        return build_backend(layout.name, context, backend_plan(layout, settings.store_url))


def prepare_proxies(
    spec: AnySpec,
    proxy: ProxySpec,
    candidates: int,
    settings: Settings,
    on_corpus: OnCorpus = lambda _: None,
    on_preparing: OnPreparing = lambda *_: None,
) -> PreparedProxies[AnySpec]:
    """Check a request, bring its inputs into the store and decide what it left open.

    Args:
        spec: the request.
        proxy: how its students are trained.
        candidates: students that are trained beside one another at most.
        settings: of this process.
        on_corpus: is told how tokenising goes.
        on_preparing: is told how the objective is prepared.

    Raises:
        RequestError: anything in the request that cannot be done.
    """
    machine = machine_at(cluster_address(spec.backend, settings), spec.backend.device)
    device = machine.choose_device(spec.backend.device)

    def check(teacher: TeacherHandle) -> None:
        build_space(spec.space, teacher, spec.objective, spec.student.init)
        check_length("latency.length", spec.latency.length, teacher)
        check_objective(spec.objective, teacher)

    store = Store.from_settings(settings)
    pinned = pin(spec.teacher, spec.corpus, store, on_corpus, check, settings.reach)
    chosen = proxy_set(pinned.corpus, proxy.fraction, proxy.seed)
    refuse_too_few(len(chosen), proxy.batch_size, "a larger proxy fraction, ")
    epoch = BatchPlan(pinned.corpus.lengths, chosen, proxy.batch_size, proxy.seed)
    problem = proxy.rungs_problem(total_steps(proxy, epoch.num_batches_per_epoch))
    if problem is not None:
        raise SpecError(f"proxy.rungs: {problem}")
    shape = pinned.teacher.shape
    student, about_the_start = possible_start(spec.student, spec.objective, pinned)
    space = build_space(spec.space, pinned.teacher, spec.objective, student.init)
    backend = resolve_backend(
        spec.backend,
        candidates,
        largest_student_bytes(space, shape, proxy, spec.corpus.max_length),
        teacher_bytes(shape),
        machine,
    )
    dtype = machine.choose_dtype(proxy.dtype, device)
    proxy = proxy.model_copy(update={"dtype": dtype})
    ranked = sorted(space.states, key=flops_per_token)
    objective, teacher = prepare_objective(
        spec.objective,
        ranked[len(ranked) // 2],
        pinned.teacher,
        pinned.corpus,
        store,
        student,
        proxy,
        spec.backend.device,
        proxy.dtype,
        available_cores(),
        on_preparing,
    )
    resolved = spec.model_copy(
        update={
            "teacher": pinned.teacher_spec,
            "corpus": pinned.corpus_spec,
            "backend": backend,
            "proxy": proxy,
            "objective": objective,
            "student": student,
        }
    )
    context = MiniKDContext(
        teacher=pinned.teacher.fingerprint,
        corpus=pinned.corpus.fingerprint,
        objective=objective.context(),
        student=student.to_json(),
        proxy=_facts(proxy),
        dtype=dtype,
        engine_version=ENGINE_VERSION,
    )
    warnings = (
        *pinned.corpus.meta["warnings"],
        *about_the_start,
        *objective.doubts(proxy.learning_rate),
        *store_warnings(machine, settings),
    )
    pinned = replace(pinned, teacher=teacher)
    return PreparedProxies(resolved, pinned, space, context, store, warnings)


def _facts(proxy: ProxySpec) -> dict[str, object]:
    """What of a proxy decides losses, without what the context says elsewhere.

    Where a training may end early changes nothing of one that does not.
    """
    left_out = {"reuse", "rungs", "keep", "dtype"}
    return {k: v for k, v in proxy.to_json().items() if k not in left_out}
