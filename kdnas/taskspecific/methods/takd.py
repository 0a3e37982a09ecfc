"""An assistant between teacher and student (Mirzadeh et al. 2020)."""

from __future__ import annotations

from kdnas.taskspecific.methods.vanilla_kd import VanillaKD


class TAKD(VanillaKD):
    """Teacher → assistant → student, each step by :class:`VanillaKD`.

    A reading of what Wu et al. 2021 say of it (§3.2, §5.4: a single assistant, between in size).
    Unless one is named it is the teacher's first layers half way in depth; theirs, between 24 and 6
    layers, is a pre-trained model of 12.
    The assistant learns from the teacher in the same two stages and with the same settings as the
    student then does from the assistant.
    """

    name = "takd"
    assisted = True
