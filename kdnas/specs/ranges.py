"""The numbers of requests, each with the range in which it means something.

An upper end is far above all that anybody has asked for, and low enough that a mistyped or hostile
number is refused in a sentence: nothing of it can fill the memory, outgrow a database's integers or
keep a service busy.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from kdnas.architecture import MOST_LAYERS

Fraction = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]  # as PostgreSQL and NumPy take it
Steps = Annotated[int, Field(ge=1, le=10**9)]
StepsIfAny = Annotated[int, Field(ge=0, le=10**9)]
Epochs = Annotated[float, Field(gt=0, le=10**6)]
BatchSize = Annotated[int, Field(ge=1, le=2**16)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Workers = Annotated[int, Field(ge=1, le=10_000)]
Samples = Annotated[int, Field(ge=1, le=10**12)]
HeldOut = Annotated[int, Field(ge=8, le=10**7)]
CalibrationTokens = Annotated[int, Field(ge=256, le=10**8)]
TokensOfSample = Annotated[int, Field(ge=8, le=8192)]
TimedTokens = Annotated[int, Field(ge=4, le=8192)]
States = Annotated[int, Field(ge=1, le=10**9)]
Layer = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
Heads = Annotated[int, Field(ge=1, le=2**16)]
LearningRate = Annotated[float, Field(gt=0)]  # too high a one harms its own training alone
Average = Annotated[float, Field(ge=0, lt=1)]
"""How much an exponential average keeps of itself at each step."""
Weight = Annotated[float, Field(ge=0, le=10**6)]
PositiveWeight = Annotated[float, Field(gt=0, le=10**6)]
Confidence = Annotated[float, Field(ge=0, le=10**6)]
"""In standard deviations."""
Population = Annotated[int, Field(ge=1, le=10**5)]
Temperature = Annotated[float, Field(gt=0, le=1000)]
Limit = Annotated[float, Field(gt=0, le=10**9)]
"""Of a latency, a size or a time that must not be exceeded."""
