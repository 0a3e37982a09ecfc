"""What a request to the service may name on the server: data roots, hub ids, and nothing else.

A request comes from somebody who may use the service, not the machine. So every path in it has to
lie below one of ``KDNAS_DATA_ROOTS``, with links and ``..`` followed, and nothing in it may make
the service load code or trust a cluster that its own settings do not name.

This is the first look, for an answer at once; whoever works on it opens what it names within the
same roots (``kdnas.reach``), since all of it may have changed by then.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from api.jobs.files import checkpoints_in_store
from kdnas.corpus.globs import matches, split_glob
from kdnas.errors import RequestError, told_at
from kdnas.models.teacher_files import ALIASES, refuse_no_model
from kdnas.reach import Reach
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec, FullTrainingSpec
from kdnas.specs.parts import CorpusSpec, ModelSpec
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import ProxiesSpec, SearchSpec
from kdnas.specs.wording import shown

PYDOCS, HUB_PREFIX = "pydocs", "hub:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_URL = re.compile(r"[A-Za-z][\w.+-]*://", re.ASCII)


def check_paths(spec: ProxiesSpec | DistillationSpec, settings: Settings, at: str = "") -> None:
    """Refuse a request that names what it may not, or what is not there.

    Args:
        spec: of a search, a sweep or a distillation.
        settings: with data roots, Ray address and whether custom code is allowed.
        at: where it stands in a larger request, such as ``search.``.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
        TeacherError: a model's folder is not there.
        CorpusError: a text is not there.
    """
    check_model(spec.teacher, f"{at}teacher.ref", settings)
    _check_corpus(spec.corpus, f"{at}corpus.source", settings)
    if isinstance(spec, ProxiesSpec):
        if isinstance(spec, SearchSpec):
            _check_strategy(spec.controller.strategy.name, f"{at}controller.strategy", settings)
        _check_address(spec.backend.address, f"{at}backend.address", settings)
        return
    if spec.student.init_from is not None:
        check_model(spec.student.init_from, f"{at}student.init_from.ref", settings)
    _check_places(spec.output, spec.training, at, settings)


def check_pipeline(spec: PipelineSpec, settings: Settings) -> None:
    """Refuse a pipeline that names what it may not, in its search or for its students.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
        TeacherError: a model's folder is not there.
        CorpusError: a text is not there.
    """
    check_paths(spec.search, settings, "search.")
    part = spec.distillation
    _check_places(part.output, part.training, "distillation.", settings)
    if spec.evaluation.data_dir is not None:
        check_folder(spec.evaluation.data_dir, "evaluation.data_dir", settings)


def check_model(model: ModelSpec, where: str, settings: Settings) -> None:
    """Refuse a model that is no alias, no hub id and no folder that may be read.

    Students of earlier distillations, in ``students`` of ``KDNAS_HOME``, may be read as well.

    Args:
        model: a teacher, or the student that another begins with.
        where: its entry in the request, for the message.
        settings: with the data roots.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
        TeacherError: its folder is not there, or no model's.
    """
    if model.ref in ALIASES or _is_hub_id(model.ref):
        return
    _check_tree(model.ref, where, settings.for_service().reach)
    with told_at(where):
        refuse_no_model(model.ref)


def check_folder(text: str, where: str, settings: Settings) -> None:
    """Refuse a path that does not lie below the data roots, with all that it links to.

    Args:
        text: the path.
        where: its entry in the request, for the message.
        settings: with the data roots.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
    """
    _check_tree(text, where, _below_roots(settings))


def check_output(text: str, where: str, settings: Settings) -> None:
    """Refuse a place for results that does not lie below the data roots.

    Args:
        text: its path.
        where: its entry in the request, for the message.
        settings: with the data roots.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
    """
    _check_path(text, where, _below_roots(settings))


def _check_corpus(corpus: CorpusSpec, where: str, settings: Settings) -> None:
    from kdnas.corpus.sources import find_sources  # loads Arrow

    reach = _below_roots(settings)
    for source in corpus.source:
        hub_id = source.removeprefix(HUB_PREFIX)
        if source == PYDOCS or (hub_id != source and _is_hub_id(hub_id)):
            continue
        if hub_id != source:
            raise RequestError(
                f"{where} {shown(source)} is no data set of the hub; write hub:owner/name",
                field=where,
            )
        if glob.has_magic(source):
            _check_glob(source, where, reach)
        else:
            _check_tree(source, where, reach)
    with told_at(where):
        for found in find_sources(corpus, settings.for_service().reach):
            found.refuse_unreadable()


def _check_places(
    output: str | None, training: FullTrainingSpec, at: str, settings: Settings
) -> None:
    """Refuse places for students and checkpoints, and another cluster."""
    if output is not None:
        check_output(output, f"{at}output", settings)
    place = training.checkpoints
    if place is not None and place != checkpoints_in_store(settings):  # as a stored spec names it
        _check_location(place, f"{at}training.checkpoints", settings)
    _check_address(training.address, f"{at}training.address", settings)


def _check_strategy(strategy: str, where: str, settings: Settings) -> None:
    if ":" in strategy and not settings.allow_custom_code:
        raise RequestError(
            f"{where} {shown(strategy)} would run code of its own in the service; install "
            "it as an entry point of kdnas.strategies, or start the service with "
            "KDNAS_ALLOW_CUSTOM_CODE=1",
            field=where,
        )


def _check_address(address: str | None, where: str, settings: Settings) -> None:
    """Refuse other clusters: who runs one can run code in whatever connects to it."""
    if address is not None and address != settings.ray_address:
        raise RequestError(
            f"{where} {shown(address)} is not the cluster of this service; leave it out, or start "
            "the service with KDNAS_RAY_ADDRESS",
            field=where,
        )


def _is_hub_id(ref: str) -> bool:
    """Whether this can only mean the hub: a folder of that name would be taken first."""
    return _HUB_ID.fullmatch(ref) is not None and not Path(ref).exists()


def _check_location(location: str, where: str, settings: Settings) -> None:
    """Refuse a folder, or a URL that is not below a URL among the roots.

    A chain of URLs, whose first part may look like a path, leads wherever its last part says.
    """
    if "://" not in location and "::" not in location:
        _check_path(location, where, _below_roots(settings))
        return
    urls = [root.rstrip("/") for root in settings.data_roots if _URL.match(root)]
    plain = "::" not in location and ".." not in location and "\\" not in location
    if not plain or not any(f"{location}/".startswith(f"{root}/") for root in urls):
        raise RequestError(_outside(where, location, urls), field=where)


def _check_path(text: str, where: str, reach: Reach, *, said: str | None = None) -> Path:
    """Return where a path leads; ``said`` is what the request says, if that is more."""
    said = said or text
    try:
        path = Path(text).expanduser().resolve()
        path.exists()  # complains where a name is too long
    except (OSError, RuntimeError, ValueError) as error:  # no such user, links in a circle
        reason = getattr(error, "strerror", None) or "it cannot be one"
        problem = f"{where} {shown(said)} is no path: {reason}; check it"
        raise RequestError(problem, field=where) from None
    if not reach.leads_to(path):
        roots = reach.roots or ()
        below = any(path.is_relative_to(root) for root in roots)
        own = next((folder for folder in reach.apart if path.is_relative_to(folder)), None)
        told = _ours(where, said, own) if below and own else _outside(where, said, roots)
        raise RequestError(told, field=where)
    return path


def _check_tree(text: str, where: str, reach: Reach) -> None:
    """Refuse a path outside the roots, and a folder in which a link leads out of them."""
    for inner in _check_path(text, where, reach).rglob("*"):
        if inner.is_symlink():
            _check_path(str(inner), where, reach)


def _check_glob(pattern: str, where: str, reach: Reach) -> None:
    """Refuse a glob that begins or leads outside; its files are found only if it begins inside."""
    begins, parts = split_glob(Path(pattern))
    start = _check_path(str(begins), where, reach, said=pattern)
    if ".." in parts:
        problem = f"{where} {shown(pattern)} has .. behind a wildcard; write it plainly"
        raise RequestError(problem, field=where)
    with told_at(where):
        found = matches(start.joinpath(*parts), pattern)
    for match in found:
        _check_path(str(match), where, reach)


def _below_roots(settings: Settings) -> Reach:
    """Without the students of ``KDNAS_HOME``, which are models and nothing else."""
    return Reach.below(settings.root_folders, settings.kept_apart)


def _ours(where: str, text: str, folder: Path) -> str:
    return (
        f"{where} {shown(text)} lies in {folder}, which kdnas keeps for itself; name something "
        "below a data root that is beside it"
    )


def _outside(where: str, text: str, roots: Sequence[Path | str]) -> str:
    known = ", ".join(map(str, roots))
    return (
        f"{where} {shown(text)} is outside KDNAS_DATA_ROOTS ({known or 'which is not set'}); name "
        "something below a data root, or start the service with another KDNAS_DATA_ROOTS"
    )
