"""Who may do what."""

from __future__ import annotations

from typing import Literal

Role = Literal["operator", "viewer"]
