"""Universal-KD across architectures: inner layers that have no counterpart in the teacher."""

from __future__ import annotations

from kdnas.taskspecific.methods.base import Setting
from kdnas.taskspecific.methods.universal_kd_il import UniversalKD


class UniversalKDCA(UniversalKD):
    """A student that is no Transformer (Wu et al. 2021, Eq. 9)."""

    name = "universal-kd-ca"

    @classmethod
    def problem(cls, setting: Setting) -> str | None:
        """A Transformer's inner layers have counterparts."""
        if setting.student.transformer:
            return (
                f"method {cls.name} is for students whose inner layers have no counterpart in the "
                "teacher, such as bilstm; with a Transformer it is universal-kd-il: take that"
            )
        return super().problem(setting)
