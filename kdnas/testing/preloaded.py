"""What the server of :mod:`kdnas.testing.forked` loads: libraries that take long, none of ours."""

from __future__ import annotations

import gc
import importlib
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # which the hub's library reads when it loads

for name in (
    *("pydantic", "yaml", "structlog", "typer", "filelock", "fsspec", "psutil"),
    *("rich.console", "rich.progress", "rich.table", "rich.live"),
    *("sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "sqlalchemy.dialects.postgresql", "psycopg"),
    *("alembic.command", "alembic.autogenerate"),
    *("scipy.optimize", "scipy.stats", "sklearn.metrics", "seqeval.metrics", "pyarrow.parquet"),
    *("torch", "safetensors.torch", "matplotlib.backends.backend_agg"),
    *("tensorboardX", "fastapi", "uvicorn"),
):
    importlib.import_module(name)

transformers = importlib.import_module("transformers")
for name in ("AutoConfig", "AutoModel", "AutoTokenizer", "BertModel", "Trainer"):
    getattr(transformers, name)  # each is loaded when it is asked for

gc.freeze()  # what all processes share is not to be copied by the first collection of each
