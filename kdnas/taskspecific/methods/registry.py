"""Which methods there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdnas.errors import SpecError, unknown_name
from kdnas.taskspecific.methods.alp_kd import ALPKD
from kdnas.taskspecific.methods.annealing_kd import AnnealingKD
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.dih import DIH
from kdnas.taskspecific.methods.mhkd import MHKD
from kdnas.taskspecific.methods.none import NoDistillation
from kdnas.taskspecific.methods.pkd import PKD
from kdnas.taskspecific.methods.takd import TAKD
from kdnas.taskspecific.methods.universal_kd_ca import UniversalKDCA
from kdnas.taskspecific.methods.universal_kd_cg import UniversalKDCG
from kdnas.taskspecific.methods.universal_kd_il import UniversalKDIL
from kdnas.taskspecific.methods.universal_kd_weighted import UniversalKDWeighted
from kdnas.taskspecific.methods.vanilla_kd import VanillaKD

METHODS: Final[Mapping[str, type[Method]]] = {
    method.name: method
    for method in (
        NoDistillation,
        VanillaKD,
        PKD,
        MHKD,
        ALPKD,
        TAKD,
        DIH,
        AnnealingKD,
        UniversalKDIL,
        UniversalKDCG,
        UniversalKDCA,
        UniversalKDWeighted,
    )
}


def method_named(name: str) -> type[Method]:
    """Return a method by its name.

    Raises:
        SpecError: there is none; says which name is nearest.
    """
    try:
        return METHODS[name]
    except KeyError:
        raise SpecError(unknown_name("method", name, METHODS)) from None
