"""What the server of :mod:`kdnas.testing.forked` loads: libraries that take long, none of ours."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # which the hub's library reads when it loads

import scipy.optimize  # noqa: F401
import torch  # noqa: F401
from transformers import AutoTokenizer, BertModel, Trainer  # noqa: F401
